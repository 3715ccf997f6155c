"""The list of trusted folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit import Limits, UsageError, run_sync
from remit.definitions import build, distrust, is_trusted, load_settings, trust, trusted_folders
from remit.testing import ScriptedModel, call, say


def test_trust_is_given_to_a_repository_and_taken_back(tmp_path: Path) -> None:
    """Trusting a folder trusts its repository, with what is below; taking it back ends that."""
    home, project = tmp_path / "home", tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / "pkg").mkdir()
    assert not is_trusted(project, home, {})
    assert trust(project / "pkg", home=home, environ={}) == project
    assert trust(project, home=home, environ={}) == project
    assert trusted_folders(home, {}) == [project]
    assert is_trusted(project / "pkg", home, {})
    assert not is_trusted(tmp_path / "project-2", home, {})
    assert distrust(project, home=home, environ={})
    assert not distrust(project, home=home, environ={})
    assert trusted_folders(home, {}) == []


def test_the_list_may_be_written_by_hand(tmp_path: Path) -> None:
    """Comments and empty lines are passed over; a relative folder trusts nothing; XDG_CONFIG_HOME is followed."""
    config = tmp_path / "xdg"
    (config / "remit").mkdir(parents=True)
    (config / "remit" / "trusted-folders").write_text(f"# mine\n\n{tmp_path / 'a'}\n.\n")
    environ = {"XDG_CONFIG_HOME": str(config)}
    assert trusted_folders(tmp_path, environ) == [tmp_path / "a"]
    assert is_trusted(tmp_path / "a" / "b", tmp_path, environ)
    assert not is_trusted(Path.cwd(), tmp_path, environ)


def test_a_link_into_a_trusted_folder_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    """A name inside a trusted folder that leads elsewhere is not trusted."""
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    (tmp_path / "good" / "door").symlink_to(tmp_path / "bad")
    home = tmp_path / "home"
    trust(tmp_path / "good", home=home, environ={})
    assert not is_trusted(tmp_path / "good" / "door", home, {})


def test_a_home_folder_is_no_project(tmp_path: Path) -> None:
    """Trusting one's home, or everything, is refused."""
    with pytest.raises(UsageError, match="no project"):
        trust(tmp_path, home=tmp_path, environ={})
    with pytest.raises(UsageError, match="no project"):
        trust(tmp_path.anchor, home=tmp_path, environ={})


@pytest.mark.parametrize("blank", ["\t", "\u00a0", "\u2003", "  "])
def test_a_rule_allows_however_its_blanks_are_written(tmp_path: Path, blank: str) -> None:
    """An untrusted file cannot allow anything by writing the rule in a way that only the policy understands."""
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


def test_an_untrusted_project_raises_no_limit_of_any_kind(tmp_path: Path) -> None:
    """Limits that each run has for itself are the user's too: turns are model calls, and model calls are money."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "remit.toml").write_text(
        'limits = {turns = 100000, call_seconds = "unlimited", result_chars = 9999999, usd = 1}\n'
    )
    found = load_settings(tmp_path, environ={}, home=tmp_path / "home")
    assert found.limits == Limits(usd=1)
    assert {a.key for a in found.untrusted} == {"limits.turns", "limits.call_seconds", "limits.result_chars"}
