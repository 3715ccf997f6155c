"""SQLite connections that were open when this process was forked.

SQLite does not survive a fork. It remembers in the process which locks it holds, and the child inherits that memory, but
not the locks; a thread of the parent that was inside SQLite leaves SQLite's own mutexes locked in the child for ever (seen in
3 of 300 forks); and to close an inherited connection in the middle of a transaction can damage the file. So a child of a
process that had a connection open never uses SQLite, and never closes what it inherited.
"""

from __future__ import annotations

import os
import sqlite3


class Opened:
    """One connection, from before it is made until after it is closed: a fork may come at any moment."""

    def __init__(self) -> None:
        self.connection: sqlite3.Connection | None = None
        _opened.add(self)

    def closed(self) -> None:
        _opened.discard(self)


_opened: set[Opened] = set()
_inherited: set[Opened] = set()


def has_inherited() -> bool:
    """Whether the parent, or a process above it, had a connection open when it forked."""
    return bool(_inherited)


def _forked() -> None:
    for one in _opened:
        if one.connection is not None:
            _never_close(one.connection)
    _inherited.update(_opened)
    _opened.clear()


def _never_close(connection: sqlite3.Connection) -> None:
    """Python closes what it frees, at the latest when the process ends: so it is never freed."""
    import ctypes  # noqa: PLC0415 - slow to import, and hardly ever needed

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
