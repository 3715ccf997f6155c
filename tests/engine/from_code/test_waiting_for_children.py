"""Code waits for its children: cancelling the wait at every moment."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

import anyio
import pytest
from codebench import (
    WORKER,
    lead_of,
    play,
    program_of,
    results,
    script,
    statuses,
    tool_of,
)

from remit import (
    Agent,
    Limits,
    Outcome,
    ProgramContext,
    Request,
    ToolContext,
    UsageError,
    start,
    tool,
)
from remit.testing import call, say
from remit.testing.scripted import Line
from remit.types.events import CancelRequested, ChildQueued, RunEnded, RunStarted

LONG = 1_000.0


def slow(_: Request) -> Line:
    return say("late", delay=LONG)


def after(seconds: float) -> Callable[[Request], Line]:
    return lambda _: say("ok", delay=seconds)


# --- Rule 1: a task of the engine for each child ----------------------------------------------------


async def test_each_child_runs_in_a_task_of_the_engine() -> None:
    """Rule 1: a child runs in another task than the code that waits for it."""
    seen: dict[str, object] = {}

    @tool(tier="observe")
    async def look() -> str:
        """Look."""
        seen["child"] = threading.current_thread(), asyncio.current_task()
        return "seen"

    async def work(ctx: ToolContext) -> str:
        seen["code"] = threading.current_thread(), asyncio.current_task()
        return (await ctx.delegate(Agent("worker", tools=[look]), "go")).text

    played = await play(lead_of(tool_of(work)), script([call("look"), say("ok")]))
    assert results(played.outcome) == ["ok"]
    assert seen["child"] != seen["code"]


async def test_a_timeout_inside_a_tool_stops_its_child_and_nothing_else() -> None:
    """Rule 1: `asyncio.timeout` around a child raises TimeoutError in the tool; the child names the tool, the run goes on."""

    async def work(ctx: ToolContext) -> str:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await ctx.delegate(WORKER, "go")
        return (await ctx.delegate(WORKER, "again")).text

    def worker(request: Request) -> Line:
        return say("late", delay=LONG) if request.messages[0].text == "go" else say("second")

    played = await play(lead_of(tool_of(work)), script(worker))
    assert (played.outcome.status, results(played.outcome)) == ("completed", ["second"])
    first, second = played.outcome.children
    assert (first.status, second.status) == ("cancelled", "completed")
    assert first.reason == "cancelled by tool code: it stopped waiting for this run"
    assert [event.run for event in played.of(CancelRequested)] == [first.run_id]


async def test_a_stop_of_the_run_keeps_its_cause_while_a_tool_waits() -> None:
    """Rule 1: cancelled while its tool waits for a child, a run names the caller, not the event loop."""

    async def work(ctx: ToolContext) -> str:
        return (await ctx.delegate(WORKER, "go")).text

    async with start(lead_of(tool_of(work)), "go", model=script(slow)) as running:
        await asyncio.sleep(5)
        await running.cancel("enough")
        outcome = await running.outcome()
    assert outcome.reason == "cancelled by the caller: enough"
    assert outcome.children[0].reason.startswith("stopped with lead")


async def test_gather_and_as_completed_work_with_delegate() -> None:
    """Rule 1: several waits for children in tasks of the tool's own run at once, and one that fails stops no other."""

    async def work(ctx: ToolContext) -> str:
        together = await asyncio.gather(*[ctx.delegate(WORKER, f"{n}") for n in (3, 1, 2)])
        order: list[str] = []
        for one in asyncio.as_completed([ctx.delegate(WORKER, f"{n}", key=f"{n}") for n in (3, 1, 2)]):
            order.append((await one).text)  # noqa: PERF401 - in the order in which they end
        return "".join(one.text for one in together) + " " + "".join(order)

    def worker(request: Request) -> Line:
        number = request.messages[0].text
        return say(number, delay=float(number))

    played = await play(lead_of(tool_of(work)), script(worker))
    assert results(played.outcome) == ["312 123"]
    assert played.outcome.duration_s == pytest.approx(6)


