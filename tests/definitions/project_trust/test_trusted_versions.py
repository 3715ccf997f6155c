"""Trust in the content of a project's files."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import remit.definitions.agent_files.search_paths as search_paths
import remit.definitions.project_trust.trusted_versions as trusted_versions
from remit import Limits, UsageError, run_sync
from remit.definitions import build, distrust, is_trusted, load_settings, trust, trusted_folders
from remit.testing import ScriptedModel, call, say

SERVER = '[mcp.servers.docs]\ncommand = "docs"\nenv = {TOKEN = "s3cr3t"}\n'
AGENT = """\
---
name: helper
description: Helps.
tools: read, grep
---
Help.
"""


def repository(path: Path) -> Path:
    (path / ".git").mkdir(parents=True)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path, home: Path) -> Path:
    """A repository that the user trusts."""
    made = repository(tmp_path / "project")
    (made / "pkg").mkdir()
    (made / ".remit/agents").mkdir(parents=True)
    (made / ".remit/agents/helper.md").write_text(AGENT)
    (made / "remit.toml").write_text('policy = ["allow read"]\n' + SERVER)
    trust(made, home=home, environ={})
    return made


def test_trust_and_distrust_a_repository(tmp_path: Path) -> None:
    """Trusting a folder trusts its repository with its subfolders; `distrust` ends that."""
    home, project = tmp_path / "home", repository(tmp_path / "project")
    (project / "pkg").mkdir()
    assert not is_trusted(project, home, {})
    assert trust(project / "pkg", home=home, environ={}) == project
    assert trust(project, home=home, environ={}) == project
    assert trusted_folders(home, {}) == [project]
    assert is_trusted(project / "pkg", home, {})
    assert not is_trusted(repository(tmp_path / "project-2"), home, {})
    assert distrust(project, home=home, environ={})
    assert not distrust(project, home=home, environ={})
    assert trusted_folders(home, {}) == []
    assert not is_trusted(project, home, {})


CHANGES = {
    "a server": ("remit.toml", "docs", "evil"),
    "what a server is given": ("remit.toml", "s3cr3t", "another"),
    "a rule": ("remit.toml", "allow read", "allow terminal"),
    "a rule that narrows": ("remit.toml", "policy", 'sandbox = "read-only"\npolicy'),
    "a path": ("remit.toml", "policy", 'agents.paths = ["more"]\npolicy'),
    "a limit": ("remit.toml", "policy", "limits.usd = 100\npolicy"),
    "a model": ("remit.toml", "policy", 'model = "http://evil.example"\npolicy'),
    "a tool": (".remit/agents/helper.md", "grep", "terminal"),
    "a rule of an agent": (".remit/agents/helper.md", "tools", 'policy: ["allow terminal"]\ntools'),
    "a server of an agent": (".remit/agents/helper.md", "tools", "mcpServers:\n  x: {command: evil}\ntools"),
    "a sandbox of an agent": (".remit/agents/helper.md", "tools", "sandbox: read-only\ntools"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_that_runs_code_or_widens_ends_trust(project: Path, home: Path, what: str) -> None:
    """Servers, rules, sandboxes, tool lists, paths, limits and models are trusted in one version, and not once they
    change.
    """
    name, old, new = CHANGES[what]
    before = (project / name).read_text()
    assert is_trusted(project / "pkg", home, {})
    (project / name).write_text(before.replace(old, new))
    found = load_settings(project, home=home, environ={})
    assert not found.trusted
    assert found.servers == {}
    assert found.trusted_before is not None
    assert set(found.trusted_before) != set(found.asks)
    (project / name).write_text(before)
    assert load_settings(project, home=home, environ={}).trusted


HARMLESS = {
    "instructions": (".remit/agents/helper.md", "Help.\n", "Help with everything, at length.\n"),
    "a description": (".remit/agents/helper.md", "Helps.", "Helps a lot."),
    "the order of keys": (
        ".remit/agents/helper.md",
        "description: Helps.\ntools: read, grep",
        "tools: read, grep\ndescription: x",
    ),
    "a comment": ("remit.toml", "policy", "# mine\n\npolicy"),
    "another spelling": (
        "remit.toml",
        '[mcp.servers.docs]\ncommand = "docs"',
        "[mcp.servers.docs]\ncommand = 'docs'",
    ),
}


@pytest.mark.parametrize("what", HARMLESS)
def test_editing_texts_keeps_trust(project: Path, home: Path, what: str) -> None:
    """Instructions, descriptions and the formatting of a file are not part of the trusted version."""
    name, old, new = HARMLESS[what]
    text = (project / name).read_text()
    assert old in text
    (project / name).write_text(text.replace(old, new))
    assert is_trusted(project, home, {})


def test_adding_an_agent_with_only_instructions_keeps_trust(project: Path, home: Path) -> None:
    """A new agent with only instructions is no change; one that replaces another agent is."""
    new = project / ".remit/agents/new.md"
    new.write_text("---\nname: new\ndescription: New.\n---\nBe new.\n")
    assert is_trusted(project, home, {})
    (home / ".remit/agents").mkdir(parents=True)
    (home / ".remit/agents/new.md").write_text("---\nname: new\ntools: read\n---\nMine.\n")
    assert not is_trusted(project, home, {})
    (home / ".remit/agents/new.md").unlink()
    (project / "pkg/.remit/agents").mkdir(parents=True)
    (project / "pkg/.remit/agents/helper.md").write_text(AGENT.replace("tools: read, grep\n", ""))
    assert is_trusted(project, home, {})
    assert not is_trusted(project / "pkg", home, {})


def test_settings_of_a_subfolder_are_another_version(project: Path, home: Path) -> None:
    """The settings of a subfolder are another version, whether they add, narrow less or only hide others."""
    for text in (SERVER.replace("docs", "evil"), "", "# tool.remit"):
        (project / "pkg/remit.toml").write_text(text)
        found = load_settings(project / "pkg", home=home, environ={})
        assert (found.trusted, found.servers) == (False, {})
        assert is_trusted(project, home, {})
    trust(project / "pkg", home=home, environ={})
    assert is_trusted(project / "pkg", home, {})
    assert is_trusted(project, home, {})


def test_several_versions_are_remembered(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switching back to another branch needs no new trust; only the newest versions are kept."""
    texts = [(project / "remit.toml").read_text(), *(f"limits.usd = {n}\n" for n in range(1, 4))]
    for text in texts[1:]:
        (project / "remit.toml").write_text(text)
        assert not is_trusted(project, home, {})
        trust(project, home=home, environ={})
    for text in texts:
        (project / "remit.toml").write_text(text)
        assert is_trusted(project, home, {})
    monkeypatch.setattr(trusted_versions, "MOST_VERSIONS", 2)
    trust(project, home=home, environ={})
    (project / "remit.toml").write_text(texts[0])
    assert not is_trusted(project, home, {})
    (project / "remit.toml").write_text(texts[3])
    assert is_trusted(project, home, {})


