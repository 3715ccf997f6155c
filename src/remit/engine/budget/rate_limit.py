"""How many requests of a tree one model gets at once, and how fast, learnt from what its provider refuses.

A lane begins wide open, or as wide as the model says (`in_flight`). When the provider refuses a request for
the rate, the lane becomes as narrow as what it was working on at that moment, and closed for as long as the
provider asked; everybody else of the tree waits in order instead of being refused too. It widens again by
one after a stretch without a refusal, and each time that was too early the next stretch is twice as long.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

STRETCH = 2
"""Answers per place of the lane before it is widened by one."""

LONGEST_STRETCH = 64

FIRST_WAIT_S = 0.25
MOST_WAIT_S = 60.0
"""How long a lane is closed in which everything is refused and the provider does not say for how long."""


class Place:
    """Somebody waiting for a lane. `wake` is called once `granted` is true."""

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
        """How many may be in flight; None is any number."""
        self.was_closed = False
        """Whether a request was ever refused in it."""
        self.why = ""
        """What the provider said when it last refused."""
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
        """Granted to runs that have no slot yet; a run with a slot may take such a place."""

    def stand_in_line(self, wake: Callable[[], None], *, front: bool) -> Place:
        """Wait for a place; what gives a last word stands in front."""
        place = Place(wake)
        (self._in_front if front else self._waiting).append(place)
        self._look()
        return place

    def step_in(self, front: bool) -> bool:
        """Take a place if one can be had now."""
        if self.width is None:
            # As most lanes are: nothing was ever refused, so nobody waits.
            self.in_flight += 1
            return True
        now = self._loop.time()
        if (self._waiting and not front) or self._in_front or not self._has_room(now):
            return self._take_over(now)
        self.in_flight += 1
        return True

    def lay_aside(self, place: Place) -> None:
        """Leave a place that was granted to whoever can use it first: its owner still waits for a slot.

        Whoever stands in line is sent to wait for a slot too: who has one takes it, so that it never goes round among
        those who have none.
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
        """Use a place that was laid aside; False when somebody else does."""
        if place.granted:
            self._aside.remove(place)
        return place.granted

    def _take_over(self, now: float) -> bool:
        if not self._aside or now < self._open_at:
            return False
        self._aside.popleft().granted = False
        return True

    def opens_in(self) -> float:
        """Seconds until anybody is let in; 0 when it is open."""
        return max(0.0, self._open_at - self._loop.time())

    def withdraw(self, place: Place) -> None:
        """Stop waiting; a place that was given meanwhile goes back."""
        place.gone = True
        if place.granted:
            self.in_flight -= 1
            if self._aside and place in self._aside:
                self._aside.remove(place)
        self._look()

    def leave(self, answered: bool = True) -> None:
        """A request has ended, and it was not refused for the rate; only one that was answered says that there is room."""
        self.in_flight -= 1
        width = self.width
        if width is None:
            # Nothing was ever refused, so nobody waits and there is nothing to learn.
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
        """A request was refused for the rate: nobody is sent for as long as was asked, and fewer at once after that."""
        self.why = why
        if self._widened:
            self._widened = False
            self._stretch = min(LONGEST_STRETCH, self._stretch * 2)
        self.in_flight -= 1
        self._answers = 0
        self._refusals += 1
        working = max(1, self.in_flight)
        self.width = working if self.width is None else min(self.width, working)
        # With others in flight one of them makes room; with none, only time does.
        alone = 0.0 if self.in_flight else min(MOST_WAIT_S, FIRST_WAIT_S * 2 ** min(self._refusals, 10))
        wait_s = wait_s or alone
        self._open_at = max(self._open_at, self._loop.time() + wait_s)
        self.was_closed = self._open_at > 0.0
        if wait_s > MOST_WAIT_S:
            # Too long to stand in line: whoever waits looks again at what else it can do.
            self._send_away()
        self._look()

    def _has_room(self, now: float) -> bool:
        return (self.width is None or self.in_flight < self.width) and now >= self._open_at

    def _look(self) -> None:
        """Let in whoever may go; come back when the lane opens."""
        if not self._waiting and not self._in_front:
            return
        # One read for both decisions: a lane that opened between two reads would let nobody in and set no timer.
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
