"""Which ordinary calls of a turn execute and which wait: `Limits(calls_at_once=...)`.

One queue for each turn. A call has a place from its start to its end, except while it only waits for a person or a child.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable

from remit.tasks.cancel import Phase, Stopped, wake


class CallQueue:
    """The places of one turn. Everything here is called on the loop's thread."""

    __slots__ = ("_free", "_returning", "_waiting")

    def __init__(self, most: float) -> None:
        self._free = most
        self._waiting: deque[Callable[[], None]] = deque()
        self._returning: deque[Callable[[], None]] = deque()
        """Calls that have begun and want their place back: they come before those that have not begun."""

    def enter(self, start: Callable[[], None]) -> None:
        """Start a call when there is a place for it: at once, or after the calls before it."""
        if self._free > 0:
            self._free -= 1
            start()
        else:
            self._waiting.append(start)

    def leave(self) -> None:
        """A call has ended, or only waits for somebody else from now on: the next one has its place."""
        queue = self._returning or self._waiting
        if queue:
            queue.popleft()()
        else:
            self._free += 1

    async def come_back(self, phase: Phase) -> None:
        """A call that left goes on, with a place again. Raises Stopped; the call then counts as having one."""
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
        """A call that left counts again without waiting: it is about to end."""
        self._free -= 1

    def drop(self) -> int:
        """Start none of the calls that wait; how many there were."""
        dropped = len(self._waiting)
        self._waiting.clear()
        return dropped