def test_the_difference_is_to_the_nearest_version(project: Path, home: Path) -> None:
    """The present version is compared with the trusted version that has most in common with it."""
    first = (project / "remit.toml").read_text()
    (project / "remit.toml").write_text("limits.usd = 1\n")
    trust(project, home=home, environ={})
    (project / "remit.toml").write_text(first.replace("allow read", "allow terminal"))
    found = load_settings(project, home=home, environ={})
    assert found.trusted_before is not None
    assert set(found.trusted_before) - set(found.asks) == {'policy = "allow read"'}
    assert set(found.asks) - set(found.trusted_before) == {'policy = "allow terminal"'}


def test_a_repository_below_a_trusted_one_is_not_trusted(project: Path, home: Path) -> None:
    """A clone inside a trusted repository has its own root and inherits no trust, even with identical files."""
    clone = repository(project / "vendor/clone")
    (clone / "remit.toml").write_text((project / "remit.toml").read_text())
    found = load_settings(clone, home=home, environ={})
    assert (found.project, found.trusted, found.trusted_before, found.servers) == (clone, False, None, {})
    assert is_trusted(project / "vendor", home, {})


def test_servers_of_mcp_json_are_trusted_as_they_are_written(project: Path, home: Path) -> None:
    """A variable's value may change; another variable or another command is another version."""

    def write(command: str, variable: str) -> None:
        server = {"command": command, "env": {"KEY": f"${{{variable}}}"}}
        (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"x": server}}))

    write("good", "A_KEY")
    trust(project, home=home, environ={"A_KEY": "1"})
    assert is_trusted(project, home, {"A_KEY": "2"})
    write("good", "OTHER")
    assert not is_trusted(project, home, {"OTHER": "1"})
    write("evil", "A_KEY")
    assert not is_trusted(project, home, {"A_KEY": "1"})


