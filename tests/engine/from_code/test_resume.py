"""Resuming trees that delegate from code: tools that observe and change, programs that failed, stopped and died."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from codebench import WORKER, lead_of, program_of, results, script, statuses, tool_of
from stories import a, died, timeless

from remit import (
    Agent,
    Limits,
    Outcome,
    ProgramContext,
    Request,
    ToolContext,
    UsageError,
    allow,
    resume,
    run,
    start,
)
from remit.engine.run.tool_calls import UNKNOWN
from remit.history.fold import fold
from remit.stores.memory import MemoryStore
from remit.testing import call, say
from remit.testing.scripted import Line
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.events import CallEnded, Event, ReplyReceived, RunEnded, RunResumed, TurnStarted


class Counted:
    """Answers with the prompt after a while, and counts."""

    def __init__(self, delay: float = 0.0) -> None:
        self.asked: list[str] = []
        self.delay = delay

    def __call__(self, request: Request) -> Line:
        self.asked.append(request.messages[0].text)
        return say(f"<{request.messages[0].text}>", delay=self.delay)


def talks(request: Request) -> Line:
    """A lead without a memory of its own: one call, then an answer."""
    return say("done") if len(request.messages) > 1 else call("code")


async def again(store: Any, agent: Agent, **options: Any) -> Outcome:
    return await resume(store, "r1", agent=agent, **options)


async def read(store: MemoryStore) -> list[Event]:
    return [event async for event in store.read("r1")]


async def yes(_: ApprovalRequest) -> Decision:
    return allow()


# --- Rule 19 ------------------------------------------------------------------------------------------------


async def test_a_program_that_failed_goes_on_once_its_code_is_mended() -> None:
    """Rule 19: a failed program is run again by `resume`, and pays for none of its recorded children again."""
    broken = [True]

    async def work(ctx: ProgramContext) -> str:
        found = await ctx.map(WORKER, ["a", "b"])
        if broken[0]:
            raise ValueError("a bug")
        return " ".join(one.text for one in found)

    store, agent, model = MemoryStore(), program_of(work), Counted()
    assert (await run(agent, "go", model=script(model), store=store)).status == "failed"
    broken[0] = False
    outcome = await again(store, agent, model=script(model))
    assert (outcome.text, model.asked) == ("<a> <b>", ["a", "b"])


async def test_a_failed_program_below_another_goes_on_too() -> None:
    """Rule 19: a program that failed below a program is run again with it, with its own recorded children."""
    broken = [True]

    async def below(ctx: ProgramContext) -> str:
        found = await ctx.delegate(WORKER, ctx.task)
        if broken[0]:
            raise ValueError("a bug")
        return found.text

    async def work(ctx: ProgramContext) -> str:
        found = await ctx.map(program_of(below, name="below"), ["a", "b"])
        for one in found:
            one.raise_for_status()
        return " ".join(one.text for one in found)

    store, agent, model = MemoryStore(), program_of(work), Counted()
    outcome = await run(agent, "go", model=script(model), store=store)
    assert [one.status for one in outcome.children] == ["failed", "failed"]
    broken[0] = False
    outcome = await again(store, agent, model=script(model))
    assert (outcome.text, sorted(model.asked)) == ("<a> <b>", ["a", "b"])
    assert timeless(fold(await read(store)).outcome()) == timeless(outcome)


async def test_a_program_that_became_a_model_is_not_resumed() -> None:
    """Rule 19: the recorded root says what it was: a program is not resumed as a model's agent, nor the other way round."""

    async def work(ctx: ProgramContext) -> str:
        raise ValueError("a bug")

    store = MemoryStore()
    await run(program_of(work), "go", store=store)
    with pytest.raises(UsageError, match="was a program"):
        await again(store, Agent("program"), model=script())
    store = MemoryStore()
    ended = await run(Agent("program"), "go", model=script(program=[say("", stop="length")]), store=store)
    assert ended.status == "incomplete"
    with pytest.raises(UsageError, match="agent with a model"):
        await resume(store, ended.run_id, agent=program_of(work))


async def test_a_child_of_code_that_became_a_model_keeps_its_record() -> None:
    """Rule 19: a recorded program that code now gives to a model's agent is not continued by the model."""

    async def old(ctx: ProgramContext) -> str:
        raise ValueError("a bug")

    chosen: list[Agent] = [program_of(old, name="below")]

    async def work(ctx: ProgramContext) -> str:
        found = await ctx.delegate(chosen[0], "go", key="k")
        if chosen[0].program is not None:
            found.raise_for_status()
        return statuses([found])[0]

    store, agent = MemoryStore(), program_of(work)
    assert not (await run(agent, "go", store=store)).ok
    chosen[0] = Agent("below")
    outcome = await again(store, agent, model=script(below=[say("new")]))
    assert outcome.text == "failed"
    assert [one.agent for one in outcome.children] == ["below"]


