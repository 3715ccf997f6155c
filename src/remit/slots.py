"""At most N runs of a tree work at once: pools of slots, and queues in order. Pure: no tasks, no clock.

A pool belongs to a run with a `concurrency` limit and holds for it and everything below. A run needs
a slot in every pool above it, at once or not at all. A run that waits gives its slots back, so N = 1
finishes any tree.

Those who need the same pools stand in one queue. Somebody blocked by a full pool is overtaken only by
those who do not need that pool.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

_orders = count()


class Pool:
    """`size` slots. The outermost pool of a tree also keeps the queues for all the pools below it."""

    __slots__ = ("queues", "size", "waiting", "working")

    def __init__(self, size: int) -> None:
        self.size = size
        self.working = 0
        self.queues: dict[tuple[Pool, ...], list[Place]] = {}
        self.waiting = 0
        """How many wait in the queues."""


class Place:
    """Somebody waiting for a slot in each of `pools`. `wake` is called once `granted` is true."""

    __slots__ = ("gone", "granted", "order", "pools", "wake")

    def __init__(self, pools: tuple[Pool, ...], *, front: bool, wake: Callable[[], None]) -> None:
        self.pools = pools
        self.wake = wake
        self.order = (0 if front else 1, next(_orders))
        self.granted = False
        self.gone = False

    def __lt__(self, other: Place) -> bool:
        return self.order < other.order


def take(pools: tuple[Pool, ...], wake: Callable[[], None], *, front: bool = False) -> Place | None:
    """Take a slot in every pool and return None, or wait for them: at the front for who comes back."""
    if not is_full(pools):
        for p in pools:
            p.working += 1
        return None
    place = Place(pools, front=front, wake=wake)
    top = pools[-1]
    heapq.heappush(top.queues.setdefault(pools, []), place)
    top.waiting += 1
    return place


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
    if pools:
        _serve(pools[-1])


def leave(place: Place) -> None:
    """Stop waiting; slots granted in the meantime go back."""
    if place.granted:
        give_back(place.pools)
    elif not place.gone:
        # It stays in the heap until it comes to the front: a thousand leaving at once stay cheap.
        place.gone = True
        place.pools[-1].waiting -= 1


def _serve(top: Pool) -> None:
    """Let in whoever fits, in order, until nobody at the head of a queue does."""
    while top.waiting and top.working < top.size:
        place = _first_that_fits(top)
        if place is None:
            break
        heapq.heappop(top.queues[place.pools])
        top.waiting -= 1
        for p in place.pools:
            p.working += 1
        place.granted = True
        place.wake()
    if not top.waiting:
        top.queues.clear()
    # A queue in front of pools where nobody works would never move again.
    assert not top.waiting or top.working, "remit: runs wait for a slot and none is working"


def _first_that_fits(top: Pool) -> Place | None:
    first: Place | None = None
    empty: list[tuple[Pool, ...]] = []
    for pools, queue in top.queues.items():
        while queue and queue[0].gone:
            heapq.heappop(queue)
        if not queue:
            empty.append(pools)
        elif (first is None or queue[0] < first) and not is_full(pools):
            first = queue[0]
    for pools in empty:
        del top.queues[pools]
    return first
