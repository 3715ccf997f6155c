"""What looks like a secret: values by the names they are given, and keys and tokens by their shape.

Everything is done on bytes, of JSON or of plain text. Expensive searches are made only where a cheap one has found
something: most texts are passed over at the speed of `bytes.find`. Names are looked for everywhere; keys and tokens
only at long runs of letters and digits, see `long_runs.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import NamedTuple

from remit.long_runs import Finder, count_digits, count_letters, is_random, may_begin
from remit.messages import REDACTED
from remit.secret_names import INSIDE, LAST

MARK = REDACTED.encode()

_MOST_BLANKS = 8

_QUOTES = rb"[\"'\\]{0,32}"
"""As many as JSON in JSON in JSON has."""
_BLANKS = rb"(?:[ \t]|\\{1,8}t){0,%d}" % _MOST_BLANKS
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


_URL_PASSWORD = _Shape(re.compile(rb"://[^\s/:@\"'\\]{0,256}:([^\s/@\"'\\]{1,512})@"))

_CLIENT_SECRET = _Shape(re.compile(rb"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,}"), _begins)
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
)

_PASSWORD_ARGUMENT = _Shape(
    re.compile(rb"--passw(?:or)?d[ =]{1,4}([^\x00-\x20\"'\\]{8,})"), _is_password, folded=True
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
)

_ASSIGNED = (
    _QUOTES + _BLANKS + rb"(?::=|=>|[:=])" + _BLANKS + rb"[\"'\\\x00-\x08\x0e-\x1f]{0,32}"
    rb"([^\x00-\x20\"'\\,;&<>(){}\[\]`|]{8,})"
)
"""No value goes on behind a character that JSON escapes: with the path behind it, it would look like one."""

_NOT_IN_TEXTS = ("bearer", "mnemonic", "seed_phrase", "connection_string", "pw", "dsn", "sas", "pin", "salt")
"""Names whose values are known by another shape, or not to be told from words, numbers and addresses."""

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

_WORDS = tuple(word for word in _GOOD if word not in _NOT_IN_TEXTS)

_MARKERS = ("pass", "secret", "cred", "token", "key", "cookie", "webhook", "pwd", "jwt", "pat")
"""What names have in common: those with one of these are looked for together."""


def _valued(marker: str) -> _Shape:
    # The longest first: `password` before `pass`.
    words = sorted((word for word in _WORDS if marker in word), key=len, reverse=True)
    name = "|".join(word + _ENDINGS.get(word, "") for word in words)
    checks = [(word.encode(), _GOOD[word]) for word in words]

    def is_good(match: re.Match[bytes], value: bytes) -> bool:
        good = next(good for word, good in checks if match[0].startswith(word))
        return good(match, value)

    return _Shape(re.compile(f"(?:{name})".encode() + _ASSIGNED), is_good, folded=True)


_VALUED = {marker.encode(): _valued(marker) for marker in _MARKERS}
"""Values by their names."""

_NAMED = (b"authorization", *_VALUED)

_NAME_ENDS = (
    b"authorization",
    *(word.encode() for word in _WORDS),
    b"credentials",
    b"keyid",
    b"key_id",
    b"key-id",
)
"""What stands right before a colon or an equals sign, but for quotes and spaces, where a value is given by its name."""
_AFTER_NAME = b"\"'\\ \t"
_END_BYTES = 24
_end = itemgetter(slice(-_END_BYTES, None))
_LONGEST = max(map(len, _NAME_ENDS))
_LAST_TWO = {name[-2:] for name in _NAME_ENDS}


def without_lookalikes(data: bytes, finder: Finder) -> bytes:
    """With `MARK` in their places; the same object where there are none."""
    folded = data.lower()
    if b"@" in data:
        data, folded = _shaped(data, folded, _URL_PASSWORD)
    if _has_client_secret(data):
        data, folded = _shaped(data, folded, _CLIENT_SECRET)
    names = _names_of_values(folded)
    if b"authorization" in names:
        data, folded = _shaped(data, folded, _AUTHORIZATION)
    if b"bearer" in folded:
        data, folded = _shaped(data, folded, _BEARER)
    for name in names:
        if name in _VALUED:
            data, folded = _shaped(data, folded, _VALUED[name])
    # One of them is found much faster than two in a row.
    if b"-" in data and b"--" in data:
        data, folded = _shaped(data, folded, _ARGUMENT)
        if b"PRIVATE KEY" in data:
            data, folded = _shaped(data, folded, _PRIVATE_KEY)
        if b"--passw" in folded:
            data, folded = _shaped(data, folded, _PASSWORD_ARGUMENT)
    spans = finder.find(data)
    return _replaced(data, spans) if spans else data


def _has_client_secret(data: bytes) -> bool:
    # Most texts have no tilde, and one byte is found many times as fast as two.
    at = data.find(b"~")
    while at >= 0:
        if data[at - 1 : at] == b"Q":
            return True
        at = data.find(b"~", at + 1)
    return False


def _names_of_values(folded: bytes) -> list[bytes]:
    """What to look for: names by which values are given here, or by which they may be given."""
    # Each different one is looked at once: in JSON and in source text many are the same.
    ends = set(map(_end, folded.replace(b"=", b":").split(b":")))
    found = list[bytes]()
    for end in ends:
        name = end.rstrip(_AFTER_NAME)
        last = name[-2:]
        if last in _LAST_TWO and name.endswith(_NAME_ENDS):
            found.append(name)
        elif last == b"\\t" or (len(name) < _LONGEST and _is_cut(end)):
            # Before a tab of JSON, or before more quotes than there is room for, any name may stand.
            return [marker for marker in _NAMED if marker in folded]
    names = b" ".join(found)
    return [marker for marker in _NAMED if marker in names]


def _is_cut(end: bytes) -> bool:
    return len(end) == _END_BYTES and not end.endswith(b" " * (_MOST_BLANKS + 1))


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
