"""`remit run` gives AGENTS.md of a trusted project to the agents."""

from __future__ import annotations

from pathlib import Path

import pytest
from runbench import project, remit, run

from remit.testing import ScriptedModel, call, say


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = project(tmp_path, monkeypatch)
    (made / ".git").mkdir()
    (made / "AGENTS.md").write_text("Use tabs.\n")
    agents = made / ".remit" / "agents"
    agents.mkdir(parents=True)
    (agents / "scout.md").write_text("---\nname: scout\ndescription: Looks.\n---\nLook around.\n")
    return made


def model() -> ScriptedModel:
    return ScriptedModel(
        {"lead": [call("task", agent="scout", prompt="Look"), say("Done.")], "scout": [say("Fine.")]}
    )


def instructions(script: ScriptedModel) -> dict[str, str]:
    return {one.agent: one.instructions for one in script.requests}


def test_agents_of_a_trusted_project_see_its_notes(folder: Path) -> None:
    """The lead and the agents from files read the notes after their own instructions, and one line names the file."""
    assert remit("trust", "--yes").code == 0
    script = model()
    said = run("Go", model=script)
    assert (said.code, said.err.count("Project notes: AGENTS.md (ignore them: --no-project-notes)")) == (0, 1)
    seen = instructions(script)
    assert seen["lead"].startswith("You lead a task")
    assert seen["scout"].startswith("Look around.\n\n# Project notes")
    assert all("Use tabs." in text for text in seen.values())


def test_a_changed_file_asks_nothing(folder: Path) -> None:
    """Trust covers settings, not notes: a run after a change reads the new text without a question."""
    assert remit("trust", "--yes").code == 0
    (folder / "AGENTS.md").write_text("Use spaces.\n")
    script = model()
    assert run("Go", model=script).code == 0
    assert "Use spaces." in instructions(script)["lead"]


@pytest.mark.parametrize("trusted", [True, False])
def test_no_notes(folder: Path, *, trusted: bool) -> None:
    """An untrusted project's notes are not read, and `--no-project-notes` turns them off."""
    if trusted:
        assert remit("trust", "--yes").code == 0
    script = model()
    said = run("Go", *(["--no-project-notes"] if trusted else []), model=script)
    assert said.code == 0
    assert "Project notes" not in said.err
    assert not any("Use tabs." in text for text in instructions(script).values())
