"""At most N runs of a tree work at once: pools of slots, and a queue in order. Pure: no tasks, no clock.

A pool belongs to a run with a `concurrency` limit and holds for it and everything below. A run needs
a slot in every pool above it, at once or not at all. A run that waits gives its slots back, so N = 1
finishes any tree.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

_orders = count()


class Pool:
    """`size` slots and those waiting for one."""

    __slots__ = ("size", "waiting", "working")

    def __init__(self, size: int) -> None:
        self.size = size
        self.working = 0
        self.waiting: list[Place] = []


class Place:
    """Somebody waiting for a slot in each of `pools`. `wake` is called once `granted` is true."""

    __slots__ = ("at", "granted", "order", "pools", "wake")

    def __init__(self, pools: tuple[Pool, ...], *, front: bool, wake: Callable[[], None]) -> None:
        self.pools = pools
        self.wake = wake
        self.order = (0 if front else 1, next(_orders))
        self.granted = False
        self.at: Pool | None = None

    def __lt__(self, other: Place) -> bool:
        return self.order < other.order


def take(pools: tuple[Pool, ...], wake: Callable[[], None], *, front: bool = False) -> Place | None:
    """Take a slot in every pool and return None, or wait for them: at the front for who comes back."""
    if not pools:
        return None
    place = Place(pools, front=front, wake=wake)
    full = _grant_or_blocker(place)
    if full is None:
        return None
    _wait_at(place, full)
    _check(full)
    return place


def is_full(pools: tuple[Pool, ...]) -> bool:
    """Whether somebody new would have to wait."""
    return any(p.working >= p.size or p.waiting for p in pools)


def give_back(pools: tuple[Pool, ...]) -> None:
    """Return a slot to every pool, and let the next ones in."""
    for p in pools:
        p.working -= 1
    for p in pools:
        _serve(p)


def leave(place: Place) -> None:
    """Stop waiting; slots granted in the meantime go back."""
    if place.granted:
        give_back(place.pools)
        return
    if place.at is not None and place in place.at.waiting:
        place.at.waiting.remove(place)
        heapq.heapify(place.at.waiting)
        _serve(place.at)


def _grant_or_blocker(place: Place) -> Pool | None:
    for p in place.pools:
        if p.working >= p.size or (p.waiting and p.waiting[0].order < place.order):
            return p
    for p in place.pools:
        p.working += 1
    return None


def _wait_at(place: Place, pool: Pool) -> None:
    place.at = pool
    heapq.heappush(pool.waiting, place)


def _serve(pool: Pool) -> None:
    """Let in as many as fit; one blocked by another pool waits there, and does not block those behind it here."""
    while pool.waiting and pool.working < pool.size:
        place = heapq.heappop(pool.waiting)
        full = _grant_or_blocker(place)
        if full is None:
            place.granted = True
            place.wake()
        else:
            _wait_at(place, full)
    _check(pool)


def _check(pool: Pool) -> None:
    # A queue in front of a pool where nobody works would never move again.
    assert not pool.waiting or pool.working >= pool.size, "remit: slots are free and somebody waits for them"
