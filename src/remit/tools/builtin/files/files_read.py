"""Records the content of a file that each run last saw, so that a run does not overwrite changes it has not seen.

A run may change a file only if the file is as the run last read or wrote it. The record is bounded: a run whose entry was
dropped must read the file again. The record does not outlive the process, so a resumed run must read again too.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TypeVar

from remit.tools.tool import ToolContext
from remit.tools.words import Refused

K = TypeVar("K")
V = TypeVar("V")

MOST_KEPT = 20_000


class _Locks:
    """`files`: locks chosen by the hash of a path. `tables`: one lock for the tables below."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Replace the locks; after a fork too, where the thread that held a lock does not exist."""
        self.files = tuple(threading.Lock() for _ in range(64))
        self.tables = threading.Lock()


_locks = _Locks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_locks.renew)

_seen: OrderedDict[tuple[Path, str, tuple[str, ...]], bytes] = OrderedDict()
_writers: OrderedDict[tuple[Path, tuple[str, ...]], tuple[bytes, str]] = OrderedDict()


def changing(root: Path, parts: tuple[str, ...]) -> threading.Lock:
    """The lock to hold from reading a file until it is replaced, so that one of two writers sees the other's change."""
    return _locks.files[hash((root, parts)) % len(_locks.files)]


def digest(data: bytes) -> bytes:
    """A hash of a file's content."""
    return hashlib.blake2b(data, digest_size=16).digest()


def saw(ctx: ToolContext, root: Path, parts: tuple[str, ...], data: bytes) -> None:
    """Record that this run has read the file, whole or in part."""
    with _locks.tables:
        _put(_seen, (root, ctx.run_id, parts), digest(data))


def wrote(ctx: ToolContext, root: Path, parts: tuple[str, ...], data: bytes) -> None:
    """Record that this run has written the file."""
    content = digest(data)
    with _locks.tables:
        _put(_seen, (root, ctx.run_id, parts), content)
        _put(_writers, (root, parts), (content, " › ".join(ctx.path)))


def check(ctx: ToolContext, root: Path, parts: tuple[str, ...], data: bytes, shown: str) -> None:
    """Raise Refused unless the file is as this run last saw it."""
    content = digest(data)
    with _locks.tables:
        known = _seen.get((root, ctx.run_id, parts))
        writer = _writers.get((root, parts))
    if known == content:
        return
    if known is None:
        raise Refused(f"Not changed: {shown} exists, but you have not read it. Read it first.")
    who = f" by {writer[1]}" if writer is not None and writer[0] == content else ""
    raise Refused(f"Not changed: {shown} was changed{who} since you read it. Read it again, then decide.")


def _put(table: OrderedDict[K, V], key: K, value: V) -> None:
    table[key] = value
    table.move_to_end(key)
    while len(table) > MOST_KEPT:
        table.popitem(last=False)
