"""What delegating from code costs and gives: the last word, charges, the whole answer, limits and models of one child."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from codebench import WORKER, lead_of, play, program_of, results, script, statuses, tool_of

from remit import (
    Agent,
    Limits,
    ProgramContext,
    Request,
    TextPart,
    ToolContext,
    tool,
)
from remit.history.fold import fold
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.testing.scripted import Line
from remit.types.ports import Price


def after(seconds: float) -> Callable[[Request], Line]:
    return lambda _: say("ok", delay=seconds)


# --- Rule 2: the last word ------------------------------------------------------------------------------


async def test_a_tools_children_leave_their_run_its_last_word() -> None:
    """Rule 2: under `requests=10` a tool's children get 8: one is the run's first turn, one is its last word."""

    async def work(ctx: ToolContext) -> str:
        found = await ctx.map(WORKER, [f"{n}" for n in range(20)])
        return f"{statuses(found).count('completed')}"

    played = await play(lead_of(tool_of(work)), script(), Limits(requests=10))
    assert results(played.outcome) == ["8"]
    assert (played.outcome.text, played.requests) == ("done", 10)


async def test_a_program_has_no_last_word() -> None:
    """Rule 2: under `requests=10` a program's children get all 10."""

    async def work(ctx: ProgramContext) -> str:
        assert ctx.left.requests == 10
        found = await ctx.map(WORKER, [f"{n}" for n in range(20)])
        assert ctx.left.requests == 0
        return f"{statuses(found).count('completed')}"

    played = await play(program_of(work), script(), Limits(requests=10))
    assert (played.outcome.text, played.requests) == ("10", 10)


async def test_a_delegation_whose_last_word_does_not_fit_is_rejected() -> None:
    """Rule 2: if the run's last word does not fit, its first delegation is rejected, and the run says so itself."""

    async def work(ctx: ToolContext) -> str:
        found = await ctx.delegate(WORKER, "go")
        return statuses([found])[0]

    played = await play(lead_of(tool_of(work)), script(), Limits(requests=1))
    assert results(played.outcome) == ["budget"]
    assert not played.started


async def test_a_call_that_starts_no_child_withholds_nothing() -> None:
    """Rule 2: delegations that are rejected, whatever the reason, take nothing from the other runs of the tree."""

    async def work(ctx: ToolContext) -> str:
        found = [
            await ctx.delegate("nobody", "go"),
            await ctx.delegate(WORKER, " "),
            await ctx.delegate(WORKER, "go"),
        ]
        return " ".join(statuses(found))

    @tool(tier="observe")
    async def nap() -> str:
        """Wait until the other run was rejected."""
        await asyncio.sleep(5)
        return ""

    other, worker = Agent("other", tools=[tool_of(work)]), Agent("worker", tools=[nap])
    both = calls(call("task", agent="other", prompt="go"), call("task", agent="worker", prompt="go"))
    scripts = {
        "lead": [both, say("done")],
        "other": [call("code"), say("other", delay=10)],
        "worker": [call("nap"), say("ok")],
    }
    # Six in all, two of each run: with a word withheld for nothing, the worker's second would not fit.
    limits = Limits(requests=6, delegations=2)
    played = await play(Agent("lead", subagents=[other, worker]), ScriptedModel(scripts), limits)
    assert played.outcome.ok
    assert all(child.ok for child in played.outcome.children)
    assert results(played.outcome.children[0]) == ["unknown_agent invalid_input budget"]


async def test_left_has_the_runs_last_word_taken_off() -> None:
    """Rule 2: `ctx.left` is what children can spend: the same before the first child as after it, less what it spent."""
    left: list[int | None] = []

    async def work(ctx: ToolContext) -> str:
        left.append(ctx.left.requests)
        await ctx.delegate(WORKER, "one")
        left.append(ctx.left.requests)
        return ""

    await play(lead_of(tool_of(work)), script(), Limits(requests=10))
    assert left == [8, 7]


async def test_left_tells_everything_that_is_left() -> None:
    """Rule 2: `ctx.left` has depth, delegations, requests, tokens, money, calls and seconds; None where nothing limits."""
    seen: list[Any] = []

    async def work(ctx: ToolContext) -> str:
        await asyncio.sleep(10)
        seen.append(ctx.left)
        return ""

    model = script()
    model.price = Price(input=1.0, output=1.0)
    limits = Limits(depth=2, delegations=7, requests=10, tokens=50_000, usd=1.0, calls=5, seconds=100)
    await play(lead_of(tool_of(work)), model, limits)
    (left,) = seen
    assert (left.depth, left.delegations, left.requests, left.calls) == (2, 7, 8, 4)
    assert 40_000 < left.tokens < 50_000
    assert 0.9 < left.usd < 1.0
    assert left.seconds == pytest.approx(80)
    await play(lead_of(tool_of(work)), script(), Limits(depth=None, delegations=None, seconds=None))
    assert seen[1] == type(left)()


