"""A run's wall clock: a hard end, a soft one before it, and time that does not count.

The last tenth of a run's time (at most 30 s) is kept for wrapping up. Children end a margin before
their parent's soft end, at every level, so they wrap up before it does.

A tree has one timer of the event loop (`Alarm`): hardly any end is ever met, so each must cost next to nothing.
"""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from heapq import heapify, heappop, heappush
from math import inf
from typing import Protocol

from remit.tasks.cancel import clock_of

MOST_KEPT_S = 30.0
MOST_MARGIN_S = 1.0
LONG_KEPT_S = MOST_KEPT_S * 10
LONG_MARGIN_S = MOST_MARGIN_S * 20
"""From where on no more than that is kept: what is less, in parts of the whole, is a tenth and a twentieth."""

EXACT_S = 2.0
"""How long before something is due the timer is set to just then."""
FEW = 64
"""So many that are not waited for any more are not worth looking for."""


class Timed(Protocol):
    """Something with a time at which it is to ring; `inf` is never."""

    at: float

    def ring(self) -> None: ...


class Alarm:
    """Rings everything in a tree that has a time. `at` is the time it looks next, at the latest when one is due.

    Most of what is set is done with long before its time. So it is only noted, sorted when the timer rings, and
    the timer rings early, half-way to what is next: what is set later and due before is then no reason to set it anew.
    Before `start` there is no timer at all: a tree that never waits does not let it ring, and needs none.
    """

    __slots__ = ("_context", "_kept", "_number", "_queue", "_timer", "at", "clock", "loop", "noted")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.clock = clock_of(loop)
        self._context = copy_context()
        self.noted: dict[Timed, None] = {}
        """Set, and not looked at since. Who is done with its time takes itself out, if it is still there."""
        self._queue: list[tuple[float, int, Timed]] = []
        """What was looked at. Who is done with it has another time than the one that is written here."""
        self._number = 0
        self._kept = 0
        """How long the queue was when those were last thrown out."""
        self._timer: asyncio.TimerHandle | None = None
        # Until it is started no time is before this one, so nothing arms it.
        self.at = -inf

    def start(self) -> None:
        """Ring from now on, also for what was set before."""
        self.at = inf
        first = min((one.at for one in self.noted), default=inf)
        if first < inf:
            self.arm(first)

    def set(self, one: Timed) -> None:
        """Have it ring at its time, in the order of the times, then of the setting."""
        self.noted[one] = None
        if one.at < self.at:
            self.arm(one.at)

    def drop(self, one: Timed) -> None:
        """It is not to ring."""
        one.at = inf
        self.noted.pop(one, None)

    def arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        left = at - self.clock()
        self.at = at if left <= EXACT_S else at - left / 2
        self._timer = self.loop.call_at(self.at, self._ring, context=self._context)

    def close(self) -> None:
        """Nothing that was set rings any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.at = inf
        self.noted.clear()
        self._queue.clear()

    def _ring(self) -> None:
        # The loop may be early by the resolution of its clock.
        due = max(self.at, self.clock())
        self._timer, self.at = None, inf
        self._sort()
        queue = self._queue
        try:
            while queue and queue[0][0] <= due:
                at, _, one = heappop(queue)
                if one.at == at:
                    one.at = inf
                    # What it sets anew is looked at the next time: others have a turn in between.
                    one.ring()
        finally:
            while queue and queue[0][2].at != queue[0][0]:
                heappop(queue)
            if queue and queue[0][0] < self.at:
                self.arm(queue[0][0])

    def _sort(self) -> None:
        queue = self._queue
        for one in self.noted:
            if one.at != inf:
                self._number += 1
                heappush(queue, (one.at, self._number, one))
        self.noted.clear()
        if len(queue) > 2 * self._kept + FEW:
            queue[:] = [entry for entry in queue if entry[2].at == entry[0]]
            heapify(queue)
            self._kept = len(queue)


class Owner(Protocol):
    """Whose time it is."""

    def soft_end(self) -> None: ...

    def hard_end(self) -> None: ...


class Deadline:
    """The time of one run. Its owner's `soft_end` is called at the soft end, `hard_end` at the hard one."""

    __slots__ = ("_alarm", "_owner", "_pauses", "_since", "at", "hard", "kept_s", "soft_met", "total_s")

    def __init__(
        self,
        alarm: Alarm,
        seconds: float | None,
        parent: Deadline | None,
        owner: Owner,
        elapsed_s: float = 0.0,
    ) -> None:
        clock = alarm.clock
        now = clock()
        left = inf if parent is None else parent.share()
        if seconds is not None and seconds - elapsed_s < left:
            left = seconds - elapsed_s
        if left < 0:
            left = 0.0
        total = left
        if elapsed_s:
            total = left + elapsed_s if seconds is None else min(seconds, left + elapsed_s)
        self.total_s = total
        """What it really has, `elapsed_s` of it behind it: the smaller of its own and its share of the parent's."""
        self.kept_s = kept = MOST_KEPT_S if total > LONG_KEPT_S else total / 10
        self.hard = hard = now + left
        self.at = at = hard - kept
        """When it rings next; `inf` is never."""
        self.soft_met = False
        self._pauses = 0
        self._alarm = alarm
        self._owner: Owner | None = owner
        alarm.noted[self] = None
        if at < alarm.at:
            alarm.arm(at)

    def left(self) -> float:
        """Seconds until the hard end; it stands still while somebody is asked."""
        clock = self._alarm.clock
        return self.hard - (self._since if self._pauses else clock())

    def soft_left(self) -> float:
        clock = self._alarm.clock
        return self.hard - (self._since if self._pauses else clock()) - self.kept_s

    def share(self) -> float:
        """Seconds that a child would have from now on: up to the soft end, less a margin."""
        left = self.soft_left()
        return left - (MOST_MARGIN_S if left > LONG_MARGIN_S else left / 20)

    def useful_left(self) -> float:
        """Seconds until a new child would have next to nothing, by the run's whole time: `share` shrinks and never ends."""
        total = self.total_s
        return self.soft_left() - (MOST_MARGIN_S if total > LONG_MARGIN_S else total / 20)

    def pause(self) -> None:
        """Stop the clock. Pauses of several askers count as long as any of them waits."""
        self._pauses += 1
        if self._pauses == 1:
            self._since = self._alarm.clock()
            self.at = inf

    def resume(self) -> None:
        self._pauses -= 1
        if self._pauses == 0:
            self.hard += self._alarm.clock() - self._since
            self._arm()

    def close(self) -> None:
        """Never ring again, also not after a pause that is still to end."""
        self.hard = self.at = inf
        # They are let go of at once: what only a garbage collector finds costs more than it looks.
        self._owner = None
        self._alarm.noted.pop(self, None)

    def look(self) -> None:
        """Ring at once if the time has come and the timer could not say so yet."""
        while self.at <= self._alarm.clock():
            self.at = inf
            self.ring()

    def ring(self) -> None:
        owner = self._owner
        if owner is None:
            return
        if self.soft_met:
            owner.hard_end()
            return
        self.soft_met = True
        self._arm()
        owner.soft_end()

    def _arm(self) -> None:
        if self.hard != inf:
            self.at = self.hard if self.soft_met else self.hard - self.kept_s
            self._alarm.set(self)
