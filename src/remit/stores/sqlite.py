"""`SqliteStore`: a store in one SQLite file, for many processes on one machine. Needs no setup."""

from __future__ import annotations

import contextlib
import logging
import os
import shlex
import sqlite3
import stat
from collections.abc import Collection, Generator, Iterator, Sequence
from pathlib import Path
from typing import cast

import remit.history.journal_files as journal_files
import remit.stores.sql.forks as forks
import remit.stores.sql.migrations as migrations
from remit.history.journal_files import APPLICATION_ID
from remit.history.secret_patterns import SecretPattern
from remit.stores.journal_store import JournalStore
from remit.stores.sql.database import Link, Row, Trouble
from remit.stores.sql.sandbox_exposure import steps
from remit.types.sandbox import Sandbox

log = logging.getLogger("remit")

BUSY_S = 1.0
"""How long SQLite waits for a lock before the writer does other work and retries."""


PAGE_BYTES = 16_384
"""Page size of the file. Large, because each page written takes one or two system calls."""


class SqliteStore(JournalStore):
    """A store in a file, which is opened or created on first use.

    `secrets` are redacted, as is text that looks like keys and tokens.
    """

    def __init__(self, path: str | os.PathLike[str], *, secrets: Sequence[str | SecretPattern] = ()) -> None:
        super().__init__(SqliteFile(Path(path)), secrets)


