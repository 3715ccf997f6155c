"""`Limits(calls_at_once=...)`: how many ordinary calls of a run execute at once, and what happens to the others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from msgspec import UNSET
from msgspec.structs import replace

import remit.tasks.threads as threads
from remit import (
    Agent,
    ApprovalRequest,
    Call,
    Limits,
    Outcome,
    Reply,
    Request,
    Status,
    ToolMessage,
    UsageError,
    allow,
    resume,
    run,
    run_sync,
    start,
    tool,
)
from remit.definitions.agent_files.limit_values import parse_limits
from remit.definitions.project_trust.untrusted_agents import narrow_limits
from remit.engine.budget.call_queue import CallQueue
from remit.engine.run.parallel_calls import STARTED_TOGETHER
from remit.stores.memory import MemoryStore
from remit.tasks.cancel import ENDED_TOGETHER
from remit.testing import ScriptedModel, call, calls, say, wrapped
from remit.testing.scripted import Answer
from remit.tools.policy import Decision
from remit.tools.tool import Tool
from remit.types.events import CallEnded, CallStarted, Event, RunResumed, RunStarted


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


class Sleeper:
    """A tool that sleeps, and remembers how many of its calls executed at once, and in which order they began."""

    def __init__(self, *, tier: str = "observe") -> None:
        self.begun: list[int] = []
        self.now = self.peak = 0

        @tool(tier=tier)  # pyright: ignore[reportArgumentType]
        async def sleep(n: int, seconds: float = 1.0) -> str:
            """Sleeps."""
            self.begun.append(n)
            self.now += 1
            self.peak = max(self.peak, self.now)
            try:
                await asyncio.sleep(seconds)
            finally:
                self.now -= 1
            return f"slept {n}"

        self.tool: Tool = sleep


def many(number: int, seconds: float = 1.0) -> Answer:
    return calls(*(call("sleep", n=n, seconds=seconds) for n in range(number)))


async def told(store: MemoryStore, outcome: Outcome) -> list[Event]:
    return [event async for event in store.read(outcome.run_id)]


# --- The limit -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "peak"), [(Limits(calls_at_once=3), 3), (None, 16), (Limits(calls_at_once=None), 40)]
)
async def test_no_more_calls_of_a_run_execute_at_once_than_its_limit(
    limits: Limits | None, peak: int
) -> None:
    """Law 1: ordinary calls beyond `calls_at_once` wait in order; the default is 16, and None is no limit."""
    sleeper = Sleeper()
    with ScriptedModel([many(40), say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[sleeper.tool]), "go", model=model, limits=limits)
    assert sleeper.peak == peak
    assert sleeper.begun == list(range(40))
    assert [m.content for m in results(outcome)] == [f"slept {n}" for n in range(40)]


async def test_sync_tools_count_like_async_ones() -> None:
    """The limit is on calls, however the tool's function is written."""
    now, peak, lock = 0, 0, threading.Lock()

    @tool(tier="observe")
    def block(n: int) -> int:
        nonlocal now, peak
        with lock:
            now += 1
            peak = max(peak, now)
        threading.Event().wait(0.002)
        with lock:
            now -= 1
        return n

    with ScriptedModel([calls(*(call("block", n=n) for n in range(20))), say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[block]), "go", model=model, limits=Limits(calls_at_once=2))
    assert [m.content for m in results(outcome)] == [str(n) for n in range(20)]
    assert 1 <= peak <= 2


async def test_a_child_inherits_the_limit_unless_it_has_its_own() -> None:
    """It is each run's own, like `turns`: the agent's number, else its parent's, and not what its parent has left."""
    plain, own = Sleeper(), Sleeper()
    lead = Agent(
        "lead",
        subagents=[
            Agent("plain", tools=[plain.tool]),
            Agent("own", tools=[own.tool], limits=Limits(calls_at_once=5)),
        ],
    )
    scripts = {
        "lead": [
            calls(call("task", agent="plain", prompt="x"), call("task", agent="own", prompt="x")),
            say("ok"),
        ],
        "plain": [many(9), say("done")],
        "own": [many(9), say("done")],
    }
    with ScriptedModel(scripts) as model:
        await run(lead, "go", model=model, limits=Limits(calls_at_once=2))
    assert (plain.peak, own.peak) == (2, 5)


