"""Fixtures for tests of `remit run`: a project in a temporary folder, and `remit` as a function without a terminal."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest

from remit.cli.main import main
from remit.types.ports import Model

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY")


class Said(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def result(self) -> dict[str, object]:
        return json.loads(self.out.splitlines()[-1])

    @property
    def run(self) -> str:
        """The run id in the output."""
        words = self.err.split()
        return words[words.index("remit", words.index("it:") if "it:" in words else 0) + 2]


def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a few files, a home and a journal, without keys."""
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "app.py").write_text("print('hello')\n", encoding="utf-8")
    (folder / "README.md").write_text("# Project\n", encoding="utf-8")
    for name in (*KEYS, "REMIT_MODEL", "REMIT_JOURNAL", "REMIT_DEBUG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REMIT_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(folder)
    return folder


def remit(*args: str, model: Model | None = None, stdin: str | None = None) -> Said:
    """`remit ARGS` in this process; `model` is named `scripted`. Without `stdin`, stdin is closed."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    before = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO((stdin or "").encode()), encoding="utf-8")
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(list(args), models=None if model is None else {"scripted": model})
    finally:
        sys.stdin = before
    out.seek(0)
    err.seek(0)
    return Said(code, out.read(), err.read())


def run(*args: str, model: Model, stdin: str | None = None) -> Said:
    """`remit run ... --model scripted`."""
    return remit("run", *args, "--model", "scripted", model=model, stdin=stdin)
