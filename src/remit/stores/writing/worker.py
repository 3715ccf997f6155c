"""`Worker`: a daemon thread that works for event loops. It sleeps, is woken, and answers through promises.

The thread calls its owner's `turn` whenever there may be work.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from remit.errors import StoreError

T = TypeVar("T")

MOST_LINGER = 5
"""How many times longer than `linger_s` a busy thread may wait for more work."""


class Promise(Generic[T]):
    """A result that a thread will deliver to a loop. Its future never has an exception, which may stay unretrieved."""

    __slots__ = ("error", "future", "loop", "value")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.value: T | None = None
        self.error: Exception | None = None

    def done(self) -> None:
        """Resolve the future. Call on the loop's thread."""
        if not self.future.done():
            self.future.set_result(None)

    def tell(self) -> None:
        """Resolve the future from any thread. Does nothing if the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.done)


def tell_all(promises: Iterable[Promise[None]]) -> None:
    """As `tell`, with one call per loop: waking a loop costs a write to a pipe."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Promise[None]]] = {}
    for promise in promises:
        by_loop.setdefault(promise.loop, []).append(promise)
    for loop, told in by_loop.items():
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(_done_all, told)


def _done_all(promises: list[Promise[None]]) -> None:
    for promise in promises:
        promise.done()


class Worker:
    """The thread. `turn` does the available work and returns in how many seconds it must be called again."""

    def __init__(
        self,
        name: str,
        turn: Callable[[], float | None],
        idle: Callable[[], bool],
        end: Callable[[], None],
        *,
        linger_s: float = 0.0,
    ) -> None:
        self.asleep = False
        """Whether the thread needs `wake` to notice new work. Hot paths check this before calling `wake`."""
        self._name = name
        self._turn = turn
        self._idle = idle
        self._end = end
        self._linger_s = linger_s
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._urged = False
        self._stopping = False
        self._busy_since: float | None = None
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last: Promise[None] | None = None
        """Resolved when the thread ends."""
        self._over = False
        """Whether the thread has finished its work."""

    def start(self) -> None:
        """Start the thread unless it was started before."""
        if self._thread is None:
            # Loops in several threads may call this at once; there must be only one writer.
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    thread.start()
                    self._thread = thread

    def wake(self) -> None:
        """Announce new work, which may wait a little for more."""
        if self.asleep:
            self.asleep = False
            self._tokens.put(False)

    def urge(self) -> None:
        """Announce work that a caller waits for."""
        if not self._urged:
            self._urged = True
            self._tokens.put(True)

    def stuck_s(self) -> float:
        """How long the thread has been inside one `turn` without progress."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def progress(self) -> None:
        """Called by `turn` after a step, so that a long turn does not count as stuck."""
        self._busy_since = time.monotonic()

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """End the thread after one more turn."""
        self._stopping = True
        self._tokens.put(True)

    async def ended(self, within_s: float) -> None:
        """Wait until the thread has ended, at most `within_s` seconds."""
        self._last = last = Promise[None]()
        if not self.alive:
            return
        # The thread does this in the opposite order: either it sees the promise, or we see that it is over.
        if not self._over:
            await asyncio.wait({last.future}, timeout=within_s)
        if self._over and self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        try:
            while True:
                # Read before the turn, so that the last turn sees all work requested before the stop.
                last = self._stopping
                self._urged = False
                self._busy_since = began = time.monotonic()
                delay = self._turn()
                self._busy_since = None
                if last:
                    return
                # After a long turn, as on a busy machine, wait longer: fewer turns then do more work each.
                self._sleep(delay, min(MOST_LINGER * self._linger_s, time.monotonic() - began))
        finally:
            self._busy_since = None
            self._end()
            self._over = True
            if self._last is not None:
                self._last.tell()

    def _sleep(self, delay: float | None, took: float) -> None:
        linger_s = max(self._linger_s, took)
        self.asleep = True
        if not self._idle():
            # The work arrived before `asleep` was set, so its sender did not wake us.
            self.asleep = False
            delay = linger_s
        urgent = self._get(delay)
        self.asleep = False
        if urgent is False and linger_s:
            self._get(linger_s)

    def _get(self, delay: float | None) -> bool | None:
        try:
            return (
                self._tokens.get(timeout=delay) if delay is None or delay > 0 else self._tokens.get_nowait()
            )
        except Empty:
            return None


async def answer(promise: Promise[T], worker: Worker, patience_s: float, stuck: str) -> T:
    """The promise's value. Raises its error, or StoreError(`stuck`) if the thread hangs for `patience_s`."""
    began, left = time.monotonic(), patience_s
    while not promise.future.done():
        await asyncio.wait({promise.future}, timeout=left)
        # The shorter time counts: a thread that makes progress is not stuck, and a late caller waits in full too.
        left = patience_s - min(time.monotonic() - began, worker.stuck_s())
        if not promise.future.done() and (left <= 0 or not worker.alive):
            raise StoreError(stuck)
    if promise.error is not None:
        raise promise.error
    return promise.value  # pyright: ignore[reportReturnType] - set before tell()
