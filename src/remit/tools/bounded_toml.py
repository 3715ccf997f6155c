"""Parse TOML that may be hostile: check its size and depth before the standard library reads it."""

from __future__ import annotations

import re
import tomllib

DEEPEST = 32
"""The deepest nesting of keys, lists and tables."""
MOST_MARKS = 50_000
"""The most dots, equals signs, commas and opening brackets outside strings: about the number of keys and values."""

# The tokens that decide size and depth. Possessive quantifiers: the pattern reads each character once.
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
    """Raised for a document that would need far more memory than its own size; `text` gives the reason."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.text = text
        self.line = line


def parse(text: str) -> dict[str, object]:
    """The values of a document. Raises TooLarge, and from `tomllib` ValueError and RecursionError."""
    _measure(text)
    return tomllib.loads(text)


def too_deep() -> str:
    return f"is nested more than {DEEPEST} levels deep; write it flatter"


def _measure(text: str) -> None:
    """Raise TooLarge beyond the bounds: each part of a dotted key is a table, and the parser keeps every prefix of every key.

    In invalid TOML, counting stops at the first unclosed string: the parser stops there too.
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