# --- Rule 24 ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("saves", [True, False], ids=["that saves what it has", "that is cancelled"])
async def test_an_observing_call_that_delegated_is_unfinished_if_its_run_was_stopped(saves: bool) -> None:
    """Rule 24: stopped with its run, an observing tool runs again on resume, whatever it returned, and finds its children."""

    async def work(ctx: ToolContext) -> str:
        done: list[str] = []
        try:
            for name in "abcd":
                found = await ctx.delegate(WORKER, name)
                done.append(found.text)
        except asyncio.CancelledError:
            if not saves:
                raise
        return " ".join(done)

    store, agent, model = MemoryStore(), lead_of(tool_of(work)), Counted(10)
    async with start(agent, "go", model=script(model, talks), store=store) as running:
        await asyncio.sleep(25)
        await running.cancel("enough")
        outcome = await running.outcome()
    assert results(outcome)[0].startswith("<a> <b>" if saves else "Not finished")
    outcome = await again(store, agent, model=script(model, talks))
    assert results(outcome) == ["<a> <b> <c> <d>"]
    # The third had been asked for when the stop came.
    assert model.asked == ["a", "b", "c", "c", "d"]
    assert len(outcome.children) == 4


async def test_an_observing_call_that_did_not_delegate_keeps_its_result() -> None:
    """Rule 24: only calls that delegated are open again: another one that returned something keeps it."""
    runs = 0

    async def work(ctx: ToolContext) -> str:
        nonlocal runs
        runs += 1
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return "kept"
        return "never"

    store, agent = MemoryStore(), lead_of(tool_of(work))
    async with start(agent, "go", model=script(lead=talks), store=store) as running:
        await asyncio.sleep(5)
        await running.cancel("enough")
    outcome = await again(store, agent, model=script(lead=talks))
    assert (results(outcome), runs) == (["kept"], 1)


async def test_an_observing_tool_that_died_finds_its_children() -> None:
    """Rule 24: killed after any event, a tree whose tool delegates ends the same, and no recorded reply is asked for again."""

    async def work(ctx: ToolContext) -> str:
        first = await ctx.map(WORKER, ["a", "b"])
        second = await ctx.delegate(WORKER, " ".join(one.text for one in first))
        return second.text

    store, agent, model = MemoryStore(), lead_of(tool_of(work)), Counted()
    whole = await run(agent, "go", model=script(model, talks), store=store)
    history = await read(store)
    for at in range(1, len(history)):
        dead, model = await died(store, a(Event), times=at), Counted()
        outcome = await again(dead, agent, model=script(model, talks))
        assert outcome.text == whole.text
        assert results(outcome) == results(whole)
        assert timeless(fold(await read(dead)).outcome()) == timeless(outcome)
        recorded = sum(isinstance(e, ReplyReceived) and e.agent == "worker" for e in history[:at])
        assert len(model.asked) == 3 - recorded, at


# --- Rule 25 ------------------------------------------------------------------------------------------------


async def test_a_changing_tool_stays_unknown_and_lists_its_children() -> None:
    """Rule 25: a changing tool that died is not run again; its result says *unknown* and has its children's answers."""
    runs = 0

    async def work(ctx: ToolContext) -> str:
        nonlocal runs
        runs += 1
        found = await ctx.map(WORKER, ["a", "b"])
        return " ".join(one.text for one in found)

    store, model = MemoryStore(), Counted()
    agent = lead_of(tool_of(work, tier="confirm"))
    await run(
        agent, "go", model=script(model, talks), store=store, approver=yes, limits=Limits(concurrency=1)
    )
    dead = await died(store, a(TurnStarted, agent="worker"), times=2)
    outcome = await again(dead, agent, model=script(model, talks), approver=yes)
    (said,) = results(outcome)
    assert said.startswith(UNKNOWN)
    assert "r1.1 worker: completed. <a>" in said
    assert "r1.2 worker: interrupted." in said
    assert (runs, model.asked) == (1, ["a", "b"])
    assert [one.status for one in outcome.children] == ["completed", "interrupted"]
    assert timeless(fold(await read(dead)).outcome()) == timeless(outcome)


async def test_a_changing_tool_that_was_stopped_stays_unknown_too() -> None:
    """Rule 25: a changing tool stopped with its run has the result that it had; nothing of it runs again."""
    runs = 0

    async def work(ctx: ToolContext) -> str:
        nonlocal runs
        runs += 1
        return (await ctx.delegate(WORKER, "a")).text

    store, model = MemoryStore(), Counted(100)
    agent = lead_of(tool_of(work, tier="confirm"))
    async with start(agent, "go", model=script(model, talks), store=store, approver=yes) as running:
        await asyncio.sleep(5)
        await running.cancel("enough")
    outcome = await again(store, agent, model=script(model, talks), approver=yes)
    assert outcome.ok
    assert (runs, len(model.asked)) == (1, 1)
    assert results(outcome)[0].startswith("Unknown")


