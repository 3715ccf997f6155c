"""Recorded steps of a program: run once, found again, shown as calls."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from codebench import WORKER, play, program_of, script
from pydantic import BaseModel
from stories import a, died, timeless

from remit import Agent, Limits, Outcome, ProgramContext, Request, UsageError, resume, run, start
from remit.history.fold import fold
from remit.stores.memory import MemoryStore
from remit.testing import say
from remit.testing.scripted import Line
from remit.types.events import CallEnded, CallStarted, Event, ReplyReceived


class Part(BaseModel):
    name: str
    size: int


async def again(store: MemoryStore, agent: Agent, **options: Any) -> Outcome:
    return await resume(store, "r1", agent=agent, **options)


async def read(store: MemoryStore) -> list[Event]:
    return [event async for event in store.read("r1")]


# --- Rule 20 -------------------------------------------------------------------------------------------


async def test_a_recorded_step_never_runs_again() -> None:
    """Rule 20: a program that died after a step finds the step's result when it is resumed, and runs the others."""
    ran: list[str] = []

    def note(name: str) -> str:
        ran.append(name)
        return name

    async def work(ctx: ProgramContext) -> str:
        first = await ctx.step("first", note, "one")
        second = await ctx.step("second", note, "two")
        return f"{first} {second}"

    whole = MemoryStore()
    agent = program_of(work)
    assert (await run(agent, "go", store=whole)).text == "one two"
    store = await died(whole, a(CallEnded, tool="first"))
    ran.clear()
    outcome = await again(store, agent)
    assert (outcome.text, ran) == ("one two", ["two"])
    assert [one.name for one in outcome.calls] == ["first", "second"]


async def test_a_step_that_was_killed_amid_its_work_runs_again() -> None:
    """Rule 20: a step runs at least once: one whose end was not recorded is run again."""
    ran: list[str] = []

    async def work(ctx: ProgramContext) -> str:
        return str(await ctx.step("only", lambda: ran.append("ran")))

    whole = MemoryStore()
    agent = program_of(work)
    await run(agent, "go", store=whole)
    outcome = await again(await died(whole, a(CallStarted, tool="only")), agent)
    assert (ran, outcome.text) == (["ran", "ran"], "None")
    assert [one.name for one in outcome.calls] == ["only"]


async def test_a_step_that_failed_is_run_again_and_then_recorded() -> None:
    """Rule 20: what a step raises passes through and is not recorded; the result of a later run is, also for the next life."""
    ran: list[int] = []

    def flaky() -> int:
        ran.append(1)
        if len(ran) == 1:
            raise ValueError("not yet")
        return len(ran)

    async def work(ctx: ProgramContext) -> str:
        value = await ctx.step("flaky", flaky)
        await ctx.step("last", lambda: 0)
        return f"{value}"

    store, agent = MemoryStore(), program_of(work)
    outcome = await run(agent, "go", store=store)
    assert (outcome.status, outcome.reason) == ("failed", "the program raised ValueError: not yet")
    outcome = await again(store, agent)
    assert outcome.text == "2"
    assert [one.success for one in outcome.calls] == [False, True, True]
    # It dies once more, after the step that succeeded.
    dead = await died(store, a(CallEnded, tool="flaky"), times=2)
    outcome = await again(dead, agent)
    assert (outcome.text, len(ran)) == ("2", 2)
    assert fold(await read(dead)).outcome().calls == outcome.calls


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, 2), [1, 2]),
        ({1: "a"}, {"1": "a"}),
        (Part(name="a", size=1), {"name": "a", "size": 1}),
        ([Part(name="a", size=1)], [{"name": "a", "size": 1}]),
        (None, None),
        ("text", "text"),
        (1.5, 1.5),
    ],
    ids=str,
)
async def test_a_step_returns_the_same_both_times(value: object, expected: object) -> None:
    """Rule 20: a step returns its value as JSON has it, when it runs and when it is found again."""
    seen: list[object] = []

    async def work(ctx: ProgramContext) -> str:
        seen.append(await ctx.step("value", lambda: value))
        return "done"

    store, agent = MemoryStore(), program_of(work)
    await run(agent, "go", store=store)
    await again(await died(store, a(CallEnded)), agent)
    assert seen == [expected, expected]


async def test_a_step_that_is_not_json_is_a_mistake() -> None:
    """Rule 20: a result that cannot be recorded is a UsageError, and so is a name that is used twice or is not one."""

    async def work(ctx: ProgramContext) -> str:
        with pytest.raises(UsageError, match="must return JSON"):
            await ctx.step("object", object)
        await ctx.step("twice", lambda: 1)
        with pytest.raises(UsageError, match="name already"):
            await ctx.step("twice", lambda: 2)
        for name in ("", "  ", "x" * 201, 3):
            with pytest.raises(UsageError, match="needs a name"):
                await ctx.step(name, lambda: 1)  # pyright: ignore[reportArgumentType]
        with pytest.raises(UsageError, match="needs a function"):
            await ctx.step("three", 3)  # pyright: ignore[reportArgumentType]
        return "done"

    assert (await run(program_of(work), "go")).ok


async def test_the_name_of_a_step_is_compared_as_it_is_recorded() -> None:
    """Rule 20: a name with characters that are not recorded is the same name in both lives, and used once."""
    ran: list[str] = []

    async def work(ctx: ProgramContext) -> str:
        await ctx.step("a\x00b", lambda: ran.append("ran"))
        with pytest.raises(UsageError, match="name already"):
            await ctx.step("a\x00b", lambda: None)
        return "done"

    store, agent = MemoryStore(), program_of(work)
    await run(agent, "go", store=store)
    await again(await died(store, a(CallEnded)), agent)
    assert ran == ["ran"]


