"""The laws of `fold` over random trees: a tree read from its events is the tree that ran, at its end and at every moment before."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from remit import (
    Agent,
    Call,
    Limits,
    ModelError,
    Outcome,
    Reply,
    Request,
    Usage,
    allow,
    deny,
    reopen,
    start,
    tool,
)
from remit.engine.budget.ledger import Account
from remit.engine.handle import Running
from remit.history.fold import fold
from remit.history.records import Tree
from remit.stores.memory import MemoryStore
from remit.testing import run_virtual
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.event_json import decode, encode
from remit.types.events import Event, RunEnded, RunStarted
from remit.types.limits import total
from remit.types.messages import AssistantMessage
from remit.types.outcome import Status
from remit.types.ports import Emit, Price

MANY = 10**9
"""A cap that is never met: accounts without any do not count."""

CALM = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
)


@dataclass
class Node:
    """What one run does: rounds of children and tools, then an end."""

    rounds: list[list[Node | str]]
    end: str
    delay: float
    how: str


@dataclass
class World:
    """The random tree as a model: a run is told which node it is by its prompt."""

    nodes: dict[str, Node] = field(default_factory=dict)
    name: str = "world"
    price: Price = field(default_factory=lambda: Price(1.0, 2.0))

    def register(self, node: Node, key: str) -> None:
        self.nodes[key] = node
        for r, items in enumerate(node.rounds):
            for c, item in enumerate(items):
                if isinstance(item, Node):
                    self.register(item, f"{key}.{r}.{c}")

    async def reply(self, request: Request, emit: Emit) -> Reply:
        key = request.messages[0].text
        node = self.nodes[key]
        await asyncio.sleep(node.delay)
        usage = Usage(1, len(request.messages) * 10, 20, usd=0.001 * len(request.messages))
        turn = sum(isinstance(m, AssistantMessage) for m in request.messages)
        if request.tool_choice == "none":
            return Reply(f"in short {key}", usage=usage)
        if turn < len(node.rounds):
            calls = [self._call(key, turn, c, item) for c, item in enumerate(node.rounds[turn])]
            return Reply(f"thinking {turn}", tuple(calls), stop="calls", usage=usage)
        return self._end(node, key, usage)

    def _call(self, key: str, turn: int, place: int, item: Node | str) -> Call:
        call, below = f"{turn}.{place}", f"{key}.{turn}.{place}"
        if isinstance(item, str):
            return Call(call, item, {"key": below})
        if item.how == "adhoc":
            return Call(call, "subagent", {"label": below, "task_prompt": below})
        return Call(call, "task", {"agent": item.how, "prompt": below})

    def _end(self, node: Node, key: str, usage: Usage) -> Reply:
        if node.end in ("fail", "flaky"):
            raise ModelError("no", kind="auth" if node.end == "fail" else "overloaded")
        if node.end == "crash":
            raise RuntimeError("bug")
        said = {"empty": "", "long": "a long answer " * 40}.get(node.end, f"answer {key}")
        stop = {"refuse": "refusal", "cut": "length"}.get(node.end, "end")
        much = Usage(1, 10, 9000) if node.end == "greedy" else usage
        return Reply(said, stop=stop, usage=much)  # pyright: ignore[reportArgumentType] - a closed set


@tool(tier="observe")
async def look(key: str) -> str:
    """Reads."""
    return f"saw {key}"


@tool
async def change(key: str) -> str:
    """Changes something for a while."""
    await asyncio.sleep(3)
    return f"changed {key}"


@tool(tier="observe")
async def broken(key: str) -> str:
    """Raises."""
    raise ValueError(key)


TOOLS = [look, change, broken]
NARROW = Limits(requests=3, seconds=20, turns=2, tokens=9_000)
ENDS = ("answer", "answer", "long", "fail", "flaky", "crash", "refuse", "empty", "cut", "greedy")


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


def nodes(depth: int) -> st.SearchStrategy[Node]:
    item: st.SearchStrategy[Node | str] = st.sampled_from(["look", "change", "broken", "missing"])
    if depth:
        item = st.one_of(item, nodes(depth - 1), nodes(depth - 1))
    rounds = st.lists(st.lists(item, min_size=1, max_size=3), max_size=2 if depth else 1)
    return st.builds(
        Node,
        rounds=rounds,
        end=st.sampled_from(ENDS),
        delay=st.sampled_from([0.0, 0.1, 1.0, 7.0]),
        how=st.sampled_from(["worker", "narrow", "brief", "adhoc"]),
    )


def cap(most: int) -> st.SearchStrategy[int]:
    return st.one_of(st.just(MANY), st.integers(0, most))


limits = st.builds(
    Limits,
    depth=st.integers(0, 4),
    delegations=cap(8),
    requests=cap(12),
    tokens=cap(30_000),
    calls=cap(12),
    seconds=st.sampled_from([None, 0.5, 3.0, 30.0]),
    concurrency=st.sampled_from([1, 2, 16]),
    when_full=st.sampled_from(["queue", "queue", "reject"]),
    turns=st.integers(1, 4),
    result_chars=st.just(200),
)


@dataclass
class Told:
    """A tree that ran once, was taken up again, and what its root's account held at the end of either."""

    events: list[Event]
    outcomes: list[Outcome]
    ends: list[int]
    """How many events there were after each."""
    accounts: list[Account]


