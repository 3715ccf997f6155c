"""What looks like a secret: values by the names they are given, and keys and tokens by their shape.

Everything is done on bytes, of JSON or of plain text. Expensive searches are made only where a cheap one has found
something: most texts are passed over at the speed of `bytes.find`. Names are looked for everywhere; keys and tokens
only at long runs of letters and digits, see `secret_tokens.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain
from operator import methodcaller
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
    word.encode(): _Shape(re.compile((word + _ENDINGS.get(word, "")).encode() + _ASSIGNED), good, folded=True)
    for word, good in _GOOD.items()
    if word not in _NOT_IN_TEXTS
}
"""Values by their names."""

_NAMED = (b"authorization", *_VALUED)

_NAME_ENDS = (
    *_NAMED,
    b"credentials",
    b"keyid",
    b"key_id",
    b"key-id",
)
"""What stands right before a colon or an equals sign, but for quotes and spaces, where a value is given by its name."""
_AFTER_NAME = b"\"'\\ \t"
_TAB = b"\\t"
"""As JSON writes it."""
_LAST_TWO = {_TAB, *(name[-2:] for name in _NAME_ENDS)}
_LONGEST = len(b"secret_access_key")
_stripped = methodcaller("rstrip", _AFTER_NAME)
_BY_MARKER = {
    marker: [name for name in _NAMED if marker in name]
    for marker in (b"authorization", b"pass", b"pwd", b"secret", b"cred", b"token", b"key", b"cookie", b"pat")
}
"""Names by what they have in them: these are fewer."""
_DENSE = 48
"""With a colon or an equals sign in fewer bytes than that, looking at each takes longer than looking for the markers."""


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
    """The names by which values are given, or may be given where values are many."""
    most = (len(folded) + 1_000) // _DENSE
    parts = folded.replace(b"=", b":").split(b":", most)
    if len(parts) > most:
        present = [names for marker, names in _BY_MARKER.items() if marker in folded]
        return [name for name in chain.from_iterable(present) if name in folded]
    maybe = [_without_tabs(part) for part in map(_stripped, parts[:-1]) if part[-2:] in _LAST_TWO]
    found = b" ".join([part[-_LONGEST:] for part in maybe if part.endswith(_NAME_ENDS)])
    return [name for name in _NAMED if name in found]


def _without_tabs(part: bytes) -> bytes:
    """Without those of JSON that it ends with. Not all: the backslash of `\\token` is none of a tab."""
    while part.endswith(_TAB):
        part = part[:-2].rstrip(_AFTER_NAME)
    return part


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