def test_trust_covers_agents_paths(project: Path, home: Path) -> None:
    """Files in folders of agents.paths count like files in the usual places."""
    (project / "remit.toml").write_text('agents.paths = ["team"]\n')
    (project / "team").mkdir()
    trust(project, home=home, environ={})
    (project / "team/new.md").write_text(AGENT.replace("helper", "new"))
    assert not is_trusted(project, home, {})


def test_agents_that_change_after_the_comparison_are_refused(project: Path, home: Path) -> None:
    """Agents that are read after the comparison and differ from it are refused."""
    found = load_settings(project, home=home, environ={})
    (project / ".remit/agents/helper.md").write_text(AGENT.replace("grep", "terminal"))
    with pytest.raises(UsageError, match="changed while remit was starting"):
        found.load_agents()


def test_trust_records_contain_no_secrets(project: Path, home: Path) -> None:
    """Values of env and headers are stored as a short hash, in a file that only the user can read."""
    (record,) = trusted_versions.folder_of(home, {}).iterdir()
    assert "s3cr3t" not in record.read_text()
    assert record.stat().st_mode & 0o077 == 0


def test_xdg_config_home_is_followed(tmp_path: Path) -> None:
    """The records are in the user's configuration folder, wherever that is."""
    environ, project = {"XDG_CONFIG_HOME": str(tmp_path / "xdg")}, repository(tmp_path / "project")
    trust(project, home=tmp_path / "home", environ=environ)
    assert is_trusted(project, tmp_path / "home", environ)
    assert not is_trusted(project, tmp_path / "home", {})


def test_the_former_list_of_folders_is_not_read(tmp_path: Path) -> None:
    """A list of folders from before trust covered content is not read."""
    (tmp_path / "home/.config/remit").mkdir(parents=True)
    project = repository(tmp_path / "project")
    (tmp_path / "home/.config/remit/trusted-folders").write_text(f"{project}\n")
    assert not is_trusted(project, tmp_path / "home", {})


def test_a_damaged_record_is_reported(project: Path, home: Path) -> None:
    """An unreadable record trusts nothing, and the error names its file."""
    (record,) = trusted_versions.folder_of(home, {}).iterdir()
    record.write_text("{")
    with pytest.raises(UsageError, match="is damaged"):
        is_trusted(project, home, {})


def test_a_link_in_place_of_a_trusted_folder_is_not_trusted(tmp_path: Path) -> None:
    """A symlink in place of a trusted folder does not make its target trusted."""
    home, other, mine = tmp_path / "home", repository(tmp_path / "other"), repository(tmp_path / "mine")
    trust(mine, home=home, environ={})
    (mine / ".git").rmdir()
    mine.rmdir()
    mine.symlink_to(other)
    assert not is_trusted(mine, home, {})
    assert distrust(mine, home=home, environ={})
    assert trusted_folders(home, {}) == []


