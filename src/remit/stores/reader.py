"""`Reader`: a thread with its own connection, so that reading never delays writing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, cast

from remit.errors import StoreError
from remit.stores.sql.database import Database, Link, Trouble, unexpected
from remit.stores.writing.worker import Promise, Worker

T = TypeVar("T")


class NotReady(Exception):
    """Raised when the writer has not created the database yet."""


class Query(Promise[T], Generic[T]):
    """A query and its pending result."""

    __slots__ = ("ask",)

    def __init__(self, ask: Callable[[Link], T]) -> None:
        super().__init__()
        self.ask = ask


class Reader:
    """Answers queries in order."""

    def __init__(self, place: Database) -> None:
        self._place = place
        self._link: Link | None = None
        self._queries: deque[Query[object]] = deque()
        self.worker = Worker("remit-reader", self._turn, self._idle, self._end)

    def do(self, ask: Callable[[Link], T]) -> Query[T]:
        """Queue a query. Call on the loop's thread. Its error is `NotReady` if the database does not exist yet."""
        query = Query(ask)
        self._queries.append(cast(Query[object], query))
        self.worker.start()
        self.worker.urge()
        return query

    def _idle(self) -> bool:
        return not self._queries

    def _turn(self) -> None:
        while self._queries:
            query = self._queries.popleft()
            if not query.future.cancelled():
                self._answer(query)
                query.tell()
            self.worker.progress()

    def _answer(self, query: Query[object]) -> None:
        # Twice: a lost connection is opened again.
        for last in (False, True):
            try:
                query.value = query.ask(self._open())
                return
            except Trouble as trouble:
                self._drop()
                if last or not trouble.passing:
                    query.error = StoreError(str(trouble))
                    return
            except (StoreError, NotReady) as error:
                query.error = error
                return
            except Exception as error:  # noqa: BLE001 - reported to the caller
                query.error = StoreError(unexpected(self._place.where, error))
                return

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
        while self._queries:
            query = self._queries.popleft()
            query.error = StoreError(f"{self._place.where} is closed.")
            query.tell()
