"""The regular expressions that `grep` takes: Python's, and the part of them that ripgrep reads the same way.

ripgrep gets a pattern only when both engines are known to mean the same by every piece of it; all others go to
Python, so that a search finds the same lines wherever it runs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from remit.tools.words import Refused, show

MOST_CHARS = 1000

_CLASS = re.compile(r"\\.|(\[\^?(?:\]|\\.)?(?:\\.|[^\]\\])*(?:\]|$))", re.DOTALL)
"""An escape, which is passed over, or a class, up to the end of the pattern when it is not closed."""
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
    """Whether ripgrep means the same by it, on ASCII text at least."""
    needs_tables: bool
    """Whether what it means beyond ASCII depends on an engine's own tables of characters."""


def read_pattern(text: str, *, ignore_case: bool) -> Pattern:
    """Raises Refused for a pattern that cannot be searched for."""
    if not text:
        raise Refused("The pattern is empty.")
    if len(text) > MOST_CHARS:
        raise Refused(f"The pattern is too long: {len(text):,} characters; the limit is {MOST_CHARS:,}.")
    if "\0" in text or "\n" in text:
        raise Refused("The pattern has a line break or a NUL character in it. Lines are searched one by one.")
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
            f"{show(text)} is not a regular expression: {error}. Escape what is meant literally: \\( \\[ \\."
        ) from None
    shared = _PLAIN.fullmatch(text) is not None
    return Pattern(text, ignore_case, shared, ignore_case or _TABLES.search(text) is not None)
