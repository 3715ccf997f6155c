"""`Writer`: a thread that commits waiting events in groups and renews the claims.

After a passing error (locked, full, unreachable) it keeps everything and retries. A permanent error is raised to all
current and later callers.
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
from remit.stores.owner import HEARTBEAT_S, SAFE_S
from remit.stores.sql.database import Database, Link, Trouble, unexpected
from remit.stores.writing.lines import Line
from remit.stores.writing.pages import Page, pages_of, write
from remit.stores.writing.waiting import Claim, copy
from remit.stores.writing.worker import Promise, Worker, tell_all

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long a caller waits for a passing error to end."""

LINGER_S = 0.01
"""How long an event waits for others to be written with it, if no caller waits."""

MOST_BUFFERED = 64_000_000
"""Most bytes of waiting events. Above this, events are refused."""

MUCH_BYTES = 1_000_000
"""With this many bytes waiting, events are written at once."""

MOST_BYTES = 8_000_000
"""Bytes of events per transaction, plus at most one page."""

BACK_OFF_S = (0.02, 0.05, 0.1, 0.25, 0.5)

Work = Callable[[Link, bool], T]
"""The work of one transaction. The flag says that an earlier attempt may have been committed."""


class Job(Promise[T], Generic[T]):
    """Work other than writing events."""

    __slots__ = ("again", "alone", "lasting", "until", "withdrawn", "work")

    def __init__(self, work: Work[T], *, alone: bool, lasting: bool) -> None:
        super().__init__()
        self.work = work
        self.lasting = lasting
        """Whether the result must survive a power cut."""
        self.alone = alone
        """Whether the job runs outside a transaction."""
        self.until = time.monotonic() + PATIENCE_S
        self.again = False
        self.withdrawn = False

    def fail(self, error: Exception) -> None:
        self.error = error
        self.tell()


