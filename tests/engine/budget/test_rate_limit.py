"""Lanes: what a provider refuses for the rate slows everybody of the tree, once, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from grazing import grazing

from remit import Agent, Call, Limits, ModelError, Reply, Request, Usage, run
from remit.engine.budget.rate_limit import Lane
from remit.testing import run_virtual
from remit.types.events import Event, ModelCallFailed

USAGE = Usage(1, 10, 5)


class Narrow:
    """A provider that works on so many requests at once and refuses the rest."""

    name = "narrow"

    def __init__(self, children: int, places: int, *, retry_after: float | None = None) -> None:
        self.children = children
        self.places = places
        self.retry_after = retry_after
        self.working = 0
        self.answered = 0
        self.refused: list[int] = []
        """How many had been answered at each refusal."""

    async def reply(self, request: Request, emit: object) -> Reply:
        if self.working >= self.places:
            await asyncio.sleep(0.01)
            self.refused.append(self.answered)
            raise ModelError("too many requests", kind="rate_limit", retry_after=self.retry_after)
        self.working += 1
        await asyncio.sleep(1)
        self.working -= 1
        self.answered += 1
        if request.agent == "lead" and len(request.messages) == 1:
            calls = [
                Call(f"c{n}", "task", {"agent": "worker", "prompt": f"{n}"}) for n in range(self.children)
            ]
            return Reply(calls=tuple(calls), stop="calls", usage=USAGE)
        return Reply("done", usage=USAGE)


@pytest.mark.parametrize("retry_after", [None, 2.0])
async def test_a_storm_is_met_once(retry_after: float | None) -> None:
    """50 children, a provider with 5 places: all finish, and after the first wave hardly any is refused."""
    model = Narrow(50, 5, retry_after=retry_after)
    lead = Agent("lead", subagents=[Agent("worker")])
    events: list[Event] = []
    outcome = await run(
        lead, "go", model=model, limits=Limits(concurrency=60, seconds=None), on_event=events.append
    )
    assert outcome.ok
    assert [c.status for c in outcome.children] == ["completed"] * 50
    first_wave = 45
    late = len(model.refused) - first_wave
    assert len(model.refused) >= first_wave, "all 50 are sent at once, so 45 must be refused"
    assert late <= 8
    failed = [e for e in events if isinstance(e, ModelCallFailed)]
    assert len(failed) == len(model.refused), "each refusal is visible"


async def test_the_whole_lane_waits_for_as_long_as_the_provider_asked() -> None:
    """One run's Retry-After holds for its siblings too."""
    sent: list[float] = []

    class Once:
        name = "once"

        async def reply(self, request: Request, emit: object) -> Reply:
            now = asyncio.get_running_loop().time()
            sent.append(now)
            if request.agent == "lead" and len(request.messages) == 1:
                calls = [Call(f"c{n}", "task", {"agent": f"w{n}", "prompt": "x"}) for n in range(2)]
                return Reply(calls=tuple(calls), stop="calls", usage=USAGE)
            if request.agent == "w0" and len(sent) == 2:
                raise ModelError("later", kind="rate_limit", retry_after=10)
            if request.agent == "w1" and not any(c for c in request.messages if c.text == "slept"):
                return Reply("done", usage=USAGE)
            return Reply("done", usage=USAGE)

    lead = Agent("lead", subagents=[Agent("w0"), Agent("w1")])
    outcome = await run(lead, "go", model=Once(), limits=Limits(concurrency=1))
    assert outcome.ok
    first, refused, *rest = sent
    assert first == refused == 0
    assert all(at >= 10 for at in rest), sent


class Own(Reply, frozen=True):
    """A reply of a model's own kind."""


class Recovers(Narrow):
    """A provider that refuses all but one at first, and has room for everybody once it has answered two."""

    def __init__(self, kind: type[Reply]) -> None:
        super().__init__(30, 1)
        self.kind = kind

    async def reply(self, request: Request, emit: object) -> Reply:
        if self.answered == 2:
            self.places = 100
        said = await super().reply(request, emit)
        return self.kind(said.text, said.calls, stop=said.stop, usage=said.usage)


async def test_a_reply_of_a_models_own_kind_says_that_there_is_room() -> None:
    """A lane that was made narrow gets wider with every answer, whatever it is made of."""
    lead = Agent("lead", subagents=[Agent("worker")])
    took: list[float] = []
    for kind in (Reply, Own):
        outcome = await run(lead, "go", model=Recovers(kind), limits=Limits(concurrency=60, seconds=None))
        assert outcome.ok
        took.append(outcome.duration_s)
    assert took[0] == pytest.approx(took[1])


async def test_in_flight_limits_requests_from_the_start() -> None:
    """`in_flight` is a limit from the start: no request is refused."""
    model = Narrow(30, 4)
    model.in_flight = 4  # pyright: ignore[reportAttributeAccessIssue]
    outcome = await run(
        Agent("lead", subagents=[Agent("worker")]), "go", model=model, limits=Limits(concurrency=40)
    )
    assert outcome.ok
    assert model.refused == []


