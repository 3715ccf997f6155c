"""Install hints name the interpreter that runs remit and the installer of its environment."""

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
    """An environment with a name that needs quotes; its interpreter is a link, as in real environments."""
    made = tmp_path / "my env"
    (made / "bin").mkdir(parents=True)
    (made / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(made / "bin" / "python"))
    monkeypatch.setattr(sys, "prefix", str(made))
    return made


def test_the_interpreter_is_named(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If `python` is another interpreter or missing, the hint has the path of the running interpreter."""
    other = place.parent / "other"
    other.mkdir()
    (other / "python").symlink_to(sys.executable)
    for path in (str(other), str(place.parent / "nothing")):
        monkeypatch.setenv("PATH", path)
        assert with_local_installer(HINT) == f"Run: '{place}/bin/python' -m pip install 'remit[groq]'"


def test_the_default_python_is_python(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If `python` is the running interpreter, as in an active environment, the hint says `python -m pip`."""
    monkeypatch.setenv("PATH", f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert with_local_installer(HINT) == "Run: python -m pip install 'remit[groq]'"


@pytest.mark.parametrize(
    ("file", "hint"),
    [
        ("uv-receipt.toml", "uv tool install 'remit[groq]'"),
        ("pipx_metadata.json", "pipx runpip 'my env' install 'remit[groq]'"),
    ],
)
def test_tools_installed_by_uv_or_pipx(place: Path, file: str, hint: str) -> None:
    """If uv or pipx installed remit as a tool, the hint uses uv or pipx."""
    (place / file).touch()
    assert with_local_installer(HINT) == f"Run: {hint}"


def test_an_environment_without_pip(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pip, as in environments made by uv, the hint uses `uv pip` for that interpreter."""
    monkeypatch.setattr(install_command, "find_spec", lambda name: None)
    assert with_local_installer(HINT) == f"Run: uv pip install --python '{place}/bin/python' 'remit[groq]'"


def test_only_our_own_hints_are_changed() -> None:
    """Other text, and hints that are already complete, stay unchanged."""
    for text in ("pip install evil", "python -m pip install 'remit[groq]'", "pip install 'evil[x]'"):
        assert with_local_installer(text) == text


def test_every_output_has_the_local_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors, notes and doctor have it, as text and as JSON."""
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


def test_the_hint_names_this_remit(folder: Path) -> None:
    """The interpreter in the hint has this remit installed."""
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
