"""Attacks at the seams: a stop together with an answer, threads that run out, queues that empty, hand-made answers."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import remit.engine.budget.slots as slots
import remit.tasks.threads as threads
from remit import (
    Agent,
    Call,
    Limits,
    ModelError,
    Outcome,
    Reply,
    Request,
    Status,
    ToolMessage,
    Usage,
    resume,
    run,
    start,
    tool,
)
from remit.engine.budget.slots import Pool
from remit.history.fold import fold
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, run_virtual, say
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.event_json import decode, encode
from remit.types.events import ApprovalAnswered, CallEnded
from remit.types.messages import Json
from remit.types.ports import Emit


class Fn:
    """A model that is one async function of the request."""

    name = "fn"

    def __init__(self, function: Callable[[Request, Emit], Any]) -> None:
        self.function = function

    async def reply(self, request: Request, emit: Emit) -> Any:
        return await self.function(request, emit)


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


def open_calls(outcome: Outcome) -> list[str]:
    asked = [c.id for m in outcome.messages for c in getattr(m, "calls", ())]
    given = [m.call_id for m in results(outcome)]
    return [c for c in asked if c not in given]


def nothing() -> None:
    """Nobody needs to be woken."""


def test_a_queue_that_empties_at_the_top_frees_those_below() -> None:
    """Law 12: somebody whose pools all have room is let in, whoever left the queue in front of it."""
    top, a, b = Pool(2), Pool(1), Pool(1)
    slots.take((a, top), nothing)
    slots.take((top,), nothing)
    slots.take((top,), nothing)
    leaving = slots.take((a, top), nothing)
    last = slots.take((b, a, top), nothing)
    assert leaving is not None
    assert last is not None
    slots.give_back((a, top))
    slots.leave(leaving)
    slots.give_back((top,))
    assert last.granted


class Bare(ModelError):
    """An error that forgot what an error has."""

    def __init__(self) -> None:
        Exception.__init__(self, "bare")


class Nasty:
    """A call whose fields raise."""

    id = "c"
    name = "x"

    @property
    def args(self) -> object:
        raise KeyError("args")


nasty: Any = Nasty()


@pytest.mark.parametrize("kind", ["error", "call"])
async def test_what_cannot_even_be_looked_at_is_settled(kind: str) -> None:
    """Law 2: whatever a model gives back, its reservation does not stay; the sibling under one budget goes on."""

    async def answer(request: Request, emit: Emit) -> Any:
        if request.agent == "kid" and request.messages[0].text == "bad":
            if kind == "error":
                raise Bare
            return Reply("x", calls=(nasty,))
        if request.agent == "kid":
            return Reply("fine", usage=Usage(1, 5, 5))
        asked = tuple(Call(p, "task", {"agent": "kid", "prompt": p}) for p in ("bad", "good"))
        return Reply("done") if len(request.messages) > 1 else Reply("", asked, usage=Usage(1, 10, 5))

    limits = Limits(tokens=6500, seconds=None)
    outcome = await run(Agent("lead", subagents=[Agent("kid")]), "go", model=Fn(answer), limits=limits)
    assert results(outcome)[1].content == "fine"
    assert outcome.children[0].usage.requests >= 1


@pytest.mark.parametrize("summary", ["never", "always"])
async def test_calls_that_come_with_a_stop_are_answered(summary: Any) -> None:
    """No conversation is left with an open call, also when the last reply came together with a stop."""

    async def answer(request: Request, emit: Emit) -> Any:
        if request.tool_choice == "none":
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(100)
            return Reply("last", (Call("w", "look", {}),), usage=Usage(1, 1, 1))
        if summary == "always":
            return Reply("answer", usage=Usage(1, 1, 1))
        return Reply("", (Call("a", "look", {}),), usage=Usage(1, 1, 1))

    @tool(tier="observe")
    async def look() -> str:
        return "seen"

    agent = Agent("a", tools=[look], summary=summary, limits=Limits(turns=1))
    async with start(agent, "go", model=Fn(answer)) as running:
        await asyncio.sleep(5)
        await running.cancel("enough")
        outcome = await running.outcome()
    assert open_calls(outcome) == []
    assert len(outcome.calls) == len(results(outcome))


def test_a_stop_is_told_in_the_same_order_every_time() -> None:
    """Law 14: six calls that are stopped together end in the order in which they were made."""

    @tool(tier="observe")
    async def wait() -> None:
        await asyncio.sleep(100)

    async def story() -> list[str]:
        store = MemoryStore()
        model = ScriptedModel([calls(*[call("wait")] * 6)])
        async with start(Agent("a", tools=[wait]), "go", model=model, store=store) as running:
            await asyncio.sleep(1)
            await running.cancel("enough")
            root = running.run_id
        return [e.call async for e in store.read(root) if isinstance(e, CallEnded)]

    assert [run_virtual(story) for _ in range(5)] == [[f"c{n}" for n in range(1, 7)]] * 5


@pytest.mark.parametrize("stalls", [False, True])
async def test_what_was_streamed_survives_a_failed_call(stalls: bool) -> None:
    """Law 6: what a model said before its call failed or went silent is the partial."""

    async def answer(request: Request, emit: Emit) -> Any:
        emit("half an answer")
        if stalls:
            await asyncio.sleep(10**6)
        raise ModelError("cut", kind="connection", retryable=False)

    outcome = await run(Agent("a"), "go", model=Fn(answer), limits=Limits(stall_seconds=5))
    assert outcome.status is (Status.STALLED if stalls else Status.FAILED)
    assert outcome.partial == "half an answer"


async def test_a_reply_to_a_stall_is_taken() -> None:
    """Laws 6 and 8: a model that answers when its silence is cut has answered, and is paid for as it says."""

    async def answer(request: Request, emit: Emit) -> Any:
        emit("x")
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(10**6)
        return Reply("final", usage=Usage(1, 1000, 777))

    outcome = await run(Agent("a"), "go", model=Fn(answer), limits=Limits(stall_seconds=5))
    assert (outcome.text, outcome.usage) == ("final", Usage(1, 1000, 777))


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Two threads at once, idle ones not counted; the event lets blocked functions go."""
    pool = threads._pool
    monkeypatch.setattr(threads, "MOST_AT_ONCE", pool.threads - len(pool.idle) + 2)
    monkeypatch.setattr(threads, "IDLE_KEPT", 0)
    monkeypatch.setattr(pool, "threads", pool.threads - len(pool.idle))
    monkeypatch.setattr(pool, "idle", [])
    return threading.Event()


