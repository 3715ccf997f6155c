"""Files of journals: their names, how to recognise them, and which journals this process uses.

Stores and sandboxes share this module: a sandboxed command can neither read nor write these files.
"""

from __future__ import annotations

import os
import stat
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol
from weakref import WeakSet

APPLICATION_ID = 0x72656D69
"""Marks an SQLite file as a journal of remit: "remi"."""

BESIDE = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite creates beside a database."""

_MAGIC = b"SQLite format 3\0"
_ID_AT = 68
"""Offset of the application id in the header of an SQLite file."""


def default_folder() -> Path:
    """The default folder for journals: $REMIT_HOME, else the user's folder for application state."""
    if home := os.environ.get("REMIT_HOME"):
        return Path(home).expanduser()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "remit"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "remit"
    state = os.environ.get("XDG_STATE_HOME", "")
    # The XDG standard says to ignore a relative path.
    return (Path(state) if state.startswith("/") else Path.home() / ".local" / "state") / "remit"


# --- The journals that this process uses ----------------------------------------------------------


class Used(Protocol):
    """A journal that this process uses."""

    def files(self) -> Iterable[Path]:
        """Its files and sockets, existing or not, with symlinks resolved."""
        ...

    @property
    def password(self) -> str:
        """The password of the database; empty if there is none."""
        ...


_used: WeakSet[Used] = WeakSet()
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def use(journal: Used) -> None:
    """Register a journal before its file is opened, for as long as the object exists."""
    with _lock:
        _used.add(journal)


def used() -> list[Used]:
    with _lock:
        return list(_used)


# --- Files ----------------------------------------------------------------------------------------


def files_of(path: Path) -> list[Path]:
    """The database at this path and the files beside it. SQLite names them after the target of a symlink."""
    real = Path(os.path.realpath(path))
    return [real, *(real.with_name(real.name + ending) for ending in BESIDE)]


def database_of(path: Path) -> Path:
    """The database that a file belongs to, judged by its name."""
    for ending in BESIDE:
        if path.name.endswith(ending) and path.name != ending:
            return path.with_name(path.name.removesuffix(ending))
    return path


def is_journal(path: str | Path) -> bool:
    """Whether a regular file is a journal. Symlinks are not followed."""
    # The lock prevents a store from opening the file between the check of `_used` and the end of the read.
    with _lock:
        try:
            info = os.lstat(path)
            if not stat.S_ISREG(info.st_mode):
                return False
            # Closing a file drops the locks that SQLite holds on it for this process:
            # https://www.sqlite.org/howtocorrupt.html#_posix_advisory_locks_canceled_by_a_separate_thread_doing_close_
            return any(_is(info, journal) for journal in _used) or _has_header(path)
        except OSError:
            return False


def _is(info: os.stat_result, journal: Used) -> bool:
    for file in journal.files():
        try:
            if os.path.samestat(info, file.stat()):
                return True
        except OSError:
            continue
    return False


def _has_header(path: str | Path) -> bool:
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
        flags |= getattr(os, name, 0)
    fd = os.open(path, flags)
    try:
        head = os.read(fd, _ID_AT + 4)
    finally:
        os.close(fd)
    return head.startswith(_MAGIC) and head[_ID_AT:] == APPLICATION_ID.to_bytes(4, "big")


# --- Folders that commands in a sandbox may write --------------------------------------------------


def mark_written(folder: Path) -> int:
    """Mark a folder, for all processes, as writable by a sandboxed command until the descriptor is closed.

    Call this before searching the folder for journals. Raises OSError.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    # find_written() in another process holds the lock for a moment.
    for _ in range(_TRIES):
        if _lock_folder(fd, alone=False):
            break
        time.sleep(0.002)  # noqa: TID251 - in a thread
    return fd


def find_written(path: Path) -> Path | None:
    """The folder above a file that a sandboxed command may write to now; None if there is none.

    Call this once the file can be recognised as a journal. Then either this finds the mark of a command, or the search
    that follows the mark finds the journal.
    """
    if os.name != "posix":
        return None
    for folder in Path(os.path.realpath(path)).parents:
        try:
            fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if not _lock_folder(fd, alone=True):
                return folder
        finally:
            os.close(fd)
    return None


_TRIES = 50


def _lock_folder(fd: int, *, alone: bool) -> bool:
    """Try to lock a folder. True also if the file system does not support locks."""
    import fcntl  # noqa: PLC0415 - absent on Windows

    try:
        fcntl.flock(fd, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
