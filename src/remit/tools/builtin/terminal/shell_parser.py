"""Parse shell commands: which programs a command runs, with which words, and which files it opens.

The parser reports everything that it does not fully understand (arithmetic, arrays, `[[`, unusual quoting) as unclear, so
that a command never seems to do less than it does. `rule_subjects.py` interprets the parts.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from remit.tools.builtin.terminal.shell_words import (
    META,
    MOST_DEPTH,
    Here,
    Lexer,
    Tally,
    Unclear,
    Word,
    choices,
)

MOST_CHARS = 10_000
"""A longer command is not parsed: parsing blocks the event loop."""
MOST_STEPS = 1000
"""The most commands and operators that are parsed."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_OPERATOR = re.compile(r"&&|\|\||\|&|[;&|]")
_REDIRECTION = re.compile(r"&>>|&>|<<<|<<-|<<|<>|<&|>>|>\||>&|<|>")
_HARMLESS_TARGETS = frozenset({"/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr"})
_KEYWORDS = frozenset({"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!"})
_ENDINGS = (";;&", ";;", ";&")
_TIME_OPTIONS = re.compile(r"(?:-p(?=\s)[ \t]*)?(?:--(?=\s))?")
_ESAC = re.compile(r"esac(?=[\s;&|<>()]|$)")
_DESCRIPTOR = re.compile(r"(?:[0-9]+|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\})(?=[<>])")


class Part(NamedTuple):
    """One action of a command: running a program, opening a file, or something unclear."""

    words: tuple[Word, ...] = ()
    assignments: tuple[Word, ...] = ()
    target: Word | None = None
    """The file that a redirection opens."""
    sign: str = ">"
    """For a target: `>` if it is written, `<` if it is read."""
    inputs: tuple[Word, ...] = ()
    """The files that a program reads through redirections; each is also a separate part."""
    unclear: str = ""
    """The text of something unclear."""


class ParsedCommand(NamedTuple):
    parts: tuple[Part, ...]
    clear: bool
    """Whether the whole text was parsed; if not, `parts` holds the parts before the problem."""


def take_apart(command: str) -> ParsedCommand:
    """Parse a command into its parts, including nested ones. Never raises."""
    if len(command) > MOST_CHARS:
        return ParsedCommand((), clear=False)
    parser = _Parser(command)
    try:
        parser.run()
    except (Unclear, RecursionError):
        return ParsedCommand(tuple(parser.parts), clear=False)
    return ParsedCommand(tuple(parser.parts), clear=True)


