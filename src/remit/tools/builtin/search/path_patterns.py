"""Patterns for paths: globs, and the rules of .gitignore.

wcmatch reads the pattern of one name, bracex the braces. Our own loop matches folders, because wcmatch backtracks on every
`**`: `**/a/**/a/**/a/**/a/**/a/**/a/b` takes it more than 10 s, and a match cannot be interrupted.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

from remit.tools.words import Refused, show

MOST_CHARS = 1000
MOST_ALTERNATIVES = 100

# Braces around a single pattern: models write *.{py} and mean *.py, but Bash reads them literally. Two dots are a range.
_LONE_BRACES = re.compile(r"(?<!\\)\{([^{},\\.]*+(?:\.(?!\.)[^{},\\.]*+)*+)\}")

Steps = tuple[re.Pattern[str] | None, ...]
"""A path pattern by component; None means any number of folders."""


class Glob(NamedTuple):
    """A compiled glob, matched against paths relative to a folder."""

    alternatives: tuple[Steps, ...]

    @property
    def depth(self) -> int | None:
        """The most components of a matching path; None for any number."""
        if any(None in steps for steps in self.alternatives):
            return None
        return max(map(len, self.alternatives))

    def matches(self, path: str) -> bool:
        parts = path.split("/")
        return any(_match(steps, parts) for steps in self.alternatives)


def compile_glob(pattern: str) -> Glob:
    """`*`, `?`, `[abc]` inside one component, `**` for any number of folders, `{a,b}` for either, `{1..3}`. Raises Refused."""
    if len(pattern) > MOST_CHARS:
        raise Refused(f"The glob is too long: {len(pattern):,} characters.")
    try:
        return Glob(tuple(_steps(text.removeprefix("./")) for text in _expand(pattern)))
    except (re.error, RecursionError):
        raise Refused(f"{show(pattern)} is not a valid glob.") from None


# --- .gitignore ----------------------------------------------------------------------------------


class Rule(NamedTuple):
    """One line of a .gitignore."""

    steps: Steps
    anywhere: bool
    """Whether it matches a name in any folder; it then has one step."""
    ignores: bool
    """False for a line that starts with !."""
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
        """Whether the path is ignored; None if no rule matches. The last matching rule decides."""
        parts = path.split("/")
        # Most names match no rule, and one regex checks all rules about names.
        rules = self._rules if self._names.fullmatch(parts[-1]) else self._anchored
        for rule in rules:
            if (is_folder or not rule.folders_only) and rule.matches(parts[-1], parts):
                return rule.ignores
        return None


def read_ignore(text: str) -> Ignore | None:
    """The rules of one .gitignore; None if it has none."""
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
    """Whether the steps match all parts. Only the most recent `**` is tried again, so matching stays fast."""
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
    return tuple(None if part == "**" else _name(part) for part in parts)


@functools.lru_cache(maxsize=512)
def _name(pattern: str) -> re.Pattern[str]:
    """The regex of one component. In wcmatch's regex, every star except the last keeps its first match: no backtracking."""
    import wcmatch.fnmatch as fnmatch  # noqa: PLC0415 - importing it takes 13 ms

    # The same on every system: case matters, and only the slash separates folders.
    flags = fnmatch.CASE | fnmatch.DOTMATCH | fnmatch.FORCEUNIX
    return re.compile(fnmatch.translate(pattern, flags=flags)[0][0], re.DOTALL)


def _expand(pattern: str) -> list[str]:
    """Expand the braces of a pattern. Raises Refused for too many alternatives."""
    if "{" not in pattern:
        return [pattern]
    import bracex  # noqa: PLC0415 - comes with wcmatch

    text = _LONE_BRACES.sub(r"\1", pattern)
    try:
        return bracex.expand(text, keep_escapes=True, limit=MOST_ALTERNATIVES) or [text]
    except bracex.ExpansionLimitException:
        raise Refused(
            f"{show(pattern)} expands to more than {MOST_ALTERNATIVES} patterns. Use fewer braces."
        ) from None