@pytest.mark.parametrize("name", [b"b\xff", b"a\nb", b"blank ", b"\x1b[2J"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: bytes) -> None:
    """Names with line breaks, control characters or invalid UTF-8 are trusted for that folder only."""
    project = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
    try:
        repository(project)
    except OSError:
        pytest.skip("this file system has no such names")
    trust(project, home=tmp_path / "home", environ={})
    assert is_trusted(project, tmp_path / "home", {})
    assert not is_trusted(repository(tmp_path / "blank"), tmp_path / "home", {})


def test_a_home_folder_is_not_a_project(tmp_path: Path) -> None:
    """Trusting the home folder, its parents or the root is refused."""
    (tmp_path / "all/me").mkdir(parents=True)
    for folder in (tmp_path / "all/me", repository(tmp_path / "all/.."), tmp_path.anchor):
        with pytest.raises(UsageError, match="not a project"):
            trust(folder, home=tmp_path / "all/me", environ={})


@pytest.mark.parametrize("blank", ["\t", "\u00a0", "\u2003", "  "])
def test_whitespace_does_not_hide_an_allowing_rule(tmp_path: Path, blank: str) -> None:
    """An untrusted file cannot allow anything with a spelling that only the policy understands."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "remit.toml").write_text(f'policy = ["allow{blank}terminal", "deny{blank}write"]\n')
    folder = tmp_path / ".remit" / "agents"
    folder.mkdir(parents=True)
    (folder / "evil.md").write_text(f'---\nname: evil\npolicy: ["allow{blank}terminal"]\n---\nDo.\n')
    found = load_settings(tmp_path, environ={}, home=tmp_path / "home")
    assert found.policy == ["deny write"]
    assert any("allow" in aside.key for aside in found.untrusted)
    loaded = found.load_agents()
    agent = build(loaded.agents["evil"], loaded, surroundings=found.surroundings())
    model = ScriptedModel([call("terminal", command="touch owned"), say("done")])
    outcome = run_sync(agent, "go", model=model, workspace=tmp_path)
    assert outcome.messages[2].text.startswith("Denied")
    assert not (tmp_path / "owned").exists()


def test_an_untrusted_project_cannot_raise_limits(tmp_path: Path) -> None:
    """Limits for each run are the user's too: turns are model calls, and model calls cost money."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "remit.toml").write_text(
        'limits = {turns = 100000, call_seconds = "unlimited", result_chars = 9999999, usd = 1}\n'
    )
    found = load_settings(tmp_path, environ={}, home=tmp_path / "home")
    assert found.limits == Limits(usd=1)
    assert {a.key for a in found.untrusted} == {"limits.turns", "limits.call_seconds", "limits.result_chars"}


def test_an_unwritable_record_is_reported(tmp_path: Path) -> None:
    """If the record cannot be written, the error says why."""
    (tmp_path / ".config").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        trust(repository(tmp_path / "a"), home=tmp_path, environ={})


def test_another_users_repository_above_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A .git that another user created above a folder extends neither trust nor the search for files."""
    shared = repository(tmp_path / "shared")
    mine = shared / "me" / "proj"
    mine.mkdir(parents=True)
    real = search_paths.owner

    def owner(path: Path) -> int:
        return 54_321 if path == shared / ".git" else real(path)

    monkeypatch.setattr(search_paths, "owner", owner)
    assert trust(mine, home=tmp_path / "home", environ={}) == mine
    assert not is_trusted(shared, tmp_path / "home", {})
    assert load_settings(mine, home=tmp_path / "home", environ={}).project == mine


def test_a_repository_of_another_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If folder and .git have the same owner, it is a repository for other users too, such as root in a container."""
    inner = repository(tmp_path / "repo") / "pkg"
    inner.mkdir()
    monkeypatch.setattr(search_paths, "owner", lambda path: 54_321)
    assert trust(inner, home=tmp_path / "home", environ={}) == tmp_path / "repo"
