"""What each run last saw of a file, so that nobody overwrites what somebody else wrote meanwhile.

A run may change a file that is as the run last read or wrote it. The memory is bounded: what is forgotten has to be
read again, which is safe. It does not survive the process, so a resumed run reads again too.
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
    """`files` by the hash of a path, and one for the tables below."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Also in a forked process: a thread that holds one may have stayed in the parent."""
        self.files = tuple(threading.Lock() for _ in range(64))
        self.tables = threading.Lock()


_locks = _Locks()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_locks.renew)

_seen: OrderedDict[tuple[Path, str, tuple[str, ...]], bytes] = OrderedDict()
_writers: OrderedDict[tuple[Path, tuple[str, ...]], tuple[bytes, str]] = OrderedDict()


def changing(root: Path, parts: tuple[str, ...]) -> threading.Lock:
    """Held from the look at a file to its replacement: of two runs that change it, one sees the other's work."""
    return _locks.files[hash((root, parts)) % len(_locks.files)]


def digest(data: bytes) -> bytes:
    """What stands for a file's content."""
    return hashlib.blake2b(data, digest_size=16).digest()


def saw(ctx: ToolContext, root: Path, parts: tuple[str, ...], data: bytes) -> None:
    """This run has read the file, whole or in part."""
    with _locks.tables:
        _put(_seen, (root, ctx.run_id, parts), digest(data))


def wrote(ctx: ToolContext, root: Path, parts: tuple[str, ...], data: bytes) -> None:
    """This run has written the file."""
    content = digest(data)
    with _locks.tables:
        _put(_seen, (root, ctx.run_id, parts), content)
        _put(_writers, (root, parts), (content, " › ".join(ctx.path)))


def check(ctx: ToolContext, root: Path, parts: tuple[str, ...], data: bytes, shown: str) -> None:
    """Raises Refused unless the file is as this run last saw it."""
    content = digest(data)
    with _locks.tables:
        known = _seen.get((root, ctx.run_id, parts))
        writer = _writers.get((root, parts))
    if known == content:
        return
    if known is None:
        raise Refused(f"Not changed: {shown} exists, and you have not read it. Read it first.")
    who = f" by {writer[1]}" if writer is not None and writer[0] == content else ""
    raise Refused(f"Not changed: {shown} was changed{who} since you read it. Read it again, then decide.")


def _put(table: OrderedDict[K, V], key: K, value: V) -> None:
    table[key] = value
    table.move_to_end(key)
    while len(table) > MOST_KEPT:
        table.popitem(last=False)