class _Parser(Lexer):
    """Reads a text from left to right. It accepts invalid grammar too: bash would refuse to run it."""

    def __init__(self, text: str, within: _Parser | None = None) -> None:
        super().__init__(text, within.depth + 1 if within else 0, within.tally if within else Tally())
        self.parts: list[Part] = within.parts if within else []
        self.piped = False
        """Whether the last token was `|`: after it, `time` is an ordinary program."""

    # --- Commands --------------------------------------------------------------------------------

    def run(self) -> None:
        self.commands("")
        if self.heres:
            raise Unclear

    def inside(self, text: str) -> None:
        _Parser(text, self).run()

    def commands(self, closer: str) -> str:
        """Read commands up to and including the closer; within `case`, return what ended the branch."""
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise Unclear
        while True:
            self.blanks()
            if self.at >= len(self.text):
                if closer:
                    raise Unclear
                break
            if self.take(")"):
                if closer != ")":
                    raise Unclear
                break
            ending = next((e for e in _ENDINGS if self.text.startswith(e, self.at)), "")
            if ending:
                if closer != "esac":
                    raise Unclear
                self.at += len(ending)
                self.depth -= 1
                return ending
            if self._step(closer):
                break
        self.depth -= 1
        return closer

    def _step(self, closer: str) -> bool:
        """Read one command or operator; returns True for the `esac` that closes the current `case`."""
        self.tally.steps += 1
        if self.tally.steps > MOST_STEPS:
            raise Unclear
        if self.take("\n"):
            self._here_documents()
        elif self.text.startswith("&>", self.at):
            self._command()
        elif operator := _OPERATOR.match(self.text, self.at):
            self.at = operator.end()
            self.piped = operator[0] in ("|", "|&")
        elif self.text.startswith("((", self.at):
            raise Unclear
        elif self.take("("):
            self.piped = False
            if self.text.startswith("\\\n", self.at):
                raise Unclear
            self.commands(")")
        else:
            ended = self._command()
            self.piped = False
            return ended == "esac" and closer == "esac"
        return False

    def _command(self) -> str:
        """Read a simple command with its redirections, or the start of a compound command."""
        words: list[Word] = []
        assignments: list[Word] = []
        inputs: list[Word] = []
        # After a redirection or an assignment, a reserved word is an ordinary program name.
        first = True
        while True:
            self.blanks()
            if self.at >= len(self.text):
                break
            if self._redirection(inputs):
                first = False
                continue
            char = self.text[self.at]
            if char == "(":
                self._function(words, assignments)
                return ""
            # Redirections were read above, so `<` and `>` here start `<(...)`, which is a word.
            if char in META and char not in "<>":
                break
            word = self.word()
            if first and not word.quoted and not word.expands:
                keyword = self._keyword(word.text)
                if keyword is not None:
                    return keyword
            first = False
            if not words and _ASSIGNMENT.match(word.text):
                assignments.append(word)
            else:
                # Braces in the name of the program are not expanded, so the part stays unclear.
                words += self._choices(word) if words else [word]
        if words or assignments:
            self.parts.append(Part(tuple(words), tuple(assignments), inputs=tuple(inputs)))
        return ""

    def _choices(self, word: Word) -> list[Word]:
        made = choices(word)
        if len(made) > 1:
            self.tally.braced += sum(len(each.text) + 1 for each in made)
            if self.tally.braced > MOST_CHARS:
                raise Unclear
        return made

    def _keyword(self, text: str) -> str | None:
        """Read what a reserved word begins, and return the word; None for any other word."""
        if text in _KEYWORDS or text == "esac":
            return text
        if text == "time" and not self.piped:
            self.blanks()
            options = _TIME_OPTIONS.match(self.text, self.at)
            self.at = options.end() if options else self.at
            return text
        if text == "for":
            self._for()
            return text
        if text == "case":
            self._case()
            return text
        if text in ("function", "select", "coproc", "[["):
            raise Unclear
        return None

    def _for(self) -> None:
        self.blanks()
        name = self.word()
        if not _NAME.fullmatch(name.text) or name.quoted:
            raise Unclear
        self._set(name.text)
        self.skip_lines()
        if not self.text.startswith("in", self.at):
            return
        if self.word().text != "in":
            raise Unclear
        while True:
            self.blanks()
            if self.at >= len(self.text) or self.text[self.at] in ";\n":
                return
            self.word()

    def _set(self, name: str) -> None:
        """Record that the shell sets a variable, as `name=` would."""
        self.parts.append(Part(assignments=(Word(f"{name}="),), sign="for"))

    def _case(self) -> None:
        self.blanks()
        self.word()
        self.skip_lines()
        if self.word().text != "in":
            raise Unclear
        while True:
            self.skip_lines()
            if _ESAC.match(self.text, self.at):
                self.at += 4
                return
            self.take("(")
            self._patterns()
            if self.commands("esac") == "esac":
                return

    def _patterns(self) -> None:
        while True:
            self.blanks()
            self.word()
            self.blanks()
            if self.take(")"):
                return
            if not self.take("|"):
                raise Unclear

    def _function(self, words: list[Word], assignments: list[Word]) -> None:
        """Read `name()`. A function can redefine the name of a program, so the part is unclear."""
        if len(words) != 1 or assignments or words[0].quoted or words[0].expands:
            raise Unclear
        self.at += 1
        self.blanks()
        if not self.take(")"):
            raise Unclear
        self.parts.append(Part(unclear=f"{words[0].text}()"))

    # --- Redirections ----------------------------------------------------------------------------

    def _redirection(self, inputs: list[Word]) -> bool:
        descriptor = _DESCRIPTOR.match(self.text, self.at)
        sign = _REDIRECTION.match(self.text, descriptor.end() if descriptor else self.at)
        if not sign or (sign[0] in "<>" and self.text.startswith("(", sign.end())):
            return False
        if descriptor and descriptor["name"]:
            self._set(descriptor["name"])
        self.at = sign.end()
        self.blanks()
        if sign[0] in ("<<", "<<-"):
            self._here(tabs=sign[0] == "<<-")
            return True
        target = self.word()
        if sign[0] == "<<<" or target.text in _HARMLESS_TARGETS:
            return True
        if sign[0] in (">&", "<&") and re.fullmatch(r"[0-9]*-?", target.text):
            return True
        # A name such as /dev/tcp/host/port opens a connection in bash.
        if "<" in sign[0]:
            self.parts.append(Part(target=target, sign="<"))
            inputs.append(target)
        if ">" in sign[0]:
            self.parts.append(Part(target=target, sign=">"))
        return True

    def _here(self, *, tabs: bool) -> None:
        word = self.word()
        if word.expands or "\n" in word.text or not word.clear:
            raise Unclear
        self.heres.append(Here(word.text, word.quoted, tabs))

    def _here_documents(self) -> None:
        """Read the bodies of the here-documents that begin after this line."""
        for here in self.heres:
            lines: list[str] = []
            while True:
                if self.at >= len(self.text):
                    raise Unclear
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                if (line.lstrip("\t") if here.tabs else line) == here.end:
                    break
                lines.append(line)
            if not here.literal:
                self._body("\n".join(lines))
        self.heres.clear()

    def _body(self, text: str) -> None:
        """Read the expansions in a here-document. A backslash at the end of a line is unclear: it could hide the end mark."""
        if "\\\n" in text or text.endswith("\\"):
            raise Unclear
        inner = _Parser(text, self)
        while inner.at < len(text):
            char = text[inner.at]
            if char == "\\":
                inner.at += 2
            elif char in "$`":
                inner.expansion(in_quotes=True)
            else:
                inner.at += 1
