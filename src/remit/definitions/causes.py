"""Many problems in few lines: problems with the same cause become one line with the number of agents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from remit.definitions.syntax.nodes import Level, Problem, fit
from remit.types.text import shorten

MOST_LISTED = 5
"""Names listed in one line; the rest is counted."""


@dataclass(frozen=True, slots=True)
class CauseLine:
    """The line that reports one cause."""

    level: Level
    where: str
    """The file and line of a single problem; empty for several."""
    text: str
    is_about_models: bool = False

    def __str__(self) -> str:
        return f"{self.where}: {self.text}" if self.where else self.text


def by_cause(problems: Iterable[Problem]) -> list[CauseLine]:
    """One line for each cause, in order of first appearance. Repeated problems count once."""
    groups = dict[tuple[Level, str], list[Problem]]()
    for problem in dict.fromkeys(problems):
        what = problem.text if problem.cause is None else problem.cause.what
        groups.setdefault((problem.level, what), []).append(problem)
    return [_line(level, what, group) for (level, what), group in groups.items()]


def _line(level: Level, what: str, group: Sequence[Problem]) -> CauseLine:
    first = group[0]
    is_about_models = first.cause is not None and first.cause.topic == "model"
    if len(group) == 1:
        return CauseLine(level, first.where, fit(first.text), is_about_models)
    has_agents = first.cause is not None and all(problem.agent for problem in group)
    number = len({(problem.file, problem.agent if has_agents else "") for problem in group})
    names = list(dict.fromkeys(p.cause.about for p in group if p.cause is not None and p.cause.about))
    listed = f": {_listed(names)}" if names else ""
    if number == 1:
        said = what if first.cause is None else f"{_one(first)} {_singular(what)}{listed}"
        return CauseLine(level, first.where, fit(said), is_about_models)
    said = (
        f"files: {what}" if first.cause is None else f"{'agents' if has_agents else 'files'} {what}{listed}"
    )
    text = f"{number:,} {said} ({first.where} and {number - 1:,} more)"
    return CauseLine(level, "", fit(text), is_about_models)


def _one(problem: Problem) -> str:
    return f"the agent {problem.agent!r}" if problem.agent else "the file"


def _singular(what: str) -> str:
    verb, blank, rest = what.partition(" ")
    return {"have": "has", "are": "is"}.get(verb, f"{verb}s") + blank + rest


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(shorten(name, 60, 57) for name in names[:MOST_LISTED])
    more = len(names) - MOST_LISTED
    return f"{shown} and {more:,} more" if more > 0 else shown
