"""The interface of a database: `Database` (a file or a server), `Link` (a connection) and `Trouble` (an error)."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from pathlib import Path
from typing import Protocol

from remit.types.sandbox import Sandbox

Row = tuple[object, ...]


class Trouble(Exception):
    """Raised when a database operation fails; the message is for people."""

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing
        """Whether a retry may succeed: the database is locked, full or unreachable."""


def unexpected(where: str, error: Exception) -> str:
    """The message for an unforeseen error: a name that the database cannot store, or a bug."""
    return f"{where}: unexpected error ({type(error).__name__}: {error})."


class Link(Protocol):
    """A connection, used by one thread. Every method raises `Trouble`."""

    now: str
    """SQL for the seconds since the epoch, on the clock used for all leases of this database."""
    text: str
    """SQL for a text passed as UTF-8 bytes: decoding the bytes first would copy them once more."""
    lock: str
    """The ending of a SELECT whose rows must stay unchanged until the end of the transaction."""

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]: ...

    def stream(self, sql: str, values: Sequence[object] = ()) -> Generator[Row]:
        """As `rows`, one at a time. Must be exhausted or closed before the next statement."""
        ...

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        """Execute a statement and return the number of affected rows."""
        ...

    def begin(self, *, lasting: bool = True) -> None:
        """Begin a transaction. `lasting`: its commit survives a power cut, not only the end of this process."""
        ...

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Never raises."""
        ...

    def shrink(self) -> None:
        """Give the space of deleted rows back, if the database does not do so by itself. Never raises."""
        ...

    def close(self) -> None:
        """Never raises."""
        ...


class Database(Protocol):
    """A file or a server."""

    after_fork: str
    """Advice for a process that was forked while this store was open."""

    @property
    def where(self) -> str:
        """The database's name for people, without any password."""
        ...

    def open_writer(self) -> Link:
        """Create the database if it does not exist, and migrate its tables."""
        ...

    def open_reader(self) -> Link | None:
        """None if no writer has created the database yet. Migrates older tables."""
        ...

    def exposed(self, sandboxes: Collection[Sandbox], workspace: Path) -> str:
        """Why commands in one of these sandboxes could write to the store, and what to do; empty if they cannot."""
        ...