# --- Rule 6: cancelling the wait -------------------------------------------------------------------


async def test_a_cancelled_wait_ends_when_the_child_has_ended() -> None:
    """Rule 6: code whose wait is cancelled goes on only when the child has ended, with the child's cleaning up done."""
    moments: list[str] = []

    @tool(tier="observe")
    async def tidy() -> str:
        """Needs two seconds to stop."""
        try:
            await asyncio.sleep(LONG)
        finally:
            await asyncio.sleep(2)
            moments.append("child")
        return ""

    async def work(ctx: ToolContext) -> str:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3):
                await ctx.delegate(Agent("worker", tools=[tidy]), "go")
        moments.append("code")
        return f"{asyncio.get_running_loop().time():g}"

    played = await play(lead_of(tool_of(work)), script([call("tidy"), say("never")]))
    assert moments == ["child", "code"]
    assert results(played.outcome) == ["5"]


async def test_move_on_after_neither_spins_nor_leaves_a_child() -> None:
    """Rule 6: anyio's scopes cancel again in each round of the loop; the wait for the child's end is shielded from that."""
    rounds = 0

    @tool(tier="observe")
    async def tidy() -> str:
        """Needs two seconds to stop."""
        try:
            await asyncio.sleep(LONG)
        finally:
            await asyncio.sleep(2)
        return ""

    async def work(ctx: ToolContext) -> str:
        nonlocal rounds
        loop = asyncio.get_running_loop()
        plain = loop.call_soon

        def counted(*args: object, **named: object) -> object:
            nonlocal rounds
            rounds += 1
            return plain(*args, **named)  # pyright: ignore[reportArgumentType]

        loop.call_soon = counted  # pyright: ignore[reportAttributeAccessIssue]
        try:
            with anyio.move_on_after(3) as scope:
                await ctx.delegate(Agent("worker", tools=[tidy]), "go")
        finally:
            loop.call_soon = plain
        return f"{scope.cancelled_caught} {loop.time():g}"

    played = await play(lead_of(tool_of(work)), script([call("tidy"), say("never")]))
    assert results(played.outcome) == ["True 5"]
    assert rounds < 200


async def test_a_wait_for_a_place_can_be_cancelled() -> None:
    """Rule 6: a child that is queued has its own stop; the wait ends at once and the child never starts."""

    async def work(ctx: ToolContext) -> str:
        first = asyncio.create_task(ctx.delegate(WORKER, "first"))
        await asyncio.sleep(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2):
                await ctx.delegate(WORKER, "second")
        at = asyncio.get_running_loop().time()
        await first
        return f"{at:g}"

    played = await play(lead_of(tool_of(work)), script(after(50)), Limits(concurrency=1))
    assert results(played.outcome) == ["3"]
    assert [str(event.task.text) for event in played.started] == ["first"]
    assert len(played.of(ChildQueued)) == 1


async def test_a_wait_for_the_last_word_can_be_cancelled() -> None:
    """Rule 6: a delegation that waits until model calls in flight have settled ends at once when the code is cancelled."""

    async def work(ctx: ToolContext) -> str:
        await asyncio.sleep(5)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(3):
                await ctx.delegate(WORKER, "go")
        return f"{asyncio.get_running_loop().time():g}"

    async def root(ctx: ProgramContext) -> str:
        async def hog() -> None:
            # Its model call reserves all tokens that are left, from 1 s to 100 s.
            await asyncio.sleep(1)
            await ctx.delegate(Agent("hog"), "go")

        middle, _ = await asyncio.gather(ctx.delegate(lead_of(tool_of(work)), "go"), hog())
        return ", ".join(results(middle)) if isinstance(middle, Outcome) else middle.reason

    model = script(after(1), hog=after(99))
    played = await play(program_of(root), model, Limits(tokens=4_300))
    assert played.outcome.text == "8"
    assert [event.agent for event in played.started] == ["lead", "hog"]


