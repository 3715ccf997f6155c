"""At most so many things of one kind at once in this process, whatever event loop they run on.

For what a machine has few of: commands and searches are processes. A run that waits at a gate is woken on its own loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from remit.tasks.cancel import Phase, wake


class Pass:
    """One thing at a gate: it waits until `granted`. Made by `Gate.enter`."""

    __slots__ = ("granted", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        """Called once, from any thread, when a place is granted later. Raises RuntimeError if its loop is closed."""
        self.granted = False


class Gate:
    """Places for things of one kind; who finds none waits in order. Methods may be called from any thread."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._clear()
        if hasattr(os, "register_at_fork"):
            # A forked process starts with none of its parent's commands, and the lock may be held in the parent.
            os.register_at_fork(after_in_child=self._clear)

    def _clear(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._waiting: deque[Pass] = deque()

    @asynccontextmanager
    async def place(self, phase: Phase) -> AsyncGenerator[None, None]:
        """Wait in order for a place, and have it as long as the block takes. Raises Stopped."""
        loop = phase.loop
        future: asyncio.Future[None] = loop.create_future()
        held = self.enter(lambda: loop.call_soon_threadsafe(wake, future))
        try:
            if not held.granted:
                await phase.wait(future)
            yield
        finally:
            self.leave(held)

    def enter(self, wake: Callable[[], object]) -> Pass:
        """Take a place, or wait for one in order: `wake` is called when it is granted."""
        made = Pass(wake)
        with self._lock:
            if self._inside < self.most:
                self._inside += 1
                made.granted = True
            else:
                self._waiting.append(made)
        return made

    def leave(self, left: Pass) -> None:
        """Give a place back, or stop waiting for one."""
        with self._lock:
            if not left.granted:
                self._waiting.remove(left)
                return
        while (following := self._next()) is not None:
            try:
                following.wake()
            except RuntimeError:
                # Its event loop is closed, so nobody waits there any more: the place goes to the next.
                continue
            return

    def _next(self) -> Pass | None:
        """Hand a place on to the first that waits; without one the place is free."""
        with self._lock:
            if not self._waiting:
                self._inside -= 1
                return None
            following = self._waiting.popleft()
            following.granted = True
            return following
