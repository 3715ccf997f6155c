"""Attempts to leave files in the workspace that programs outside the sandbox would run or use later."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cagebench import GIT, NEW, READ, WRITE, names, open_beside_home, outside, run, use, works
from shellbench import Shell

import remit.tools.builtin.sandbox.protected_files as protected_files
import remit.tools.builtin.sandbox.repositories as repositories
from remit.tools.builtin.files.read_write_edit import edit, read, write
from remit.types.sandbox import Sandbox

pytestmark = pytest.mark.real_time


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with open_beside_home(tmp_path, monkeypatch) as made:
        yield made


# --- Repositories --------------------------------------------------------------------------------


def _obeyed(tmp_path: Path, *folders: Path) -> list[str]:
    """The programs that git runs in these folders."""
    for folder in folders:
        outside("git status --short; git checkout -qb new; true", folder)
    return sorted(path.name for path in tmp_path.glob("PWNED*"))


@works
async def test_repositories_that_a_command_creates_run_nothing_outside(shell: Shell, tmp_path: Path) -> None:
    """Git outside runs nothing that a command planted in a repository it created, also as a submodule."""
    outside(NEW, shell.workspace)
    evil = f"git config core.fsmonitor 'touch {tmp_path}/PWNED; false'"
    hook = (
        f"printf '#!/bin/sh\\ntouch {tmp_path}/PWNED-hook' > .git/hooks/post-checkout; chmod +x .git/hooks/*"
    )
    result = await run(
        shell,
        WRITE,
        f"mkdir sub; cd sub; {NEW}; {evil}; {hook}; cd ..;"
        " git update-index --add --cacheinfo 160000,$(git -C sub rev-parse HEAD),sub;"
        f" mkdir file store; cd file; {NEW}; {evil}; mv .git ../store/git; echo 'gitdir: ../store/git' > .git; cd ..;"
        f" mkdir shared; cd shared; {NEW}; mkdir ../common; cp -r .git/* ../common; echo ../../common > .git/commondir;"
        f" git config -f ../common/config core.fsmonitor 'touch {tmp_path}/PWNED-common; false'",
    )
    assert "sub/.git/config was renamed" in result.content
    names = [shell.workspace / name for name in ("", "sub", "file", "shared")]
    assert _obeyed(tmp_path, *names) == []


@works
async def test_nested_repositories_are_protected(shell: Shell, tmp_path: Path) -> None:
    """A nested repository and its submodules are protected like the repository of the workspace."""
    for name in ("proj", "deep/er/proj"):
        (shell.workspace / name).mkdir(parents=True)
        outside(NEW, shell.workspace / name)
    outside(f"{NEW}; {GIT} -c protocol.file.allow=always submodule --quiet add ./proj sub", shell.workspace)
    for name in ("proj", "deep/er/proj", "sub"):
        git = shell.workspace / name / ".git"
        await run(
            shell,
            WRITE,
            f"cd {name}; git config core.fsmonitor 'touch {tmp_path}/PWNED; false';"
            f" printf '#!/bin/sh\\ntouch {tmp_path}/PWNED-hook' > .git/hooks/post-checkout; chmod +x .git/hooks/post-checkout;"
            " mkdir -p .claude/agents; echo x > .claude/agents/x.md; echo x > .mcp.json; rm -f .git; mv .git was; git init -q",
        )
        assert git.is_file() is (name == "sub")
        assert not (git.parent / ".claude").exists()
        assert not (git.parent / ".mcp.json").exists()
        assert _obeyed(tmp_path, git.parent, shell.workspace) == []


@works
async def test_files_that_git_settings_refer_to_are_protected(shell: Shell, tmp_path: Path) -> None:
    """Files that a repository's settings include, and its hooks in any folder, are protected too."""
    outside(
        f"{NEW}; git config include.path ../.shared; git config core.hooksPath .husky/_; mkdir -p .husky/_",
        shell.workspace,
    )
    evil = f"printf '[core]\\nfsmonitor = touch {tmp_path}/PWNED; false\\n' > .shared"
    hook = f"printf '#!/bin/sh\\ntouch {tmp_path}/PWNED-hook' > .husky/_/post-checkout; chmod +x .husky/_/post-checkout"
    result = await run(shell, WRITE, f"{evil}; {hook}; echo x > .husky/pre-commit; mv .husky was")
    assert ".shared was renamed" in result.content
    assert [path.name for path in (shell.workspace / ".husky").iterdir()] == ["_"]
    shell.sandbox = WRITE
    assert not use(write, shell, path=".husky/pre-commit", content="x").ok
    assert not use(write, shell, path=".shared", content="x").ok
    assert _obeyed(tmp_path, shell.workspace) == []


