"""Model prices in settings: who may set them, and which are invalid."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.definitions import Settings, SettingsError, load_settings, trust
from remit.types.ports import Price

PRICED = '[models."ollama:llama3"]\nprice = {input = 0.5, output = 1.5}\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "home" / ".config" / "remit").mkdir(parents=True)
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


def settings(project: Path, toml: str = "", *, user: str = "") -> Settings:
    (project / "remit.toml").write_text(toml, encoding="utf-8")
    home = project.parent / "home"
    (home / ".config" / "remit" / "config.toml").write_text(user, encoding="utf-8")
    return load_settings(project, environ={}, home=home)


def test_the_user_sets_a_price(project: Path) -> None:
    """A price in the user's settings is read in dollars per million tokens; aliases are unchanged."""
    found = settings(project, user=f'[models]\nfast = "ollama:llama3"\n{PRICED}')
    assert found.prices == {"ollama:llama3": Price(0.5, 1.5)}
    assert found.models == {"fast": "ollama:llama3"}
    shown = "$0.5 input, $1.5 output, per million tokens"
    assert ("models.ollama:llama3.price", shown, "~/.config/remit/config.toml:4") in list(found.rows())


def test_the_name_may_be_written_in_any_form(project: Path) -> None:
    """A price applies to the model that its name means: `ollama/llama3` is `ollama:llama3`, and `sonnet` is a model
    too.
    """
    for written, meant in (("ollama/llama3", "ollama:llama3"), ("sonnet", "anthropic:claude-sonnet-5")):
        user = PRICED.replace("ollama:llama3", written)
        assert settings(project, user=user).prices == {meant: Price(0.5, 1.5)}


def test_an_untrusted_project_cannot_set_a_price(project: Path) -> None:
    """An untrusted project cannot set a price, lower or higher: it would change how `usd` limits are counted."""
    found = settings(project, PRICED, user=PRICED.replace("0.5", "3"))
    assert found.prices == {"ollama:llama3": Price(3, 1.5)}
    (aside,) = found.untrusted
    assert (aside.key, aside.origin) == ("models.ollama:llama3.price", "remit.toml:2")
    assert "remit trust" in str(aside)
    assert settings(project, PRICED).prices == {}


def test_a_trusted_project_sets_a_price(project: Path) -> None:
    """A trusted project sets a price; a price that changes afterwards is ignored."""
    settings(project, PRICED)
    trust(project, home=project.parent / "home", environ={})
    assert settings(project, PRICED).prices == {"ollama:llama3": Price(0.5, 1.5)}
    changed = settings(project, PRICED.replace("0.5", "0"))
    assert (changed.prices, changed.trusted) == ({}, False)
    assert 'models.ollama:llama3.price = {"input": 0.0, "output": 1.5}' in changed.asks


@pytest.mark.parametrize(
    "price",
    [
        "3",
        "{input = 1}",
        "{input = -1, output = 1}",
        "{input = nan, output = 1}",
        "{input = inf, output = 1}",
        "{input = 'x', output = 1}",
        "{input = true, output = 1}",
        "{input = 1, output = 1, cached = 1}",
    ],
)
def test_an_invalid_price_is_an_error(project: Path, price: str) -> None:
    """An invalid price is an error with its line and the correct form."""
    with pytest.raises(SettingsError) as caught:
        settings(project, user=f"[models.m]\nprice = {price}\n")
    assert str(caught.value) == (
        "~/.config/remit/config.toml:2: models.m.price must have a number of at least 0 for each of input and output:"
        " price = {input = 0.5, output = 1.5}, in US dollars per million tokens."
    )


def test_an_unknown_key_of_a_model(project: Path) -> None:
    """A model's table may contain only a price."""
    with pytest.raises(
        SettingsError, match=r"config.toml:2: models.m has an unknown key 'prize'; valid keys: price"
    ):
        settings(project, user="[models.m]\nprize = {input = 1, output = 1}\n")