async def test_a_call_s_time_counts_from_when_it_executes() -> None:
    """A call that waits for others is not late: `call_seconds` counts from its start."""
    sleeper = Sleeper()
    with ScriptedModel([many(6, seconds=8), say("ok")]) as model:
        outcome = await run(
            Agent("lead", tools=[sleeper.tool]),
            "go",
            model=model,
            limits=Limits(calls_at_once=1, call_seconds=10),
        )
    assert all(m.ok for m in results(outcome))
    assert sleeper.peak == 1


async def test_that_a_call_begins_is_recorded_when_it_begins() -> None:
    """An intent in the journal means that the call was about to be made, not that it stood in a queue."""
    sleeper, store = Sleeper(), MemoryStore()
    with ScriptedModel([many(3), say("ok")]) as model:
        outcome = await run(
            Agent("lead", tools=[sleeper.tool]),
            "go",
            model=model,
            store=store,
            limits=Limits(calls_at_once=1),
        )
    seen = [(e.kind, e.call) for e in await told(store, outcome) if isinstance(e, CallStarted | CallEnded)]
    assert seen == [(kind, f"c{n}") for n in (1, 2, 3) for kind in ("call_started", "call_ended")]


def test_the_limit_can_be_written_wherever_limits_are_written() -> None:
    """On the command line, in variables and in files it is one of the limits; an untrusted file cannot raise it."""
    assert parse_limits("calls_at_once=4, turns=2") == Limits(calls_at_once=4, turns=2)
    assert parse_limits("calls_at_once=unlimited") == Limits(calls_at_once=None)
    assert narrow_limits(Limits(calls_at_once=100)) == (Limits(calls_at_once=16), ["calls_at_once"])
    with pytest.raises(UsageError, match="calls_at_once must be at least 1"):
        Limits(calls_at_once=0)


# --- What does not count -------------------------------------------------------------------------


async def test_delegating_calls_never_count() -> None:
    """Children start although ordinary calls use up the limit; so a call that waits for them cannot block them."""
    done = asyncio.Event()

    @tool(tier="observe")
    async def hold() -> str:
        """Waits for the children."""
        await done.wait()
        return "held"

    @tool(tier="observe")
    async def finish() -> str:
        """Lets it go on."""
        done.set()
        return "finished"

    kid = Agent("kid", tools=[finish])
    asked = calls(
        call("hold"),
        call("hold"),
        call("task", agent="kid", prompt="x"),
        call("task", agent="kid", prompt="y"),
    )
    scripts = {"lead": [asked, say("ok")], "kid": [call("finish"), say("done")]}
    with ScriptedModel(scripts) as model:
        outcome = await run(
            Agent("lead", tools=[hold], subagents=[kid]), "go", model=model, limits=Limits(calls_at_once=1)
        )
    assert outcome.ok
    assert [m.content for m in results(outcome)][:2] == ["held", "held"]


async def test_a_call_that_waits_for_a_person_takes_up_no_place() -> None:
    """Law 11: a call that needs approval suspends only itself; who was asked comes back before calls that have not begun."""
    order: list[str] = []

    @tool(tier="confirm")
    async def publish() -> str:
        """Changes things."""
        order.append("publish")
        return "published"

    @tool(tier="observe")
    async def look(n: int) -> str:
        """Reads."""
        order.append(f"look {n}")
        await asyncio.sleep(10)
        return "seen"

    async def person(request: ApprovalRequest) -> Decision:
        order.append("asked")
        await asyncio.sleep(15)
        return allow()

    asked = calls(call("publish"), *(call("look", n=n) for n in range(4)))
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(
            Agent("lead", tools=[publish, look]),
            "go",
            model=model,
            approver=person,
            limits=Limits(calls_at_once=1),
        )
    assert all(m.ok for m in results(outcome))
    assert order == ["asked", "look 0", "look 1", "publish", "look 2", "look 3"]


async def test_any_mix_of_calls_and_children_finishes_with_one_of_each() -> None:
    """Law 12: with one slot and one place every call of every run still gets its result."""
    sleeper = Sleeper()
    kid = Agent("kid", tools=[sleeper.tool])
    mix = calls(
        *(call("sleep", n=n) if n % 2 else call("task", agent="kid", prompt=str(n)) for n in range(12))
    )
    scripts = {"lead": [mix, say("ok")], "kid": [many(3), say("done")]}
    with ScriptedModel(scripts) as model:
        outcome = await run(
            Agent("lead", tools=[sleeper.tool], subagents=[kid]),
            "go",
            model=model,
            limits=Limits(calls_at_once=1, concurrency=1),
        )
    assert outcome.ok
    assert all(m.ok for m in results(outcome))
    assert [child.ok for child in outcome.children] == [True] * 6


