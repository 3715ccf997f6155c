"""Law 13 over random trees: wherever a tree is cut off, and however often, it resumes to the same end."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remit import Agent, Call, Limits, ModelError, Outcome, Reply, Request, Usage, allow, reopen, start, tool
from remit.engine.handle import Running
from remit.history.fold import fold
from remit.history.records import Intent, Tree
from remit.stores.memory import MemoryStore
from remit.testing import run_virtual
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.events import (
    ApprovalAnswered,
    ApprovalRequested,
    ArtifactSaved,
    CallStarted,
    CancelRequested,
    Event,
    ReplyReceived,
    RunStarted,
    TurnStarted,
)
from remit.types.limits import total
from remit.types.messages import AssistantMessage, ToolMessage
from remit.types.ports import Emit

DEAD_S = 10_000.0
"""How long nobody runs a tree before it is resumed: longer than any limit here."""

LONG = "a long answer " * 40


@dataclass
class Node:
    """What one run of the random tree does: rounds of children and tools, then an end."""

    rounds: list[list[Node | str]]
    end: str
    delay: float
    how: str


@dataclass
class World:
    """The random tree as a model without a memory: what it says follows from the prompt and the turn alone."""

    nodes: dict[str, Node] = field(default_factory=dict)
    asked: list[tuple[str, int, bool]] = field(default_factory=list)
    """Run, turn, and whether it was an ordinary one."""
    ran: list[str] = field(default_factory=list)
    """Every tool that ran, by the place of its call."""
    questions: list[str] = field(default_factory=list)
    """Every approval that a person was asked for."""
    asks: bool = False
    """Whether a person is asked about what changes things; otherwise it is allowed by a rule."""
    name: str = "world"

    def register(self, node: Node, key: str) -> None:
        self.nodes[key] = node
        for r, items in enumerate(node.rounds):
            for c, item in enumerate(items):
                if isinstance(item, Node):
                    self.register(item, f"{key}.{r}.{c}")

    def again(self) -> World:
        """The same world in the next process."""
        return World(self.nodes, asks=self.asks)

    async def approve(self, request: ApprovalRequest) -> Decision:
        """Always yes, for the call, the run or the tree."""
        self.questions.append(request.id)
        await asyncio.sleep(2)
        return (allow(), allow(), allow(scope="run"), allow(scope="tree"))[len(str(request.args)) % 4]

    @property
    def policy(self) -> list[str] | None:
        return None if self.asks else ["allow *"]

    async def reply(self, request: Request, emit: Emit) -> Reply:
        key = request.messages[0].text
        node = self.nodes[key]
        turn = sum(isinstance(m, AssistantMessage) for m in request.messages)
        ordinary = request.tool_choice == "auto"
        self.asked.append((request.run_id, turn + 1, ordinary))
        await asyncio.sleep(node.delay)
        usage = Usage(1, len(request.messages) * 10, 20)
        if not ordinary:
            return Reply(f"in short {key}", usage=usage)
        if turn < len(node.rounds):
            calls = [self._call(key, turn, c, item) for c, item in enumerate(node.rounds[turn])]
            return Reply(f"thinking {turn}", tuple(calls), stop="calls", usage=usage)
        return self._end(node, key, usage)

    def _call(self, key: str, turn: int, place: int, item: Node | str) -> Call:
        call, below = f"{turn}.{place}", f"{key}.{turn}.{place}"
        if isinstance(item, str):
            return Call(call, item, {"key": f"{below} {item}"})
        if item.how == "adhoc":
            return Call(call, "subagent", {"label": below, "task_prompt": below})
        return Call(call, "task", {"agent": item.how, "prompt": below})

    def _end(self, node: Node, key: str, usage: Usage) -> Reply:
        if node.end in ("fail", "flaky"):
            raise ModelError("no", kind="auth" if node.end == "fail" else "overloaded")
        if node.end == "refuse":
            return Reply("won't", stop="refusal", usage=usage)
        if node.end == "empty":
            return Reply("", usage=usage)
        if node.end == "cut":
            return Reply(f"half of {key}", stop="length", usage=usage)
        return Reply(f"{LONG if node.end == 'long' else ''}answer {key}", usage=usage)


now: list[World] = []
"""The world whose tools run."""


@tool(tier="observe")
async def look(key: str) -> str:
    """Reads at once."""
    now[-1].ran.append(key)
    return f"saw {key}"


@tool(tier="observe")
async def stare(key: str) -> str:
    """Reads for a while."""
    now[-1].ran.append(key)
    await asyncio.sleep(5)
    return f"saw {key}"


@tool
async def change(key: str) -> str:
    """Changes something at once."""
    now[-1].ran.append(key)
    return f"changed {key}"


@tool
async def build(key: str) -> str:
    """Changes something for a while."""
    now[-1].ran.append(key)
    await asyncio.sleep(3)
    return f"built {key}"


TOOLS = [look, stare, change, build]
NARROW = Limits(requests=3, turns=2, calls=4)
ENDS = ("answer", "answer", "answer", "long", "fail", "flaky", "refuse", "empty", "cut")


def agents(depth: int = 4) -> list[Agent]:
    below: list[Agent] = []
    for _ in range(depth):
        below = [
            Agent("worker", tools=TOOLS, subagents=below, adhoc=True),
            Agent("narrow", tools=TOOLS, subagents=below, limits=NARROW),
            Agent("brief", tools=TOOLS, subagents=below, summary="always"),
        ]
    return below


LEAD = Agent("lead", tools=TOOLS, subagents=agents(), adhoc=True)


def nodes(depth: int, hows: Sequence[str]) -> st.SearchStrategy[Node]:
    item: st.SearchStrategy[Node | str] = st.sampled_from(
        ["look", "stare", "change", "build", "look", "missing"]
    )
    if depth:
        item = st.one_of(item, nodes(depth - 1, hows), nodes(depth - 1, hows))
    rounds = st.lists(st.lists(item, min_size=1, max_size=3), max_size=2 if depth else 1)
    return st.builds(
        Node,
        rounds=rounds,
        end=st.sampled_from(ENDS),
        delay=st.sampled_from([0.0, 0.1, 1.0, 4.0]),
        how=st.sampled_from(hows),
    )


@dataclass
class Life:
    """One process's part in a tree: what it ended with and what it did."""

    outcome: Outcome
    events: list[Event]
    """The whole journal after it, from the first event of the first life."""
    store: MemoryStore
    world: World
    before: int = 0
    """How many events it found."""


