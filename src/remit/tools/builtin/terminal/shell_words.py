"""Read the words of a shell command: quotes, expansions, blanks, comments. `shell_parser.py` reads commands."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import NamedTuple

from remit.tools.policy_rules import ANYTHING

MOST_DEPTH = 40

META = frozenset(" \t\n;&|<>()")
_OPERATORS = tuple(";&|<>()")
_PLAIN_BRACES = re.compile(
    r"\$\{(?:#?[A-Za-z_0-9][A-Za-z0-9_]*|[@*#?$!-]"
    r"|[A-Za-z_0-9][A-Za-z0-9_]*(?::[-+?]|[-+?]|##?|%%?|//?|\^\^?|,,?)[^'\"\\`$(){}<>\n]*)\}"
)
_PLAIN_NUMBERS = re.compile(r"\$\(\([0-9+*/% \t-]*\)\)")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-])")
_PLAIN = re.compile(r"[A-Za-z0-9_./:=+,@%^-]+")
_ESCAPE = re.compile(
    r"\\(?:x(?P<hex>[0-9a-fA-F]{1,2})|u(?P<u>[0-9a-fA-F]{1,4})|U(?P<U>[0-9a-fA-F]{1,8})|(?P<oct>[0-7]{1,3})|(?P<one>.))",
    re.DOTALL,
)
_ESCAPED = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "v": "\v",
}
_QUOTED, _REPLACED, _HELD = "\x01", "\x02", "\x03"
"""Mask characters: quoted; expanded, perhaps to several words; expanded within one word."""
_VARIES = re.compile(rf"[{_REPLACED}{_HELD}*?]+|\[(?:.*\])?|(?:^|(?<=[=:]))~[^/]*", re.DOTALL)
"""In a mask: expansions, globs and a home (~)."""
_GROUP = re.compile(r"\{[^{}]*\}")
MOST_WORDS = 1000
"""The most words of a command that are read, including nested ones."""
MOST_CHOICES = 64
"""The most words that one word with braces may expand to."""


class Unclear(Exception):
    """Raised for text that the parser does not fully understand."""


class Word(NamedTuple):
    """One word: quotes removed, expansions as written."""

    text: str
    quoted: bool = False
    """Whether a part of it was quoted; a quoted word is not a keyword."""
    expands: bool = False
    """Whether it contains an expansion."""
    globs: bool = False
    """Whether it may expand to file names or to several words."""
    clear: bool = True
    mask: str = ""
    """As long as the text; quoted and expanded characters are replaced by mask characters."""

    @property
    def loose(self) -> bool:
        """Whether it may expand to an arbitrary option."""
        return self.expands or (
            self.globs and (self.text[:1] in ("", "-") or self.mask[:1] in ("*", "?", "[", "{"))
        )

    @property
    def splits(self) -> bool:
        """Whether it may expand to several words."""
        return _REPLACED in self.mask or any(char in self.mask for char in "*?[")

    @property
    def shape(self) -> str:
        """The text with `ANYTHING` in place of everything from the first expansion to the last."""
        found = list(_VARIES.finditer(self.mask))
        if not found:
            return self.text
        start, end = found[0].start(), found[-1].end()
        return self.text[:start] + ANYTHING + self.text[end:]


class Tally:
    """Counts of what was read of a command and of its nested commands."""

    words = 0
    steps = 0
    braced = 0
    """Characters that braces expanded to: a short word can expand to a very long text."""


class Here(NamedTuple):
    """A here-document whose body follows later."""

    end: str
    literal: bool
    tabs: bool


class Lexer(ABC):
    """Reads a text from left to right, word by word; calls `commands` for commands inside a word."""

    def __init__(self, text: str, depth: int, tally: Tally) -> None:
        if depth > MOST_DEPTH:
            raise Unclear
        self.text = text
        self.depth: int = depth
        self.at = 0
        self.tally = tally
        self.heres: list[Here] = []

    @abstractmethod
    def commands(self, closer: str) -> str:
        """Read commands up to and including the closer."""

    @abstractmethod
    def inside(self, text: str) -> None:
        """Read a separate text as commands."""

    # --- Words -----------------------------------------------------------------------------------

    def word(self) -> Word:
        """Read the word that begins here. Raises Unclear if there is none, or after too many words."""
        start = self.at
        self.tally.words += 1
        if self.tally.words > MOST_WORDS:
            raise Unclear
        text: list[str] = []
        mask: list[str] = []
        quoted = False
        clear = True
        while self.at < len(self.text):
            char = self.text[self.at]
            if plain := _PLAIN.match(self.text, self.at):
                text.append(plain[0])
                mask.append(plain[0])
                self.at = plain.end()
                continue
            if self.take("\\\n"):
                continue
            if char in "'\"\\" or self.text.startswith("$'", self.at):
                inside, hidden, simple = self._quoted()
                text.append(inside)
                mask.append(hidden)
                quoted, clear = True, clear and simple
            elif char in "$`" or (char in "<>" and self.text.startswith("(", self.at + 1)):
                inside, replaced = self.expansion()
                text.append(inside)
                mask.append((_REPLACED if replaced else _QUOTED) * len(inside))
            elif char in META:
                break
            else:
                # Unprintable characters may be blanks to a shell in another locale.
                if not char.isprintable():
                    raise Unclear
                text.append(char)
                mask.append(char)
                self.at += 1
        if not text and not quoted:
            raise Unclear
        self._check_lines(self.text[start : self.at])
        return _made("".join(text), "".join(mask), quoted=quoted, clear=clear)

    def _check_lines(self, word: str) -> None:
        """Raise Unclear for a word over several lines that shells may read differently."""
        if self.heres and "\n" in word:
            raise Unclear
        # The shell joins both sides of a continued line: `2\<newline>>` is one operator.
        if "\\\n" in word and self.text[self.at : self.at + 1] in _OPERATORS:
            raise Unclear

    def _quoted(self) -> tuple[str, str, bool]:
        """Read a quoted text: its content, its mask, and whether it is clear."""
        char = self.text[self.at]
        simple = True
        if char == '"':
            return *self._double(), True
        if char == "'":
            inside = self._single()
        elif char == "$":
            inside, simple = self._ansi()
        else:
            inside = self.text[self.at + 1 : self.at + 2]
            if not inside:
                raise Unclear
            self.at += 2
        return inside, _QUOTED * len(inside), simple

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unclear
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        return inside

    def _double(self) -> tuple[str, str]:
        self.at += 1
        inside: list[str] = []
        mask: list[str] = []
        while self.at < len(self.text):
            char, hidden = self.text[self.at], _QUOTED
            if char == '"':
                self.at += 1
                return "".join(inside), "".join(mask)
            if char == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                self.at += 2
                if escaped == "\n":
                    continue
                char = escaped if escaped and escaped in '$`"\\' else char + escaped
            elif char in "$`":
                char, replaced = self.expansion(in_quotes=True)
                # "$@" expands to several words even in quotes.
                hidden = _QUOTED if not replaced else _REPLACED if "@" in char else _HELD
            else:
                self.at += 1
            inside.append(char)
            mask.append(hidden * len(char))
        raise Unclear

    def _ansi(self) -> tuple[str, bool]:
        """Read `$'...'`: its value, and whether every shell finds its end in the same place."""
        end = self.at + 2
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise Unclear
        raw = self.text[self.at + 2 : end]
        self.at = end + 1
        # The shell ends the text at a NUL.
        return _ESCAPE.sub(_unescaped, raw).partition("\0")[0], "\\" not in raw

    def expansion(self, *, in_quotes: bool = False) -> tuple[str, bool]:
        """Read an expansion: its text, and False if it is a plain "$". Commands inside become parts."""
        start = self.at
        if self.text[start] == "`":
            self._backticks()
        elif self.text[start] in "<>" or (
            self.text.startswith("$(", start) and not self.text.startswith("$((", start)
        ):
            self.at += 2
            if self.heres or self.text.startswith("\\\n", self.at):
                raise Unclear
            self.commands(")")
            if self.heres:
                raise Unclear
        elif self.text.startswith(("${", "$((", "$["), start):
            simple = _PLAIN_BRACES.match(self.text, start) or _PLAIN_NUMBERS.match(self.text, start)
            if not simple:
                raise Unclear
            self.at = simple.end()
        elif variable := _VARIABLE.match(self.text, start):
            self.at = variable.end()
        elif self.text.startswith("$\\\n", start) or (self.text.startswith('$"', start) and not in_quotes):
            raise Unclear
        else:
            self.at += 1
            return "$", False
        return self.text[start : self.at], True

    def _backticks(self) -> None:
        end = self.text.find("`", self.at + 1)
        inside = self.text[self.at + 1 : end]
        if end < 0 or "\\" in inside:
            raise Unclear
        self.at = end + 1
        self.inside(inside)

    # --- Between words ---------------------------------------------------------------------------

    def blanks(self) -> None:
        """Skip blanks, continued lines and a comment."""
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                if self.heres:
                    raise Unclear
                self.at += 2
            elif char == "#" and (self.at == 0 or self.text[self.at - 1] in META):
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            else:
                return

    def skip_lines(self) -> None:
        self.blanks()
        while self.take("\n"):
            if self.heres:
                raise Unclear
            self.blanks()

    def take(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False


def _unescaped(found: re.Match[str]) -> str:
    for name, base in (("hex", 16), ("u", 16), ("U", 16), ("oct", 8)):
        if digits := found[name]:
            number = int(digits, base)
            return chr(number) if number < 0x110000 else ""
    return _ESCAPED.get(found["one"], found["one"])


def _made(text: str, mask: str, *, quoted: bool, clear: bool) -> Word:
    globs = mask.startswith("~") or any(char in mask for char in "*?[") or _has_choices(mask)
    return Word(text, quoted, _REPLACED in mask or _HELD in mask, globs, clear, mask)


def replaced(text: str) -> Word:
    """A placeholder for words that are known only when the command runs."""
    return _made(text, _REPLACED * len(text), quoted=False, clear=True)


def _has_choices(mask: str) -> bool:
    opened = mask.find("{")
    return opened >= 0 and ("," in mask[opened:] or ".." in mask[opened:])


def choices(word: Word) -> list[Word]:
    """The words that a word with braces expands to, such as `a{b,c}`; the word itself, unclear, if that is not simple."""
    if not _has_choices(word.mask):
        return [word]
    done: list[tuple[str, str]] = [("", "")]
    at = 0
    for group in _GROUP.finditer(word.mask):
        start, end = group.span()
        before = (word.text[at:start], word.mask[at:start])
        items = _items(word, start, end)
        if "{" in before[1] or "}" in before[1] or not items or len(done) * len(items) > MOST_CHOICES:
            return [word._replace(clear=False)]
        done = [(a + before[0] + b, m + before[1] + n) for a, m in done for b, n in items]
        at = end
    rest = (word.text[at:], word.mask[at:])
    if "{" in rest[1] or "}" in rest[1]:
        return [word._replace(clear=False)]
    made = [(text + rest[0], mask + rest[1]) for text, mask in done]
    # bash drops an empty result unless it was quoted; which results were quoted is not known here.
    clear = word.clear and not (word.quoted and any(not text for text, _ in made))
    return [_made(text, mask, quoted=word.quoted, clear=clear) for text, mask in made if text or not clear]


def _items(word: Word, start: int, end: int) -> list[tuple[str, str]]:
    """The items between two braces; without a comma, the text with its braces; for a sequence, an empty list."""
    inside = word.mask[start + 1 : end - 1]
    if "," not in inside:
        return [] if ".." in inside else [(word.text[start:end], word.mask[start:end])]
    items: list[tuple[str, str]] = []
    at = start + 1
    for piece in inside.split(","):
        items.append((word.text[at : at + len(piece)], piece))
        at += len(piece) + 1
    return items
