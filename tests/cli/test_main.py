"""The command line as a whole: imports, errors, names of commands."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest
from runbench import project, remit
from terminals import check_screen, environment

import remit.cli.exits as exits
from remit.cli.main import COMMANDS, main
from remit.errors import ModelError, StoreError, UsageError

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return project(tmp_path, monkeypatch)


HEAVY = (
    "pydantic",
    "pydantic_ai",
    "rich",
    "httpx",
    "mcp",
    "anthropic",
    "openai",
    "sqlite3",
    "remit.definitions",
)


def test_help_imports_no_command(folder: Path) -> None:
    """`remit --help` imports neither a command nor a package that only some commands need."""
    program = (
        "import sys\nfrom remit.cli.main import main\ncode = main(['--help'])\n"
        "print([n for n in sys.modules if n.startswith('remit.cli.')], file=sys.stderr)\n"
        f"print([n for n in {HEAVY!r} if n in sys.modules], file=sys.stderr)\nsys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder, env=environment(folder.parent), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    commands, heavy = done.stderr.splitlines()
    names = ("standard_streams", "install_command", "exits", "help_format", "main")
    assert commands == str([f"remit.cli.{name}" for name in names])
    assert heavy == "[]"


def test_help_lists_every_command_and_the_exit_codes() -> None:
    """The help lists every command and every exit code."""
    said = remit("--help")
    assert said.code == 0
    assert all(f"  {name} " in said.out for name in COMMANDS)
    check_screen("help", said.out.rstrip())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_there(name: str) -> None:
    """Each module in the list has its command with a help text."""
    command = importlib.import_module(COMMANDS[name].module).command
    assert isinstance(command, click.Command)
    said = remit(name, "--help")
    assert said.code == 0
    assert said.out.startswith(f"Usage: remit {name}")


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unknown_option(name: str) -> None:
    """An unknown option prints one sentence and the usage line, exits with 2 and shows no traceback."""
    said = remit(name, "--nonsense")
    assert (said.code, said.out) == (exits.WRONG_USE, "")
    first, form, more = said.err.splitlines()
    assert "--nonsense" in first
    assert form.startswith(f"Usage: remit {name}")
    assert more == f"Help: remit {name} --help"


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("rnu", "Did you mean 'run'?"),
        ("tree", "Did you mean 'show --tree'?"),
        ("Fix the tests", "To run a task: remit run 'Fix the tests'"),
    ],
)
def test_an_unknown_command(written: str, hint: str) -> None:
    """An unknown command is reported with the most similar one."""
    said = remit(written)
    assert said.code == exits.WRONG_USE
    assert hint in said.err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (UsageError("Write it so."), exits.WRONG_USE, "Write it so."),
        (StoreError("The journal is gone."), exits.FAILED, "The journal is gone."),
        (ModelError("no"), exits.FAILED, "no"),
        (PermissionError(13, "Permission denied", "a.txt"), exits.FAILED, "Permission denied"),
        (KeyboardInterrupt(), exits.CANCELLED, ""),
        (click.Abort(), exits.CANCELLED, ""),
        (exits.Stop("So it ends.", 6), 6, "So it ends."),
        (
            ZeroDivisionError("oh"),
            exits.FAILED,
            "Internal error: ZeroDivisionError: oh. This is a bug in remit; REMIT_DEBUG=1 shows the traceback.",
        ),
    ],
)
def test_every_error_is_a_sentence(
    error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every error is one sentence on standard error and an exit code."""

    def raises() -> None:
        raise error

    assert exits.guard(raises) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert words in told.err
    assert "Traceback" not in told.err


def test_debug_shows_the_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """REMIT_DEBUG=1 prints the traceback of an error."""
    monkeypatch.setenv("REMIT_DEBUG", "1")
    assert main(["run", "--limits", "dept=2", "Go"]) == exits.WRONG_USE
    assert "Traceback" in capsys.readouterr().err


def test_errors_do_not_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters in an error are escaped; newlines stay."""
    exits.tell("first\nsecond \x1b[2J\u202e")
    assert capsys.readouterr().err == "first\nsecond \\x1b[2J\\u202e\n"


def test_as_a_module(folder: Path) -> None:
    """`python -m remit` is the command line."""
    done = subprocess.run(
        [sys.executable, "-m", "remit", "--version"],
        cwd=folder, env=environment(folder.parent), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("remit 0.")
