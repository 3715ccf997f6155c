"""Many problems are reported in few lines, one for each cause."""

from __future__ import annotations

from pathlib import Path

from remit.definitions import Problem, by_cause
from remit.definitions.syntax.nodes import Cause


def missing(file: str, agent: str, tool: str) -> Problem:
    cause = Cause("use tools that remit does not have", tool)
    return Problem("warning", Path(file), 3, f"no {tool}", cause, agent)


def told(*problems: Problem) -> list[str]:
    return [f"{one.level} {one}" for one in by_cause(problems)]


def test_a_single_problem_is_unchanged() -> None:
    """A single problem keeps its file, line and text; a repeated problem is one line."""
    one = missing("a.md", "a", "x")
    assert told(one, one) == ["warning a.md:3: no x"]


def test_agents_with_one_cause_are_counted_in_one_line() -> None:
    """Each agent counts once, also if a file has several; the differing parts are listed, up to a limit."""
    problems = [missing("a.json", "a", "x"), missing("a.json", "a", "y"), missing("a.json", "b", "x")]
    assert told(*problems) == [
        "warning 2 agents use tools that remit does not have: x, y (a.json:3 and 1 more)"
    ]
    many = [missing(f"{n}.md", str(n), f"t{n}") for n in range(9)]
    assert told(*many)[0].startswith(
        "warning 9 agents use tools that remit does not have: t0, t1, t2, t3, t4 and 4 more"
    )


def test_several_problems_of_one_agent_are_one_line() -> None:
    """One agent is named, with its file."""
    assert told(missing("a.md", "a", "x"), missing("a.md", "a", "y")) == [
        "warning a.md:3: the agent 'a' uses tools that remit does not have: x, y"
    ]


def test_files_with_the_same_problem_are_counted() -> None:
    """Problems without a cause are grouped by their text; another level is another line."""
    notes = [Problem("note", Path(f"{n}.md"), 0, "This is a skill.") for n in range(3)]
    assert told(*notes, Problem("error", Path("x.md"), 0, "This is a skill.")) == [
        "note 3 files: This is a skill. (0.md and 2 more)",
        "error x.md: This is a skill.",
    ]


def test_no_control_characters_are_printed() -> None:
    """Names of tools and files are printed with every character visible."""
    evil = "\x1b[2J\u202e"
    lines = told(*(missing(f"{evil}{n}.md", evil, evil) for n in range(3)))
    assert all(line.isprintable() for line in lines)
