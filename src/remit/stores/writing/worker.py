"""A daemon thread that works for an event loop: it sleeps, is woken, and answers with promises.

What there is to do is its owner's business: the thread only calls `turn` whenever that may find something.
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
"""How many times longer a busy thread waits for more to do."""


class Promise(Generic[T]):
    """What a thread will answer to a loop. It never holds an exception that nobody would fetch."""

    __slots__ = ("error", "future", "loop", "value")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[None] = self.loop.create_future()
        self.value: T | None = None
        self.error: Exception | None = None

    def done(self) -> None:
        """On the loop's thread."""
        if not self.future.done():
            self.future.set_result(None)

    def tell(self) -> None:
        """From any thread. A loop that is closed has nobody left to tell."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.done)


def tell_all(promises: Iterable[Promise[None]]) -> None:
    """As `tell`, with one call for each loop: waking one costs a write to a pipe."""
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
    """The thread. `turn` does what there is to do and says in how many seconds it wants to be called again."""

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
        """Whether it needs `wake` to notice something new. Read by those who cannot afford to call it."""
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
        """Answered when the thread ends."""
        self._over = False
        """Whether the thread has nothing more to do."""

    def start(self) -> None:
        """Does nothing when it runs."""
        if self._thread is None:
            # Loops in several threads may come at once, and two threads would write at once.
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    thread.start()
                    self._thread = thread

    def wake(self) -> None:
        """There is something to do; it may wait a little for more of it."""
        if self.asleep:
            self.asleep = False
            self._tokens.put(False)

    def urge(self) -> None:
        """There is something to do that somebody waits for."""
        if not self._urged:
            self._urged = True
            self._tokens.put(True)

    def stuck_s(self) -> float:
        """For how long it has been inside one `turn`."""
        since = self._busy_since
        return 0.0 if since is None else time.monotonic() - since

    def progress(self) -> None:
        """Called by `turn` when it got something done, so that a long one does not look stuck."""
        self._busy_since = time.monotonic()

    @property
    def alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def stop(self) -> None:
        """One more turn, and then the thread ends."""
        self._stopping = True
        self._tokens.put(True)

    async def ended(self, within_s: float) -> None:
        """Waits until the thread has ended, but no longer than that."""
        self._last = last = Promise[None]()
        if not self.alive:
            return
        # In this order, as the thread does it the other way round: either it sees the promise, or we see its end.
        if not self._over:
            await asyncio.wait({last.future}, timeout=within_s)
        if self._over and self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        try:
            while True:
                # Read before the turn: what was asked for before the stop is seen by this turn.
                last = self._stopping
                self._urged = False
                self._busy_since = began = time.monotonic()
                delay = self._turn()
                self._busy_since = None
                if last:
                    return
                # A turn that took long, on a busy machine, is followed by a longer wait: fewer of them do more.
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
            # It came between the turn and the line above, and its sender saw no need to wake us.
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
    """What the thread answered. Raises what it raised, and StoreError(`stuck`) when it hangs for `patience_s`."""
    began, left = time.monotonic(), patience_s
    while not promise.future.done():
        await asyncio.wait({promise.future}, timeout=left)
        # The shorter of both: a thread that gets things done is not stuck, and who comes late has patience too.
        left = patience_s - min(time.monotonic() - began, worker.stuck_s())
        if not promise.future.done() and (left <= 0 or not worker.alive):
            raise StoreError(stuck)
    if promise.error is not None:
        raise promise.error
    return promise.value  # pyright: ignore[reportReturnType] - set before it was told
