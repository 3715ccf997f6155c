"""Keeping secrets out of what is stored: known shapes of keys and tokens, and the values of this environment.

Everything is done on bytes, either of JSON, which stays JSON, or of plain text. What is dear is done only
where a cheap look has found its marker.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, cast

import msgspec

from remit.messages import REDACTED

_MARK = REDACTED.encode()

LEAST_CHARS = 8
"""A value of the environment that is shorter is not looked for: it would be found everywhere."""

HELD_CHARS = 8192
"""How much of a text that still goes on is held back, so that no secret is cut in two."""

_WORD = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
_NAME = _WORD + b"_-"
_BASE64 = _WORD + b"+"


class _Shape(NamedTuple):
    """A kind of secret. Group 1 is the secret, where it is not the whole."""

    markers: tuple[bytes, ...]
    """Without one of these, lower case where `folded`, there is none of it."""
    pattern: re.Pattern[bytes]
    """Linear: every part ends at the first character that is not its own, or is bounded."""
    before: bytes = b""
    """It never begins right after one of these: then it is a part of something else."""
    random: bool = False
    """Whether it must look like chance besides."""
    folded: bool = False


_URL_PASSWORD = _Shape((b"@",), re.compile(rb"://[^\s/:@\"'\\]{0,256}:([^\s/@\"'\\]{1,512})@"))

_AUTHORIZATION = _Shape(
    (b"authorization",),
    re.compile(
        rb"authorization[\"'\\]{0,8}[ \t]{0,8}[:=][ \t]{0,8}[\"'\\]{0,8}(?:basic|token|digest|apikey) {1,4}"
        rb"([^\s\"'\\,;]{6,})"
    ),
    folded=True,
)

_LONG = (
    _Shape((b"sk-",), re.compile(rb"sk-([A-Za-z0-9_-]{16,})"), _NAME, random=True),
    _Shape((b"AIza",), re.compile(rb"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_+/=-])"), _BASE64 + b"_-"),
    _Shape((b"glpat-",), re.compile(rb"glpat-[A-Za-z0-9_.-]{16,}"), _NAME),
    _Shape(
        (b"bearer ",),
        re.compile(rb"bearer {1,4}([a-z0-9._~+/=-]{16,})"),
        _WORD,
        random=True,
        folded=True,
    ),
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
    _Shape((b"AKIA", b"ASIA"), re.compile(rb"A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9+/=])"), _BASE64),
    _Shape(
        (b"gsk_", b"xai-", b"pplx-", b"r8_", b"dop_v1_", b"hvs.", b"pypi-", b"xapp-"),
        re.compile(rb"(?:gsk_|xai-|pplx-|r8_|dop_v1_|hvs\.|pypi-|xapp-)[A-Za-z0-9_-]{20,}"),
        _NAME,
        random=True,
    ),
    _Shape((b"sk_",), re.compile(rb"sk_[0-9a-f]{32,}"), _NAME),
    _Shape((b"dapi",), re.compile(rb"dapi[0-9a-f]{32}(?![0-9a-f])"), _BASE64),
    _Shape((b"ya29.", b"GOCSPX-"), re.compile(rb"(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,}"), _NAME),
    _Shape((b"SG.",), re.compile(rb"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"), _NAME),
    _Shape((b"hooks.slack.com/services/",), re.compile(rb"hooks\.slack\.com/services/([A-Za-z0-9/]{20,})")),
    _Shape((b":AA",), re.compile(rb"[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}"), _NAME),
    _Shape(
        (b"--",),
        re.compile(rb"--(?:api-?key|token|password|secret|auth-token)[ =]{1,4}([^\x00-\x20\"'\\]{12,})"),
        random=True,
    ),
    _Shape((b"hf_",), re.compile(rb"hf_[A-Za-z0-9]{20,}"), _NAME, random=True),
    _Shape((b"npm_",), re.compile(rb"npm_[A-Za-z0-9]{30,}"), _NAME, random=True),
    _Shape(
        (b".eyJ",),
        # Only where a word begins: a long run of "eyJ" is looked at once, not once for each of them.
        re.compile(
            rb"(?:(?<![A-Za-z0-9_-])|(?<=\\[bfnrt])|(?<=\\u[0-9a-f]{4}))eyJ[A-Za-z0-9_-]{6,}\.eyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*)?"
        ),
        _NAME,
    ),
    _Shape(
        (b"PRIVATE KEY",),
        re.compile(
            rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
            rb"(?:(?!-----)(?:[A-Za-z0-9+/=,-]|: ?|\\n *|\\[rt]|[\r\n][ \t]*))*"
            rb"(?:-----END [A-Z0-9 ]{0,60}-----)?"
        ),
    ),
)
"""Looked for in texts that have a long run of letters and digits, as each of these has."""

_ASSIGNED = (
    rb"[\"'\\]{0,8}[ \t]{0,8}(?::=|=>|[:=])[ \t]{0,8}[\"'\\\x00-\x08\x0e-\x1f]{0,8}"
    rb"([^\x00-\x20\"'\\,;&<>(){}\[\]`|]{8,})"
)
"""No value goes on behind a character that JSON escapes: with the path behind it, it would look like one."""

_ASSIGNMENTS = tuple(
    (word, re.compile(word + ending + _ASSIGNED))
    for word, ending in (
        (b"key", rb"(?:[_-]?id)?"),
        (b"token", b""),
        (b"passphrase", b""),
        (b"credential", b"s?"),
    )
)

_PASSWORD = re.compile(rb"passw(?:or)?d" + _ASSIGNED)
_SECRET = re.compile(rb"secret(?:[_-]?(?:access)?[_-]?key)?" + _ASSIGNED)

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
_ESCAPE = re.compile(rb"\\(?:[bfnrt]|u[0-9a-f]{4})$")
_SOLID = re.compile(rb"[A-Za-z0-9]{16,}")
_AS_RUN = bytes(0x61 if char in _NAME else 0x20 for char in range(256))
_LONG_RUN = b"a" * 20
_PLAIN = b"abcdefghijklmnopqrstuvwxyz_-"
_OUR_NAME = re.compile(r"[a-z_]+")
_ENV_ENDINGS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")


class Redactor:
    """Replaces secrets by `REDACTED`. `secrets` are looked for as they are, besides what looks like one.

    `environment` is what its values are taken from: those whose names say key, token, secret, password or
    credential. Raises nothing, whatever it is given.
    """

    def __init__(self, secrets: Iterable[str] = (), *, environment: Mapping[str, str] | None = None) -> None:
        found = {secret for secret in secrets if secret}
        found |= set(_of_environment(os.environ if environment is None else environment))
        # The longest first: one may be a part of another.
        literals = sorted(found, key=len, reverse=True)
        self._plain = tuple(_encoded(text) for text in literals)
        # As JSON writes it, where characters are escaped.
        self._in_json = tuple(
            msgspec.json.encode(text.encode("utf-8", "replace").decode())[1:-1] for text in literals
        )

    def redact(self, data: bytes) -> bytes:
        """JSON in, JSON out."""
        changed = _redact(data, self._in_json, json=True)
        if changed is data:
            return data
        try:
            msgspec.json.decode(changed)
        except (msgspec.DecodeError, UnicodeError):
            # A secret that is also a part of a number or of a name. Slower, and sure.
            return self._redact_values(data)
        except RecursionError:
            # Too deep to be looked at, so nobody will read it either.
            return changed
        return changed

    def redact_lines(self, lines: bytes) -> bytes:
        """As `redact`, for each of many lines. Faster: without a secret they are looked at together."""
        return lines if self.is_clean(lines) else b"\n".join(map(self.redact, lines.split(b"\n")))

    def is_clean(self, data: bytes) -> bool:
        """Whether nothing would be replaced in JSON, or in many lines of it."""
        return _redact(data, self._in_json, json=True) is data

    def are_clean(self, texts: Iterable[str]) -> bool:
        """Whether nothing would be replaced in any of these texts, or in JSON of them."""
        # What should be a text and is not is somebody's slip, and no reason to write nothing.
        data = _encoded("\n".join(map(str, texts)))
        return _redact(data, self._plain, json=False) is data

    def redact_text(self, text: str) -> str:
        data = _encoded(text)
        changed = _redact(data, self._plain, json=False)
        return text if changed is data else changed.decode("utf-8", "surrogatepass")

    def cut(self, text: str) -> int:
        """Where a text that goes on can be cut in two, so that each part can be redacted by itself."""
        most = len(text) - HELD_CHARS
        least = max(1, most - HELD_CHARS)
        if most <= least:
            return max(0, most)
        for space in ("\n", " "):
            found = text.rfind(space, least, most)
            if found >= 0:
                most = found + 1
                break
        opened = text.rfind("-----BEGIN", 0, most)
        return opened if opened > 0 and text.find("-----END", opened, most) < 0 else most

    def _redact_values(self, data: bytes) -> bytes:
        try:
            return msgspec.json.encode(self._walk(msgspec.json.decode(data)))
        except (RecursionError, msgspec.DecodeError, UnicodeError):
            return msgspec.json.encode(REDACTED)

    def _walk(self, value: object) -> object:
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, list):
            return [self._walk(item) for item in cast(list[object], value)]
        if isinstance(value, dict):
            return {
                self._name(name): self._walk(item) for name, item in cast(dict[str, object], value).items()
            }
        return value

    def _name(self, name: str) -> str:
        """Ours stay, also where one of them is somebody's secret; what a model made up may be one."""
        return name if _OUR_NAME.fullmatch(name) else self.redact_text(name)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _redact(data: bytes, literals: tuple[bytes, ...], *, json: bool) -> bytes:
    for literal in literals:
        if literal in data:
            data = _literal(data, literal, json=json)
    folded = data.lower()
    # Written out: this is done for every event.
    if b"@" in data:
        data, folded = _shaped(data, folded, _URL_PASSWORD)
    if b"authorization" in folded:
        data, folded = _shaped(data, folded, _AUTHORIZATION)
    if b"passw" in folded:
        data, folded = _replace(data, folded, _PASSWORD.finditer(folded), _is_assigned)
    if b"secret" in folded:
        data, folded = _replace(data, folded, _SECRET.finditer(folded), _is_assigned)
    if _has_odd_run(data):
        data = _redact_long(data, folded)
    return data


