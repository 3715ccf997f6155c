"""The list of trusted folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit import UsageError
from remit.definitions import distrust, is_trusted, trust, trusted_folders


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