@pytest.mark.real_time
async def test_a_call_that_waits_for_a_thread_is_called_off_at_once(two_threads: threading.Event) -> None:
    """Laws 1 and 4: waiting for a thread is not running: its time does not count, and it never begins once stopped."""
    ran: list[int] = []

    @tool(tier="observe", timeout_s=1.0)
    def quick(number: int) -> int:
        ran.append(number)
        return number

    @tool(tier="observe")
    def slow() -> str:
        two_threads.wait(5)
        return "slow"

    asked = calls(call("slow"), call("slow"), call("quick", number=3))
    model = ScriptedModel([asked, say("done")])
    async with start(Agent("a", tools=[quick, slow]), "go", model=model) as running:
        await asyncio.sleep(1.2)
        assert ran == []
        two_threads.set()
        outcome = await running.outcome()
    assert [r.content for r in results(outcome)] == ["slow", "slow", "3"]

    two_threads.clear()
    model = ScriptedModel([asked])
    async with start(Agent("a", tools=[quick, slow]), "go", model=model) as running:
        await asyncio.sleep(0.1)
        asyncio.get_running_loop().call_later(0.1, two_threads.set)
        await running.cancel("enough")
        outcome = await running.outcome()
    assert ran == [3]
    assert outcome.warnings == ()


@pytest.mark.real_time
async def test_watching_needs_no_thread_of_the_tools(two_threads: threading.Event) -> None:
    """Law 9: who watches is told at once, also while every thread for tools is taken."""
    seen: list[str] = []

    @tool(tier="observe")
    def slow() -> str:
        two_threads.wait(5)
        return "slow"

    model = ScriptedModel([calls(call("slow"), call("slow")), say("done")])
    async with start(
        Agent("a", tools=[slow]), "go", model=model, on_event=lambda e: seen.append(e.kind)
    ) as running:
        for _ in range(100):
            await asyncio.sleep(0.01)
            if seen.count("call_started") == 2:
                break
        two_threads.set()
        await running.outcome()
    assert seen.count("call_started") == 2
    assert seen[-1] == "run_ended"