async def person(request: ApprovalRequest) -> Decision:
    await asyncio.sleep(11)
    return (allow(), allow(scope="run"), deny("no"))[len(request.path) % 3]


async def play(node: Node, asked: Limits, cancel_at: float | None, victim: int) -> Told:
    world, store = World(), MemoryStore()
    world.register(node, "root")
    told = Told([], [], [], [])

    async def follow(running: Running) -> None:
        told.accounts.append(running._inside().runs["r1"].means.account)
        if cancel_at is not None:
            await asyncio.sleep(cancel_at)
            started = [e.run async for e in store.read("r1") if isinstance(e, RunStarted)]
            if started:
                await running.cancel("random", run=started[victim % len(started)])
        told.outcomes.append(await running.outcome())
        told.events = [e async for e in store.read("r1")]
        told.ends.append(len(told.events))

    async with start(LEAD, "root", model=world, limits=asked, store=store, approver=person) as running:
        await follow(running)
    if told.outcomes[0].status in ("completed", "failed", "refused"):
        return told
    await asyncio.sleep(5000)
    async with reopen(store, "r1", agent=LEAD, model=world, approver=person) as running:
        await follow(running)
    return told


def every(outcome: Outcome) -> list[Outcome]:
    return [outcome, *(o for c in outcome.children for o in every(c))]


@pytest.mark.timeout(240)
@settings(CALM, max_examples=examples(120))
@given(
    node=nodes(2),
    asked=limits,
    cancel_at=st.one_of(st.none(), st.sampled_from([0.0, 0.05, 1.0, 5.0, 12.0])),
    victim=st.integers(0, 5),
)
def test_fold_gives_the_tree_that_ran(
    node: Node, asked: Limits, cancel_at: float | None, victim: int
) -> None:
    """At each end the folded outcome and spending are the live ones; every beginning folds, to runs that are open or over."""
    told = run_virtual(play, node, asked, cancel_at, victim, timeout_s=30.0, stuck_s=0.2)
    for outcome, end, account in zip(told.outcomes, told.ends, told.accounts, strict=True):
        folded = fold(told.events[:end])
        assert folded.outcome() == outcome
        check_spending(folded, account)
        assert not list(folded.intents())
        assert folded.status is outcome.status
        assert folded.usage() == outcome.total_usage
        # In the order in which the runs were started; that is not known from outcomes.
        by_run = sorted(folded.artifacts, key=lambda a: a.id.rpartition("/")[0])
        assert by_run == [a for o in in_order(outcome) for a in o.artifacts]
    check_beginnings(told.events)
    check_elapsed(told, asked)


