"""At most N runs of a tree work at once: pools of slots, queues in order, and `Seat`: the slots of one run.

A pool belongs to a run with a `concurrency` limit and holds for it and everything below. A run needs
a slot in every pool above it, at once or not at all. A run that waits gives its slots back, so N = 1
finishes any tree.

Those who need the same pools stand in one queue. Somebody blocked by a full pool is overtaken only by
those who do not need that pool.
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
        """Queues by their first place. In the outermost pool: those that no inner pool is known to block."""
        self.queues: dict[tuple[Pool, ...], Queue] = {}
        """In the outermost pool only: all queues of the tree, by what they wait for."""
        self.waiting = 0
        """In the outermost pool only: how many wait in the tree."""


class Place:
    """Somebody waiting for a slot in each of `pools`. `wake` is called once `granted` is true."""

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
    """Places that wait for the same pools. It is parked at one pool, under its first place's order."""

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
        """Stand at this pool. An entry left elsewhere, or under another key, no longer counts."""
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
    """Take a slot in every pool and return None, or wait for them: at the front for who comes back."""
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
    """Whether somebody new would have to wait. Those who wait already wait for a full pool, so they need no look."""
    return any(p.working >= p.size for p in pools)


def waiting(pools: tuple[Pool, ...]) -> int:
    """How many wait in the tree that these pools belong to."""
    return pools[-1].waiting if pools else 0


def give_back(pools: tuple[Pool, ...]) -> None:
    """Return a slot to every pool, and let the next ones in."""
    for p in pools:
        p.working -= 1
        if p.waiting:
            # This is the outermost, and so the last of them.
            _unpark(pools)
            _serve(p)


def leave(place: Place) -> None:
    """Stop waiting; slots granted in the meantime go back."""
    if place.granted:
        give_back(place.pools)
    elif not place.gone:
        top = place.pools[-1]
        queue = top.queues[place.pools]
        first = queue.first() is place
        # It stays in the heap until it comes to the front: a thousand leaving at once stay cheap.
        place.gone = True
        top.waiting -= 1
        if first:
            queue.park(_blocker(place.pools))
            _unpark(place.pools)
            _serve(top)


def _serve(top: Pool) -> None:
    """Let in whoever fits, in order, until the outermost pool is full or nobody fits."""
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
    # A queue in front of pools where nobody works would never move again.
    assert not top.waiting or top.working, "remit: runs wait for a slot and none is working"


def _next(pool: Pool) -> Queue | None:
    """Take the first queue that stands here; entries that no longer count are dropped on the way."""
    while pool.parked:
        key, queue = heapq.heappop(pool.parked)
        if queue.at is not pool or queue.key != key:
            continue
        first = queue.first()
        if first is not None and first.order == key:
            return queue
        # Who was first has left; who is first now has a later turn.
        queue.park(pool)
        if pool is queue.pools[-1]:
            _unpark(queue.pools)
    return None


def _unpark(pools: tuple[Pool, ...]) -> None:
    """From each inner pool with room, one queue goes to the outermost, to be served in its turn; more follow it."""
    top = pools[-1]
    for p in pools[:-1]:
        while p.working < p.size and (queue := _next(p)):
            queue.park(top)
            if queue.at is not None:
                break


def _blocker(pools: tuple[Pool, ...]) -> Pool:
    """The inner pool that is full, or the outermost."""
    return next((p for p in pools[:-1] if p.working >= p.size), pools[-1])


async def wait_for(pools: tuple[Pool, ...], phase: Phase, *, front: bool = False) -> None:
    """Wait in order for a slot in every pool. Raises Stopped; then nothing is held."""
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
    """The slots of one run, and how many of its own things are in flight."""

    __slots__ = ("_coming_back", "held", "pools", "queue", "work")

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        self.pools = pools
        self.held = True
        self.work = 1
        self.queue: CallQueue | None = None
        """Of the ordinary calls of this turn, while there are several."""
        self._coming_back: list[asyncio.Future[None]] | None = None
        """While it waits for its slots: who else wants to go on with them."""

    def leave(self) -> None:
        """One thing less in flight; the last one out gives the slots back."""
        self.work = work = self.work - 1
        if not work and self.held:
            self.held = False
            give_back(self.pools)

    def count(self) -> None:
        """Count a thing as in flight again that left, without a slot: it is only about to end."""
        self.work += 1

    async def enter(self, phase: Phase) -> None:
        """One thing more in flight. Raises Stopped; it then counts as in flight all the same."""
        if not self.enter_at_once():
            await self.come_back(phase)

    def enter_at_once(self) -> bool:
        """One thing more in flight. False: it has still to `come_back`."""
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
        """After a stop, whatever was in flight: only the run itself is, from now on."""
        self.work = 1
        if not self.held:
            await self.come_back(phase)

    def close(self) -> None:
        """The run has ended: whatever it held goes back."""
        self.work = 0
        if self.held:
            self.held = False
            give_back(self.pools)
