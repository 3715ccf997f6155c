"""docs/how-to/agent-files.md and settings.md: their files load without a problem, and every key they name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from remit.definitions import build, load, load_settings
from remit.definitions.agent_files.keys import VOCABULARY
from remit.definitions.settings_layer import KEYS
from remit.definitions.syntax.header_lines import plain_key

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
PAGE = (HOW_TO / "agent-files.md").read_text(encoding="utf-8")
SETTINGS = (HOW_TO / "settings.md").read_text(encoding="utf-8")


def blocks(language: str, page: str = PAGE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def test_its_agent_files_load(tmp_path: Path) -> None:
    """Every agent file on the page loads without a problem, and the agents can be built."""
    for number, text in enumerate(blocks("markdown")):
        (tmp_path / f"{number}.md").write_text(text, encoding="utf-8")
    loaded = load(tmp_path)
    assert (sorted(loaded.agents), loaded.problems) == (["explorer", "lead"], [])
    assert [child.name for child in build(loaded.agents["lead"], loaded).subagents] == ["explorer"]


def test_its_settings_load(tmp_path: Path) -> None:
    """Every remit.toml on the page is read completely, and the long one has every key."""
    (tmp_path / "team").mkdir()
    short, long = blocks("toml", SETTINGS)
    for text in (short, long):
        (tmp_path / "remit.toml").write_text(text, encoding="utf-8")
        assert load_settings(tmp_path, environ={}, home=tmp_path / "home").problems == []
    found = load_settings(tmp_path, environ={"REMIT_TRUST": "1"}, home=tmp_path / "home")
    loaded = found.load_agents()
    assert (loaded.problems, found.untrusted) == ([], [])
    build(loaded.agents["lead"], loaded, surroundings=found.surroundings())
    assert {key.partition(".")[0] for key, _, _ in found.rows()} == set(KEYS)


def test_its_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The code on the page runs unchanged."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for text in blocks("python"):
        exec(compile(text, "agent-files.md", "exec"), {"__name__": "page"})


def test_the_keys_it_names_exist() -> None:
    """remit knows every key in the table of keys."""
    table = PAGE.partition("## Keys")[2].partition("Other systems' keys")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name for cell in rows for name in re.findall(r"`([^`]+)`", cell)]
    assert len(named) > 20
    assert [name for name in named if plain_key(name) not in VOCABULARY.known] == []
