"""Keeping secrets out of what is stored: known shapes of keys and tokens, and the values of this environment.

Everything is done on bytes, either of JSON, which stays JSON, or of plain text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import cast

import msgspec

from remit.history.secret_names import is_secret_name, names_its_value
from remit.history.secret_patterns import SecretPattern
from remit.history.secret_search import MARK, without_lookalikes
from remit.history.secret_tokens import finder, is_random
from remit.types.messages import REDACTED

LEAST_CHARS = 8
"""A value of the environment that is shorter is not looked for: it would be found everywhere."""

PHRASE_CHARS, PHRASE_WORDS = 20, 4
"""A value of the environment that is nothing but words is looked for from here on."""

HELD_CHARS = 8192
"""How much of a text that still goes on is held back at least, so that no secret is cut in two."""

NEAR_CHARS, TRIES, STEP_CHARS = 512, 64, 61
"""How much around a cut is looked at, how often another is tried, and how far from it where nothing parts a text."""

_OUR_NAME = re.compile(r"[a-z_]+")


class Redactor:
    """Replaces secrets by `REDACTED`. `secrets` are looked for besides what looks like one: texts as they are, and
    patterns.

    `environment` is what further values are taken from: those whose names `secret_names.py` lists. Raises nothing,
    whatever it is given.
    """

    def __init__(
        self, secrets: Iterable[str | SecretPattern] = (), *, environment: Mapping[str, str] | None = None
    ) -> None:
        known = tuple(secrets)
        self._finder = finder(tuple(one for one in known if isinstance(one, SecretPattern)))
        found = {one for one in known if isinstance(one, str) and one}
        found |= set(_of_environment(os.environ if environment is None else environment))
        # As JSON inside a text has them too, where characters are escaped.
        found |= {escaped for text in found for escaped in _as_json_has(text)}
        # The longest first: one may be a part of another.
        literals = sorted(found, key=len, reverse=True)
        self._texts = tuple(literals)
        self.held = max(HELD_CHARS, len(literals[0]) if literals else 0)
        """How much of a text that still goes on is held back by `cut`."""
        self._plain = tuple(map(_encoded, literals))
        self._in_json = tuple(map(_escaped, literals))

    def redact(self, data: bytes) -> bytes:
        """JSON in, JSON out."""
        changed = self._redact(data, self._in_json, json=True)
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
        """As `redact`, for each line of a page.

        The page is searched as one text first: a search of 500 KB takes a third of the time of a thousand searches of
        500 bytes, and most pages have no secret. Only in a page that has one, each line is searched by itself.
        """
        if self._redact(lines, self._in_json, json=True) is lines:
            return lines
        return b"\n".join([self.redact(line) for line in lines.split(b"\n")])

    def redact_text(self, text: str) -> str:
        data = _encoded(text)
        changed = self._redact(data, self._plain, json=False)
        return text if changed is data else changed.decode("utf-8", "surrogatepass")

    def cut(self, text: str) -> int:
        """Where a text that goes on can be cut in two, so that each part can be redacted by itself."""
        most = len(text) - self.held
        least = max(1, most - HELD_CHARS)
        if most <= least:
            return max(0, most)
        # Each is looked for once, not at every place: there may be many, and long ones.
        here = [one for one in self._texts if text.find(one, max(0, least - len(one)), most + len(one)) >= 0]
        places = (at for at in _places(text, least, most) if not self._parts_a_secret(text, at, here))
        most = next(places, None) or _beside(text, most, here)
        opened = text.rfind("-----BEGIN", 0, most)
        return opened if opened > 0 and text.find("-----END", opened, most) < 0 else most

    def _parts_a_secret(self, text: str, at: int, literals: Iterable[str]) -> bool:
        """Whether a cut there would stand inside a secret, or between a name and its value."""
        # Of any length, so not with what stands near alone.
        if any(text.find(one, max(0, at - len(one) + 1), at + len(one) - 1) >= 0 for one in literals):
            return True
        before, after = _encoded(text[max(0, at - NEAR_CHARS) : at]), _encoded(text[at : at + NEAR_CHARS])
        parts = without_lookalikes(before, self._finder) + without_lookalikes(after, self._finder)
        return without_lookalikes(before + after, self._finder) != parts

    def _redact(self, data: bytes, literals: tuple[bytes, ...], *, json: bool) -> bytes:
        for literal in literals:
            if literal in data:
                data = _literal(data, literal, json=json)
        return without_lookalikes(data, self._finder)

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


def _beside(text: str, at: int, literals: list[str]) -> int:
    """That place, or the beginning of the literal around it; 0 for one at the very beginning, behind which more must come."""
    found = at
    for _ in range(TRIES):
        starts = (text.find(one, max(0, found - len(one) + 1), found + len(one) - 1) for one in literals)
        start = min((start for start in starts if start >= 0), default=-1)
        if start < 0:
            # Many that lie over each other, from the beginning on, would never let a text go.
            return found if found or at < len(literals[0]) else at
        found = start
    return at


def _places(text: str, least: int, most: int) -> Iterator[int]:
    """Where a text may be cut, the best first: behind a line, behind a word, anywhere."""
    for space in ("\n", " "):
        found = text.rfind(space, least, most)
        for _ in range(TRIES):
            if found < 0:
                break
            yield found + 1
            found = text.rfind(space, least, found)
    yield from range(most, max(least, most - TRIES * STEP_CHARS), -STEP_CHARS)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _escaped(text: str) -> bytes:
    """As JSON writes it."""
    return msgspec.json.encode(text.encode("utf-8", "replace").decode())[1:-1]


def _as_json_has(text: str) -> Iterable[str]:
    """The text where it stands in JSON, with other characters than ASCII written out or as they are."""
    yield _escaped(text).decode()
    yield json.dumps(text)[1:-1]


def _literal(data: bytes, literal: bytes, *, json: bool) -> bytes:
    parts: list[bytes] = []
    at = 0
    while (found := data.find(literal, at)) >= 0:
        # The "n" of an escaped line break is no letter: taking it away would leave half an escape.
        inside = json and _inside_escape(data, found)
        end = found + (1 if inside else len(literal))
        parts += [data[at:found], data[found:end] if inside else MARK]
        at = end
    return b"".join([*parts, data[at:]])


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


def _of_environment(environment: Mapping[str, str]) -> Iterable[str]:
    for name, value in environment.items():
        if is_secret_name(name) and _is_secret_value(value, named=names_its_value(name)):
            yield value


def _is_secret_value(value: str, *, named: bool) -> bool:
    """Not a word, a number, a path, an address or a switch: those stand in ordinary texts too.

    A value whose name does not say what it is (`named`) must look random besides.
    """
    if len(value) < LEAST_CHARS or value.startswith(("/", "~", ".")) or ":\\" in value:
        return False
    if "://" in value:
        # An address is one itself if it has something random in it, as those of webhooks have.
        return any(is_random(_encoded(part)) for part in re.split(r"[/?&=#@:;]", value))
    if not named:
        return is_random(_encoded(value))
    letters = sum(char.isalpha() for char in value)
    phrase = len(value) >= PHRASE_CHARS and len(value.split()) >= PHRASE_WORDS
    return letters >= 2 and (phrase or not re.fullmatch(r"[A-Za-z_ -]+", value)) and not value.isspace()
