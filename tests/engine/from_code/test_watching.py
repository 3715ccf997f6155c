"""Watching trees that delegate from code: queued children, programs without turns, steps, messages."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence

from codebench import WORKER, lead_of, play, program_of, script, tool_of

import remit.remote as remote
from remit import Agent, Limits, ProgramContext, ToolContext, start
from remit.engine.tree.stream_progress import ProgressView
from remit.observe.display.line_display import LineDisplay
from remit.observe.display.tree_view import TreeView, frame, shown
from remit.stores.memory import MemoryStore
from remit.testing import call, say
from remit.types.events import CallEnded, ChildQueued, Event, RunEnded, RunStarted


def drawn(view: TreeView) -> str:
    return shown(frame(view, width=110, height=24, now=view.tree.at), colour=False)


def up_to(events: Sequence[Event], kind: type[Event], count: int = 1, agent: str = "") -> TreeView:
    """What is seen once that many of a kind have happened."""
    view, seen = TreeView(), 0
    for event in events:
        view.feed(event)
        seen += isinstance(event, kind) and agent in ("", event.agent)
        if seen == count:
            return view
    raise AssertionError("too few events of that kind")


async def test_each_queued_child_of_one_call_is_counted() -> None:
    """Rule 28: the live tree counts the queued children of one call one by one, and no longer when they have started."""

    async def work(ctx: ToolContext) -> str:
        await ctx.map(WORKER, ["a", "b", "c", "d"], concurrency=4)
        return ""

    limits = Limits(concurrency=1)
    played = await play(lead_of(tool_of(work)), script(lambda _: say("ok", delay=5)), limits)
    assert len({event.key for event in played.of(ChildQueued)}) == 3
    assert "3 queued" in drawn(up_to(played.events, ChildQueued, 3))
    assert "1 queued" in drawn(up_to(played.events, RunStarted, 3, "worker"))
    assert "queued" not in drawn(up_to(played.events, RunStarted, 4, "worker"))


async def test_queued_children_of_a_program_are_counted() -> None:
    """Rule 28: the same for a program, whose children belong to no call."""

    async def work(ctx: ProgramContext) -> str:
        await asyncio.gather(*[ctx.delegate(WORKER, f"{n}") for n in range(3)])
        return "done"

    played = await play(program_of(work), script(), Limits(concurrency=1))
    assert "2 queued" in drawn(up_to(played.events, ChildQueued, 2))
    assert "1 child running, 1 queued" in drawn(up_to(played.events, RunStarted, 2, "worker"))


async def test_a_program_has_no_turns_to_show() -> None:
    """Rule 28: nowhere is a program shown with "0/50" turns: not in the tree, not in lines, not in its progress."""

    async def work(ctx: ProgramContext) -> str:
        await ctx.step("count", lambda: 3)
        await ctx.delegate(WORKER, "go")
        return "done"

    lead = [call("task", agent="program", prompt="go"), say("done")]
    played = await play(Agent("lead", subagents=[program_of(work)]), script(lead=lead))
    tree = drawn(up_to(played.events, RunStarted, 1, "worker"))
    assert "1/50" in tree
    assert "0/50" not in next(line for line in tree.splitlines() if "program" in line)
    file = io.StringIO()
    display = LineDisplay(TreeView(), file)
    for event in played.events:
        display.feed(event)
    assert "1 turn," in file.getvalue()
    assert "0 turns" not in file.getvalue()
    progress = ProgressView()
    steps = [step for event in played.events if (step := progress.feed(event)) is not None]
    assert [(step.tool_name, step.max_turns, step.completed) for step in steps] == [
        ("count", None, False),
        ("count", None, True),
    ]


async def test_steps_are_seen_while_they_run() -> None:
    """Rule 28: the live tree says which step a program is at, and a program's end has its steps in order."""

    async def slow() -> int:
        await asyncio.sleep(5)
        return 1

    async def work(ctx: ProgramContext) -> str:
        await ctx.step("gather facts", slow)
        return "done"

    played = await play(program_of(work), None)
    view = TreeView()
    for event in played.events[:2]:
        view.feed(event)
    assert "gather facts" in drawn(view)
    assert len(played.of(CallEnded)) == len(played.of(RunEnded)) == 1


async def test_another_process_cannot_send_to_a_program() -> None:
    """Rule 18: `remote.send` to a program is refused as `send()` is."""

    async def work(ctx: ProgramContext) -> str:
        await asyncio.sleep(20)
        return "done"

    store = MemoryStore()
    async with start(program_of(work), "go", store=store) as running:
        await asyncio.sleep(1)
        assert await remote.send(store, "r1", "hello") is False
        outcome = await running.outcome()
    assert not outcome.warnings
