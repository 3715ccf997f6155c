"""What broke lanes, fallbacks, context management, the adapter and the survey once, and must not again."""

from __future__ import annotations

import asyncio
import importlib
import json
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from remit import Agent, Call, Limits, ModelError, Outcome, Reply, Request, Status, Usage, run, tool
from remit.engine.run.state import message_tokens
from remit.survey import survey
from remit.types.events import Compacted, Event, ResultCut, TurnStarted
from remit.types.messages import ToolMessage

HOUR = 3600.0


class Playing:
    """A model that does what a function says; one with a `limit` refuses what is longer."""

    def __init__(self, play: Callable[[Request], Reply], name: str = "playing", **traits: Any) -> None:
        self.name = name
        self.limit: int | None = None
        self.sizes: list[int] = []
        self.sent: list[float] = []
        self._play = play
        for key, value in traits.items():
            setattr(self, key, value)

    async def reply(self, request: Request, emit: object) -> Reply:
        size = sum(map(message_tokens, request.messages))
        self.sizes.append(size)
        self.sent.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        if self.limit is not None and size > self.limit:
            raise ModelError("too long", kind="context")
        reply = self._play(request)
        return Reply(reply.text, reply.calls, stop=reply.stop, usage=Usage(1, size, 20))


@tool(tier="observe")
def words(number: int, count: int) -> str:
    """Give so many words."""
    return f"{number}: " + "word " * count


def asks(number: int, count: int) -> Reply:
    return Reply(calls=(Call(f"c{number}", "words", {"number": number, "count": count}),), stop="calls")


def results(request: Request) -> int:
    return sum(isinstance(m, ToolMessage) for m in request.messages)


def once(count: int) -> Callable[[Request], Reply]:
    return lambda request: Reply("done") if results(request) else asks(1, count)


@pytest.mark.parametrize("window", [20_000, None])
async def test_one_huge_result_does_not_end_a_run(window: int | None) -> None:
    """A result longer than the window, in the last turn, is shortened; the window may even be unknown."""
    model = Playing(once(200_000), limit=20_000, context_window=window)
    outcome = await run(Agent("a", tools=[words]), "go", model=model)
    assert outcome.status is Status.COMPLETED, outcome.reason
    whole = max(artifact.chars for artifact in outcome.artifacts)
    assert whole == len("1: ") + 5 * 200_000


async def test_what_a_tool_writes_is_no_sign_that_it_was_shortened() -> None:
    """A long result that ends as a shortened one does is shortened all the same, and kept whole."""

    @tool(tier="observe")
    def ends_oddly() -> str:
        """Give what looks shortened."""
        return "word " * 200_000 + "[cut]"

    def play(request: Request) -> Reply:
        return (
            Reply("done") if results(request) else Reply(calls=(Call("c", "ends_oddly", {}),), stop="calls")
        )

    model = Playing(play, limit=20_000, context_window=20_000)
    outcome = await run(Agent("a", tools=[ends_oddly]), "go", model=model)
    assert outcome.ok, outcome.reason
    assert max(artifact.chars for artifact in outcome.artifacts) == 1_000_005


async def test_the_whole_of_a_result_is_saved_once() -> None:
    """However often room is made, no artifact is a cut of what another one has whole."""

    def play(request: Request) -> Reply:
        said = "".join(m.text for m in request.messages)
        number = max([0, *map(int, re.findall(r"(\d+): word", said))])
        if number >= 14:
            return Reply("done")
        return Reply(calls=(*asks(number + 1, 800).calls, *asks(number + 2, 800).calls), stop="calls")

    events: list[Event] = []
    model = Playing(play, context_window=6000)
    outcome = await run(Agent("a", tools=[words]), "go", model=model, on_event=events.append)
    assert outcome.ok, outcome.reason
    assert any(isinstance(e, ResultCut) for e in events)
    assert min(artifact.chars for artifact in outcome.artifacts) == len("1: ") + 5 * 800