async def test_something_sent_does_not_cost_the_last_word() -> None:
    """Law 6: a message from outside does not hide the results that have to be cut for the wrap-up to fit."""

    @tool(tier="observe")
    async def long() -> str:
        await asyncio.sleep(5)
        return "x" * 30_000

    async def answer(request: Request, emit: Emit) -> Any:
        if request.agent == "kid":
            return Reply("kid", usage=Usage(1, 5, 5))
        if request.tool_choice == "none":
            return Reply("wrapped", usage=Usage(1, 1, 1))
        asked = (Call("1", "task", {"agent": "kid", "prompt": "p"}), Call("2", "long", {}))
        return Reply("t", asked, usage=Usage(1, 300, 20))

    lead = Agent("lead", tools=[long], subagents=[Agent("kid")])
    async with start(lead, "go", model=Fn(answer), limits=Limits(tokens=6000)) as running:
        await asyncio.sleep(1)
        running.send("please hurry")
        outcome = await running.outcome()
    assert (outcome.status, outcome.partial) == (Status.OVER_BUDGET, "wrapped")
    assert [a.chars for a in outcome.artifacts] == [30_000]


@pytest.mark.real_time
async def test_a_promise_of_a_stopped_tool_is_not_a_result() -> None:
    """Law 7: a function that was stopped before what it returned could be awaited has not finished."""
    begun: list[str] = []

    async def later() -> str:
        begun.append("late")
        return "late"

    @tool(tier="observe")
    def promise() -> Any:
        time.sleep(0.5)
        return later()

    model = ScriptedModel([call("promise")])
    async with start(Agent("a", tools=[promise]), "go", model=model) as running:
        await asyncio.sleep(0.01)
        await running.cancel("enough")
        outcome = await running.outcome()
    assert not results(outcome)[0].ok
    assert begun == []


D: Any = Decision


@pytest.mark.parametrize("decision", [D(False, reason=None), D(False, reason="\ud800"), D(1)])
async def test_a_hand_made_decision_is_recorded_properly(decision: Any) -> None:
    """Law 11: whatever an approver returns can be written down; only a true yes is a yes."""

    async def approver(request: ApprovalRequest) -> Decision:
        return decision

    @tool
    async def write() -> str:
        return "written"

    store = MemoryStore()
    model = ScriptedModel([call("write"), say("done")])
    outcome = await run(Agent("a", tools=[write]), "go", model=model, approver=approver, store=store)
    assert results(outcome)[0].content.startswith("Denied")
    events = [e async for e in store.read(outcome.run_id)]
    assert [decode(encode(e)) for e in events] == events
    assert any(isinstance(e, ApprovalAnswered) for e in events)


async def test_a_message_that_comes_too_late_is_a_warning() -> None:
    """`send` returns False once a run's turns are done; an accepted message that joined no turn is a warning."""
    model = ScriptedModel([say("the answer", delay=10)])
    async with start(Agent("a", limits=Limits(turns=1)), "go", model=model) as running:
        await asyncio.sleep(1)
        assert running.send("also look there")
        outcome = await running.outcome()
        assert not running.send("and there")
    assert outcome.ok
    assert outcome.warnings == ("1 message arrived too late to join a turn.",)


async def test_a_late_message_to_a_resumable_run_is_kept() -> None:
    """A message to a stopped run that can be resumed joins it after the resume."""
    model, store = ScriptedModel([say("the answer", delay=10)]), MemoryStore()
    async with start(Agent("a"), "go", model=model, store=store) as running:
        await asyncio.sleep(1)
        assert running.send("also look there")
        await running.cancel("enough")
        outcome = await running.outcome()
    assert outcome.warnings == ("1 message arrived too late to join a turn, unless this run is resumed.",)
    again = await resume(store, running.run_id, agent=Agent("a"), model=ScriptedModel([say("there")]))
    assert [message.text for message in again.messages] == ["go", "also look there", "there"]
    # It did join: what was said of it is true no more, here and in the journal.
    assert again.warnings == ()
    past = fold([event async for event in store.read(running.run_id)])
    assert past.runs[running.run_id].warnings == []


async def test_a_child_that_cannot_be_made_leaves_nothing() -> None:
    """Laws 4 and 12: a child that breaks while it is being started costs its call and nothing else."""

    class Moody(dict[str, Json]):
        reads = 0

        def get(self, key: str, default: Json = None) -> Json:
            self.reads += 1
            if self.reads > 1:
                raise RuntimeError("moody")
            return default

    good = ScriptedModel({"lead": [call("task", agent="kid", prompt="p"), say("done")], "kid": [say("x")]})
    kid = Agent("kid", settings=Moody(temperature=1))
    lead = Agent("lead", model=good, subagents=[kid])
    store = MemoryStore()
    outcome = await run(lead, "go", store=store, limits=Limits(concurrency=1, seconds=50))
    assert outcome.ok
    assert {e.run async for e in store.read(outcome.run_id)} == {outcome.run_id}
