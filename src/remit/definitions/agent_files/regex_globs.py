r"""Simple regular expressions as rule patterns: `\.(md|txt)$` becomes `*.md` and `*.txt`."""

from __future__ import annotations

import re

MOST_GLOBS = 50

_PART = re.compile(r"\\([.\-/_ ])|(\.\*)|\((?:\?:)?([^()]*)\)|([\w/ @:&=%~#-])(\?)?|(\.)")


def as_globs(regex: str) -> list[str] | None:
    """Patterns that match the same texts; None if a part of the expression has no equivalent pattern.

    Without ^ the match may begin anywhere, without $ it may end anywhere.
    """
    if not regex or len(regex) > 1_000:
        return None
    if _is_wrapped(regex):
        return as_globs(regex[1:-1].removeprefix("?:"))
    found = list[str]()
    for branch in _branches(regex):
        globs = _of_branch(branch)
        if globs is None or len(found) + len(globs) > MOST_GLOBS:
            return None
        found += globs
    return found


def _is_wrapped(regex: str) -> bool:
    """Whether one pair of brackets encloses the whole expression."""
    depth = 0
    for at, char in enumerate(regex):
        depth += (char == "(") - (char == ")")
        if not depth:
            return at == len(regex) - 1 and at > 0
    return False


def _branches(regex: str) -> list[str]:
    """Split at every | outside brackets."""
    parts, depth, start = list[str](), 0, 0
    for at, char in enumerate(regex):
        depth += (char == "(") - (char == ")")
        if char == "|" and not depth:
            parts.append(regex[start:at])
            start = at + 1
    return [*parts, regex[start:]]


def _of_branch(branch: str) -> list[str] | None:
    begins, ends = branch.startswith("^"), branch.endswith("$") and not branch.endswith("\\$")
    body = branch[begins : len(branch) - ends]
    globs = ["" if begins else "*"]
    at = 0
    while at < len(body):
        part = _PART.match(body, at)
        if part is None:
            return None
        options = _options(part)
        if options is None or len(globs) * len(options) > MOST_GLOBS:
            return None
        globs = [glob + option for glob in globs for option in options]
        at = part.end()
    return [re.sub(r"\*+", "*", glob + ("" if ends else "*")) for glob in globs]


def _options(part: re.Match[str]) -> list[str] | None:
    if part[2] or part[6]:
        return ["*" if part[2] else "?"]
    if part[3] is None:
        return [part[1] or part[4], *([""] if part[5] else [])]
    inner = [_of_branch(f"^{option}$") for option in part[3].split("|")]
    if any(option is None for option in inner):
        return None
    return [glob for globs in inner if globs is not None for glob in globs]