@works
async def test_too_many_repositories_are_refused(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """If not all repositories can be protected, commands in a writing sandbox are refused, and the message gives the remedy."""
    monkeypatch.setattr(protected_files, "MOST_REPOSITORIES", 2)
    for number in range(3):
        (shell.workspace / f"d{number}/.git").mkdir(parents=True)
    result = await run(shell, WRITE, "touch ran")
    assert "3 git repositories" in result.content
    assert not (shell.workspace / "ran").exists()
    assert (await run(shell, READ, "true")).ok


def test_cached_listings_notice_new_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached listing is used only while nothing in the folder was created, renamed or swapped; symlinks are not followed."""
    monkeypatch.setattr(repositories, "_SETTLED_NS", 20_000_000)
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "other/.git").mkdir(parents=True)
    (tmp_path / "node_modules/x").mkdir(parents=True)
    time.sleep(0.04)

    def found() -> list[str]:
        return sorted("/".join(one.parts) for one in repositories.find_all(tmp_path).repositories)

    assert found() == found() == ["other"]
    (tmp_path / "a/b/.git").write_text("gitdir: x\n")
    (tmp_path / "node_modules/x/.git").mkdir()
    assert found() == ["a/b", "node_modules/x", "other"]
    (tmp_path / "a/b").rename(tmp_path / "a/c")
    (tmp_path / "other").rename(tmp_path / "a/b")
    (tmp_path / "other").symlink_to("a/b")
    assert found() == ["a/b", "a/c", "node_modules/x"]
    assert repositories.find_all(tmp_path, most=2).whole is False


HARMLESS = """\
[core]
\trepositoryformatversion = 0
\tfilemode = true
# a comment
[remote "origin"]
\turl = https://git.example/a.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
"""


@pytest.mark.parametrize(
    "more",
    [
        "[core]\n\tfsmonitor = x",
        "[core] fsmonitor = x",
        "[CORE]\n\tFSMONITOR=x",
        "[core]\n\tbare = false \\\n\tfsmonitor = x",
        "[core]\n\tfilemode",
        "[include]\n\tpath = x",
        '[includeIf "gitdir:/"]\n\tpath = x',
        "[core]\n\thooksPath = x",
        "[core]\n\tsshCommand = x",
        "[core]\n\tworktree = /home",
        '[remote "x"]\n\turl = ext::sh -c x',
        '[remote "x"]\n\turl = --upload-pack=x',
        '[remote "x"]\n\tuploadpack = x',
        '[filter "x"]\n\tclean = x',
        '[diff "x"]\n\ttextconv = x',
        "[alias]\n\tstatus = !x",
        "[extensions]\n\tworktreeConfig = true",
        '[submodule "x"]\n\tupdate = !x',
        '[core "a\\"b"]\n\tbare = false',
        "[core]\r\n\tfsmonitor = x\r",
        "[core]\x0b\n\tfsmonitor = x",
        "fsmonitor = x",
    ],
)
def test_settings_that_run_programs_are_not_harmless(more: str) -> None:
    """Only settings known to run nothing are harmless; lines that cannot be parsed are not."""
    assert repositories.is_harmless(HARMLESS)
    assert not repositories.is_harmless(HARMLESS + more)
    assert not repositories.is_harmless(f"{more}\n{HARMLESS}")


# --- The file tools ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".git/hooks/x",
        "link/config",
        ".remit/notes.md",
        ".VSCode/x.json",
        "proj/.git/config",
        "proj/.envrc",
        "new/../.claude/x/y.md",
        "none/.git/config",
    ],
)
def test_file_tools_have_the_same_limits(shell: Shell, path: str) -> None:
    """`write` and `edit` refuse the files that sandboxed commands may not write, and create no folder."""
    ws = shell.workspace
    for folder in (".git/hooks", "proj/.git"):
        (ws / folder).mkdir(parents=True)
    for config in (".git/config", "proj/.git/config"):
        (ws / config).write_text("old")
    (ws / "link").symlink_to(".git")
    before = sorted(ws.rglob("*"))
    shell.sandbox = WRITE
    use(read, shell, path=path)
    for result in (
        use(write, shell, path=path, content="x", make_folders=True),
        use(edit, shell, path=path, old_text="old", new_text="new"),
    ):
        assert not result.ok
        assert "Not written" in result.content or "does not exist" in result.content
    assert "Not written" in use(write, shell, path=path, content="x", make_folders=True).content
    assert sorted(ws.rglob("*")) == before
    assert (ws / ".git/config").read_text() == "old"


def test_file_tools_write_other_files(shell: Shell) -> None:
    """Other files can be written, also protected names in other folders; without a sandbox, all of them."""
    shell.sandbox = WRITE
    for path in ("src/a.py", ".gitignore", ".github/workflows/ci.yml", "tests/data/.envrc", "agit/x"):
        assert use(write, shell, path=path, content="x", make_folders=True).ok
    shell.sandbox = Sandbox("open", network=True)
    assert use(write, shell, path=".envrc", content="x").ok


@pytest.mark.parametrize("above", [False, True])
async def test_a_workspace_that_holds_the_home_is_refused(
    shell: Shell, tmp_path: Path, *, above: bool
) -> None:
    """A workspace with the home folder cannot be protected: commands and file tools refuse a sandbox that can write."""
    shell.workspace = tmp_path if above else tmp_path / "home"
    result = await run(shell, WRITE, "touch ran")
    assert "contains your home folder" in result.content
    assert not use(write, shell, path="new", content="x").ok
    assert names(tmp_path) == ["home", "ws"]
    assert names(tmp_path / "home") == [".ssh"]
