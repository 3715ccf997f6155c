"""Pyright and mypy, both strict, agree with the API: on good programs, on wrong ones, and on the code in documents."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
pytestmark = pytest.mark.skipif(
    os.environ.get("REQUIRE_TYPES") != "1", reason="type checkers take half a minute: run `make user-types`"
)
Found = dict[str, dict[int, str]]
"""By the name of a file, its lines with errors, each with the first message."""


def _documents() -> dict[str, str]:
    """The Python blocks of the documents for users, as files."""
    found: dict[str, str] = {}
    for paper in sorted((*(ROOT / "docs/start").glob("*.md"), *(ROOT / "docs/how-to").glob("*.md"))):
        for number, code in enumerate(BLOCK.findall(paper.read_text(encoding="utf-8")), 1):
            if not code.startswith("# fragment"):
                found[f"doc_{paper.stem.replace('-', '_')}_{number}.py"] = code
    return found


def _parts() -> dict[str, str]:
    programs = [*(HERE / "good").glob("*.py"), *(HERE / "wrong").glob("*.py")]
    texts = {f"{one.parent.name}_{one.name}": one.read_text(encoding="utf-8") for one in programs}
    return texts | _documents()


PARTS = _parts()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("typed")
    for name, text in PARTS.items():
        (made / name).write_text(text, encoding="utf-8")
    return made


def _python(*arguments: str, cwd: Path) -> str:
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=150)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def _pyright(folder: Path) -> Found:
    settings = {"typeCheckingMode": "strict", "pythonVersion": "3.11", "extraPaths": [str(ROOT / "src")]}
    # In documents and hooks, some parameters are there because the caller passes them.
    settings |= {"reportUnusedFunction": False, "reportMissingTypeStubs": False}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    said = json.loads(_python("pyright", "--outputjson", "--pythonpath", sys.executable, cwd=folder))
    found: Found = defaultdict(dict)
    for one in said["generalDiagnostics"]:
        if one["severity"] == "error":
            line = one["range"]["start"]["line"] + 1
            found[Path(one["file"]).name].setdefault(line, one["message"])
    return found


def _mypy(folder: Path) -> Found:
    cache = ROOT / ".mypy_cache"
    (folder / "mypy.ini").write_text(f"[mypy]\nmypy_path = {ROOT / 'src'}\n", encoding="utf-8")
    said = _python("mypy", "--strict", "--no-error-summary", "--cache-dir", str(cache), *PARTS, cwd=folder)
    found: Found = defaultdict(dict)
    for line in said.splitlines():
        if parts := re.match(r"([^:]+):(\d+): error: (.*)", line):
            found[parts[1]].setdefault(int(parts[2]), parts[3])
    return found


@pytest.mark.parametrize("checker", [_pyright, _mypy], ids=["pyright", "mypy"])
def test_type_checkers_find_the_marked_errors_and_no_others(checker: object, folder: Path) -> None:
    """Each line marked `# error` has an error, and no other line has one, in the programs here and in the documents."""
    assert checker in (_pyright, _mypy)
    found = _pyright(folder) if checker is _pyright else _mypy(folder)
    wrong = {
        name: [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# error")]
        for name, text in PARTS.items()
    }
    assert sum(map(bool, wrong.values())) == 3
    unexpected = {
        f"{name}:{line}": words
        for name, lines in found.items()
        for line, words in lines.items()
        if line not in wrong.get(name, [])
    }
    assert unexpected == {}
    assert {name: sorted(found.get(name, {})) for name in wrong} == {n: sorted(w) for n, w in wrong.items()}
