"""Slots: at most N work at once, in order, in every pool at once or in none."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import remit.engine.budget.slots as slots
from remit.engine.budget.slots import Place, Pool

PICK = st.integers(0, 30)
MANY = 20_000


def nobody() -> None:
    pass


@dataclass(eq=False)
class Waiter:
    """Somebody who asked for a slot in each of its pools, and waits."""

    pools: tuple[Pool, ...]
    order: tuple[bool, int]
    """Who comes back is served before who is new; else as they came."""
    place: Place | None = None


class SlotsMachine(RuleBasedStateMachine):
    """Random comings and goings in a small tree of pools."""

    @initialize(shape=st.lists(st.tuples(PICK, st.integers(1, 3)), min_size=1, max_size=5))
    def plant(self, shape: list[tuple[int, int]]) -> None:
        self.chains: list[tuple[Pool, ...]] = []
        for parent, size in shape:
            above = self.chains[parent % len(self.chains)] if self.chains else ()
            self.chains.append((Pool(size), *above))
        self.working: list[tuple[Pool, ...]] = []
        self.waiting: list[Waiter] = []
        self.unread: list[Waiter] = []
        """Granted, and not yet told to whoever waited."""
        self.count = 0

    @rule(where=PICK, front=st.booleans())
    def take(self, where: int, front: bool) -> None:
        """Somebody new works at once, exactly when all its pools have room."""
        pools = self.chains[where % len(self.chains)]
        self.count += 1
        waiter = Waiter(pools, (not front, self.count))
        free = self.has_room(pools)
        assert slots.is_full(pools) == (not free)
        waiter.place = slots.take(pools, lambda: self.granted(waiter), front=front)
        assert (waiter.place is None) == free
        if free:
            self.working.append(pools)
        else:
            self.waiting.append(waiter)

    @precondition(lambda self: self.working)
    @rule(who=PICK)
    def give_back(self, who: int) -> None:
        slots.give_back(self.working.pop(who % len(self.working)))

    @precondition(lambda self: self.waiting)
    @rule(who=PICK)
    def leave_the_queue(self, who: int) -> None:
        waiter = self.waiting.pop(who % len(self.waiting))
        assert waiter.place
        slots.leave(waiter.place)

    @precondition(lambda self: self.unread)
    @rule(who=PICK)
    def leave_after_the_grant(self, who: int) -> None:
        """Slots granted to somebody who has just gone go to the next."""
        waiter = self.unread.pop(who % len(self.unread))
        assert waiter.place
        slots.leave(waiter.place)

    @precondition(lambda self: self.unread)
    @rule()
    def read(self) -> None:
        self.working += [waiter.pools for waiter in self.unread]
        self.unread.clear()

    @invariant()
    def no_pool_is_overfull(self) -> None:
        """Never more work than there are slots, in any pool; who waits holds none anywhere."""
        for pool in {p for chain in self.chains for p in chain}:
            assert pool.working == self.held(pool)
            assert 0 <= pool.working <= pool.size

    @invariant()
    def nobody_waits_in_vain(self) -> None:
        """Nobody waits while all its pools have room."""
        assert not any(self.has_room(w.pools) for w in self.waiting)

    def granted(self, waiter: Waiter) -> None:
        """Who was before it is blocked by a pool that it does not need: that pool is full, its own had room."""
        assert waiter.place
        assert waiter.place.granted
        self.waiting.remove(waiter)
        assert self.has_room(waiter.pools)
        assert not any(w.order < waiter.order and self.has_room(w.pools) for w in self.waiting)
        self.unread.append(waiter)

    def held(self, pool: Pool) -> int:
        unread = [w.pools for w in self.unread]
        # While slots are handed on, who gave back is gone from `working` already.
        return sum(pool in pools for pools in (*self.working, *unread))

    def has_room(self, pools: tuple[Pool, ...]) -> bool:
        return all(self.held(p) < p.size for p in pools)


SlotsMachine.TestCase.settings = settings(
    max_examples=200,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=(HealthCheck.too_slow,),
    # Making a failing program smaller may take minutes; it is printed as it was found.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
)


class TestSlots(SlotsMachine.TestCase):
    """Full pools make people wait, free ones never do; first come first served, who comes back before all."""


def line_up(pools: tuple[Pool, ...], count: int, *, front: bool = False) -> list[Place]:
    places = [slots.take(pools, nobody, front=front) for _ in range(count)]
    waiting = [place for place in places if place is not None]
    assert len(waiting) == count
    return waiting


@contextmanager
def steps_at_most(most: int) -> Generator[None]:
    """Fails once more than `most` lines of the slots module have run."""
    steps = 0

    def count(frame: FrameType, kind: str, _: object) -> object:
        nonlocal steps
        if frame.f_code.co_filename != slots.__file__:
            return None
        steps += kind == "line"
        assert steps <= most, f"more than {most:,} steps"
        return count

    before = sys.gettrace()
    sys.settrace(count)  # pyright: ignore[reportArgumentType]
    try:
        yield
    finally:
        sys.settrace(before)


def test_no_pools_means_no_waiting() -> None:
    """A tree without a concurrency limit never waits."""
    assert all(slots.take((), nobody) is None for _ in range(100))
    assert not slots.is_full(())


def test_returning_runs_are_served_first() -> None:
    """Returning parents take their slot at the front of the queue, in their own order."""
    pools = (Pool(1),)
    slots.take(pools, nobody)
    served: list[str] = []
    for name, front in (("new 1", False), ("back 1", True), ("new 2", False), ("back 2", True)):
        slots.take(pools, lambda name=name: served.append(name), front=front)
    for _ in range(4):
        slots.give_back(pools)
    assert served == ["back 1", "back 2", "new 1", "new 2"]


def test_a_slot_in_every_pool_at_once_or_in_none() -> None:
    """A run blocked by its own pool takes nothing from the pool above, which other runs can use."""
    root = Pool(2)
    inner = (Pool(1), root)
    slots.take(inner, nobody)
    (blocked,) = line_up(inner, 1)
    assert root.working == 1
    assert slots.take((root,), nobody) is None
    slots.give_back(inner)
    assert blocked.granted
    assert root.working == 2


def test_a_run_blocked_by_an_inner_pool_does_not_block_others() -> None:
    """A run blocked by a full pool is overtaken only by runs that do not need that pool."""
    root = Pool(2)
    inner = (Pool(1), root)
    slots.take(inner, nobody)
    slots.take((root,), nobody)
    (inside,) = line_up(inner, 1)
    (outside,) = line_up((root,), 1)
    slots.give_back((root,))
    assert (inside.granted, outside.granted) == (False, True)


def test_a_run_that_leaves_does_not_pass_on_its_turn() -> None:
    """When the first run in a queue leaves, the next one keeps its own place in the order."""
    root = Pool(1)
    inner = (Pool(3), root)
    slots.take(inner, nobody)
    (gone,) = line_up(inner, 1)
    (earlier,) = line_up((root,), 1)
    (later,) = line_up(inner, 1)
    slots.leave(gone)
    slots.give_back(inner)
    assert (earlier.granted, later.granted) == (True, False)


def test_an_emptied_queue_still_works() -> None:
    """A run that arrives after all others have left is served as soon as its pools have room."""
    root = Pool(1)
    inner = (Pool(1), root)
    slots.take(inner, nobody)
    (gone,) = line_up(inner, 1)
    slots.leave(gone)
    slots.give_back(inner)
    slots.take((root,), nobody)
    (after,) = line_up(inner, 1)
    slots.give_back((root,))
    assert after.granted


def test_a_long_queue_is_served_in_few_steps() -> None:
    """A queue of 20,000 places is served in far fewer than quadratic steps."""
    pools = (Pool(1),)
    slots.take(pools, nobody)
    with steps_at_most(MANY * 200):
        places = line_up(pools, MANY)
        for _ in range(MANY):
            slots.give_back(pools)
    assert all(place.granted for place in places)


def test_a_long_queue_is_left_in_few_steps() -> None:
    """A cancelled parent's 20,000 queued children leave in far fewer than quadratic steps."""
    pools = (Pool(1),)
    slots.take(pools, nobody)
    places = line_up(pools, MANY)
    with steps_at_most(MANY * 200):
        for place in places[1:]:
            slots.leave(place)
        slots.give_back(pools)
    assert [place.granted for place in places] == [True] + [False] * (MANY - 1)


def test_a_queue_between_two_pools_is_not_moved_back_and_forth() -> None:
    """A queue whose pools fill and empty alternately is not moved each time."""
    root = Pool(3)
    inner = (Pool(2), root)
    for pools in (inner, inner, (root,)):
        slots.take(pools, nobody)
    line_up(inner, MANY)
    rounds = 1000
    with steps_at_most(rounds * 1000):
        for _ in range(rounds):
            line_up((root,), 1, front=True)
            for pools in (inner, (root,), (root,)):
                slots.give_back(pools)
            assert slots.take((root,), nobody) is None


def test_many_runs_with_their_own_pool_return_in_few_steps() -> None:
    """20,000 parents with their own concurrency limit return as cheaply as others."""
    root = Pool(1)
    slots.take((root,), nobody)
    with steps_at_most(MANY * 200):
        places = [slots.take((Pool(2), root), nobody, front=True) for _ in range(MANY)]
        slots.give_back((root,))
        for place in places[:-1]:
            assert place
            slots.give_back(place.pools)
    assert all(place and place.granted for place in places)
