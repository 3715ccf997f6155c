"""Finds text that looks like a secret: values by the name before them, keys and tokens by their form.

Works on bytes of plain text or JSON. Named values are searched pattern by pattern: nearly every pattern begins with a
fixed word, so `re` skips ordinary text at about 0.3 ns per byte. Keys and tokens are searched only in long runs of
letters and digits (`secret_tokens.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from remit.history.secret_names import INSIDE, LAST
from remit.history.secret_tokens import Finder, count_digits, count_letters, is_random, may_begin
from remit.types.messages import REDACTED

MARK = REDACTED.encode()

_QUOTES = rb"[\"'\\]{0,32}"
"""As many quotes and backslashes as in JSON nested in JSON, three levels deep."""
_BLANKS = rb"(?:[ \t]|\\{1,8}t){0,8}"
"""Spaces and tabs; in JSON, a tab is escaped."""

Good = Callable[[re.Match[bytes], bytes], bool]
"""Whether a matched value is a secret. The match may be in lower case; the value is the original."""


def _always(match: re.Match[bytes], value: bytes) -> bool:
    del match, value
    return True


def _begins(match: re.Match[bytes], value: bytes) -> bool:
    del value
    return may_begin(match.string, match.start())


def _looks_random(match: re.Match[bytes], value: bytes) -> bool:
    del match
    return is_random(value)


def _is_whole_key(match: re.Match[bytes], value: bytes) -> bool:
    del match
    # Longer than the first line alone, which occurs in ordinary text too.
    return len(value) >= 72


def _is_password(match: re.Match[bytes], value: bytes) -> bool:
    del match
    return count_digits(value) > 0 and count_letters(value) > 1


def _is_short_password(match: re.Match[bytes], value: bytes) -> bool:
    # `PWD` and `pass` have other meanings: the working folder, a test that passed.
    return (
        _is_last_word(match)
        and not value.startswith((b"/", b"~", b".", b"$", b"%"))
        and _is_password(match, value)
    )


def _is_last(match: re.Match[bytes], value: bytes) -> bool:
    return _is_last_word(match) and is_random(value)


def _is_last_word(match: re.Match[bytes]) -> bool:
    """Whether the name is a separate word: `MY_PAT`, not `compat`. `pass` counts only after `_` or `-`."""
    text, start = match.string, match.start()
    if text[start - 1 : start] in (b"_", b"-"):
        return True
    return not match[0].startswith(b"pass") and may_begin(text, start)


def _is_key(match: re.Match[bytes], value: bytes) -> bool:
    before = match.string[max(0, match.start() - 16) : match.start()].rstrip(b"_-")
    return before.endswith(_KEY_OF) and is_random(value)


_KEY_OF = (
    b"api",
    b"access",
    b"secret",
    b"private",
    b"auth",
    b"account",
    b"encryption",
    b"signing",
    b"master",
)
"""Words before `key` that make it a secret. Other keys belong to caches and tables."""


class _Shape(NamedTuple):
    """A kind of secret that is recognised by the text before it. Group 1, if any, is the secret; else the whole match."""

    pattern: re.Pattern[bytes]
    """Linear: every part ends at the first character outside its set, or is bounded."""
    good: Good = _always
    folded: bool = False
    """Whether to search the text in lower case."""
    has: bytes = b""
    """Lower-case text that every match contains: the pattern is not tried on texts without it."""


_URL_PASSWORD = _Shape(re.compile(rb"://[^\s/:@\"'\\]{0,256}:([^\s/@\"'\\]{1,512})@"), has=b"@")

_CLIENT_SECRET = _Shape(re.compile(rb"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,}"), _begins, has=b"~")
"""Azure client secrets. Searched here because many have no long run of letters and digits."""

_AUTHORIZATION = _Shape(
    re.compile(
        rb"authorization"
        + _QUOTES
        + _BLANKS
        + rb"[:=]"
        + _BLANKS
        + _QUOTES
        + rb"(?:basic|token|digest|apikey) {1,4}"
        rb"([^\s\"'\\,;]{6,})"
    ),
    folded=True,
)

_BEARER = _Shape(
    re.compile(rb"bearer(?<![a-z0-9]bearer) {1,4}([a-z0-9._~+/=-]{16,})"), _looks_random, folded=True
)

_ARGUMENT = _Shape(
    re.compile(rb"--(?:api-?key|token|password|secret|auth-token)[ =]{1,4}([^\x00-\x20\"'\\]{12,})"),
    _looks_random,
    has=b"-",
)

_PASSWORD_ARGUMENT = _Shape(
    re.compile(rb"--passw(?:or)?d[ =]{1,4}([^\x00-\x20\"'\\]{8,})"), _is_password, folded=True, has=b"-"
)

_PRIVATE_KEY = _Shape(
    # Possessive, without backtracking: a key may be megabytes long, and each backtracking position takes memory.
    re.compile(
        rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        rb"(?:(?:Version|Comment|Charset|MessageID|Hash): [^\r\n\\]*+|[A-Za-z0-9+/=,]++|-(?!----)|: ?"
        rb"|\\{1,8}[nrt] *|[\r\n\t][ \t]*)*+"
        rb"(?:-----END [A-Z0-9 ]{0,60}-----)?"
    ),
    _is_whole_key,
    has=b"-",
)

_ASSIGNED = (
    _QUOTES + _BLANKS + rb"(?::=|=>|[:=])" + _BLANKS + rb"[\"'\\\x00-\x08\x0e-\x1f]{0,32}"
    rb"([^\x00-\x20\"'\\,;&<>(){}\[\]`|]{8,})"
)
"""A value ends at a character that JSON escapes: together with a path after it, a word would look like a secret."""

_NOT_IN_TEXTS = (
    *("bearer", "jwt", "webhook", "mnemonic", "seed_phrase", "connection_string"),
    *("pw", "dsn", "sas", "pin", "salt"),
)
"""Names whose values have their own pattern, or cannot be distinguished from words, numbers and addresses."""

_ENDINGS = {"key": "(?:[_-]?id)?", "secret": "(?:[_-]?(?:access)?[_-]?key)?", "credential": "s?"}
"""Optional endings of these names."""

_GOOD: dict[str, Good] = {
    **dict.fromkeys(INSIDE, _looks_random),
    **dict.fromkeys(LAST, _is_last),
    **dict.fromkeys(("password", "passwd"), _is_password),
    **dict.fromkeys(("pass", "pwd"), _is_short_password),
    "key": _is_key,
}
"""The check for the value of each name."""

_VALUED = {
    word: _Shape(
        re.compile((word + _ENDINGS.get(word, "")).encode() + _ASSIGNED),
        good,
        folded=True,
        # Only if several names begin alike: searching for a single word is as fast as this check.
        has=word[:4].encode() if word.startswith(("pass", "cred")) else b"",
    )
    for word, good in _GOOD.items()
    if word not in _NOT_IN_TEXTS
}
"""The pattern for the value of each name."""


def _all_shapes(names: Iterable[str]) -> tuple[_Shape, ...]:
    """All patterns, in the order in which their matches are replaced."""
    by_name = [_VALUED[name] for name in names]
    before, after = (_AUTHORIZATION, _BEARER), (_ARGUMENT, _PRIVATE_KEY, _PASSWORD_ARGUMENT)
    return (_URL_PASSWORD, _CLIENT_SECRET, *before, *by_name, *after)


_SHAPES = _all_shapes(_VALUED)
_PARTS = {shape.has for shape in _SHAPES}

_PASSWORDS_FIRST = _all_shapes(
    sorted(_VALUED, key=lambda name: ("pas", "pwd", "sec", "cre", "tok", "key", "coo", "pat").index(name[:3]))
)
"""For texts with many values. The order matters only if a name is part of a value (`token: password=...`): the first
replacement may include the other."""
_MANY = 48
"""A text has many values if it has at least one colon or equals sign per this many bytes."""


def without_lookalikes(data: bytes, finder: Finder) -> bytes:
    """Replace everything that looks like a secret by `MARK`; returns the same object if nothing does."""
    folded = data.lower()
    absent = [part for part in _PARTS if part not in folded]
    many = folded.count(b":") + folded.count(b"=") >= (len(folded) + 1_000) // _MANY
    for shape in _PASSWORDS_FIRST if many else _SHAPES:
        if shape.has not in absent:
            data, folded = _shaped(data, folded, shape)
    spans = finder.find(data)
    return _replaced(data, spans) if spans else data


def _shaped(data: bytes, folded: bytes, shape: _Shape) -> tuple[bytes, bytes]:
    """The text and its lower-case form without secrets of one shape. Both have the same length, so offsets agree."""
    spans: list[tuple[int, int]] = []
    for match in shape.pattern.finditer(folded if shape.folded else data):
        start, end = match.span(min(match.re.groups, 1))
        if data[start:end] != MARK and shape.good(match, data[start:end]):
            spans.append((start, end))
    if not spans:
        return data, folded
    data = _replaced(data, spans)
    return data, data.lower()


def _replaced(data: bytes, spans: Iterable[tuple[int, int]]) -> bytes:
    parts: list[bytes] = []
    at = 0
    for start, end in spans:
        parts += [data[at:start], MARK]
        at = end
    return b"".join([*parts, data[at:]])
