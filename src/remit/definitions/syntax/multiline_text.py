"""Values of front matter that continue on further lines, and which of the lines below belong to them."""

from __future__ import annotations

import re

from remit.definitions.syntax.header_lines import CLOSING_TAG, GLUED_KEY, WORD_KEY, HeaderLines, indent_of

_TAG = re.compile(r"<([A-Za-z][\w-]{0,40})(?:\s[^<>]{0,200})?>")
_SPEECH = frozenset(
    (
        "context",
        "user",
        "assistant",
        "commentary",
        "human",
        "example",
        "examples",
        "scenario",
        "response",
        "note",
    )
)
"""Words before a colon that belong to examples in a description."""


class RunningText:
    """The lines of a plain top-level value: indented lines, and lines that should have been indented."""

    def __init__(self, lines: HeaderLines, at: int, *, is_text: bool) -> None:
        self.lines = lines
        self.at = at + 1
        """The line after the value."""
        self.loose = False
        """Whether lines that are not indented belong to the value."""
        self._is_text = is_text
        self._parts: list[str] = []
        self._inside_until = -1

    def gather(self, text: str) -> str:
        self._parts.append(text)
        self._look_for_tags(text, self.at - 1)
        while self.at < len(self.lines) and self._belongs(self.lines[self.at]):
            self._parts.append(self.lines[self.at].strip())
            self._look_for_tags(self._parts[-1], self.at)
            self.at += 1
        if self.loose or "<" in text:
            return "\n".join(self._parts).strip()
        return fold(self._parts).strip()

    def _look_for_tags(self, text: str, at: int) -> None:
        """Between <example> and </example> no line is a key. A tag that is never closed is ignored."""
        if not self._is_text or at < self._inside_until:
            return
        closed = {tag[1]: tag.start() for tag in CLOSING_TAG.finditer(text)}
        for name, begun in {tag[1]: tag.start() for tag in _TAG.finditer(text)}.items():
            if closed.get(name, -1) < begun:
                end = self.lines.next_closing(name, at)
                self._inside_until = max(self._inside_until, -1 if end is None else end)

    def _belongs(self, line: str) -> bool:
        if self.at <= self._inside_until:
            self.loose = self.loose or (bool(line) and indent_of(line) <= self.lines.base)
            return True
        if not line:
            return self._goes_on_below()
        if indent_of(line) > self.lines.base:
            return self._is_text or not (self.lines.is_known(self.at) or line.lstrip().startswith("#"))
        if not self._is_text or not self._is_loose(line):
            return False
        self.loose = True
        return True

    def _goes_on_below(self) -> bool:
        """Whether an empty line belongs to the value: only if the next line does."""
        after = self.lines.next_written(self.at)
        if after is None or not self._is_text:
            return False
        return indent_of(self.lines[after]) > self.lines.base or self._is_loose(self.lines[after])

    def _is_loose(self, line: str) -> bool:
        """Whether a line that is not indented is still text."""
        match = WORD_KEY.match(line) or GLUED_KEY.match(line)
        if match is None:
            return self.loose or not line.startswith("#")
        key = match[1]
        if self.lines.is_key(key):
            return False
        return self.loose or key[0].isupper() or key.lower() in _SPEECH


def fold(lines: list[str]) -> str:
    """Lines joined as YAML joins them: a line break becomes a space, empty lines become line breaks."""
    if len(lines) == 1:
        return lines[0]
    out, empty = [lines[0].rstrip()], 0
    for line in lines[1:]:
        stripped = line.strip()
        if not stripped:
            empty += 1
            continue
        out.append("\n" * empty if empty else " ")
        out.append(stripped)
        empty = 0
    return "".join(out) + (" " if empty == 0 and lines[-1] != lines[-1].rstrip() else "")