# --- Stopping ------------------------------------------------------------------------------------


async def test_a_cancel_reaches_the_calls_that_wait_at_once() -> None:
    """Law 4: of calls that wait none begins after a cancel, and each has one result."""
    sleeper, store = Sleeper(), MemoryStore()
    model = ScriptedModel([many(50, seconds=1000)])
    async with start(
        Agent("lead", tools=[sleeper.tool]), "go", model=model, store=store, limits=Limits(calls_at_once=4)
    ) as running:
        await asyncio.sleep(5)
        await running.cancel("enough")
        outcome = await running.outcome()
    assert outcome.status == Status.CANCELLED
    assert sleeper.begun == [0, 1, 2, 3]
    assert (sleeper.now, len(results(outcome)), len(outcome.calls)) == (0, 50, 50)
    events = await told(store, outcome)
    assert [e.call for e in events if isinstance(e, CallStarted)] == ["c1", "c2", "c3", "c4"]
    ended = [e for e in events if isinstance(e, CallEnded)]
    assert sorted(e.call for e in ended) == sorted(f"c{n}" for n in range(1, 51))
    assert all(e.unfinished and not e.success for e in ended)


async def test_a_deadline_reaches_the_calls_that_wait_and_the_run_still_wraps_up() -> None:
    """Law 6: what waits at the soft end never begins, and the model is asked once for what it has."""
    sleeper = Sleeper()
    with ScriptedModel([many(100, seconds=40), wrapped("so far")]) as model:
        outcome = await run(
            Agent("lead", tools=[sleeper.tool]),
            "go",
            model=model,
            limits=Limits(calls_at_once=2, seconds=100),
        )
    assert (outcome.status, outcome.partial) == (Status.TIMED_OUT, "so far")
    assert len(sleeper.begun) == 6
    assert sum(m.ok for m in results(outcome)) == 4
    assert len(results(outcome)) == 100


async def test_a_stop_while_calls_are_being_started_leaves_none_of_them_open() -> None:
    """Law 4: a run that is stopped between two batches of its calls ends like any other."""
    number = 5 * STARTED_TOGETHER
    sleeper = Sleeper()
    model = ScriptedModel([many(number)])
    async with start(Agent("lead", tools=[sleeper.tool]), "go", model=model) as running:
        while not sleeper.begun:  # noqa: ASYNC110 - the iterations of the loop are what counts
            await asyncio.sleep(0)
        await running.cancel("enough")
        outcome = await running.outcome()
    assert (outcome.status, len(results(outcome)), sleeper.now) == (Status.CANCELLED, number, 0)


@pytest.mark.parametrize("older", [False, True])
async def test_calls_that_waited_are_made_when_the_run_is_resumed(older: bool) -> None:
    """Law 13: a changing call that only waited when the process died was not made, and is not *unknown*.

    A journal of an older remit, which had no such limit, is resumed with the default.
    """
    sleeper, first = Sleeper(tier="confirm"), MemoryStore()
    lead, limits = Agent("lead", tools=[sleeper.tool]), Limits(calls_at_once=1)
    model = ScriptedModel([many(3, seconds=10)])
    task = asyncio.create_task(
        run(lead, "go", model=model, store=first, limits=limits, policy=["allow sleep"])
    )
    await asyncio.sleep(15)
    root = (await first.trees())[0].root
    events = [event async for event in first.read(root)]
    task.cancel()
    await asyncio.wait({task})
    second = MemoryStore()
    await second.claim(root, new=True)
    for event in events:
        if older and isinstance(event, RunStarted):
            event = replace(event, limits=replace(event.limits, calls_at_once=UNSET))  # noqa: PLW2901
        second.append(event)
    await second.release(root)
    sleeper.begun.clear()
    with ScriptedModel([say("ok")]) as again:
        outcome = await resume(second, root, agent=lead, model=again, policy=["allow sleep"])
    assert sleeper.begun == [2]
    assert [m.content.partition(":")[0] for m in results(outcome)] == ["slept 0", "Unknown", "slept 2"]
    resumed = [e async for e in second.read(root) if isinstance(e, RunResumed)]
    assert [e.limits.calls_at_once for e in resumed] == [16 if older else 1]


# --- The event loop ------------------------------------------------------------------------------


