"""A rule that allows git does not allow programs in a repository's settings, and no tool writes such settings."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cagebench import GIT, NEW, WRITE, open_beside_home, outside, use, works
from shellbench import Shell

import remit
from remit import Agent, ApprovalRequest, ToolMessage, allow
from remit.testing import ScriptedModel, call, say
from remit.tools.builtin.files.read_write_edit import edit, read, write
from remit.tools.builtin.sandbox.repositories import is_git_name
from remit.tools.builtin.terminal.git_without_hooks import command_at, switched_off
from remit.tools.builtin.terminal.terminal import make_terminal, terminal
from remit.tools.policy import Decision
from remit.types.sandbox import OPEN, Sandbox

pytestmark = pytest.mark.real_time


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with open_beside_home(tmp_path, monkeypatch) as made:
        yield made


async def _yes(request: ApprovalRequest) -> Decision:
    del request
    return allow()


async def _call(
    shell: Shell, *commands: str, policy: list[str], sandbox: Sandbox = OPEN, asking: bool = False
) -> list[ToolMessage]:
    """The results of these commands in a run, one call after another."""
    model = ScriptedModel([*(call("terminal", command=command) for command in commands), say("done")])
    outcome = await remit.run(
        Agent("lead", tools=[shell.tool]),
        "go",
        model=model,
        policy=policy,
        workspace=shell.workspace,
        sandbox=sandbox,
        approver=_yes if asking else None,
    )
    return [message for message in outcome.messages if isinstance(message, ToolMessage)]


# --- Programs that settings name -----------------------------------------------------------------


def _plant(shell: Shell, marks: Path) -> None:
    """A repository whose settings name a program wherever possible; each program leaves a mark."""
    ws = shell.workspace
    marks.mkdir()
    outside(f"{NEW}; git config user.name x; git config user.email x@x.example; git branch other", ws)
    program = ws.parent / "program"
    program.write_text(f'#!/bin/sh\ntouch "{marks}/$1"\nshift\ncat "$@"\n')
    program.chmod(0o755)
    for name, value in {
        **{f"filter.f.{kind}": f"{program} {kind}" for kind in ("clean", "smudge")},
        "filter.p.process": f"{program} process",
        "diff.d.textconv": f"{program} textconv",
        "diff.e.command": f"{program} external",
        "core.fsmonitor": f"{program} fsmonitor; false",
        "core.sshCommand": f"{program} ssh",
        "core.alternateRefsCommand": f"{program} alternate",
        "merge.m.driver": f"{program} merge; exit 0",
        "alias.mine": f"!{program} alias",
        "core.editor": f"{program} editor",
        "sequence.editor": f"{program} sequence",
        "trailer.by.command": f"{program} trailer",
        "remote.up.url": "https://127.0.0.1:9/x",
        "credential.helper": f"!{program} credential",
        "remote.local.url": str(ws / "served"),
        "remote.ext.url": f"ext::{program} ext",
        "url.ext::sh.insteadOf": "short:",
        "submodule.sub.update": f"!{program} update",
        "core.hooksPath": str(ws / "own-hooks"),
        "include.path": str(ws / "included"),
    }.items():
        subprocess.run(["git", "config", name, value], cwd=ws, check=True)
    (ws / "included").write_text(f'[filter "i"]\n\tclean = {program} included\n')
    attributes = ["*.f filter=f", "*.p filter=p", "*.d diff=d", "*.e diff=e", "*.m merge=m", "*.i filter=i"]
    (ws / ".gitattributes").write_text("\n".join(attributes) + "\n")
    (ws / "own-hooks").mkdir()
    for folder in (ws / "own-hooks", ws / ".git/hooks"):
        for hook in (
            "pre-commit",
            "post-checkout",
            "post-index-change",
            "pre-push",
            "commit-msg",
            "pre-rebase",
        ):
            (folder / hook).write_text(f"#!/bin/sh\ntouch '{marks}/hook-{hook}'\n")
            (folder / hook).chmod(0o755)
    for name in ("f", "p", "d", "e", "i"):
        (ws / f"a.{name}").write_text("1\n")


def _plant_submodule(shell: Shell, marks: Path) -> None:
    """A submodule with its own settings."""
    ws, sub = shell.workspace, shell.workspace / "sub"
    sub.mkdir()
    outside(f"{NEW}; echo '* filter=s' > .gitattributes; git add .; {GIT} commit -qm b; echo 2 > a", sub)
    outside(f"git config filter.s.clean 'touch {marks}/submodule; cat'", sub)
    outside(
        "git -c core.fsmonitor=false -c core.hooksPath=/dev/null update-index --add --cacheinfo 160000,$(git -C sub rev-parse HEAD),sub",
        ws,
    )


_COMMANDS = (
    "git status --short",
    "git add -A",
    "git commit -qm 'a message'",
    "echo 2 > a.d; echo 2 > a.e; git diff; git log -p -1; git blame a.d",
    "git stash; git checkout -q other; git checkout -q main; git rebase -i other; git stash pop",
    "git fetch local; git fetch ext; git fetch short:x; git push local main",
    "git --no-pager status; (cd sub && git status)",
    "echo x | xargs git status; bash -c 'git status'; find a -exec git status -- {} +",
)
_RULES = [
    "allow terminal(git *)",
    "allow terminal(echo *)",
    "allow terminal(> a.?)",
    "allow terminal(cd sub)",
]
_RULES += [f"allow terminal({name} *)" for name in ("xargs", "nice", "bash -c", "find")]


async def test_git_that_a_rule_allows_runs_no_program_of_a_repository(shell: Shell, tmp_path: Path) -> None:
    """If only a rule allows git, it works without running any filter, hook, alias or helper from settings."""
    marks = tmp_path / "marks"
    _plant(shell, marks)
    _plant_submodule(shell, marks)
    done = await _call(shell, *_COMMANDS, policy=_RULES)
    assert sorted(path.name for path in marks.iterdir()) == []
    assert [message.ok for message in done[:3]] == [True, True, True]
    assert "+2" in done[3].content
    assert not any("Denied" in message.content for message in done), done
    (log,) = await _call(shell, "git log --format=%s -1", policy=_RULES)
    assert log.content.startswith("a message\n")


async def test_git_that_a_person_allows_runs_programs(shell: Shell, tmp_path: Path) -> None:
    """A person's approval covers the programs that git runs; a rule alone would not."""
    marks = tmp_path / "marks"
    _plant(shell, marks)
    _plant_submodule(shell, marks)
    await _call(shell, *_COMMANDS[:4], policy=[], asking=True)
    found = {path.name for path in marks.iterdir()}
    assert found >= {"clean", "process", "textconv", "external", "included", "submodule"}
    assert found >= {"hook-pre-commit", "hook-commit-msg"}


