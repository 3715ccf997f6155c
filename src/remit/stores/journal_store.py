"""`JournalStore`: implements the `Store` interface for both databases, with a writer thread and a reader thread."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import secrets as entropy
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from pathlib import Path
from typing import TypeVar, cast

import msgspec

import remit.stores.sql.tables as tables
import remit.tasks.threads as threads
import remit.types.commands
from remit.errors import NoSuchTree, StoreError, TreeExists, TreeOwned, UsageError
from remit.history.redaction import Redactor
from remit.history.secret_patterns import SecretPattern
from remit.stores.owner import new_owner
from remit.stores.reader import NotReady, Reader
from remit.stores.sql.database import Database, Link
from remit.stores.writing.chunks import chunks
from remit.stores.writing.lines import line_of
from remit.stores.writing.waiting import LOOK_BYTES, Claim, copy
from remit.stores.writing.worker import Promise, Worker, answer
from remit.stores.writing.writer import MOST_BUFFERED, PATIENCE_S, Work, Writer
from remit.types.commands import AnyCommand
from remit.types.event_json import decode, decode_lines, seq_of, words
from remit.types.events import Event
from remit.types.ports import Posted, TreeInfo
from remit.types.sandbox import Sandbox

T = TypeVar("T")

SURE_S = 5.0
"""A claim that holds for less than this is renewed before it is confirmed."""

SHRINK_BYTES = 1_000_000
"""When deleted trees have freed this much, the space is given back to the file system; smaller amounts at `close`."""

GROUP_CHUNKS = 16
"""Chunks of an artifact per transaction. Small, so that events do not wait long."""


def _checked(secrets: object) -> tuple[str | SecretPattern, ...]:
    """Raises UsageError, whose message shows no secret."""
    if isinstance(secrets, (str, bytes, SecretPattern)):
        what = "pattern" if isinstance(secrets, SecretPattern) else "text"
        raise UsageError(
            f"secrets must be a list of texts and patterns, not one {what}. Write secrets=[...]."
        )
    if isinstance(secrets, Mapping):
        raise UsageError(
            "secrets must be a list of texts and patterns, not a mapping. Pass a list of its values."
        )
    if not isinstance(secrets, Iterable):
        raise UsageError(f"secrets must be a list of texts and patterns, not {type(secrets).__name__}.")
    found: list[str | SecretPattern] = []
    for one in cast("Iterable[object]", secrets):
        if isinstance(one, SecretPattern):
            found.append(one)
            continue
        if not isinstance(one, str) or not one.strip():
            what = "empty" if isinstance(one, str) else f"of type {type(one).__name__}"
            raise UsageError(
                f"secrets must be a list of texts and patterns, but item {len(found) + 1} is {what}."
            )
        if any(one in word for word in words()):
            raise UsageError(
                f"secrets: item {len(found) + 1} is part of a word in the journal format, such as `text` or `status`, so"
                " redacting it would make runs unreadable. Use a longer secret."
            )
        found.append(one)
    return tuple(found)


class JournalStore:
    """A store in a database. `remit.types.ports.Store` documents its methods."""

    def __init__(self, place: Database, secrets: Sequence[str | SecretPattern] = ()) -> None:
        self._place = place
        self._redactor = Redactor(_checked(secrets))
        self._owner = new_owner()
        self._owner_text = self._owner.encode()
        self._writer = Writer(place, self._owner_text, self._redactor)
        self._worker = self._writer.worker
        self._reader = Reader(place)
        self._claims = self._writer.claims
        self._claiming: set[str] = set()
        self._freed = 0
        """Bytes of trees deleted since space was last given back."""
        self._closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._place.where}>"

    async def exposed(self, sandboxes: Collection[Sandbox], workspace: Path) -> str:
        """Why commands in one of these sandboxes could write to the store, and what to do; empty if they cannot."""
        look = threads.start(
            lambda: self._place.exposed(sandboxes, workspace),
            asyncio.get_running_loop(),
            name="store exposure check",
        )
        await look.wait()
        return look.result()

    def redact_text(self, text: str) -> str:
        """A text as it is kept: without secrets."""
        return self._redactor.redact_text(text)

    async def claim(self, root: str, *, new: bool) -> None:
        self._check()
        if root in self._claims or root in self._claiming:
            if new:
                raise TreeExists(f"This process is already running {root!r}. Use another id.")
            raise TreeOwned(f"This process is already running {root!r}. Wait until that run has ended.")
        if not new:
            await self._must_exist(root)
        self._claiming.add(root)
        owner, where = self._owner_text, self._place.where
        job = self._writer.do(
            lambda link, again: tables.claim(link, root, owner, where, new=new, again=again),
            # A claim need not survive a power cut; it becomes durable with the first event.
            lasting=False,
        )
        try:
            self._writer.keep(Claim(root, await self._answer(job)))
        except BaseException:
            # A caller that was cancelled or timed out must not become the owner later.
            if job.error is None:
                job.withdrawn = True
                self._let_go(root)
            raise
        finally:
            self._claiming.discard(root)

    async def release(self, root: str) -> None:
        self._check()
        claim = self._claims.get(root)
        if claim is None:
            return
        try:
            if claim.error is None:
                await self._flush()
            if claim.error is not None and not claim.told:
                raise claim.tell(claim.error)
        finally:
            done = self._let_go(root)
        await self._answer(done)

    def _let_go(self, root: str) -> Promise[None]:
        self._claims.pop(root, None)
        return self._writer.do(lambda link, _: tables.release(link, root, self._owner_text), lasting=False)

    def append(self, event: Event) -> None:
        claim = self._claims.get(event.root)
        if claim is None or claim.error is not None or event.seq <= claim.last:
            raise self._refusal(event, claim)
        if claim.bytes_in >= claim.look_at:
            self._make_room(claim)
        try:
            line = line_of(event)
        except Exception as error:
            raise StoreError(
                f"Event {event.seq} of the run {event.root!r} cannot be encoded as JSON: {error}"
            ) from error
        claim.add(line)
        if self._worker.asleep:
            self._worker.wake()

    def _make_room(self, claim: Claim) -> None:
        """Raises StoreError if too many events wait to be written."""
        claim.look_at = claim.bytes_in + LOOK_BYTES
        if self._writer.waiting_bytes() > MOST_BUFFERED:
            raise self._overflow(claim)

    def _refusal(self, event: Event, claim: Claim | None) -> StoreError:
        if self._closed:
            return self._closed_error()
        if claim is None:
            return StoreError(f"The run {event.root!r} is not claimed, so no event can be added.")
        if claim.error is not None:
            return claim.tell(claim.error)
        return StoreError(
            f"Event {event.seq} of the run {event.root!r} was added after event {claim.last}. Add events in order."
        )

    def _overflow(self, claim: Claim) -> StoreError:
        # Permanent: a journal may lack its last events, never events in between.
        why = "cannot be written" if self._writer.troubled else "is too slow"
        claim.error = StoreError(
            f"{self._place.where} {why}: {MOST_BUFFERED // 1_000_000} MB of events are waiting. remit stores no"
            f" further events of the run {claim.root!r}. {self._writer.words}".rstrip()
        )
        return claim.tell(claim.error)

    async def flush(self, root: str | None = None) -> None:
        self._check()
        await self._flush()
        # An atomic copy: the writer's thread or another loop's thread may remove a claim meanwhile.
        for claim in tuple(self._claims.values()):
            if claim.error is not None and root in (None, claim.root):
                raise claim.tell(claim.error)

    async def confirm(self, root: str, *above: str) -> float:
        self._check()
        await self._flush()
        names = (root, *above)
        if self._held_until(names) - time.monotonic() < SURE_S:
            began = time.monotonic()
            await self._do(lambda link, _: [self._own(link, name) for name in names])
            for name in names:
                self._writer.renewed(name, began)
        return self._held_until(names)

    def _held_until(self, roots: Sequence[str]) -> float:
        """Until when all these claims hold. Raises StoreError if one is lost."""
        until = math.inf
        for root in roots:
            claim = self._claims.get(root)
            if claim is None:
                raise StoreError(f"The run {root!r} is not claimed.")
            if claim.error is not None:
                raise claim.tell(claim.error)
            until = min(until, claim.held_until)
        return until

    async def _flush(self) -> None:
        promise = self._writer.flush()
        if promise is not None:
            await self._answer(promise)

    async def read(self, root: str, after: int = 0) -> AsyncIterator[Event]:
        self._check()
        if root in self._claims:
            await self._flush()
        while pages := await self._read(lambda link, after=after: tables.pages_after(link, root, after), []):
            for last, data in pages:
                for event in self._events(root, last, data, after):
                    after = event.seq
                    yield event
                if after < last:
                    raise self._unreadable(root, last, ValueError("the page ends before this event"))

    def _events(self, root: str, last: int, data: str, after: int) -> Iterator[Event]:
        """The events of a page after `after`. Raises StoreError at the first unreadable event."""
        try:
            events: Iterable[Event] = decode_lines(data)
        except msgspec.DecodeError:
            events = self._one_by_one(root, last, data, after)
        for event in events:
            if event.root != root:
                raise self._unreadable(root, event.seq, ValueError("the event belongs to another run"))
            if event.seq > after:
                yield event

    def _one_by_one(self, root: str, last: int, data: str, after: int) -> Iterator[Event]:
        """The events of a page with unreadable events."""
        found: list[tuple[int, Event | msgspec.DecodeError]] = []
        seq = last + 1
        for line in reversed([line for line in data.split("\n") if line.strip()]):
            try:
                event = decode(line)
                seq = event.seq
                found.append((seq, event))
            except msgspec.DecodeError as error:
                # The highest possible seq: counting from the front could skip an event that was asked for.
                seq = seq_of(line) or seq - 1
                found.append((seq, error))
        for seq, event in reversed(found):
            if isinstance(event, Event):
                yield event
            elif seq > after:
                raise self._unreadable(root, seq, event) from None

    def _unreadable(self, root: str, seq: int, error: Exception) -> StoreError:
        return StoreError(
            f"{self._place.where}: cannot read event {seq} of the run {root!r} ({error}). It is damaged or was written"
            " by a newer version of remit. Update remit, restore the store from a backup, or delete the run."
        )

    async def save_artifact(self, root: str, artifact: str, data: str | AsyncIterable[str]) -> None:
        self._check()
        if root not in self._claims:
            raise StoreError(f"The run {root!r} is not claimed, so no artifact can be added.")
        version = entropy.randbits(62)
        chars = size = 0
        held: list[str] = []
        whole = False
        try:
            async for text in chunks(data, self._redactor):
                if len(held) == GROUP_CHUNKS:
                    size += await self._add(root, version, chars, held)
                    chars += sum(map(len, held))
                    held = []
                held.append(text)
            await self._show(root, artifact, version, (chars, size), held)
            whole = True
        finally:
            if not whole and chars:
                self._writer.do(lambda link, _: tables.drop_chunks(link, root, version))

    async def _add(self, root: str, version: int, first: int, texts: list[str]) -> int:
        def work(link: Link, _: bool) -> int:
            self._own(link, root)
            return tables.add_chunks(link, root, version, first, texts)

        return await self._do(work)

    async def _show(
        self, root: str, name: str, version: int, so_far: tuple[int, int], texts: list[str]
    ) -> None:
        first, size = so_far

        def work(link: Link, _: bool) -> None:
            self._own(link, root)
            total = size + tables.add_chunks(link, root, version, first, texts)
            tables.show_artifact(link, root, name, version, chars=first + sum(map(len, texts)), size=total)

        await self._do(work)

    def _own(self, link: Link, root: str) -> None:
        """Raises TreeOwned if another process owns the tree. Runs on the writer's thread."""
        if not tables.renew_one(link, root, self._owner_text):
            error = tables.taken_over(link, root)
            self._writer.lose(root, error)
            raise copy(error)

    async def load_artifact(self, root: str, artifact: str, start: int, length: int) -> str | None:
        self._check()
        start, length = max(0, start), max(0, length)
        return await self._read(lambda link: tables.load_artifact(link, root, artifact, start, length), None)

    async def post(self, root: str, command: AnyCommand) -> None:
        self._check()
        await self._must_exist(root)
        try:
            data = self._redactor.redact(remit.types.commands.encode(command)).decode()
            # Decoded at once: an unreadable command must not be written.
            remit.types.commands.decode(data)
        except Exception as error:
            raise StoreError(f"Invalid command for the run {root!r}: {error}") from error
        await self._do(lambda link, _: tables.post(link, root, command, data, self._place.where))

    async def commands(self, root: str, after: int, *, wait: bool) -> list[Posted]:
        while True:
            self._check()
            if wait:
                await self._wait(root, after)
                self._check()
            found = await self._read(
                lambda link: tables.commands_after(link, root, after, self._place.where), None
            )
            if found is None:
                raise tables.unknown(root, self._place.where)
            if found or not wait:
                return found

    async def _wait(self, root: str, after: int) -> None:
        """Wait until the tree has such a command or no longer exists."""
        waiting = self._reader.wait(root, after)
        try:
            with contextlib.suppress(NotReady):
                await self._answer(waiting, self._reader.worker)
        finally:
            self._reader.forget(waiting)

    async def trees(self) -> list[TreeInfo]:
        await self._settle()
        return await self._read(tables.trees, [])

    async def trees_named(self, roots: Sequence[str]) -> list[TreeInfo]:
        await self._settle()
        return await self._read(lambda link: tables.trees_named(link, roots), [])

    async def _settle(self) -> None:
        """Write this store's own events before a list is read, unless the database is in trouble."""
        self._check()
        if not self._writer.troubled:
            with contextlib.suppress(StoreError):
                await self._flush()

    async def delete(self, root: str) -> None:
        self._check()
        if await self._read(lambda _: False, True):
            return
        self._freed += await self._do(lambda link, _: tables.delete(link, root))
        if self._freed > SHRINK_BYTES:
            await self._shrink()

    async def _shrink(self) -> None:
        """Give freed space back. Not done after each tree: it costs more than deleting a small tree."""
        self._freed = 0
        await self._answer(self._writer.do(lambda link, _: link.shrink(), alone=True))

    async def close(self) -> None:
        # A forked process owns none of this, and the threads exist only in the parent.
        if self._closed or self._is_inherited():
            return
        self._closed = True
        try:
            with contextlib.suppress(StoreError):
                await self._flush()
                if self._freed:
                    await self._shrink()
            for released in [self._let_go(root) for root in list(self._claims)]:
                with contextlib.suppress(StoreError):
                    await self._answer(released)
        finally:
            self._claims.clear()
            # The writer last: only the writer can merge the log into the file.
            self._reader.worker.stop()
            try:
                await self._reader.worker.ended(PATIENCE_S)
            finally:
                self._writer.worker.stop()
        await self._writer.worker.ended(PATIENCE_S)

    # --- Calls from the event loop to the threads.

    async def _do(self, work: Work[T]) -> T:
        return await self._answer(self._writer.do(work))

    async def _read(self, ask: Callable[[Link], T], nothing: T) -> T:
        """The result of a query; `nothing` if the store does not exist yet. Reading never creates a store."""
        try:
            return await self._answer(self._reader.do(ask), self._reader.worker)
        except NotReady:
            return nothing

    async def _must_exist(self, root: str) -> None:
        if await self._read(lambda _: False, True):
            raise NoSuchTree(
                f"{self._place.where} does not exist, so it has no run {root!r}. Check the store's name."
            )

    async def _answer(self, promise: Promise[T], worker: Worker | None = None) -> T:
        stuck = f"{self._place.where} does not respond. Check that it is reachable and not overloaded."
        return await answer(promise, worker or self._writer.worker, PATIENCE_S, stuck)

    def _check(self) -> None:
        if self._closed:
            raise self._closed_error()
        if self._is_inherited():
            raise StoreError(
                f"{self._place.where} was opened before this process was forked. {self._place.after_fork}"
            )

    def _is_inherited(self) -> bool:
        return os.getpid() != self._owner.pid

    def _closed_error(self) -> StoreError:
        return StoreError(f"{self._place.where} is closed. Open it again.")
