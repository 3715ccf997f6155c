"""Hints on what to install name the interpreter that runs remit, by the program that manages its environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from runbench import project, remit
from terminals import environment

import remit.cli.install_command as install_command
from remit.cli.install_command import with_local_installer

pytestmark = pytest.mark.real_time

HINT = "Run: pip install 'remit[groq]'"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return project(tmp_path, monkeypatch)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with a name that has to be quoted; its interpreter is a link, as those of environments are."""
    made = tmp_path / "my env"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(made / "bin" / "python"))
    monkeypatch.setattr(sys, "prefix", str(made))
    return made


def test_the_interpreter_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `python` is another one, or none, the hint has the path of the interpreter that runs."""
    other = place.parent / "other"
    other.mkdir()
    (other / "python").symlink_to(sys.executable)
    for path in (str(other), str(place.parent / "nothing")):
        monkeypatch.setenv("PATH", path)
        assert with_local_installer(HINT) == f"Run: '{place}/bin/python' -m pip install 'remit[groq]'"


def test_the_default_python_is_python(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where `python` is the interpreter that runs, as in an active environment, the hint says `python -m pip`."""
    monkeypatch.setenv("PATH", f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert with_local_installer(HINT) == "Run: python -m pip install 'remit[groq]'"


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("uv-receipt.toml", "uv tool install 'remit[groq]'"),
        ("pipx_metadata.json", "pipx runpip 'my env' install 'remit[groq]'"),
    ],
)
def test_tools_that_manage_environments(place: Path, file: str, hint: str) -> None:
    """What uv or pipx has installed as a tool is added to by uv or pipx."""
    (place / file).touch()
    assert with_local_installer(HINT) == f"Run: {hint}"


def test_an_environment_without_pip(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no pip, as in environments that uv makes, uv installs for that interpreter."""
    monkeypatch.setattr(install_command, "find_spec", lambda name: None)
    assert with_local_installer(HINT) == f"Run: uv pip install --python '{place}/bin/python' 'remit[groq]'"


def test_only_our_own_hints_are_changed() -> None:
    """Other text, and hints that are complete, stay as they are."""
    for text in ("pip install evil", "python -m pip install 'remit[groq]'", "pip install 'evil[x]'"):
        assert with_local_installer(text) == text


def test_every_message_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors, notes and the doctor say it, for people and for programs."""
    monkeypatch.setattr(install_command, "installer", lambda: "INSTALL")
    assert "INSTALL 'remit[groq]'" in remit("run", "Go", "--model", "groq:llama").err
    note = remit("run", "Survey this folder", "--no-journal").err
    assert "INSTALL 'remit[anthropic]'" in note
    said = remit("doctor", "--no-servers")
    assert "→ INSTALL 'remit[" in said.out
    fixes = [
        one.get("fix", "") for one in json.loads(remit("doctor", "--no-servers", "--json").out)["findings"]
    ]
    assert any(fix.startswith("INSTALL 'remit[") for fix in fixes)


def test_the_hint_reaches_this_remit(folder: Path) -> None:
    """The interpreter that a hint names is one that has this remit."""
    env = environment(folder.parent, PATH="/nowhere")
    program = "import remit.cli.install_command as i; print(i.installer())"
    said = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60, check=True
    )
    python = said.stdout.removesuffix(" -m pip install\n")
    found = subprocess.run(
        [python, "-c", "import remit, msgspec, pip; print(remit.__version__)"],
        env=env, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert found.stdout.strip()
