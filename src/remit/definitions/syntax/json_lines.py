"""JSON with the line of each key. Accepts comments and trailing commas.

The standard library reads every string and number. Depth and size are bounded, since the text is untrusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple, cast

from remit.definitions.syntax.nodes import Node, Scalar, Wrong, quoted
from remit.tools.bounded_toml import DEEPEST, MOST_MARKS, too_deep

_PIECE = re.compile(
    r"""
    (?P<skip>   [\ \t\r\n]++ | //[^\n]*+ | /\* (?: [^*]++ | \*(?!/) )*+ \*/ )
  | (?P<string> " (?: [^"\\\n]++ | \\[^\n] )*+ " )
  | (?P<mark>   [\[\]{},:] )
  | (?P<word>   [^\s\[\]{},:"]++ )
    """,
    re.VERBOSE,
)
_CLOSING = {"{": "}", "[": "]"}


class _Piece(NamedTuple):
    kind: str
    text: str
    line: int


def read_json(text: str) -> Node:
    """The value of a document. Raises Wrong, with the line."""
    return _Reader(_pieces(text)).document()


def _pieces(text: str) -> Iterator[_Piece]:
    line, at, count = 1, 0, 0
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            raise Wrong(f"is not valid JSON: {quoted(text[at : at + 20])}", line)
        kind = cast(str, found.lastgroup)
        if kind != "skip":
            count += 1
            if count > 2 * MOST_MARKS:
                raise Wrong(f"has more than {MOST_MARKS:,} keys and values; shorten it", line)
            yield _Piece(kind, found[0], line)
        line += found[0].count("\n")
        at = found.end()
    yield _Piece("end", "", line)


class _Reader:
    def __init__(self, pieces: Iterator[_Piece]) -> None:
        self._pieces = pieces
        self._next = next(pieces)

    def document(self) -> Node:
        found = self._value(0, self._next.line)
        if self._next.kind != "end":
            raise self._wrong("the end of the file")
        return found

    def _take(self) -> _Piece:
        taken = self._next
        if taken.kind != "end":
            self._next = next(self._pieces)
        return taken

    def _wrong(self, expected: str) -> Wrong:
        here = quoted(self._next.text) if self._next.text else "the end of the file"
        return Wrong(f"is not valid JSON: expected {expected}, but found {here}", self._next.line)

    def _value(self, depth: int, line: int) -> Node:
        """`line` is the line of the value's key, if it has one."""
        if depth > DEEPEST:
            raise Wrong(too_deep(), line)
        if self._next.text in _CLOSING and self._next.kind == "mark":
            opening = self._take().text
            return Node(
                self._pairs(depth + 1) if opening == "{" else self._items(depth + 1),
                line,
            )
        if self._next.kind not in ("string", "word"):
            raise self._wrong("a value")
        return Node(_scalar(self._take()), line)

    def _pairs(self, depth: int) -> dict[str, Node]:
        found = dict[str, Node]()
        while not self._passes("}"):
            if self._next.kind != "string":
                raise self._wrong("a key between quotes")
            key = self._take()
            if not self._passes(":"):
                raise self._wrong("a colon")
            found[str(_scalar(key))] = self._value(depth, key.line)
            self._comma("}")
        return found

    def _items(self, depth: int) -> list[Node]:
        found = list[Node]()
        while not self._passes("]"):
            found.append(self._value(depth, self._next.line))
            self._comma("]")
        return found

    def _passes(self, mark: str) -> bool:
        """Skip this mark if it is the next piece."""
        if self._next.kind == "mark" and self._next.text == mark:
            self._take()
            return True
        return False

    def _comma(self, closing: str) -> None:
        if not self._passes(",") and (self._next.kind, self._next.text) != ("mark", closing):
            raise self._wrong(f"a comma or {closing}")


def _scalar(piece: _Piece) -> Scalar:
    try:
        return cast(Scalar, json.loads(piece.text, strict=False, parse_constant=_refuse))
    except ValueError:
        raise Wrong(f"is not valid JSON: {quoted(piece.text)}", piece.line) from None


def _refuse(word: str) -> object:
    """Reject NaN and Infinity, which Python reads but JSON does not have."""
    raise ValueError(word)
