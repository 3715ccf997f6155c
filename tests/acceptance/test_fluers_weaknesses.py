"""What went wrong in seed 2 and cannot happen here: races, leaks, bypasses and losses of the `task` tool."""

from __future__ import annotations

import asyncio

import pytest

from remit import Agent, Limits, Outcome, Status, ToolMessage, UsageError, run, start, tool
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, fail, say, wait, wrapped
from remit.testing.scripted import Answer, Line
from remit.types.event_json import encode
from remit.types.events import DelegationRejected, Event, RunEnded, RunStarted, TurnStarted
from remit.types.outcome import Rejection


def task(agent: str = "child", prompt: str = "look") -> Answer:
    return call("task", agent=agent, prompt=prompt)


def lead(*subagents: Agent) -> Agent:
    return Agent("lead", subagents=subagents or [Agent("child")])


async def told(
    agent: Agent, model: ScriptedModel, limits: Limits | None = None, policy: list[str] | None = None
) -> tuple[Outcome, list[Event]]:
    store = MemoryStore()
    outcome = await run(agent, "go", model=model, limits=limits, store=store, policy=policy)
    return outcome, [event async for event in store.read(outcome.run_id)]


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


def rejections(events: list[Event]) -> list[Rejection]:
    return [e.rejection for e in events if isinstance(e, DelegationRejected)]


def started(events: list[Event]) -> list[str]:
    return [e.agent for e in events if isinstance(e, RunStarted)]


@tool(tier="observe")
async def look() -> str:
    """Looks."""
    return "seen"


@pytest.mark.parametrize("budget", [0, 1, 7, 100])
async def test_w2_01_a_thousand_callers_share_one_budget(budget: int) -> None:
    """W2.1: of 1,000 delegations asked for at once under delegations=N, exactly N start."""
    scripts = {"lead": [calls(*[task()] * 1000), say("done")], "child": [say("found", delay=1)]}
    model = ScriptedModel(scripts)
    outcome, events = await told(lead(), model, Limits(delegations=budget, concurrency=None))
    assert started(events).count("child") == budget
    assert [r.ok for r in results(outcome)].count(True) == budget
    assert [r.kind for r in rejections(events)] == ["budget"] * (1000 - budget)
    assert outcome.ok


@pytest.mark.parametrize("concurrency", [1, 3, None])
async def test_w2_01_callers_in_many_runs_share_one_budget(concurrency: int | None) -> None:
    """W2.1: callers at different depths draw on one counter, which never goes below zero."""
    scripts = {
        "lead": [calls(*[task("mid")] * 10), say("done")],
        "mid": [calls(*[task("leaf")] * 10), say("asked")],
        "leaf": [say("found", delay=1)],
    }
    root = lead(Agent("mid", subagents=[Agent("leaf")]))
    _, events = await told(root, ScriptedModel(scripts), Limits(delegations=37, concurrency=concurrency))
    assert len(started(events)) - 1 == 37
    assert len(rejections(events)) == 10 * started(events).count("mid") + 10 - 37


@pytest.mark.parametrize("budget", [1, 3])
async def test_w2_02_the_rejection_has_the_real_numbers(budget: int) -> None:
    """W2.2: a rejection over budget names the limit that was set, not the remainder."""
    scripts = {"lead": [*[task()] * (budget + 1), say("done")], "child": [say("found")]}
    with ScriptedModel(scripts) as model:
        outcome, events = await told(lead(), model, Limits(delegations=budget))
    assert f"{budget} of {budget}" in results(outcome)[-1].content
    assert [(r.limit, r.used) for r in rejections(events)] == [(budget, budget)]