async def live(world: World, limits: Limits, cancel: tuple[float, int] | None = None) -> Life:
    """Run the tree; `cancel` is when to cancel one of its runs, and which."""
    now.append(world)
    store = MemoryStore()
    running = start(
        LEAD, "root", model=world, limits=limits, store=store, policy=world.policy, approver=world.approve
    )
    outcome = await follow(running, store, cancel)
    return Life(outcome, [e async for e in store.read("r1")], store, world)


async def follow(running: Running, store: MemoryStore, cancel: tuple[float, int] | None) -> Outcome:
    async with running:
        if cancel is not None:
            await asyncio.sleep(cancel[0])
            started = [e.run async for e in store.read("r1") if isinstance(e, RunStarted)]
            if started:
                await running.cancel("enough", run=started[cancel[1] % len(started)])
        return await running.outcome()


async def die(life: Life, cut: int) -> MemoryStore:
    """What a store has of a tree whose process died after so many events."""
    store = MemoryStore()
    await store.claim("r1", new=True)
    for event in life.events[:cut]:
        store.append(event)
        if isinstance(event, ArtifactSaved):
            text = await life.store.load_artifact("r1", event.artifact.id, 0, 1_000_000)
            assert text is not None
            await store.save_artifact("r1", event.artifact.id, text)
    await store.release("r1")
    return store


async def live_again(
    life: Life, cut: int, limits: Limits | None = None, cancel: tuple[float, int] | None = None
) -> Life:
    world = life.world.again()
    now.append(world)
    store = await die(life, cut)
    await asyncio.sleep(DEAD_S)
    running = reopen(
        store, "r1", agent=LEAD, model=world, policy=world.policy, approver=world.approve, limits=limits
    )
    outcome = await follow(running, store, cancel)
    return Life(outcome, [e async for e in store.read("r1")], store, world, cut)


def every(outcome: Outcome) -> list[Outcome]:
    return [outcome, *(o for c in outcome.children for o in every(c))]


def timeless(outcome: Outcome) -> Outcome:
    return msgspec.structs.replace(
        outcome, duration_s=0.0, output=None, children=tuple(map(timeless, outcome.children))
    )


def shape(outcome: Outcome) -> object:
    """What must be the same with and without a crash."""
    return (
        outcome.run_id,
        outcome.agent,
        outcome.status,
        outcome.text,
        outcome.partial,
        outcome.reason,
        outcome.turns,
        [(c.name, c.success) for c in outcome.calls if c.name not in ("change", "build")],
        [a.id for a in outcome.artifacts],
        [shape(c) for c in outcome.children],
    )


def results(outcome: Outcome) -> dict[tuple[str, str], ToolMessage]:
    """The last result of each call, by its run and its id."""
    said = [(run.run_id, m) for run in every(outcome) for m in run.messages]
    return {(run, m.call_id): m for run, m in said if isinstance(m, ToolMessage)}


