"""Whole trees as people run them: time, limits, slots, depth, messages from outside, models, artifacts, money."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from remit import (
    Agent,
    Limits,
    Outcome,
    Request,
    Status,
    ToolMessage,
    Usage,
    run,
    start,
    tool,
)
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say, wait, wrapped
from remit.testing.scripted import Line
from remit.types.events import (
    DelegationRejected,
    Event,
    LimitMet,
    ModelCallFailed,
    ReplyReceived,
    TurnStarted,
)


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


def every(outcome: Outcome) -> list[Outcome]:
    return [outcome, *(o for c in outcome.children for o in every(c))]


async def events_of(store: MemoryStore, outcome: Outcome) -> list[Event]:
    return [event async for event in store.read(outcome.run_id)]


def lead_of(*children: Agent, limits: Limits | None = None) -> Agent:
    return Agent("lead", subagents=children, limits=limits)


# --- Time ----------------------------------------------------------------------------------------


async def test_a_child_may_run_longer_than_call_seconds() -> None:
    """`call_seconds` bounds ordinary calls, not delegating ones."""
    scripts = {"lead": [call("task", agent="w", prompt="go"), say("ok")], "w": [say("slow work", delay=100)]}
    with ScriptedModel(scripts) as model:
        outcome = await run(lead_of(Agent("w")), "go", model=model, limits=Limits(call_seconds=5))
    assert results(outcome)[0].content == "slow work"
    assert outcome.ok


async def test_call_seconds_bounds_an_ordinary_call_of_a_child() -> None:
    """A child inherits `call_seconds`; a call that takes longer is a failed result and the child goes on."""

    @tool(tier="observe")
    async def hang() -> str:
        """Never ends."""
        await asyncio.sleep(100_000)
        return "never"

    scripts = {
        "lead": [call("task", agent="w", prompt="go"), say("ok")],
        "w": [call("hang"), say("gave up on it")],
    }
    with ScriptedModel(scripts) as model:
        outcome = await run(
            lead_of(Agent("w", tools=[hang])), "go", model=model, limits=Limits(call_seconds=5)
        )
    inner = results(outcome.children[0])[0]
    assert not inner.ok
    assert inner.content.startswith("Timed out")
    assert results(outcome)[0].content == "gave up on it"


async def test_children_wrap_up_before_their_parent() -> None:
    """A child's deadline is within its parent's soft one at every level, so each wraps up before the one above."""
    tree = Agent("leaf")
    for name in ("low", "mid"):
        tree = Agent(name, subagents=[tree])
    scripts = {
        "lead": [call("task", agent="mid", prompt="go"), say("lead answers in time")],
        "mid": [call("task", agent="low", prompt="go"), say("mid answers in time")],
        "low": [call("task", agent="leaf", prompt="go"), say("low answers in time")],
        "leaf": [call("nothing", said="a start"), wait(100_000), wrapped("leaf has this")],
    }
    store = MemoryStore()
    outcome = await run(
        lead_of(tree), "go", model=ScriptedModel(scripts), limits=Limits(seconds=100), store=store
    )
    assert [o.status for o in every(outcome)] == [*[Status.COMPLETED] * 3, Status.TIMED_OUT]
    assert "leaf has this" in results(outcome.children[0].children[0])[0].content
    met = [e.agent for e in await events_of(store, outcome) if isinstance(e, LimitMet)]
    assert met == ["leaf"]


async def test_a_parent_out_of_time_wraps_up_with_what_its_child_had() -> None:
    """A child that uses its whole time, wrap-up included, leaves its parent the time to answer."""
    scripts = {
        "lead": [call("task", agent="w", prompt="go"), say("lead answers", delay=1)],
        "w": [call("nothing", said="w has this"), wait(100_000, say("never"))],
    }
    outcome = await run(lead_of(Agent("w")), "go", model=ScriptedModel(scripts), limits=Limits(seconds=100))
    assert outcome.text == "lead answers"
    assert outcome.children[0].status is Status.TIMED_OUT
    assert "w has this" in results(outcome)[0].content


# --- Limits and slots ----------------------------------------------------------------------------


@pytest.mark.parametrize("own", [None, Limits(), Limits(turns=5)], ids=["none", "empty", "another field"])
async def test_a_child_limit_left_unset_does_not_narrow(own: Limits | None) -> None:
    """What a child does not write is its parent's, not a default of its own (law 3)."""
    leaf = Agent("leaf")
    mid = Agent("mid", subagents=[leaf], limits=own)
    asked = calls(*(call("task", agent="leaf", prompt=f"part {i}") for i in range(80)))
    scripts = {
        "lead": [call("task", agent="mid", prompt="go"), say("ok")],
        "mid": [asked, say("mid ok")],
        "leaf": [say("done", delay=500)],
    }
    wide = Limits(depth=9, delegations=None, seconds=5000, concurrency=50)
    with ScriptedModel(scripts) as model:
        outcome = await run(lead_of(mid), "go", model=model, limits=wide)
    leaves = outcome.children[0].children
    assert Counter(o.status for o in leaves) == {Status.COMPLETED: 80}
    assert model.peak == 50


