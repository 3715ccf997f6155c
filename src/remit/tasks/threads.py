"""Daemon threads for functions that block: sync tools run here.

Not `asyncio.to_thread` and not anyio's workers: their threads are not daemons, so one function that
never returns keeps the process alive. How many abandoned jobs are too many is the caller's to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from queue import SimpleQueue

T = TypeVar("T")

MOST_AT_ONCE = 256
"""Threads that work at once; further jobs wait in order. A model can ask for any number of calls."""

IDLE_KEPT = 32
"""Idle threads kept for the next jobs; those above it end."""


class NeverBegan(Exception):
    """The error of a job that was withdrawn while it waited for a thread."""


class Job(Generic[T]):
    """One function in a thread of its own. Made by `start`."""

    def __init__(
        self,
        fn: Callable[[], T],
        loop: asyncio.AbstractEventLoop,
        name: str,
        on_begin: Callable[[], None] | None,
    ) -> None:
        self.name = name
        self.on_begin = on_begin
        """Called on the loop when it has a thread; at once, when it need not wait for one."""
        self.finished = False
        self.waits = False
        """Whether its thread only waits for something on its loop."""
        self.loop = loop
        self.done_future: asyncio.Future[None] = loop.create_future()
        """Resolved on the loop when the function has ended, however it ended. Never has an exception."""
        self.error: BaseException | None = None
        """What the function raised, `SystemExit` and `KeyboardInterrupt` included."""
        self._fn: Callable[[], T] | None = fn
        self._context = contextvars.copy_context()
        self._value: T | None = None
        self._ended = False

    async def wait(self) -> None:
        """Returns when the function has ended. May be cancelled and called again: the job goes on."""
        await asyncio.shield(self.done_future)

    def result(self) -> T:
        """What the function returned.

        Raises what the function raised (look at `error` first where that may be `SystemExit`), and
        RuntimeError before the end.
        """
        if self.error is not None:
            raise self.error
        if not self._ended:
            raise RuntimeError(f"The job {self.name} has not ended.")
        return cast(T, self._value)

    def withdraw(self) -> None:
        """Takes it back if it still waits for a thread: it ends at once, with `NeverBegan`. On the loop's thread."""
        if _pool.withdraw(cast("Job[object]", self)):
            self.error = NeverBegan(f"{self.name} never began")
            self._ended = True
            self._resolve()

    def begin(self) -> None:
        """Tells that a job which had to wait has its thread now."""
        if self.on_begin is not None:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.on_begin)

    def abandon(self) -> bool:
        """Drops the result: nobody may wait for it any more. False, and nothing is done, when the function has ended.

        The function cannot be stopped; its thread ends with it and is not used again.
        """
        return _pool.abandon(cast("Job[object]", self))

    def run(self) -> None:
        """Calls the function, on the worker's thread."""
        fn, self._fn = self._fn, None
        assert fn is not None
        try:
            self._value = self._context.run(fn)
        except BaseException as error:  # noqa: BLE001 - a tool must not end its worker, whatever it raises
            self.error = error

    def announce(self) -> None:
        """Resolves the future on its loop; a loop that is closed has nobody left to tell."""
        self._ended = True
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self._resolve)

    def drop(self) -> None:
        self._value = self.error = None

    def _resolve(self) -> None:
        if not self.done_future.done():
            self.done_future.set_result(None)


_Inbox: TypeAlias = "SimpleQueue[Job[object]]"


