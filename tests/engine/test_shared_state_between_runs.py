"""What broke when what is hot was made faster, and must not again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import MethodType
from typing import cast

import msgspec
import pytest

from remit import Agent, Call, Limits, Outcome, Reply, Request, Status, Usage, resume, run, start, tool
from remit.errors import StoreError
from remit.stores.memory import MemoryStore
from remit.types.events import Event, Overran, RunStarted
from remit.types.messages import AssistantMessage, JsonObject
from remit.types.ports import Emit, Model


@tool(tier="observe")
async def look() -> str:
    """Look."""
    await asyncio.sleep(1)
    return "seen"


class Says:
    """Says who it is; with a tool, it calls that first."""

    def __init__(self, name: str, uses: str = "") -> None:
        self.name = name
        self.uses = uses

    async def reply(self, request: Request, emit: Emit) -> Reply:
        calls = (Call("c", self.uses, {}),) if self.uses else ()
        return Reply(self.name, calls, stop="calls" if calls else "end")


def said(outcome: Outcome) -> list[str]:
    return [m.text for m in outcome.messages if isinstance(m, AssistantMessage)]


class Chosen:
    """Which model it stands for is decided whenever it is looked for."""

    name = "chosen"

    def __init__(self) -> None:
        self.now = Says("a", "change")

    def __getattr__(self, name: str) -> object:
        if name != "reply":
            raise AttributeError(name)
        return self.now.reply


class Staged:
    """What its `reply` is depends on how far it has come."""

    name = "staged"
    begun = False

    @property
    def reply(self) -> Callable[[Request, Emit], object]:
        return self._second if self.begun else self._first

    async def _first(self, request: Request, emit: Emit) -> Reply:
        self.begun = True
        return Reply("first", (Call("c", "look", {}),), stop="calls")

    async def _second(self, request: Request, emit: Emit) -> Reply:
        return Reply("second")


async def test_a_model_that_stands_for_others_chooses_for_every_request() -> None:
    """Which model answers is found when it is asked, not once for the whole tree."""
    model = Chosen()

    @tool(tier="observe")
    async def change() -> str:
        """Change."""
        model.now = Says("b")
        return "changed"

    outcome = await run(Agent("lead", tools=[change], model=cast(Model, model)), "go")
    assert said(outcome) == ["a", "b"]


async def test_a_reply_that_is_a_property_is_read_for_every_request() -> None:
    outcome = await run(Agent("lead", tools=[look], model=cast(Model, Staged())), "go")
    assert (outcome.status, said(outcome)) == (Status.COMPLETED, ["first", "second"])


async def test_a_method_made_of_an_odd_callable_is_asked_like_any_other() -> None:
    """Law 5: what somebody else's function says of its code is not relied on."""

    class Odd:
        __code__ = "nothing that can be read"

        async def __call__(self, me: object, request: Request, emit: Emit) -> Reply:
            return Reply("a")

    class Strange:
        name = "odd"

        def __init__(self) -> None:
            self.reply = MethodType(Odd(), self)

    assert (await run(Agent("lead", model=cast(Model, Strange())), "go")).text == "a"


class Wordless(MemoryStore):
    """Does not take one event, and does not say why."""

    volatile = False
    asked = 0

    def append(self, event: Event) -> None:
        self.asked += 1
        if self.asked == 3:
            raise StoreError
        super().append(event)


async def test_a_store_that_fails_without_a_word_is_told_of_too(caplog: pytest.LogCaptureFixture) -> None:
    """Law 13: what it has is a true beginning, and the outcome says what is missing; once is enough in the log."""
    store = Wordless()
    outcome = await run(Agent("lead", model=Says("a")), "go", store=store)
    assert outcome.ok
    assert [warning for warning in outcome.warnings if "not stored" in warning]
    assert [event.seq async for event in store.read(outcome.run_id)] == [1, 2]
    assert len(caplog.records) == 1


class Sleeper:
    name = "sleeper"

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    async def reply(self, request: Request, emit: Emit) -> Reply:
        await asyncio.sleep(self.seconds)
        return Reply("done")


async def test_how_long_a_run_took_is_rounded_and_not_cut_off() -> None:
    """Law 14: what takes 0.3 s by the clock of a test took 0.3 s, whenever it begins."""
    await asyncio.sleep(1000)
    assert (await run(Agent("lead", model=Sleeper(0.3)), "go")).duration_s == 0.3


class Greedy:
    """A child's first reply uses more than was reserved for it."""

    name = "greedy"

    async def reply(self, request: Request, emit: Emit) -> Reply:
        if len(request.messages) > 1:
            return Reply("done", usage=Usage(1, 10, 10))
        if request.agent == "lead":
            calls = (Call("c1", "task", {"agent": "kid", "prompt": "p"}),)
            return Reply("", calls, stop="calls", usage=Usage(1, 10, 10))
        return Reply("", (Call("k1", "look", {}),), stop="calls", usage=Usage(1, 30_000, 10))


