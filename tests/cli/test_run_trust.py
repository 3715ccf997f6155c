"""`remit run` in a project whose settings changed since they were trusted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from runbench import Said, project, remit, run
from terminals import Terminal, remit_in

from remit.definitions import is_trusted
from remit.testing import ScriptedModel, call, say

SERVER = '[mcp.servers.{name}]\ncommand = "{program}"\n'
PLAIN = 'model = ScriptedModel({"lead": [say("Done.")]})'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A trusted project with its own server, in a separate home."""
    made = project(tmp_path, monkeypatch)
    (made / ".git").mkdir()
    (made / "remit.toml").write_text('policy = ["deny fetch"]\n')
    assert remit("trust", "--yes").code == 0
    return made


def program(folder: Path) -> Path:
    """A program that creates a file when it runs."""
    made = folder.parent / "evil.sh"
    made.write_text(f"#!/bin/sh\ntouch {folder.parent}/owned\n")
    made.chmod(0o755)
    return made


def plant(folder: Path, name: str) -> Path:
    """Write settings that start the program, as a command could; returns the folder that has them."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    server = SERVER.format(name="evil", program=program(folder))
    if path.name == ".mcp.json":
        path.write_text(f'{{"mcpServers": {{"evil": {{"command": "{program(folder)}"}}}}}}')
    elif path.suffix == ".md":
        path.write_text(f"---\nname: evil\nmcpServers:\n  evil: {{command: {program(folder)}}}\n---\nGo.\n")
    else:
        path.write_text(
            server.replace("[mcp", "[tool.remit.mcp") if path.name == "pyproject.toml" else server
        )
    return next(above for above in path.parents if above.name not in ("agents", ".claude", ".remit"))


PLANTS = [
    "remit.toml",
    "src/remit.toml",
    "src/pyproject.toml",
    "src/.mcp.json",
    ".mcp.json",
    ".claude/agents/evil.md",
    "src/.remit/agents/evil.md",
]


@pytest.mark.parametrize("name", PLANTS)
def test_changed_settings_start_nothing_without_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """In a trusted project, settings other than the trusted ones end the command: one sentence, exit code 2."""
    monkeypatch.chdir(plant(folder, name))
    said = run("Go", "--no-journal", model=ScriptedModel({"lead": [say("Done.")]}))
    assert (said.code, said.out) == (2, "")
    assert said.err.count("\n") == 1
    assert "changed since you trusted them" in said.err
    assert "remit trust --yes" in said.err
    assert not (folder.parent / "owned").exists()


def test_accepted_settings_are_followed(folder: Path) -> None:
    """`remit trust --yes` accepts the change, and the next run uses the settings."""
    plant(folder, "remit.toml")
    assert remit("trust", "--yes").code == 0
    run("Go", "--no-journal", model=ScriptedModel({"lead": [say("Done.")]}))
    assert (folder.parent / "owned").exists()


def test_a_clone_below_runs_without_its_servers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository below a trusted one runs as untrusted: its servers are ignored."""
    monkeypatch.chdir(plant(folder, "clone/remit.toml"))
    Path(".git").mkdir()
    said = run("Go", "--no-journal", model=ScriptedModel({"lead": [say("Done.")]}))
    assert (said.code, said.out) == (0, "Done.\n")
    assert "was ignored" in said.err
    assert not (folder.parent / "owned").exists()


def test_trust_for_one_run_asks_nothing(folder: Path) -> None:
    """`--trust` uses the current settings for one run."""
    (folder / "remit.toml").write_text('policy = ["deny write"]\n')
    assert run("Go", "--no-journal", "--trust", model=ScriptedModel({"lead": [say("Done.")]})).code == 0
    assert run("Go", "--no-journal", model=ScriptedModel({"lead": [say("Done.")]})).code == 2


def test_instructions_are_edited_without_a_question(folder: Path) -> None:
    """Edited instructions in agent files need no new trust."""
    (folder / ".remit/agents").mkdir(parents=True)
    for text in ("Review.", "Review well."):
        (folder / ".remit/agents/reviewer.md").write_text(f"---\nname: reviewer\n---\n{text}\n")
        said = run(
            "Go", "--no-journal", "--agent", "reviewer", model=ScriptedModel({"reviewer": [say("Done.")]})
        )
        assert (said.code, said.out) == (0, "Done.\n")


def _writes(*options: str) -> Said:
    model = ScriptedModel({"lead": [call("write", path="remit.toml", content="x = 1\n"), say("Done.")]})
    Path("remit.toml").unlink()
    return run("Go", "--no-journal", "--trust", *options, model=model)


@pytest.mark.parametrize("options", [("--yes",), ("--allow", "write"), ("--yes", "--allow", "write")])
def test_yes_does_not_cover_settings(folder: Path, options: tuple[str, ...]) -> None:
    """Neither `--yes` nor a rule lets `write` change files that remit reads as settings."""
    assert _writes(*options).code == 0
    assert not (folder / "remit.toml").exists()


# --- At a terminal --------------------------------------------------------------------------------


def at_terminal(folder: Path, *args: str) -> Terminal:
    return remit_in(folder, *args, script=PLAIN, columns=120)


@pytest.mark.real_time
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize("answer", ["y", "n"])
def test_changed_settings_are_shown_and_confirmed(folder: Path, answer: str) -> None:
    """At a terminal the run starts only after a yes to the changes, which is then remembered."""
    (folder / "remit.toml").write_text('policy = ["deny write"]\n')
    with at_terminal(folder, "run", "Go", "--model", "scripted", "--no-journal") as terminal:
        screen = terminal.wait_for("[y]es, [n]o:")
        assert '- policy = "deny fetch"\n  + policy = "deny write"' in screen
        terminal.type(f"{answer}\n")
        assert terminal.end() == (0 if answer == "y" else 2)
        assert ("Done." in terminal.look()) is (answer == "y")
    assert is_trusted(folder, Path(os.environ["HOME"]), {}) is (answer == "y")


@pytest.mark.real_time
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_trust_asks_at_a_terminal(folder: Path) -> None:
    """`remit trust` shows the changes; Ctrl-C changes nothing."""
    (folder / "remit.toml").write_text('policy = ["deny write"]\n')
    with at_terminal(folder, "trust") as terminal:
        terminal.wait_for("Trust this? [y]es, [n]o:")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert not is_trusted(folder, Path(os.environ["HOME"]), {})
