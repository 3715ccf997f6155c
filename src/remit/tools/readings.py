"""What the parts of a shell command are to rules such as `allow terminal(git status*)` or `deny terminal(rm *)`.

A rule that allows sees one text for each part, and only where that text says all that the part does. Rules that ask
or deny also see other readings: without what stands before the command, and what it would have others run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from remit.messages import JsonObject
from remit.tool import Subject
from remit.tools.lexing import Word
from remit.tools.shell import MOST_CHARS, Part, take_apart

MOST_SUFFIXES = 40
"""Other readings of one part that begin at a later word."""
MOST_NESTED = 5
"""Commands in the arguments of commands in the arguments of commands."""


class _Runner(NamedTuple):
    """A program that runs the command in its own arguments, and which arguments come before that."""

    flags: str = ""
    values: str = ""
    """Options that take the next word, unless they have it already."""
    positions: int = 0
    assigns: bool = False
    """Whether assignments may stand before the command."""


_RUNNERS = {
    "sudo": _Runner("-n -E -H -k -P -b", "-u -g -p -C -D -R", assigns=True),
    "doas": _Runner("-n", "-u -C"),
    "env": _Runner("-i -0 - --ignore-environment", "-u -C --unset --chdir", assigns=True),
    "nohup": _Runner(),
    "setsid": _Runner("-c -f -w --fork --wait --ctty"),
    "nice": _Runner("", "-n --adjustment"),
    "ionice": _Runner("-t", "-c -n"),
    "timeout": _Runner("--foreground --preserve-status -v --verbose", "-k -s --kill-after --signal", 1),
    "stdbuf": _Runner("", "-i -o -e --input --output --error"),
    "command": _Runner("-p"),
    "builtin": _Runner(),
    "exec": _Runner("-c -l", "-a"),
    "time": _Runner("-p -v"),
    "busybox": _Runner(),
    "xargs": _Runner(
        "-0 -r -t -x --null --no-run-if-empty --verbose",
        "-n -P -L -s -d -E -a --max-args --max-procs --max-lines --delimiter --arg-file",
    ),
}
_RUNS_ANYTHING = frozenset(
    {
        "watch",
        "parallel",
        "script",
        "su",
        "runuser",
        "strace",
        "ltrace",
        "gdb",
        "unshare",
        "nsenter",
        "chroot",
        "proot",
    }
    | {
        "systemd-run",
        "firejail",
        "bwrap",
        "entr",
        "rlwrap",
        "setpriv",
        "flock",
        "at",
        "batch",
        "ssh-agent",
        "fakeroot",
    }
    | {"dbus-run-session", "xvfb-run", "unbuffer", "chronic", "taskset", "chrt", "numactl", "eval", "trap"}
)
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "busybox"})
_INTERPRETERS = re.compile(r"(python|perl|ruby|node|nodejs|php|lua|deno|bun|tclsh|Rscript|pypy)[0-9.]*")
_EVALUATING = frozenset(
    {
        "eval",
        "source",
        ".",
        "alias",
        "unalias",
        "let",
        "trap",
        "enable",
        "bind",
        "complete",
        "compgen",
        "compopt",
        "fc",
    }
    | {
        "hash",
        "mapfile",
        "readarray",
        "read",
        "getopts",
        "export",
        "declare",
        "typeset",
        "local",
        "readonly",
        "unset",
    }
)
"""Builtins that run their arguments, or change what later words mean."""
_TESTING = {"test": ("-v", "-R"), "[": ("-v", "-R"), "printf": ("-",), "wait": ("-p",)}
"""Builtins that run what is in a subscript, with these options."""
_SUBSTITUTED = re.compile(r"\{\}|\{[0-9a-z]*\}")
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_WRITES = frozenset({"-delete", "-fprint", "-fprint0", "-fprintf", "-fls"})
_ORDINARY_VARIABLE = re.compile(r"[a-z][a-z0-9_]{0,30}=")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=")
_SEPARATORS = re.compile(r"[;&|\n(){}`]+|\$\(|[<>]\(?")
_QUOTES = str.maketrans("", "", "'\"\\")
_LEADING = frozenset({"if", "then", "elif", "else", "while", "until", "do", "!", "time", "case", "for", "in"})


def subjects(args: JsonObject) -> list[Subject]:
    """What a call of `terminal` is about."""
    command = args.get("command")
    return read_command(command) if isinstance(command, str) else [Subject("", clear=False)]


def read_command(command: str, nested: int = 0) -> list[Subject]:
    """Every part of a command. There is always one, and one that is not clear where not everything is understood."""
    if len(command) > MOST_CHARS:
        return [Subject(command[:1000], clear=False)]
    found = take_apart(command)
    result: list[Subject] = []
    for part in found.parts:
        result += _read_part(part, nested)
    if not found.clear:
        result.append(Subject(" ".join(command.split()), tuple(_rough(command)), clear=False))
    return list(dict.fromkeys(result)) or [Subject("")]


def _read_part(part: Part, nested: int) -> Iterator[Subject]:
    if part.unclear:
        yield Subject(part.unclear, clear=False)
    elif part.target is not None:
        target = part.target
        clear = target.clear and not target.expands and not target.globs
        yield Subject(f"{part.sign} {_show(target)}", clear=clear)
    elif part.sign == "for":
        name = part.assignments[0].text
        if not _ORDINARY_VARIABLE.fullmatch(name) or name[:-1] in os.environ or "proxy" in name:
            yield Subject(f"for {name[:-1]}", clear=False)
    else:
        yield from _read_simple(part.words, part.assignments, nested)


def _read_simple(words: Sequence[Word], assignments: Sequence[Word], nested: int) -> Iterator[Subject]:
    """A command with its words, and the commands that it would run."""
    text = _join([*assignments, *words])
    if not words:
        yield Subject(text, clear=all(word.clear for word in assignments))
        return
    inner = _Inner(words, nested)
    clear = all(word.clear for word in (*assignments, *words)) and _is_plain(words[0]) and inner.clear
    texts = [word.text for word in words]
    also = dict.fromkeys([_join(words), *_readings(texts), *inner.readings])
    also.pop(text, None)
    yield Subject(text, tuple(also), clear=clear and not _evaluates(words))
    yield from inner.subjects


def _is_plain(first: Word) -> bool:
    """Whether it can be told which program it is."""
    if first.text == "[":
        return True
    return bool(first.text) and not first.expands and not first.globs and not re.search(r"\s", first.text)


def _evaluates(words: Sequence[Word]) -> bool:
    """Whether the shell itself would run, or set, something that the arguments name."""
    name = words[0].text
    if name in _EVALUATING:
        return True
    if name not in _TESTING:
        return False
    if name == "printf" and len(words) > 1 and not words[1].expands and not words[1].text.startswith("-"):
        return False
    return any(word.expands or word.text.startswith(_TESTING[name]) for word in words[1:])


# --- Commands that run commands ------------------------------------------------------------------


class _Inner:
    """What a command would run besides itself, as far as its words tell."""

    def __init__(self, words: Sequence[Word], nested: int) -> None:
        self.words = words
        self.nested = nested + 1
        self.clear = True
        self.subjects: list[Subject] = []
        self.readings: list[str] = []
        name = words[0].text.rpartition("/")[2]
        if nested >= MOST_NESTED:
            self.clear = False
        elif name in _SHELLS and not (name == "busybox" and len(words) > 1):
            self._shell()
        elif name in _RUNNERS:
            self._runner(name, _RUNNERS[name])
        elif name == "find":
            self._find()
        elif name in _RUNS_ANYTHING:
            self._anything()
        elif _INTERPRETERS.fullmatch(name) and self._reads_program():
            self.clear = False

    def _shell(self) -> None:
        """`bash -c CODE` runs the code, `bash FILE` the file, and `bash` whatever it is fed."""
        rest = self.words[1:]
        code = next((i for i, word in enumerate(rest) if re.fullmatch(r"-[a-z]*c[a-z]*", word.text)), -1)
        if code >= 0 and code + 1 < len(rest):
            program = rest[code + 1]
            inner = read_command(program.text, self.nested)
            # An expansion is replaced before that shell reads it, and what comes of it is code then.
            plain = not program.expands and not program.globs and not _SUBSTITUTED.search(program.text)
            self.clear = code == 0 and rest[0].text == "-c" and plain
            self.subjects += inner
        elif not rest or rest[0].text.startswith(("-", "+")) or rest[0].expands:
            self.clear = rest != () and [word.text for word in rest] == ["--version"]

    def _anything(self) -> None:
        self.clear = False
        for word in self.words[1:]:
            if " " in word.text:
                self.readings += _rough(word.text)

    def _reads_program(self) -> bool:
        rest = [word.text for word in self.words[1:]]
        return not rest or rest[0] == "-"

    def _runner(self, name: str, runner: _Runner) -> None:
        start = _skip(self.words, runner)
        if name == "command" and len(self.words) > 1 and self.words[1].text in ("-v", "-V"):
            return
        if start is None:
            self.clear = False
            return
        inner = list(self.words[start:])
        if not inner:
            # Alone, these say how things are, or only redirect.
            self.clear = name in ("env", "exec", "command", "nice", "sudo", "doas", "busybox")
            return
        if name == "xargs":
            inner.append(Word("...", expands=True))
        self.subjects += _read_simple(inner, (), self.nested)

    def _find(self) -> None:
        texts = [word.text for word in self.words]
        if _FIND_WRITES.intersection(texts) or any(word.expands for word in self.words):
            self.clear = False
        start = 0
        for at, text in enumerate(texts):
            if text in _FIND_RUNS:
                start = at + 1
            elif start and text in (";", "+"):
                if at > start:
                    self.subjects += _read_simple(self.words[start:at], (), self.nested)
                start = 0
        if start:
            self.clear = False


def _skip(words: Sequence[Word], runner: _Runner) -> int | None:
    """Where the inner command begins; None where that is not certain."""
    flags, values = runner.flags.split(), runner.values.split()
    at, positions = 1, runner.positions
    while at < len(words):
        word = words[at]
        text = word.text
        if word.expands or word.globs:
            return None
        if text == "--":
            at += 1
            break
        if text in flags or text.partition("=")[0] in values or (runner.assigns and _ASSIGNED.match(text)):
            at += 2 if text in values else 1
        elif text.startswith("-") and text[:2] in values and not text.startswith("--"):
            at += 1
        elif text.startswith("-"):
            return None
        else:
            break
    while positions and at < len(words):
        if words[at].expands:
            return None
        at, positions = at + 1, positions - 1
    return at


# --- Texts ---------------------------------------------------------------------------------------


def _show(word: Word) -> str:
    """A word in a text: one that is empty or has blanks is quoted, so that it is not taken for none or for two."""
    text = word.text
    return f"'{text}'" if not text or (re.search(r"\s", text) and not word.expands) else text


def _join(words: Sequence[Word]) -> str:
    return " ".join(map(_show, words))


def _readings(words: Sequence[str]) -> Iterator[str]:
    """Other texts of the same command: as it is without assignments, by its bare name, without what runs it."""
    yield " ".join(words)
    name = words[0].rpartition("/")[2]
    if name != words[0]:
        yield " ".join([name, *words[1:]])
    if any(not word or " " in word for word in words):
        yield " ".join(" ".join(words).split())
    if name not in _RUNNERS and name not in _RUNS_ANYTHING and name != "find":
        return
    for at in range(1, min(len(words), MOST_SUFFIXES)):
        if words[at] and words[at][0] not in "-+":
            yield " ".join(words[at:])
            if "/" in words[at]:
                yield " ".join([words[at].rpartition("/")[2], *words[at + 1 :]])


def _rough(command: str) -> Iterator[str]:
    """What a command that is not understood may run: cut at everything that could be an operator."""
    for piece in _SEPARATORS.split(command):
        words = piece.translate(_QUOTES).split()
        start = next((i for i, w in enumerate(words) if w not in _LEADING and not _ASSIGNED.match(w)), None)
        if start is not None:
            yield from dict.fromkeys(_readings(words[start:]))