class Ticks:
    """Counts what happens between two iterations of the event loop."""

    def __init__(self) -> None:
        self.now = self.most = self.total = 0
        self._loop = asyncio.get_running_loop()
        self._over = False
        self._tick()

    def count(self, *_: object) -> None:
        self.now += 1
        self.total += 1
        self.most = max(self.most, self.now)

    def close(self) -> None:
        self._over = True

    def _tick(self) -> None:
        self.now = 0
        if not self._over:
            self._loop.call_soon(self._tick)


class Says:
    """A model that makes so many calls, and is done; a child's model is done after a while."""

    name = "says"

    def __init__(self, call: Callable[[int], Call], number: int) -> None:
        self.reply_first = Reply("", tuple(map(call, range(number))), stop="calls")

    async def reply(self, request: Request, emit: object) -> Reply:
        if request.depth:
            await asyncio.sleep(100)
        return Reply("done") if request.depth or len(request.messages) > 1 else self.reply_first


@pytest.mark.parametrize("kind", ["async", "unknown", "denied"])
async def test_between_two_iterations_of_the_loop_few_calls_begin(kind: str) -> None:
    """Whatever calls a reply has, also those that end at once, no more than `calls_at_once` of them are served together."""
    ticks = Ticks()

    @tool(tier="observe")
    async def count() -> int:
        ticks.count()
        return 1

    def policy(*_: object) -> str:
        ticks.count()
        return "deny"

    name = "missing" if kind == "unknown" else "count"
    async with start(
        Agent("lead", tools=[count]),
        "go",
        model=Says(lambda n: Call(f"c{n}", name, {}), 1000),
        policy=policy if kind == "denied" else None,  # pyright: ignore[reportArgumentType]
    ) as running:
        if kind == "unknown":
            async for event in running.events():
                ticks.count() if isinstance(event, CallEnded) else None
        outcome = await running.outcome()
        ticks.close()
    assert len(results(outcome)) == 1000
    # A call can begin in the iteration in which another one that had its place ended.
    assert 1 <= ticks.most <= 2 * 16


async def test_children_of_one_reply_are_started_and_stopped_a_few_at_a_time() -> None:
    """A thousand children do not have the event loop for themselves when they start, nor when they are stopped."""
    started, ended = Ticks(), Ticks()
    store = MemoryStore()
    take = store.append

    def append(event: Event) -> None:
        take(event)
        if isinstance(event, RunStarted):
            started.count()
        elif event.kind == "run_ended":
            ended.count()

    store.append = append
    limits = Limits(delegations=None, concurrency=None)
    lead = Agent("lead", subagents=[Agent("kid")])
    model = Says(lambda n: Call(f"c{n}", "task", {"agent": "kid", "prompt": "x"}), 1000)
    async with start(lead, "go", model=model, limits=limits, store=store) as running:
        while started.total <= 1000:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0)
        started.close()
        await running.cancel("enough")
        ended.close()
        outcome = await running.outcome()
    assert {child.status for child in outcome.children} == {Status.CANCELLED}
    assert len(outcome.children) == 1000
    assert started.most <= STARTED_TOGETHER
    # Two groups may end in one iteration.
    assert ended.most <= 2 * ENDED_TOGETHER


# --- Threads that wait ---------------------------------------------------------------------------


@pytest.mark.real_time
async def test_a_thread_that_waits_for_a_run_takes_up_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync tool may run a tree of its own, whose tools need threads too, although no thread is left."""
    monkeypatch.setattr(threads, "MOST_AT_ONCE", max(1, threads.busy()))

    @tool(tier="observe")
    def inner() -> str:
        return "inner"

    @tool(tier="observe")
    def outer() -> str:
        model = ScriptedModel([call("inner"), say("from inside")])
        return run_sync(Agent("child", tools=[inner]), "go", model=model).text

    with ScriptedModel([calls(call("outer"), call("outer")), say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[outer]), "go", model=model)
    assert [m.content for m in results(outcome)] == ["from inside", "from inside"]


# --- The queue itself ----------------------------------------------------------------------------


def test_a_place_goes_to_the_next_in_order() -> None:
    """Calls start in the order in which they came, one for each place that is free."""
    queue, begun = CallQueue(2), list[int]()
    for n in range(4):
        queue.enter(lambda n=n: begun.append(n))
    assert begun == [0, 1]
    queue.leave()
    assert begun == [0, 1, 2]
    assert queue.drop() == 1
    queue.leave()
    assert begun == [0, 1, 2]
    queue.enter(lambda: begun.append(9))
    assert begun == [0, 1, 2, 9]
