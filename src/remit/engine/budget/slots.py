"""At most N runs of a tree work at once: pools of slots, ordered queues, and `Seat`, the slots of one run.

A pool belongs to a run with a `concurrency` limit and covers that run and everything below it. A run needs a slot in every
pool above it, all at once. A run that waits gives its slots back, so any tree can finish with N = 1.

Runs that need the same pools share one queue. A run blocked by a full pool is overtaken only by runs that do not need
that pool.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from remit.engine.budget.call_queue import CallQueue
from remit.tasks.cancel import Phase, Stopped, wake

_orders = count()

Order = tuple[int, int]


class Pool:
    """`size` slots, and the queues that wait for one of them."""

    __slots__ = ("parked", "queues", "size", "waiting", "working")

    def __init__(self, size: int, *, working: int = 0) -> None:
        self.size = size
        self.working = working
        self.parked: list[tuple[Order, Queue]] = []
        """Queues by their first place. In the outermost pool: the queues not known to be blocked by an inner pool."""
        self.queues: dict[tuple[Pool, ...], Queue] = {}
        """In the outermost pool only: all queues of the tree, by the pools they wait for."""
        self.waiting = 0
        """In the outermost pool only: how many runs of the tree wait."""


class Place:
    """A run that waits for a slot in each of `pools`. `wake` is called once `granted` is true."""

    __slots__ = ("gone", "granted", "order", "pools", "wake")

    def __init__(self, pools: tuple[Pool, ...], *, front: bool, wake: Callable[[], None]) -> None:
        self.pools = pools
        self.wake = wake
        self.order: Order = (0 if front else 1, next(_orders))
        self.granted = False
        self.gone = False

    def __lt__(self, other: Place) -> bool:
        return self.order < other.order


class Queue:
    """Places that wait for the same pools. The queue is parked at one pool, under its first place's order."""

    __slots__ = ("at", "key", "places", "pools")

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        self.pools = pools
        self.places: list[Place] = []
        self.at: Pool | None = None
        self.key: Order = (0, 0)

    def first(self) -> Place | None:
        while self.places and self.places[0].gone:
            heapq.heappop(self.places)
        return self.places[0] if self.places else None

    def park(self, pool: Pool) -> None:
        """Park at this pool. An entry at another pool, or under another key, no longer counts."""
        first = self.first()
        if first is None:
            self.at = None
            self.pools[-1].queues.pop(self.pools, None)
        else:
            self.at, self.key = pool, first.order
            heapq.heappush(pool.parked, (self.key, self))

    def __lt__(self, other: Queue) -> bool:
        return self.key < other.key


def take(pools: tuple[Pool, ...], wake: Callable[[], None], *, front: bool = False) -> Place | None:
    """Take a slot in every pool and return None, or wait for them: with `front`, before other runs."""
    if step_in(pools):
        return None
    place = Place(pools, front=front, wake=wake)
    top = pools[-1]
    queue = top.queues.get(pools)
    if queue is None:
        queue = top.queues[pools] = Queue(pools)
    heapq.heappush(queue.places, place)
    top.waiting += 1
    if queue.first() is place:
        queue.park(_blocker(pools))
    return place


def step_in(pools: tuple[Pool, ...]) -> bool:
    """Take a slot in every pool if none of them is full."""
    for p in pools:
        if p.working >= p.size:
            return False
    for p in pools:
        p.working += 1
    return True


def is_full(pools: tuple[Pool, ...]) -> bool:
    """Whether a new run would have to wait. Runs that wait already do so for a full pool, so the pools tell."""
    return any(p.working >= p.size for p in pools)


def waiting(pools: tuple[Pool, ...]) -> int:
    """How many runs wait in the tree that these pools belong to."""
    return pools[-1].waiting if pools else 0


def give_back(pools: tuple[Pool, ...]) -> None:
    """Return a slot to every pool, and admit the next runs."""
    for p in pools:
        p.working -= 1
        if p.waiting:
            # Only the outermost pool counts `waiting`, and it is the last in the tuple.
            _unpark(pools)
            _serve(p)


