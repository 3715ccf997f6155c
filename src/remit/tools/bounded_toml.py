"""TOML of files that may be hostile: measured before the standard library reads it."""

from __future__ import annotations

import re
import tomllib

DEEPEST = 32
"""How far keys, lists and tables may be nested; nobody's are."""
MOST_MARKS = 50_000
"""Dots, signs of equality, commas and opening brackets outside strings: what keys and values are made of."""

# What a document is made of, as far as its size and depth go; nothing of it is gone over twice.
_PIECE = re.compile(
    r"""
    (?P<long>   "{3} (?: [^"\\]++ | \\. | "(?!"") )*+ "{3,5}  |  '{3} (?: [^']++ | '(?!'') )*+ '{3,5} )
  | (?P<string> "(?!"") (?: [^"\\\n]++ | \\[^\n] )*+ "        |  '(?!'') [^'\n]*+ ' )
  | (?P<comment> \#[^\n]*+ )
  | (?P<unclosed> ["'] )
  | (?P<mark> [.=,\[\]{}\n] )
    """,
    re.VERBOSE | re.DOTALL,
)


class TooLarge(Exception):
    """Raised for a document that would become far larger than it is; `text` says why, for people."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.text = text
        self.line = line


def parse(text: str) -> dict[str, object]:
    """The values of a document. Raises TooLarge, and what `tomllib` raises: ValueError and RecursionError."""
    _measure(text)
    return tomllib.loads(text)


def too_deep() -> str:
    return f"is nested more than {DEEPEST} levels deep; write it flatter"


def _measure(text: str) -> None:
    """Every part of a dotted key is a table, and the parser keeps every beginning of every key.

    Invalid TOML is measured up to where it ceases to be valid, which is as far as it is read.
    """
    line, marks, dots, depth = 1, 0, 0, 0
    for piece in _PIECE.finditer(text):
        if piece.lastgroup == "unclosed":
            return
        mark = piece["mark"]
        if mark is None:
            line += piece[0].count("\n")
            continue
        line += mark == "\n"
        marks += mark in ".=,[{"
        dots = dots + 1 if mark == "." else 0
        depth = max(depth + (mark in "[{") - (mark in "]}"), 0)
        if dots >= DEEPEST or depth > DEEPEST:
            raise TooLarge(too_deep(), line)
        if marks > MOST_MARKS:
            raise TooLarge(f"has more than {MOST_MARKS:,} keys and values; make it shorter", line)
