"""Keeps secrets out of stored data: known kinds of keys and tokens, and values of environment variables.

Works on bytes of plain text or of JSON, which stays valid JSON.
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
"""Shorter values of environment variables are ignored: they would occur in ordinary text."""

PHRASE_CHARS, PHRASE_WORDS = 20, 4
"""A value that consists only of words is redacted if it has at least this many characters and words."""

HELD_CHARS = 8192
"""Least number of characters of an unfinished text to hold back, so that no secret is split."""

NEAR_CHARS, TRIES, STEP_CHARS = 512, 64, 61
"""Characters checked around a cut, number of cuts to try, and distance between them in text without separators."""

_OUR_NAME = re.compile(r"[a-z_]+")


class Redactor:
    """Replaces secrets by `REDACTED`: text that looks like a secret, and the given `secrets` (literal texts and patterns).

    Also replaces the values of `environment` variables whose names look secret (`secret_names.py`). Its methods never
    raise.
    """

    def __init__(
        self, secrets: Iterable[str | SecretPattern] = (), *, environment: Mapping[str, str] | None = None
    ) -> None:
        known = tuple(secrets)
        self._finder = finder(tuple(one for one in known if isinstance(one, SecretPattern)))
        found = {one for one in known if isinstance(one, str) and one}
        found |= set(_of_environment(os.environ if environment is None else environment))
        # Escaped too, as they appear in JSON inside a text.
        found |= {escaped for text in found for escaped in _json_forms(text)}
        # Longest first: one may be part of another.
        literals = sorted(found, key=len, reverse=True)
        self._texts = tuple(literals)
        self.held = max(HELD_CHARS, len(literals[0]) if literals else 0)
        """How many characters of an unfinished text `cut` holds back."""
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
            # The secret was part of a number or a name. Redacting value by value is slower and keeps JSON valid.
            return self._redact_values(data)
        except RecursionError:
            # Nested too deeply to decode, so no reader can decode it either.
            return changed
        return changed

    def redact_lines(self, lines: bytes) -> bytes:
        """Redact each line of a page.

        First searches the page as one text: one search of 500 KB takes a third of the time of a thousand searches of
        500 bytes, and most pages have no secret. Only a page with a secret is searched line by line.
        """
        if self._redact(lines, self._in_json, json=True) is lines:
            return lines
        return b"\n".join([self.redact(line) for line in lines.split(b"\n")])

    def redact_text(self, text: str) -> str:
        data = _encoded(text)
        changed = self._redact(data, self._plain, json=False)
        return text if changed is data else changed.decode("utf-8", "surrogatepass")

    def cut(self, text: str) -> int:
        """Where to cut an unfinished text, so that both parts can be redacted separately."""
        most = len(text) - self.held
        least = max(1, most - HELD_CHARS)
        if most <= least:
            return max(0, most)
        # Each literal is searched once, not at every place: there may be many long ones.
        here = [one for one in self._texts if text.find(one, max(0, least - len(one)), most + len(one)) >= 0]
        places = (at for at in _places(text, least, most) if not self._splits_a_secret(text, at, here))
        most = next(places, None) or _beside(text, most, here)
        opened = text.rfind("-----BEGIN", 0, most)
        return opened if opened > 0 and text.find("-----END", opened, most) < 0 else most

    def _splits_a_secret(self, text: str, at: int, literals: Iterable[str]) -> bool:
        """Whether a cut at this place would split a secret, or separate a name from its value."""
        # Literals may be longer than NEAR_CHARS.
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
        """Keep the names of our own fields, even if one equals a secret. Other names come from models."""
        return name if _OUR_NAME.fullmatch(name) else self.redact_text(name)


def _beside(text: str, at: int, literals: list[str]) -> int:
    """`at`, or the start of the literal that spans it; 0 if that literal starts the text and more text must follow."""
    found = at
    for _ in range(TRIES):
        starts = (text.find(one, max(0, found - len(one) + 1), found + len(one) - 1) for one in literals)
        start = min((start for start in starts if start >= 0), default=-1)
        if start < 0:
            # Overlapping literals from the start of the text on must not hold the text back for ever.
            return found if found or at < len(literals[0]) else at
        found = start
    return at


def _places(text: str, least: int, most: int) -> Iterator[int]:
    """Where a text may be cut, best first: after a line, after a word, anywhere."""
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
    """The text as it appears inside a JSON string."""
    return msgspec.json.encode(text.encode("utf-8", "replace").decode())[1:-1]


def _json_forms(text: str) -> Iterable[str]:
    """The text as JSON strings contain it, with non-ASCII characters unescaped or escaped."""
    yield _escaped(text).decode()
    yield json.dumps(text)[1:-1]


def _literal(data: bytes, literal: bytes, *, json: bool) -> bytes:
    parts: list[bytes] = []
    at = 0
    while (found := data.find(literal, at)) >= 0:
        # The "n" of an escaped line break is part of the escape: removing it would leave half an escape.
        inside = json and _inside_escape(data, found)
        end = found + (1 if inside else len(literal))
        parts += [data[at:found], data[found:end] if inside else MARK]
        at = end
    return b"".join([*parts, data[at:]])


def _inside_escape(data: bytes, at: int) -> bool:
    """Whether a place in JSON is inside an escape sequence, such as that of a line break."""
    slash = data.rfind(b"\\", max(0, at - 5), at)
    if slash < 0:
        return False
    first = slash
    while first > 0 and data[first - 1] == 0x5C:
        first -= 1
    # Backslashes in pairs are escaped backslashes.
    opens = (slash - first) % 2 == 0
    return opens and at < slash + (6 if data[slash + 1 : slash + 2] == b"u" else 2)


def _of_environment(environment: Mapping[str, str]) -> Iterable[str]:
    for name, value in environment.items():
        if is_secret_name(name) and _is_secret_value(value, named=names_its_value(name)):
            yield value


def _is_secret_value(value: str, *, named: bool) -> bool:
    """Whether a value is more than a word, number, path, URL or flag, which occur in ordinary text too.

    Unless the variable's name says that its value is a secret (`named`), the value must also look random.
    """
    if len(value) < LEAST_CHARS or value.startswith(("/", "~", ".")) or ":\\" in value:
        return False
    if "://" in value:
        # A URL is a secret if a part of it is random, as in webhooks.
        return any(is_random(_encoded(part)) for part in re.split(r"[/?&=#@:;]", value))
    if not named:
        return is_random(_encoded(value))
    letters = sum(char.isalpha() for char in value)
    phrase = len(value) >= PHRASE_CHARS and len(value.split()) >= PHRASE_WORDS
    return letters >= 2 and (phrase or not re.fullmatch(r"[A-Za-z_ -]+", value)) and not value.isspace()
