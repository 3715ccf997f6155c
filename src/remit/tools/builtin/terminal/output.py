"""A command's output: kept within bounds, shown in pieces, and turned into text without terminal escapes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from remit.tools.words import size

HEAD = 2_000_000
TAIL = 2_000_000
"""Bytes kept of the beginning and of the end; the middle is omitted."""

EVERY_S = 0.5
FIRST_S = 0.05
"""Seconds between two pieces, and between the first output and the first piece."""
PIECE_BYTES = 2000
"""The most bytes of one piece; the latest output is shown."""

_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]?"  # colours, cursor
    r"|\x9b[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # titles, links, strings
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BLOCK = 1 << 16


def tidy(text: str) -> str:
    """The text as a terminal would show it: no escapes, no control characters, final progress bars."""
    # In blocks, so that other threads run too: each step below holds the GIL until it is done.
    done: list[str] = []
    start = 0
    while start < len(text):
        end = text.find("\n", start + _BLOCK) + 1 or len(text)
        done.append(_tidy(text[start:end]))
        start = end
    return "".join(done)


def _tidy(text: str) -> str:
    if "\x1b" in text or not text.isascii():
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        text = "\n".join(map(_last_drawn, text.replace("\r\n", "\n").split("\n")))
    if "\x08" in text:
        text = "\n".join(map(_without_erased, text.split("\n")))
    return _CONTROLS.sub("", text)


def _last_drawn(line: str) -> str:
    if "\r" not in line:
        return line
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


def _without_erased(line: str) -> str:
    if "\x08" not in line:
        return line
    kept: list[str] = []
    for char in line:
        if char != "\x08":
            kept.append(char)
        elif kept:
            kept.pop()
    return "".join(kept)


class Kept:
    """The beginning and the end of the output, in bounded memory."""

    def __init__(self, head: int = HEAD, tail: int = TAIL) -> None:
        self.total = 0
        self._most_head = head
        self._most_tail = tail
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._most_head - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._most_tail :]
        # Not for every piece: moving the rest to the front each time would cost more than reading it.
        if len(self._tail) > 2 * self._most_tail:
            del self._tail[: -self._most_tail]

    def text(self) -> str:
        """The kept output, with a line in the gap that gives the number of omitted bytes."""
        if self.total <= self._most_head + self._most_tail:
            return tidy((self._head + self._tail).decode("utf-8", "replace"))
        head, tail = self._head, self._tail[-self._most_tail :]
        # Whole lines on both sides of the gap, unless they are very long.
        end = head.rfind(b"\n", len(head) - 4096) + 1 or len(head)
        begin = tail.find(b"\n", 0, 4096) + 1
        left_out = self.total - end - (len(tail) - begin)
        before = tidy(head[:end].decode("utf-8", "ignore"))
        after = tidy(tail[begin:].decode("utf-8", "ignore" if not begin else "replace"))
        gap = "" if before.endswith("\n") else "\n"
        return f"{before}{gap}[... {size(left_out)} omitted ...]\n{after}"


class Pieces:
    """Shows output as it arrives: pieces of bounded size, at most one every `EVERY_S`."""

    def __init__(self, emit: Callable[[str], None]) -> None:
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()
        self._skipped = 0
        self._timer: asyncio.TimerHandle | None = None
        self._last = float("-inf")

    def add(self, data: bytes) -> None:
        over = len(self._waiting) + len(data) - PIECE_BYTES
        if over > 0:
            self._skipped += over
            self._waiting = (self._waiting + data[-PIECE_BYTES:])[-PIECE_BYTES:]
        else:
            self._waiting += data
        if self._timer is None:
            now = self._loop.time()
            self._timer = self._loop.call_at(max(now + FIRST_S, self._last + EVERY_S), self._show)

    def close(self) -> None:
        """Show the rest at once."""
        if self._timer is not None:
            self._timer.cancel()
            self._show(whole=True)

    def _show(self, *, whole: bool = False) -> None:
        self._timer = None
        self._last = self._loop.time()
        end = self._waiting.rfind(b"\n") + 1
        if whole or not end:
            end = len(self._waiting)
        text = tidy(bytes(self._waiting[:end]).decode("utf-8", "replace"))
        skipped = f"[... {size(self._skipped)} not shown ...]\n" if self._skipped else ""
        del self._waiting[:end]
        self._skipped = 0
        if text.strip():
            self._emit(skipped + text)
        if self._waiting and not whole:
            self._timer = self._loop.call_at(self._last + EVERY_S, self._show)
