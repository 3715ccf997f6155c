"""How much of one reply and one turn is accepted, and how to measure a value without reading all of it.

A model or a tool can send any amount of data, and processing it must not block the event loop. Data above these limits
is refused or truncated; data above `LARGE` is processed in a thread.
"""

from __future__ import annotations

from typing import cast

MOST_CALLS = 10_000
"""Calls of one reply; further calls are dropped."""

MOST_ARGS = 2_000_000
"""Characters in the arguments of one reply, all calls together. No model writes that much in one reply."""

MOST_TEXT = 2_000_000
"""Characters of a reply's text, of its thinking and of a result's details; a longer text is truncated."""

TURN_CHARS = 2_000_000
"""Characters of results that a model reads in one turn, shared equally among the calls."""

MOST_MEDIA = 20_000_000
"""Bytes of one image or document in a result; a larger one is dropped."""

LARGE = 10_000
"""Above this size, a value is checked, rendered or parsed in a thread."""

VALUE_CHARS = 20
"""Characters counted per value besides its text: a list of many short values is as slow to read as a long text."""


def weigh(value: object, most: int) -> int:
    """The approximate length of a value's JSON. Counting stops above `most`."""
    size, values = 0, [value]
    # Nested values are appended while iterating: recursion would fail on deep nesting.
    for one in values:
        if isinstance(one, (str, bytes, bytearray)):
            size += len(one)
        elif isinstance(one, (dict, list, tuple, set, frozenset)):
            inner = cast("dict[object, object] | list[object]", one)
            size += VALUE_CHARS * len(inner)
            # Checked before appending: a list may have millions of values.
            if size <= most:
                values += inner
                values += inner.values() if isinstance(inner, dict) else ()
        if size > most:
            break
    return size