# --- Rule 11: charges ------------------------------------------------------------------------------------


async def test_a_child_of_code_is_charged_as_a_delegation_not_as_a_call() -> None:
    """Rule 11: under `calls=1` the one call starts three children; `delegations` counts them."""

    async def work(ctx: ToolContext) -> str:
        found = await ctx.map(WORKER, ["a", "b", "c", "d"])
        return f"{statuses(found)} {ctx.left.calls} {ctx.left.delegations}"

    limits = Limits(calls=1, delegations=3, concurrency=1)
    played = await play(lead_of(tool_of(work)), script(), limits)
    assert results(played.outcome) == ["['completed', 'completed', 'completed', 'budget'] 0 0"]


async def test_the_journal_charges_the_same_as_the_ledger() -> None:
    """Rule 11: what a resumed tree has left is what the live tree had left: calls, delegations, requests and tokens."""
    store = MemoryStore()

    async def below(ctx: ToolContext) -> str:
        await ctx.map(WORKER, ["a", "b"])
        return ""

    async def work(ctx: ProgramContext) -> str:
        await ctx.step("step", lambda: 1)
        await ctx.delegate(lead_of(tool_of(below)), "go")
        return f"{ctx.left.calls} {ctx.left.delegations} {ctx.left.requests}"

    limits = Limits(calls=10, delegations=10, requests=10)
    played = await play(program_of(work), script(), limits, store=store)
    spent = fold([event async for event in store.read("r1")]).spending()["r1"]
    assert played.outcome.text == f"{10 - spent.calls} {10 - spent.delegations} {10 - spent.requests}"
    assert (spent.calls, spent.delegations, spent.requests) == (1, 3, 4)


# --- Rule 15: the whole answer ------------------------------------------------------------------------------------


async def test_code_reads_the_whole_answer() -> None:
    """Rule 15: an answer that is far longer than `result_chars` reaches code whole, and no artifact is kept of it."""
    long = "0123456789" * 10_000

    async def work(ctx: ToolContext) -> str:
        found = await ctx.delegate(WORKER, "go")
        return f"{found.text == long}"

    played = await play(lead_of(tool_of(work)), script([say(long)]), Limits(result_chars=100))
    assert results(played.outcome) == ["True"]
    assert not played.outcome.children[0].artifacts


# --- The rest of the interface -------------------------------------------------------------------------------------


async def test_the_tighter_of_both_limits_applies_and_siblings_share_it() -> None:
    """With `limits=` the smaller numbers hold, and children with the same limits share what is computed for them."""
    agent = Agent("worker", limits=Limits(turns=2, requests=5))

    async def work(ctx: ToolContext) -> str:
        await ctx.map(agent, ["a", "b"], limits=Limits(turns=9, requests=3))
        return ""

    played = await play(lead_of(tool_of(work)), script())
    limits = [event.limits for event in played.started]
    assert [(one.turns, one.requests) for one in limits] == [(2, 3)] * 2
    assert limits[0] is limits[1]


async def test_many_different_limits_keep_no_memory() -> None:
    """Limits that differ for each child do not pile up with the agent."""
    agent = Agent("worker")
    for number in range(1, 5_000):
        agent.narrowed(Limits(requests=number), None)
    assert agent.narrowed(Limits(turns=3), None) is agent.narrowed(Limits(turns=3), None)
    import remit.agent as module

    assert len(module._twins[agent]) <= 100


async def test_model_and_label_of_one_child() -> None:
    """`model=` and `label=` are those of the child alone; parts are taken as `run()` takes them."""
    other = ScriptedModel({"worker": [say("other")]}, name="other")

    async def work(ctx: ToolContext) -> str:
        one = await ctx.delegate(WORKER, [TextPart("go"), TextPart("on")], model=other, label="first")
        two = await ctx.delegate("worker", "go")
        return f"{one.text} {two.text}"

    played = await play(lead_of(tool_of(work), subagents=[WORKER]), script())
    assert results(played.outcome) == ["other ok"]
    assert [(one.label, one.model) for one in played.outcome.children] == [
        ("first", "other"),
        ("", "scripted"),
    ]


async def test_a_full_pool_rejects_if_it_is_to() -> None:
    """`when_full="reject"` gives code Rejection(busy), and the same key may be used again."""

    async def work(ctx: ToolContext) -> str:
        first = asyncio.create_task(ctx.delegate(WORKER, "go", key="first"))
        await asyncio.sleep(1)
        busy = await ctx.delegate(WORKER, "go", key="second")
        await first
        again = await ctx.delegate(WORKER, "go", key="second")
        twice = await ctx.delegate(WORKER, "go", key="second")
        return " ".join(statuses([busy, again, twice]))

    played = await play(lead_of(tool_of(work)), script(after(5)), Limits(concurrency=1, when_full="reject"))
    assert results(played.outcome) == ["busy completed invalid_input"]
