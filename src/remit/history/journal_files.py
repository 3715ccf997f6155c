"""Journals as files: which files one has, how one is recognised, and which journals this process uses.

Stores and sandboxes share this: a command in a sandbox can neither read nor write any of these files.
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
"""What SQLite adds to the name of a database for the files beside it."""

_MAGIC = b"SQLite format 3\0"
_ID_AT = 68
"""Where the header of an SQLite file has the application's id."""


def default_folder() -> Path:
    """Where runs are kept when no place is named: $REMIT_HOME, else this user's folder for such things."""
    if home := os.environ.get("REMIT_HOME"):
        return Path(home).expanduser()
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "remit"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "remit"
    state = os.environ.get("XDG_STATE_HOME", "")
    # The standard says that a relative one is to be ignored.
    return (Path(state) if state.startswith("/") else Path.home() / ".local" / "state") / "remit"


# --- The journals that this process uses ----------------------------------------------------------


class Used(Protocol):
    """A journal that this process uses."""

    def files(self) -> Iterable[Path]:
        """Its files and sockets, whether they exist or not; no links."""
        ...

    @property
    def password(self) -> str:
        """What opens it, if that is a secret."""
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
    """The database at this path and the files beside it. SQLite names those after the database that a link leads to."""
    real = Path(os.path.realpath(path))
    return [real, *(real.with_name(real.name + ending) for ending in BESIDE)]


def database_of(path: Path) -> Path:
    """The database that a file would belong to by its name."""
    for ending in BESIDE:
        if path.name.endswith(ending) and path.name != ending:
            return path.with_name(path.name.removesuffix(ending))
    return path


def is_journal(path: str | Path) -> bool:
    """Whether a regular file is a journal. Links are not followed."""
    # The lock: no store may open the file between the look at `_used` and the end of the read.
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
    """Tell every process that a command may write in a folder, until the descriptor is closed.

    To be done before the folder is searched for journals. Raises OSError.
    """
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    # Whoever asks holds the lock for a moment.
    for _ in range(_TRIES):
        if _lock_folder(fd, alone=False):
            break
        time.sleep(0.002)  # noqa: TID251 - in a thread
    return fd


def find_written(path: Path) -> Path | None:
    """The folder above a file in which a command in a sandbox may write at this moment.

    To be asked once the file can be recognised as a journal: then either the file is found by the search that comes
    after a mark, or the mark is found here.
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
    """Whether a lock could be had; also where the file system has none."""
    import fcntl  # noqa: PLC0415 - not on every system

    try:
        fcntl.flock(fd, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
