"""`[secrets.NAME]` in settings: bounded patterns for secrets that the journal leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.definitions import Settings, SettingsError, load_settings
from remit.history.secret_patterns import SecretPattern

ACME = '[secrets.acme]\nprefix = "acme_"\nleast = 24\nchars = "hex"\n'


def settings(folder: Path, toml: str, *, user: str = "", trusted: bool = True) -> Settings:
    project, config = folder / "project", folder / "home" / ".config" / "remit"
    for path in (project / ".git", config):
        path.mkdir(parents=True, exist_ok=True)
    (project / "remit.toml").write_text(toml, encoding="utf-8")
    (config / "config.toml").write_text(user, encoding="utf-8")
    environ = {"REMIT_TRUST": "1"} if trusted else {}
    return load_settings(project, environ=environ, home=folder / "home")


def test_a_trusted_project_adds_patterns(tmp_path: Path) -> None:
    """A project adds to the user's patterns, and each pattern has an origin."""
    found = settings(tmp_path, ACME, user='[secrets.own]\nprefix = "own-"\n')
    assert found.secrets == (SecretPattern("own-"), SecretPattern("acme_", 24, "hex"))
    assert found.origin("secrets.acme") == "remit.toml:1"
    rows = {key: value for key, value, _ in found.rows()}
    assert rows["secrets.acme"] == "acme_ and at least 24 of hex"


def test_patterns_of_an_untrusted_project_are_ignored(tmp_path: Path) -> None:
    """Otherwise an untrusted project could hide its actions from the journal."""
    found = settings(tmp_path, ACME, trusted=False)
    assert found.secrets == ()
    assert [aside.key for aside in found.untrusted] == ["secrets.acme"]


@pytest.mark.parametrize(
    ("toml", "words"),
    [
        ('[secrets]\nacme = "acme_"', "secrets.acme must be a table"),
        ("[secrets.acme]\nleast = 20", "secrets.acme needs a prefix"),
        (
            '[secrets.acme]\nprefix = "acme_"\npattern = "(a+)+$"',
            "secrets.acme has an unknown key 'pattern'; valid keys: prefix",
        ),
        ('[secrets.acme]\nprefix = "(a+)+$"', "secrets.acme cannot be used: prefix must be 3 to 32"),
        ('[secrets.acme]\nprefix = "acme_"\nleast = 1', "least must be a number from 16 to 512"),
        (
            "".join(f'[secrets.a{n}]\nprefix = "a{n}_x"\n' for n in range(101)),
            "has 101 patterns; at most 100 are allowed",
        ),
    ],
)
def test_an_invalid_pattern_is_an_error_with_its_line(tmp_path: Path, toml: str, words: str) -> None:
    """A pattern has a prefix, characters and a length, each with bounds; regular expressions are not supported."""
    with pytest.raises(SettingsError) as caught:
        settings(tmp_path, toml)
    (problem,) = caught.value.problems
    assert words in str(problem)
    assert str(problem).startswith("remit.toml:")
