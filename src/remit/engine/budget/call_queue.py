"""Which ordinary calls of a turn run and which wait: `Limits(calls_at_once=...)`.

One queue per turn. A call holds a place from its start to its end, except while it waits for a person or a child.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable

from remit.tasks.cancel import Phase, Stopped, wake


class CallQueue:
    """The places of one turn. Use it only on the event loop's thread."""

    __slots__ = ("_free", "_returning", "_waiting")

    def __init__(self, most: float) -> None:
        self._free = most
        self._waiting: deque[Callable[[], None]] = deque()
        self._returning: deque[Callable[[], None]] = deque()
        """Calls that have begun and want their place back; they come before calls that have not begun."""

    def enter(self, start: Callable[[], None]) -> None:
        """Start a call when a place is free: at once, or after the calls before it."""
        if self._free > 0:
            self._free -= 1
            start()
        else:
            self._waiting.append(start)

    def leave(self) -> None:
        """Free a place, because a call has ended or only waits; the next call gets the place."""
        queue = self._returning or self._waiting
        if queue:
            queue.popleft()()
        else:
            self._free += 1

    async def come_back(self, phase: Phase) -> None:
        """Take a place again for a call that left. Raises Stopped; the call then counts as having a place."""
        if self._free > 0:
            self._free -= 1
            return
        future = phase.loop.create_future()
        start = functools.partial(wake, future)
        self._returning.append(start)
        try:
            await phase.wait(future)
        except Stopped:
            if start in self._returning:
                self._returning.remove(start)
                self.count()
            raise

    def count(self) -> None:
        """Count a call again that left, without waiting: the call is about to end."""
        self._free -= 1

    def drop(self) -> int:
        """Drop the calls that wait; returns how many there were."""
        dropped = len(self._waiting)
        self._waiting.clear()
        return dropped