def _redact_long(data: bytes, folded: bytes) -> bytes:
    for shape in _LONG:
        if any(marker in (folded if shape.folded else data) for marker in shape.markers):
            data, folded = _shaped(data, folded, shape)
    for word, pattern in _ASSIGNMENTS:
        if word in folded:
            data, folded = _replace(data, folded, pattern.finditer(folded), _is_assigned)
    return data


def _has_odd_run(data: bytes) -> bool:
    """Whether a long run of letters and digits is more than long words, or several with hyphens."""
    # Not with a pattern: most texts have no such run, and this passes over them several times as fast.
    runs = data.translate(_AS_RUN)
    start = runs.find(_LONG_RUN)
    while start >= 0:
        end = runs.find(b" ", start)
        end = len(data) if end < 0 else end
        if data[start + 1 : end].translate(None, _PLAIN):
            return True
        start = runs.find(_LONG_RUN, end)
    return False


def _literal(data: bytes, literal: bytes, *, json: bool) -> bytes:
    parts: list[bytes] = []
    at = 0
    while (found := data.find(literal, at)) >= 0:
        # The "n" of an escaped line break is no letter: taking it away would leave half an escape.
        inside = json and _inside_escape(data, found)
        end = found + (1 if inside else len(literal))
        parts += [data[at:found], data[found:end] if inside else _MARK]
        at = end
    return b"".join([*parts, data[at:]])