async def test_a_wait_for_the_slot_can_be_cancelled() -> None:
    """Rule 6: code that is cancelled while its call reacquires the slot goes on with the slot, and the child keeps its end."""

    async def work(ctx: ToolContext) -> str:
        got: list[object] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(15):
                got.append(await ctx.delegate(WORKER, "go"))
        return f"{len(got)} {asyncio.get_running_loop().time():g}"

    async def root(ctx: ProgramContext) -> str:
        async def busy() -> None:
            # It is queued while the worker works, and has the slot from 10 s to 40 s.
            await asyncio.sleep(5)
            await ctx.delegate(Agent("busy"), "go")

        middle, _ = await asyncio.gather(ctx.delegate(lead_of(tool_of(work)), "go"), busy())
        return middle.text

    model = script(after(10), busy=after(30))
    played = await play(program_of(root), model, Limits(concurrency=1))
    assert (played.outcome.text, model.peak) == ("done", 1)
    below = played.outcome.children[0]
    assert [one.status for one in below.children] == ["completed"]
    assert results(below) == ["0 40"]


async def test_a_cancelled_map_stops_every_child_it_has_open() -> None:
    """Rule 6: `map` cancelled between two requests stops the children that it has started, and awaits their ends."""
    ended: list[str] = []

    async def work(ctx: ToolContext) -> str:
        task = asyncio.create_task(ctx.map(WORKER, ["one", "two", "", "", ""], concurrency=5))
        # The map yields at each rejected prompt: it is cancelled in one of those steps.
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        ended.append(f"{asyncio.get_running_loop().time():g}")
        await asyncio.sleep(10)
        return "went on"

    played = await play(lead_of(tool_of(work)), script(slow))
    assert results(played.outcome) == ["went on"]
    assert ended == ["0"]
    assert all(one.status == "cancelled" for one in played.outcome.children)
    assert all(one.duration_s == 0 for one in played.outcome.children)


async def test_a_map_that_meets_a_mistake_stops_the_children_it_has_open() -> None:
    """Rule 6: a prompt of a wrong type raises UsageError from `map`, and no child of it is left running."""

    async def work(ctx: ToolContext) -> str:
        with pytest.raises(UsageError, match="prompt must be a text"):
            await ctx.map(WORKER, ["one", "two", 3])  # pyright: ignore[reportArgumentType]
        await asyncio.sleep(10)
        return "went on"

    played = await play(lead_of(tool_of(work)), script(slow))
    assert results(played.outcome) == ["went on"]
    assert all((one.status, one.duration_s) == ("cancelled", 0) for one in played.outcome.children)


@pytest.mark.parametrize("moment", [0.0, 0.5, 1.5, 2.5, 3.5])
async def test_a_run_cancelled_at_any_moment_of_a_delegation_leaves_nothing(moment: float) -> None:
    """Rule 6: cancelled while a child is queued, starting, running or reacquiring the slot, a tree ends with one outcome each."""

    async def work(ctx: ToolContext) -> str:
        return ",".join(statuses(await ctx.map(WORKER, ["a", "b", "c"])))

    agent, model = lead_of(tool_of(work)), script(after(1))
    async with start(agent, "go", model=model, limits=Limits(concurrency=1)) as running:
        reader = asyncio.create_task(_read(running.events()))
        await asyncio.sleep(moment)
        await running.cancel("enough")
        outcome = await running.outcome()
        events = await reader
    assert outcome.status == ("cancelled" if moment < 3 else "completed")
    assert model.in_flight == 0
    started = [event.run for event in events if isinstance(event, RunStarted)]
    ended = [event.run for event in events if isinstance(event, RunEnded)]
    assert sorted(started) == sorted(ended)
    assert isinstance(events[-1], RunEnded)


async def _read(events: object) -> list[object]:
    return [event async for event in events]  # pyright: ignore[reportGeneralTypeIssues]
