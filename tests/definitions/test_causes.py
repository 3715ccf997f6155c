"""Many problems are told in few lines, each cause once."""

from __future__ import annotations

from pathlib import Path

from remit.definitions import Problem, by_cause
from remit.definitions.syntax.nodes import Cause


def missing(file: str, agent: str, tool: str) -> Problem:
    cause = Cause("use tools that remit does not have", tool)
    return Problem("warning", Path(file), 3, f"no {tool}", cause, agent)


def told(*problems: Problem) -> list[str]:
    return [f"{one.level} {one}" for one in by_cause(problems)]


def test_a_single_problem_is_told_as_it_is() -> None:
    """It has its file and line, and its own words; told twice, it is told once."""
    one = missing("a.md", "a", "x")
    assert told(one, one) == ["warning a.md:3: no x"]


def test_agents_with_one_cause_are_counted_in_one_line() -> None:
    """An agent counts once, several agents of one file each; what differs is listed, up to a number."""
    problems = [missing("a.json", "a", "x"), missing("a.json", "a", "y"), missing("a.json", "b", "x")]
    assert told(*problems) == [
        "warning 2 agents use tools that remit does not have: x, y (a.json:3 and 1 more)"
    ]
    many = [missing(f"{n}.md", str(n), f"t{n}") for n in range(9)]
    assert told(*many)[0].startswith(
        "warning 9 agents use tools that remit does not have: t0, t1, t2, t3, t4 and 4 more"
    )


def test_one_agent_with_several_of_a_kind_is_one_line_too() -> None:
    """It is named, with its file."""
    assert told(missing("a.md", "a", "x"), missing("a.md", "a", "y")) == [
        "warning a.md:3: the agent 'a' uses tools that remit does not have: x, y"
    ]


def test_files_with_the_same_words_are_counted() -> None:
    """What has no cause of its own is told by its words; another level is another line."""
    notes = [Problem("note", Path(f"{n}.md"), 0, "This is a skill.") for n in range(3)]
    assert told(*notes, Problem("error", Path("x.md"), 0, "This is a skill.")) == [
        "note 3 files: This is a skill. (0.md and 2 more)",
        "error x.md: This is a skill.",
    ]


def test_what_files_say_drives_no_terminal() -> None:
    """Names of tools and files are shown with every character visible."""
    evil = "\x1b[2J\u202e"
    lines = told(*(missing(f"{evil}{n}.md", evil, evil) for n in range(3)))
    assert all(line.isprintable() for line in lines)
