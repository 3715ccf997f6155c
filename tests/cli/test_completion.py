"""`remit completion`: real shells complete commands, options, agents and runs without running code of a project."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commandbench import Bench, two_scouts
from runbench import project, remit
from terminals import Terminal, environment

import remit.cli.completion as completion
import remit.cli.exits as exits

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="needs a shell on a pseudo-terminal"),
]

AGENT = "---\nname: {name}\ndescription: Looks at one thing.\n---\nLook.\n"
MOST_CPU_S = 0.3


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with two agents and a run, and `remit` in a folder of programs."""
    made = project(tmp_path, monkeypatch)
    (made / ".remit" / "agents").mkdir(parents=True)
    for name in ("scout", "scribe"):
        (made / ".remit" / "agents" / f"{name}.md").write_text(AGENT.format(name=name), encoding="utf-8")
    state = tmp_path / "state"
    state.mkdir()
    Bench(state).run(two_scouts(), "Look at docs and src")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "remit").write_text(f"#!/bin/sh\nexec '{sys.executable}' -m remit \"$@\"\n", encoding="utf-8")
    (programs / "remit").chmod(0o755)
    return made


def env(folder: Path, **more: str) -> dict[str, str]:
    path = f"{folder.parent / 'bin'}:{os.environ['PATH']}"
    return environment(folder.parent, **{"PATH": path, "PS1": "$ ", **more})


