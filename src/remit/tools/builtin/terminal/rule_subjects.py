"""The parts of a shell command as subjects of rules such as `allow terminal(git status*)` or `deny terminal(rm *)`.

A rule that allows sees one text per part, and only if that text covers everything the part does. Rules that ask or deny
also see other readings: without prefixes such as assignments, and the commands that the part would make others run.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
from collections.abc import Iterable, Iterator, Sequence

import remit.tools.builtin.terminal.git_commands as git_commands
from remit.tools.builtin.terminal.shell_parser import MOST_CHARS, Part, take_apart
from remit.tools.builtin.terminal.shell_words import Word, replaced
from remit.tools.builtin.terminal.wrapper_programs import (
    CHANGES_PROGRAMS,
    EVALUATING,
    INTERPRETERS,
    LOADER,
    READ_ALIKE,
    RUN_AFTER,
    RUN_LATER,
    RUNNERS,
    RUNS_ANYTHING,
    SHELLS,
    TESTING,
    Runner,
)
from remit.tools.policy_rules import ANYTHING, Subject
from remit.types.messages import JsonObject

MOST_READ = 50_000
"""The most characters of all readings of one command: rules are matched against each of them."""
UNREAD_CHARS = 2000
"""Characters of a command too long to parse that ask and deny rules still see, roughly split."""
MOST_FOLDER = 4096
PER_SUBJECT = 250
"""Characters that a part counts for in addition to its own."""
PER_READING = 50
MOST_SUFFIXES = 40
"""The most readings of one part that begin at a later word."""
MOST_NESTED = 5
"""The deepest nesting of commands in the arguments of commands."""


_FED = re.compile(r"-|/dev/(stdin|fd/.*)|/proc/.*/fd/.*")
"""File arguments that mean stdin or another descriptor."""
_TELLS = re.compile(r"--?(version|help)|-[vVh]|-[cemrp].+")
_HARMLESS_SET = re.compile(r"[-+][euxv]*o?|pipefail|errexit|nounset|xtrace")
_SUBSTITUTED = re.compile(r"\{\}|\{[0-9a-z]*\}")
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_FIND_WRITES = frozenset({"-delete", "-fprint", "-fprint0", "-fprintf", "-fls"})
_ORDINARY_VARIABLE = re.compile(r"[a-z][a-z0-9_]{0,30}=")
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=")
_SEPARATORS = re.compile(r"[;&|\n(){}`]+|\$\(|[<>]\(?")
_QUOTES = str.maketrans("", "", "'\"\\")
_LEADING = frozenset(
    {"if", "then", "elif", "else", "while", "until", "do", "!", "time", "case", "for", "in", "coproc"}
)


def subjects(args: JsonObject) -> list[Subject]:
    """The subjects of a call of `terminal`."""
    command, cwd = args.get("command"), args.get("cwd")
    found = read_command(command) if isinstance(command, str) else [Subject("", clear=False)]
    return found if cwd is None else [*read_folder(cwd), *found]


def read_folder(cwd: object) -> list[Subject]:
    """The folder of a call as a `cd` command: the effect of a program depends on where it runs."""
    if not isinstance(cwd, str) or len(cwd) > MOST_FOLDER:
        return [Subject("cd", clear=False)]
    if all(name in ("", ".") for name in cwd.split("/")) and not cwd.startswith("/"):
        return []
    return [Subject(_join((Word("cd"), Word(cwd))), clear=not git_commands.names_git_folder(cwd))]


def read_command(command: str) -> list[Subject]:
    """Every part of a command: at least one, and an unclear one if not everything could be parsed.

    Fast for a command of any length, since rules are checked on the event loop.
    """
    return list(_read_whole(command))


def runs_git(subject: Subject) -> bool:
    """Whether a part of a command is a git command."""
    return any(_is_git(text) for text in (subject.text, *subject.also))


class _Room:
    """The number of characters that may still be read of a command."""

    def __init__(self) -> None:
        self.left = MOST_READ

    @property
    def full(self) -> bool:
        return self.left < 0

    def keep(self, texts: Iterable[str]) -> tuple[str, ...]:
        """The texts, as many as fit."""
        kept: dict[str, None] = {}
        for text in texts:
            if text in kept:
                continue
            self.left -= len(text) + PER_READING
            if self.full:
                break
            kept[text] = None
        return tuple(kept)


# Cached: every policy of a run and the tool itself ask for the same command.
@functools.lru_cache(maxsize=8)
def _read_whole(command: str) -> tuple[Subject, ...]:
    room = _Room()
    # A shell command cannot contain NUL, and in a reading NUL means `ANYTHING`.
    if len(command) > MOST_CHARS or "\0" in command:
        beginning = command[:UNREAD_CHARS].replace("\0", " ")
        return (Subject(" ".join(beginning.split()), room.keep(_rough(beginning)), clear=False),)
    found = _read(command, 0, room)
    if room.full:
        found.append(Subject(" ".join(command.split()), clear=False))
    return tuple(dict.fromkeys(found)) or (Subject(""),)


def _read(command: str, nested: int, room: _Room) -> list[Subject]:
    found = take_apart(command)
    result: list[Subject] = []
    for part in found.parts:
        room.left -= PER_SUBJECT
        if room.full:
            break
        result += _read_part(part, nested, room)
    if not found.clear:
        result.append(Subject(" ".join(command.split()), room.keep(_rough(command)), clear=False))
    return result


def _read_part(part: Part, nested: int, room: _Room) -> Iterator[Subject]:
    if part.unclear:
        yield Subject(part.unclear, clear=False)
    elif part.target is not None:
        target = part.target
        clear = target.clear and not target.expands and not target.globs
        # The next git command would follow settings written there.
        if part.sign == ">" and git_commands.names_git_folder(target.text):
            clear = False
        yield Subject(f"{part.sign} {_show(target)}", clear=clear)
    elif part.sign == "for":
        name = part.assignments[0].text
        if not _ORDINARY_VARIABLE.fullmatch(name) or name[:-1] in os.environ or "proxy" in name:
            yield Subject(f"for {name[:-1]}", clear=False)
    else:
        yield from _read_simple(part, nested, room)


def _read_simple(part: Part, nested: int, room: _Room) -> Iterator[Subject]:
    """The subjects of a simple command, and of the commands that it would run."""
    words, assignments = part.words, part.assignments
    text = _join([*assignments, *words])
    room.left -= len(text) + PER_SUBJECT
    inner = _Inner(words, nested, room)
    assigned = tuple(dict.fromkeys((*map(_assigned_name, assignments), *inner.assigned)))
    also = room.keep(itertools.chain(_all_readings(part), inner.readings, _changes_programs(assigned)))
    clear = all(word.clear for word in (*assignments, *words)) and inner.clear
    if words and (not _is_plain(words[0]) or _evaluates(words)):
        clear = False
    yield Subject(text, tuple(each for each in also if each != text), clear, assigned=assigned)
    yield from inner.subjects


def _assigned_name(assignment: Word) -> str:
    return assignment.text.partition("=")[0].removesuffix("+")


def _changes_programs(assigned: Sequence[str]) -> Iterator[str]:
    """Yield `ANYTHING` if a variable such as PATH or LD_PRELOAD is set: the program may then do anything."""
    if any(CHANGES_PROGRAMS.fullmatch(name) for name in assigned):
        yield ANYTHING


def _all_readings(part: Part) -> Iterator[str]:
    if not part.words:
        return
    words = part.words
    yield _join(words)
    yield from _readings([word.text for word in words])
    if part.inputs:
        # Reading a file through a redirection has the same effect as passing the file as an argument.
        yield from _readings([word.text for word in (*words, *part.inputs)])
        yield " ".join([_join(words), *(f"< {_show(word)}" for word in part.inputs)])
    shapes = [word.shape for word in words]
    if any(ANYTHING in shape for shape in shapes):
        yield from _readings(shapes)


def _is_plain(first: Word) -> bool:
    """Whether the program's name is known before the command runs."""
    if first.text == "[":
        return True
    return bool(first.text) and not first.expands and not first.globs and not re.search(r"\s", first.text)