async def test_git_that_a_rule_without_a_pattern_allows_runs_programs(shell: Shell, tmp_path: Path) -> None:
    """A rule without a pattern allows everything that a command runs."""
    marks = tmp_path / "marks"
    _plant(shell, marks)
    await _call(shell, "git add a.f", policy=["allow terminal"])
    assert (marks / "clean").exists()


async def test_the_lists_of_make_terminal_are_rules_too(shell: Shell, tmp_path: Path) -> None:
    """`make_terminal(allow=["git *"])` allows git, not the programs in a repository's settings."""
    marks = tmp_path / "marks"
    _plant(shell, marks)
    shell.tool = make_terminal(allow=["git *"])
    done = await _call(shell, "git add -A", "git status", policy=["allow terminal"])
    assert [message.ok for message in done] == [True, True]
    assert list(marks.iterdir()) == []


async def test_make_terminal_refuses_commands_that_may_be_denied(shell: Shell) -> None:
    """`make_terminal` cannot ask a person, so it refuses a command that may be a denied one."""
    shell.tool = make_terminal(deny=["git push*"])
    for command in ("git -C . push", "git $x", "$x push", "eval x"):
        assert "Refused" in (await shell.run(command)).content, command
    assert (await shell.run("echo $x")).ok


async def test_a_failure_reports_that_git_ran_without_programs(shell: Shell) -> None:
    """The result of a failed git command says that git ran without other programs."""
    outside(NEW, shell.workspace)
    (done,) = await _call(shell, "git checkout none", policy=["allow terminal(git *)"])
    assert "ran without hooks, filters, aliases and other programs" in done.content