def in_order(outcome: Outcome) -> list[Outcome]:
    """By id: the order in which they were started is not known from outcomes."""
    return sorted(every(outcome), key=lambda o: o.run_id)


def check_spending(folded: Tree, account: Account) -> None:
    spent = folded.spending()["r1"]
    assert (spent.requests, spent.tokens, spent.micros) == tuple(account.spent)
    assert (spent.calls, spent.delegations) == (account.calls, account.delegations)


def check_beginnings(events: list[Event]) -> None:
    """A beginning has every run that was started, each with an outcome, and its open intents are of runs that are open."""
    for cut in range(len(events) + 1):
        part = fold(events[:cut])
        started = [e.run for e in events[:cut] if isinstance(e, RunStarted)]
        assert list(part.runs) == started
        if not started:
            continue
        outcomes = part.outcomes()
        for run, record in part.runs.items():
            if record.outcome is not None:
                assert outcomes[run].status is record.outcome.status
            else:
                assert outcomes[run].status is Status.INTERRUPTED or record.cancelled is not None
        assert all(part.runs[i.run].outcome is None for i in part.intents())
        assert {i.run for i in part.intents()} == {r.id for r in part.runs.values() if r.outcome is None}
        assert part.outcome().total_usage == total(o.usage for o in every(part.outcome())) == part.usage()


def check_elapsed(told: Told, asked: Limits) -> None:
    """A run's clock stands still while a person is asked and while nobody runs it, so limits on it hold."""
    folded = fold(told.events)
    for record in folded.runs.values():
        assert record.clock.since is None
        assert record.clock.waits == 0
    if isinstance(asked.seconds, float):
        assert folded.runs["r1"].clock.worked_s <= asked.seconds + 1e-6
    assert all(record.clock.worked_s < 4000 for record in folded.runs.values())


@settings(CALM, max_examples=examples(40))
@given(node=nodes(2), asked=limits, lost=st.lists(st.integers(0, 80), max_size=12), seed=st.randoms())
def test_fold_never_raises_for_what_is_missing(
    node: Node, asked: Limits, lost: list[int], seed: object
) -> None:
    """Events that are missing, come twice, in another order or through JSON never make `fold` raise."""
    told = run_virtual(play, node, asked, None, 0, timeout_s=30.0, stuck_s=0.2)
    assert fold([decode(encode(e)) for e in told.events]).outcome() == fold(told.events).outcome()
    left = [e for n, e in enumerate(told.events) if n not in lost]
    shuffled = list(told.events)
    seed.shuffle(shuffled)  # pyright: ignore[reportAttributeAccessIssue] - hypothesis' own Random
    for events in (left, [*told.events, *told.events], shuffled):
        tree = fold(events)
        if tree.root in tree.runs:
            list(tree.intents())
            tree.spending()
            tree.outcome()


STATUSES = {
    "completed": (Node([], "answer", 0.0, "worker"), Limits()),
    "incomplete": (Node([], "empty", 0.0, "worker"), Limits()),
    "timed_out": (Node([["change"]], "answer", 1.0, "worker"), Limits(seconds=2.0)),
    "over_budget": (Node([["look"], ["look"]], "answer", 0.0, "worker"), Limits(requests=1)),
    "refused": (Node([], "refuse", 0.0, "worker"), Limits()),
    "failed": (Node([], "fail", 0.0, "worker"), Limits()),
}


@pytest.mark.parametrize("status", STATUSES)
def test_fold_gives_every_status(status: str) -> None:
    """However a run ended, its folded outcome is the live one, durations and logs included."""
    node, asked = STATUSES[status]
    told = run_virtual(play, node, asked, None, 0)
    assert told.outcomes[0].status == status
    assert fold(told.events[: told.ends[0]]).outcome() == told.outcomes[0]
    assert sum(isinstance(e, RunEnded) for e in told.events) == len(told.outcomes)
