"""Attempts of sandboxed commands and file tools to change the settings of the next run of remit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cagebench import GIT, NEW, READ, WRITE, open_beside_home, outside, run, works
from settingsbench import EVIL, FILES, SERVER, changes, followed, make_project
from shellbench import Shell

import remit.tools.builtin.sandbox.protected_files as protected_files
from remit.definitions import load, load_settings

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
    "agents of other systems": "mkdir -p sub/.github/agents sub/.cursor/agents sub/.kiro/agents sub/.opencode;"
    " for f in .github/agents/x.agent.md .cursor/agents/x.md .kiro/agents/x.md; do cp evil.txt sub/$f; done;"
    ' echo \'{"agent": {"x": {"prompt": "p"}}}\' | tee sub/opencode.json > sub/.opencode/opencode.jsonc;'
    ' echo "customModes: [{slug: x, roleDefinition: p}]" > sub/.roomodes',
    "texts that agents name": "for f in oc/texts/r.txt oc/texts/s.txt ki/texts/k.md; do echo evil > $f; done;"
    " mv oc/texts was; mkdir oc/texts; echo evil > oc/texts/r.txt",
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
async def test_no_command_changes_the_settings_of_the_next_run(
    shell: Shell, tmp_path: Path, how: str
) -> None:
    """After a sandboxed command, remit reads the same settings as before in every folder of the workspace."""
    before = followed(shell.workspace, tmp_path / "home")
    await run(shell, WRITE, ATTACKS[how])
    assert changes(before, followed(shell.workspace, tmp_path / "home")) == []


PLANTED = {
    "sub/.github/agents/x.agent.md": "sub/.github/agents",
    "sub/.cursor/agents/x.md": "sub/.cursor/agents",
    "sub/.kiro/agents/x.json": "sub/.kiro/agents",
    "sub/opencode.json": "sub/opencode.json",
    "sub/.opencode/opencode.jsonc": "sub/.opencode/opencode.jsonc",
    "sub/.roomodes": "sub/.roomodes",
}


@pytest.mark.parametrize("path", PLANTED)
def test_agents_of_every_system_are_protected(tmp_path: Path, path: str) -> None:
    """Existing agent files are read-only, and planted ones are renamed; tested without running a sandbox."""
    workspace = tmp_path / "ws"
    make_project(workspace)
    guard = protected_files.Guard(workspace)
    (workspace / path).parent.mkdir(parents=True, exist_ok=True)
    (workspace / path).write_text(EVIL)
    assert [name.partition(" was renamed")[0] for name in guard.put_aside()] == [PLANTED[path]]
    (workspace / path).parent.mkdir(parents=True, exist_ok=True)
    (workspace / path).write_text(EVIL)
    read = [mount.path for mount in protected_files.Guard(workspace).mounts() if mount.how == "read"]
    assert any((workspace / path).is_relative_to(place) for place in read)
    for text in ("oc/texts/r.txt", "oc/texts/s.txt", "ki/texts/k.md"):
        assert workspace / text in read


@works
@pytest.mark.parametrize("git", ["git init -q sub", "mkdir sub/.git"])
async def test_a_repository_that_a_command_creates_stays_untrusted(
    shell: Shell, tmp_path: Path, git: str
) -> None:
    """Settings in a repository that a command creates are kept but untrusted, and no later command can change that."""
    await run(shell, WRITE, f"{git}; cp server.txt sub/remit.toml; cp server.txt remit2.toml")
    await run(shell, WRITE, "rm -rf sub/.git; mv sub/.git sub/git; mv sub/remit.toml remit.toml; mv sub new")
    found = load_settings(shell.workspace / "sub", environ={}, home=tmp_path / "home")
    assert (found.project, found.trusted, found.servers) == (shell.workspace / "sub", False, {})


@works
async def test_settings_beside_a_fake_repository_are_renamed(shell: Shell, tmp_path: Path) -> None:
    """If `.git` is a symlink, remit would search the folders above, so settings beside it are renamed."""
    before = followed(shell.workspace, tmp_path / "home")
    await run(shell, WRITE, "ln -s nowhere sub/.git; cp server.txt sub/remit.toml")
    await run(shell, WRITE, "mkdir new; ln -s ../.git new/.git; cp server.txt new/remit.toml")
    assert changes(before, followed(shell.workspace, tmp_path / "home")) == []


@works
async def test_the_program_of_a_server_is_read_only(shell: Shell) -> None:
    """A sandboxed command cannot change a file of the workspace that settings start as a server."""
    await run(
        shell, WRITE, "echo touch owned >> tools/server.sh; mv tools was; mkdir tools; cp x tools/server.sh"
    )
    assert (shell.workspace / "tools/server.sh").read_text() == FILES["tools/server.sh"]


@works
async def test_a_file_that_became_settings_is_renamed_and_the_old_one_restored(shell: Shell) -> None:
    """A pyproject.toml that gains remit's table is kept under another name, and the old file is restored."""
    result = await run(
        shell, WRITE, "sed s/mcp/tool.remit.mcp/ server.txt >> lib/pyproject.toml; echo > sub/Remit.TOML"
    )
    assert "lib/pyproject.toml was renamed" in result.content
    assert "sub/Remit.TOML was renamed" in result.content
    assert (shell.workspace / "lib/pyproject.toml").read_text() == FILES["lib/pyproject.toml"]
    assert "evil" in (shell.workspace / "lib/pyproject.toml.from-sandbox1").read_text()