async def test_a_required_filter_is_not_skipped_silently(shell: Shell, tmp_path: Path) -> None:
    """A file with a required filter is not added unfiltered."""
    marks = tmp_path / "marks"
    _plant(shell, marks)
    outside("git config filter.f.required true", shell.workspace)
    (done,) = await _call(shell, "git add a.f", policy=["allow terminal(git *)"])
    assert not done.ok
    assert list(marks.iterdir()) == []


@pytest.mark.parametrize(
    "bad", ["[core", '[remote "o"]\n\tuploadpack = x', '[remote "o"]\n\treceivePack = x']
)
async def test_git_does_not_run_with_programs_that_cannot_be_disabled(shell: Shell, bad: str) -> None:
    """If the settings cannot be read, or one cannot be overridden, git that a rule allows does not run."""
    outside(NEW, shell.workspace)
    with (shell.workspace / ".git/config").open("a") as file:
        file.write(bad)
    (done,) = await _call(shell, "git status", policy=["allow terminal(git *)"])
    assert not done.ok
    assert "git was not run" in done.content


@works
@pytest.mark.parametrize("by_rule", [True, False])
async def test_git_works_in_a_sandbox_as_before(shell: Shell, tmp_path: Path, by_rule: bool) -> None:
    """In a sandbox that can write, git adds, commits and compares, with the hooks that the repository has."""
    outside(f"{NEW}; git config user.name x; git config user.email x@x.example", shell.workspace)
    hook = shell.workspace / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\ntouch hook-ran\n")
    hook.chmod(0o755)
    policy = ["allow terminal(git *)", "allow terminal(echo *)", "allow terminal(> a)"]
    commands = ("echo b > a; git diff", "git add a && git commit -m b")
    done = await _call(
        shell, *commands, policy=policy if by_rule else ["allow terminal"], sandbox=WRITE, asking=False
    )
    assert [message.ok for message in done] == [True, True], done
    assert "+b" in done[0].content
    assert (shell.workspace / "hook-ran").exists()
    del tmp_path


async def test_without_git_commands_nothing_is_put_before_git(shell: Shell) -> None:
    """A command that is not git keeps its PATH."""
    (done,) = await _call(shell, "printenv PATH", policy=["allow terminal(printenv *)"])
    assert "remit-git" not in done.content


def test_settings_that_name_programs_are_known() -> None:
    """Every setting that names a program is disabled, in upper or lower case, and no other setting is."""
    running = [
        *(
            "filter.lfs.clean",
            "filter.a.b.smudge",
            "filter.lfs.process",
            "diff.x.textconv",
            "diff.x.command",
            "diff.external",
        ),
        *(
            "merge.x.driver",
            "alias.st",
            "alias.a.command",
            "credential.helper",
            "credential.https://x.y.helper",
            "core.editor",
        ),
        *(
            "core.pager",
            "pager.log",
            "core.sshCommand",
            "core.askPass",
            "core.gitProxy",
            "sequence.editor",
            "gpg.program",
        ),
        *(
            "gpg.ssh.program",
            "gpg.ssh.defaultKeyCommand",
            "trailer.x.cmd",
            "trailer.x.command",
            "tar.x.command",
            "init.templateDir",
        ),
        *(
            "remote.o.vcs",
            "submodule.s.update",
            "interactive.diffFilter",
        ),
        *(
            "difftool.x.cmd",
            "mergetool.x.path",
            "browser.x.cmd",
            "man.x.path",
            "sendemail.toCmd",
            "imap.tunnel",
            "hook.x.command",
        ),
        *("core.alternateRefsCommand", "uploadpack.packObjectsHook", "web.browser", "guitool.x.cmd"),
    ]
    for name in running:
        assert switched_off(name) is not None, name
        assert switched_off(name.upper()) is not None, name
    harmless = [
        "user.name",
        "remote.o.url",
        "branch.main.merge",
        "core.bare",
        "diff.algorithm",
        "merge.ff",
        "http.proxy",
    ]
    assert [name for name in harmless if switched_off(name) is not None] == []


def test_where_a_git_command_begins() -> None:
    """git's own options come before its command, some of them with a separate value."""
    for words, at in {
        ("push",): 0,
        ("-C", "x", "push"): 2,
        ("--git-dir=x", "--no-pager", "-c", "a=b", "push", "-C"): 4,
        ("-C",): 1,
        ("--version",): 1,
        (): 0,
    }.items():
        assert command_at([*words]) == at, words


# --- Writing into a repository --------------------------------------------------------------------


