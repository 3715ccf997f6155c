"""An outcome in a file: `Outcome.save` and `Outcome.load`.

The file is JSON: a format name, a version, and the runs of the tree in one list, each parent before its children. A flat
list has no limit on the depth of a tree.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress

import msgspec
from msgspec import Struct

from remit.errors import UsageError
from remit.types.outcome import Outcome
from remit.types.text import to_json

FORMAT = "remit outcome"
VERSION = 1

FilePath = str | os.PathLike[str]


class _Run(Struct, frozen=True):
    children: int
    outcome: Outcome
    """Without its children: they follow in the list."""


class _File(Struct, frozen=True):
    format: str
    version: int
    runs: tuple[_Run, ...]


class _Head(Struct, frozen=True):
    format: str = ""
    version: int = 0


def save(outcome: Outcome, path: FilePath) -> None:
    """Write an outcome to a file that only the current user can read; an existing file is replaced at once.

    Raises OSError, and UsageError for a value that JSON cannot express.
    """
    try:
        data = msgspec.json.encode(_File(FORMAT, VERSION, tuple(_flat(outcome))))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"The outcome of {outcome.run_id!r} cannot be written as JSON: {error}") from None
    target = os.fspath(path)
    # Created next to the target, because a rename cannot cross file systems. mkstemp allows only the current user.
    number, written = tempfile.mkstemp(dir=os.path.dirname(target) or ".", prefix=".remit-")  # noqa: PTH120 - pathlib is slow to import
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data + b"\n")
        os.replace(written, target)  # noqa: PTH105 - as above
    except BaseException:
        with suppress(OSError):
            os.unlink(written)  # noqa: PTH108 - as above
        raise


def load(path: FilePath) -> Outcome:
    """The outcome that `save` wrote. Raises OSError, and UsageError for any other file."""
    with open(path, "rb") as file:  # noqa: PTH123 - as above
        data = file.read()
    shown = os.fspath(path)
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.format != FORMAT:
            raise UsageError(f"{shown!r} is not an outcome that Outcome.save wrote.")
        if head.version != VERSION:
            raise UsageError(
                f"{shown!r} has version {head.version} of the format; this remit reads version {VERSION}."
            )
        return _nested(msgspec.json.decode(data, type=_File).runs)
    except (msgspec.DecodeError, UnicodeError, RecursionError, LookupError) as error:
        raise UsageError(f"{shown!r} is not an outcome that Outcome.save wrote: {error}") from None


def _flat(top: Outcome) -> list[_Run]:
    found: list[_Run] = []
    left = [top]
    while left:
        one = left.pop()
        alone = msgspec.structs.replace(one, children=(), output=to_json(one.output))
        found.append(_Run(len(one.children), alone))
        left += reversed(one.children)
    return found


def _nested(runs: tuple[_Run, ...]) -> Outcome:
    """Built from the end: the children of a run are then complete, the first child on top."""
    ready: list[Outcome] = []
    for run in reversed(runs):
        if not 0 <= run.children <= len(ready):
            raise LookupError("a run has fewer children than recorded")
        children = tuple(ready.pop() for _ in range(run.children))
        ready.append(msgspec.structs.replace(run.outcome, children=children) if children else run.outcome)
    if len(ready) != 1:
        raise LookupError("the runs are not one tree")
    return ready[0]