def _evaluates(words: Sequence[Word]) -> bool:
    """Whether the shell itself would run or set something named in the arguments."""
    name = words[0].text
    if name in EVALUATING:
        return True
    # git would follow settings that later commands write there.
    if name in ("cd", "pushd"):
        return any(git_commands.names_git_folder(word.text) for word in words)
    if name == "set":
        return not all(_HARMLESS_SET.fullmatch(word.text) and not word.expands for word in words[1:])
    if name not in TESTING:
        return False
    if name == "printf" and len(words) > 1 and not words[1].loose and not words[1].text.startswith("-"):
        return False
    return any(word.loose or word.text.startswith(TESTING[name]) for word in words[1:])


# --- Commands that run commands ------------------------------------------------------------------


class _Inner:
    """The commands that a command would run, as far as its words show."""

    def __init__(self, words: Sequence[Word], nested: int, room: _Room) -> None:
        self.words = words
        self.room = room
        self.nested = nested + 1
        self.clear = True
        self.subjects: list[Subject] = []
        self.readings: list[str] = []
        self.assigned: list[str] = []
        if not words:
            return
        name = words[0].text.rpartition("/")[2]
        if nested >= MOST_NESTED or room.full:
            self.clear = False
        elif name in SHELLS and not (name == "busybox" and len(words) > 1):
            self._shell()
            # Other shells read the same text differently.
            self.clear = self.clear and name in READ_ALIKE
        elif name in RUNNERS:
            self._runner(name, RUNNERS[name])
        elif name == "find":
            self._find()
        elif name in RUNS_ANYTHING or LOADER.fullmatch(name):
            self._anything()
        elif name == "git" or name.startswith("git-"):
            if not git_commands.is_clear(words):
                self._anything()
        elif INTERPRETERS.fullmatch(name):
            self._interpreter()

    def _shell(self) -> None:
        """`bash -c CODE` runs the code, `bash FILE` the file, and `bash` runs its stdin."""
        rest = self.words[1:]
        texts = [word.text for word in rest]
        at = next((at for at, text in enumerate(texts) if _gives_code(text)), None)
        if at is not None:
            # Other options may come between `-c` and the code: then each word may be the code.
            simple = at == 0 and texts[0] == "-c" and len(rest) > 1 and texts[1][:1] not in ("-", "+")
            for program in rest[1:2] if simple else rest[at + 1 :]:
                self.subjects += _read(program.text, self.nested, self.room)
                # The outer shell replaces an expansion first, and the inner shell runs the result as code.
                if program.expands or program.globs or _SUBSTITUTED.search(program.text):
                    simple = False
            self.clear = simple
        elif not rest or texts[0][:1] in ("-", "+") or rest[0].loose or _FED.fullmatch(texts[0]):
            self.clear = texts == ["--version"]

    def _anything(self) -> None:
        self.clear = False
        self._look_inside()

    def _look_inside(self) -> None:
        """Words may contain commands, also after an `=`, as in git's `alias.x=!rm y`."""
        for word in self.words[1:]:
            if " " in word.text:
                self.readings += _rough(word.text)
                self.readings += _rough(word.text.partition("=")[2].lstrip("!"))

    def _interpreter(self) -> None:
        """Without a file or code among its arguments, an interpreter runs its stdin."""
        rest = [word.text for word in self.words[1:]]
        fed = all(text.startswith("-") and not _TELLS.match(text) for text in rest)
        self.clear = not fed and not any(_FED.fullmatch(text) for text in rest)
        self._look_inside()

    def _runner(self, name: str, runner: Runner) -> None:
        start = _skip(self.words, runner)
        if name == "command" and len(self.words) > 1 and self.words[1].text in ("-v", "-V"):
            return
        if start is None:
            self._anything()
            return
        inner = list(self.words[start:])
        if not inner:
            # Without a command, these only print information or redirect.
            self.clear = name in ("env", "exec", "command", "nice", "sudo", "doas", "busybox")
            return
        if name == "xargs":
            inner.append(replaced("..."))
        before = self.words[1:start]
        self.assigned += [_assigned_name(word) for word in before if _ASSIGNED.match(word.text)]
        self.subjects += _read_simple(Part(tuple(inner)), self.nested, self.room)
        # `git_without_hooks.py` is first on the PATH; these programs may find git elsewhere.
        elsewhere = name in ("sudo", "doas", "env", "busybox") or (name in ("command", "exec") and before)
        if elsewhere and any(_is_git(subject.text) for subject in self.subjects):
            self.clear = False

    def _find(self) -> None:
        texts = [word.text for word in self.words]
        if _FIND_WRITES.intersection(texts) or any(word.loose for word in self.words):
            self.clear = False
        start = 0
        for at, text in enumerate(texts):
            if text in _FIND_RUNS:
                start = at + 1
            elif start and text in (";", "+"):
                if at > start and not self.room.full:
                    inner = (
                        replaced(word.text) if "{}" in word.text else word for word in self.words[start:at]
                    )
                    self.subjects += _read_simple(Part(tuple(inner)), self.nested, self.room)
                start = 0
        if start:
            self.clear = False