async def test_w2_03_a_delegation_cancelled_before_its_start_costs_nothing() -> None:
    """W2.3: cancelling a run whose delegation still waits gives its parent the whole rest of the budget."""
    scripts = {
        "lead": [task("mid"), task("leaf"), task("leaf"), say("done")],
        "mid": [calls(task("leaf"), task("leaf"))],
        "leaf": [say("found", delay=60)],
    }
    root = lead(Agent("mid", subagents=[Agent("leaf")]), Agent("leaf"))
    limits = Limits(delegations=3, concurrency=1)
    events: list[Event] = []
    async with start(root, "go", model=ScriptedModel(scripts), limits=limits) as running:
        async for event in running.events():
            events.append(event)
            if event.kind == "child_queued" and event.agent == "mid":
                await running.cancel("enough", run=event.run)
        outcome = await running.outcome()
    assert started(events) == ["lead", "mid", "leaf", "leaf"]
    assert [r.kind for r in rejections(events)] == ["cancelled", "budget"]
    assert [r.ok for r in results(outcome)] == [False, True, False]


async def test_w2_04_one_child_can_be_stopped_without_the_others() -> None:
    """W2.4: cancelling one child stops it alone: its sibling answers and the parent completes."""
    scripts = {
        "lead": [calls(task("slow"), task("quick")), say("done")],
        "slow": [say("never", delay=500)],
        "quick": [say("found", delay=5)],
    }
    async with start(lead(Agent("slow"), Agent("quick")), "go", model=ScriptedModel(scripts)) as running:
        async for event in running.events():
            if isinstance(event, TurnStarted) and event.agent == "slow":
                await running.cancel("not needed", run=event.run)
        outcome = await running.outcome()
    slow, quick = results(outcome)
    assert not slow.ok
    assert "cancelled" in slow.content
    assert "not needed" in slow.content
    assert (quick.ok, quick.content, outcome.text) == (True, "found", "done")
    assert {c.agent: c.status for c in outcome.children} == {
        "slow": Status.CANCELLED,
        "quick": Status.COMPLETED,
    }


@pytest.mark.parametrize(
    ("policy", "own"),
    [(["deny publish"], None), (["deny publish"], ["allow publish"]), ([], ["allow publish"]), ([], None)],
    ids=["denied", "child allows itself", "nobody to ask, child allows itself", "nobody to ask"],
)
async def test_w2_05_a_gate_cannot_be_passed_by_delegating(policy: list[str], own: list[str] | None) -> None:
    """W2.5: a child's calls are under its parent's policy, whatever its own policy is; without an approver they are denied."""
    published: list[str] = []

    @tool
    async def publish() -> str:
        """Changes the world."""
        published.append("yes")
        return "published"

    scripts = {"lead": [task(), say("done")], "child": [call("publish"), say("could not")]}
    with ScriptedModel(scripts) as model:
        root = lead(Agent("child", tools=[publish], policy=own))
        outcome, _ = await told(root, model, policy=policy)
    assert published == []
    assert "Denied" in results(outcome.children[0])[0].content
    assert outcome.children[0].text == "could not"


async def test_w2_06_a_child_is_accounted_for() -> None:
    """W2.6: a child's outcome has its id, depth, turns, usage, time and calls, and its events rebuild the tree."""
    scripts = {
        "lead": [task("mid"), say("done")],
        "mid": [task("leaf"), say("asked")],
        "leaf": [call("look", delay=2), say("found")],
    }
    root = lead(Agent("mid", subagents=[Agent("leaf", tools=[look])]))
    with ScriptedModel(scripts) as model:
        outcome, events = await told(root, model)
    mid = outcome.children[0]
    (leaf,) = mid.children
    assert (leaf.parent_id, mid.parent_id, outcome.parent_id) == (mid.run_id, outcome.run_id, None)
    assert (leaf.depth, leaf.turns, [log.name for log in leaf.calls]) == (2, 2, ["look"])
    assert leaf.duration_s > 0
    assert (leaf.usage.requests, leaf.usage.tokens) == (2, 30)
    assert outcome.total_usage.tokens == sum(o.usage.tokens for o in (outcome, mid, leaf))
    assert {(e.run, e.parent, e.depth, e.path) for e in events} == {
        (outcome.run_id, None, 0, ("lead",)),
        (mid.run_id, outcome.run_id, 1, ("lead", "mid")),
        (leaf.run_id, mid.run_id, 2, ("lead", "mid", "leaf")),
    }
    note = results(outcome)[0].note
    assert mid.run_id in note
    assert f"{mid.total_usage.tokens} tokens" in note


