"""The end of a call or program: what it left open, what its code asks for afterwards, and grace periods that nest."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable

import pytest
from codebench import (
    WORKER,
    Played,
    lead_of,
    play,
    program_of,
    script,
    statuses,
    sync_tool_of,
    tool_of,
)

import remit.tasks.threads as threads
from remit import (
    Agent,
    Outcome,
    ProgramContext,
    Rejection,
    Request,
    ToolContext,
    run,
    start,
    tool,
)
from remit.testing import call, say
from remit.testing.scripted import Line
from remit.types.events import RunEnded

LONG = 1_000.0


def slow(_: Request) -> Line:
    return say("late", delay=LONG)


def after(seconds: float) -> Callable[[Request], Line]:
    return lambda _: say("ok", delay=seconds)


# --- Rule 7: the end of the call -------------------------------------------------------------------


def ends_in_order(played: Played) -> list[str]:
    names = {"run_ended": "run", "call_ended": "call"}
    return [f"{names[e.kind]} {e.agent}" for e in played.events if e.kind in names]


async def test_children_that_a_call_leaves_open_end_before_it() -> None:
    """Rule 7: a call that returns without waiting for its child stops the child; its end comes before the call's."""
    kept: list[asyncio.Task[object]] = []

    async def work(ctx: ToolContext) -> str:
        kept.append(asyncio.create_task(ctx.delegate(WORKER, "go")))
        await asyncio.sleep(1)
        return "left"

    played = await play(lead_of(tool_of(work)), script(slow))
    (child,) = played.outcome.children
    assert child.reason == "cancelled by tool code: it ended without waiting for this run"
    assert ends_in_order(played) == ["run worker", "call lead", "run lead"]
    assert played.outcome.duration_s == pytest.approx(1)
    assert isinstance(await kept[0], Outcome)


async def test_children_that_a_program_leaves_open_end_before_it() -> None:
    """Rule 7: the same for a program: nothing of it runs when it has ended."""
    kept: list[asyncio.Task[object]] = []

    async def work(ctx: ProgramContext) -> str:
        kept.append(asyncio.create_task(ctx.delegate(WORKER, "go")))
        await asyncio.sleep(1)
        return "left"

    played = await play(program_of(work), script(slow))
    assert played.outcome.ok
    assert played.outcome.children[0].status == "cancelled"
    assert ends_in_order(played) == ["run worker", "run program"]
    await kept[0]


@pytest.mark.parametrize("before", [True, False], ids=["that had delegated", "that had not"])
async def test_delegating_after_the_call_has_ended_is_rejected(before: bool) -> None:
    """Rule 7: a task that a tool left behind gets Rejection(cancelled), also from a call that had not delegated before."""
    kept: list[asyncio.Task[object]] = []

    async def later(ctx: ToolContext) -> object:
        await asyncio.sleep(5)
        return [await ctx.delegate(WORKER, "late"), *await ctx.map(WORKER, ["later", "latest"])]

    async def work(ctx: ToolContext) -> str:
        if before:
            await ctx.delegate(WORKER, "go")
        kept.append(asyncio.create_task(later(ctx)))
        return "left"

    lead = [call("code"), say("done", delay=20)]
    played = await play(lead_of(tool_of(work)), script(after(1), lead))
    found = await kept[0]
    assert isinstance(found, list)
    assert statuses(found) == ["cancelled"] * 3
    assert len(played.started) == before
    assert not played.rejected