async def test_depth_left_unset_reaches_the_roots_depth() -> None:
    """A child that writes limits without `depth` may go as deep as the root allows (law 3)."""
    tree = Agent("a6", limits=Limits(turns=9))
    for i in range(5, -1, -1):
        tree = Agent(f"a{i}", subagents=[tree], limits=Limits(turns=9))
    scripts = {f"a{i}": [call("task", agent=f"a{i + 1}", prompt="go"), say("ok")] for i in range(6)}
    with ScriptedModel({**scripts, "a6": [say("bottom")]}) as model:
        outcome = await run(tree, "go", model=model, limits=Limits(depth=6))
    assert every(outcome)[-1].text == "bottom"


@pytest.mark.parametrize("tool_first", [True, False])
async def test_a_delegation_and_a_slow_tool_at_concurrency_one(tool_first: bool) -> None:
    """With one slot, the child of a mixed turn waits for the parent's own tool, and both end (law 12)."""
    working: list[str] = []

    @tool(tier="observe")
    async def slow() -> str:
        """Takes its time."""
        working.append("tool begins")
        await asyncio.sleep(50)
        working.append("tool ends")
        return "slow done"

    def child(request: Request) -> Line:
        working.append("child")
        return say("child done")

    pair = [call("slow"), call("task", agent="w", prompt="go")]
    asked = calls(*(pair if tool_first else reversed(pair)))
    lead = Agent("lead", subagents=[Agent("w")], tools=[slow])
    model = ScriptedModel({"lead": [asked, say("ok")], "w": child})
    outcome = await run(lead, "go", model=model, limits=Limits(concurrency=1))
    assert outcome.ok
    assert working == ["tool begins", "tool ends", "child"]
    contents = [m.content for m in results(outcome)]
    assert contents == (["slow done", "child done"] if tool_first else ["child done", "slow done"])


async def test_two_hundred_children_at_once() -> None:
    """Two hundred delegations in one reply all run, in order, within the default slots."""
    asked = calls(*(call("task", agent="w", prompt=f"part {i}") for i in range(200)))

    def child(request: Request) -> Line:
        return say(f"did {request.messages[0].text}", delay=1)

    model = ScriptedModel({"lead": [asked, say("ok")], "w": child})
    outcome = await run(lead_of(Agent("w")), "go", model=model, limits=Limits(delegations=200))
    assert outcome.ok
    assert [m.content for m in results(outcome)] == [f"did part {i}" for i in range(200)]
    assert model.peak == 16
    assert model.calls_made == 202


async def test_many_children_with_one_prompt_are_not_a_loop() -> None:
    """Asking several children the same thing in one reply is a vote, not a run that goes in circles."""
    asked = calls(*(call("task", agent="w", prompt="is it safe?") for _ in range(12)))
    with ScriptedModel({"lead": [asked, say("all agree")], "w": [say("yes")]}) as model:
        outcome = await run(lead_of(Agent("w")), "go", model=model)
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "all agree")


async def test_when_full_reject() -> None:
    """With when_full="reject" a child without a slot is rejected as busy, and nothing is spent on it."""
    store = MemoryStore()
    asked = calls(*(call("task", agent="w", prompt=f"part {i}") for i in range(5)))
    scripts = {"lead": [asked, say("ok")], "w": [say("done", delay=1)]}
    with ScriptedModel(scripts) as model:
        outcome = await run(
            lead_of(Agent("w")),
            "go",
            model=model,
            store=store,
            limits=Limits(concurrency=2, when_full="reject"),
        )
    assert [m.ok for m in results(outcome)] == [True, True, False, False, False]
    rejected = [e.rejection for e in await events_of(store, outcome) if isinstance(e, DelegationRejected)]
    assert [(r.kind, r.limit, r.used) for r in rejected] == [("busy", 2, 2)] * 3
    assert outcome.ok
    assert len(outcome.children) == 2


async def test_a_rejected_child_may_be_tried_again() -> None:
    """A busy rejection costs no delegation: the same call works once a slot is free."""
    asked = calls(*(call("task", agent="w", prompt=f"part {i}") for i in range(3)))
    scripts = {
        "lead": [asked, call("task", agent="w", prompt="part 2"), say("ok")],
        "w": [say("done", delay=1)],
    }
    with ScriptedModel(scripts) as model:
        outcome = await run(
            lead_of(Agent("w")),
            "go",
            model=model,
            limits=Limits(concurrency=2, when_full="reject", delegations=3),
        )
    assert [m.ok for m in results(outcome)] == [True, True, False, True]
    assert "2 of 2" in results(outcome)[2].content


# --- Three levels under a cap --------------------------------------------------------------------


def three_levels(delay: float, leaf: Usage | None = None) -> tuple[Agent, ScriptedModel]:
    middle = Agent("middle", subagents=[Agent("leaf")])
    five = [call("task", agent="middle", prompt=f"middle {i}") for i in range(5)]
    leaves = [call("task", agent="leaf", prompt=f"leaf {i}") for i in range(5)]
    scripts = {
        "lead": [calls(*five), say("lead answers")],
        "middle": [calls(*leaves, delay=delay), say("middle answers", delay=delay)],
        "leaf": [say("leaf answers", delay=delay, usage=leaf)],
    }
    return Agent("lead", subagents=[middle], settings={"max_output_tokens": 100}), ScriptedModel(scripts)


