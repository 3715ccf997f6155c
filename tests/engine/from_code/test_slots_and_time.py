"""The slot and the time of a call that delegates: released with its first child, reacquired after its last."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest
from codebench import (
    WORKER,
    lead_of,
    play,
    program_of,
    results,
    script,
    statuses,
    sync_tool_of,
    tool_of,
)

from remit import Agent, Limits, ProgramContext, Rejection, Request, ToolContext, allow, run, start, tool
from remit.testing import call, calls, say
from remit.testing.scripted import Line
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.events import ApprovalRequested, ChildQueued, RunStarted

LONG = 1_000.0


def after(seconds: float) -> Callable[[Request], Line]:
    return lambda _: say("ok", delay=seconds)


def now() -> str:
    return f"{asyncio.get_running_loop().time():g}"


@tool(tier="observe")
async def work_long() -> str:
    """Work for ten seconds."""
    await asyncio.sleep(10)
    return f"worked until {now()}"


# --- Rule 3: whose slot it is -----------------------------------------------------------------------


async def test_a_call_has_no_slot_from_its_first_child_to_its_last() -> None:
    """Rule 3: under N = 1 a tool's children run one after another, and the tool goes on when the last has ended."""

    async def work(ctx: ToolContext) -> str:
        found = await asyncio.gather(*[ctx.delegate(WORKER, f"{n}") for n in range(3)])
        return f"{statuses(found)} {now()}"

    model = script(after(10))
    played = await play(lead_of(tool_of(work)), model, Limits(concurrency=1))
    assert results(played.outcome) == ["['completed', 'completed', 'completed'] 30"]
    assert model.peak == 1


async def test_a_run_keeps_its_slot_while_another_of_its_tools_works() -> None:
    """Rule 3: the slot is counted by call: a child waits until the other tool of the turn has ended."""

    async def delegating(ctx: ToolContext) -> str:
        found = await ctx.delegate(WORKER, "go")
        return f"{found.text} {now()}"

    lead = [calls(call("code"), call("work_long")), say("done")]
    played = await play(
        lead_of(tool_of(delegating), work_long), script(after(5), lead), Limits(concurrency=1)
    )
    assert results(played.outcome) == ["ok 15", "worked until 10"]
    assert len(played.of(ChildQueued)) == 1


async def test_several_tools_of_one_turn_delegate_under_one_slot() -> None:
    """Rule 3: three tools that delegate and one that works share one slot, and each has its result."""

    async def delegating(ctx: ToolContext) -> str:
        found = await ctx.map(WORKER, ["a", "b"])
        return f"{len([one for one in found if one.ok])}"

    model = script(after(5), [calls(call("a"), call("b"), call("work_long"), call("c")), say("done")])
    agent = lead_of(*[tool_of(delegating, name=name) for name in "abc"], work_long)
    played = await play(agent, model, Limits(concurrency=1))
    assert results(played.outcome) == ["2", "2", "worked until 10", "2"]
    assert (played.outcome.text, model.peak) == ("done", 1)
    assert played.outcome.duration_s == pytest.approx(10 + 6 * 5)


async def test_tools_that_delegate_nest_under_one_slot() -> None:
    """Rule 3: tools that delegate to agents whose tools delegate, three levels deep, finish under N = 1."""

    def nested(depth: int) -> Agent:
        async def work(ctx: ToolContext) -> str:
            found = await ctx.map(nested(depth - 1) if depth else WORKER, ["a", "b"])
            return " ".join(one.text for one in found)

        return Agent("lead", tools=[tool_of(work)])

    model = script(after(1))
    played = await play(nested(2), model, Limits(concurrency=1, depth=5))
    assert played.outcome.ok
    assert model.peak == 1
    assert len(played.started) == 2 + 4 + 8


async def test_calls_at_once_counts_only_calls_that_work() -> None:
    """Rule 3: under `calls_at_once=1` a tool that waits for a child leaves its place to the next call of the turn."""

    async def delegating(ctx: ToolContext) -> str:
        await ctx.delegate(WORKER, "go")
        return now()

    lead = [calls(call("code"), call("work_long")), say("done")]
    played = await play(
        lead_of(tool_of(delegating), work_long), script(after(5), lead), Limits(calls_at_once=1)
    )
    # The child ends at 5 s; the tool has its place again when the other call has ended.
    assert results(played.outcome) == ["10", "worked until 10"]


