"""Suggestions for misspelled names. Imported only when a name is wrong.

Imports no other module of remit, so that even `errors.py` can use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

LONGEST_WORD = 80
"""Characters. Longer words are not compared: it would be slow, and they are not misspelled names."""

MOST_COMPARED = 500
"""Names compared with a word."""

LEAST_SLIP = 4
"""Letters. Most words that resemble a shorter word are real words too."""


def suggest(word: object, known: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """A question that names the nearest known name, with a leading space; empty if no name is near.

    `others` maps names from other systems to ours.
    """
    if not isinstance(word, str):
        return ""
    meant = (others or {}).get(word.lower()) or nearest(word, known)
    return f" Did you mean {meant!r}?" if meant else ""


def wrong_names(
    what: str,
    unnamed: Sequence[object],
    named: Iterable[str],
    *,
    known: Sequence[str],
    others: Mapping[str, str],
    example: str,
) -> str:
    """The message for a call with positional arguments or unknown argument names; empty if it has neither."""
    if unnamed:
        return f"{what}: pass {repr(unnamed[0])[:60]} by name, as in {example}."
    wrong = [name for name in named if name not in known]
    if not wrong:
        return ""
    each = " ".join(
        f"{what} has no argument {name[:60]!r}.{suggest(name, known, others)}" for name in wrong[:5]
    )
    return f"{each} Known arguments: {', '.join(known)}."


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant; None if no name is near."""
    if len(word) > LONGEST_WORD:
        return None
    import difflib  # noqa: PLC0415 - needed only for a wrong name

    names = {name.lower(): name for name in islice(known, MOST_COMPARED)}
    anagram = _same_letters(word, names)
    near = [anagram] if anagram else difflib.get_close_matches(word.lower(), names, 1)
    return names[near[0]] if near else None


def slip_of(word: str, known: Iterable[str]) -> str | None:
    """The known name that a word surely misspells: two letters swapped, or one letter too many or too few inside it.

    Other differences may be intended: a different letter or ending (`to_eu` and `to_au`), a short name (`sh` and
    `ssh`), a different number (`step_12` and `step_21`), or another separator (`web_search` and `websearch`).
    """
    if not word or len(word) > LONGEST_WORD or word in (names := list(islice(known, MOST_COMPARED))):
        return None
    swapped = {
        word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        for at in range(len(word) - 1)
        if word[at : at + 2].isalpha()
    }
    return next((name for name in names if name in swapped or _missing_one(word, name)), None)


def _same_letters(word: str, names: Iterable[str]) -> str | None:
    letters = sorted(word.lower())
    return next((name for name in names if sorted(name.lower()) == letters), None)


def _missing_one(word: str, name: str) -> bool:
    # Most pairs differ here, which is cheap to check.
    if word[0] != name[0] or word[-1] != name[-1] or abs(len(word) - len(name)) != 1:
        return False
    short, long = sorted((word, name), key=len)
    at = next(at for at, (a, b) in enumerate(zip(short + "\0", long, strict=True)) if a != b)
    # Between letters only: elsewhere the character may be a digit or a separator.
    return len(short) >= LEAST_SLIP and long[at + 1 :] == short[at:] and long[at - 1 : at + 2].isalpha()