@pytest.mark.parametrize("delay", [0.0, 1.0])
@pytest.mark.parametrize("concurrency", [1, 2, 16])
async def test_three_levels_under_a_request_cap(concurrency: int, delay: float) -> None:
    """Leaves that spend everything leave neither the lead nor a middle speechless, and the cap is exact (law 2)."""
    lead, model = three_levels(delay)
    outcome = await run(lead, "go", model=model, limits=Limits(requests=30, concurrency=concurrency))
    assert model.calls_made == outcome.total_usage.requests == 30
    assert outcome.text == "lead answers"
    assert [c.text for c in outcome.children] == ["middle answers"] * 5
    assert sum(o.agent == "leaf" and o.ok for o in every(outcome)) == 18


def most_held(events: list[Event]) -> int:
    """The most tokens that were ever spent and in flight together."""
    spent, flying, most = 0, dict[str, int](), 0
    for event in events:
        if isinstance(event, TurnStarted):
            flying[event.run] = event.reserved
        elif isinstance(event, (ReplyReceived, ModelCallFailed)):
            del flying[event.run]
            spent += event.usage.tokens
        most = max(most, spent + sum(flying.values()))
    return most


@pytest.mark.parametrize("delay", [0.0, 1.0])
@pytest.mark.parametrize("concurrency", [1, 2, 16])
async def test_three_levels_under_a_token_cap(concurrency: int, delay: float) -> None:
    """Nothing is sent unless its worst case fits, and the lead and the middles still answer (law 2)."""
    store = MemoryStore()
    lead, model = three_levels(delay, leaf=Usage(1, 10, 100))
    limits = Limits(tokens=4_000, concurrency=concurrency)
    outcome = await run(lead, "go", model=model, limits=limits, store=store)
    assert most_held(await events_of(store, outcome)) <= 4_000
    assert outcome.text == "lead answers"
    assert [c.text for c in outcome.children] == ["middle answers"] * 5
    leaves = Counter(o.status for o in every(outcome) if o.agent == "leaf")
    assert 0 < leaves[Status.COMPLETED] < 25


# --- Depth ---------------------------------------------------------------------------------------


def chain(bottom: int) -> ScriptedModel:
    def dig(request: Request) -> Line:
        if request.tool_choice == "none":
            return say("summary")
        if len(request.messages) > 1 or request.depth == bottom:
            return say(f"back at {request.depth}")
        return call("subagent", label="deeper", task_prompt="dig")

    return ScriptedModel(dig)


DEEP = Limits(depth=None, delegations=None, seconds=None)


@pytest.mark.parametrize("slow", range(5))
async def test_a_slow_middle_is_not_left_speechless(slow: int) -> None:
    """A run's last word is safe from its first request on, however late its reply and however greedy its cousins."""

    def middle(request: Request) -> Line:
        if any(isinstance(m, ToolMessage) for m in request.messages):
            return say("middle answers")
        leaves = calls(*[call("task", agent="leaf", prompt=f"leaf {n}") for n in range(5)])
        return wait(50, leaves) if request.messages[0].text == f"middle {slow}" else leaves

    delegations = calls(*[call("task", agent="middle", prompt=f"middle {n}") for n in range(5)])
    model = ScriptedModel({"lead": [delegations, say("ok")], "middle": middle, "leaf": [say("leaf")]})
    lead = lead_of(Agent("middle", subagents=[Agent("leaf")]))
    outcome = await run(lead, "go", model=model, limits=Limits(requests=30))
    assert model.calls_made == 30
    assert outcome.ok
    assert [child.text for child in outcome.children] == ["middle answers"] * 5


async def test_a_chain_of_depth_three_hundred() -> None:
    """Depth costs no Python stack: a chain of three hundred runs ends with three hundred outcomes."""
    model = chain(300)
    outcome = await run(Agent("lead", adhoc=True), "dig", model=model, limits=DEEP)
    found, depth = outcome, 0
    while found.children:
        assert found.ok
        found, depth = found.children[0], depth + 1
    assert depth == found.depth == 300
    assert outcome.text == "back at 0"


async def test_cancelling_a_chain_of_depth_three_hundred() -> None:
    """Cancelling the root of a deep chain stops all of it."""

    def dig(request: Request) -> Line:
        if request.depth == 300:
            return wait(10_000, say("never"))
        return call("subagent", label="deeper", task_prompt="dig")

    model = ScriptedModel(dig)
    async with start(Agent("lead", adhoc=True), "dig", model=model, limits=DEEP) as running:
        await asyncio.sleep(1)
        assert model.in_flight == 1
        assert await running.cancel("enough")
        assert model.in_flight == 0
        outcome = await running.outcome()
    found = outcome
    while found.children:
        assert found.status is Status.CANCELLED
        found = found.children[0]
    assert found.depth == 300
