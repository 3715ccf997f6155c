"""All output fits the window: no line is wider, so that the terminal breaks no word."""

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
    """A stream that claims to be a terminal."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="")

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        """The written lines, without codes for cursor and colour."""
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
    """The lines that `remit ARGS` writes in a window of that width."""
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
    """Lines wider than the window, except for a single long word, such as a path."""
    room = columns - 20
    return [
        line for line in lines if words.width(line) > columns and max(map(words.width, line.split())) < room
    ]


@pytest.mark.parametrize("columns", WIDTHS)
def test_help_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The help of every command wraps at spaces, also in a narrow window, and breaks no example."""
    for name in ("", *COMMANDS):
        lines = look(columns, monkeypatch, *([name] if name else []), "--help")
        assert too_wide(lines, columns) == []
        assert all(words.width(line) <= columns for line in lines)
    journal = look(columns, monkeypatch, "runs", "--help")
    assert any("sqlite:////full/path/runs.db" in line for line in journal)


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("term", ["xterm", "dumb"])
def test_a_run_fits(columns: int, term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The live tree, plain lines, the answer and the messages at the end fit the window."""
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
    """Tables, pages, findings and problems fit the window."""
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
    """If the columns do not fit, each row is a block with every value, and with headings where needed."""
    look(
        120,
        monkeypatch,
        "run",
        "Look at every part of this folder and report",
        "--model",
        "scripted",
        "--quiet",
    )
    first, task, *rest = look(40, monkeypatch, "runs")
    assert re.fullmatch(r"[a-z2-9]{5}  completed  lead", first)
    assert task == "  Look at every part of this folder and…"
    assert rest[:2] == ["  started just now, tokens 135, children", "  3"]


def test_standard_error_has_its_own_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the output in a file, messages are wrapped to the terminal of standard error."""
    monkeypatch.delenv("COLUMNS", raising=False)
    sizes = {2: os.terminal_size((40, 24))}
    monkeypatch.setattr(os, "get_terminal_size", lambda number: sizes[number])
    err = Window()
    monkeypatch.setattr(err, "fileno", lambda: 2)
    with redirect_stderr(err):
        exits.tell("A message that is longer than forty columns, and not longer than eighty.")
    assert err.lines()[0] == "A message that is longer than forty"