def complete(folder: Path, line: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The completions for a line, by click's protocol, with the cursor at its end."""
    place = str(len(line.split(" ")) - 1)
    return subprocess.run(
        [sys.executable, "-m", "remit"],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        env=env(folder, **{"COMP_WORDS": line, "COMP_CWORD": place, "_REMIT_COMPLETE": "bash_complete", **more}),
    )  # fmt: skip


def offered(folder: Path, line: str) -> list[str]:
    done = complete(folder, line)
    assert (done.returncode, done.stderr) == (0, "")
    return [found.removeprefix("plain,") for found in done.stdout.splitlines()]


# --- Real shells ----------------------------------------------------------------------------------


def shell(folder: Path, name: str, *args: str) -> Terminal:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return Terminal(
        ["-c", f"import os; os.execv({found!r}, {[name, *args]!r})"], folder, columns=100, env=env(folder)
    )


LINES = (
    ("remit comp\t", "remit completion"),
    ("remit run --read\t", "remit run --read-only"),
    ("remit run --agent scr\t", "remit run --agent scribe"),
    ("remit show abc\t", "remit show abcde"),
    ("remit run --output-format str\t", "remit run --output-format stream-json"),
    ("remit run --workspace sr\t", "remit run --workspace src/"),
)


def check_lines(terminal: Terminal) -> None:
    """Type each line and Tab, compare what the shell shows, and clear the line with Ctrl-U."""
    for typed, completed in LINES:
        terminal.type(typed)
        terminal.wait_for(lambda text, completed=completed: completed in text.splitlines()[-1])
        terminal.type("\x15")
    assert "rror" not in terminal.look()
    assert "Traceback" not in terminal.look()


def test_bash(folder: Path) -> None:
    """bash completes commands, options, agents, runs, choices and folders, and lists several matches."""
    with shell(folder, "bash", "--norc", "--noprofile", "-i") as terminal:
        terminal.wait_for("$")
        terminal.type('eval "$(remit completion bash)" && echo rea""dy\r')
        terminal.wait_for("ready")
        check_lines(terminal)
        terminal.type("remit run --agent=scr\t")
        terminal.wait_for("remit run --agent=scribe")
        terminal.type("\x15remit run --agent sc\t\t")
        terminal.wait_for("scout   scribe")
        terminal.type("\x15remit nothing --x\t\t\x15echo still $? here\r")
        terminal.wait_for("still 0 here")


def test_zsh(folder: Path) -> None:
    """zsh completes the same."""
    with shell(folder, "zsh", "-f", "-i") as terminal:
        terminal.type("PS1='$ '; autoload -U compinit && compinit -u -D\r")
        terminal.type('eval "$(remit completion zsh)" && echo rea""dy\r')
        terminal.wait_for("ready")
        check_lines(terminal)


def test_fish(folder: Path) -> None:
    """fish completes the same, from its completions file."""
    done = subprocess.run(
        ["remit", "completion", "fish"],
        cwd=folder, env=env(folder), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    place = folder.parent / ".config" / "fish" / "completions"
    place.mkdir(parents=True)
    (place / "remit.fish").write_text(done.stdout, encoding="utf-8")
    found = shutil.which("fish")
    if found is None:
        pytest.skip("fish is not installed")
    for typed, completed in LINES:
        said = subprocess.run(
            [found, "-c", f"complete --do-complete {typed.strip()!r}"],
            cwd=folder, env=env(folder), capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        assert completed.split()[-1] in [line.partition("\t")[0] for line in said.stdout.splitlines()]


# --- Completions ----------------------------------------------------------------------------------


def test_runs_of_the_named_journal(folder: Path) -> None:
    """Runs come from `--journal` if the line has it; a missing journal is not created."""
    other = folder.parent / "other.db"
    assert offered(folder, "remit show ") == ["last", "abcde"]
    assert offered(folder, f"remit show --journal sqlite:///{other} ") == []
    assert not other.exists()


@pytest.mark.parametrize(
    "line", ["remit ", "remit show ", "remit run --agent ", "remit run --", "remit cancel a", "remit rm abc"]
)
def test_completion_is_fast(folder: Path, line: str) -> None:
    """One completion takes less than 0.3 s of processor time."""

    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert offered(folder, line)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)

    # The best of three: other tests use the same processors.
    assert min(once() for _ in range(3)) < MOST_CPU_S


@pytest.mark.parametrize(
    "line",
    ["remit nope ", "remit run --agent ", "remit show ", "remit show --journal memory ", "remit show 'a"],
)
def test_errors_do_not_reach_the_prompt(folder: Path, line: str) -> None:
    """Broken settings, a broken journal or an unknown command give no completions, no message and exit code 0."""
    (folder / "remit.toml").write_text("model = [[[\n", encoding="utf-8")
    (folder.parent / "state" / "runs.db").write_bytes(b"not a database" * 100)
    done = complete(folder, line)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = complete(folder, line, COMP_CWORD="x")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_code_of_a_project_runs(folder: Path) -> None:
    """Completion in a cloned project starts none of its servers, opens no journal that it names, and trusts nothing."""
    (folder / "remit.toml").write_text(
        f'journal = "sqlite:///{folder}/theirs.db"\n'
        '[mcp.servers.evil]\ncommand = "touch"\nargs = ["owned"]\n',
        encoding="utf-8",
    )
    (folder / ".mcp.json").write_text(
        '{"mcpServers": {"worse": {"command": "touch", "args": ["owned"]}}}', encoding="utf-8"
    )
    assert offered(folder, "remit run --agent ") == ["scout", "scribe"]
    assert offered(folder, "remit show ") == ["last", "abcde"]
    assert not (folder / "owned").exists()
    assert not (folder / "theirs.db").exists()
    assert not (folder.parent / ".config").exists()


EVIL = ("$(touch owned)", "`touch owned`", "a;touch owned", "a b", "-rf", "*", "x\ny", "../x", "é", "")


def test_names_with_shell_characters_are_not_offered(folder: Path) -> None:
    """The name of an agent file cannot put a command into the line that the user types."""
    for number, name in enumerate(EVIL):
        file = folder / ".remit" / "agents" / f"evil{number}.md"
        file.write_text(AGENT.format(name=json.dumps(name)), encoding="utf-8")
    found = offered(folder, "remit run --agent ")
    assert {"scout", "scribe"} <= set(found)
    assert [name for name in found if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", name)] == []
    assert [name for name in EVIL if completion.is_offered(name, "")] == []


def test_an_unknown_shell(folder: Path) -> None:
    """Without a shell, or with an unsupported one, the message names the supported shells."""
    del folder
    said = remit("completion")
    assert (said.code, said.err) == (
        exits.WRONG_USE,
        "Name your shell: remit completion bash (or zsh, or fish)\n",
    )
    assert "'bash', 'zsh', 'fish'" in remit("completion", "tcsh").err
