"""The one who writes: a thread that takes what is there, commits it together, and keeps the claims alive.

Trouble that passes (locked, full, not reachable) leaves everything where it is, and is tried again. What
cannot be done any more is said to those who wait, and to those who come later.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import remit.stores.tables as tables
from remit.errors import StoreError, TreeOwned
from remit.redaction import Redactor
from remit.stores.batch import Batch
from remit.stores.owner import HEARTBEAT_S
from remit.stores.pages import Page, take
from remit.stores.place import Link, Place, Trouble, unexpected
from remit.stores.worker import Promise, Worker, tell_all

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long somebody waits for trouble to pass."""

LINGER_S = 0.01
"""How long the first event waits for others to be written with it, when nobody waits for it."""

MOST_BUFFERED = 64_000_000
"""Bytes of events that wait while there is trouble. Above it they are refused."""

BACK_OFF_S = (0.02, 0.05, 0.1, 0.25, 0.5)

Work = Callable[[Link, bool], T]
"""What is done in one transaction. The flag: an earlier try may have worked without our hearing of it."""


class Claim:
    """A tree that is ours."""

    __slots__ = ("error", "last", "loop", "page", "root", "told")

    def __init__(self, root: str, last: int) -> None:
        self.root = root
        self.loop = asyncio.get_running_loop()
        """Who runs it: once that is closed, nobody does."""
        self.last = last
        """The `seq` of the last event that was taken."""
        self.page = Page(root, is_open=False)
        """Where its next event goes, while that is open."""
        self.error: StoreError | None = None
        """Why nothing more of it is taken."""
        self.told = False
        """Whether anybody has heard of that."""

    def tell(self, error: StoreError) -> StoreError:
        """Its error, for somebody who hears it."""
        self.told = True
        return copy(error)


class Job(Promise[T], Generic[T]):
    """Something other than an event."""

    __slots__ = ("again", "alone", "until", "withdrawn", "work")

    def __init__(self, work: Work[T], *, alone: bool) -> None:
        super().__init__()
        self.work = work
        self.alone = alone
        """Whether it is done outside a transaction."""
        self.until = time.monotonic() + PATIENCE_S
        self.again = False
        self.withdrawn = False

    def fail(self, error: Exception) -> None:
        self.error = error
        self.tell()


