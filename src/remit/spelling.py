"""What was probably meant by a name that means nothing. Nothing here is loaded or run for those that mean something."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from remit.errors import UsageError

LONGEST_WORD = 80
"""Characters; to compare long ones takes long, and nobody meant them."""

MOST_COMPARED = 500
"""Names."""


def suggest(word: object, known: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """A sentence that names what was probably meant, with a blank in front; empty when nothing is near.

    `others` is what else people call them.
    """
    if not isinstance(word, str):
        return ""
    meant = (others or {}).get(word.lower()) or nearest(word, known)
    return f" Did you mean {meant!r}?" if meant else ""


def check_names(
    what: str,
    unnamed: Sequence[object],
    named: Iterable[str],
    *,
    known: Sequence[str],
    others: Mapping[str, str],
    example: str,
) -> None:
    """For a call that Python did not take: raises UsageError if it has values without a name, or names that are none."""
    if unnamed:
        raise UsageError(
            f"{what} has {repr(unnamed[0])[:60]} without a name. Say what it is, as in {example}."
        ) from None
    wrong = [name for name in named if name not in known]
    if wrong:
        each = " ".join(f"{what} has no {name[:60]!r}.{suggest(name, known, others)}" for name in wrong[:5])
        raise UsageError(f"{each} It has {', '.join(known)}.") from None


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Which of some names was probably meant."""
    if len(word) > LONGEST_WORD:
        return None
    import difflib  # noqa: PLC0415 - only for those who mistype

    names = {name.lower(): name for name in islice(known, MOST_COMPARED)}
    near = difflib.get_close_matches(word.lower(), names, 1)
    return names[near[0]] if near else None
