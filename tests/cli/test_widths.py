"""What people read fits the window: no line is wider, so that no terminal breaks a word."""

from __future__ import annotations

import io
import os
import re
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from runbench import project

import remit.cli.exits as exits
import remit.observe.words as words
from remit.cli.main import COMMANDS, main
from remit.testing import ScriptedModel, call, calls, say, wrapped

pytestmark = pytest.mark.real_time

WIDTHS = (40, 80, 120)

AGENT = """---
name: scout
description: Looks at one folder and reports what is in it, in a few sentences that are easy to read.
tools: read, grep, ls, glob
model: anthropic:claude-sonnet-5
---
Look around.
"""

ANSWER = (
    "Everything is in order, and this paragraph is longer than any window that the tests have, so that it is wrapped"
    " between its words.\n\n- a list has its own way: what follows stands below the words of the bullet, not below it"
)


class Window(io.TextIOWrapper):
    """A stream that says that it is a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """What was written, without what moves the cursor or sets a colour."""
        self.seek(0)
        return re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.read()))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = project(tmp_path, monkeypatch)
    (made / ".remit" / "agents").mkdir(parents=True)
    (made / ".remit" / "agents" / "scout.md").write_text(AGENT, encoding="utf-8")
    (made / ".remit" / "agents" / "wrong.md").write_text(
        "---\nname: wrong\nturns: many\n---\n", encoding="utf-8"
    )
    (made / "remit.toml").write_text(
        'model = "anthropic:claude-sonnet-5"\n[limits]\nseconds = "5m"\n', encoding="utf-8"
    )
    return made


def look(columns: int, monkeypatch: pytest.MonkeyPatch, *args: str) -> list[str]:
    """The lines that `remit ARGS` writes in a window of so many columns."""
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("LINES", "24")
    parts = ("docs", "src", "tests")
    model = ScriptedModel(
        {
            "lead": [
                calls(
                    *(
                        call("subagent", label=part, task_prompt=f"Look at {part}, say what is there.")
                        for part in parts
                    )
                ),
                call("read", path="a/file/with/a/rather/long/name/that/is/not/there.txt"),
                say(ANSWER),
            ],
            "subagent": lambda request: (
                wrapped("In order.") if request.tool_choice == "none" else say("In order.")
            ),
        }
    )
    out, err = Window(), Window()
    with redirect_stdout(out), redirect_stderr(err):
        main(list(args), models={"scripted": model})
    return [*out.lines(), *err.lines()]


def too_wide(lines: list[str], columns: int) -> list[str]:
    """Lines that a terminal would break, except where a single word, such as a path, leaves no choice."""
    room = columns - 20
    return [
        line for line in lines if words.width(line) > columns and max(map(words.width, line.split())) < room
    ]


@pytest.mark.parametrize("columns", WIDTHS)
def test_help_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The help of every command is wrapped between words, also in a narrow window; no example in it is broken."""
    for name in ("", *COMMANDS):
        lines = look(columns, monkeypatch, *([name] if name else []), "--help")
        assert too_wide(lines, columns) == []
        assert all(words.width(line) <= columns for line in lines)
    journal = look(columns, monkeypatch, "runs", "--help")
    assert any("sqlite:////full/path/runs.db" in line for line in journal)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_run_fits(columns: int, term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the live tree nor plain lines nor the answer nor what is said at the end is wider than the window."""
    monkeypatch.setenv("TERM", term)
    lines = look(
        columns, monkeypatch, "run", "Look at every part of this folder and report", "--model", "scripted"
    )
    assert too_wide(lines, columns) == []
    assert any("subagent" in line for line in lines)
    if columns == 40:
        assert "  stands below the words of the bullet," in lines
    demo = look(columns, monkeypatch, "demo", "--fast")
    assert too_wide(demo, columns) == []


@pytest.mark.parametrize("columns", WIDTHS)
def test_lists_and_pages_fit(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, pages, findings and problems are laid out for the window."""
    look(
        120,
        monkeypatch,
        "run",
        "Look at every part of this folder and report",
        "--model",
        "scripted",
        "--quiet",
    )
    for args in (
        ("runs",),
        ("show",),
        ("show", "--tree"),
        ("show", "--calls"),
        ("show", "--usage"),
        ("show", "--events"),
        ("agents",),
        ("agents", "--check"),
        ("doctor",),
        ("trust", "--list"),
        ("show", "nope"),
        ("rnu",),
    ):
        assert (args, too_wide(look(columns, monkeypatch, *args), columns)) == (args, [])


def test_nothing_is_missing_in_a_narrow_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where columns do not fit, each row is a block that has every value, with its heading where it needs one."""
    look(
        120,
        monkeypatch,
        "run",
        "Look at every part of this folder and report",
        "--model",
        "scripted",
        "--quiet",
    )
    first, task, rest, *_ = look(40, monkeypatch, "runs")
    assert re.fullmatch(r"[a-z2-9]{5}  completed  lead", first)
    assert task == "  Look at every part of this folder and…"
    assert rest == "  began just now, tokens 135, children 3"


def test_standard_error_has_its_own_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the output in a file, messages are wrapped to the terminal that standard error is."""
    monkeypatch.delenv("COLUMNS", raising=False)
    sizes = {2: os.terminal_size((40, 24))}
    monkeypatch.setattr(os, "get_terminal_size", lambda number: sizes[number])
    err = Window()
    monkeypatch.setattr(err, "fileno", lambda: 2)
    with redirect_stderr(err):
        exits.tell("A message that is longer than forty columns, and not longer than eighty.")
    assert err.lines()[0] == "A message that is longer than forty"
