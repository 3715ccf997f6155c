"""The laws over random trees that delegate from code, in virtual time: whole, cancelled, and killed after any event."""

from __future__ import annotations

import pytest
from examples import examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from random_code import CodeWorld, Part, agent_of, parts, play
from random_trees import check_laws, every, limits
from stories import timeless

from remit import Limits, Outcome, resume
from remit.history.fold import fold
from remit.stores.memory import MemoryStore
from remit.testing import fixed_ids, run_virtual
from remit.types.events import CallEnded, CallStarted, ReplyReceived, RunEnded, RunStarted

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

# In this tree the time left for a queued child rounds to no time at all.
LEAVES = [
    Part(False, "in turn", "raise", 7.0),
    Part(True, "leave", "empty", 0.0),
    Part(False, "map", "return", 7.0),
]
INNER = [
    Part(True, "map", "return", 0.0, [Part(False, "gather", "return", 1.0)]),
    Part(True, "twice", "return", 0.0, LEAVES),
]
ROUNDED = Part(True, "map", "return", 0.1, [Part(True, "map", "return", 0.0, INNER)])
SHORT = Limits(
    depth=3,
    delegations=20,
    requests=3,
    tokens=None,
    calls=4,
    seconds=0.5,
    concurrency=1,
    when_full="queue",
    turns=1,
)

WIDE = Limits(depth=8, delegations=None, seconds=None)


@pytest.mark.timeout(240)
@settings(max_examples=examples(150), deadline=None, suppress_health_check=SLOW)
@given(
    part=parts(3),
    asked=limits,
    cancel_at=st.one_of(st.none(), st.sampled_from([0.0, 0.05, 0.1, 1.0, 5.0, 7.1])),
    victim=st.integers(0, 9),
)
@example(part=ROUNDED, asked=SHORT, cancel_at=None, victim=0)
def test_laws_hold_on_random_trees_of_code(
    part: Part, asked: Limits, cancel_at: float | None, victim: int
) -> None:
    """Under any limits and any cancel: no cap is exceeded, no child outlives its call, every run has one outcome."""
    told = run_virtual(play, part, asked, cancel_at, victim, timeout_s=20.0, stuck_s=0.1)
    check_laws(told)
    # A child of code is a delegation, never a call.
    called = sum(isinstance(e, CallStarted) for e in told.events)
    assert not isinstance(asked.calls, int) or called <= asked.calls
    ended: set[tuple[str, str]] = set()
    gone: set[str] = set()
    for event in told.events:
        assert event.run not in gone, "an event after the end of its run"
        if isinstance(event, CallEnded):
            ended.add((event.run, event.call))
        elif isinstance(event, RunStarted) and event.call:
            assert (event.parent, event.call) not in ended, "a child after the end of its call"
        elif isinstance(event, RunEnded):
            gone.add(event.run)
            assert event.parent not in gone


@pytest.mark.timeout(240)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=SLOW)
@given(part=parts(2, ("map", "gather", "in turn", "twice"), ("return",)), place=st.floats(0, 1))
def test_a_random_tree_of_code_killed_after_any_event_ends_the_same(part: Part, place: float) -> None:
    """Killed after any event and resumed, a tree gives the same answer, and no recorded reply is paid for again."""
    run_virtual(_killed, part, place, timeout_s=20.0, stuck_s=0.1)


async def _killed(part: Part, place: float) -> None:
    with fixed_ids():
        whole = await play(part, WIDE, None, 0)
    kept = whole.events[: 1 + int(place * (len(whole.events) - 2))]
    dead = MemoryStore()
    await dead.claim("r1", new=True)
    for event in kept:
        dead.append(event)
    await dead.release("r1")
    world = CodeWorld()
    world.register(part, "root")
    outcome = await resume(dead, "r1", agent=agent_of(world, part), model=world)
    assert (outcome.status, outcome.text) == (whole.outcome.status, whole.outcome.text)
    assert not outcome.warnings
    assert _shape(outcome) == _shape(whole.outcome)
    recorded = sum(isinstance(event, ReplyReceived) for event in kept)
    assert recorded + world.sent == whole.world.sent
    history = [event async for event in dead.read("r1")]
    assert timeless(fold(history).outcome()) == timeless(outcome)


def _shape(outcome: Outcome) -> list[tuple[int, str, str]]:
    return sorted((one.depth, one.agent, one.text) for one in every(outcome))
