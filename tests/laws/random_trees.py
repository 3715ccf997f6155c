"""Random trees, and the laws that hold for each: random fan-out, depth, delays, failures, limits and cancellations.

A test asks for `@over_random_trees(...)` and plays what it is given, in virtual time or, at a faster `pace`, in real time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field

import msgspec
from examples import examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from remit import Agent, Call, Limits, ModelError, Outcome, Reply, Request, Usage, start, tool
from remit.types.events import (
    CallEnded,
    CallStarted,
    Event,
    ModelCallFailed,
    ReplyReceived,
    RunEnded,
    RunStarted,
    TurnStarted,
)
from remit.types.limits import total
from remit.types.messages import AssistantMessage, ToolMessage
from remit.types.ports import Emit

DELAYS = (0.0, 0.0, 0.1, 1.0, 7.0)

pace: ContextVar[float] = ContextVar("pace", default=1.0)
"""Seconds that pass for each second in the descriptions here; small where time is real."""


def paced(limits: Limits) -> Limits:
    if not isinstance(limits.seconds, (int, float)):
        return limits
    return msgspec.structs.replace(limits, seconds=limits.seconds * pace.get())


@dataclass
class Node:
    """What one run of the random tree does: rounds of children and tools, then an end."""

    rounds: list[list[Node | str]]
    end: str
    delay: float
    own: Limits | None


@dataclass
class World:
    """The random tree as a model: a run is told which node it is by its prompt."""

    nodes: dict[str, Node] = field(default_factory=dict)
    sent: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])
    in_flight: int = 0
    name: str = "world"

    def register(self, node: Node, key: str) -> None:
        self.nodes[key] = node
        for r, calls in enumerate(node.rounds):
            for c, item in enumerate(calls):
                if isinstance(item, Node):
                    self.register(item, f"{key}.{r}.{c}")

    async def reply(self, request: Request, emit: Emit) -> Reply:
        self.sent += 1
        self.in_flight += 1
        try:
            return await self._reply(request)
        finally:
            self.in_flight -= 1

    async def _reply(self, request: Request) -> Reply:
        key = request.messages[0].text
        node = self.nodes[key]
        if node.delay:
            await asyncio.sleep(node.delay * pace.get())
        usage = Usage(1, len(request.messages) * 10, 20)
        turn = sum(isinstance(m, AssistantMessage) for m in request.messages)
        if request.tool_choice == "none":
            return Reply(f"wrapped {key}", usage=usage)
        if turn < len(node.rounds):
            calls = [
                self._call(f"{turn}.{c}", f"{key}.{turn}.{c}", item)
                for c, item in enumerate(node.rounds[turn])
            ]
            return Reply(f"thinking {turn}", tuple(calls), stop="calls", usage=usage)
        return self._end(node, key, usage)

    def _call(self, call_id: str, key: str, item: Node | str) -> Call:
        if isinstance(item, Node):
            name = "narrow" if item.own else "worker"
            return Call(call_id, "task", {"agent": name, "prompt": key})
        return Call(call_id, item, {})

    def _end(self, node: Node, key: str, usage: Usage) -> Reply:
        if node.end == "fail":
            raise ModelError("no", kind="auth")
        if node.end == "flaky":
            raise ModelError("busy", kind="overloaded", retry_after=2.0 * pace.get())
        if node.end == "limited" and self.refused[key] < 2:
            self.refused[key] += 1
            raise ModelError("too many", kind="rate_limit", retry_after=self.refused[key] * pace.get())
        if node.end == "crash":
            raise RuntimeError("bug")
        if node.end == "refuse":
            return Reply("won't", stop="refusal", usage=usage)
        if node.end == "empty":
            return Reply("", usage=usage)
        return Reply(f"answer {key}", usage=usage)


@tool(tier="observe")
async def quick() -> str:
    """Answers at once."""
    return "quick"


@tool(tier="observe")
async def slow() -> str:
    """Takes a while."""
    await asyncio.sleep(5 * pace.get())
    return "slow"


@tool(tier="observe")
async def broken() -> str:
    """Raises."""
    raise ValueError("broken")


TOOLS = [quick, slow, broken]
ENDS = (
    "answer",
    "answer",
    "answer",
    "answer",
    "limited",
    "limited",
    "fail",
    "flaky",
    "crash",
    "refuse",
    "empty",
)
NARROW = Limits(requests=3, seconds=20, concurrency=1, turns=3, tokens=2_000)

maybe = st.one_of(st.none(), st.integers(0, 12))
limits = st.builds(
    Limits,
    depth=st.integers(0, 4),
    delegations=st.one_of(st.none(), st.integers(0, 20)),
    requests=maybe,
    tokens=st.one_of(st.none(), st.integers(0, 30_000)),
    calls=maybe,
    # Not a long time: a tree that is stuck would end with it.
    seconds=st.sampled_from([None, None, 0.5, 3.0, 30.0]),
    concurrency=st.sampled_from([1, 1, 2, 3, 16, None]),
    when_full=st.sampled_from(["queue", "queue", "reject"]),
    turns=st.integers(1, 4),
)


def nodes(depth: int) -> st.SearchStrategy[Node]:
    item: st.SearchStrategy[Node | str] = st.sampled_from(["quick", "slow", "broken", "missing"])
    if depth:
        item = st.one_of(item, nodes(depth - 1), nodes(depth - 1))
    rounds = st.lists(st.lists(item, min_size=1, max_size=4), max_size=3 if depth else 1)
    own = st.sampled_from([None, None, NARROW])
    return st.builds(Node, rounds=rounds, end=st.sampled_from(ENDS), delay=st.sampled_from(DELAYS), own=own)


def agents(depth: int = 5) -> list[Agent]:
    below: list[Agent] = []
    for _ in range(depth):
        below = [
            Agent("worker", tools=TOOLS, subagents=below),
            Agent("narrow", tools=TOOLS, subagents=below, limits=paced(NARROW)),
        ]
    return below


@dataclass
class Told:
    """What a finished tree left behind."""

    outcome: Outcome
    events: list[Event]
    world: World
    limits: Limits


async def play(node: Node, asked: Limits, cancel_at: float | None, victim: int) -> Told:
    world = World()
    world.register(node, "root")
    events: list[Event] = []
    lead = Agent("lead", tools=TOOLS, subagents=agents())
    async with start(lead, "root", model=world, limits=paced(asked)) as running:

        async def read() -> None:
            async for event in running.events():
                # Into the list as they come: the cancel below looks at what has started so far.
                events.append(event)  # noqa: PERF401

        reader = asyncio.get_running_loop().create_task(read())
        if cancel_at is not None:
            await asyncio.sleep(cancel_at * pace.get())
            started = [e.run for e in events if isinstance(e, RunStarted)]
            await running.cancel("random", run=started[victim % len(started)] if started else None)
        outcome = await running.outcome()
        await reader
    return Told(outcome, events, world, asked)


Played = Callable[[Node, Limits, float | None, int], None]


def over_random_trees(trees: int, *, shrink: bool = True) -> Callable[[Played], Callable[[], None]]:
    """Have a test called with that many of them; `shrink` looks for the smallest that fails, which takes many more."""

    def decorate(test: Played) -> Callable[[], None]:
        asked = given(
            node=nodes(3),
            asked=limits,
            cancel_at=st.one_of(st.none(), st.sampled_from([0.0, 0.05, 0.1, 1.0, 5.0, 7.1])),
            victim=st.integers(0, 9),
        )
        slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
        phases = tuple(Phase) if shrink else (Phase.generate,)
        return settings(
            max_examples=examples(trees), deadline=None, suppress_health_check=slow, phases=phases
        )(asked(test))

    return decorate


def check_laws(told: Told) -> None:
    """No cap is exceeded, each call has one result in order, nothing lives on, every run has one outcome, totals add up."""
    assert told.world.in_flight == 0
    check_caps(told)
    check_results(told.outcome)
    check_one_outcome_each(told)
    check_totals(told)
    check_working(told)


def every(outcome: Outcome) -> list[Outcome]:
    return [outcome, *(o for c in outcome.children for o in every(c))]


def check_caps(told: Told) -> None:
    """Requests, delegations and calls are exact; tokens fit because what is reserved covers what is used."""
    limits, runs = told.limits, every(told.outcome)
    started = [e for e in told.events if isinstance(e, RunStarted)]
    ran = [e for e in told.events if isinstance(e, CallStarted)]
    assert told.world.sent == told.outcome.total_usage.requests
    for cap, used in (
        (limits.requests, told.world.sent),
        (limits.delegations, len(started) - 1),
        (limits.tokens, told.outcome.total_usage.tokens),
        (limits.calls, len(ran) - count_rejected(told)),
    ):
        assert not isinstance(cap, int) or used <= cap, (cap, used)
    assert isinstance(limits.depth, int)
    assert max(r.depth for r in runs) <= limits.depth
    for run in runs:
        if run.agent == "narrow":
            below = [r for r in runs if r.run_id == run.run_id or r.run_id.startswith(f"{run.run_id}.")]
            assert sum(r.usage.requests for r in below) <= 3
            assert run.total_usage.tokens <= 2_000
    turns = Counter(
        e.run for e in told.events if isinstance(e, TurnStarted) and e.purpose == "turn" and e.attempt == 1
    )
    own = {e.run: e.limits.turns for e in started}
    assert all(turns[run] <= most for run, most in own.items() if isinstance(most, int))


def count_rejected(told: Told) -> int:
    return sum(e.kind == "delegation_rejected" for e in told.events)


def check_results(outcome: Outcome) -> None:
    """Each call has exactly one result, in call order, right after the reply that asked for it."""
    for run in every(outcome):
        messages = list(run.messages)
        for i, message in enumerate(messages):
            if isinstance(message, AssistantMessage) and message.calls:
                answers = messages[i + 1 : i + 1 + len(message.calls)]
                assert all(isinstance(a, ToolMessage) for a in answers)
                assert [a.call_id for a in answers if isinstance(a, ToolMessage)] == [
                    c.id for c in message.calls
                ]
        asked = sum(len(m.calls) for m in messages if isinstance(m, AssistantMessage))
        given = sum(isinstance(m, ToolMessage) for m in messages)
        assert asked == given == len(run.calls)


def check_one_outcome_each(told: Told) -> None:
    started = [e.run for e in told.events if isinstance(e, RunStarted)]
    ended = [e.run for e in told.events if isinstance(e, RunEnded)]
    assert len(set(started)) == len(started)
    assert sorted(started) == sorted(ended) == sorted(o.run_id for o in every(told.outcome))
    assert ended[-1] == told.outcome.run_id
    assert [e.seq for e in told.events] == list(range(1, len(told.events) + 1))
    results = Counter((e.run, e.call) for e in told.events if isinstance(e, CallEnded))
    assert all(n == 1 for n in results.values())
    for run in every(told.outcome):
        assert run.ok == (run.status == "completed")
        assert not run.ok or run.text.strip()


def check_totals(told: Told) -> None:
    """Every total is the sum over the leaves that spent it: model calls, in events and outcomes alike."""
    spent = [e.usage for e in told.events if isinstance(e, (ReplyReceived, ModelCallFailed))]
    assert total(spent) == total([o.usage for o in every(told.outcome)]) == told.outcome.total_usage
    for run in every(told.outcome):
        assert run.total_usage == total([o.usage for o in every(run)])


def check_working(told: Told) -> None:
    """No more runs have a model call in flight at once than may work at once."""
    cap = told.limits.concurrency
    flying: set[str] = set()
    for event in told.events:
        if isinstance(event, TurnStarted):
            flying.add(event.run)
        elif isinstance(event, (ReplyReceived, ModelCallFailed)):
            flying.discard(event.run)
        assert not isinstance(cap, int) or len(flying) <= cap
