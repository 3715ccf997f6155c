"""`Reader`: a thread with its own connection, so that reading never delays writing.

It also polls for commands: one query for all trees of the store that wait for some.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import remit.stores.sql.tables as tables
from remit.errors import StoreError
from remit.stores.sql.database import Database, Link, Trouble, unexpected
from remit.stores.writing.worker import Promise, Worker, tell_all

T = TypeVar("T")

POLL_S = 0.2
"""Polling interval of all waits for commands together."""


class NotReady(Exception):
    """Raised when the writer has not created the database yet."""


class Query(Promise[T], Generic[T]):
    """A query and its pending result."""

    __slots__ = ("ask",)

    def __init__(self, ask: Callable[[Link], T]) -> None:
        super().__init__()
        self.ask = ask


class Wait(Promise[None]):
    """A tree that waits for a command numbered above `after`."""

    __slots__ = ("after", "root")

    def __init__(self, root: str, after: int) -> None:
        super().__init__()
        self.root = root
        self.after = after


class Reader:
    """Answers queries in order, and waits for commands."""

    def __init__(self, place: Database) -> None:
        self._place = place
        self._link: Link | None = None
        self._queries: deque[Query[object]] = deque()
        self._waits: dict[int, Wait] = {}
        """By identity. The loop's thread adds and removes them, so that the reader's thread works on copies."""
        self._poll_at = 0.0
        self.worker = Worker("remit-reader", self._turn, self._idle, self._end)

    def do(self, ask: Callable[[Link], T]) -> Query[T]:
        """Queue a query. Call on the loop's thread. Its error is `NotReady` if the database does not exist yet."""
        query = Query(ask)
        self._queries.append(cast(Query[object], query))
        self.worker.start()
        self.worker.urge()
        return query

    def wait(self, root: str, after: int) -> Wait:
        """A promise that is resolved when the tree has such a command, or no longer exists."""
        wait = Wait(root, after)
        if not self._waits:
            # Not at once: it saves the query for a tree that ends sooner.
            self._poll_at = time.monotonic() + POLL_S
        self._waits[id(wait)] = wait
        self.worker.start()
        self.worker.urge()
        return wait

    def forget(self, wait: Wait) -> None:
        self._waits.pop(id(wait), None)

    def _idle(self) -> bool:
        return not self._queries

    def _turn(self) -> float | None:
        while self._queries:
            query = self._queries.popleft()
            if not query.future.cancelled():
                query.value, query.error = self._ask(query.ask)
                query.tell()
            self.worker.progress()
        if self._waits and time.monotonic() >= self._poll_at:
            self._poll(tuple(self._waits.values()))
            self._poll_at = time.monotonic() + POLL_S
        return max(0.0, self._poll_at - time.monotonic()) if self._waits else None

    def _poll(self, waits: tuple[Wait, ...]) -> None:
        """Resolve the waits whose trees have a new command or are gone, or all of them with the error."""
        roots = sorted({wait.root for wait in waits})
        last, error = self._ask(lambda link: tables.last_commands(link, roots))
        # A tree that is gone has no number: its wait ends too.
        due = [w for w in waits if last is None or last.get(w.root, w.after + 1) > w.after]
        for wait in due:
            wait.error = error
            self.forget(wait)
        tell_all(due)

    def _ask(self, ask: Callable[[Link], T]) -> tuple[T | None, Exception | None]:
        """The result of a query, or its error."""
        try:
            try:
                return ask(self._open()), None
            except Trouble as trouble:
                self._drop()
                if not trouble.passing:
                    raise
                # Once more: a lost connection is opened again.
                return ask(self._open()), None
        except Trouble as trouble:
            self._drop()
            return None, StoreError(str(trouble))
        except (StoreError, NotReady) as error:
            return None, error
        except Exception as error:  # noqa: BLE001 - reported to the caller
            return None, StoreError(unexpected(self._place.where, error))

    def _open(self) -> Link:
        if self._link is None:
            self._link = self._place.open_reader()
        if self._link is None:
            raise NotReady
        return self._link

    def _drop(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _end(self) -> None:
        self._drop()
        for wait in tuple(self._waits.values()):
            wait.error = StoreError(f"{self._place.where} is closed.")
            wait.tell()
        while self._queries:
            query = self._queries.popleft()
            query.error = StoreError(f"{self._place.where} is closed.")
            query.tell()
