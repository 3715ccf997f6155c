"""How much of one reply and one turn is accepted, and how to measure a value without reading all of it.

A model or a tool can send any amount of data, and work over it must not block the event loop. Above these limits data is
refused or cut; from `LARGE` on, work over it is done in a thread.
"""

from __future__ import annotations

from typing import cast

MOST_CALLS = 10_000
"""Calls of one reply; the others are left out."""

MOST_ARGS = 2_000_000
"""Characters in the arguments of one reply, all calls together. No model writes that much in one reply."""

MOST_TEXT = 2_000_000
"""Characters of a reply's text, of its thinking and of a result's details; a longer text is cut."""

TURN_CHARS = 2_000_000
"""Characters of results that a model reads in one turn; each call has an equal share of them."""

MOST_MEDIA = 20_000_000
"""Bytes of one image or document in a result; a larger one is left out."""

LARGE = 10_000
"""Above this size, a value is checked, rendered or parsed in a thread."""

VALUE_CHARS = 20
"""What each value counts besides its text: a list of many short values takes as long to read as a long text."""


def weigh(value: object, most: int) -> int:
    """About how many characters the JSON of a value has. Counting stops above `most`."""
    size, values = 0, [value]
    # Those that are found inside join the list and have their turn: nothing is too deep for this.
    for one in values:
        if isinstance(one, (str, bytes, bytearray)):
            size += len(one)
        elif isinstance(one, (dict, list, tuple, set, frozenset)):
            inner = cast("dict[object, object] | list[object]", one)
            size += VALUE_CHARS * len(inner)
            # Looked at before they join: a list may have millions.
            if size <= most:
                values += inner
                values += inner.values() if isinstance(inner, dict) else ()
        if size > most:
            break
    return size
