"""How much of a reply, of arguments and of results is accepted, and where work over much of it is done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, Mapping
from typing import Annotated

import msgspec
import pytest
from pydantic import AfterValidator

from remit import (
    Agent,
    Call,
    ImagePart,
    Limits,
    Outcome,
    Reply,
    Request,
    Status,
    ToolMessage,
    ToolResult,
    run,
    tool,
)
from remit.engine.run.tool_run import INLINE_CHARS
from remit.stores import open_store
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.schema import MOST_LOOKED_FOR, ShapeError
from remit.types.event_json import encode
from remit.types.events import CallEnded, ReplyReceived
from remit.types.messages import AssistantMessage, Thinking
from remit.types.sizes import (
    LARGE,
    MOST_ARGS,
    MOST_CALLS,
    MOST_MEDIA,
    MOST_TEXT,
    TURN_CHARS,
    VALUE_CHARS,
    weigh,
)


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


class Says:
    """A model that says one thing, and then that it is done."""

    name = "says"

    def __init__(self, first: Reply) -> None:
        self.first = first
        self.asked: list[Request] = []

    async def reply(self, request: Request, emit: object) -> Reply:
        self.asked.append(request)
        return Reply("done") if len(self.asked) > 1 else self.first


@tool(tier="observe")
async def echo(text: object = "") -> str:
    """Says how much it was given."""
    return f"{len(str(text))} characters"


ECHO = Agent("lead", tools=[echo])


def asking(*args: object, stop: str = "calls") -> Reply:
    made = tuple(Call(f"c{n}", "echo", given) for n, given in enumerate(args))  # pyright: ignore[reportArgumentType]
    return Reply("", made, stop=stop)  # pyright: ignore[reportArgumentType]


# --- Arguments -----------------------------------------------------------------------------------


def nested(levels: int) -> dict[str, object]:
    value: object = 1
    for _ in range(levels):
        value = [value]
    return {"text": value}


@pytest.mark.parametrize(
    "args",
    [
        {"text": "x" * (MOST_ARGS + 1)},
        {"x" * (MOST_ARGS + 1): 1},
        '{"text": "' + "x" * MOST_ARGS + '"}',
        "x" * (MOST_ARGS + 1),
        {"text": [0] * (MOST_ARGS // VALUE_CHARS + 1)},
        {"text": {str(n): {} for n in range(MOST_ARGS // VALUE_CHARS)}},
        nested(MOST_ARGS // VALUE_CHARS + 1),
    ],
    ids=["a text", "a name", "text of an object", "no object", "many numbers", "many objects", "deep"],
)
async def test_arguments_that_are_too_long_are_refused_in_words(args: object) -> None:
    """A call with more arguments than are accepted is not run; the model reads why, and its run goes on."""
    model = Says(asking(args))
    outcome = await run(ECHO, "go", model=model)
    (result,) = results(outcome)
    assert not result.ok
    assert result.content.startswith("Not run: the arguments are too long.")
    assert f"{MOST_ARGS:,} characters" in result.content
    assert (outcome.status, len(outcome.calls)) == (Status.COMPLETED, 1)


async def test_arguments_that_are_too_long_stay_out_of_conversation_and_journal() -> None:
    """What was refused for its length is neither sent to the model again nor stored."""
    store, model = MemoryStore(), Says(asking({"text": "x" * (MOST_ARGS + 1)}))
    outcome = await run(ECHO, "go", model=model, store=store)
    said = [m for m in model.asked[1].messages if isinstance(m, AssistantMessage)]
    assert len(str(said[0].calls[0].args)) < 1000
    replies = [e async for e in store.read(outcome.run_id) if isinstance(e, ReplyReceived)]
    assert len(encode(replies[0])) < 2000


async def test_the_calls_of_one_reply_share_the_room_for_arguments() -> None:
    """A call that does not fit is refused; those that fit run, also after it."""
    third = "x" * (MOST_ARGS // 3)
    outcome = await run(
        ECHO, "go", model=Says(asking(*({"text": text} for text in (third, third, third * 2, "y"))))
    )
    assert [m.ok for m in results(outcome)] == [True, True, False, True]


async def test_a_long_prompt_and_a_long_file_still_fit() -> None:
    """What a model really writes in one reply is far below the limit: a megabyte is no reason to refuse anything."""
    outcome = await run(ECHO, "go", model=Says(asking({"text": "é" * 1_000_000})))
    assert [m.content for m in results(outcome)] == ["1000000 characters"]


async def test_calls_beyond_the_most_are_left_out_and_the_model_reads_so() -> None:
    """Of too many calls the first ones run; one more has a result, which says how many there were."""
    outcome = await run(ECHO, "go", model=Says(asking(*({},) * (MOST_CALLS + 500))))
    found = results(outcome)
    assert len(found) == MOST_CALLS + 1
    assert all(m.ok for m in found[:-1])
    assert f"the reply has {MOST_CALLS + 500:,} calls; the maximum is {MOST_CALLS:,}" in found[-1].content
    assert len(outcome.calls) == MOST_CALLS + 1


async def test_long_arguments_are_checked_outside_the_loop_s_thread() -> None:
    """A check that takes long does not block the event loop; short arguments are checked at once."""
    where: list[bool] = []

    def look(value: str) -> str:
        where.append(threading.current_thread() is threading.main_thread())
        return value

    @tool(tier="observe")
    async def take(text: Annotated[str, AfterValidator(look)]) -> int:
        """Takes a text."""
        return len(text)

    asked = calls(call("take", {"text": "x"}), call("take", {"text": "x" * LARGE}))
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[take]), "go", model=model)
    assert [m.content for m in results(outcome)] == ["1", str(LARGE)]
    assert where == [True, False]


async def test_long_arguments_that_do_not_fit_are_told_like_short_ones() -> None:
    """Where they are checked changes nothing about what the model reads."""

    @tool(tier="observe")
    async def take(numbers: list[int]) -> int:
        """Takes numbers."""
        return len(numbers)

    asked = calls(call("take", numbers=["x"]), call("take", numbers=["x"] * LARGE))
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[take]), "go", model=model)
    short, long = (m.content for m in results(outcome))
    assert short.splitlines()[:2] == long.splitlines()[:2]
    assert "more" in long.splitlines()[-1]


async def test_a_schema_of_hundreds_of_properties_is_not_told_in_full() -> None:
    """With enough problems found, arguments are not looked at further: each one missing would be told by all the others."""
    names = [f"property_{n}" for n in range(200)]
    schema = {"type": "object", "properties": {name: {"type": "string"} for name in names}, "required": names}

    @tool(tier="observe", parameters=schema)
    async def wide(**given: object) -> str:
        """Takes many things."""
        return str(len(given))

    with pytest.raises(ShapeError) as caught:
        wide._shape.read({})
    assert len(caught.value.problems) == MOST_LOOKED_FOR
    assert caught.value.listing.splitlines()[-1] == f"- and at least {MOST_LOOKED_FOR - 12} more"


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("abc", 3),
        ({"a": "bc"}, VALUE_CHARS + 3),
        ([1, None, "x"], 3 * VALUE_CHARS + 1),
        ([["x"]], 2 * VALUE_CHARS + 1),
        (7, 0),
    ],
)
def test_a_value_is_weighed_by_its_texts_and_its_parts(value: object, size: int) -> None:
    """Every text counts its characters, and every part something besides."""
    assert weigh(value, 10_000) == size


def test_weighing_stops_where_enough_is_seen() -> None:
    """A value that holds itself many times over, or millions of parts, is not gone through."""
    value: list[object] = ["x"]
    for _ in range(60):
        value = [value] * 60
    assert 1000 < weigh(value, 1000) < 100_000
    assert weigh(nested(50_000), 10_000) > 10_000


# --- Replies -------------------------------------------------------------------------------------


async def test_a_text_that_is_too_long_is_cut_and_no_answer() -> None:
    """Law 7: a reply that was cut is incomplete, as one that met its output limit; what was read of it is kept."""
    outcome = await run(Agent("lead"), "go", model=Says(Reply("é" * (MOST_TEXT + 1))))
    assert (outcome.status, outcome.reason, len(outcome.partial)) == (Status.INCOMPLETE, "length", MOST_TEXT)


async def test_a_structured_answer_that_is_too_long_is_no_answer() -> None:
    """The same for an answer that has to be JSON: it is not read at all."""
    text = "[" + "1," * (MOST_TEXT // 2) + "1]"
    outcome = await run(Agent("lead", output=list[int]), "go", model=Says(Reply(text)))
    assert (outcome.status, outcome.reason, outcome.output) == (Status.INCOMPLETE, "length", None)


async def test_thinking_and_details_that_are_too_long_are_left_out() -> None:
    """What only its provider reads is not kept beyond any bound."""
    first = Reply(
        "",
        (Call("c", "echo", {}),),
        thinking=(Thinking("x" * (MOST_TEXT + 1)),),
        stop="calls",
        details={"parts": ["x" * (MOST_TEXT + 1)]},
    )
    model = Says(first)
    assert (await run(ECHO, "go", model=model)).ok
    said = next(m for m in model.asked[1].messages if isinstance(m, AssistantMessage))
    assert (said.thinking, said.details, len(said.calls)) == ((), None, 1)


async def test_a_long_structured_answer_is_read_outside_the_loop_s_thread() -> None:
    """To parse and check a long answer does not block the event loop."""
    where: list[bool] = []

    def look(value: list[int]) -> list[int]:
        where.append(threading.current_thread() is threading.main_thread())
        return value

    agent = Agent("lead", output=Annotated[list[int], AfterValidator(look)])
    for number in (3, LARGE):
        outcome = await run(agent, "go", model=Says(Reply(msgspec.json.encode([1] * number).decode())))
        assert outcome.output == [1] * number
    assert where == [True, False]


# --- Results -------------------------------------------------------------------------------------


class Told:
    """An object that says in which thread its text was made."""

    def __str__(self) -> str:
        return "main" if threading.current_thread() is threading.main_thread() else "other"


async def test_a_large_result_is_rendered_outside_the_loop_s_thread() -> None:
    """JSON of a large value is made in a thread; so is all that a sync tool returns, whose thread is there anyway."""

    @tool(tier="observe")
    async def small() -> object:
        """A small value."""
        return [Told()]

    @tool(tier="observe")
    async def large() -> object:
        """A large value."""
        return [Told(), *[0] * LARGE]

    @tool(tier="observe")
    def sync() -> object:
        """A value from a thread."""
        return [Told()]

    with ScriptedModel([calls(call("small"), call("large"), call("sync")), say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[small, large, sync]), "go", model=model)
    assert [m.content[:7] for m in results(outcome)] == ['["main"', '["other', '["other']


@pytest.mark.parametrize("letter", ["x", "é"])
async def test_a_large_result_is_kept_whole(letter: str) -> None:
    """Law 6: of a result too long to be read the model sees both ends, and all of it is an artifact."""

    @tool(tier="observe")
    async def recite() -> ToolResult:
        """Recites."""
        return ToolResult("a" + letter * 2_000_000 + "z")

    store = MemoryStore()
    with ScriptedModel([call("recite"), say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[recite]), "go", model=model, store=store)
    (result,) = results(outcome)
    assert (result.content[0], result.content[-1]) == ("a", "z")
    assert len(result.content) < INLINE_CHARS + 200
    (kept,) = outcome.artifacts
    assert (kept.chars, kept.bytes) == (2_000_002, 2 + 2_000_000 * len(letter.encode()))
    assert await store.load_artifact(outcome.run_id, kept.id, 2_000_000, 10) == f"{letter}z"


class Slow(MemoryStore):
    """Takes eight seconds for every artifact."""

    async def save_artifact(self, root: str, artifact: str, data: str | AsyncIterable[str]) -> None:
        await asyncio.sleep(8)
        await super().save_artifact(root, artifact, data)


@pytest.mark.parametrize(("chars", "kept"), [(200_000, 0), (20_000_000, 1)])
async def test_a_longer_text_may_take_longer_to_be_kept(chars: int, kept: int) -> None:
    """Law 6: a store has five seconds, and one more for every five million characters; a slow one is named."""

    @tool(tier="observe")
    async def recite() -> str:
        """Recites."""
        return "x" * chars

    with ScriptedModel([call("recite"), say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[recite]), "go", model=model, store=Slow())
    assert len(outcome.artifacts) == kept
    assert any("was not stored" in warning for warning in outcome.warnings) is not bool(kept)


async def test_images_and_details_that_are_too_long_are_left_out_in_words() -> None:
    """Neither the conversation nor the journal grows beyond any bound by what a tool gives besides its text."""

    @tool(tier="observe")
    async def draw() -> ToolResult:
        """Draws."""
        images = (ImagePart(data=b"x" * 10), ImagePart(data=b"x" * (MOST_MEDIA + 1)))
        return ToolResult("drawn", parts=images, details={"points": "x" * (MOST_TEXT + 1)})

    store = MemoryStore()
    with ScriptedModel([call("draw"), say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[draw]), "go", model=model, store=store)
    (result,) = results(outcome)
    assert [len(part.data) for part in result.parts] == [10]
    assert result.content == f"drawn\n(Images or documents over {MOST_MEDIA:,} bytes were omitted.)"
    ended = [event async for event in store.read(outcome.run_id) if isinstance(event, CallEnded)]
    assert ended[0].details == {"left_out": f"The details were omitted: more than {MOST_TEXT:,} characters."}


@pytest.mark.real_time
async def test_a_long_artifact_is_stored_piece_by_piece(tmp_path: object) -> None:
    """While a long text is looked through for secrets and stored, everybody else on the event loop has turns."""
    store = open_store(f"sqlite:///{tmp_path}/runs.db")
    turns, over = 0, False

    async def tick() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    try:
        await store.claim("r", new=True)
        task = asyncio.ensure_future(tick())
        text = "secret sk-ant-api03-" + "Ab1" * 31 + " " + "lorem ipsum " * 100_000
        await store.save_artifact("r", "r/text", text)
        over = True
        await task
        assert turns > 10
        read = await store.load_artifact("r", "r/text", 0, 3_000_000)
        assert read is not None
        assert read.endswith("lorem ipsum " * 100_000)
        assert "Ab1Ab1" not in read
    finally:
        await store.close()


async def test_the_results_of_one_turn_share_what_the_model_reads() -> None:
    """However many calls a reply has, their results together stay within one bound, and each is kept whole."""

    @tool(tier="observe")
    async def recite() -> str:
        """Recites."""
        return "x" * INLINE_CHARS

    store = MemoryStore()
    with ScriptedModel([calls(*[call("recite")] * 100), say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[recite]), "go", model=model, store=store)
    found = results(outcome)
    assert sum(len(m.content) for m in found) < TURN_CHARS * 1.1
    assert {artifact.chars for artifact in outcome.artifacts} == {INLINE_CHARS}
    assert len(outcome.artifacts) == 100


@pytest.mark.parametrize("name", ["missing", "wide"])
async def test_reasons_why_calls_are_not_run_share_it_too(name: str) -> None:
    """Thousands of refused calls do not fill the conversation with the names of all tools or properties."""
    schema: Mapping[str, object] = {
        "type": "object",
        "properties": {f"property_{n}": {"type": "string"} for n in range(500)},
        "additionalProperties": False,
    }

    @tool(tier="observe", parameters=schema)
    async def wide(**given: object) -> str:
        """Takes many things."""
        return str(len(given))

    asked = calls(*[call(name, {f"x{n}": 1 for n in range(20)})] * 1000)
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[wide]), "go", model=model, limits=Limits(turns=2))
    found = results(outcome)
    assert not any(m.ok for m in found)
    assert sum(len(m.content) for m in found) <= TURN_CHARS