async def test_a_last_word_fits_the_window() -> None:
    """A run that meets a limit behind a long result still gets to say what it has."""

    def play(request: Request) -> Reply:
        return Reply("what I have") if request.tool_choice == "none" else asks(results(request), 8000)

    model = Playing(play, limit=20_000, context_window=20_000)
    outcome = await run(Agent("a", tools=[words]), "go", model=model, limits=Limits(turns=2))
    assert outcome.status is Status.INCOMPLETE
    assert outcome.partial == "what I have"


async def test_no_summary_is_paid_for_in_vain() -> None:
    """Where the task alone fills the window, a summary helps nobody and is not asked for each turn."""

    def play(request: Request) -> Reply:
        if request.tool_choice == "none":
            return Reply("so far")
        return Reply("done") if len(model.sizes) > 8 else asks(len(model.sizes), 10)

    events: list[Event] = []
    model = Playing(play, context_window=500)
    await run(Agent("a", tools=[words]), "task " * 1000, model=model, on_event=events.append)
    assert all(e.after < e.before for e in events if isinstance(e, Compacted))
    summaries = [e for e in events if isinstance(e, TurnStarted) and e.purpose == "compact"]
    assert len(summaries) <= 2


def lead_of(children: int, then: Callable[[Request], Reply]) -> Callable[[Request], Reply]:
    """A lead that has so many workers, which do as `then` says."""

    def play(request: Request) -> Reply:
        if request.agent != "lead":
            return then(request)
        if results(request):
            return Reply("put together")
        calls = [Call(f"c{n}", "task", {"agent": "worker", "prompt": "x"}) for n in range(children)]
        return Reply(calls=tuple(calls), stop="calls")

    return play


def refuse(seconds: float) -> Callable[[Request], Reply]:
    def play(request: Request) -> Reply:
        raise ModelError("too many", kind="rate_limit", retry_after=seconds)

    return play


@pytest.mark.parametrize("concurrency", [1, 8])
async def test_nobody_waits_in_a_closed_lane_who_has_a_fallback(concurrency: int) -> None:
    """A model that asks for an hour is left by every run that has another, not only by the one that met it."""
    first = Playing(lead_of(4, refuse(HOUR)), "first")
    second = Playing(lambda request: Reply("from the second"), "second")
    lead = Agent("lead", subagents=[Agent("worker")], model=[first, second])
    outcome = await run(lead, "go", limits=Limits(concurrency=concurrency))
    assert outcome.ok, outcome.reason
    assert [c.status for c in outcome.children] == [Status.COMPLETED] * 4
    assert outcome.duration_s < 60


@pytest.mark.parametrize("seconds", [1e5, 1e15])
async def test_a_lane_that_never_opens_again_is_not_waited_for(seconds: float) -> None:
    """Without a deadline too, a wait of more than a day is a failure, for the siblings as well."""
    workers = Playing(refuse(seconds), "workers")
    lead = Agent("lead", subagents=[Agent("worker", model=workers)])
    model = Playing(lead_of(3, refuse(seconds)), "leads")
    limits = Limits(seconds=None, concurrency=1)
    async with asyncio.timeout(50_000):
        outcome = await run(lead, "go", model=model, limits=limits)
    assert outcome.ok
    assert [c.status for c in outcome.children] == [Status.FAILED] * 3


async def test_retry_after_zero_is_no_leave_to_hammer() -> None:
    """With `Retry-After: 0` the back-off still grows."""
    model = Playing(refuse(0.0))
    outcome = await run(Agent("a"), "go", model=model)
    assert outcome.status is Status.FAILED
    gaps = [after - before for before, after in zip(model.sent, model.sent[1:], strict=False)]
    assert gaps[-1] > 4 * gaps[0]