def _gives_code(option: str) -> bool:
    """Whether an option is `-c`, or combined options that include it."""
    return option.startswith("-") and not option.startswith("--") and "c" in option


def _is_git(text: str) -> bool:
    return text == "git" or text.startswith("git ")


def _skip(words: Sequence[Word], runner: Runner) -> int | None:
    """The index where the inner command begins; None if that is uncertain."""
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
        if words[at].expands or words[at].globs:
            return None
        at, positions = at + 1, positions - 1
    return at


# --- Texts ---------------------------------------------------------------------------------------


def _show(word: Word) -> str:
    """A word as text. An empty word, or one with blanks, is quoted, so that it still reads as one word."""
    text = word.text
    return f"'{text}'" if not text or (re.search(r"\s", text) and not word.expands) else text


def _join(words: Sequence[Word]) -> str:
    return " ".join(map(_show, words))


def _readings(words: Sequence[str]) -> Iterator[str]:
    """Other readings of a command: without assignments, by the program's bare name, without wrapper programs."""
    yield _one_text(words)
    name = words[0].rpartition("/")[2]
    if name != words[0]:
        yield _one_text([name, *words[1:]])
    if any(not word or " " in word for word in words):
        yield " ".join(" ".join(words).split())
    if any("/" in word for word in words[1:]):
        yield _one_text([words[0], *map(_short, words[1:])])
    if bare := git_commands.bare_words(words):
        yield _one_text(bare)
    start = _run_from(name, words)
    if not start:
        return
    for at in range(start, min(len(words), start + MOST_SUFFIXES)):
        if words[at] and words[at][0] not in "-+":
            yield _one_text(words[at:])
            if "/" in words[at]:
                yield _one_text([words[at].rpartition("/")[2], *words[at + 1 :]])
            if bare := git_commands.bare_words(words[at:]):
                yield _one_text(bare)


