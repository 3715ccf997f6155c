"""Patterns for paths: globs, and the rules of .gitignore.

Patterns come from models and from files of the workspace, and a match cannot be interrupted. So each component of a
path is matched by an expression that never goes far back, and the components by a loop that is at worst quadratic.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from remit.tools.words import Refused, show

MOST_CHARS = 1000
MOST_ALTERNATIVES = 100

_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s",
    "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9A-Fa-f", "blank": r" \t", "cntrl": r"\x00-\x1f\x7f",
    "graph": "!-~", "print": " -~", "word": r"\w",
}  # fmt: skip
_NAMED_CLASS = re.compile(r"\[:(\w+):\]")

Steps = tuple[re.Pattern[str] | None, ...]
"""A path pattern, component by component; None is any number of folders."""


class Glob(NamedTuple):
    """A glob, ready to be matched against paths relative to some folder."""

    alternatives: tuple[Steps, ...]

    @property
    def depth(self) -> int | None:
        """How many components a path has at most that matches; None for any number."""
        if any(None in steps for steps in self.alternatives):
            return None
        return max(map(len, self.alternatives))

    def matches(self, path: str) -> bool:
        parts = path.split("/")
        return any(_match(steps, parts) for steps in self.alternatives)


def compile_glob(pattern: str) -> Glob:
    """`*`, `?`, `[abc]` inside one component, `**` for any number of folders, `{a,b}` for either. Raises Refused."""
    if len(pattern) > MOST_CHARS:
        raise Refused(f"The glob is too long: {len(pattern):,} characters.")
    try:
        return Glob(tuple(_steps(text.removeprefix("./")) for text in _expand(pattern)))
    except (re.error, RecursionError):
        raise Refused(f"{show(pattern)} is not a glob that can be read.") from None


# --- .gitignore ----------------------------------------------------------------------------------


class Rule(NamedTuple):
    """One line of a .gitignore."""

    steps: Steps
    anywhere: bool
    """Whether it is about a name in any folder, and so has one step."""
    ignores: bool
    """False for a line with ! before it."""
    folders_only: bool

    def matches(self, name: str, parts: Sequence[str]) -> bool:
        if self.anywhere:
            step = self.steps[0]
            return step is None or step.fullmatch(name) is not None
        return _match(self.steps, parts)


class Ignore:
    """The rules of one .gitignore, for paths relative to its folder."""

    def __init__(self, rules: list[Rule]) -> None:
        self._rules = rules[::-1]
        self._anchored = [rule for rule in self._rules if not rule.anywhere]
        names = [step.pattern if step else ".*" for rule in rules if rule.anywhere for step in rule.steps]
        self._names = re.compile("|".join(f"(?:{name})" for name in names) or "(?!)", re.DOTALL)

    def judge(self, path: str, *, is_folder: bool) -> bool | None:
        """Whether the path is ignored; None when no rule is about it. The last rule that matches decides."""
        parts = path.split("/")
        # Most names match no rule, which one expression tells for all rules about names.
        rules = self._rules if self._names.fullmatch(parts[-1]) else self._anchored
        for rule in rules:
            if (is_folder or not rule.folders_only) and rule.matches(parts[-1], parts):
                return rule.ignores
        return None


def read_ignore(text: str) -> Ignore | None:
    """The rules of one .gitignore; None when it has none."""
    rules = [rule for line in text.split("\n") if (rule := _rule(line.removesuffix("\r"))) is not None]
    return Ignore(rules) if rules else None


def _rule(line: str) -> Rule | None:
    stripped = line.rstrip(" ")
    if stripped.endswith("\\") and len(stripped) < len(line):
        stripped += " "
    line = stripped
    if not line or line.startswith("#") or len(line) > MOST_CHARS:
        return None
    ignores = not line.startswith("!")
    if not ignores:
        line = line[1:]
    folders_only = line.endswith("/")
    line = line.removesuffix("/")
    anchored = "/" in line
    line = line.removeprefix("/")
    if not line or _ends_in_escape(line):
        return None
    try:
        return Rule(_steps(line), not anchored, ignores, folders_only)
    except re.error:
        return None


def _ends_in_escape(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


# --- Compiling and matching ----------------------------------------------------------------------


def _match(steps: Steps, parts: Sequence[str]) -> bool:
    """Whether the steps lead through all parts. Only the last `**` that was met is ever tried again."""
    step = part = 0
    back: tuple[int, int] | None = None
    while part < len(parts):
        here = steps[step] if step < len(steps) else None
        if step < len(steps) and here is None:
            if step == len(steps) - 1:
                return True
            back = (step, part)
            step += 1
        elif here is not None and here.fullmatch(parts[part]):
            step, part = step + 1, part + 1
        elif back is not None:
            step, part = back[0] + 1, back[1] + 1
            back = (back[0], back[1] + 1)
        else:
            return False
    return step == len(steps)


def _steps(pattern: str) -> Steps:
    parts = pattern.replace("\\/", "/").split("/")
    return tuple(None if part == "**" else re.compile(_component(part), re.DOTALL) for part in parts)


def _component(pattern: str) -> str:
    """One component as an expression in which every star but the last is settled for good where it first fits."""
    fixed, at = [""], 0
    while at < len(pattern):
        char = pattern[at]
        if char == "*":
            fixed.append("")
            at += 1
        elif char == "[":
            piece, at = _class(pattern, at)
            fixed[-1] += piece
        elif char == "\\" and at + 1 < len(pattern):
            fixed[-1] += re.escape(pattern[at + 1])
            at += 2
        else:
            fixed[-1] += "." if char == "?" else re.escape(char)
            at += 1
    if len(fixed) == 1:
        return fixed[0]
    first, *middle, last = fixed
    return f"{first}{''.join(f'(?>.*?{piece})' for piece in middle if piece)}.*{last}"


def _class(pattern: str, at: int) -> tuple[str, int]:
    end = at + 1
    negated = pattern[end : end + 1] in ("!", "^")
    end += negated
    body: list[str] = []
    first = True
    while end < len(pattern) and (first or pattern[end] != "]"):
        first = False
        named = _NAMED_CLASS.match(pattern, end)
        if named and named[1] in _CLASSES:
            body.append(_CLASSES[named[1]])
            end = named.end()
            continue
        if pattern[end] == "\\" and end + 1 < len(pattern):
            end += 1
            body.append(re.escape(pattern[end]))
        else:
            body.append(pattern[end] if pattern[end] == "-" else _escape_in_class(pattern[end]))
        end += 1
    if end >= len(pattern):
        return r"\[", at + 1
    return f"[{'^' if negated else ''}{''.join(body)}]", end + 1


def _escape_in_class(char: str) -> str:
    return char if char.isalnum() else f"\\{char}"


def _expand(pattern: str) -> list[str]:
    """Every pattern that braces stand for. Raises Refused for too many."""
    done: list[str] = []
    left = [pattern]
    while left:
        text = left.pop()
        span = _braces(text)
        if span is None:
            done.append(text)
        else:
            start, cuts, end = span
            pieces = [text[a + 1 : b] for a, b in zip([start, *cuts], [*cuts, end], strict=True)]
            left += [text[:start] + piece + text[end + 1 :] for piece in reversed(pieces)]
        if len(done) + len(left) > MOST_ALTERNATIVES:
            raise Refused(
                f"{show(pattern)} stands for more than {MOST_ALTERNATIVES} patterns. Use fewer braces."
            )
    return done


def _braces(text: str) -> tuple[int, list[int], int] | None:
    """The first pair of braces and the commas right inside it."""
    start = depth = 0
    cuts: list[int] = []
    at = 0
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif char == "{":
            if depth == 0:
                start, cuts = at, []
            depth += 1
        elif char == "," and depth == 1:
            cuts.append(at)
        elif char == "}" and depth:
            depth -= 1
            if depth == 0:
                return start, cuts, at
        at += 1
    return None