class _Pool:
    """Who runs what. One lock guards every field; it is never held while foreign code runs."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Starts anew, in a forked process: the threads stayed behind, and the lock may be held by one."""
        self.lock = threading.Lock()
        self.idle: list[_Inbox] = []
        self.running: dict[Job[object], None] = {}
        self.waiting: deque[Job[object]] = deque()
        self.threads = 0
        self.abandoned: dict[Job[object], None] = {}
        self.numbers = itertools.count(1)

    def take(self, job: Job[object], *, urgent: bool) -> bool:
        """Has a worker run it; False when it waits for one."""
        with self.lock:
            self.running[job] = None
            inbox = self.idle.pop() if self.idle else None
            if inbox is None and self.threads >= MOST_AT_ONCE and not urgent:
                self.waiting.append(job)
                return False
            self.threads += inbox is None
        if inbox is not None:
            inbox.put(job)
            return True
        try:
            self._new_worker(job)
        except BaseException:
            with self.lock:
                del self.running[job]
                self.threads -= 1
            raise
        return True

    def withdraw(self, job: Job[object]) -> bool:
        with self.lock:
            if job not in self.waiting:
                return False
            self.waiting.remove(job)
            del self.running[job]
            return True

    def step_aside(self) -> None:
        """One thread less counts: it only waits, or is lost. Another one may work in its place."""
        with self.lock:
            following = self.waiting.popleft() if self.waiting else None
            self.threads -= following is None
        if following is not None:
            following.begin()
            self._new_worker(following)

    def step_back(self) -> None:
        """It counts again, at once: for a moment there may be one more than `MOST_AT_ONCE`."""
        with self.lock:
            self.threads += 1

    def _new_worker(self, job: Job[object]) -> None:
        from queue import SimpleQueue  # noqa: PLC0415 - for those who have anything run in threads

        inbox: _Inbox = SimpleQueue()
        inbox.put(job)
        name = f"remit-worker-{next(self.numbers)}"
        threading.Thread(target=self._work, args=(inbox,), name=name, daemon=True).start()

    def _work(self, inbox: _Inbox) -> None:
        while True:
            job = _here.job = inbox.get()
            job.run()
            if not self._finish(job, inbox):
                return
            # An idle worker must not keep the last job's result alive.
            job = _here.job = None

    def _finish(self, job: Job[object], inbox: _Inbox) -> bool:
        with self.lock:
            job.finished = True
            lost = job not in self.running
            if lost:
                self.abandoned.pop(job, None)
            # Idle, or with the next job, before the loop is told: whoever waited finds this worker.
            stays = not lost and (bool(self.waiting) or len(self.idle) < IDLE_KEPT)
            # There are too many while somebody who stepped aside is back.
            stays = stays and self.threads <= MOST_AT_ONCE
            if stays and self.waiting:
                following = self.waiting.popleft()
                inbox.put(following)
                following.begin()
            elif stays:
                self.idle.append(inbox)
            elif not lost:
                self.threads -= 1
        if lost:
            job.drop()
            return False
        # Told before it stops counting as busy: virtual time must never jump between the two.
        job.announce()
        with self.lock:
            # From both: it may have been abandoned since.
            self.running.pop(job, None)
            self.abandoned.pop(job, None)
        return stays

    def abandon(self, job: Job[object]) -> bool:
        with self.lock:
            # One that has finished only waits for its loop to hear of it: its worker is not lost.
            if job not in self.running or job.finished:
                return False
            del self.running[job]
            self.abandoned[job] = None
        # Its thread is lost for good as far as anybody knows, so it keeps nobody waiting.
        self.step_aside()
        return True


class _Here(threading.local):
    """What is known of the current thread."""

    job: Job[object] | None = None
    """The job that it runs, if it is a worker."""


_here = _Here()
_pool = _Pool()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.clear)


def start(
    fn: Callable[[], T],
    loop: asyncio.AbstractEventLoop,
    *,
    name: str = "",
    urgent: bool = False,
    on_begin: Callable[[], None] | None = None,
) -> Job[T]:
    """Runs `fn` in a daemon thread, with a copy of the caller's context variables.

    Call it on the loop's own thread. Beyond `MOST_AT_ONCE` it waits for its turn, unless it is `urgent`.
    """
    job = Job(fn, loop, name or getattr(fn, "__qualname__", repr(fn)), on_begin)
    if _pool.take(cast("Job[object]", job), urgent=urgent) and on_begin is not None:
        on_begin()
    return job


@contextlib.contextmanager
def aside() -> Generator[None, None, None]:
    """For a thread that waits for a run: it takes up no place meanwhile, or runs in runs could use up all threads."""
    if _here.job is None:
        yield
        return
    _pool.step_aside()
    try:
        yield
    finally:
        _pool.step_back()


@contextlib.contextmanager
def waiting() -> Generator[Callable[[], None], None, None]:
    """As `aside`, for a thread that waits for something on its job's own loop: it is not busy meanwhile.

    Gives a function that the loop calls when the thread is to go on: virtual time must not jump before the thread runs.
    """
    job = _here.job

    def go_on() -> None:
        if job is not None:
            job.waits = False

    with aside():
        if job is not None:
            job.waits = True
        try:
            yield go_on
        finally:
            go_on()


def busy(loop: asyncio.AbstractEventLoop | None = None) -> int:
    """How many jobs run that nobody abandoned; with `loop`, only those started from it that do not wait for it."""
    with _pool.lock:
        if loop is None:
            return len(_pool.running)
        return sum(job.loop is loop and not job.waits for job in _pool.running)


def abandoned() -> list[str]:
    """Names of the jobs that were abandoned and still run, oldest first."""
    with _pool.lock:
        return [job.name for job in _pool.abandoned]


def count_abandoned() -> int:
    return len(_pool.abandoned)
