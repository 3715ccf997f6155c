"""The journals that a sandbox hides: those that this process uses, and every journal in the workspace.

A mount can only cover an existing file. So remit keeps a journal in the workspace open while a command runs: SQLite then
keeps the files beside it, and no process rolls back a journal from a file that a command planted there.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import remit.history.journal_files as journal_files
from remit.tools.words import Refused, show

_BUSY_S = 0.2


class Journals:
    """The journals that one sandbox hides, until `close`; `written` is the folder that its command may write.

    Create it before searching that folder for journals: from then on, no process creates a new journal there.
    """

    def __init__(self, written: Path | None) -> None:
        self._held: list[_Held] = []
        self._mark = None if written is None else journal_files.mark_written(written)

    def hold(self, inside: Iterable[Path]) -> list[Path]:
        """The files of all journals to hide, including those `inside` the workspace. Raises Refused."""
        for path in inside:
            # Check before opening: with two names, SQLite would damage the journal.
            _check_name(path)
            self._held.append(_Held(path))
        used = [path for journal in journal_files.used() for path in journal.files()]
        return [path for path in dict.fromkeys(used) if _check_name(path)]

    def close(self) -> None:
        for held in self._held:
            held.close()
        if self._mark is not None:
            os.close(self._mark)
            self._mark = None


def _check_name(path: Path) -> bool:
    """Whether a file of a journal exists. Raises Refused if it can be reached through a second hard link."""
    try:
        names = path.lstat().st_nlink
    except OSError:
        return False
    if names > 1:
        raise Refused(
            f"Not run: the journal file {show(str(path))} has {names} hard links, and a sandbox can hide only one."
            " Replace it with a copy, or remove the other link."
        )
    return True


class _Held:
    """A journal that stays open while a command runs."""

    password = ""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Register before opening: code that reads the header must not close a file that SQLite has locked.
        journal_files.use(self)
        self._connection = _open(path)

    def files(self) -> list[Path]:
        return journal_files.files_of(self._path)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _open(path: Path) -> sqlite3.Connection | None:
    """Open a journal; None for a damaged file, or a folder that this user cannot write. Raises Refused."""
    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode=rw",
            uri=True,
            timeout=_BUSY_S,
            isolation_level=None,
            check_same_thread=False,
        )
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
        mode = connection.execute("PRAGMA journal_mode").fetchall()[0][0]
        if mode == "wal":
            return connection
        why = f"its journal mode is {mode}"
    except sqlite3.Error as error:
        why = str(error)
        if error.sqlite_errorcode in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            why = ""
    if connection is not None:
        connection.close()
    if why and os.access(path.parent, os.W_OK):
        raise Refused(
            f"Not run: the journal {show(str(path))} in the workspace cannot be hidden from commands ({why}). Move it out of"
            " the workspace."
        )
    return None