def _short(word: str) -> str:
    """A path without `./` and `x/../`; options and URLs unchanged."""
    return os.path.normpath(word) if "/" in word and word[0] != "-" and "://" not in word else word


def _one_text(words: Sequence[str]) -> str:
    """The words as one text. The blank before `ANYTHING` is dropped, since it may expand to no word at all."""
    text = " ".join(words)
    return re.sub(rf" {ANYTHING}(?= |$)", ANYTHING, text) if ANYTHING in text else text


def _run_from(name: str, words: Sequence[str]) -> int:
    """The index of the first word that may name another program to run; 0 if there is none."""
    if (
        name in RUNNERS
        or name in RUNS_ANYTHING
        or name in RUN_LATER
        or name == "find"
        or LOADER.fullmatch(name)
    ):
        return 1
    after = RUN_AFTER.get(name, ())
    return next((at + 1 for at, word in enumerate(words) if at and word in after), 0)


def _rough(command: str) -> Iterator[str]:
    """What a command that cannot be parsed may run: split at everything that could be an operator."""
    for piece in dict.fromkeys(_SEPARATORS.split(command)):
        words = piece.translate(_QUOTES).split()
        start = next((i for i, w in enumerate(words) if w not in _LEADING and not _ASSIGNED.match(w)), None)
        if start is not None:
            yield from dict.fromkeys(_readings(words[start:]))
