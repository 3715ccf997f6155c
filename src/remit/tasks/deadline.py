"""Deadlines of runs: a hard end, a soft end before it, and pauses that do not count.

The last tenth of a run's time (at most 30 s) is kept for the wrap-up. At every level, children end a margin before
their parent's soft end, so that they wrap up before the parent does.

A tree uses one timer of the event loop (`Alarm`): few deadlines are ever reached, so each must cost almost nothing.
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
"""Below these times, a tenth is kept for the wrap-up and a twentieth is the margin; above, the maximum."""

EXACT_S = 2.0
"""A timer is set to the exact time only if that is at most this far away."""
FEW = 64
"""The queue is not cleaned up for fewer obsolete entries than this."""


class Timed(Protocol):
    """An object to be called at a time; `inf`: never."""

    at: float

    def ring(self) -> None: ...


class Alarm:
    """Calls `ring` of every timed object of a tree at its time. `at` is when the timer of the event loop fires next.

    Most objects are dropped long before their time. So setting one only notes it, and noted objects are sorted when the
    timer fires. The timer fires half-way to the next due time, so that an earlier time set meanwhile seldom needs a new
    timer. There is no timer before `start`: a tree that never waits would never let it fire.
    """

    __slots__ = ("_context", "_kept", "_number", "_queue", "_timer", "at", "clock", "loop", "noted")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.clock = clock_of(loop)
        self._context = copy_context()
        self.noted: dict[Timed, None] = {}
        """Set since the timer last fired. `drop` removes an object from here."""
        self._queue: list[tuple[float, int, Timed]] = []
        """Sorted by time. An entry is obsolete if its object's `at` differs from the time here."""
        self._number = 0
        self._kept = 0
        """Length of the queue after obsolete entries were last removed."""
        self._timer: asyncio.TimerHandle | None = None
        # Before start(), no time is earlier than this, so nothing arms the timer.
        self.at = -inf

    def start(self) -> None:
        """Use a timer from now on, also for objects set before."""
        self.at = inf
        first = min((one.at for one in self.noted), default=inf)
        if first < inf:
            self.arm(first)

    def set(self, one: Timed) -> None:
        """Ring the object at its time; objects with equal times ring in the order they were set."""
        self.noted[one] = None
        if one.at < self.at:
            self.arm(one.at)

    def drop(self, one: Timed) -> None:
        """Do not ring the object."""
        one.at = inf
        self.noted.pop(one, None)

    def arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        left = at - self.clock()
        self.at = at if left <= EXACT_S else at - left / 2
        self._timer = self.loop.call_at(self.at, self._ring, context=self._context)

    def close(self) -> None:
        """Ring no object any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.at = inf
        self.noted.clear()
        self._queue.clear()

    def _ring(self) -> None:
        # The loop may fire early by the resolution of its clock.
        due = max(self.at, self.clock())
        self._timer, self.at = None, inf
        self._sort()
        queue = self._queue
        try:
            while queue and queue[0][0] <= due:
                at, _, one = heappop(queue)
                if one.at == at:
                    one.at = inf
                    # Objects that ring() sets again wait for the next firing, so that other code can run in between.
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
    """The owner of a deadline."""

    def soft_end(self) -> None: ...

    def hard_end(self) -> None: ...


class Deadline:
    """The deadline of one run. Calls the owner's `soft_end` at the soft end and `hard_end` at the hard end."""

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
        """The run's total time, including `elapsed_s`: its own limit or its share of the parent's time, if smaller."""
        self.kept_s = kept = MOST_KEPT_S if total > LONG_KEPT_S else total / 10
        self.hard = hard = now + left
        self.at = at = hard - kept
        """When the alarm rings this deadline next; `inf`: never."""
        self.soft_met = False
        self._pauses = 0
        self._alarm = alarm
        self._owner: Owner | None = owner
        alarm.noted[self] = None
        if at < alarm.at:
            alarm.arm(at)

    def left(self) -> float:
        """Seconds until the hard end; does not change during a pause."""
        clock = self._alarm.clock
        return self.hard - (self._since if self._pauses else clock())

    def soft_left(self) -> float:
        clock = self._alarm.clock
        return self.hard - (self._since if self._pauses else clock()) - self.kept_s

    def share(self) -> float:
        """Seconds that a child started now would have: until the soft end, minus a margin."""
        left = self.soft_left()
        return left - (MOST_MARGIN_S if left > LONG_MARGIN_S else left / 20)

    def useful_left(self) -> float:
        """Seconds until a new child would have next to nothing, by the run's whole time: `share` shrinks and never ends."""
        total = self.total_s
        return self.soft_left() - (MOST_MARGIN_S if total > LONG_MARGIN_S else total / 20)

    def pause(self) -> None:
        """Stop the clock until every `pause` has had its `resume`."""
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
        """Never ring again, not even after the end of a pause."""
        self.hard = self.at = inf
        # Breaks a reference cycle: objects that only the garbage collector can free are expensive.
        self._owner = None
        self._alarm.noted.pop(self, None)

    def look(self) -> None:
        """Ring now if the time has come and the timer has not fired yet."""
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