async def test_who_waits_for_a_slot_holds_no_place_in_the_lane() -> None:
    """A branch that has no slot free does not keep the others from the model."""

    @tool(tier="observe")
    async def slow() -> str:
        """Take long."""
        await asyncio.sleep(100)
        return "at last"

    def play(request: Request) -> Reply:
        below = {"lead": ("middle", "leaf"), "middle": ("sleeper", "other")}.get(request.agent, ())
        if below and not results(request):
            calls = [Call(name, "task", {"agent": name, "prompt": "x"}) for name in below]
            return Reply(calls=tuple(calls), stop="calls")
        if request.agent == "sleeper" and not results(request):
            return Reply(calls=(Call("s", "slow", {}),), stop="calls")
        if request.agent == "leaf" and results(request) < 5:
            return asks(results(request), 1)
        return Reply("done")

    middle = Agent(
        "middle", subagents=[Agent("sleeper", tools=[slow]), Agent("other")], limits=Limits(concurrency=1)
    )
    lead = Agent("lead", subagents=[middle, Agent("leaf", tools=[words])])
    outcome = await run(lead, "go", model=Playing(play, in_flight=1))
    leaf = next(c for c in outcome.children if c.agent == "leaf")
    assert leaf.ok
    assert leaf.duration_s < 100


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The local server and the formats, with a key that is none."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "builders"))
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-the-tests")
    blank = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr("httpx2._transports.default.create_ssl_context", lambda *_, **__: blank)
    return importlib.import_module("asking"), importlib.import_module("wire_formats")


@pytest.mark.real_time
async def test_half_a_stream_is_no_answer(wire: Any) -> None:
    """A chat stream that ends cleanly, but without saying that the model had finished, is a broken connection."""
    asking, formats = wire
    chat = formats.Chat()
    pieces = chat.pieces(formats.Talk("hello there"))[:2]
    assert b"finish_reason" in b"".join(pieces)
    async with asking.stage(formats.Answer(pieces=pieces)) as stage:
        with pytest.raises(ModelError) as caught:
            await stage.ask(chat, asking.asking())
    assert caught.value.retryable


@pytest.mark.real_time
async def test_what_a_server_sends_is_never_our_mistake(wire: Any) -> None:
    """A body that cannot be read is the server's failure: it is tried again, and a fallback may help."""
    asking, formats = wire
    chat = formats.Chat()
    whole = chat.whole(formats.Talk("hello"))
    bodies = [b"null", b"[]", b"{}", json.dumps(whole | {"choices": []}).encode()]
    pieces = chat.pieces(formats.Talk("hello"))
    streams = [[*pieces[:2], odd, *pieces[2:]] for odd in (b"data: null\n\n", b"data: []\n\n")]
    for answer, stream in [(formats.Answer(b), False) for b in bodies] + [
        (formats.Answer(pieces=s), True) for s in streams
    ]:
        async with asking.stage(answer, stream=stream) as stage:
            with pytest.raises(ModelError) as caught:
                await stage.ask(chat, asking.asking())
        assert caught.value.retryable, str(caught.value)


async def surveyed(folder: Path, files: dict[str, str]) -> Outcome:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return await run(survey(), "Survey this folder.", model="offline", workspace=folder)


@pytest.mark.real_time
async def test_a_survey_counts_what_it_does_not_list(tmp_path: Path) -> None:
    """What a part's report leaves out of its lists is still said to be there."""
    outcome = await surveyed(tmp_path, {f"part/f{n}.py": "# TODO\n" for n in range(30)})
    listed = next(line for line in outcome.text.splitlines() if line.startswith("- TODO"))
    assert "and 18 more" in listed


@pytest.mark.real_time
@pytest.mark.parametrize("name", ["a; and b", "/".join(f"d{n}" for n in range(40))])
async def test_a_survey_loses_no_folder_silently(tmp_path: Path, name: str) -> None:
    """A folder with an odd name, or a deep one, is counted, or named as not looked at."""
    outcome = await surveyed(tmp_path, {f"{name}/main.py": "x"})
    assert "- files: 1," in outcome.text or "- not surveyed: " in outcome.text
    assert name.partition("/")[0].strip() in outcome.text
