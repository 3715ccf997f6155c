"""The one who writes: a thread that takes what is there, commits it together, and keeps the claims alive.

Trouble that passes (locked, full, not reachable) leaves everything where it is, and is tried again. What
cannot be done any more is said to those who wait, and to those who come later.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar, cast

import remit.stores.sql.tables as tables
from remit.errors import StoreError, TreeOwned
from remit.history.redaction import Redactor
from remit.stores.owner import HEARTBEAT_S
from remit.stores.sql.database import Database, Link, Trouble, unexpected
from remit.stores.writing.lines import Line
from remit.stores.writing.pages import Page, pages_of, write
from remit.stores.writing.waiting import Claim, copy
from remit.stores.writing.worker import Promise, Worker, tell_all

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long somebody waits for trouble to pass."""

LINGER_S = 0.01
"""How long the first event waits for others to be written with it, when nobody waits for it."""

MOST_BUFFERED = 64_000_000
"""Bytes of events that wait while there is trouble. Above it they are refused."""

MUCH_BYTES = 1_000_000
"""Of events that wait: they are written at once."""

MOST_BYTES = 8_000_000
"""Of events in one transaction, or little more."""

BACK_OFF_S = (0.02, 0.05, 0.1, 0.25, 0.5)

Work = Callable[[Link, bool], T]
"""What is done in one transaction. The flag: an earlier try may have worked without our hearing of it."""


