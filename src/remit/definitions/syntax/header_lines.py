"""The lines of front matter, classified: key, comment, part of an example."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Collection
from functools import cached_property
from typing import NamedTuple

WORD_KEY = re.compile(r"([A-Za-z_][\w.-]{0,60})\s?:(?:\s+|$)")
"""Certainly a key: one word and a colon."""
GLUED_KEY = re.compile(r"([A-Za-z_][\w-]{0,60}):(?=[^\s:/])")
COLON = re.compile(r":(?=\s|$)")
CLOSING_TAG = re.compile(r"</([A-Za-z][\w-]{0,40})>")


class Vocabulary(NamedTuple):
    """The known keys of a file, normalised by `plain_key`."""

    known: Collection[str]
    texts: Collection[str]
    """Keys whose value is running text."""


def plain_key(key: str) -> str:
    """One form for `max_turns`, `maxTurns` and `max-turns`."""
    return key.lower().replace("_", "").replace("-", "")


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def is_void(line: str) -> bool:
    """Whether a line is empty or only a comment."""
    stripped = line.lstrip()
    return not stripped or stripped.startswith("#")


class HeaderLines:
    """The lines, without leading tabs and trailing spaces."""

    def __init__(self, lines: list[str], words: Vocabulary) -> None:
        self.words = words
        self.tabbed: int | None = None
        """The first line that was indented with a tab."""
        self.all = [self._untabbed(at, line) for at, line in enumerate(lines)]
        first = next((line for line in self.all if not is_void(line)), "")
        self.base = indent_of(first)
        self._in_capitals = first.strip()[:1].isupper()

    def _untabbed(self, at: int, line: str) -> str:
        line = line.rstrip()
        blank = line[: len(line) - len(line.lstrip())]
        if not blank.strip(" "):
            return line
        self.tabbed = at if self.tabbed is None else self.tabbed
        return blank.replace("\t", "  ").replace("\u00a0", " ") + line.lstrip()

    def __len__(self) -> int:
        return len(self.all)

    def __getitem__(self, at: int) -> str:
        return self.all[at]

    def next_solid(self, at: int) -> int | None:
        """The next line that is neither empty nor a comment."""
        return self._next(self._solid, at)

    def next_written(self, at: int) -> int | None:
        """The next line that is not empty."""
        return self._next(self._written, at)

    def next_closing(self, tag: str, at: int) -> int | None:
        """The next line that closes this tag."""
        return self._next(self._closings.get(tag, []), at)

    def next_known(self, at: int) -> int:
        """The next line with a known top-level key; the number of lines if there is none."""
        found = self._next(self._known, at)
        return len(self.all) if found is None else found

    def _next(self, places: list[int], at: int) -> int | None:
        found = bisect_left(places, at + 1)
        return places[found] if found < len(places) else None

    @cached_property
    def _solid(self) -> list[int]:
        return [at for at, line in enumerate(self.all) if not is_void(line)]

    @cached_property
    def _known(self) -> list[int]:
        return [at for at in self._solid if indent_of(self.all[at]) <= self.base and self.is_known(at)]

    @cached_property
    def _written(self) -> list[int]:
        return [at for at, line in enumerate(self.all) if line]

    @cached_property
    def _closings(self) -> dict[str, list[int]]:
        places = dict[str, list[int]]()
        for at, line in enumerate(self.all):
            for tag in CLOSING_TAG.findall(line):
                places.setdefault(tag, []).append(at)
        return places

    def is_known(self, at: int) -> bool:
        """Whether a line begins with a key of any known system."""
        match = WORD_KEY.match(self.all[at].strip())
        return match is not None and self.is_key(match[1])

    def is_key(self, word: str) -> bool:
        """Whether a word before a colon is a key. `Output:` is a heading, unless the file capitalises its keys."""
        return plain_key(word) in self.words.known and (self._in_capitals or not word[0].isupper())