@pytest.mark.parametrize(
    ("script", "status", "kept"),
    [
        (
            [call("look", said="half"), call("look", said="more"), wrapped("in short")],
            "incomplete",
            "in short",
        ),
        ([call("look", said="half"), fail("no key", "auth")], "failed", "half"),
        ([say("cut o", stop="length")], "incomplete", "cut o"),
    ],
    ids=["turns", "error", "cut off"],
)
async def test_w2_07_what_a_child_had_is_not_lost(script: list[Line], status: str, kept: str) -> None:
    """W2.7: a child that runs out of turns or fails is a failed result that still carries its text."""
    child = Agent("child", tools=[look], limits=Limits(turns=2))
    with ScriptedModel({"lead": [task(), say("done")], "child": script}) as model:
        outcome, events = await told(lead(child), model)
    (result,) = results(outcome)
    assert not result.ok
    assert kept in result.content
    assert (outcome.children[0].status, outcome.children[0].partial) == (status, kept)
    ended = [e.outcome for e in events if isinstance(e, RunEnded) and e.agent == "child"]
    assert [o.partial for o in ended] == [kept]


async def test_w2_07_a_childs_conversation_is_in_the_store() -> None:
    """W2.7: the journal has a child's prompt, replies and results, from its start on."""
    scripts = {"lead": [task(prompt="Find it."), say("done")], "child": [call("look"), say("found")]}
    with ScriptedModel(scripts) as model:
        outcome, events = await told(lead(Agent("child", tools=[look])), model)
    child = outcome.children[0].run_id
    kinds = [e.kind for e in events if e.run == child]
    turn = ["turn_started", "reply_received"]
    assert kinds == ["run_started", *turn, "call_started", "call_ended", *turn, "run_ended"]


async def test_w2_08_a_child_has_a_wall_clock_of_its_own() -> None:
    """W2.8: a child that never answers ends at its own `seconds`, and its parent goes on."""
    scripts = {"lead": [task(), say("went on")], "child": [wait(10**6, say("never"))]}
    with ScriptedModel(scripts) as model:
        outcome = await run(lead(Agent("child", limits=Limits(seconds=5))), "go", model=model)
    assert outcome.children[0].status is Status.TIMED_OUT
    assert outcome.text == "went on"


@pytest.mark.parametrize(("concurrency", "peak"), [(None, 5), (2, 2), (1, 1)])
async def test_w2_08_children_of_one_turn_work_at_once_up_to_the_cap(
    concurrency: int | None, peak: int
) -> None:
    """W2.8: children asked for in one turn run side by side, never more of them than `concurrency`."""
    scripts = {"lead": [calls(*[task()] * 5), say("done")], "child": [say("found", delay=10)]}
    with ScriptedModel(scripts) as model:
        outcome = await run(lead(), "go", model=model, limits=Limits(concurrency=concurrency))
    assert model.peak == peak
    assert [r.content for r in results(outcome)] == ["found"] * 5


@pytest.mark.parametrize("prompt", ["", " \n\t"])
async def test_w2_09_an_empty_prompt_starts_nobody(prompt: str) -> None:
    """W2.9: a blank prompt is rejected as invalid input and costs nothing."""
    scripts = {"lead": [task(prompt=prompt), task(), say("done")], "child": [say("found")]}
    with ScriptedModel(scripts) as model:
        outcome, events = await told(lead(), model, Limits(delegations=1))
    assert [r.kind for r in rejections(events)] == ["invalid_input"]
    assert [r.ok for r in results(outcome)] == [False, True]


def test_w2_09_two_agents_of_one_name_are_the_callers_mistake() -> None:
    """W2.9: siblings of one name are refused when the agent is built, with the name."""
    with pytest.raises(UsageError, match="twin"):
        Agent("lead", subagents=[Agent("twin"), Agent("twin")])