def check_journal(life: Life) -> None:
    """It folds to the outcome, its numbers rise, nothing in it is left open, and every total is a sum."""
    folded = fold(life.events)
    assert timeless(folded.outcome()) == timeless(life.outcome)
    seqs = [e.seq for e in life.events]
    assert all(a < b for a, b in itertools.pairwise(seqs))
    assert not list(folded.intents())
    asked = sum(isinstance(e, TurnStarted) for e in life.events)
    assert life.outcome.total_usage.requests == asked == folded.spending()["r1"].requests
    for run in every(life.outcome):
        assert run.total_usage == total([o.usage for o in every(run)])
        given = sum(isinstance(m, ToolMessage) for m in run.messages)
        assert given == len(run.calls)
        for i, message in enumerate(run.messages):
            if isinstance(message, AssistantMessage) and message.calls:
                answers = run.messages[i + 1 : i + 1 + len(message.calls)]
                assert [a.call_id for a in answers if isinstance(a, ToolMessage)] == [
                    c.id for c in message.calls
                ]


def check_not_twice(life: Life) -> None:
    """Nothing that is recorded is asked for or done again; what changes things is never begun twice."""
    before, after = life.events[: life.before], life.events[life.before :]
    recorded = {(e.run, e.turn, e.purpose == "turn") for e in before if isinstance(e, ReplyReceived)}
    assert not recorded & set(life.world.asked)
    sent = sum(isinstance(e, TurnStarted) for e in after)
    assert sent == len(life.world.asked)
    begun = {(e.run, e.call, e.turn) for e in before if isinstance(e, CallStarted) and e.tier == "confirm"}
    again = {(e.run, e.call, e.turn) for e in after if isinstance(e, CallStarted) and e.tier == "confirm"}
    assert not begun & again
    assert max(Counter(life.world.ran).values(), default=0) <= 1
    answered = {e.request for e in before if isinstance(e, ApprovalAnswered) and not e.stopped}
    assert not answered & set(life.world.questions)
    assert fold(life.events).asked == len(
        {e.request for e in life.events if isinstance(e, ApprovalRequested)}
    )


def open_calls(past: Tree) -> list[Intent]:
    return [i for i in past.intents() if i.kind == "call" and i.what in ("look", "stare", "change", "build")]


def check_open(life: Life) -> None:
    """Of the calls that were open, those that observe ran again; those that change things are unknown."""
    past, answers = fold(life.events[: life.before]), results(life.outcome)
    for intent in open_calls(past):
        call = past.runs[intent.run].find(intent.call)
        assert call is not None
        assert isinstance(call.call.args, dict)
        answer = answers[intent.run, intent.call]
        changes = intent.what in ("change", "build")
        assert answer.content.startswith("Unknown: ") == changes
        assert (call.call.args["key"] in life.world.ran) != changes


CALM = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)
FREE = Limits(depth=6, delegations=None, seconds=None, turns=10, result_chars=200)
RAISED = msgspec.structs.replace(
    FREE, requests=None, tokens=None, calls=None, concurrency=None, when_full="queue"
)


async def die_anywhere(node: Node, concurrency: int, cuts: list[float], asks: bool) -> None:
    world = World(asks=asks)
    world.register(node, "root")
    limits = msgspec.structs.replace(FREE, concurrency=concurrency)
    whole = await live(world, limits)
    check_journal(whole)
    for cut in cuts:
        life = whole
        for part in (cut, cut + (1 - cut) / 2, cut + 2 * (1 - cut) / 3):
            # Deeper into the tree each time: it dies again while it goes on.
            life = await live_again(life, max(life.before, 1, int(part * (len(life.events) - 1))))
            check_journal(life)
            check_not_twice(life)
            check_open(life)
            assert shape(life.outcome) == shape(whole.outcome)


@pytest.mark.timeout(240)
@settings(CALM, max_examples=examples(60))
@given(
    node=nodes(2, ("worker", "brief", "adhoc")),
    concurrency=st.sampled_from([1, 2, 16]),
    cuts=st.lists(st.floats(0, 1), min_size=1, max_size=4),
    asks=st.booleans(),
)
def test_a_tree_that_died_anywhere_ends_as_if_it_had_not(
    node: Node, concurrency: int, cuts: list[float], asks: bool
) -> None:
    """Cut off anywhere, three times over, a tree has the same outcome, and nothing recorded is paid for or done again."""
    run_virtual(die_anywhere, node, concurrency, cuts, asks, timeout_s=60.0, stuck_s=0.2)


maybe = st.one_of(st.none(), st.integers(0, 9))
tight = st.builds(
    Limits,
    depth=st.integers(0, 4),
    delegations=st.one_of(st.none(), st.integers(0, 6)),
    requests=maybe,
    tokens=st.one_of(st.none(), st.integers(0, 20_000)),
    calls=maybe,
    seconds=st.sampled_from([None, 0.5, 3.0, 30.0]),
    concurrency=st.sampled_from([1, 2, None]),
    when_full=st.sampled_from(["queue", "queue", "reject"]),
    turns=st.integers(1, 4),
    result_chars=st.just(200),
)