# --- Stopped and resumed again and again -----------------------------------------------------------------------


async def test_a_program_stopped_again_and_again_goes_on_each_time() -> None:
    """Rule 24: a program whose time runs out in every life does some more in each, and pays for nothing twice."""

    async def work(ctx: ProgramContext) -> str:
        found = [await ctx.delegate(WORKER, name) for name in "abcdef"]
        for one in found:
            one.raise_for_status()
        return " ".join(one.text for one in found)

    store, agent, model = MemoryStore(), program_of(work), Counted(10)
    outcome = await run(agent, "go", model=script(model), store=store, limits=Limits(seconds=30))
    lives = 1
    while not outcome.ok and lives < 10:
        lives += 1
        outcome = await again(store, agent, model=script(model), limits=Limits(seconds=30.0 * lives))
    assert outcome.text == "<a> <b> <c> <d> <e> <f>"
    assert len(outcome.children) == 6
    # A child that was cut short is asked again; one that has answered is not.
    assert [model.asked.count(name) for name in "ab"] == [1, 1]
    assert timeless(fold(await read(store)).outcome()) == timeless(outcome)


async def test_what_was_to_go_on_goes_on_after_another_death() -> None:
    """Rule 24: a child that ran out of time, and was to go on in a life that died before it was asked for, goes on in the next."""

    async def work(ctx: ProgramContext) -> str:
        await asyncio.sleep(5)
        found = await ctx.delegate(WORKER, "a")
        found.raise_for_status()
        return found.text

    store, agent, model = MemoryStore(), program_of(work), Counted(100)
    outcome = await run(agent, "go", model=script(model), store=store, limits=Limits(seconds=50))
    assert [one.status for one in outcome.children] == ["timed_out"]
    assert outcome.status == "failed"
    more = Limits(seconds=1_000)
    await again(store, agent, model=script(model), limits=more)
    # It dies as soon as it was resumed.
    dead = await died(store, a(RunResumed, run="r1"))
    outcome = await again(dead, agent, model=script(model), limits=more)
    assert outcome.text == "<a>"
    assert len(outcome.children) == 1


async def test_a_program_below_a_model_goes_on() -> None:
    """Rule 19: a program that a model delegated to and that died goes on with its recorded children."""

    async def work(ctx: ProgramContext) -> str:
        return " ".join(one.text for one in await ctx.map(WORKER, ["a", "b"]))

    def lead(request: Request) -> Line:
        return say("done") if len(request.messages) > 1 else call("task", agent="program", prompt="go")

    store, model = MemoryStore(), Counted()
    agent = Agent("lead", subagents=[program_of(work)])
    await run(agent, "go", model=script(model, lead), store=store, limits=Limits(concurrency=1))
    dead = await died(store, a(RunEnded, agent="worker"))
    outcome = await again(dead, agent, model=script(model, lead))
    assert results(outcome) == ["<a> <b>"]
    assert model.asked == ["a", "b", "b"]


async def test_a_recorded_outcome_needs_no_budget_and_no_model() -> None:
    """Rule 24: recorded children are read although the budget is spent and their model is gone."""

    async def work(ctx: ProgramContext) -> str:
        found = await ctx.map(WORKER, ["a", "b", "c"], model="mine")
        if len(found) == 3 and not broken[0]:
            return " ".join(statuses(found))
        raise ValueError("a bug")

    broken = [True]
    store, agent, model = MemoryStore(), program_of(work), Counted()
    await run(agent, "go", models={"mine": script(model)}, store=store, limits=Limits(requests=2))
    broken[0] = False
    outcome = await again(store, agent, models={"other": script(model)}, limits=Limits(requests=2))
    assert outcome.text == "completed completed budget"
    assert model.asked == ["a", "b"]


async def test_an_approval_below_a_tool_is_asked_for_once() -> None:
    """Rule 24: what a person allowed below a tool is not asked for again when the tree is resumed."""
    from remit import tool

    asked: list[str] = []

    @tool
    async def publish() -> str:
        """Change something."""
        return "published"

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request.tool)
        return allow()

    async def work(ctx: ToolContext) -> str:
        return (await ctx.delegate(Agent("worker", tools=[publish]), "go")).text

    def worker(request: Request) -> Line:
        return call("publish") if len(request.messages) == 1 else say("ok")

    store, agent = MemoryStore(), lead_of(tool_of(work))
    await run(agent, "go", model=script(worker, talks), store=store, approver=approver)
    dead = await died(store, a(CallEnded, tool="publish"))
    outcome = await again(dead, agent, model=script(worker, talks), approver=approver)
    assert results(outcome) == ["ok"]
    assert asked == ["publish"]
