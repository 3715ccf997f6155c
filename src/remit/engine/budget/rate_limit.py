"""How many requests of a tree one model gets at once, learnt from the provider's rate-limit errors.

A lane starts with unlimited width, or with the model's `in_flight`. When the provider refuses a request for its rate, the
lane's width becomes the number of requests still in flight, and the lane closes for as long as the provider asked. The
tree's other requests wait in order instead of being refused too. The lane widens by one after a series of answers
without a refusal; after each refusal that follows a widening, the required series is twice as long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

STRETCH = 2
"""Answers per unit of width before the lane widens by one."""

LONGEST_STRETCH = 64

FIRST_WAIT_S = 0.25
MOST_WAIT_S = 60.0
"""How long a lane closes if every request is refused and the provider does not say how long to wait."""


class Place:
    """A request that waits for a lane. `wake` is called once `granted` is true."""

    __slots__ = ("gone", "granted", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake
        self.granted = False
        self.gone = False


class Lane:
    """The requests in flight to one model."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int | None) -> None:
        self._loop = loop
        self._most = most
        self.in_flight = 0
        self.width = most
        """How many requests may be in flight; None is unlimited."""
        self.was_closed = False
        """Whether a request was ever refused in this lane."""
        self.why = ""
        """The provider's last refusal message."""
        self._open_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._answers = 0
        """Since the lane was last widened or narrowed."""
        self._stretch = STRETCH
        self._widened = False
        self._refusals = 0
        """Since the last answer."""
        self._in_front: deque[Place] = deque()
        self._waiting: deque[Place] = deque()
        self._aside: deque[Place] = deque()
        """Places granted to runs that wait for a slot; a run with a slot may take such a place."""

    def stand_in_line(self, wake: Callable[[], None], *, front: bool) -> Place:
        """Wait for a place; with `front` (for last words), before ordinary requests."""
        place = Place(wake)
        (self._in_front if front else self._waiting).append(place)
        self._look()
        return place

    def step_in(self, front: bool) -> bool:
        """Take a place if one is free now."""
        if self.width is None:
            # The usual case: no request was ever refused, so none waits.
            self.in_flight += 1
            return True
        now = self._loop.time()
        if (self._waiting and not front) or self._in_front or not self._has_room(now):
            return self._take_over(now)
        self.in_flight += 1
        return True

    def lay_aside(self, place: Place) -> None:
        """Offer a granted place to other runs while its owner waits for a slot.

        Wakes all waiters, so that a run that holds a slot takes the place.
        """
        self._aside.append(place)
        self._send_away()

    def _send_away(self) -> None:
        waiting = [*self._in_front, *self._waiting]
        self._in_front.clear()
        self._waiting.clear()
        for place in waiting:
            if not place.gone:
                place.wake()

    def take_up(self, place: Place) -> bool:
        """Use a place that was laid aside; False if another run took it."""
        if place.granted:
            self._aside.remove(place)
        return place.granted

    def _take_over(self, now: float) -> bool:
        if not self._aside or now < self._open_at:
            return False
        self._aside.popleft().granted = False
        return True

    def opens_in(self) -> float:
        """Seconds until the lane opens; 0 if it is open."""
        return max(0.0, self._open_at - self._loop.time())

    def withdraw(self, place: Place) -> None:
        """Stop waiting, and give back a place granted meanwhile."""
        place.gone = True
        if place.granted:
            self.in_flight -= 1
            if self._aside and place in self._aside:
                self._aside.remove(place)
        self._look()

    def leave(self, answered: bool = True) -> None:
        """Free the place of a request that was not refused for its rate; only answers widen the lane."""
        self.in_flight -= 1
        width = self.width
        if width is None:
            # No request was ever refused, so none waits and there is nothing to learn.
            return
        if answered:
            self._answers += 1
            self._refusals = 0
            if self._answers >= width * self._stretch:
                self._answers = 0
                self.width = width + 1 if self._most is None else min(width + 1, self._most)
                self._widened = True
        if self._waiting or self._in_front:
            self._look()

    def refused(self, wait_s: float | None, why: str = "") -> None:
        """Close the lane for as long as the provider asked, and narrow it: a request was refused for its rate."""
        self.why = why
        if self._widened:
            self._widened = False
            self._stretch = min(LONGEST_STRETCH, self._stretch * 2)
        self.in_flight -= 1
        self._answers = 0
        self._refusals += 1
        working = max(1, self.in_flight)
        self.width = working if self.width is None else min(self.width, working)
        # With other requests in flight, one of them will make room; without, only time helps.
        alone = 0.0 if self.in_flight else min(MOST_WAIT_S, FIRST_WAIT_S * 2 ** min(self._refusals, 10))
        wait_s = wait_s or alone
        self._open_at = max(self._open_at, self._loop.time() + wait_s)
        self.was_closed = self._open_at > 0.0
        if wait_s > MOST_WAIT_S:
            # Too long to wait in line: wake the waiters, so that they consider another model.
            self._send_away()
        self._look()

    def _has_room(self, now: float) -> bool:
        return (self.width is None or self.in_flight < self.width) and now >= self._open_at

    def _look(self) -> None:
        """Admit the requests that fit; set a timer if the lane is closed."""
        if not self._waiting and not self._in_front:
            return
        # One clock read for both decisions: a lane that opens between two reads would admit no request and set no timer.
        now = self._loop.time()
        while queue := self._in_front or self._waiting:
            if queue[0].gone:
                queue.popleft()
                continue
            if not self._has_room(now):
                break
            place = queue.popleft()
            place.granted = True
            self.in_flight += 1
            place.wake()
        if queue and self._timer is None and now < self._open_at:
            self._timer = self._loop.call_at(self._open_at, self._opened)

    def _opened(self) -> None:
        self._timer = None
        self._look()
