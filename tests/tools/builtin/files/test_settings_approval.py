"""`write` and `edit` change remit's settings files only if a person approves that change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest
from cagebench import use
from settingsbench import FILES, followed, make_project
from shellbench import Shell

import remit.tools.settings_files as settings_files
from remit import Agent, ApprovalRequest, Outcome, allow, deny, run_sync
from remit.testing import ScriptedModel, call, say
from remit.testing.scripted import Answer
from remit.tools.builtin.files.read_write_edit import edit, read, write
from remit.tools.builtin.sandbox.protected_files import changes_settings
from remit.tools.policy import Decision
from remit.tools.policy_rules import SETTINGS

NO = deny("no")
ALLOWED = ["allow write", "allow edit", "allow read"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    made = tmp_path / "ws"
    make_project(made)
    (made / "door").symlink_to("sub")
    (made / "plain.txt").symlink_to("pkg/remit.toml")
    return made


def go(
    project: Path,
    *steps: Answer,
    answer: Decision | None = NO,
    sandbox: Literal["open", "workspace-write"] = "open",
) -> tuple[Outcome, list[str]]:
    """Run calls in order, allowed by rules; returns the outcome and the requests to the person. None: no approver."""
    asked: list[str] = []

    async def person(request: ApprovalRequest) -> Decision:
        assert SETTINGS in request.rules
        assert request.preview
        asked.append(str(request.args["path"]))
        return answer or NO

    outcome = run_sync(
        Agent("a", tools=[read, write, edit]),
        "go",
        model=ScriptedModel([*steps, say("done")]),
        workspace=project,
        policy=ALLOWED,
        approver=person if answer else None,
        sandbox=sandbox,
    )
    return outcome, asked


def read_and_write(path: str, content: str = "x") -> tuple[Answer, Answer]:
    return call("read", path=path), call("write", path=path, content=content, make_folders=True)


SETTINGS_PATHS = [
    "remit.toml",
    "sub/remit.toml",
    "sub/Remit.TOML",
    "new/deep/remit.toml",
    "sub/.mcp.json",
    ".remit/agents/new.md",
    "sub/.claude/agents/new.md",
    ".github/agents/new.agent.md",
    "sub/.GitHub/Agents/new.md",
    ".cursor/agents/new.md",
    "sub/.kiro/agents/new.json",
    "opencode.json",
    "sub/opencode.jsonc",
    "sub/.opencode/opencode.json",
    "oc/texts/r.txt",
    "oc/texts/s.txt",
    "ki/texts/k.md",
    "texts/t.md",
    "sub/.roomodes",
    "team/new.md",
    "late/new.md",
    "prompts/linked.md",
    "tools/server.sh",
    "door/remit.toml",
    "plain.txt",
    "sub/../pkg/remit.toml",
]


@pytest.mark.parametrize("path", SETTINGS_PATHS)
def test_a_rule_that_allows_writing_does_not_allow_settings(project: Path, path: str) -> None:
    """Whatever the rules allow, a person is asked about every change of settings, and a denial keeps them unchanged."""
    before = {p: p.read_bytes() for p in project.rglob("*") if p.is_file()}
    outcome, asked = go(project, *read_and_write(path))
    assert asked == [path]
    assert outcome.messages[4].text.startswith("Denied: no")
    assert {p: p.read_bytes() for p in project.rglob("*") if p.is_file()} == before
    assert not (project / "late").exists()


@pytest.mark.parametrize("sandbox", ["open", "workspace-write"])
def test_a_change_that_a_person_approves_is_made(
    project: Path, sandbox: Literal["open", "workspace-write"]
) -> None:
    """An approved change is made, also in a sandbox that can write."""
    _, asked = go(project, *read_and_write("sub/remit.toml", "# mine\n"), answer=allow(), sandbox=sandbox)
    assert asked == ["sub/remit.toml"]
    assert (project / "sub/remit.toml").read_text() == "# mine\n"


@pytest.mark.parametrize("scope", ["run", "tree"])
def test_an_approval_does_not_cover_the_next_change(project: Path, scope: Literal["run", "tree"]) -> None:
    """Allowing the tool for the run or the tree allows one change of settings; the next one is asked about again."""
    steps = (*read_and_write("sub/remit.toml"), *read_and_write("sub/.mcp.json"))
    _, asked = go(project, *steps, answer=allow(scope))
    assert asked == ["sub/remit.toml", "sub/.mcp.json"]


def test_without_an_approver_settings_cannot_be_changed(project: Path) -> None:
    """Without an approver, a change of settings is denied even if a rule allows writing."""
    outcome, _ = go(project, *read_and_write("sub/remit.toml"), answer=None)
    assert outcome.messages[4].text.startswith("Denied")
    assert not (project / "sub/remit.toml").exists()


@pytest.mark.parametrize(
    ("path", "old", "new", "is_asked"),
    [
        ("lib/pyproject.toml", '"lib"', '"lib2"', False),
        ("lib/pyproject.toml", '"lib"\n', '"lib"\n[tool.remit]\nsandbox = "open"\n', True),
        ("lib/pyproject.toml", '"lib"', '"lib" # tool.remit', True),
        ("table/pyproject.toml", '"table"', '"table2"', False),
        ("table/pyproject.toml", "read-only", "open", True),
        ("table/pyproject.toml", "[tool.remit]", "[tool.remitted]", True),
        ("table/pyproject.toml", "[project]", "[project", True),
        ("sub/code.py", "1", "2", False),
    ],
)
def test_pyproject_is_asked_about_only_for_its_table(
    project: Path, path: str, old: str, new: str, is_asked: bool
) -> None:
    """Other tables of pyproject.toml are edited without asking; a change of [tool.remit] needs a person."""
    change = call("edit", path=path, old_text=old, new_text=new)
    _, asked = go(project, call("read", path=path), change)
    assert asked == [path] * is_asked
    assert ((project / path).read_text() != FILES[path]) is not is_asked


def test_an_approval_is_for_one_path(project: Path) -> None:
    """If a path leads to other settings than the approved ones, nothing is written."""
    shell = Shell(project)
    assert not use(write, shell, path="sub/remit.toml", content="x").ok
    assert not use(write, shell, path="sub/remit.toml", content="x", approved="sub/.mcp.json").ok
    assert use(write, shell, path="sub/remit.toml", content="x", approved="sub/remit.toml").ok


def test_every_file_that_is_read_is_settings(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`write` asks about every file that remit opens to find its settings and agents, in any folder."""
    (project / "pkg/.mcp.json").write_text('{"mcpServers": {}}')
    (project / "sub/.opencode/agent").mkdir(parents=True)
    (project / "sub/.opencode/agent/x.md").write_text(FILES["team/helper.md"])
    opened, real = set[Path](), os.open

    def noting(path: str | Path, *args: int, **more: int) -> int:
        opened.add(Path(path).resolve())
        return real(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", noting)
        followed(project, tmp_path / "home")
    # Another process would not have read them.
    monkeypatch.setattr(settings_files, "_remembered", {})
    inside = {path for path in opened if path.is_relative_to(project)}
    names = {path.name for path in inside}
    assert names >= {"remit.toml", ".mcp.json", "helper.md", "linked.md", "x.md"}
    assert names >= {"opencode.json", "r.txt", "s.txt", "k.json", "k.md", ".roomodes"}
    for path in inside:
        old = path.read_bytes()
        changed = changes_settings(
            project, path.relative_to(project).parts, old, old + b"\n[tool.remit.limits]\n"
        )
        assert changed, path
