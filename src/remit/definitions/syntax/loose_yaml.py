"""Front matter that tolerates common mistakes. PyYAML reads the values; values that it would refuse are quoted first.

Published agent files are often not valid YAML: of 4,385 different headers in 20 collections PyYAML refuses 275, most
for a colon in a description. In the other 4,110 it reads what the authors meant. Reading never fails: problems are
reported.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from remit.definitions.syntax.header_lines import (
    COLON,
    GLUED_KEY,
    WORD_KEY,
    HeaderLines,
    Vocabulary,
    indent_of,
    is_void,
    plain_key,
)
from remit.definitions.syntax.multiline_text import RunningText
from remit.definitions.syntax.nested_lines import mend_nested
from remit.definitions.syntax.nodes import Level, Node, quoted
from remit.definitions.syntax.yaml_nodes import Told, Unreadable, is_yaml, read_yaml
from remit.definitions.syntax.yaml_words import BLOCK, as_yaml, needs_quotes, unescape

_COMMENT = re.compile(r"\s#(?=\s|$)")
_TIGHT_COMMENT = re.compile(r"\s#")
_ALIAS = re.compile(r"\*[A-Za-z_][\w-]*")
_PLAIN_WORD = re.compile(r"[A-Za-z_][\w.-]*")

WORK = 4
"""How often each character may be read, on average, to find the ends of values. A hostile file could need more."""
_LEAST_WORK = 20_000


def read_front_matter(
    lines: list[str], first: int, vocabulary: Vocabulary
) -> tuple[dict[str, Node], list[Told]]:
    """The entries of front matter, and its problems. `first` is the number of its first line."""
    header = _Header(lines, first, vocabulary)
    header.mend()
    return header.entries(), header.told


class _Entry(NamedTuple):
    """A top-level key, and the lines of the key and its value."""

    key: str
    start: int
    end: int


class _Header:
    def __init__(self, lines: list[str], first: int, vocabulary: Vocabulary) -> None:
        self.first = first
        self.told: list[Told] = []
        self.lines = HeaderLines(lines, vocabulary)
        self.mended = [""] * len(lines)
        """The same lines, corrected to valid YAML, each at its index."""
        self.spans: list[_Entry] = []
        self.patience = _LEAST_WORK + WORK * sum(map(len, lines))
        if self.lines.tabbed is not None:
            self.tell(self.lines.tabbed, "The line is indented with a tab, which YAML forbids; use spaces.")

    def tell(self, at: int, text: str, level: Level = "warning") -> None:
        self.told.append((level, self.first + at, text))

    # --- Reading the corrected lines ------------------------------------------------------------------

    def entries(self) -> dict[str, Node]:
        told = list[Told]()
        try:
            found = read_yaml("\n".join(self.mended), told, self.first)
        except Unreadable:
            return self._one_by_one()
        self.told += told
        return found.value if isinstance(found.value, dict) else {}

    def _one_by_one(self) -> dict[str, Node]:
        """Read each entry separately, so that one invalid entry does not affect the others."""
        found = dict[str, Node]()
        for entry in self.spans:
            node = self._alone(entry)
            if entry.key in found:
                before = found[entry.key].line
                self.tell(
                    entry.start, f"{entry.key} is written twice (also in line {before}); this line is used."
                )
            found[entry.key] = node
        return found

    def _alone(self, entry: _Entry) -> Node:
        lines, line = self.mended[entry.start : entry.end], self.first + entry.start
        rest = lines[0].partition(":")[2].strip()
        if _ALIAS.fullmatch(rest):
            self.tell(
                entry.start,
                f"{entry.key} refers to {quoted(rest)}, which is not defined; write the value itself.",
            )
            return Node(None, line)
        why = ""
        for mend in (False, True):
            told = list[Told]()
            try:
                tried = list(mend_nested(lines, told, line)) if mend else lines
                found = read_yaml("\n".join(tried), told, line)
            except Unreadable as error:
                why = why or error.text
                continue
            self.told += told
            return next(iter(found.value.values())) if isinstance(found.value, dict) else found
        self.tell(entry.start, f"{entry.key} is not valid YAML and was read as text: {why}.")
        text = "\n".join([rest, *(part.strip() for part in lines[1:])])
        return Node(text.strip(), line, plain=True)

    # --- Correcting the top level: keys and running text ----------------------------------------------

    def mend(self) -> None:
        at = 0
        while at < len(self.lines):
            line = self.lines[at]
            if is_void(line):
                at += 1
                continue
            key, rest = self._key(at)
            if key is None:
                self.tell(at, f"{quoted(line.strip())} is not a `key: value` line; it was ignored.")
                at += 1
                continue
            end = self._value(at, key, rest)
            self.spans.append(_Entry(key, at, end))
            at = end

    def _key(self, at: int) -> tuple[str | None, str]:
        line = self.lines[at].strip()
        if line[:1] in ("'", '"'):
            return _split_quoted_key(line) or (None, "")
        if match := WORD_KEY.match(line):
            return match[1], line[match.end() :]
        match = GLUED_KEY.match(line)
        if match and plain_key(match[1]) in self.lines.words.known:
            self.tell(at, f"{match[1]}: needs a space after the colon.")
            return match[1], line[match.end() :]
        return None, ""

    def _value(self, at: int, key: str, rest: str) -> int:
        """Put a key's value among the corrected lines; returns the number of the line after it."""
        is_text = plain_key(key) in self.lines.words.texts
        if not rest or BLOCK.fullmatch(rest):
            end = self._end_of_block(at)
            if not is_text or (self._has_solid(at, end) and (rest or self._is_block(at))):
                return self._keep(at, key, rest, end)
            rest = ""
        if rest[:1] in ("'", '"', "[", "{"):
            end = self._end_of_marked(at, key, rest)
            if end is not None:
                return self._keep(at, key, rest, end)
            self.tell(at, f"{key} has a {rest[0]} that is not closed as YAML requires; it was read as text.")
            return self._running(at, key, _unquoted(rest), is_text=is_text, quote=True)
        return self._running(at, key, rest, is_text=is_text, quote=is_text)

    def _running(self, at: int, key: str, rest: str, *, is_text: bool, quote: bool) -> int:
        """A plain value, and the lines below that belong to it."""
        text = self._uncommented(at, rest, is_text)
        if COLON.search(text):
            self.tell(at, f"{key} has a colon outside quotes, which other programs reject; quote the value.")
        gathered = RunningText(self.lines, at, is_text=is_text)
        value = gathered.gather(text)
        if gathered.loose:
            self.tell(at, f"{key} continues on lines that are not indented; indent them below `{key}: |`.")
        if is_text:
            value = value.replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"')
        if not (quote or needs_quotes(value)):
            return self._keep(at, key, rest, gathered.at)
        self.mended[at] = f"{_as_key(key)}: {as_yaml(value)}"
        return gathered.at

    def _keep(self, at: int, key: str, rest: str, end: int) -> int:
        self.mended[at] = f"{_as_key(key)}: {rest}"
        self.mended[at + 1 : end] = self.lines.all[at + 1 : end]
        return end

    def _uncommented(self, at: int, rest: str, is_text: bool) -> str:
        cut = _COMMENT.search(" " + rest)
        if cut is None and not is_text:
            cut = _TIGHT_COMMENT.search(" " + rest)
        if cut is not None:
            return rest[: max(cut.start() - 1, 0)].rstrip()
        if is_text and _TIGHT_COMMENT.search(" " + rest):
            self.tell(
                at, "There is a # outside quotes, which other programs read as a comment; quote the text."
            )
        return rest

    # --- Where values end -----------------------------------------------------------------------------

    def _end_of_block(self, at: int) -> int:
        """The number of the line after the block that is indented below this one; list items need no indent."""
        own, end = indent_of(self.lines[at]), at + 1
        for after in range(at + 1, len(self.lines)):
            line = self.lines[after]
            if is_void(line) and indent_of(line) <= own:
                continue
            indent = indent_of(line)
            if indent < own or (indent == own and not _is_item(line)):
                break
            end = after + 1
        return end

    def _has_solid(self, at: int, end: int) -> bool:
        after = self.lines.next_solid(at)
        return after is not None and after < end

    def _is_block(self, at: int) -> bool:
        """Whether a list or a mapping begins below, rather than text."""
        after = self.lines.next_solid(at)
        line = "" if after is None else self.lines[after].strip()
        return _is_item(line) or line.startswith(("[", "{"))

    def _end_of_marked(self, at: int, key: str, rest: str) -> int | None:
        """The number of the line after a value in quotes or brackets; None if the value is not closed properly.

        Its lines should be indented; otherwise the value may extend to the next known key.
        """
        for end in (self._end_of_block(at), self.lines.next_known(at)):
            lines = [f"{_as_key(key)}: {rest}", *self.lines.all[at + 1 : end]]
            self.patience -= sum(map(len, lines))
            if self.patience < 0:
                return None
            if is_yaml("\n".join(lines)):
                return end
        return None


def _is_item(line: str) -> bool:
    stripped = line.strip()
    return stripped.startswith("- ") or stripped == "-"


def _as_key(key: str) -> str:
    return key if _PLAIN_WORD.fullmatch(key) else as_yaml(key)


def _split_quoted_key(line: str) -> tuple[str, str] | None:
    end = line.find(line[0], 1)
    behind = line[end + 1 :].lstrip()
    if end < 1 or not behind.startswith(":"):
        return None
    return line[1:end], behind[1:].strip()


def _unquoted(rest: str) -> str:
    """Text with unpaired quotes: without the outer ones, if it has both."""
    mark = rest[0]
    if mark in "'\"" and len(rest) > 1 and rest.endswith(mark):
        return unescape(rest[1:-1]) if mark == '"' else rest[1:-1]
    return rest.removeprefix("[") if mark == "[" and "]" not in rest else rest
