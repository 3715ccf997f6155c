"""Words for messages about files: names, sizes, errors. Every text is safe to print on one line."""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Callable
from typing import ParamSpec, cast

from remit.tools.result import ToolResult
from remit.types.messages import Json
from remit.types.text import shorten

P = ParamSpec("P")


class Refused(Exception):
    """Raised when a tool refuses a call; the message is for the model."""


def show(name: str) -> str:
    """A name that is safe to print: line breaks and other unprintable characters are escaped."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def size(number: int) -> str:
    """A number of bytes, readable for people."""
    if number < 1000:
        return f"{number} byte{'' if number == 1 else 's'}"
    amount, units = number / 1000, ["TB", "GB", "MB", "KB"]
    while amount >= 999.5 and len(units) > 1:
        amount /= 1000
        units.pop()
    return f"{amount:.1f} {units[-1]}" if amount < 9.95 else f"{amount:.0f} {units[-1]}"


def count(number: int, one: str, many: str = "") -> str:
    """A number with its unit, singular or plural."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def counted(result: ToolResult, key: str, one: str, many: str = "") -> str:
    """A short summary: the number under `key` in the result's details, with its unit; else the first line."""
    about: object = result.details
    details = cast("dict[str, Json]", about) if isinstance(about, dict) else {}
    number = details.get(key)
    if not result.ok or not isinstance(number, int):
        return shorten(result.content.split("\n", 1)[0], 80, 77)
    return count(number, one, many)


_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "folder"),
    (stat.S_ISLNK, "symlink"),
    (stat.S_ISFIFO, "FIFO"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)


def kind(mode: int) -> str:
    """The kind of file, as a word."""
    return next((word for test, word in _KINDS if test(mode)), "special file")


_TROUBLE = {
    errno.ENOENT: "{} does not exist.",
    errno.ENOTDIR: "A part of {} is not a folder.",
    errno.EISDIR: "{} is a folder.",
    errno.EACCES: "Cannot open {}: permission denied.",
    errno.EPERM: "Cannot change {}: operation not permitted.",
    errno.ENAMETOOLONG: "{}: the name is too long.",
    errno.ELOOP: "{} became a symlink while it was being opened. Try again.",
    errno.ENXIO: "{} is not a readable file.",
    errno.ENOSPC: "The disk is full; {} was not written.",
    errno.EDQUOT: "The disk quota is used up; {} was not written.",
    errno.EROFS: "{} is on a read-only file system.",
    errno.EMFILE: "Too many files are open; {} was not opened. Try again.",
}


def trouble(error: OSError, path: str) -> str:
    """The message for an OSError."""
    words = _TROUBLE.get(error.errno or 0)
    if words is None:
        return f"{show(path)}: {(error.strerror or str(error) or type(error).__name__).lower()}."
    return words.format(show(path))


def errors_as_results(fn: Callable[P, ToolResult]) -> Callable[P, ToolResult]:
    """A decorator that turns Refused and OSError into a failed result for the model."""

    @functools.wraps(fn)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> ToolResult:
        try:
            return fn(*args, **kwargs)
        except Refused as refusal:
            return ToolResult(str(refusal), ok=False)
        except OSError as error:
            name: object = error.filename
            path = os.fsdecode(name) if isinstance(name, str | bytes) else kwargs.get("path")
            return ToolResult(trouble(error, str(path or "the file")), ok=False)

    return wrapped
