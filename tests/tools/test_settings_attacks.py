"""Attempts of sandboxed commands and file tools to change what the next run of remit follows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cagebench import WRITE, open_beside_home, run, works
from settingsbench import EVIL, FILES, SERVER, changes, followed, make_project
from shellbench import Shell

from remit.definitions import load_settings

pytestmark = pytest.mark.real_time


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with open_beside_home(tmp_path, monkeypatch) as made:
        make_project(made.workspace)
        (made.workspace / "server.txt").write_text(SERVER)
        (made.workspace / "evil.txt").write_text(EVIL)
        yield made


ATTACKS = {
    "a table in pyproject.toml": "sed s/mcp/tool.remit.mcp/ server.txt >> lib/pyproject.toml",
    "an agent in a folder of agents.paths": "cp evil.txt team/helper.md; cp evil.txt team/new.md",
    "settings in a folder below": "cp server.txt sub/remit.toml",
    "settings in a new folder": "mkdir -p new/deep; cp server.txt new/deep/remit.toml",
    "a new pyproject.toml": "sed s/mcp/tool.remit.mcp/ server.txt > sub/pyproject.toml",
    "a pyproject.toml in UTF-16": "(printf '\\377\\376'; sed s/mcp/tool.remit.mcp/ server.txt | iconv -t utf-16le)"
    " > sub/pyproject.toml",
    "an agent in a folder below": "mkdir -p sub/.claude/agents; cp evil.txt sub/.claude/agents/x.md",
    "agents in a folder that had none": "mkdir pkg/.claude/agents; cp evil.txt pkg/.claude/agents/x.md",
    "servers in a folder below": 'echo \'{"mcpServers": {"evil": {"command": "touch"}}}\' > sub/.mcp.json',
    "a folder that settings name and nobody made": "mkdir late; cp evil.txt late/x.md",
    "a rename of a file": "mv server.txt sub/remit.toml",
    "a rename of a folder": "mkdir -p x/agents; cp evil.txt x/agents/x.md; mv x sub/.codex; mv sub/.codex/agents/x.md"
    " sub/.codex/agents/x.toml; mkdir y; mv x y/.remit; mkdir -p z/agents; cp evil.txt z/agents/z.md; mv z y/.remit",
    "a link to a file": "ln -s ../server.txt sub/remit.toml",
    "a link to a folder": "mkdir -p data/agents; cp evil.txt data/agents/x.md; ln -s ../data sub/.claude",
    "a link in the place of a folder": "mkdir other; cp evil.txt other/x.md; mv team was; ln -s other team",
    "the target of a link": "cp evil.txt prompts/linked.md; rm prompts/linked.md; cp evil.txt prompts/linked.md;"
    " mv prompts gone; mkdir prompts; cp evil.txt prompts/linked.md",
    "another name of the same file": "cat server.txt >> alias",
    "a new name of the same file": "ln pkg/remit.toml second; cat server.txt >> second; ln server.txt sub/remit.toml",
    "another folder of the same name": "mv pkg gone; mkdir pkg; cp server.txt pkg/remit.toml",
    "deleting and making anew": "rm -rf pkg; mkdir -p pkg; cp server.txt pkg/remit.toml; rm -f remit.toml;"
    " cp server.txt remit.toml; rm -rf .remit; mkdir -p .remit/agents; cp evil.txt .remit/agents/x.md",
    "deleting what narrows": "rm -rf remit.toml pkg/remit.toml table/pyproject.toml",
    "hiding what narrows": "touch sub/remit.toml; echo '# tool.remit' > tools/pyproject.toml",
    "a copy": "cp -r pkg copy; cat server.txt >> copy/remit.toml",
    "a folder that cannot be listed": "mkdir -p dark/in; cp server.txt dark/in/remit.toml; chmod 0 dark/in dark",
    "a table that is there": "cat server.txt >> table/pyproject.toml; rm -f table/pyproject.toml;"
    " sed s/mcp/tool.remit.mcp/ server.txt > table/pyproject.toml",
    "a program that outlives the command": "(sleep 0.3; cp server.txt sub/remit.toml) & disown",
}


@works
@pytest.mark.parametrize("how", ATTACKS)
async def test_no_command_changes_what_the_next_run_follows(shell: Shell, tmp_path: Path, how: str) -> None:
    """After a command in a sandbox, remit follows in every folder of the workspace what it followed before."""
    before = followed(shell.workspace, tmp_path / "home")
    await run(shell, WRITE, ATTACKS[how])
    assert changes(before, followed(shell.workspace, tmp_path / "home")) == []


@works
@pytest.mark.parametrize("git", ["git init -q sub", "mkdir sub/.git"])
async def test_a_repository_of_a_command_stays_one(shell: Shell, tmp_path: Path, git: str) -> None:
    """Settings in a repository that a command makes stay, without trust, and no later command makes them the project's."""
    await run(shell, WRITE, f"{git}; cp server.txt sub/remit.toml; cp server.txt remit2.toml")
    await run(shell, WRITE, "rm -rf sub/.git; mv sub/.git sub/git; mv sub/remit.toml remit.toml; mv sub new")
    found = load_settings(shell.workspace / "sub", environ={}, home=tmp_path / "home")
    assert (found.project, found.trusted, found.servers) == (shell.workspace / "sub", False, {})


@works
async def test_a_repository_that_is_none_keeps_no_settings(shell: Shell, tmp_path: Path) -> None:
    """Where `.git` is a link, remit would look further up: what is beside it is put aside."""
    before = followed(shell.workspace, tmp_path / "home")
    await run(shell, WRITE, "ln -s nowhere sub/.git; cp server.txt sub/remit.toml")
    await run(shell, WRITE, "mkdir new; ln -s ../.git new/.git; cp server.txt new/remit.toml")
    assert changes(before, followed(shell.workspace, tmp_path / "home")) == []


@works
async def test_the_program_of_a_server_is_read_only(shell: Shell) -> None:
    """A file of the workspace that settings start as a server cannot be changed by a command in a sandbox."""
    await run(
        shell, WRITE, "echo touch owned >> tools/server.sh; mv tools was; mkdir tools; cp x tools/server.sh"
    )
    assert (shell.workspace / "tools/server.sh").read_text() == FILES["tools/server.sh"]