def leave(place: Place) -> None:
    """Stop waiting, and give back slots granted meanwhile."""
    if place.granted:
        give_back(place.pools)
    elif not place.gone:
        top = place.pools[-1]
        queue = top.queues[place.pools]
        first = queue.first() is place
        # The place stays in the heap until it comes to the front, so that a thousand can leave cheaply.
        place.gone = True
        top.waiting -= 1
        if first:
            queue.park(_blocker(place.pools))
            _unpark(place.pools)
            _serve(top)


def _serve(top: Pool) -> None:
    """Admit every run that fits, in order, until the outermost pool is full."""
    while top.waiting and top.working < top.size and (queue := _next(top)):
        place, blocker = queue.first(), _blocker(queue.pools)
        if place is not None and blocker is top:
            heapq.heappop(queue.places)
            top.waiting -= 1
            for p in queue.pools:
                p.working += 1
            place.granted = True
            place.wake()
        queue.park(blocker)
        _unpark(queue.pools)
    # A queue in front of idle pools would never move again.
    assert not top.waiting or top.working, "remit: runs wait for a slot and none is working"


def _next(pool: Pool) -> Queue | None:
    """Take the first queue parked here; drops entries that no longer count."""
    while pool.parked:
        key, queue = heapq.heappop(pool.parked)
        if queue.at is not pool or queue.key != key:
            continue
        first = queue.first()
        if first is not None and first.order == key:
            return queue
        # The first place has left, and the next one has a later turn.
        queue.park(pool)
        if pool is queue.pools[-1]:
            _unpark(queue.pools)
    return None


def _unpark(pools: tuple[Pool, ...]) -> None:
    """Move one queue from each inner pool with room to the outermost pool, where it is served in order."""
    top = pools[-1]
    for p in pools[:-1]:
        while p.working < p.size and (queue := _next(p)):
            queue.park(top)
            if queue.at is not None:
                break


def _blocker(pools: tuple[Pool, ...]) -> Pool:
    """The first full inner pool, or the outermost pool."""
    return next((p for p in pools[:-1] if p.working >= p.size), pools[-1])


async def wait_for(pools: tuple[Pool, ...], phase: Phase, *, front: bool = False) -> None:
    """Wait in order for a slot in every pool. Raises Stopped; then no slot is held."""
    if step_in(pools):
        return
    future: asyncio.Future[None] = phase.loop.create_future()
    place = take(pools, lambda: wake(future), front=front)
    if place is None:
        return
    try:
        await phase.wait(future)
    except Stopped:
        leave(place)
        raise


class Seat:
    """The slots of one run, and how many of its activities (turns, calls) are in flight."""

    __slots__ = ("_coming_back", "held", "pools", "queue", "work")

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        self.pools = pools
        self.held = True
        self.work = 1
        self.queue: CallQueue | None = None
        """The queue of this turn's ordinary calls, if there are several."""
        self._coming_back: list[asyncio.Future[None]] | None = None
        """While the run waits for its slots: other activities that wait for the same slots."""

    def leave(self) -> None:
        """One activity less; the last one gives the slots back."""
        self.work = work = self.work - 1
        if not work and self.held:
            self.held = False
            give_back(self.pools)

    def count(self) -> None:
        """Count an activity that left as in flight again, without a slot: it is about to end."""
        self.work += 1

    async def enter(self, phase: Phase) -> None:
        """One activity more. Raises Stopped; the activity then still counts as in flight."""
        if not self.enter_at_once():
            await self.come_back(phase)

    def enter_at_once(self) -> bool:
        """One activity more. If this returns False, call `come_back` next."""
        self.work += 1
        if not self.held and self._coming_back is None:
            self.held = step_in(self.pools)
        return self.held

    async def come_back(self, phase: Phase) -> None:
        """Wait for the slots, at the front of the queue. Raises Stopped."""
        if self._coming_back is not None:
            future: asyncio.Future[None] = phase.loop.create_future()
            self._coming_back.append(future)
            await phase.wait(future)
            return
        self._coming_back = []
        try:
            await wait_for(self.pools, phase, front=True)
            self.held = True
        finally:
            for future in self._coming_back:
                wake(future)
            self._coming_back = None

    async def return_to_one(self, phase: Phase) -> None:
        """After a stop, only the run itself counts as in flight."""
        self.work = 1
        if not self.held:
            await self.come_back(phase)

    def close(self) -> None:
        """The run has ended: give back the slots it held."""
        self.work = 0
        if self.held:
            self.held = False
            give_back(self.pools)
