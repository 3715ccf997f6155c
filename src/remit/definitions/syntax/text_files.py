"""Reads untrusted files, which may be binary, too large, a pipe, or a symlink."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from remit.definitions.syntax.nodes import Level, Wrong
from remit.tools.settings_files import MOST_BYTES


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a file, and the problems found while reading it."""

    text: str
    told: tuple[tuple[Level, int, str], ...] = ()


def read_text(path: Path, inside: Path | None) -> Text:
    """Read a file. Raises Wrong for an unreadable file. With `inside`, symlinks that leave that folder are refused."""
    try:
        real = path.resolve(strict=True)
    except RuntimeError:
        raise Wrong("is a symlink that points to itself; remove it", 0) from None
    except OSError as error:
        raise Wrong(_in_words(error), 0) from None
    if inside is not None and not real.is_relative_to(inside):
        raise Wrong(
            "is a symlink to a place outside the project and was not read; put the file itself here", 0
        )
    return _decoded(_read_bytes(real))


def _read_bytes(path: Path) -> bytes:
    # Do not block on a pipe, and do not follow a symlink that was created after the check.
    flags = (
        os.O_RDONLY
        | getattr(os, "O_NONBLOCK", 0)
        | getattr(os, "O_NOFOLLOW", 0)
        | getattr(os, "O_CLOEXEC", 0)
    )
    try:
        handle = os.open(path, flags)
    except OSError as error:
        raise Wrong(_in_words(error), 0) from None
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Wrong("is not a regular file", 0)
        try:
            data = file.read(MOST_BYTES + 1)
        except OSError as error:
            raise Wrong(_in_words(error), 0) from None
    if len(data) > MOST_BYTES:
        raise Wrong(f"is larger than {MOST_BYTES:,} bytes; shorten it", 0)
    return data


def _in_words(error: OSError) -> str:
    why = (error.strerror or type(error).__name__).lower()
    return f"cannot be read: {why}"


def _decoded(data: bytes) -> Text:
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        if data.startswith(mark):
            told = ("warning", 1, "The file is UTF-16; save it as UTF-8.")
            return Text(data[2:].decode(encoding, "replace"), (told,))
    if b"\0" in data:
        raise Wrong("is not text", 0)
    try:
        return Text(data.decode("utf-8").removeprefix("\ufeff"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
    text = data.decode("utf-8", "replace")
    if text.count("\ufffd") * 10 > len(text):
        raise Wrong("is not UTF-8 text; save it as UTF-8", line)
    told = ("warning", line, "The file is not valid UTF-8; invalid bytes were read as \ufffd.")
    return Text(text.removeprefix("\ufeff"), (told,))
