"""Build a text: lines, empty lines, lists, quotations, code blocks."""

from __future__ import annotations

import re
from collections.abc import Callable

MOST_LEVELS = 10
"""The deepest nesting of lists and of quotations that is shown."""

End = Callable[[], None]
"""Ends an element."""

_SPACES = re.compile(r"[ \t\n\r\f\v\xa0]++")
_FENCES = re.compile(r"`{3,}")


class TextBuilder:
    """Builds a text. Separators are written together with the next words, so that none are left at the end."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.chars = 0
        self.said = 0
        self.lists = 0
        self.quotes = 0
        self.block: list[str] | None = None
        """The content of the open code block, unchanged."""
        self.anchors: list[int] = []
        """The position of each open link or inline code; -1 until it has text."""
        self._gap = 0
        self._space = False
        self._marker = ""

    def say(self, text: str, *, counts: bool = True) -> None:
        if self.block is not None:
            self.block.append(text)
            self.chars += len(text)
            return
        text = _SPACES.sub(" ", text)
        words = text.strip(" ")
        if not words:
            self._space = self._space or bool(text)
            return
        self._write(words, spaced=text[0] == " ", counts=counts)
        self._space = text[-1] == " "

    def _write(self, words: str, *, spaced: bool, counts: bool) -> None:
        lead = " " if spaced or self._space else ""
        if self._gap or self._marker or not self.pieces:
            breaks = "\n" * max(self._gap, 1) if self.pieces else ""
            lead = breaks + self._prefix() + self._marker
        self._gap, self._marker = 0, ""
        if lead:
            self.pieces.append(lead)
        for i in range(len(self.anchors) - 1, -1, -1):
            if self.anchors[i] >= 0:
                break
            self.anchors[i] = len(self.pieces)
        self.pieces.append(words)
        self.chars += len(lead) + len(words)
        self.said += counts

    def line(self, gap: int) -> None:
        """Start a new line before the next words; a gap of 2 adds an empty line."""
        self._space = False
        if self.pieces and not self._marker:
            self._gap = max(self._gap, gap)

    def mark(self, marker: str) -> End:
        """Write this marker before the next words; it is dropped if none follow."""
        self.line(1)
        self._marker = marker

        def end() -> None:
            self._marker = ""

        return end

    def wrap(self, make: Callable[[str], str]) -> None:
        """Rewrite the text since the last anchor, and remove the anchor."""
        at = self.anchors.pop()
        words = "".join(self.pieces[at:]) if at >= 0 else ""
        if words:
            made = make(words)
            self.pieces[at:] = [made]
            self.chars += len(made)

    def break_block(self) -> None:
        if self.block and not self.block[-1].endswith("\n"):
            self.block.append("\n")

    def end_block(self, language: str, *, in_line: bool) -> None:
        """Write the code block: between fences, or inline if `in_line` and it is one line."""
        text = "".join(self.block or ()).strip("\n")
        self.block = None
        if not text.strip():
            return
        if in_line and "\n" not in text:
            self.say(f"`{text}`")
            return
        fence = "`" * (max(map(len, _FENCES.findall(text)), default=2) + 1)
        self.line(2)
        lines = [fence + language, *text.split("\n"), fence]
        self._write(("\n" + self._prefix()).join(lines), spaced=False, counts=True)
        self.line(2)

    def _prefix(self) -> str:
        return "> " * min(self.quotes, MOST_LEVELS) + "  " * min(max(self.lists - 1, 0), MOST_LEVELS)

    def between(self, start: int, end: int) -> str:
        return "".join(self.pieces[start:end]).strip("\n")