# fmt: off
_OBEYED = (
    ".git/config", ".git/hooks/pre-commit", ".GIT/config", ".Git/new", "b/.git/config", ".git", "link/config", "b/../.git/config",
    ".git/modules/sub/config", "worktree/.git", "store/git/config", "store/git/hooks/new/x", "bare.git/config", "bare.git/HEAD",
    "linked/config", ".git./config", ".git /config", "git~1/config", ".g\u200cit/config", ".git/objects/info/alternates",
    "half/HEAD", "half2/refs/heads/x", "half3/commondir",
)
# fmt: on


@pytest.mark.parametrize("sandbox", [OPEN, WRITE, Sandbox("open", network=False)], ids=str)
def test_no_tool_writes_into_a_git_folder(shell: Shell, sandbox: Sandbox) -> None:
    """`write` and `edit` refuse to write in a git folder of any name, in the target of a `.git` file, or to create one."""
    ws = shell.workspace
    outside(f"{NEW}; git worktree add -q worktree; mkdir store", ws)
    outside("git init -q --separate-git-dir=store/git elsewhere; git init -q --bare bare.git", ws)
    for folder in ("b", "half/objects", "half/refs", "half2/objects", "half3"):
        (ws / folder).mkdir(parents=True)
    for file in ("half2/HEAD", "half3/HEAD"):
        (ws / file).write_text("ref: refs/heads/main\n")
    (ws / "link").symlink_to(".git")
    (ws / "linked").symlink_to(".git/worktrees/worktree")
    before = {file: file.read_bytes() for file in ws.rglob("*") if file.is_file()}
    shell.sandbox = sandbox
    for path in _OBEYED:
        use(read, shell, path=path)
        written = use(write, shell, path=path, content="x", make_folders=True)
        assert "Not written" in written.content, (path, written)
        assert not use(edit, shell, path=path, old_text="e", new_text="f", replace_all=True).ok
    assert {file: file.read_bytes() for file in ws.rglob("*") if file.is_file()} == before


def test_files_that_only_look_like_gits_own_are_written(shell: Shell) -> None:
    """Files such as .gitignore, and folders that are not git folders, can be written."""
    for path in (
        ".gitignore",
        ".gitattributes",
        ".gitmodules",
        ".github/x.yml",
        "HEAD",
        "refs/x",
        "a/HEAD",
        "a/config",
        "git/config",
    ):
        assert use(write, shell, path=path, content="x", make_folders=True).ok, path


def test_names_that_a_file_system_treats_as_git() -> None:
    """Every spelling that some file system treats as `.git` is recognised."""
    for name in (
        ".git",
        ".GIT",
        ".git.",
        ".git ",
        ".git . .",
        "GIT~1",
        ".git::$INDEX_ALLOCATION",
        ".g\u200cit",
        "\ufeff.git",
    ):
        assert is_git_name(name), name
    for name in (".gitignore", "git", ".gi", "x.git", ".git2", "..git", ".github", "git~2"):
        assert not is_git_name(name), name


async def test_writing_and_git_status_together_run_nothing(shell: Shell, tmp_path: Path) -> None:
    """With `allow write` and `allow terminal(git status)`, a model cannot make git run a program."""
    outside(NEW, shell.workspace)
    evil = (
        f'[core]\nfsmonitor = touch {tmp_path}/PWNED; false\n[filter "x"]\nclean = touch {tmp_path}/PWNED\n'
    )
    steps = [
        call("write", path=".git/config", content=evil),
        call("read", path=".git/config"),
        call("write", path=".git/config", content=evil),
        call("edit", path=".git/config", old_text="[core]", new_text=evil),
        call("write", path=".git/config.worktree", content=evil),
        call("write", path=".gitattributes", content="* filter=x\n"),
        call("write", path="sub/.git", content="gitdir: ../evil\n", make_folders=True),
        call("terminal", command="git status"),
        say("done"),
    ]
    lead = Agent("lead", tools=[read, write, edit, terminal])
    policy = ["allow write", "allow edit", "allow terminal(git status)"]
    outcome = await remit.run(
        lead, "go", model=ScriptedModel(steps), policy=policy, workspace=shell.workspace
    )
    assert [entry.success for entry in outcome.calls] == [False, True, False, False, False, True, False, True]
    assert not (tmp_path / "PWNED").exists()
