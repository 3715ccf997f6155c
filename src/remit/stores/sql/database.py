"""What the databases have in common: a place, the links to it, and trouble with either, in words."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from pathlib import Path
from typing import Protocol

from remit.types.sandbox import Sandbox

Row = tuple[object, ...]


class Trouble(Exception):
    """Raised when a database cannot do what it was asked; the message is for people."""

    def __init__(self, message: str, *, passing: bool) -> None:
        super().__init__(message)
        self.passing = passing
        """Whether the same may work later: locked, full, not reachable."""


def unexpected(where: str, error: Exception) -> str:
    """For what nobody thought of: a name that the database cannot hold, or a bug."""
    return f"{where} could not do what it was asked ({type(error).__name__}: {error})."


class Link(Protocol):
    """A connection, used by one thread. Everything raises `Trouble`."""

    now: str
    """SQL for the seconds since the epoch, on the clock that all leases of this place go by."""
    text: str
    """SQL for a text that is given as its bytes in UTF-8: made a text first, it would be copied once more."""
    lock: str
    """What a SELECT ends with that wants its rows unchanged until the end of the transaction."""

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]: ...

    def stream(self, sql: str, values: Sequence[object] = ()) -> Generator[Row]:
        """As `rows`, one at a time. Read to its end or closed before the next statement."""
        ...

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        """How many rows there were to change."""
        ...

    def begin(self, *, lasting: bool = True) -> None:
        """A transaction. `lasting`: once committed it survives a power cut, not only the end of this process."""
        ...

    def commit(self) -> None: ...

    def rollback(self) -> None:
        """Never raises."""
        ...

    def shrink(self) -> None:
        """Gives back what deleted rows took, where that has to be asked for. Never raises."""
        ...

    def close(self) -> None:
        """Never raises."""
        ...


class Database(Protocol):
    """A file or a server."""

    after_fork: str
    """What to do in a process that was forked while a store was open here, for people."""

    @property
    def where(self) -> str:
        """Its name, for people, without any password."""
        ...

    def open_writer(self) -> Link:
        """Makes the place if there is none and brings its tables up to date."""
        ...

    def open_reader(self) -> Link | None:
        """None when there is nothing to read before a writer has been there. Brings older tables up to date."""
        ...

    def exposed(self, sandboxes: Collection[Sandbox], workspace: Path) -> str:
        """Why commands in one of these sandboxes could write here, and what to do; empty when they cannot."""
        ...
