"""YAML values that stand between marks: "quotes", [lists] and {mappings}. Blocks are read in `loose_yaml.py`."""

from __future__ import annotations

import re

from remit.definitions.syntax.nodes import Node

DEEPEST = 16
"""How far lists and mappings may be nested; nobody's are."""

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\n", "0": "", "a": "", "b": "", "e": "", "f": "", "v": "", "_": " "}
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_SINGLE = re.compile(r"'((?:[^']|'')*)'", re.DOTALL)
_REST = re.compile(r"\s*(?:\s#.*)?", re.DOTALL)


class Unreadable(Exception):
    """Raised when a text does not have the form that its first mark promises."""


def read_flow(written: str, line: int) -> Node:
    """A quoted text, a list or a mapping that is all of `written`, but for a comment. Raises Unreadable."""
    reader = _Flow(written, line)
    node = reader.value(0)
    if not _REST.fullmatch(written, reader.at):
        raise Unreadable
    return node


def unescape(written: str) -> str:
    """What the escapes of double quotes stand for; control characters are left out."""
    return _ESCAPE.sub(_meant, written)


def _meant(found: re.Match[str]) -> str:
    digits = found[1] or found[2] or found[3]
    if digits:
        code = int(digits, 16)
        return chr(code) if 0x20 <= code <= 0x10FFFF and not 0x7F <= code < 0xA0 else ""
    return _ESCAPES.get(found[4], found[4])


class _Flow:
    def __init__(self, written: str, line: int) -> None:
        self.written = written
        self.line = line
        self.at = 0

    def value(self, depth: int) -> Node:
        if depth > DEEPEST:
            raise Unreadable
        self.skip()
        mark = self.written[self.at : self.at + 1]
        if mark in ("'", '"'):
            return Node(self.quoted(mark), self.line)
        if mark == "[":
            return Node(self.items(depth), self.line)
        if mark == "{":
            return Node(self.pairs(depth), self.line)
        return Node(self.plain(), self.line, plain=True)

    def skip(self) -> None:
        while self.at < len(self.written) and self.written[self.at].isspace():
            self.at += 1

    def quoted(self, mark: str) -> str:
        found = (_DOUBLE if mark == '"' else _SINGLE).match(self.written, self.at)
        if found is None:
            raise Unreadable
        self.at = found.end()
        # A line break inside quotes is a blank, as YAML has it; an empty line is one line break.
        folded = fold(found[1].split("\n"))
        return unescape(folded) if mark == '"' else folded.replace("''", "'")

    def plain(self) -> str:
        """Words up to the next comma or bracket; brackets that belong to them are theirs: `Bash(git *)`."""
        start, depth = self.at, 0
        while self.at < len(self.written):
            char = self.written[self.at]
            if char == "(":
                depth += 1
            elif char == ")":
                depth -= 1
            elif char in ",[]{}\n" and depth <= 0:
                break
            self.at += 1
        return self.written[start : self.at].strip()

    def items(self, depth: int) -> list[Node]:
        found = list[Node]()
        self.at += 1
        while not self.closes("]"):
            found.append(self.value(depth + 1))
            self.comma("]")
        return [node for node in found if node.value != "" or not node.plain]

    def pairs(self, depth: int) -> dict[str, Node]:
        found = dict[str, Node]()
        self.at += 1
        while not self.closes("}"):
            self.skip()
            mark = self.written[self.at : self.at + 1]
            key = self.quoted(mark) if mark in ("'", '"') else self.key()
            self.skip()
            if self.written[self.at : self.at + 1] != ":":
                raise Unreadable
            self.at += 1
            found[key] = self.value(depth + 1)
            self.comma("}")
        return found

    def key(self) -> str:
        found = re.compile(r"[^:,\[\]{}\n]+").match(self.written, self.at)
        if found is None:
            raise Unreadable
        self.at = found.end()
        return found[0].strip()

    def closes(self, mark: str) -> bool:
        self.skip()
        if self.at >= len(self.written):
            raise Unreadable
        if self.written[self.at] == mark:
            self.at += 1
            return True
        return False

    def comma(self, closing: str) -> None:
        self.skip()
        here = self.written[self.at : self.at + 1]
        if here == ",":
            self.at += 1
        elif here != closing:
            raise Unreadable


def fold(lines: list[str]) -> str:
    """Lines as YAML joins them: a line break is a blank, empty lines are line breaks."""
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
