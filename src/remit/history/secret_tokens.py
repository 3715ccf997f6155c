"""Finds keys and tokens in long runs of letters and digits: every key or token with a known form has such a run.

Most texts have few such runs. For each run, three bytes are looked up in a table, and a pattern is tried only if a
secret begins with these bytes. So the number of patterns does not affect the speed.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from remit.history.secret_patterns import CLASSES, PATTERNS, SecretPattern

WORD = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_DASHES = b"_-"

LONG = 15
"""Least length of a long run of letters, digits, `_` and `-`."""

_KEY = 3
"""Number of bytes looked up."""

_AS_RUN = bytes(0x61 if char in WORD + _DASHES else 0x20 for char in range(256))
_LONG_RUN = b"a" * LONG

_JOINED = frozenset(bytes((char,)) for char in b"./:~=+\\[;%")
"""Characters before a run that continues a secret, or before a run that starts with the end of an escape."""
_ESCAPING = frozenset(bytes((char,)) for char in b"\\[;%")
_PARTING = frozenset((b"+", b"/"))
_ESCAPE_ENDS = 5
"""Most characters of an escape at the start of a run: `n`, `3D`, `x1b`, `208m`, `u001b`."""

_ESCAPE = re.compile(
    rb"(?:\\(?:[bfnrt]|u[0-9a-f]{4})|(?:\x1b|\\u001b)\[[0-9;]{0,12}m|%[0-9A-Fa-f]{2}|\\x[0-9A-Fa-f]{2})[_-]{0,4}$"
)
"""Escapes whose letters are not part of a word: in JSON, terminal colours, URLs and source code."""
_ESCAPE_BYTES = 24

_BLOB = re.compile(rb"[A-Za-z0-9+/]{256,}")
"""A base64-encoded file: many runs, and not text."""

_BACK = 64
"""How far before a run its secret may begin, if the first part is not a long run."""

_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_SOLID = re.compile(rb"[A-Za-z0-9]{16,}")

Span = tuple[int, int]


class Shape:
    """The form of a secret. Group 1, if any, is the secret, else the whole match; the last group must be `good`.

    `pattern` must be linear, and must fail within a bounded length or within the run: the same bytes may be tried again.
    """

    def __init__(self, pattern: bytes, *, back: int = 0, good: Callable[[bytes], bool] | None = None) -> None:
        self._source = pattern
        self._back = back
        self._good = good

    @functools.cached_property
    def _pattern(self) -> re.Pattern[bytes]:
        # Compiled on first use: most patterns are never needed.
        return re.compile(self._source)

    def match(self, data: bytes, start: int, done: int = 0) -> Span | None:
        """The secret whose long run begins at `start`. Text before `done` is already part of another secret."""
        at = start - self._back
        found = self._pattern.match(data, at) if at >= done else None
        if found is None or not may_begin(data, at, done):
            return None
        groups = self._pattern.groups
        return found.span(min(groups, 1)) if self._good is None or self._good(found[groups]) else None


def may_begin(data: bytes, at: int, done: int = 0) -> bool:
    """Whether `at` is not inside a word. A word can start right after an escape."""
    ahead = data[max(done, at - _ESCAPE_BYTES) : at]
    last = ahead.rstrip(_DASHES)[-1:]
    return not last or last not in WORD or _ESCAPE.search(ahead) is not None


def is_random(value: bytes) -> bool:
    """Whether a value looks random, not like words, a number or a path."""
    digits = count_digits(value)
    if len(value) < 16 or not digits or count_letters(value) < 2 or (b"/" in value and b"." in value):
        return False
    if digits >= 6 and len(value) >= 20:
        return True
    mixed = value != value.lower() and value != value.upper()
    return mixed or _SOLID.search(value) is not None or _UUID.search(value) is not None


def count_digits(value: bytes) -> int:
    return len(value) - len(value.translate(None, b"0123456789"))


def count_letters(value: bytes) -> int:
    return len(value) - len(value.translate(None, WORD)) - count_digits(value)


def _is_number(secret: bytes) -> bool:
    """Whether the first part is a number in base64: the account id in a bot token."""
    part = secret.partition(b".")[0]
    try:
        return base64.b64decode(part + b"=" * (-len(part) % 4)).isdigit()
    except binascii.Error:
        return False


def _head(prefix: bytes) -> bytes:
    """The part of a prefix before its run: up to the last byte that cannot be part of a run."""
    return prefix[: len(prefix) - len(re.split(rb"[^A-Za-z0-9_-]", prefix)[-1])]


def _shape(pattern: SecretPattern) -> Shape:
    prefix, chars = pattern.prefix.encode(), CLASSES[pattern.chars]
    many = b"{%d}(?![%s])" % (pattern.least, chars) if pattern.exact else b"{%d,}" % pattern.least
    # Requires a digit or capital within the first 64 bytes: excludes plain words and fails early.
    body = rb"(?=[%s]{0,63}?[A-Z0-9])[%s]%s" % (chars, chars, many)
    # A prefix with an equals sign stays: only the value is secret.
    grouped = rb"%s(%s)" if prefix.endswith(b"=") else rb"(%s(%s))"
    return Shape(
        grouped % (re.escape(prefix), body),
        back=len(_head(prefix)),
        good=is_random if pattern.random else None,
    )


_TOKEN = Shape(rb"eyJ[A-Za-z0-9_-]{6,}\.eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?")
_BOT = Shape(rb"[MNO][A-Za-z0-9]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,}", good=_is_number)
_LATE = {
    # Bounded: text with a slash or a plus may be longer than its run.
    b"whsec_": Shape(rb"whsec_[A-Za-z0-9+/]{24,200}=*"),
    b"slack.com/": Shape(rb"slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{20,300})"),
    b"api/webhooks/": Shape(rb"api/webhooks/([A-Za-z0-9/_-]{20,300})", good=is_random),
    b"webhookb2/": Shape(rb"webhookb2/([A-Za-z0-9/@_-]{20,300})", good=is_random),
}
"""Webhook secrets, and webhook URLs of Slack, Discord and Teams, by the text before the random part. Their first part may
be too short for a long run, so these are searched before a run."""

STARTS: dict[bytes, Sequence[Shape]] = {
    b"eyJ": (_TOKEN,),
    b"pat": (Shape(rb"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),),
    b"re_": (Shape(rb"re_[A-Za-z0-9]{8,10}_[A-Za-z0-9]{22,26}(?![A-Za-z0-9_])"),),
    b"A3-": (Shape(rb"A3-[A-Z0-9]{6}-[A-Z0-9]{6}-?(?:[A-Z0-9]{5}-){3}[A-Z0-9]{5}"),),
    **{base64.b64encode(b"%d0" % number)[:_KEY]: (_BOT,) for number in range(10, 100)},
}
"""Shapes with more than a prefix, by the first bytes of their run."""

HEADS: dict[bytes, Sequence[Shape]] = {
    b"SG.": (Shape(rb"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}", back=3),),
    b"v1.": (Shape(rb"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}", back=23),),
    **{
        b"%02d:" % number: [Shape(rb"[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}", back=back) for back in (9, 10, 11)]
        for number in range(100)
    },
}
"""Shapes by the bytes right before their run."""


class Finder:
    """Finds the secrets of the table, and of further patterns, at long runs."""

    def __init__(self, patterns: Iterable[SecretPattern] = ()) -> None:
        self._starts: dict[bytes, list[Shape]] = {key: list(shapes) for key, shapes in STARTS.items()}
        self._heads: dict[bytes, list[Shape]] = {key: list(shapes) for key, shapes in HEADS.items()}
        solid: list[bytes] = [b"eyJ"]
        # Longest first: `sk_live_` before `sk_`.
        for pattern in sorted(chain(PATTERNS, patterns), key=lambda one: -len(one.prefix)):
            prefix = pattern.prefix.encode()
            head = _head(prefix)
            table, key = (self._heads, head[-_KEY:]) if head else (self._starts, prefix[:_KEY])
            table.setdefault(key, []).append(_shape(pattern))
            if prefix.isalnum():
                solid.append(prefix)
        self._solid = re.compile(b"/(?:%s)" % b"|".join(map(re.escape, solid)))

    def find(self, data: bytes) -> list[Span]:
        """The spans of the secrets, in order."""
        # Without a regular expression: this skips ordinary text several times faster.
        runs = data.translate(_AS_RUN)
        starts, spans, done, blob = self._starts, list[Span](), 0, 0
        start = runs.find(_LONG_RUN)
        while start >= 0:
            end = runs.find(b" ", start)
            if end < 0:
                end = len(data)
            span = None
            if (
                data[start - 1 : start] in _JOINED
                or data[start] in _DASHES
                or data[start : start + _KEY] in starts
            ):
                span = self._look(data, start, end, done)
            if span is not None:
                spans.append(span)
                # Another secret may begin right after this one.
                end = done = span[1]
            elif data[end : end + 1] in _PARTING:
                # Searched once per file: a file may be long and have many runs.
                blob = blob if end < blob else _end_of_blob(data, start)
                end = self._in_blob(data, end, blob) if end < blob else end
            start = runs.find(_LONG_RUN, end)
        return spans

    def _look(self, data: bytes, start: int, end: int, done: int) -> Span | None:
        """The secret that contains a run: it begins with the run, before it, or after an escape or dashes."""
        before = data[start - 1 : start]
        span = self._at(data, start, done)
        if span is None and data[start] in _DASHES:
            # Dashes of a list or a diff.
            span = self._at(data, end - len(data[start:end].lstrip(_DASHES)), done)
        if span is None and before in _ESCAPING:
            for at in range(start + 1, start + _ESCAPE_ENDS + 1):
                if span := self._at(data, at + 4 - len(data[at : at + 4].lstrip(_DASHES)), done):
                    break
        if span is None:
            span = _first(self._heads.get(data[start - _KEY : start], ()), data, start, done)
        return _late(data, start, done) if span is None and before in _PARTING else span

    def _at(self, data: bytes, at: int, done: int) -> Span | None:
        return _first(self._starts.get(data[at : at + _KEY], ()), data, at, done)

    def _in_blob(self, data: bytes, end: int, blob: int) -> int:
        """Where to continue in a base64 file: at the start of a possible secret, or at the last run, which may be longer."""
        if found := self._solid.search(data, end, blob):
            return found.start() + 1
        return max(data.rfind(b"+", end, blob), data.rfind(b"/", end, blob)) + 1


def _first(shapes: Sequence[Shape], data: bytes, start: int, done: int) -> Span | None:
    for shape in shapes:
        if span := shape.match(data, start, done):
            return span
    return None


def _late(data: bytes, start: int, done: int) -> Span | None:
    """A secret that began before the run."""
    first = max(done, start - _BACK)
    ahead = data[first:start]
    if b"hook" not in ahead and b"whsec_" not in ahead:
        return None
    for mark, shape in _LATE.items():
        at = ahead.rfind(mark)
        if at >= 0 and (span := shape.match(data, first + at, done)) and span[1] > start:
            return span
    return None


def _end_of_blob(data: bytes, start: int) -> int:
    found = _BLOB.match(data, start)
    return 0 if found is None else found.end()


@functools.lru_cache(maxsize=16)
def finder(patterns: tuple[SecretPattern, ...] = ()) -> Finder:
    return Finder(patterns)