# --- Rule 4: reacquiring is one state ----------------------------------------------------------------


async def test_delegating_while_the_slot_is_reacquired_leaves_no_slot_behind() -> None:
    """Rule 4: a child that is asked for while the call waits for its slot runs, and the slot is neither lost nor doubled."""

    async def delegating(ctx: ToolContext) -> str:
        async def twice() -> list[str]:
            await ctx.delegate(WORKER, "first")
            return [(await ctx.delegate(WORKER, "third")).text]

        async def between() -> str:
            # The first child has ended at 10 s, and until 40 s another run has the slot.
            await asyncio.sleep(20)
            return (await ctx.delegate(WORKER, "second")).text

        return f"{await asyncio.gather(twice(), between())} {now()}"

    async def root(ctx: ProgramContext) -> str:
        async def busy() -> None:
            await asyncio.sleep(5)
            await ctx.delegate(Agent("busy"), "go")

        found, _ = await asyncio.gather(ctx.delegate(lead_of(tool_of(delegating)), "go"), busy())
        await ctx.map(WORKER, ["afterwards", "once more"])
        return found.text

    model = script(after(10), busy=after(30))
    played = await play(program_of(root), model, Limits(concurrency=1, depth=5))
    assert (played.outcome.text, model.peak) == ("done", 1)
    assert [one.text for one in played.outcome.children[0].children] == ["ok"] * 3


async def test_the_slot_is_free_before_the_child_starts() -> None:
    """Rule 4: under N = 1 a lone child finds the slot free: it is never queued behind the call that asked for it."""

    async def work(ctx: ToolContext) -> str:
        return (await ctx.delegate(WORKER, "go")).text

    played = await play(lead_of(tool_of(work)), script(), Limits(concurrency=1, when_full="reject"))
    assert results(played.outcome) == ["ok"]
    assert not played.of(ChildQueued)


async def test_a_program_shares_one_slot_with_what_it_starts() -> None:
    """Rule 4: programs in programs, each delegating from several tasks, finish under N = 1."""

    async def inner(ctx: ProgramContext) -> str:
        found = await asyncio.gather(*[ctx.delegate(WORKER, f"{n}") for n in range(3)])
        await asyncio.sleep(1)
        return f"{sum(one.ok for one in found)}"

    async def outer(ctx: ProgramContext) -> str:
        found = await ctx.map(program_of(inner, name="inner"), ["a", "b", "c"])
        return " ".join(one.text for one in found)

    model = script(after(1))
    played = await play(program_of(outer), model, Limits(concurrency=1))
    assert (played.outcome.text, model.peak) == ("3 3 3", 1)


# --- Rule 9: timeouts pause while the slot is released ------------------------------------------------


async def timed(work: Callable[[ToolContext], Awaitable[object]], **limits: float) -> str:
    played = await play(lead_of(tool_of(work)), script(after(100)), Limits(call_seconds=5, **limits))  # pyright: ignore[reportArgumentType]
    return results(played.outcome)[0]


async def test_the_time_of_a_call_pauses_while_it_waits_for_children() -> None:
    """Rule 9: a call of 5 seconds may wait 200 seconds for children, before and after 2 seconds of its own work."""

    async def work(ctx: ToolContext) -> str:
        await asyncio.sleep(2)
        await ctx.delegate(WORKER, "one")
        await asyncio.sleep(2)
        await ctx.delegate(WORKER, "two")
        return now()

    assert await timed(work) == "204"


async def test_the_time_of_a_call_goes_on_after_its_children() -> None:
    """Rule 9: the seconds that a call used before and after its child count together."""

    async def work(ctx: ToolContext) -> str:
        await asyncio.sleep(3)
        await ctx.delegate(WORKER, "one")
        await asyncio.sleep(3)
        return "never"

    played = await play(lead_of(tool_of(work)), script(after(100)), Limits(call_seconds=5))
    assert results(played.outcome) == ["Timed out: code did not end within 5 s."]
    assert played.outcome.duration_s == pytest.approx(105)


