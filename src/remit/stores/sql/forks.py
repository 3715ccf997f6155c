"""SQLite connections that were open when this process was forked.

SQLite does not support forks. The child inherits SQLite's record of the locks it holds, but not the locks. If a thread of
the parent was inside SQLite, SQLite's mutexes stay locked in the child for ever (seen in 3 of 300 forks). Closing an
inherited connection in the middle of a transaction can damage the file. So a child of a process with an open connection
never uses SQLite and never closes an inherited connection.
"""

from __future__ import annotations

import os
import sqlite3


class Opened:
    """One connection, from before it is opened until after it is closed: a fork may happen at any moment."""

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None
        _opened.add(self)

    def closed(self) -> None:
        _opened.discard(self)


_opened: set[Opened] = set()
_inherited: set[Opened] = set()


def has_inherited() -> bool:
    """Whether the parent, or one of its ancestors, had an open connection when it forked."""
    return bool(_inherited)


def _forked() -> None:
    for one in _opened:
        if one.connection is not None:
            _never_close(one.connection)
    _inherited.update(_opened)
    _opened.clear()


def _never_close(connection: sqlite3.Connection) -> None:
    """Leak the connection: Python would close it when it is freed, at the latest when the process ends."""
    import ctypes  # noqa: PLC0415 - slow to import and rarely needed

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