async def interrupted(lead: Agent, *, older: bool) -> MemoryStore:
    """The journal of a process that died while the child looked; an older one wrote what has no limit as null."""
    first, second = MemoryStore(), MemoryStore()
    task = asyncio.create_task(run(lead, "go", model=Greedy(), limits=Limits(tokens=50_000), store=first))
    await asyncio.sleep(0.5)
    root = (await first.trees())[0].root
    events = [event async for event in first.read(root)]
    task.cancel()
    await asyncio.wait({task})
    assert any(isinstance(event, Overran) for event in events)
    await second.claim(root, new=True)
    for event in events:
        if older and isinstance(event, RunStarted) and event.parent is not None:
            event = _with_nulls(event)  # noqa: PLW2901
        second.append(event)
    await second.release(root)
    return second


def _with_nulls(event: RunStarted) -> RunStarted:
    shared = ("depth", "delegations", "tokens", "usd", "calls", "seconds", "concurrency")
    limits = msgspec.structs.replace(event.limits, **dict.fromkeys(shared))
    return msgspec.structs.replace(event, limits=limits)


@pytest.mark.parametrize("older", [False, True])
async def test_a_child_is_not_closed_by_what_it_has_no_limit_of(older: bool) -> None:
    """Law 13: where the limit that was passed is raised, a child with other limits of its own goes on."""
    kid = Agent("kid", tools=[look], limits=Limits(requests=9))
    lead = Agent("lead", subagents=[kid])
    store = await interrupted(lead, older=older)
    root = (await store.trees())[0].root
    outcome = await resume(store, root, agent=lead, model=Greedy(), limits=Limits(tokens=500_000))
    assert [child.status for child in outcome.children] == [Status.COMPLETED]


@pytest.mark.parametrize("older", [False, True])
async def test_a_child_stays_closed_where_the_limit_that_was_passed_stands(older: bool) -> None:
    """Law 2: an account takes no new reservations after an overrun, in the next process either."""
    kid = Agent("kid", tools=[look], limits=Limits(requests=9))
    lead = Agent("lead", subagents=[kid])
    store = await interrupted(lead, older=older)
    root = (await store.trees())[0].root
    outcome = await resume(store, root, agent=lead, model=Greedy())
    assert [child.status for child in outcome.children] == [Status.OVER_BUDGET]


@tool(tier="observe")
async def recite(n: int) -> str:
    """Says a lot."""
    return f"{n} " * 100


@pytest.mark.parametrize("counts", [True, False])
async def test_a_model_that_only_estimates_leaves_its_run_a_last_word(counts: bool) -> None:
    """What is kept back for the answer is as long as the conversation, not as what the model says of it."""

    class Server:
        name = "server"

        async def reply(self, request: Request, emit: Emit) -> Reply:
            read = sum(len(message.text) for message in request.messages) // 3
            usage = Usage(1, read, 30) if counts else Usage(1, 0, 0, estimated=True)
            if request.agent == "child":
                spent = Usage(1, 500, min(1500, request.max_output_tokens))
                return Reply(
                    "hm", (Call("c", "recite", {"n": len(request.messages)}),), stop="calls", usage=spent
                )
            if len(request.messages) > 1:
                return Reply("what the child found", usage=usage)
            task: JsonObject = {"agent": "child", "prompt": "go"}
            return Reply("", (Call("c", "task", task),), stop="calls", usage=usage)

    lead = Agent("lead", subagents=[Agent("child", tools=[recite])])
    long = "Summarise this: " + "lorem ipsum " * 1700
    outcome = await run(lead, long, model=Server(), limits=Limits(tokens=30_000))
    assert (outcome.status, outcome.text) == ("completed", "what the child found")
    assert outcome.children[0].status == "over_budget"


async def test_replies_that_are_cut_off_one_after_another_let_others_run() -> None:
    """A cancel is heard though the model never waits and none of its calls is made."""

    class Endless:
        name = "endless"

        async def reply(self, request: Request, emit: Emit) -> Reply:
            assert len(request.messages) < 2_000, "the cancel was never heard"
            call = Call("c", "recite", {"n": len(request.messages)})
            return Reply("x", (call,), stop="length", usage=Usage(1, 1, 1))

    lead = Agent("lead", tools=[recite])
    async with start(lead, "go", model=Endless(), limits=Limits(turns=None, seconds=None)) as running:
        await asyncio.sleep(0)
        assert await running.cancel("enough")
        assert (await running.outcome()).status == "cancelled"