async def test_the_time_of_a_call_pauses_while_it_waits_for_its_slot() -> None:
    """Rule 9: after its child has ended, a call whose slot another run has is not charged for the wait."""

    async def work(ctx: ToolContext) -> str:
        await ctx.delegate(WORKER, "go")
        return now()

    async def root(ctx: ProgramContext) -> str:
        async def busy() -> None:
            await asyncio.sleep(2)
            await ctx.delegate(Agent("busy"), "go")

        lead = Agent("lead", tools=[tool_of(work)], limits=Limits(call_seconds=5))
        found, _ = await asyncio.gather(ctx.delegate(lead, "go"), busy())
        return results(found)[0]  # pyright: ignore[reportArgumentType]

    model = script(after(3), busy=after(60))
    played = await play(program_of(root), model, Limits(concurrency=1))
    assert played.outcome.text == "63"


async def test_timeout_s_of_a_sync_tool_pauses_too() -> None:
    """Rule 9: `timeout_s` of a tool that waits in a thread pauses while its children run."""

    def code(ctx: ToolContext) -> str:
        """Delegate from a thread."""
        return ctx.delegate_sync(WORKER, "go").text

    agent = Agent("lead", tools=[tool(code, tier="observe", timeout_s=5)])
    played = await play(agent, script(after(100)))
    assert results(played.outcome) == ["ok"]


async def test_the_run_pauses_while_a_person_is_asked_below_a_tool() -> None:
    """Rule 9: an approval inside a tool's child pauses the deadlines above it, and holds no slot."""

    @tool
    async def publish() -> str:
        """Change something."""
        return "published"

    async def approver(request: ApprovalRequest) -> Decision:
        await asyncio.sleep(500)
        return allow()

    async def work(ctx: ToolContext) -> str:
        found = await ctx.map(Agent("worker", tools=[publish]), ["a", "b"], concurrency=2)
        return f"{statuses(found)}"

    model = script([call("publish"), say("ok", delay=2)])
    limits = Limits(seconds=60, call_seconds=5, concurrency=1)
    played = await play(lead_of(tool_of(work)), model, limits, approver=approver)
    assert results(played.outcome) == ["['completed', 'completed']"]
    assert played.outcome.ok
    # The second child had the slot while the person thought about the first.
    first, second = played.of(ApprovalRequested)
    assert second.at - first.at < 1


# --- Rule 5: how long a child queues -----------------------------------------------------------------


async def test_a_child_queues_only_until_the_deadline_it_would_have() -> None:
    """Rule 5: code gets the rejections of queued children while it still has time, and keeps every outcome it has."""

    async def work(ctx: ToolContext) -> str:
        found = await ctx.map(WORKER, [f"{n}" for n in range(15)], concurrency=15)
        kinds = statuses(found)
        return f"{kinds.count('completed')} {kinds.count('budget')} {len(kinds)}"

    model = script(after(10))
    played = await play(lead_of(tool_of(work)), model, Limits(seconds=60, concurrency=1))
    # 54 of 60 s are the run's before its wrap-up: five children of 10 s fit.
    assert results(played.outcome) == ["5 9 15"]
    assert played.outcome.ok


async def test_a_tool_at_its_runs_soft_deadline_has_lost_no_outcome() -> None:
    """Rule 5: when the soft deadline stops the run, its tool has already had the results of all children."""
    seen: list[int] = []

    async def work(ctx: ToolContext) -> str:
        found = await ctx.map(WORKER, [f"{n}" for n in range(30)], concurrency=30)
        seen.append(sum(one.ok for one in found))
        await asyncio.sleep(LONG)
        return "never"

    played = await play(lead_of(tool_of(work)), script(after(10)), Limits(seconds=100, concurrency=2))
    assert seen == [16]
    assert played.outcome.status == "timed_out"
    assert sum(one.ok for one in played.outcome.children) == 16


