"""What looks like a secret: keys and tokens by their shape, and values by the names they are given.

Everything is done on bytes, of JSON or of plain text. What is dear is done only where a cheap look has found
something: most texts are passed over at the speed of `bytes.find`. What has a name is looked for everywhere, what is
known by its shape at long runs of letters and digits alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import NamedTuple

from remit.messages import REDACTED

MARK = REDACTED.encode()

_WORD = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_NAME = _WORD + b"_-"
_BASE64 = _WORD + b"+"


_QUOTES = rb"[\"'\\]{0,32}"
"""As many as JSON in JSON in JSON has."""
_BLANKS = rb"(?:[ \t]|\\{1,8}t){0,8}"
"""Tabs in JSON too."""


class _Shape(NamedTuple):
    """A kind of secret. Group 1 is the secret, where it is not the whole."""

    markers: tuple[bytes, ...]
    """Without one of these, lower case where `folded`, there is none of it."""
    pattern: re.Pattern[bytes]
    """Linear: every part ends at the first character that is not its own, or is bounded."""
    before: bytes = b""
    """It never begins right after one of these: then it is a part of something else. With hyphens among them, all of
    those before it are passed over: they are a list's or a diff's."""
    random: bool = False
    """Whether it must look like chance besides."""
    folded: bool = False
    least: int = 0
    """How many bytes there must be of it."""


_URL_PASSWORD = _Shape((b"@",), re.compile(rb"://[^\s/:@\"'\\]{0,256}:([^\s/@\"'\\]{1,512})@"))

_AUTHORIZATION = _Shape(
    (b"authorization",),
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
    (b"bearer ",),
    re.compile(rb"bearer {1,4}([a-z0-9._~+/=-]{16,})"),
    before=_WORD,
    random=True,
    folded=True,
)

_ARGUMENT = _Shape(
    (b"--",),
    re.compile(rb"--(?:api-?key|token|password|secret|auth-token)[ =]{1,4}([^\x00-\x20\"'\\]{12,})"),
    random=True,
)

_PASSWORD_ARGUMENT = re.compile(rb"--passw(?:or)?d[ =]{1,4}([^\x00-\x20\"'\\]{8,})")

_PRIVATE_KEY = _Shape(
    (b"PRIVATE KEY",),
    # Nothing is given back: a key may be megabytes long, and every place to go back to takes memory.
    re.compile(
        rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        rb"(?:(?:Version|Comment|Charset|MessageID|Hash): [^\r\n\\]*+|[A-Za-z0-9+/=,]++|-(?!----)|: ?"
        rb"|\\{1,8}[nrt] *|[\r\n\t][ \t]*)*+"
        rb"(?:-----END [A-Z0-9 ]{0,60}-----)?"
    ),
    # More than the first line, which stands in ordinary texts too.
    least=72,
)

_LONG = (
    _Shape((b"sk-",), re.compile(rb"sk-([A-Za-z0-9_-]{16,})"), _NAME, random=True),
    _Shape((b"AIza",), re.compile(rb"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_+/=-])"), _NAME + b"+"),
    _Shape((b"glpat-",), re.compile(rb"glpat-[A-Za-z0-9_.-]{16,}"), _NAME),
    _Shape(
        (b"sk_live_", b"sk_test_", b"rk_live_", b"rk_test_"),
        re.compile(rb"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"),
        _NAME,
    ),
    _Shape(
        (b"ghp_", b"gho_", b"ghs_", b"ghu_", b"ghr_", b"github_pat_"),
        re.compile(rb"(?:gh[posur]_|github_pat_)[A-Za-z0-9_]{20,}"),
        _NAME,
    ),
    _Shape((b"xox",), re.compile(rb"xox[abeoprs]-[A-Za-z0-9-]{10,}"), _NAME),
    _Shape(
        (b"AKIA", b"ASIA"),
        re.compile(rb"A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9+/=])"),
        before=_BASE64,
    ),
    _Shape(
        (b"gsk_", b"xai-", b"pplx-", b"r8_", b"dop_v1_", b"hvs.", b"pypi-", b"xapp-", b"tvly-"),
        re.compile(rb"(?:gsk_|xai-|pplx-|r8_|dop_v1_|hvs\.|pypi-|xapp-|tvly-)[A-Za-z0-9_-]{20,}"),
        _NAME,
        random=True,
    ),
    _Shape((b"sk_",), re.compile(rb"sk_[0-9a-f]{32,}"), _NAME),
    _Shape((b"dapi",), re.compile(rb"dapi[0-9a-f]{32}(?![0-9a-f])"), before=_BASE64),
    _Shape(
        (b"ya29.", b"GOCSPX-"),
        re.compile(rb"(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,}"),
        _NAME,
    ),
    _Shape((b"SG.",), re.compile(rb"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"), before=_NAME),
    _Shape(
        (b"hooks.slack.com/services/",),
        re.compile(rb"hooks\.slack\.com/services/([A-Za-z0-9/]{20,})"),
    ),
    _Shape((b":AA",), re.compile(rb"[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}"), _NAME),
    _Shape((b"hf_",), re.compile(rb"hf_[A-Za-z0-9]{20,}"), _NAME, random=True),
    # Some have letters only.
    _Shape((b"hf_",), re.compile(rb"hf_[A-Za-z0-9]{32,}"), _NAME),
    _Shape((b"lsv2_",), re.compile(rb"lsv2_(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{8,}"), _NAME),
    _Shape((b"npm_",), re.compile(rb"npm_[A-Za-z0-9]{30,}"), _NAME, random=True),
    _Shape(
        (b".eyJ",),
        # Only where a word begins: a long run of "eyJ" is looked at once, not once for each of them.
        re.compile(
            rb"(?:(?<![A-Za-z0-9_-])[_-]{0,4}|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4})|(?<=[\[;][0-9]m)|(?<=[\[;][0-9]{2}m)|(?<=%[0-9A-Fa-f]{2}))"
            rb"(eyJ[A-Za-z0-9_-]{6,}\.eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?)"
        ),
        _NAME,
    ),
)
"""Looked for at long runs of letters and digits: each of these has one."""

_HINTS = (b"-", b".", b":AA", b"/", b"k_", b"gh")
"""What many of their markers have in them: where one is not, none of those is looked for."""

_HINTED: dict[bytes, set[bytes]] = {}
"""The markers by the first of the hints that they have; b"", which is everywhere, for those without one."""
for _marker in chain.from_iterable(shape.markers for shape in _LONG):
    _HINTED.setdefault(next((hint for hint in _HINTS if hint in _marker), b""), set()).add(_marker)

_ASSIGNED = (
    _QUOTES + _BLANKS + rb"(?::=|=>|[:=])" + _BLANKS + rb"[\"'\\\x00-\x08\x0e-\x1f]{0,32}"
    rb"([^\x00-\x20\"'\\,;&<>(){}\[\]`|]{8,})"
)
"""No value goes on behind a character that JSON escapes: with the path behind it, it would look like one."""

_VALUED = {
    b"pass": (re.compile(rb"passw(?:or)?d" + _ASSIGNED), re.compile(rb"passphrase" + _ASSIGNED)),
    b"secret": (re.compile(rb"secret(?:[_-]?(?:access)?[_-]?key)?" + _ASSIGNED),),
    b"credential": (re.compile(rb"credentials?" + _ASSIGNED),),
    b"token": (re.compile(rb"token" + _ASSIGNED),),
    b"key": (re.compile(rb"key(?:[_-]?id)?" + _ASSIGNED),),
}
"""By what each of their names has in it."""

_NAMED = (*_AUTHORIZATION.markers, *_VALUED)
_NAME_ENDS = (
    b"authorization",
    b"password",
    b"passwd",
    b"passphrase",
    b"secret",
    b"credential",
    b"credentials",
    b"token",
    b"key",
    b"keyid",
    b"key_id",
    b"key-id",
)
"""What stands right before a colon or an equals sign, but for quotes and spaces, where a value is given by its name."""
_AFTER_NAME = b"\"'\\ \t"
_NAME_BYTES = 128
"""At least the longest of those, with as many quotes and blanks behind it as the patterns allow."""
_DENSE = 128
"""With a colon or an equals sign in fewer bytes than that, looking at each takes longer than looking for the names."""

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

_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_ESCAPE = re.compile(
    rb"(?:\\(?:[bfnrt]|u[0-9a-f]{4})|(?:\x1b|\\u001b)\[[0-9;]{0,12}m|%[0-9A-Fa-f]{2}|\\x[0-9A-Fa-f]{2})[_-]{0,4}$"
)
"""Letters that are no part of a word: of a line break in JSON, of a colour in a terminal, of a character in an address."""
_ESCAPE_BYTES = 24
_SOLID = re.compile(rb"[A-Za-z0-9]{16,}")

_AS_RUN = bytes(0x61 if char in _NAME else 0x20 for char in range(256))
_LONG_RUN = b"a" * 15
_PLAIN = b"abcdefghijklmnopqrstuvwxyz_-"

_LINE_BYTES = 100

_JOINED = frozenset(bytes((char,)) for char in b"./:+\\[;%")
"""What may stand in the middle of a secret, or end what is written before it: a line break in JSON, a colour in a
terminal, a character in an address."""

_PARTING = frozenset((b".", b"/"))
"""Those that stand between long parts."""

_NEAR, _FAR = _ESCAPE_BYTES + 16, 96
"""How far from a long run the rest of its secret is looked for: an escape with a short part behind it, or a long part."""

_BLOB = re.compile(rb"[A-Za-z0-9+/]{256,}")
"""A file in base64: many runs, and not text."""
_IN_BLOB = re.compile(rb"/(?:AIza|A[KS]IA|dapi|eyJ)")

_LOOK_COST = 32
"""Of a look at one run: how many bytes of a long text are searched meanwhile."""


def without_lookalikes(data: bytes) -> bytes:
    """With `MARK` in their places; the same object where there are none."""
    folded = data.lower()
    if b"@" in data:
        data, folded = _shaped(data, folded, _URL_PASSWORD)
    names = _names_of_values(folded)
    if _AUTHORIZATION.markers[0] in names:
        data, folded = _shaped(data, folded, _AUTHORIZATION)
    if b"bearer" in folded:
        data, folded = _shaped(data, folded, _BEARER)
    for pattern in chain.from_iterable([_VALUED.get(name, ()) for name in names]):
        data, folded = _replace(data, folded, pattern.finditer(folded), _is_assigned)
    # One of them is found much faster than two in a row.
    if b"-" in data and b"--" in data:
        for shape in (_ARGUMENT, _PRIVATE_KEY):
            if shape.markers[0] in data:
                data, folded = _shaped(data, folded, shape)
        if b"--passw" in folded:
            data, folded = _replace(data, folded, _PASSWORD_ARGUMENT.finditer(folded), _is_password)
    if _may_have_long(data):
        data = _without_long(data, folded)
    return data


def _names_of_values(folded: bytes) -> list[bytes]:
    """Names that tell of a secret: all that there are, if any value may be given by one of them."""
    most = (len(folded) + 1_000) // _DENSE
    parts = folded.replace(b"=", b":").split(b":", most)
    if len(parts) > most or _is_named(parts[:-1]):
        return [name for name in _NAMED if name in folded]
    return []


def _is_named(parts: Iterable[bytes]) -> bool:
    """Whether any of these, each right before a value, ends in the name of one."""
    for part in parts:
        end = part[-_NAME_BYTES:].rstrip(_AFTER_NAME)
        if end.endswith(_NAME_ENDS) or (end.endswith(b"\\t") and _without_tabs(end).endswith(_NAME_ENDS)):
            return True
    return False


def _without_tabs(end: bytes) -> bytes:
    """Without those of JSON that it ends with. Not all: the backslash of `\\token` is none of a tab."""
    while end.endswith(b"\\t"):
        end = end[:-2].rstrip(_AFTER_NAME)
    return end


def _without_long(data: bytes, folded: bytes) -> bytes:
    looked_for = chain.from_iterable([markers for hint, markers in _HINTED.items() if hint in data])
    found = {marker for marker in looked_for if marker in data}
    if found:
        for shape in _LONG:
            if not found.isdisjoint(shape.markers):
                data, folded = _shaped(data, folded, shape)
    return data


def _may_have_long(data: bytes) -> bool:
    """Whether any long run of letters and digits is a part of a secret, or there are too many of them to tell."""
    # Not with a pattern: this passes over ordinary texts several times as fast.
    runs = data.translate(_AS_RUN)
    left = len(data) + 1_000
    odd: list[bytes] = []
    start = runs.find(_LONG_RUN)
    while start >= 0:
        end = runs.find(b" ", start)
        if end < 0:
            end = len(data)
        rest = data[start + 1 : end]
        # By all but its first character: long words, or several with hyphens, are no secret. Nor is a line of dashes,
        # or the like, which is found to be one much faster.
        if (len(rest) <= _LINE_BYTES or rest[1:] != rest[:-1]) and rest.translate(None, _PLAIN):
            seen = data[start:end]
            if data[start - 1 : start] in _JOINED or data[end : end + 1] in _JOINED:
                seen, end = _with_neighbours(data, start, end)
            odd.append(seen)
            left -= _LOOK_COST + len(seen)
            if left < 0:
                return True
        start = runs.find(_LONG_RUN, end)
    together = b"\n".join(odd)
    return bool(odd) and _without_long(together, together.lower()) is not together


def _with_neighbours(data: bytes, start: int, end: int) -> tuple[bytes, int]:
    """A run, with the bytes around it where a secret may begin before it or go on behind it; and where to go on."""
    blob = _BLOB.match(data, start) if data[end : end + 1] in (b"+", b"/") else None
    # One that ends inside the run, at a hyphen, is none: nothing would be passed over.
    if blob is not None and blob.end() > end:
        # Up to its last run, which may go on behind it.
        last = max(data.rfind(b"+", start, blob.end()), data.rfind(b"/", start, blob.end())) + 1
        if _IN_BLOB.search(data, start, last):
            return data[max(0, start - _FAR) : last + _NEAR], last
    else:
        last = end
    before, after = data[start - 1 : start], data[end : end + 1]
    if before in _JOINED:
        start = max(0, start - (_FAR if before in _PARTING else _NEAR))
    return data[start : end + _NEAR if after in _JOINED else end], last


def _shaped(data: bytes, folded: bytes, shape: _Shape) -> tuple[bytes, bytes]:
    def wanted(match: re.Match[bytes], secret: bytes) -> bool:
        start = match.start()
        # Right after an escape is a beginning too, also one of a program text inside the text.
        ahead = data[max(0, start - _ESCAPE_BYTES) : start]
        last = ahead.rstrip(b"_-") if b"-" in shape.before else ahead
        if last and last[-1] in shape.before and not _ESCAPE.search(ahead):
            return False
        return len(secret) >= shape.least and (not shape.random or _is_random(secret))

    where = folded if shape.folded else data
    return _replace(data, folded, shape.pattern.finditer(where), wanted)


def _replace(
    data: bytes,
    folded: bytes,
    matches: Iterable[re.Match[bytes]],
    wanted: Callable[[re.Match[bytes], bytes], bool],
) -> tuple[bytes, bytes]:
    """Both forms of the text with the wanted secrets replaced. Folding changes no length, so places agree."""
    parts: list[bytes] = []
    at = 0
    for match in matches:
        start, end = match.span(1 if match.re.groups else 0)
        if data[start:end] != MARK and wanted(match, data[start:end]):
            parts += [data[at:start], MARK]
            at = end
    if not parts:
        return data, folded
    data = b"".join([*parts, data[at:]])
    return data, data.lower()


def _is_assigned(match: re.Match[bytes], value: bytes) -> bool:
    name = match.re.pattern
    if name.startswith(b"key"):
        before = match.string[max(0, match.start() - 16) : match.start()].rstrip(b"_-")
        if not before.endswith(_KEY_OF):
            return False
    return _is_password(match, value) if name.startswith(b"passw") else _is_random(value)


def _is_password(match: re.Match[bytes], value: bytes) -> bool:
    del match
    return _digits(value) > 0 and _letters(value) > 1


def _digits(value: bytes) -> int:
    return len(value) - len(value.translate(None, b"0123456789"))


def _letters(value: bytes) -> int:
    return len(value) - len(value.translate(None, _WORD)) - _digits(value)


def _is_random(value: bytes) -> bool:
    """Whether it looks like chance, not like words, a number or a path."""
    digits = _digits(value)
    if len(value) < 16 or not digits or _letters(value) < 2 or (b"/" in value and b"." in value):
        return False
    if digits >= 6 and len(value) >= 20:
        return True
    mixed = value != value.lower() and value != value.upper()
    return mixed or _SOLID.search(value) is not None or _UUID.search(value) is not None