class SqliteFile:
    """The file's path, its connections and its error messages."""

    after_fork = (
        "Close SQLite stores before the fork, or start the process with 'spawn' instead of 'fork'"
        " (multiprocessing.get_context('spawn'))."
    )
    password = ""

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()
        journal_files.use(self)

    @property
    def where(self) -> str:
        return f"The run store {self.path}"

    def files(self) -> list[Path]:
        return journal_files.files_of(self.path)

    def exposed(self, sandboxes: Collection[Sandbox], workspace: Path) -> str:
        writing = next((box for box in sandboxes if box.files == "workspace-write"), None)
        top = workspace.resolve()
        if writing is None or not any(step.is_relative_to(top) for step in steps(self.path)):
            return ""
        usual = journal_files.default_folder() / "runs.db"
        advice = f'Use "sqlite" ({usual}), or name a file outside the workspace.'
        if any(step.is_relative_to(top) for step in steps(usual.absolute())):
            advice = "Name a file outside the workspace, or use a smaller workspace."
        return (
            f"{self.where} is in the workspace {workspace}. Commands in the sandbox {writing} can write there and could"
            f" approve their own calls. {advice}"
        )

    def risks(self) -> Iterator[tuple[str, str]]:
        """How other users could read or change the file, and what to do."""
        if os.name != "posix":
            return
        with contextlib.suppress(OSError):
            info = self.path.stat()
            file = shlex.quote(str(self.path))
            if info.st_uid != os.geteuid():
                yield (
                    f"{self.where} belongs to another user (uid {info.st_uid}), who can read and change it.",
                    f"Use your own file, or run as root: chown {os.geteuid()} {file}",
                )
            if others := stat.S_IMODE(info.st_mode) & 0o077:
                can = "read and change" if others & 0o022 else "read"
                yield (
                    f"{self.where} is open to other users: its mode lets them {can} it.",
                    f"Run: chmod 600 {file}",
                )

    def open_writer(self) -> Link:
        self._make()
        _report(self)
        # Read first: a file of another program or a newer remit must not be changed.
        looking, version = self._look()
        try:
            return self._up_to_date(version)
        finally:
            # Closed last: while a connection is open, a new one need not recover the log.
            looking.close()

    def _up_to_date(self, version: int) -> SqliteLink:
        """A writing connection, after any migration."""
        link = self._connect(writing=True)
        try:
            encoding = link.rows("PRAGMA encoding")[0][0]
            if encoding != "UTF-8":
                # Pages are passed as UTF-8 bytes: in UTF-16, SQLite would drop the last of an odd number of bytes.
                raise Trouble(
                    f"{self.where} uses the encoding {encoding}; remit needs UTF-8. Nothing was changed. "
                    "Name another file.",
                    passing=False,
                )
            if version < migrations.VERSION:
                self._migrate(link)
            link.rows("PRAGMA journal_mode = WAL")
        except BaseException:
            link.close()
            raise
        return link

    def open_reader(self) -> Link | None:
        if not self._is_file():
            return None
        link, version = self._look()
        if version == migrations.VERSION:
            return link
        link.close()
        if not version:
            return None
        # Tables of an older remit can be read after a migration.
        self.open_writer().close()
        return self._connect(writing=False)

    def _is_file(self) -> bool:
        try:
            mode = self.path.stat().st_mode
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._cannot("read", error) from None
        if not stat.S_ISREG(mode):
            raise Trouble(
                f"{self.where} is not a file. Name a file, such as runs.db in that folder.", passing=False
            )
        return True

    def _make(self) -> None:
        """Create the file and its missing parent folders, accessible to this user only."""
        if self._is_file():
            return
        missing = [self.path.parent, *self.path.parent.parents]
        try:
            for folder in reversed([folder for folder in missing if not folder.exists()]):
                folder.mkdir(mode=0o700, exist_ok=True)
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | getattr(os, "O_CLOEXEC", 0), 0o600))
        except OSError as error:
            raise self._cannot("created", error) from None

    def _cannot(self, verb: str, error: OSError) -> Trouble:
        return Trouble(
            f"{self.where} cannot be {verb}: {error.strerror or error} ({error.filename}). "
            "Name a file in a folder that this user can write to, or change the folder's permissions.",
            passing=False,
        )

    def _look(self) -> tuple[SqliteLink, int]:
        """A read-only connection and the version of the tables. Raises Trouble for another program's database."""
        link = self._connect(writing=False)
        try:
            try:
                return link, self._version(link)
            except Trouble as trouble:
                if getattr(trouble.__context__, "sqlite_errorcode", 0) not in _HALF_MADE:
                    raise
            # A process died while creating the file. A reader must first roll that back, which needs a write.
            undoing = self._connect(writing=True)
            try:
                return link, self._version(undoing)
            finally:
                undoing.close()
        except BaseException:
            link.close()
            raise

    def _version(self, link: SqliteLink) -> int:
        try:
            # One transaction, so that the values belong together.
            link.rows("BEGIN")
            application = cast(int, link.rows("PRAGMA application_id")[0][0])
            version = cast(int, link.rows("PRAGMA user_version")[0][0])
            # Reads the tables only if the application id differs from ours.
            ours = application == APPLICATION_ID or not (
                application or version or link.rows("SELECT count(*) FROM sqlite_master")[0][0]
            )
        finally:
            link.rollback()
        if not ours:
            raise Trouble(
                f"{self.where} belongs to another program. Nothing was changed. Name another file.",
                passing=False,
            )
        if version > migrations.VERSION:
            raise Trouble(migrations.newer(self.where, version), passing=False)
        return version

    def identity(self) -> tuple[int, int] | None:
        """Device and inode of the file; None if it does not exist."""
        try:
            info = self.path.stat()
        except OSError:
            return None
        return info.st_dev, info.st_ino

    def check_place(self, identity: tuple[int, int] | None) -> None:
        """Raises Trouble if the file was removed or replaced: SQLite would keep writing to the removed file."""
        if self.identity() != identity:
            raise Trouble(
                f"{self.where} was removed or replaced while it was in use, so remit stores nothing more in it. Restore"
                " it from a backup, or start again.",
                passing=False,
            )

    def _is_frozen(self) -> bool:
        """Whether the file is in a folder that this user cannot write to, as in an archive."""
        log = self.path.with_name(f"{self.path.name}-wal")
        return not os.access(self.path.parent, os.W_OK) and not (log.exists() and log.stat().st_size)

    def _migrate(self, link: SqliteLink) -> None:
        # SQLite silently ignores these two once there is a table.
        link.rows(f"PRAGMA page_size = {PAGE_BYTES}")
        link.rows("PRAGMA auto_vacuum = INCREMENTAL")
        # Written to the file before the log is used: sandboxes recognise a journal by its header. Need not survive a
        # power cut, because it is set again below.
        link.rows("PRAGMA synchronous = OFF")
        link.change(f"PRAGMA application_id = {APPLICATION_ID}")
        link.rows("PRAGMA synchronous = FULL")
        if (written := journal_files.find_written(self.path)) is not None:
            raise Trouble(
                f"{self.where} cannot be created while a sandboxed command can write to {written}. Wait until the command"
                " has ended, or name a file elsewhere.",
                passing=True,
            )
        link.rows("PRAGMA journal_mode = WAL")
        link.begin()
        try:
            # Checked again under the lock: another process may have migrated first.
            version = cast(int, link.rows("PRAGMA user_version")[0][0])
            if version > migrations.VERSION:
                raise Trouble(migrations.newer(self.where, version), passing=False)
            for sql in migrations.steps(version, blob="BLOB", lines=_LINES):
                link.change(sql)
            link.change(f"PRAGMA application_id = {APPLICATION_ID}")
            link.change(f"PRAGMA user_version = {migrations.VERSION}")
            link.commit()
        except BaseException:
            link.rollback()
            raise

    def _connect(self, *, writing: bool) -> SqliteLink:
        if forks.has_inherited():
            raise Trouble(
                f"{self.where} cannot be used: this process was forked while a SQLite store was open, which SQLite does"
                f" not support. {self.after_fork}",
                passing=False,
            )
        address = f"{self.path.as_uri()}?mode={'rw' if writing else 'ro'}"
        if not writing and self._is_frozen():
            # Otherwise SQLite has to write files beside the database to read it.
            address += "&immutable=1"
        opened = forks.Opened()
        try:
            connection = sqlite3.connect(address, uri=True, timeout=BUSY_S, isolation_level=None)
            opened.connection = connection
        except sqlite3.Error as error:
            raise self.trouble(error) from None
        finally:
            if opened.connection is None:
                opened.closed()
        link = SqliteLink(self, connection, opened)
        try:
            if writing:
                link.rows("PRAGMA synchronous = FULL")
                link.rows("PRAGMA foreign_keys = ON")
                # Both are 16 MB, so that pages that change often are copied to the file less often.
                link.rows("PRAGMA wal_autocheckpoint = 1000")
                link.rows("PRAGMA journal_size_limit = 16384000")
        except BaseException:
            link.close()
            raise
        return link

    def trouble(self, error: sqlite3.Error) -> Trouble:
        """The error for people, with SQLite's message."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        passing = code in _PASSING
        what = _PASSING.get(code) or _LASTING.get(code) or "cannot be used ({error})."
        return Trouble(f"{self.where} {what.format(error=error)}", passing=passing)


_reported: set[str] = set()


def _report(file: SqliteFile) -> None:
    """Log each risk once."""
    for what, fix in file.risks():
        if what not in _reported:
            _reported.add(what)
            log.warning("%s %s", what, fix)


_LINES = """
    SELECT page.root AS root, json_extract(value, '$.seq') AS seq, json_extract(value, '$.kind') AS kind,
        coalesce(json_extract(value, '$.where.run'), json_extract(value, '$.run')) AS run,
        json_extract(value, '$.at') AS at, value AS data
    FROM (SELECT root, last, '[' || replace(data, char(10), ',') || ']' AS lines FROM remit_pages) AS page,
        json_each(CASE WHEN json_valid(lines) THEN lines
            ELSE json_array(json_object('seq', last, 'kind', 'unreadable')) END)
    """
"""A page that is invalid JSON, or too deeply nested for SQLite, becomes one row, so that other pages stay visible."""

_HALF_MADE = (
    sqlite3.SQLITE_READONLY_ROLLBACK,
    sqlite3.SQLITE_READONLY_RECOVERY,
    sqlite3.SQLITE_READONLY_CANTINIT,
)
"""Errors for a file whose last writer died: reading it needs a write first."""

_PASSING: dict[int, str] = {
    sqlite3.SQLITE_BUSY: "is locked by another program ({error}). Close the program that holds the lock (a database browser, a backup, a hung process), and try again.",
    sqlite3.SQLITE_LOCKED: "is locked ({error}). Close the program that holds the lock, and try again.",
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full ({error}). Free some space or delete old runs, and try again.",
    sqlite3.SQLITE_IOERR: "could not be read or written ({error}). Check the disk, its space and its quota; the file must be on a local file system.",
    sqlite3.SQLITE_NOMEM: "could not be read or written: out of memory ({error}).",
}

_LASTING: dict[int, str] = {
    sqlite3.SQLITE_READONLY: "cannot be written ({error}). Make the file and its folder writable for this user, or name another file.",
    sqlite3.SQLITE_PERM: "cannot be opened: permission denied ({error}). Make it readable and writable for this user.",
    sqlite3.SQLITE_AUTH: "cannot be opened: permission denied ({error}). Make it readable and writable for this user.",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened ({error}). Check that the file and its folder exist and that this user can read and write both.",
    sqlite3.SQLITE_NOTADB: "is not a run store: the file is not an SQLite database ({error}). Nothing was changed. Name another file, or move this one away.",
    sqlite3.SQLITE_CORRUPT: "is damaged ({error}). Restore it from a backup, recover data with `sqlite3 FILE .recover`, or move it away to start a new store.",
}


class SqliteLink:
    """A connection."""

    now = "((julianday('now') - 2440587.5) * 86400.0)"
    text = "CAST(? AS TEXT)"
    lock = ""

    def __init__(self, file: SqliteFile, connection: sqlite3.Connection, opened: forks.Opened) -> None:
        self._file = file
        self._connection = connection
        self._opened = opened
        self._lasting = True
        self._identity = file.identity()

    def rows(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        try:
            return self._connection.execute(sql, cast(Sequence[str], values)).fetchall()
        except sqlite3.Error as error:
            raise self._file.trouble(error) from None

    def stream(self, sql: str, values: Sequence[object] = ()) -> Generator[Row]:
        try:
            cursor = self._connection.execute(sql, cast(Sequence[str], values))
            try:
                yield from cursor
            finally:
                cursor.close()
        except sqlite3.Error as error:
            raise self._file.trouble(error) from None

    def change(self, sql: str, values: Sequence[object] = ()) -> int:
        try:
            return self._connection.execute(sql, cast(Sequence[str], values)).rowcount
        except sqlite3.Error as error:
            raise self._file.trouble(error) from None

    def begin(self, *, lasting: bool = True) -> None:
        if lasting is not self._lasting:
            # Applies to all later transactions; with NORMAL, a commit does not sync the log.
            self.change(f"PRAGMA synchronous = {'FULL' if lasting else 'NORMAL'}")
            self._lasting = lasting
        # Not DEFERRED: a transaction that starts with a read fails if another process wrote before its first write.
        self.change("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._file.check_place(self._identity)
        self.change("COMMIT")

    def rollback(self) -> None:
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error:
            pass

    def shrink(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            # As a script: `execute` would stop after the first page.
            self._connection.executescript("PRAGMA incremental_vacuum")
            # The file shrinks only when the log has been copied into it.
            self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        self.rollback()
        self._connection.close()
        self._opened.closed()
