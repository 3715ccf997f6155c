"""`Gate`: a semaphore for the whole process, shared by all its event loops and threads.

It limits commands and searches, which are processes. A waiting run is woken on its own event loop.
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
    """One holder or waiter of a gate; it waits until `granted`. Created by `Gate.enter`."""

    __slots__ = ("granted", "wake")

    def __init__(self, wake: Callable[[], object]) -> None:
        self.wake = wake
        """Called once, from any thread, when a waiter gets its place. Raises RuntimeError if its loop is closed."""
        self.granted = False


class Gate:
    """A fixed number of places; waiters get them in order. Methods may be called from any thread."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._clear()
        if hasattr(os, "register_at_fork"):
            # A forked process does not run its parent's commands, and the parent may hold the lock.
            os.register_at_fork(after_in_child=self._clear)

    def _clear(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._waiting: deque[Pass] = deque()

    @asynccontextmanager
    async def place(self, phase: Phase) -> AsyncGenerator[None, None]:
        """Wait in order for a place and hold it during the block. Raises Stopped."""
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
        """Take a place, or wait in order: `wake` is called when the place is granted."""
        made = Pass(wake)
        with self._lock:
            if self._inside < self.most:
                self._inside += 1
                made.granted = True
            else:
                self._waiting.append(made)
        return made

    def leave(self, left: Pass) -> None:
        """Give a place back, or stop waiting."""
        with self._lock:
            if not left.granted:
                self._waiting.remove(left)
                return
        while (following := self._next()) is not None:
            try:
                following.wake()
            except RuntimeError:
                # This waiter's event loop is closed: the next waiter gets the place.
                continue
            return

    def _next(self) -> Pass | None:
        """Pass a place to the first waiter, or free the place if there is none."""
        with self._lock:
            if not self._waiting:
                self._inside -= 1
                return None
            following = self._waiting.popleft()
            following.granted = True
            return following