@works
async def test_agents_that_settings_refer_to_are_read_only(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agent folders named by a program, the environment or the user's settings are protected like the project's."""
    for name in ("given", "environ", "config", "xdg/remit"):
        (shell.workspace / name).mkdir(parents=True)
    load(shell.workspace / "given")
    monkeypatch.setenv("REMIT_AGENTS", str(shell.workspace / "environ"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(shell.workspace / "xdg"))
    (shell.workspace / "xdg/remit/config.toml").write_text('agents.paths = ["../../config"]\n')
    await run(
        shell,
        WRITE,
        "for name in given environ config xdg/remit; do cp evil.txt $name/x.md; done; mv xdg was",
    )
    assert not list(shell.workspace.rglob("x.md"))


LINKS = {
    "the user's folder of agents": ("home/.claude/agents", "dotfiles", "dotfiles/new.md"),
    "the folder above that": ("home/.codex", "dotfiles", "dotfiles/agents/new.toml"),
    "an agent of the user": ("home/.remit/agents/helper.md", "dotfiles/helper.md", "dotfiles/helper.md"),
    "the user's settings": ("home/.config/remit/config.toml", "dotfiles/x.toml", "dotfiles/x.toml"),
    "a folder of agents above": (".claude/agents", "dotfiles", "dotfiles/new.md"),
    "settings above": ("remit.toml", "dotfiles/x.toml", "dotfiles/x.toml"),
    "a pyproject.toml above": ("pyproject.toml", "dotfiles/x.toml", "dotfiles/x.toml"),
    "servers above": (".mcp.json", "dotfiles/x.json", "dotfiles/x.json"),
    "a folder that is not there yet": ("home/.gemini/agents", "later", "later/new.md"),
}
"""Symlinks outside the workspace that remit follows, their targets inside it, and a file that is read through them."""


@works
@pytest.mark.parametrize("how", LINKS)
async def test_targets_of_symlinks_from_outside_are_read_only(shell: Shell, tmp_path: Path, how: str) -> None:
    """A sandboxed command cannot change files that symlinks in the user's home or in folders above point to."""
    (shell.workspace / ".git").rmdir()
    (tmp_path / ".git").mkdir()
    (shell.workspace / "dotfiles/agents").mkdir(parents=True)
    for name in ("helper.md", "x.toml", "x.json"):
        (shell.workspace / "dotfiles" / name).write_text("# old\n")
    link, target, file = LINKS[how]
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(shell.workspace / target)
    path = shell.workspace / file
    before = path.read_text() if path.exists() else None
    await run(shell, WRITE, f"mkdir -p later; cat evil.txt >> {file}")
    await run(shell, WRITE, f"mv dotfiles was; mkdir -p dotfiles/agents later; cp evil.txt {file}")
    assert (path.read_text() if path.exists() else None) == before


@works
async def test_a_folder_above_missing_agents_may_be_created(shell: Shell) -> None:
    """If settings name a missing folder, a command may create the folders above it; the named folder is renamed."""
    (shell.workspace / "remit.toml").write_text('agents.paths = ["build/agents"]\n')
    assert "was renamed" not in (await run(shell, WRITE, "mkdir -p build/out; touch build/out/x")).content
    result = await run(shell, WRITE, "mkdir build/agents; cp evil.txt build/agents/x.md")
    assert "build/agents was renamed" in result.content
    assert (shell.workspace / "build/out/x").exists()


@works
@pytest.mark.parametrize("paths", ['["."]', '["sub/.."]', '".."', '["team", "door"]'])
async def test_agents_all_over_the_workspace_are_refused(shell: Shell, paths: str) -> None:
    """If every file may be an agent, commands in a writing sandbox are refused, and the message gives the remedy."""
    (shell.workspace / "door").symlink_to(".")
    (shell.workspace / "remit.toml").write_text(f"agents.paths = {paths}\n")
    result = await run(shell, WRITE, "touch ran")
    assert "agents.paths" in result.content
    assert not (shell.workspace / "ran").exists()
    assert (await run(shell, READ, "true")).ok


@works
async def test_too_many_settings_are_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """If not all settings can be protected, commands in a writing sandbox are refused, and the message gives the remedy."""
    monkeypatch.setattr(protected_files, "MOST_SETTINGS", 3)
    result = await run(shell, WRITE, "touch ran")
    assert "protects at most 3" in result.content
    assert not (shell.workspace / "ran").exists()


@works
async def test_git_works_beside_settings(shell: Shell) -> None:
    """git add, commit and diff, and edits, work in folders with settings too."""
    (shell.workspace / ".git").rmdir()
    outside(f"{NEW}; git add -A; {GIT} commit -qm settings", shell.workspace)
    result = await run(
        shell,
        WRITE,
        f"cd pkg && echo x > code.py && git add code.py && {GIT} commit -qm code && echo y > code.py && git diff --stat"
        " && git status --short && sed -i s/lib/lib2/ ../lib/pyproject.toml && mv code.py ../sub && cp -r ../sub ../sub2"
        " && git clone -q .. ../clone && git -C ../clone status --short",
    )
    assert result.ok, result.content
    assert "was renamed" not in result.content
    assert (shell.workspace / "clone/remit.toml").exists()
    assert "lib2" in (shell.workspace / "lib/pyproject.toml").read_text()