class Writer:
    """Owns what waits to be written, and the writing connection. Methods are for the loop's thread unless they say otherwise."""

    def __init__(self, place: Place, owner: str, redactor: Redactor) -> None:
        self.claims: dict[str, Claim] = {}
        self.taken = 0
        self.waiting_bytes = 0
        self.written = 0
        self.pages: deque[Page] = deque()
        """What waits, in the order in which it came."""
        self.lock = threading.RLock()
        """Held for whatever is added to them or taken. Also by the same thread again: the garbage collector may come at
        any time, and end a run that nobody holds any more, which is an event."""
        self._place = place
        self._owner = owner
        self._redactor = redactor
        self._link: Link | None = None
        self._batch: Batch | None = None
        self._jobs: deque[Job[object]] = deque()
        self._waiting: deque[tuple[int, float, Promise[None]]] = deque()
        self._trouble: Trouble | None = None
        self._tries = 0
        self._retry_at = 0.0
        self._beat_at = 0.0
        self.worker = Worker("remit-writer", self._turn, self._idle, self._end, linger_s=LINGER_S)

    def do(self, work: Work[T], *, alone: bool = False) -> Job[T]:
        """Has it done in a transaction of its own, after the events that were taken so far."""
        job = Job(work, alone=alone)
        self._jobs.append(cast(Job[object], job))
        self.worker.start()
        self._hurry()
        return job

    def flush(self) -> Promise[None] | None:
        """Answered when all that was taken so far is durable; None when it is."""
        if self.written >= self.taken:
            return None
        promise = Promise[None]()
        self._waiting.append((self.taken, time.monotonic() + PATIENCE_S, promise))
        self._hurry()
        return promise

    def keep(self, claim: Claim) -> None:
        """Has a tree that was claimed kept alive."""
        if not self.claims:
            self._beat_at = time.monotonic() + HEARTBEAT_S
        self.claims[claim.root] = claim
        # It may be asleep without a thought of heartbeats.
        self.worker.urge()

    def _hurry(self) -> None:
        # Somebody waits, so trouble is looked at again now: it may have passed.
        self._retry_at = 0.0
        self.worker.urge()

    @property
    def troubled(self) -> bool:
        return self._trouble is not None

    @property
    def words(self) -> str:
        """What the trouble is; empty when there is none."""
        return str(self._trouble or "")

    # From here on, the writer's own thread.

    def _idle(self) -> bool:
        return not self.pages and not self._jobs

    def _turn(self) -> float | None:
        now = time.monotonic()
        if now >= self._retry_at:
            try:
                self._work()
                self._trouble = None
                self._tries = 0
                self._retry_at = 0.0
            except Trouble as trouble:
                self._note(trouble)
            except Exception as error:  # noqa: BLE001 - the thread must live to tell those who wait
                self._note(Trouble(unexpected(self._place.where, error), passing=False))
        self._expire()
        due = [at for at in (self._retry_at, self._beat_at if self.claims else 0.0) if at]
        due += [until for _, until, _ in list(self._waiting)[:1]] if self._trouble else []
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _work(self) -> None:
        self._write()
        while self._jobs:
            self._run(self._jobs[0])
            self._jobs.popleft()
            self._write()
        # Also when there was nothing to write: the last of it may have been written while somebody came to wait.
        self._tell_written()
        if self.claims and time.monotonic() >= self._beat_at:
            self._beat()

    def _open(self) -> Link:
        if self._link is None:
            link = self._place.open_writer()
            with contextlib.suppress(Trouble):
                tables.clear_unused(link)
            self._link = link
        return self._link

    def _run(self, job: Job[object]) -> None:
        """Does a job and answers it. Raises Trouble that may pass; the job then stays."""
        if job.withdrawn:
            return
        try:
            link = self._open()
            if job.alone:
                job.value = job.work(link, job.again)
            else:
                job.value = self._transact(link, lambda: job.work(link, job.again))
        except Trouble as trouble:
            if trouble.passing:
                job.again = True
                raise
            job.error = StoreError(str(trouble))
        except StoreError as error:
            job.error = error
        except Exception as error:  # noqa: BLE001 - it belongs to whoever asked for the job
            job.error = StoreError(unexpected(self._place.where, error))
        job.tell()
        self.worker.progress()

    def _transact(self, link: Link, work: Callable[[], T]) -> T:
        link.begin()
        try:
            value = work()
            link.commit()
        except BaseException:
            link.rollback()
            raise
        return value

    def _write(self) -> None:
        """Commits all that is buffered, in order."""
        while self._batch is not None or self.pages:
            if self._batch is None:
                with self.lock:
                    pages = take(self.pages)
                    self.waiting_bytes -= sum(page.size for page in pages)
                self._batch = Batch(pages, self._redactor)
                for root, error in self._batch.broken.items():
                    self._batch.count += self._drop(root, StoreError(unexpected(self._place.where, error)))
            batch = self._batch
            link = self._open()
            try:
                lost = self._transact(link, lambda batch=batch, link=link: batch.write(link, self._owner))
            except Trouble:
                batch.unsure = True
                raise
            for root, error in lost.items():
                self.lose(root, error)
            self._batch = None
            self._settle(batch)

    def _drop(self, root: str, error: StoreError) -> int:
        """Takes no more of a tree, and forgets what waits of it: that would stand behind a hole. How many events."""
        with self.lock:
            claim = self.claims.get(root)
            if claim is not None:
                claim.error = claim.error or error
                claim.page.open = False
            dropped = [page for page in self.pages if page.root == root]
            for page in dropped:
                self.pages.remove(page)
                self.waiting_bytes -= page.size
        return sum(len(page.events) for page in dropped)

    def _settle(self, batch: Batch) -> None:
        self.written += batch.count
        self.worker.progress()
        self._tell_written()

    def _tell_written(self) -> None:
        """Those who wait for what is durable by now hear of it."""
        told: list[Promise[None]] = []
        while self._waiting and self._waiting[0][0] <= self.written:
            told.append(self._waiting.popleft()[2])
        if told:
            tell_all(told)

    def _beat(self) -> None:
        self._beat_at = time.monotonic() + HEARTBEAT_S
        link = self._open()
        for root in [root for root, claim in list(self.claims.items()) if claim.loop.is_closed()]:
            # Its event loop is gone, so nobody runs it any more, and somebody else may.
            tables.release(link, root, self._owner)
            self.claims.pop(root, None)
        mine = [root for root, claim in list(self.claims.items()) if claim.error is None]
        # One by one: a tree that was let go, and whose release has not come through, must not be kept.
        for root in mine:
            if root in self.claims and not tables.renew_one(link, root, self._owner):
                self.lose(root, tables.taken_over(link, root))

    def lose(self, root: str, error: TreeOwned) -> None:
        claim = self.claims.get(root)
        if claim is not None and claim.error is None:
            claim.error = error

    def _note(self, trouble: Trouble) -> None:
        self._drop_link()
        if trouble.passing:
            self._trouble = trouble
            self._retry_at = time.monotonic() + BACK_OFF_S[min(self._tries, len(BACK_OFF_S) - 1)]
            self._tries += 1
            return
        self._forget(StoreError(str(trouble)))

    def _forget(self, error: StoreError) -> None:
        """Gives up what waits, and takes no more: what came later would stand behind a hole. Those who wait hear why."""
        with self.lock:
            for claim in list(self.claims.values()):
                claim.error = claim.error or error
                claim.page.open = False
            self._batch = None
            self.pages.clear()
            self.written, self.waiting_bytes = self.taken, 0
        self._fail_waiting(error, time.monotonic() + 2 * PATIENCE_S)

    def _expire(self) -> None:
        """Those who have waited long enough hear what the trouble is."""
        if self._trouble is None:
            return
        now = time.monotonic()
        error = StoreError(str(self._trouble))
        self._fail_waiting(error, now)
        # A copy, made in one step: the loop's thread adds jobs meanwhile.
        for job in [job for job in tuple(self._jobs) if job.until <= now and not job.withdrawn]:
            job.withdrawn = True
            job.fail(copy(error))

    def _fail_waiting(self, error: StoreError, now: float) -> None:
        told: list[Promise[None]] = []
        while self._waiting and self._waiting[0][1] <= now:
            promise = self._waiting.popleft()[2]
            promise.error = copy(error)
            told.append(promise)
        tell_all(told)

    def _drop_link(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _end(self) -> None:
        self._drop_link()
        error = StoreError(f"{self._place.where} was closed.")
        self._forget(error)
        for job in tuple(self._jobs):
            if not job.withdrawn:
                job.fail(copy(error))
        self._jobs.clear()


def copy(error: StoreError) -> StoreError:
    """One for each who hears it: an exception that is raised twice shows a traceback of both."""
    return type(error)(*error.args)