class Writer:
    """Owns the waiting events and the writing connection. Public methods are for the loop's thread."""

    def __init__(self, place: Database, owner: str, redactor: Redactor) -> None:
        self.claims: dict[str, Claim] = {}
        self._sources: list[Claim] = []
        """Claims that may have waiting lines, including claims released during an error."""
        self._place = place
        self._owner = owner
        self._redactor = redactor
        self._link: Link | None = None
        self._pages: deque[Page] = deque()
        """Pages that were taken and not written yet, in order."""
        self._pages_bytes = 0
        self._unsure = False
        """Whether the first pages may have been committed by an attempt that failed."""
        self._behind = False
        """Whether any taken lines may not be written yet."""
        self._jobs: deque[Job[object]] = deque()
        self._waiting: deque[tuple[float, Promise[None]]] = deque()
        """Flushes that wait for all earlier events, with their timeouts."""
        self._heard: deque[tuple[float, Promise[None]]] = deque()
        """Flushes whose events have all been taken."""
        self._trouble: Trouble | None = None
        self._tries = 0
        self._retry_at = 0.0
        self._beat_at = 0.0
        self.worker = Worker("remit-writer", self._turn, self._idle, self._end, linger_s=LINGER_S)

    def do(self, work: Work[T], *, alone: bool = False, lasting: bool = True) -> Job[T]:
        """Run a job in its own transaction, after all events added so far."""
        job = Job(work, alone=alone, lasting=lasting)
        self._jobs.append(cast(Job[object], job))
        self.worker.start()
        self._hurry()
        return job

    def flush(self) -> Promise[None] | None:
        """A promise that is resolved when all events added so far are durable; None if they already are."""
        # The writer's thread changes these two in the opposite order.
        if not self._any_event() and not self._behind:
            return None
        promise = Promise[None]()
        self._waiting.append((time.monotonic() + PATIENCE_S, promise))
        self._hurry()
        return promise

    def waiting_bytes(self) -> int:
        """Approximate bytes of all events that are not written yet."""
        return self._pages_bytes + sum(claim.size for claim in tuple(self._sources))

    def keep(self, claim: Claim) -> None:
        """Register a claimed tree, so that its claim is renewed."""
        if not self.claims:
            self._beat_at = time.monotonic() + HEARTBEAT_S
        self.claims[claim.root] = claim
        self._sources.append(claim)
        # The thread may be asleep without a time for the next heartbeat.
        self.worker.urge()

    def _hurry(self) -> None:
        # A caller waits, so retry now: the error may have passed.
        self._retry_at = 0.0
        self.worker.urge()

    @property
    def troubled(self) -> bool:
        return self._trouble is not None

    @property
    def words(self) -> str:
        """The message of the current error; empty if there is none."""
        return str(self._trouble or "")

    # --- The rest runs on the writer's thread.

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
            except Exception as error:  # noqa: BLE001 - the thread must survive to answer waiting callers
                self._note(Trouble(unexpected(self._place.where, error), passing=False))
        self._expire()
        due = [at for at in (self._retry_at, self._beat_at if self.claims else 0.0) if at]
        due += [until for until, _ in [*self._heard, *self._waiting][:1]] if self._trouble else []
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _work(self) -> None:
        # Not the jobs that arrive meanwhile: the claims must be renewed in time.
        for _ in range(len(self._jobs)):
            # Events added before the job are written before the job runs.
            self._write()
            self._run(self._jobs[0])
            self._jobs.popleft()
        self._write()
        # Events that arrived meanwhile wait for more, unless there are many.
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
        """Run a job and resolve its promise. Raises passing Trouble; the job then stays queued."""
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
        except Exception as error:  # noqa: BLE001 - reported to the caller
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
        """Commit all waiting events in order, and resolve the flushes that wait for them.

        Leaves events that arrive meanwhile: with a constant stream of events, jobs would never run and claims would
        expire.
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
        began = time.monotonic()
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
            if page.root not in lost:
                self.renewed(page.root, began)
        self.worker.progress()

    def _take(self) -> None:
        """Take all waiting lines. Called when everything taken before is written."""
        # Set before any line is taken: `flush` first checks for waiting lines, then this flag.
        self._behind = True
        while self._waiting:
            self._heard.append(self._waiting.popleft())
        for claim in tuple(self._sources):
            # Checked before taking: no lines are added after a release.
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
        except Exception as error:  # noqa: BLE001 - must not affect other trees
            claim.give_up(StoreError(unexpected(self._place.where, error)))

    def _tell_heard(self) -> None:
        if self._heard:
            tell_all(promise for _, promise in self._heard)
            self._heard.clear()

    def _beat(self) -> None:
        self._beat_at = time.monotonic() + HEARTBEAT_S
        link = self._open()
        for root in [claim.root for claim in tuple(self.claims.values()) if claim.loop.is_closed()]:
            # The tree's event loop is closed, so another process may resume the tree.
            tables.release(link, root, self._owner)
            self.claims.pop(root, None)
        # By name, not all trees of this owner: a released tree, whose release is not written yet, must not be renewed.
        mine = [claim.root for claim in tuple(self.claims.values()) if claim.error is None]
        began = time.monotonic()
        held = self._transact(link, lambda: tables.renew(link, mine, self._owner), lasting=False)
        for root in mine:
            if root in held:
                self.renewed(root, began)
            elif root in self.claims:
                self.lose(root, tables.taken_over(link, root))

    def renewed(self, root: str, began: float) -> None:
        """Note that a claim was renewed by a transaction that began at this time."""
        claim = self.claims.get(root)
        if claim is not None:
            claim.held_until = max(claim.held_until, began + SAFE_S)

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
        """Drop all waiting events and accept no more, since they would follow a gap. Waiting callers get the error."""
        for claim in tuple(self._sources):
            claim.give_up(error)
        self._pages.clear()
        self._pages_bytes = 0
        self._unsure = self._behind = False
        self._fail_waiting(error, time.monotonic() + 2 * PATIENCE_S)

    def _expire(self) -> None:
        """Fail the callers that have waited long enough with the current error."""
        if self._trouble is None:
            return
        now = time.monotonic()
        error = StoreError(str(self._trouble))
        self._fail_waiting(error, now)
        # An atomic copy: the loop's thread adds jobs meanwhile.
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
        error = StoreError(f"{self._place.where} is closed.")
        self._forget(error)
        for job in tuple(self._jobs):
            if not job.withdrawn:
                job.fail(copy(error))
        self._jobs.clear()


def _transaction(pages: Iterable[Page]) -> Iterator[Page]:
    """The first pages, as many as fit into one transaction."""
    room = MOST_BYTES
    for page in pages:
        if room <= 0:
            return
        room -= page.size
        yield page