def _shaped(data: bytes, folded: bytes, shape: _Shape) -> tuple[bytes, bytes]:
    def wanted(match: re.Match[bytes], secret: bytes) -> bool:
        start = match.start()
        # Right after an escape is a beginning too, also one of a program text inside the text.
        if start and data[start - 1] in shape.before and not _ESCAPE.search(data, max(0, start - 6), start):
            return False
        return not shape.random or _is_random(secret)

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
        if data[start:end] != _MARK and wanted(match, data[start:end]):
            parts += [data[at:start], _MARK]
            at = end
    if not parts:
        return data, folded
    data = b"".join([*parts, data[at:]])
    return data, data.lower()


def _inside_escape(data: bytes, at: int) -> bool:
    """Whether a place in JSON is in the middle of an escape, such as a line break's."""
    slash = data.rfind(b"\\", max(0, at - 5), at)
    if slash < 0:
        return False
    first = slash
    while first > 0 and data[first - 1] == 0x5C:
        first -= 1
    # Two and two are backslashes that stand for themselves.
    opens = (slash - first) % 2 == 0
    return opens and at < slash + (6 if data[slash + 1 : slash + 2] == b"u" else 2)


def _is_assigned(match: re.Match[bytes], value: bytes) -> bool:
    name = match.re.pattern
    if name.startswith(b"key"):
        before = match.string[max(0, match.start() - 16) : match.start()].rstrip(b"_-")
        if not before.endswith(_KEY_OF):
            return False
    if name.startswith(b"passw"):
        return _digits(value) > 0 and _letters(value) > 1
    return _is_random(value)


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


def _of_environment(environment: Mapping[str, str]) -> Iterable[str]:
    for name, value in environment.items():
        parts = name.upper().rstrip("S").split("_")
        if any(part.rstrip("S").endswith(_ENV_ENDINGS) for part in parts) and _is_secret_value(value):
            yield value


def _is_secret_value(value: str) -> bool:
    """Not a word, a number, a path or a switch: those stand in ordinary texts too."""
    if len(value) < LEAST_CHARS or value.startswith(("/", "~", ".")) or ":\\" in value or "://" in value:
        return False
    letters = sum(char.isalpha() for char in value)
    return letters >= 2 and not re.fullmatch(r"[A-Za-z_ -]+", value) and not value.isspace()