async def test_w2_10_each_run_has_a_fresh_budget() -> None:
    """W2.10: one Agent used for many runs has its whole budget in each of them, also at the same time."""
    root = Agent("lead", subagents=[Agent("child")], limits=Limits(delegations=1))
    model = ScriptedModel({"lead": [task(), say("done")], "child": [say("found", delay=5)]})
    outcomes = await asyncio.gather(*(run(root, "go", model=model) for _ in range(3)))
    outcomes.append(await run(root, "go", model=model))
    assert [results(o)[0].content for o in outcomes] == ["found"] * 4


async def test_w2_10_rejections_tell_their_kinds_apart() -> None:
    """W2.10: an unknown agent, a bad input, a spent budget and a reached depth are four kinds."""
    deep = Agent("deep", subagents=[Agent("leaf")])
    scripts = {
        "lead": [calls(task("ghost"), task("deep", " "), task("deep")), task("deep"), say("done")],
        "deep": [task("leaf"), say("alone")],
    }
    with ScriptedModel(scripts) as model:
        _, events = await told(lead(deep), model, Limits(depth=1, delegations=1))
    assert sorted(r.kind for r in rejections(events)) == ["budget", "depth", "invalid_input", "unknown_agent"]


async def test_w2_10_the_model_reads_what_is_left() -> None:
    """W2.10: each result of a delegation says how much depth and how many delegations are left."""
    scripts = {"lead": [task(), task(), task(), say("done")], "child": [say("found")]}
    with ScriptedModel(scripts) as model:
        outcome = await run(lead(), "go", model=model, limits=Limits(depth=2, delegations=2))
    left = [r.note.partition("Left: ")[2] for r in results(outcome)]
    assert [
        words.startswith(f"depth 2, delegations {n}") for words, n in zip(left, (1, 0, 0), strict=True)
    ] == [True] * 3


async def test_w2_10_task_is_not_offered_at_the_depth_limit() -> None:
    """W2.10: a run that may not delegate is not offered the tool, so no turn is wasted on it."""
    scripts = {"lead": [task(), say("done")], "child": [say("found")]}
    with ScriptedModel(scripts) as model:
        await run(lead(Agent("child", subagents=[Agent("leaf")])), "go", model=model, limits=Limits(depth=1))
    offered = {r.agent: [spec.name for spec in r.tools] for r in model.requests}
    assert "task" in offered["lead"]
    assert offered["child"] == []


@pytest.mark.parametrize("letter", ["é", "中", "🙂"])
async def test_w2_11_long_texts_are_cut_between_characters(letter: str) -> None:
    """W2.11: long errors and answers in any script are cut to whole characters and break nothing."""

    @tool(tier="observe")
    async def broken() -> str:
        """Raises."""
        raise ValueError("x" + letter * 5000)

    scripts = {
        "lead": [task("failing"), task("talking"), say("done")],
        "failing": [call("broken"), fail("x" + letter * 5000, "auth")],
        "talking": [say("x" + letter * 500)],
    }
    root = lead(Agent("failing", tools=[broken]), Agent("talking"))
    with ScriptedModel(scripts) as model:
        outcome, events = await told(root, model, Limits(result_chars=100))
    assert all(encode(event).decode() for event in events)
    assert results(outcome)[1].content == "x" + letter * 99
    assert outcome.text == "done"


async def test_w2_11_a_long_error_does_not_flood_the_parent() -> None:
    """W2.11: what a parent reads of a child's error is bounded, as what it reads of an answer is."""
    scripts = {"lead": [task(), say("done")], "child": [fail("x" * 100_000, "auth")]}
    with ScriptedModel(scripts) as model:
        outcome = await run(lead(), "go", model=model, limits=Limits(result_chars=1000))
    assert "failed" in results(outcome)[0].content
    assert len(results(outcome)[0].content) < 5_000