async def test_a_lane_in_which_everything_is_refused_gives_time() -> None:
    """With nothing in flight the lane stays closed a little longer each time, and opens by itself."""
    loop = asyncio.get_running_loop()
    lane = Lane(loop, None)
    waits: list[float] = []
    for _ in range(4):
        began = loop.time()
        woken = loop.create_future()
        if not lane.step_in(front=False):
            lane.stand_in_line(lambda woken=woken: woken.set_result(None), front=False)
            await woken
        waits.append(loop.time() - began)
        lane.refused(None)
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert waits[-1] > waits[1] > 0


async def test_a_waiter_that_stops_gives_back_its_place() -> None:
    """A place that was granted and not used goes to the next request."""
    loop = asyncio.get_running_loop()
    lane = Lane(loop, 1)
    assert lane.step_in(front=False)
    first, second = (lane.stand_in_line(lambda: None, front=False) for _ in range(2))
    lane.leave()
    assert (first.granted, second.granted) == (True, False)
    lane.withdraw(first)
    assert second.granted
    assert lane.in_flight == 1


async def test_a_place_laid_aside_goes_to_a_run_with_a_slot() -> None:
    """A place laid aside is taken by the next run that holds a slot, never by one without."""
    lane, woken = Lane(asyncio.get_running_loop(), 1), list[str]()
    assert lane.step_in(front=False)
    slow = lane.stand_in_line(lambda: woken.append("slow"), front=False)
    other = lane.stand_in_line(lambda: woken.append("other"), front=False)
    lane.leave()
    lane.lay_aside(slow)
    # Who stands in line is told to see to a slot, and is not given the place for the asking.
    assert (woken, other.granted) == (["slow", "other"], False)
    assert lane.step_in(front=False)
    assert not lane.take_up(slow)
    assert not lane.step_in(front=True)
    assert lane.in_flight == 1


async def test_the_owner_keeps_a_place_laid_aside_until_it_is_taken() -> None:
    """A run that gets its slot uses its own place if no other run took it; a run that gives up leaves the place."""
    lane = Lane(asyncio.get_running_loop(), 1)
    first = lane.stand_in_line(lambda: None, front=False)
    lane.lay_aside(first)
    assert lane.take_up(first)
    lane.leave()
    second = lane.stand_in_line(lambda: None, front=False)
    lane.lay_aside(second)
    lane.withdraw(second)
    assert lane.in_flight == 0
    assert lane.step_in(front=False)


class Edge:
    """An event loop whose clock passes the second between two reads, and which fires timers when told to."""

    def __init__(self, *times: float) -> None:
        self.times = list(times)
        self.timers: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.times.pop(0) if len(self.times) > 1 else self.times[0]

    def call_at(self, when: float, callback: Callable[[], None]) -> object:
        self.timers.append(callback)
        return object()


def closed_for_a_second(*then: float) -> tuple[Lane, Edge]:
    """A lane that was refused at 0 and asked to wait for 1 s, on a clock that shows `then` afterwards."""
    loop = Edge(0.0)
    lane = Lane(loop, None)  # pyright: ignore[reportArgumentType] - all that a lane needs of a loop
    assert lane.step_in(front=False)
    lane.refused(1.0)
    loop.times = list(then)
    return lane, loop


def test_a_waiter_is_woken_when_the_lane_opens_between_two_reads_of_the_clock() -> None:
    """Every waiting request is admitted or has a timer, however close the opening is."""
    woken: list[str] = []
    lane, loop = closed_for_a_second(0.9999999, 1.0000001)
    place = lane.stand_in_line(lambda: woken.append("waiter"), front=False)
    for timer in loop.timers:
        timer()
    assert (place.granted, woken) == (True, ["waiter"])


def test_a_timer_that_fires_early_is_set_again() -> None:
    """A loop may fire a timer before its time, as uvloop does by half a millisecond: the lane then sets another."""
    woken: list[str] = []
    lane, loop = closed_for_a_second(0.5)
    place = lane.stand_in_line(lambda: woken.append("waiter"), front=False)
    loop.times = [0.9999999, 1.0000001]
    early, *none = loop.timers
    assert not none
    early()
    for timer in loop.timers[1:]:
        timer()
    assert (place.granted, woken) == (True, ["waiter"])


class RefusedFirst:
    """A provider that refuses each run's first request for a second."""

    name = "refused-first"

    def __init__(self) -> None:
        self.met: set[str] = set()

    async def reply(self, request: Request, emit: object) -> Reply:
        await asyncio.sleep(0.1)
        if request.run_id not in self.met:
            self.met.add(request.run_id)
            raise ModelError("later", kind="rate_limit", retry_after=1.0)
        if request.agent == "lead" and len(request.messages) == 1:
            calls = [Call(f"c{n}", "task", {"agent": "worker", "prompt": f"{n}"}) for n in range(5)]
            return Reply(calls=tuple(calls), stop="calls", usage=USAGE)
        return Reply("done", usage=USAGE)


@pytest.mark.parametrize("seed", range(40))
def test_no_run_is_stuck_in_a_lane_that_opens_while_it_looks(seed: int) -> None:
    """All refused runs continue, even if timers fire early and time passes between two clock reads."""

    async def go() -> None:
        lead = Agent("lead", subagents=[Agent("worker")])
        outcome = await run(lead, "go", model=RefusedFirst(), limits=Limits(seconds=None))
        assert [c.status for c in outcome.children] == ["completed"] * 5

    with grazing(seed):
        run_virtual(go, stuck_s=0.1)
