"""What looks like a secret: values by the names they are given, and keys and tokens by their shape.

Everything is done on bytes, of JSON or of plain text. Values by their names are looked for everywhere, pattern by
pattern: nearly all begin with a fixed word, so `re` passes over ordinary text at about 0.3 ns a byte. Keys and tokens are
looked for at long runs of letters and digits only, see `secret_tokens.py`.
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
"""As many as JSON in JSON in JSON has."""
_BLANKS = rb"(?:[ \t]|\\{1,8}t){0,8}"
"""Tabs in JSON too."""

Good = Callable[[re.Match[bytes], bytes], bool]
"""Whether a value that was found is a secret. The match may be in lower case; the value is as it is written."""


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
    # More than the first line, which stands in ordinary texts too.
    return len(value) >= 72


def _is_password(match: re.Match[bytes], value: bytes) -> bool:
    del match
    return count_digits(value) > 0 and count_letters(value) > 1


def _is_short_password(match: re.Match[bytes], value: bytes) -> bool:
    # `PWD` and `pass` have other meanings: a folder, a test that passed.
    return (
        _is_last_word(match)
        and not value.startswith((b"/", b"~", b".", b"$", b"%"))
        and _is_password(match, value)
    )


def _is_last(match: re.Match[bytes], value: bytes) -> bool:
    return _is_last_word(match) and is_random(value)


def _is_last_word(match: re.Match[bytes]) -> bool:
    """Whether the name is a word, and not the end of one: `MY_PAT`, not `compat`. `pass` alone is no name."""
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
"""What a `key` is a key of when it is a secret. Others open caches and tables."""


class _Shape(NamedTuple):
    """A kind of secret that is known by what stands before it. Group 1 is the secret, where it is not the whole."""

    pattern: re.Pattern[bytes]
    """Linear: every part ends at the first character that is not its own, or is bounded."""
    good: Good = _always
    folded: bool = False
    """Whether it is looked for in lower case."""
    has: bytes = b""
    """What every text with such a secret has, in lower case: without it, the pattern need not be tried."""


_URL_PASSWORD = _Shape(re.compile(rb"://[^\s/:@\"'\\]{0,256}:([^\s/@\"'\\]{1,512})@"), has=b"@")

_CLIENT_SECRET = _Shape(re.compile(rb"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,}"), _begins, has=b"~")
"""Of Azure: not at long runs, since many have none."""

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
    # Nothing is given back: a key may be megabytes long, and every place to go back to takes memory.
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
"""No value goes on behind a character that JSON escapes: with the path behind it, it would look like one."""

_NOT_IN_TEXTS = (
    *("bearer", "jwt", "webhook", "mnemonic", "seed_phrase", "connection_string"),
    *("pw", "dsn", "sas", "pin", "salt"),
)
"""Names whose values have a shape of their own, or cannot be told from words, numbers and addresses."""

_ENDINGS = {"key": "(?:[_-]?id)?", "secret": "(?:[_-]?(?:access)?[_-]?key)?", "credential": "s?"}
"""What a name may end in besides."""

_GOOD: dict[str, Good] = {
    **dict.fromkeys(INSIDE, _looks_random),
    **dict.fromkeys(LAST, _is_last),
    **dict.fromkeys(("password", "passwd"), _is_password),
    **dict.fromkeys(("pass", "pwd"), _is_short_password),
    "key": _is_key,
}
"""What the value of each name must be like."""

_VALUED = {
    word: _Shape(
        re.compile((word + _ENDINGS.get(word, "")).encode() + _ASSIGNED),
        good,
        folded=True,
        # Only where several names begin alike: a pattern that begins with a word is tried as fast as the word is found.
        has=word[:4].encode() if word.startswith(("pass", "cred")) else b"",
    )
    for word, good in _GOOD.items()
    if word not in _NOT_IN_TEXTS
}
"""Values by their names."""


def _all_shapes(names: Iterable[str]) -> tuple[_Shape, ...]:
    """In the order in which they are replaced."""
    by_name = [_VALUED[name] for name in names]
    before, after = (_AUTHORIZATION, _BEARER), (_ARGUMENT, _PRIVATE_KEY, _PASSWORD_ARGUMENT)
    return (_URL_PASSWORD, _CLIENT_SECRET, *before, *by_name, *after)


_SHAPES = _all_shapes(_VALUED)
_PARTS = {shape.has for shape in _SHAPES}

_PASSWORDS_FIRST = _all_shapes(
    sorted(_VALUED, key=lambda name: ("pas", "pwd", "sec", "cre", "tok", "key", "coo", "pat").index(name[:3]))
)
"""For texts in which values are many. The order matters only where a name is given as a value, `token: password=...`:
then the first to be replaced may take the other with it."""
_MANY = 48
"""A colon or an equals sign in so many bytes is many."""


def without_lookalikes(data: bytes, finder: Finder) -> bytes:
    """With `MARK` in their places; the same object where there are none."""
    folded = data.lower()
    absent = [part for part in _PARTS if part not in folded]
    many = folded.count(b":") + folded.count(b"=") >= (len(folded) + 1_000) // _MANY
    for shape in _PASSWORDS_FIRST if many else _SHAPES:
        if shape.has not in absent:
            data, folded = _shaped(data, folded, shape)
    spans = finder.find(data)
    return _replaced(data, spans) if spans else data


def _shaped(data: bytes, folded: bytes, shape: _Shape) -> tuple[bytes, bytes]:
    """Both forms of the text without secrets of a shape. Folding changes no length, so places agree."""
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
