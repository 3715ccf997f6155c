"""What was probably meant by a name that means nothing. Nothing here is loaded or run for those that mean something.

Imports nothing of remit, so that even `errors.py` can use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

LONGEST_WORD = 80
"""Characters; to compare long ones takes long, and nobody meant them."""

MOST_COMPARED = 500
"""Names."""

LEAST_SLIP = 4
"""Letters: of shorter words, most that are nearly the same are words too."""


def suggest(word: object, known: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """A sentence that names what was probably meant, with a blank in front; empty when nothing is near.

    `others` is what else people call them.
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
    """What is wrong with a call that Python did not take: values without a name, or unknown names; empty if neither."""
    if unnamed:
        return f"{what} has {repr(unnamed[0])[:60]} without a name. Say what it is, as in {example}."
    wrong = [name for name in named if name not in known]
    if not wrong:
        return ""
    each = " ".join(f"{what} has no {name[:60]!r}.{suggest(name, known, others)}" for name in wrong[:5])
    return f"{each} It has {', '.join(known)}."


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Which of some names was probably meant."""
    if len(word) > LONGEST_WORD:
        return None
    import difflib  # noqa: PLC0415 - only for those who mistype

    names = {name.lower(): name for name in islice(known, MOST_COMPARED)}
    turned = _turned(word, names)
    near = [turned] if turned else difflib.get_close_matches(word.lower(), names, 1)
    return names[near[0]] if near else None


def slip_of(word: str, known: Iterable[str]) -> str | None:
    """The name of which a word is surely a slip: two letters that changed places, or one too many or too few inside it.

    Another letter, or another end, may as well be another name: `to_eu` and `to_au`, `step_12` and `step_21`; and so may
    one of few letters (`sh` and `ssh`), another number, or another way to write several words (`web_search`, `get_users_x`).
    """
    if not word or len(word) > LONGEST_WORD or word in (names := list(islice(known, MOST_COMPARED))):
        return None
    turned = {
        word[:at] + word[at + 1] + word[at] + word[at + 2 :]
        for at in range(len(word) - 1)
        if word[at : at + 2].isalpha()
    }
    return next((name for name in names if name in turned or _missing_one(word, name)), None)


def _turned(word: str, names: Iterable[str]) -> str | None:
    letters = sorted(word.lower())
    return next((name for name in names if sorted(name.lower()) == letters), None)


def _missing_one(word: str, name: str) -> bool:
    # Most are told apart by these, at once.
    if word[0] != name[0] or word[-1] != name[-1] or abs(len(word) - len(name)) != 1:
        return False
    short, long = sorted((word, name), key=len)
    at = next(at for at, (a, b) in enumerate(zip(short + "\0", long, strict=True)) if a != b)
    # Between letters: what is not may be a number, or the end of one of several words.
    return len(short) >= LEAST_SLIP and long[at + 1 :] == short[at:] and long[at - 1 : at + 2].isalpha()