def check_caps(life: Life, limits: Limits) -> None:
    """What all lives together used is within the limits that hold."""
    begun = {(e.run, e.turn, e.call) for e in life.events if isinstance(e, CallStarted) and not e.delegates}
    started = [e for e in life.events if isinstance(e, RunStarted)]
    assert len({e.run for e in started}) == len(started)
    folded, spent = fold(life.events), fold(life.events).spending()
    for cap, used in (
        (limits.requests, spent["r1"].requests),
        (limits.tokens, life.outcome.total_usage.tokens),
        (limits.calls, len(begun) + len(started) - 1),
        (limits.delegations, len(started) - 1),
        (limits.seconds, folded.runs["r1"].clock.worked_s - 1e-6),
    ):
        assert not isinstance(cap, (int, float)) or used <= cap, (cap, used)
    assert spent["r1"].calls == len(begun) + len(started) - 1
    turns = Counter(
        e.run for e in life.events if isinstance(e, ReplyReceived) and e.purpose == "turn" and not e.again
    )
    for run in folded.runs.values():
        assert not isinstance(run.limits.turns, int) or turns[run.id] <= run.limits.turns
        if run.agent == "narrow":
            assert spent[run.id].requests <= 3
            assert spent[run.id].calls <= 4


async def die_limited(
    world: World, limits: Limits, cancel: tuple[float, int] | None, cuts: list[float], raised: bool
) -> None:
    life = await live(world, limits, cancel)
    check_journal(life)
    check_caps(life, limits)
    more = RAISED if raised else None
    for part in cuts[:-1]:
        life = await live_again(life, max(life.before, 1, round(part * len(life.events))), cancel=cancel)
        check_journal(life)
        check_not_twice(life)
        check_caps(life, limits)
    life = await live_again(life, max(life.before, 1, round(cuts[-1] * len(life.events))), more)
    check_journal(life)
    check_not_twice(life)
    check_caps(life, more or limits)
    if raised:
        assert life.outcome.status in ("completed", "failed", "refused", "incomplete")
        assert life.outcome.reason not in ("turns", "repeating")


@pytest.mark.timeout(240)
@settings(CALM, max_examples=examples(120))
@given(
    node=nodes(2, ("worker", "narrow", "brief", "adhoc")),
    limits=tight,
    cancel=st.one_of(st.none(), st.tuples(st.sampled_from([0.0, 0.05, 1.0, 5.0]), st.integers(0, 5))),
    cuts=st.lists(st.floats(0, 1), min_size=1, max_size=3),
    how=st.tuples(st.booleans(), st.booleans()),
)
def test_limits_hold_over_all_lives_of_a_tree(
    node: Node, limits: Limits, cancel: tuple[float, int] | None, cuts: list[float], how: tuple[bool, bool]
) -> None:
    """However often a tree dies or ends short and is resumed, its lives together stay within the limits; raised, it goes on."""
    raised, asks = how
    world = World(asks=asks)
    world.register(node, "root")
    run_virtual(die_limited, world, limits, cancel, cuts, raised, timeout_s=60.0, stuck_s=0.2)


async def die_resumed(
    world: World, limits: Limits, cancel: tuple[float, int] | None, cuts: list[float]
) -> None:
    first = await live(world, limits, cancel)
    if first.outcome.status in ("completed", "failed", "refused"):
        return
    whole = await live_again(first, len(first.events), RAISED)
    # Also before its end was written down, where it was cancelled as a whole: what was stopped goes on all the same.
    stops = [n for n, e in enumerate(first.events, 1) if isinstance(e, CancelRequested) and e.run == "r1"]
    begin = stops[0] if stops else len(first.events)
    for part in cuts:
        life = await live_again(whole, begin + int(part * (len(whole.events) - 1 - begin)), RAISED)
        check_journal(life)
        check_not_twice(life)
        check_open(life)
        assert shape(life.outcome) == shape(whole.outcome)


@pytest.mark.timeout(240)
@settings(CALM, max_examples=examples(80))
@given(
    node=nodes(2, ("worker", "brief", "adhoc")),
    limits=tight,
    cancel=st.one_of(st.none(), st.tuples(st.sampled_from([0.0, 0.05, 1.0, 5.0]), st.integers(0, 5))),
    cuts=st.lists(st.floats(0, 1), min_size=1, max_size=4),
)
def test_a_resumed_tree_that_died_ends_as_if_it_had_not(
    node: Node, limits: Limits, cancel: tuple[float, int] | None, cuts: list[float]
) -> None:
    """A tree that ended short and goes on with more may die anywhere in that life too, and resumes to the same end."""
    world = World()
    world.register(node, "root")
    run_virtual(die_resumed, world, limits, cancel, cuts, timeout_s=60.0, stuck_s=0.2)
