"""Daemon threads for functions that block, such as sync tools.

`asyncio.to_thread` and anyio do not use daemon threads, so one function that never returns would keep the process alive.
The caller limits the number of abandoned jobs.
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
"""Threads that work at once; further jobs wait in order. A model can request any number of calls."""

IDLE_KEPT = 32
"""Idle threads kept for the next jobs; further idle threads end."""


class NeverBegan(Exception):
    """The error of a job that was withdrawn while it waited for a thread."""


class Job(Generic[T]):
    """One function that runs in a thread. Created by `start`."""

    def __init__(
        self,
        fn: Callable[[], T],
        loop: asyncio.AbstractEventLoop,
        name: str,
        on_begin: Callable[[], None] | None,
    ) -> None:
        self.name = name
        self.on_begin = on_begin
        """Called on the loop when the job gets a thread."""
        self.finished = False
        self.waits = False
        """Whether its thread only waits for work on its loop."""
        self.loop = loop
        self.done_future: asyncio.Future[None] = loop.create_future()
        """Resolved on the loop when the function has returned or raised. Never has an exception."""
        self.error: BaseException | None = None
        """The exception that the function raised, including `SystemExit` and `KeyboardInterrupt`."""
        self._fn: Callable[[], T] | None = fn
        self._context = contextvars.copy_context()
        self._value: T | None = None
        self._ended = False

    async def wait(self) -> None:
        """Wait until the function has ended. Cancelling this wait does not affect the job."""
        await asyncio.shield(self.done_future)

    def result(self) -> T:
        """The function's return value.

        Raises the function's exception, which may be `SystemExit` (check `error` first), and RuntimeError before the
        function has ended.
        """
        if self.error is not None:
            raise self.error
        if not self._ended:
            raise RuntimeError(f"The job {self.name} has not ended.")
        return cast(T, self._value)

    def withdraw(self) -> None:
        """If the job still waits for a thread, end it with `NeverBegan`. Call on the loop's thread."""
        if _pool.withdraw(cast("Job[object]", self)):
            self.error = NeverBegan(f"{self.name} was withdrawn before it started")
            self._ended = True
            self._resolve()

    def begin(self) -> None:
        """Report that a waiting job now has a thread."""
        if self.on_begin is not None:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self.on_begin)

    def abandon(self) -> bool:
        """Drop the result: no caller may wait for it any more. Returns False and does nothing if the function has ended.

        The function cannot be stopped; its thread ends when the function ends.
        """
        return _pool.abandon(cast("Job[object]", self))

    def run(self) -> None:
        """Call the function on the worker's thread."""
        fn, self._fn = self._fn, None
        assert fn is not None
        try:
            self._value = self._context.run(fn)
        except BaseException as error:  # noqa: BLE001 - a tool must not end its worker, whatever it raises
            self.error = error

    def announce(self) -> None:
        """Resolve the future on its loop, unless the loop is closed."""
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
    """The threads and their jobs. One lock guards every field; it is never held while foreign code runs."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Reset in a forked process: a fork does not copy the threads, and one of them may hold the lock."""
        self.lock = threading.Lock()
        self.idle: list[_Inbox] = []
        self.running: dict[Job[object], None] = {}
        self.waiting: deque[Job[object]] = deque()
        self.threads = 0
        self.abandoned: dict[Job[object], None] = {}
        self.numbers = itertools.count(1)

    def take(self, job: Job[object], *, urgent: bool) -> bool:
        """Give the job to a worker; False if it must wait for one."""
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
        """Do not count one thread, which only waits or is lost, and start a waiting job in its place."""
        with self.lock:
            following = self.waiting.popleft() if self.waiting else None
            self.threads -= following is None
        if following is not None:
            following.begin()
            self._new_worker(following)

    def step_back(self) -> None:
        """Count the thread again. For a moment there may be more threads than `MOST_AT_ONCE`."""
        with self.lock:
            self.threads += 1

    def _new_worker(self, job: Job[object]) -> None:
        from queue import SimpleQueue  # noqa: PLC0415 - not needed without threads

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
            # The worker becomes idle or takes its next job before the loop learns of the result, so that the code
            # waiting for the result can use this worker for its next job.
            stays = not lost and (bool(self.waiting) or len(self.idle) < IDLE_KEPT)
            # There may be too many threads after step_back().
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
        # Announced before it stops counting as busy: virtual time must not jump in between.
        job.announce()
        with self.lock:
            # Removed from both: the job may have been abandoned meanwhile.
            self.running.pop(job, None)
            self.abandoned.pop(job, None)
        return stays

    def abandon(self, job: Job[object]) -> bool:
        with self.lock:
            # The worker of a finished job is not lost, even if the loop has not seen the result yet.
            if job not in self.running or job.finished:
                return False
            del self.running[job]
            self.abandoned[job] = None
        # The thread may never end, so a waiting job gets its place.
        self.step_aside()
        return True


class _Here(threading.local):
    """Data of the current thread."""

    job: Job[object] | None = None
    """The job that the thread runs, if the thread is a worker."""


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
    """Run `fn` in a daemon thread with a copy of the caller's context variables.

    Call this on the loop's thread. Above `MOST_AT_ONCE` jobs, the new job waits in order unless it is `urgent`.
    """
    job = Job(fn, loop, name or getattr(fn, "__qualname__", repr(fn)), on_begin)
    if _pool.take(cast("Job[object]", job), urgent=urgent) and on_begin is not None:
        on_begin()
    return job


@contextlib.contextmanager
def aside() -> Generator[None, None, None]:
    """Do not count this thread while it waits for a run: otherwise nested runs could use up all threads."""
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
    """As `aside`, for a thread that waits for work on its job's own loop. `busy(loop)` does not count the thread meanwhile.

    Yields a function that the loop calls when that work is done: virtual time must not jump before the thread continues.
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
    """The number of running jobs that are not abandoned; with `loop`, only those of that loop that do not wait for it."""
    with _pool.lock:
        if loop is None:
            return len(_pool.running)
        return sum(job.loop is loop and not job.waits for job in _pool.running)


def abandoned() -> list[str]:
    """Names of abandoned jobs that still run, oldest first."""
    with _pool.lock:
        return [job.name for job in _pool.abandoned]


def count_abandoned() -> int:
    return len(_pool.abandoned)