async def test_a_step_is_flushed_before_it_returns() -> None:
    """Rule 20: the store has a step for good before the program goes on."""
    order: list[str] = []

    class Slow(MemoryStore):
        volatile = False

        async def flush(self, root: str | None = None) -> None:
            await asyncio.sleep(3)
            order.append("flushed")
            await super().flush(root)

    async def work(ctx: ProgramContext) -> str:
        await ctx.step("one", lambda: order.append("ran"))
        order.append("went on")
        return "done"

    await run(program_of(work), "go", store=Slow())
    assert order[:3] == ["ran", "flushed", "went on"]


async def test_a_step_is_a_call_in_events_and_in_the_outcome() -> None:
    """Rule 20: a step has a start and an end in the journal and a row in `outcome.calls`; it is not charged as a call."""

    async def work(ctx: ProgramContext) -> str:
        await ctx.step("count", lambda: 3)
        return f"{ctx.left.calls}"

    played = await play(program_of(work), None, Limits(calls=5))
    assert played.outcome.text == "5"
    assert [(e.kind, e.tool) for e in played.events if e.kind.startswith("call_")] == [  # pyright: ignore[reportAttributeAccessIssue]
        ("call_started", "count"),
        ("call_ended", "count"),
    ]
    assert [(one.name, one.success) for one in played.outcome.calls] == [("count", True)]


async def test_sync_steps_run_in_daemon_threads_and_async_ones_on_the_loop() -> None:
    """Rule 20: a sync step does not block the event loop, and its thread does not keep the process alive."""
    threads: list[threading.Thread] = []

    def sync() -> int:
        threads.append(threading.current_thread())
        return 1

    async def on_loop() -> int:
        threads.append(threading.current_thread())
        return 2

    async def work(ctx: ProgramContext) -> int:
        found: Any = [await ctx.step("sync", sync), await ctx.step("async", on_loop)]
        return sum(found)

    assert (await run(program_of(work), "go")).output == 3
    assert threads[0].daemon
    assert threads[0] is not threading.main_thread()
    assert threads[1] is threading.current_thread()


async def test_a_sync_step_that_cannot_be_stopped_is_named() -> None:
    """Rule 20: a stopped program leaves the thread of a running step behind, and its outcome says so."""
    release = threading.Event()

    async def work(ctx: ProgramContext) -> str:
        await ctx.step("wait", release.wait)
        return "never"

    try:
        async with start(program_of(work), "go") as running:
            await asyncio.sleep(0.1)
            await running.cancel("enough")
            outcome = await running.outcome()
    finally:
        release.set()
    assert outcome.warnings == ("step wait could not be stopped and was left behind; its result is dropped.",)
    assert [(one.name, one.success) for one in outcome.calls] == [("wait", False)]


async def test_a_step_that_outlives_its_program_is_recorded_as_unfinished() -> None:
    """Rule 20: a step in a task that the program left behind has an end in the journal before the program's own."""
    kept: list[asyncio.Task[object]] = []

    async def slow() -> int:
        await asyncio.sleep(10)
        return 1

    async def work(ctx: ProgramContext) -> str:
        kept.append(asyncio.create_task(ctx.step("slow", slow)))
        await asyncio.sleep(1)
        return "left"

    played = await play(program_of(work), None)
    await kept[0]
    assert [event.kind for event in played.events] == [
        "run_started",
        "call_started",
        "call_ended",
        "run_ended",
    ]
    assert played.of(CallEnded)[0].unfinished


async def test_steps_and_children_of_one_program_are_found_together() -> None:
    """Rule 20: a program of steps and children, killed after any event, ends the same and repeats nothing that is recorded."""
    done: list[str] = []

    def note(name: str, value: str) -> str:
        done.append(name)
        return value

    def worker(request: Request) -> Line:
        done.append(request.messages[0].text)
        return say(f"<{request.messages[0].text}>")

    async def work(ctx: ProgramContext) -> str:
        plan = await ctx.step("plan", note, "plan", "part")
        found = await ctx.map(WORKER, [f"{plan} {n}" for n in range(2)])
        both = await ctx.step("join", note, "join", " ".join(one.text for one in found))
        last = await ctx.delegate(WORKER, f"{both}", key="last")
        return last.text

    store, agent = MemoryStore(), program_of(work)
    whole = await run(agent, "go", model=script(worker), store=store)
    history, tasks = await read(store), list(done)
    names = {
        one.run_id: task for one, task in zip(whole.children, (tasks[1], tasks[2], tasks[4]), strict=True)
    }
    for at, last in enumerate(history[:-1], 1):
        dead = await died(store, a(type(last), seq=last.seq))
        done.clear()
        outcome = await again(dead, agent, model=script(worker))
        assert outcome.text == whole.text
        assert [one.run_id for one in outcome.children] == [one.run_id for one in whole.children]
        assert timeless(fold(await read(dead)).outcome()) == timeless(outcome)
        recorded = [e.tool for e in history[:at] if isinstance(e, CallEnded)]
        recorded += [names[e.run] for e in history[:at] if isinstance(e, ReplyReceived)]
        assert sorted([*recorded, *done]) == sorted(tasks), at