class Job(Promise[T], Generic[T]):
    """Something other than an event."""

    __slots__ = ("again", "alone", "lasting", "until", "withdrawn", "work")

    def __init__(self, work: Work[T], *, alone: bool, lasting: bool) -> None:
        super().__init__()
        self.work = work
        self.lasting = lasting
        """Whether it has to survive a power cut."""
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

    def __init__(self, place: Database, owner: str, redactor: Redactor) -> None:
        self.claims: dict[str, Claim] = {}
        self._sources: list[Claim] = []
        """Those of which something may wait, also of trees that were let go of while there was trouble."""
        self._place = place
        self._owner = owner
        self._redactor = redactor
        self._link: Link | None = None
        self._pages: deque[Page] = deque()
        """What was taken and is not written yet, in order."""
        self._pages_bytes = 0
        self._unsure = False
        """Whether the first of them may have been written without our hearing of it."""
        self._behind = False
        """Whether anything was taken of which it is not known that it was written."""
        self._jobs: deque[Job[object]] = deque()
        self._waiting: deque[tuple[float, Promise[None]]] = deque()
        """Who waits for all that came before, and until when."""
        self._heard: deque[tuple[float, Promise[None]]] = deque()
        """Those of them for whom all of it was taken."""
        self._trouble: Trouble | None = None
        self._tries = 0
        self._retry_at = 0.0
        self._beat_at = 0.0
        self.worker = Worker("remit-writer", self._turn, self._idle, self._end, linger_s=LINGER_S)

    def do(self, work: Work[T], *, alone: bool = False, lasting: bool = True) -> Job[T]:
        """Has it done in a transaction of its own, after the events that were taken so far."""
        job = Job(work, alone=alone, lasting=lasting)
        self._jobs.append(cast(Job[object], job))
        self.worker.start()
        self._hurry()
        return job

    def flush(self) -> Promise[None] | None:
        """Answered when all that was taken so far is durable; None when it is."""
        # In this order, as the writer's thread does it the other way round.
        if not self._any_event() and not self._behind:
            return None
        promise = Promise[None]()
        self._waiting.append((time.monotonic() + PATIENCE_S, promise))
        self._hurry()
        return promise

    def waiting_bytes(self) -> int:
        """About what all the events take that are not written yet."""
        return self._pages_bytes + sum(claim.size for claim in tuple(self._sources))

    def keep(self, claim: Claim) -> None:
        """Has a tree that was claimed kept alive."""
        if not self.claims:
            self._beat_at = time.monotonic() + HEARTBEAT_S
        self.claims[claim.root] = claim
        self._sources.append(claim)
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
        return not self._any_event() and not self._jobs

    def _any_event(self) -> bool:
        return any(claim.lines for claim in tuple(self._sources))

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
        due += [until for until, _ in [*self._heard, *self._waiting][:1]] if self._trouble else []
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _work(self) -> None:
        # Not those that come meanwhile: the claims must be kept alive.
        for _ in range(len(self._jobs)):
            # Now that the job was seen: what was added before it is written before it is done.
            self._write()
            self._run(self._jobs[0])
            self._jobs.popleft()
        self._write()
        # What has come meanwhile waits for more of it, unless it is much.
        while self.waiting_bytes() > MUCH_BYTES and not self._jobs and time.monotonic() < self._beat_at:
            self._write()
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
                job.value = self._transact(link, lambda: job.work(link, job.again), lasting=job.lasting)
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

    def _transact(self, link: Link, work: Callable[[], T], *, lasting: bool = True) -> T:
        link.begin(lasting=lasting)
        try:
            value = work()
            link.commit()
        except BaseException:
            link.rollback()
            raise
        return value

    def _write(self) -> None:
        """Commits all that is there, in order, and tells those who wait for it.

        Not what comes meanwhile: where events never stop, no job would be done and claims would die.
        """
        self._write_taken()
        self._take()
        self._write_taken()

    def _write_taken(self) -> None:
        while self._pages:
            self._write_some(self._open(), list(_transaction(self._pages)))
        self._behind = False
        self._tell_heard()

    def _write_some(self, link: Link, pages: list[Page]) -> None:
        try:
            lost = self._transact(link, lambda: write(link, pages, self._owner, unsure=self._unsure))
        except Trouble:
            self._unsure = True
            raise
        self._unsure = False
        for root, error in lost.items():
            self.lose(root, error)
        for page in pages:
            self._pages.popleft()
            self._pages_bytes -= page.size
        self.worker.progress()

    def _take(self) -> None:
        """Takes what waits, now that all that was taken before is written."""
        # Before anything is taken: `flush` looks whether anything waits, and then at this.
        self._behind = True
        while self._waiting:
            self._heard.append(self._waiting.popleft())
        for claim in tuple(self._sources):
            # Before it is taken from: nothing is added to one that was let go of.
            gone = self.claims.get(claim.root) is not claim
            taken = claim.take()
            if taken:
                self._make(claim, taken)
            elif gone:
                self._sources.remove(claim)

    def _make(self, claim: Claim, taken: list[Line]) -> None:
        try:
            for page in pages_of(claim.root, taken, self._redactor):
                self._pages.append(page)
                self._pages_bytes += page.size
        except Exception as error:  # noqa: BLE001 - other trees have nothing to do with it
            claim.give_up(StoreError(unexpected(self._place.where, error)))

    def _tell_heard(self) -> None:
        if self._heard:
            tell_all(promise for _, promise in self._heard)
            self._heard.clear()

    def _beat(self) -> None:
        self._beat_at = time.monotonic() + HEARTBEAT_S
        link = self._open()
        for root in [claim.root for claim in tuple(self.claims.values()) if claim.loop.is_closed()]:
            # Its event loop is gone, so nobody runs it any more, and somebody else may.
            tables.release(link, root, self._owner)
            self.claims.pop(root, None)
        mine = [claim.root for claim in tuple(self.claims.values()) if claim.error is None]
        # One by one: a tree that was let go, and whose release has not come through, must not be kept.
        for root in mine:
            if root in self.claims and not tables.renew_one(link, root, self._owner):
                self.lose(root, tables.taken_over(link, root))

    def lose(self, root: str, error: TreeOwned) -> None:
        claim = self.claims.get(root)
        if claim is not None:
            claim.give_up(error)

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
        for claim in tuple(self._sources):
            claim.give_up(error)
        self._pages.clear()
        self._pages_bytes = 0
        self._unsure = self._behind = False
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
        for waiting in (self._heard, self._waiting):
            while waiting and waiting[0][0] <= now:
                promise = waiting.popleft()[1]
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


def _transaction(pages: Iterable[Page]) -> Iterator[Page]:
    """As many of the first as are written together."""
    room = MOST_BYTES
    for page in pages:
        if room <= 0:
            return
        room -= page.size
        yield page
