"""Diffs of a text for models and people; bounded in length and in time."""

from __future__ import annotations

import difflib
from collections import Counter

from remit.tools.words import count
from remit.types.text import clean, shorten

MOST_LINES = 200
MOST_LINE_CHARS = 500
MOST_PAIRS = 50_000
"""The most pairs of equal lines; beyond that, comparing takes too long."""


def split_lines(text: str) -> list[str]:
    """The lines of a text without line endings; a final line break does not start another line."""
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def costly(before: str, after: str) -> bool:
    """Whether comparing the two texts would take too long."""
    return _costly(split_lines(clean(before)), split_lines(clean(after)))


def changed(name: str, before: str, after: str) -> str:
    """A unified diff that begins on a new line, or a sentence if there is none to show."""
    old, new = split_lines(clean(before)), split_lines(clean(after))
    if _costly(old, new):
        return f"\n(No diff: {count(max(len(old), len(new)), 'line')} are too many to compare.)"
    lines = list(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm=""))
    if not lines:
        return " Only line endings changed." if before != after else " Nothing changed."
    return _bounded(lines, "of the diff")


def added(lines: list[str]) -> str:
    """The lines of a new text, each with the + of a diff."""
    return _bounded([f"+{line}" for line in lines[: MOST_LINES + 1]], "of the text", len(lines))


def _bounded(lines: list[str], of_what: str, number: int = 0) -> str:
    more = (number or len(lines)) - MOST_LINES
    rest = [f"(... {count(more, 'more line')} {of_what})"] if more > 0 else []
    shown = (shorten(line, MOST_LINE_CHARS, MOST_LINE_CHARS - 3) for line in lines[:MOST_LINES])
    return "".join(f"\n{line}" for line in (*shown, *rest))


def _costly(old: list[str], new: list[str]) -> bool:
    """Whether comparing would take too long: difflib visits every pair of equal lines, except very common lines."""
    counts = Counter(new)
    common = len(new) // 100 + 1 if len(new) >= 200 else len(new)
    return sum(n for line in old if (n := counts[line]) <= common) > MOST_PAIRS
