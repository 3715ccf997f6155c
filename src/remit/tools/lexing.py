"""Words of a shell command: quotes, expansions, blanks, comments. How words make up commands is in `shell.py`."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import NamedTuple

MOST_DEPTH = 40

META = frozenset(" \t\n;&|<>()")
_PLAIN_BRACES = re.compile(
    r"\$\{(?:#?[A-Za-z_0-9][A-Za-z0-9_]*|[@*#?$!-]"
    r"|[A-Za-z_0-9][A-Za-z0-9_]*(?::[-+?]|[-+?]|##?|%%?|//?|\^\^?|,,?)[^'\"\\`$(){}<>\n]*)\}"
)
_PLAIN_NUMBERS = re.compile(r"\$\(\([0-9+*/% \t-]*\)\)")
_VARIABLE = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!_-])")


class Unclear(Exception):
    """Raised where the text is not fully understood."""


class Word(NamedTuple):
    """One word: quotes removed, expansions as they are written."""

    text: str
    quoted: bool = False
    """Whether a part of it was quoted: then it is no keyword."""
    expands: bool = False
    """Whether something in it is replaced when it runs."""
    globs: bool = False
    """Whether it may stand for names of files or for several words."""
    clear: bool = True


class Here(NamedTuple):
    """A here-document whose body is still to come."""

    end: str
    literal: bool
    tabs: bool


class Lexer(ABC):
    """Reads one text from left to right, word by word; `commands` is asked where a word has some inside."""

    def __init__(self, text: str, depth: int) -> None:
        if depth > MOST_DEPTH:
            raise Unclear
        self.text = text
        self.depth: int = depth
        self.at = 0
        self.heres: list[Here] = []

    @abstractmethod
    def commands(self, closer: str) -> str:
        """Reads commands until the closer, which is taken."""

    @abstractmethod
    def inside(self, text: str) -> None:
        """Reads commands that are a text of their own."""

    # --- Words -----------------------------------------------------------------------------------

    def word(self) -> Word:
        """The word that begins here. Raises Unclear when there is none."""
        start = self.at
        text: list[str] = []
        quoted = expands = globs = False
        clear = True
        while self.at < len(self.text):
            char = self.text[self.at]
            if self.take("\\\n"):
                continue
            if char in "'\"\\" or self.text.startswith("$'", self.at):
                inside, replaced, simple = self._quoted()
                text.append(inside)
                quoted = True
                expands, clear = expands or replaced, clear and simple
            elif char in "$`" or (char in "<>" and self.text.startswith("(", self.at + 1)):
                inside, replaced = self.expansion()
                text.append(inside)
                expands = expands or replaced
            elif char in META:
                break
            else:
                # Blanks and controls that are none to us may be some to a shell in another language.
                if not char.isprintable():
                    raise Unclear
                globs = globs or char in "*?[{" or (char == "~" and not text)
                text.append(char)
                self.at += 1
        if (not text and not quoted) or (self.heres and "\n" in self.text[start : self.at]):
            raise Unclear
        return Word("".join(text), quoted, expands, globs, clear)

    def _quoted(self) -> tuple[str, bool, bool]:
        """What is in the quotes that begin here, whether something in it is replaced, and whether it is clear."""
        char = self.text[self.at]
        if char == "'":
            return self._single(), False, True
        if char == '"':
            return *self._double(), True
        if char == "$":
            inside, simple = self._ansi()
            return inside, False, simple
        escaped = self.text[self.at + 1 : self.at + 2]
        if not escaped:
            raise Unclear
        self.at += 2
        return escaped, False, True

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise Unclear
        inside = self.text[self.at + 1 : end]
        self.at = end + 1
        return inside

    def _double(self) -> tuple[str, bool]:
        self.at += 1
        inside: list[str] = []
        expands = False
        while self.at < len(self.text):
            char = self.text[self.at]
            if char == '"':
                self.at += 1
                return "".join(inside), expands
            if char == "\\":
                escaped = self.text[self.at + 1 : self.at + 2]
                if escaped and escaped in '$`"\\':
                    inside.append(escaped)
                elif escaped != "\n":
                    inside.append(char + escaped)
                self.at += 2
            elif char in "$`":
                text, replaced = self.expansion(in_quotes=True)
                inside.append(text)
                expands = expands or replaced
            else:
                inside.append(char)
                self.at += 1
        raise Unclear

    def _ansi(self) -> tuple[str, bool]:
        """`$'...'`: what it stands for, and whether every shell sees its end in the same place."""
        end = self.at + 2
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise Unclear
        raw = self.text[self.at + 2 : end]
        self.at = end + 1
        try:
            decoded = raw.encode("latin-1", "backslashreplace").decode("unicode_escape")
        except UnicodeDecodeError:
            decoded = raw
        return decoded, "\\" not in raw

    def expansion(self, *, in_quotes: bool = False) -> tuple[str, bool]:
        """What is replaced when it runs, as it is written; False when nothing is. Commands inside are parts."""
        start = self.at
        if self.text[start] == "`":
            self._backticks()
        elif self.text[start] in "<>" or (
            self.text.startswith("$(", start) and not self.text.startswith("$((", start)
        ):
            if self.heres:
                raise Unclear
            self.at += 2
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
        elif self.text.startswith('$"', start) and not in_quotes:
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
        """Skips blanks, continued lines and a comment."""
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