async def test_a_program_starts_no_child_that_could_do_nothing() -> None:
    """Rule 5: a program that delegates in a loop is rejected when no time is left, instead of starting useless children."""
    asked: list[str] = []

    async def work(ctx: ProgramContext) -> str:
        while True:
            found = await ctx.delegate(WORKER, "go")
            asked.extend(statuses([found]))
            if isinstance(found, Rejection):
                return f"{now()} {ctx.left.seconds}"

    played = await play(program_of(work), script(after(25)), Limits(seconds=100))
    assert asked[:3] == ["completed"] * 3
    assert asked[-1] == "budget"
    # One child is cut short by its deadline; a second would have had less than a second.
    assert len(played.started) <= 5
    assert played.outcome.ok


# --- Rule 13: how many at once ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "concurrency", "most"),
    [
        (Limits(concurrency=4), None, 4),
        (Limits(concurrency=4), 2, 2),
        (Limits(concurrency=4), 100, 4),
        (Limits(concurrency=None), 3, 3),
    ],
)
async def test_map_keeps_as_many_children_in_flight_as_may_work(
    limits: Limits, concurrency: int | None, most: int
) -> None:
    """Rule 13: `map` asks for at most `concurrency` children at a time, by default as many as may work at once."""
    in_flight = 0
    peak = 0

    async def work(ctx: ToolContext) -> str:
        found = await ctx.map(WORKER, [f"{n}" for n in range(12)], concurrency=concurrency)
        return f"{sum(one.ok for one in found)}"

    model = script(after(1))
    async with start(lead_of(tool_of(work)), "go", model=model, limits=limits) as running:
        async for event in running.events():
            if event.agent == "worker" and event.kind in ("run_started", "run_ended"):
                in_flight += 1 if isinstance(event, RunStarted) else -1
                peak = max(peak, in_flight)
        outcome = await running.outcome()
    assert results(outcome) == ["12"]
    assert peak == model.peak == most


async def test_map_asks_for_no_more_once_its_call_has_ended() -> None:
    """Rule 13: a `map` that a tool left behind asks for nothing more when the call has ended."""
    kept: list[asyncio.Task[list[object]]] = []

    async def work(ctx: ToolContext) -> str:
        kept.append(asyncio.create_task(ctx.map(WORKER, [f"{n}" for n in range(1_000)], concurrency=2)))  # pyright: ignore[reportArgumentType]
        await asyncio.sleep(5)
        return "left"

    played = await play(lead_of(tool_of(work)), script(after(2)), Limits(delegations=None))
    found = await kept[0]
    assert len(found) == 1_000
    assert len(played.started) == 6
    assert not played.rejected


async def test_map_counts_for_itself_in_each_of_several_maps() -> None:
    """Rule 13: two maps of one call each have their own number of children in flight."""

    async def work(ctx: ToolContext) -> str:
        one, two = await asyncio.gather(
            ctx.map(WORKER, ["a", "b", "c"], concurrency=1), ctx.map(WORKER, ["d", "e", "f"], concurrency=2)
        )
        return f"{len(one)} {len(two)} {now()}"

    model = script(after(1))
    played = await play(lead_of(tool_of(work)), model)
    assert (results(played.outcome), model.peak) == (["3 3 3"], 3)


async def test_sync_tools_in_sync_tools_do_not_use_up_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 13: a sync tool that waits for children lends its thread: nested ones finish with two threads in all."""
    monkeypatch.setattr("remit.tasks.threads.MOST_AT_ONCE", 2)
    held: set[int] = set()

    def nested(depth: int) -> Agent:
        def code(ctx: ToolContext) -> str:
            held.add(threading.get_ident())
            found = ctx.map_sync(nested(depth - 1) if depth else WORKER, ["a", "b"])
            return f"{sum(one.ok for one in found)}"

        return Agent("lead", tools=[sync_tool_of(code)])

    outcome = await run(nested(2), "go", model=script(), limits=Limits(depth=5, concurrency=4))
    assert results(outcome) == ["2"]
    assert len(held) > 2
