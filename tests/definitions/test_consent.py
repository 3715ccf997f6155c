"""The list of trusted folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import remit.definitions.places as places
from remit import Limits, UsageError, run_sync
from remit.definitions import build, distrust, is_trusted, load_settings, trust, trusted_folders
from remit.definitions.consent import list_path
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


def repository(path: Path) -> Path:
    (path / ".git").mkdir(parents=True)
    return path


@pytest.mark.parametrize("mark", ["\n", "\r", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\x1b"])
def test_a_folder_whose_name_ends_lines_is_not_put_on_the_list(tmp_path: Path, mark: str) -> None:
    """No name of a folder makes two lines of the list, so that a clone cannot have other folders trusted."""
    inner = repository(tmp_path / f"x{mark}" / tmp_path.name)
    home = tmp_path / "home"
    with pytest.raises(UsageError, match="cannot be on the list") as caught:
        trust(inner, home=home, environ={})
    assert str(caught.value).isprintable()
    assert not list_path(home, {}).exists()


@pytest.mark.parametrize("mark", ["\x0b", "\f", "\x85", "\u2028"])
def test_the_list_is_read_as_it_is_written(tmp_path: Path, mark: str) -> None:
    """A line ends at a line feed and nowhere else, and blanks belong to the name."""
    path = list_path(tmp_path, {})
    path.parent.mkdir(parents=True)
    path.write_text(f"{tmp_path}/a{mark}{tmp_path}/b\n{tmp_path}/c \n", encoding="utf-8", newline="\n")
    assert [is_trusted(tmp_path / name, tmp_path, {}) for name in ("a", "b", "c")] == [False] * 3
    assert is_trusted(tmp_path / f"a{mark}{tmp_path}" / "b", tmp_path, {})
    assert is_trusted(tmp_path / "c ", tmp_path, {})


def test_a_blank_at_the_end_of_a_name_trusts_no_other_folder(tmp_path: Path) -> None:
    """A folder whose name differs from another's only by a blank is refused."""
    (tmp_path / "proj").mkdir()
    with pytest.raises(UsageError, match="blanks at its end"):
        trust(repository(tmp_path / "proj "), home=tmp_path / "home", environ={})
    assert not is_trusted(tmp_path / "proj", tmp_path / "home", {})


def test_a_link_in_the_place_of_a_trusted_folder_trusts_nothing(tmp_path: Path) -> None:
    """Where a trusted folder was, or one above it, somebody may put a link: what it leads to is not trusted."""
    home, other = tmp_path / "home", tmp_path / "other" / "sub"
    other.mkdir(parents=True)
    for gone in (repository(tmp_path / "mine"), repository(tmp_path / "up" / "sub")):
        trust(gone, home=home, environ={})
        (gone / ".git").rmdir()
        gone.rmdir()
    (tmp_path / "mine").symlink_to(tmp_path)
    (tmp_path / "up").rmdir()
    (tmp_path / "up").symlink_to(tmp_path / "other")
    assert not is_trusted(tmp_path / "anything", home, {})
    assert not is_trusted(other, home, {})
    assert distrust(tmp_path / "mine", home=home, environ={})
    assert trusted_folders(home, {}) == [tmp_path / "up" / "sub"]


def test_a_folder_whose_name_is_no_text_is_refused_in_words(tmp_path: Path) -> None:
    """A name that is not UTF-8 is refused, and nothing is left beside the list."""
    home, good = tmp_path / "home", repository(tmp_path / "good")
    trust(good, home=home, environ={})
    bad = os.fsdecode(os.fsencode(tmp_path) + b"/b\xff")
    try:
        repository(Path(bad))
    except OSError:
        pytest.skip("this file system has no such names")
    with pytest.raises(UsageError, match="cannot be on the list"):
        trust(bad, home=home, environ={})
    assert [left.name for left in list_path(home, {}).parent.iterdir()] == ["trusted-folders"]
    assert trusted_folders(home, {}) == [good]


def test_a_list_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    """Where the list cannot be, the user reads why."""
    (tmp_path / ".config").write_text("")
    with pytest.raises(UsageError, match="cannot be written"):
        trust(repository(tmp_path / "a"), home=tmp_path, environ={})


def test_notes_in_the_list_stay(tmp_path: Path) -> None:
    """Trusting and taking trust back change one line; what the user has written stays."""
    path = list_path(tmp_path, {})
    path.parent.mkdir(parents=True)
    path.write_text(f"# mine\n\n~/src\n{tmp_path / 'x'}")
    trust(repository(tmp_path / "a"), home=tmp_path, environ={})
    assert distrust(tmp_path / "x", home=tmp_path, environ={})
    assert path.read_text() == f"# mine\n\n~/src\n{tmp_path / 'a'}\n"
    assert is_trusted(tmp_path / "src" / "b", tmp_path, {})


def test_a_strangers_repository_above_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A .git that somebody else has put above a folder neither widens what is trusted nor what is read."""
    shared = repository(tmp_path / "shared")
    mine = shared / "me" / "proj"
    mine.mkdir(parents=True)
    real = places.owner

    def owner(path: Path) -> int:
        return 54_321 if path == shared / ".git" else real(path)

    monkeypatch.setattr(places, "owner", owner)
    assert trust(mine, home=tmp_path / "home", environ={}) == mine
    assert not is_trusted(shared, tmp_path / "home", {})
    assert load_settings(mine, home=tmp_path / "home", environ={}).project == mine


def test_a_repository_is_whole_for_whoever_works_in_anothers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where folder and .git belong to the same user, it is a repository for others too, as root in a container is."""
    inner = repository(tmp_path / "repo") / "pkg"
    inner.mkdir()
    monkeypatch.setattr(places, "owner", lambda path: 54_321)
    assert trust(inner, home=tmp_path / "home", environ={}) == tmp_path / "repo"


def test_what_holds_the_home_is_no_project(tmp_path: Path) -> None:
    """Trusting a folder above one's home would trust everything in it, and is refused."""
    with pytest.raises(UsageError, match="no project"):
        trust(repository(tmp_path / "all"), home=tmp_path / "all" / "me", environ={})
