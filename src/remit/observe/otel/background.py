"""One daemon thread that ends spans and records metrics, in order.

Ending a span may run an exporter, and exporters can hang. `tasks/threads.py` is not used: its jobs report to an event
loop, which costs more than the span itself.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections import deque
from collections.abc import Callable

log = logging.getLogger("remit")

MOST_WAITING = 20_000
"""The longest queue for the thread. More work is dropped: an exporter hangs, and memory is limited."""

FLUSH_S = 1.0
"""How long the end of a tree waits for the thread."""

EXIT_S = 5.0
"""How long the end of the process waits for the thread."""

LINGER_S = 0.05
"""How long the thread lets work collect: waking it for every span costs more than the span."""


class Background:
    """A queue of work for the thread, which starts with the first work. Nothing here raises."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Reset in a forked process: the thread does not exist there, and a lock may be held."""
        self._lock = threading.Lock()
        self._waiting: deque[Callable[[], object]] = deque()
        self._some = threading.Event()
        """Set when there is work. Cleared before the work is taken, so that later work sets it again."""
        self._hurry = threading.Event()
        """Set when `flush` waits for the thread."""
        self._started = False
        self._stuck = False
        """Whether a flush timed out and no work has finished since."""
        self._dropped = 0
        self._failed = 0

    def put(self, work: Callable[[], object]) -> None:
        if len(self._waiting) >= MOST_WAITING:
            self._drop()
            return
        self._waiting.append(work)
        if not self._some.is_set():
            self._some.set()
            if not self._started:
                self._start()

    def flush(self, seconds: float) -> bool:
        """Wait until all work put so far is done; returns whether it is. Does not wait for a thread known to hang."""
        if not self._started:
            return True
        if self._stuck:
            return False
        done = threading.Event()
        self._waiting.append(done.set)
        self._hurry.set()
        self._some.set()
        if not done.wait(seconds):
            self._stuck = True
            log.warning(
                "traces: %s spans and metrics were not exported within %g s", len(self._waiting), seconds
            )
        return done.is_set()

    def fail(self, what: str, error: BaseException) -> None:
        """Log the first failure only: the others would say the same."""
        self._failed += 1
        if self._failed == 1:
            log.warning("traces: %s failed; runs are not affected", what, exc_info=error)

    def _start(self) -> None:
        with self._lock:
            if self._started:
                return
            self._started = True
        own = self._waiting, self._some, self._hurry
        threading.Thread(target=self._work, args=own, name="remit-traces", daemon=True).start()
        # Registered now, so that it runs before the shutdown of a provider created before the first span.
        atexit.register(self.flush, EXIT_S)

    def _work(
        self, waiting: deque[Callable[[], object]], some: threading.Event, hurry: threading.Event
    ) -> None:
        while True:
            some.wait()
            hurry.wait(LINGER_S)
            hurry.clear()
            some.clear()
            while waiting:
                self._do(waiting.popleft())

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - a provider or an exporter is broken; the thread must continue
            self.fail("a provider or an exporter", error)
        self._stuck = False

    def _drop(self) -> None:
        self._dropped += 1
        if self._dropped == 1:
            log.warning("traces: the exporter hangs, so spans are dropped; runs are not affected")


background = Background()
"""Shared by all trees of the process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=background.clear)