async def test_no_event_follows_the_end_of_the_run() -> None:
    """Rule 7: a task that code left behind delegates, runs steps and reports after the end of the tree, and nothing is written."""
    kept: list[asyncio.Task[object]] = []

    async def later(ctx: ProgramContext) -> object:
        await asyncio.sleep(5)
        ctx.emit("still here")
        found = await ctx.delegate(WORKER, "late")
        try:
            await ctx.step("late", lambda: 1)
        except Exception as error:
            return found, type(error).__name__
        return found, "none"

    async def work(ctx: ProgramContext) -> str:
        kept.append(asyncio.create_task(later(ctx)))
        return "left"

    seen: list[object] = []
    outcome = await run(program_of(work), "go", model=script(), on_event=seen.append)
    before = len(seen)
    rejection, error = await kept[0]  # pyright: ignore[reportGeneralTypeIssues]
    assert outcome.ok
    assert len(seen) == before
    assert isinstance(seen[-1], RunEnded)
    assert isinstance(rejection, Rejection)
    assert (rejection.kind, error) == ("cancelled", "UsageError")


async def test_a_thread_left_behind_is_rejected_too() -> None:
    """Rule 7: a thread that a sync tool left behind gets Rejection(cancelled) for everything that it asks for."""
    found: list[Outcome | Rejection] = []
    go, loop, done = threading.Event(), asyncio.get_running_loop(), asyncio.Event()

    def code(ctx: ToolContext) -> str:
        def later() -> None:
            go.wait(10)
            found.append(ctx.delegate_sync(WORKER, "late"))
            found.extend(ctx.map_sync(WORKER, ["later", "latest"]))
            loop.call_soon_threadsafe(done.set)

        threading.Thread(target=later, daemon=True).start()
        return "left"

    played = await play(lead_of(sync_tool_of(code)), script())
    assert played.outcome.ok
    go.set()
    await done.wait()
    assert statuses(found) == ["cancelled"] * 3


def test_a_thread_left_behind_is_rejected_when_the_loop_is_gone() -> None:
    """Rule 7: once the loop is closed, `delegate_sync` still returns a Rejection and never raises."""
    kept: list[ToolContext] = []

    def code(ctx: ToolContext) -> str:
        kept.append(ctx)
        return "left"

    assert asyncio.run(run(lead_of(sync_tool_of(code)), "go", model=script())).ok
    assert statuses([kept[0].delegate_sync(WORKER, "late")]) == ["cancelled"]


# --- Rule 8: grace periods nest ----------------------------------------------------------------------


async def test_the_grace_period_of_a_tool_begins_when_its_children_have_ended() -> None:
    """Rule 8: a stopped tool that needs 4 s to tidy up after a child that needed 4 s is not abandoned after 5 s."""
    tidied: list[str] = []

    async def tidy(name: str) -> None:
        try:
            await asyncio.sleep(LONG)
        finally:
            for _ in range(8):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.5)
            tidied.append(name)

    @tool(tier="observe")
    async def below() -> str:
        """Needs four seconds to stop."""
        await tidy("child")
        return ""

    async def work(ctx: ToolContext) -> str:
        try:
            await ctx.delegate(Agent("worker", tools=[below]), "go")
        finally:
            for _ in range(8):
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.5)
            tidied.append("tool")
        return ""

    agent = lead_of(tool_of(work))
    async with start(agent, "go", model=script([call("below"), say("never")])) as running:
        await asyncio.sleep(10)
        await running.cancel("enough")
        outcome = await running.outcome()
    assert tidied == ["child", "tool"]
    assert not outcome.warnings


async def test_a_tool_that_swallows_every_cancel_is_left_behind_after_its_children() -> None:
    """Rule 8: a tool that goes on delegating after every cancel starts nothing more, and is abandoned after its grace period."""
    asked = 0

    async def work(ctx: ToolContext) -> str:
        nonlocal asked
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await ctx.delegate(WORKER, "go")
                asked += 1

    agent = lead_of(tool_of(work))
    async with start(agent, "go", model=script(slow)) as running:
        await asyncio.sleep(10)
        await running.cancel("enough")
        outcome = await running.outcome()
        assert asyncio.get_running_loop().time() == pytest.approx(15, abs=0.5)
    assert [one.status for one in outcome.children] == ["cancelled"]
    assert outcome.warnings == ("tool code could not be stopped and was left behind; its result is dropped.",)
    assert asked > 100
    assert threads.busy() == 0
