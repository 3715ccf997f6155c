"""The regular expressions of `grep`: Python's syntax, and the subset that ripgrep reads the same way.

ripgrep gets a pattern only if every part of it means the same in both engines. Python gets all others, so that a search
finds the same lines on every system.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from remit.tools.words import Refused, show

MOST_CHARS = 1000

_CLASS = re.compile(r"\\.|(\[\^?(?:\]|\\.)?(?:\\.|[^\]\\])*(?:\]|$))", re.DOTALL)
"""An escape (skipped) or a character class; an unclosed class extends to the end of the pattern."""
_NESTED = re.compile(r"^\[\^?\[|&&|--|~~|\|\|")
_QUANTIFIER = r"(?:[*+?]|\{\d+(?:,\d*)?\})\??(?![*+?{])"
_PLAIN = re.compile(
    rf"""(?:
      [^\\.\[\](){{}}*+?|^$\n]        # a character that is itself
    | \\[.\[\](){{}}*+?|^$\\/\-]      # an escaped one
    | \\[dDwWsSbB]
    | [.^$|]
    | \((?:\?:)?
    | \)
    | \[\^?(?:[^\[\]\\\n^&~|-]|\\[dwsDWS.\[\]\\^-]|(?<=[\w])-(?=\w))+\]
    | (?<=[^(|^]){_QUANTIFIER}
    )*""",
    re.VERBOSE,
)
_TABLES = re.compile(r"\\[dDwWsSbB]")


class Pattern(NamedTuple):
    """A pattern that Python can compile."""

    text: str
    ignore_case: bool
    shared: bool
    """Whether it means the same in ripgrep, at least on ASCII text."""
    needs_tables: bool
    """Whether its meaning beyond ASCII depends on the engine's Unicode tables."""


def read_pattern(text: str, *, ignore_case: bool) -> Pattern:
    """Check a pattern. Raises Refused for an invalid one."""
    if not text:
        raise Refused("The pattern is empty.")
    if len(text) > MOST_CHARS:
        raise Refused(f"The pattern is too long: {len(text):,} characters; the limit is {MOST_CHARS:,}.")
    if "\0" in text or "\n" in text:
        raise Refused("The pattern contains a line break or a NUL character. Lines are searched one by one.")
    for found in _CLASS.finditer(text):
        if found[1] and _NESTED.search(found[1]):
            raise Refused(
                rf"{show(found[1])}: [, &&, --, ~~ and || mean different things to different engines inside []. "
                r"Escape them: \[."
            )
    try:
        re.compile(text, re.IGNORECASE if ignore_case else 0)
    except (re.error, RecursionError, OverflowError) as error:
        raise Refused(
            f"{show(text)} is not a valid regular expression: {error}. Escape literal characters: \\( \\[ \\."
        ) from None
    shared = _PLAIN.fullmatch(text) is not None
    return Pattern(text, ignore_case, shared, ignore_case or _TABLES.search(text) is not None)
