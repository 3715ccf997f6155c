"""Secrets that the settings describe are redacted from the journal."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from runbench import project, run

from remit.testing import ScriptedModel, call, say

SECRET = "acme_live_" + "0a1b2c3d" * 4
SETTINGS = '[secrets.acme]\nprefix = "acme_live_"\nleast = 32\nchars = "hex"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return project(tmp_path, monkeypatch)


def journal(folder: Path) -> str:
    with closing(sqlite3.connect(folder.parent / "state" / "runs.db")) as connection:
        return "\n".join(connection.iterdump())


def test_a_secret_of_the_settings_is_not_in_the_journal(folder: Path) -> None:
    """A secret is neither in the recorded task nor in a tool result; without the setting it is in both."""
    (folder / "keys.txt").write_text(SECRET)
    script = [call("read", path="keys.txt"), say(f"It has {SECRET}.")]
    assert run(f"Read {SECRET}", "--trust", model=ScriptedModel(script)).code == 0
    assert SECRET in journal(folder)
    (folder.parent / "state" / "runs.db").unlink()
    (folder / "remit.toml").write_text(SETTINGS)
    assert run(f"Read {SECRET}", "--trust", model=ScriptedModel(script)).code == 0
    assert SECRET not in journal(folder)
    assert "[redacted]" in journal(folder)
