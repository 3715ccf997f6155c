"""The documents and the examples are true: what they name exists, what they show runs and prints what they say."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "remit"
DOCS = ROOT / "docs"
PAPERS = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- Examples ------------------------------------------------------------------------------------

# Lines that do not depend on the clock or on which of two parallel runs was first.
SAID = {
    "01_first_tree.py": [
        "The model here is a script: no network, no key.",
        "      explorer (stopping)  starts: Where is Phase?",
        "          reader  read phase.py -> 1 line",
        "  lead  completed, 30 tokens",
        "The answer (completed):",
        "  Account is in ledger.py.",
        "In total: 5 runs, 11 model calls, 165 tokens; the lead alone: 2 calls.",
        "Try next",
    ],
    "02_limits_and_partial_results.py": [
        "  child 3: answered",
        "  child 4: not started",
        "  The lead completed: Three of six parts are looked at.",
        "  Model calls: 5 of 5",
        "  The seeker ended timed_out after ",
        "    Not in the hall, not in the kitchen. The attic is not finished.",
        "  The lead completed: Not downstairs; try the attic.",
    ],
    "03_asking_a_person.py": [
        "  A person is asked by lead › editor › reviewer › publish",
        "    reviewer is told no: that page is private",
        "lead completed",
        "Published: news.html",
        "Published: nothing",
    ],
}


def _run(example: str) -> str:
    env = os.environ | {"PYTHONPATH": str(SRC.parent), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / example)]
    done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.real_time
@pytest.mark.parametrize("example", SAID)
def test_an_example_prints_what_it_promises(example: str) -> None:
    """Every example runs as a program of its own, within 80 columns, and prints what it is there to show."""
    lines = _run(example).splitlines()
    assert [line for line in SAID[example] if not any(line in said for said in lines)] == []
    assert [line for line in lines if len(line) > 80] == []


def test_every_example_is_known() -> None:
    """No example is left out of the tests, and the README names each of them."""
    found = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
    assert found == sorted(SAID)
    assert [name for name in found if f"examples/{name}" not in _text(ROOT / "README.md")] == []


# --- Code in documents ---------------------------------------------------------------------------

_BLOCK = re.compile(
    r"^```python\n(.*?)^```\n(?:\n(?:[^\n`]+\n\n)?```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE
)
BLOCKS = [
    pytest.param(block[1], block[2], id=f"{_name(paper)}:{number}")
    for paper in PAPERS
    for number, block in enumerate(_BLOCK.finditer(_text(paper)), 1)
]


@pytest.mark.parametrize(("code", "printed"), BLOCKS)
def test_python_in_documents_runs(code: str, printed: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    """A Python block runs as it stands and prints the text block after it, or says that it is a fragment."""
    if code.startswith("# fragment\n"):
        assert printed is None
        compile(code, "document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return
    exec(compile(code, "document", "exec"), {"__name__": "document"})
    if printed is not None:
        said = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert said == printed.splitlines()


# --- What documents name -------------------------------------------------------------------------

_FILE = re.compile(r"`((?:[\w-]+/)*[\w.-]+\.(?:py|md|toml|txt)|(?:[\w.-]+/)+)`")
PLACES = (ROOT, SRC, DOCS, ROOT / "tests")


@pytest.mark.parametrize("paper", PAPERS, ids=_name)
def test_files_named_in_documents_exist(paper: Path) -> None:
    """A file or folder that a document names is there."""
    named = _FILE.findall(_text(paper))
    assert [name for name in named if not any((place / name).exists() for place in PLACES)] == []


def _rows(paper: str) -> list[list[str]]:
    """The cells of every table row of a document."""
    lines = (line for line in _text(DOCS / paper).splitlines() if line.startswith("|"))
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_map_has_every_file() -> None:
    """Every file of the package has a row in docs/map.md."""
    named = set(_FILE.findall(_text(DOCS / "map.md")))
    assert [p for p in (f.relative_to(SRC).as_posix() for f in SRC.rglob("*.py")) if p not in named] == []


def _source(name: str) -> str:
    return next((_text(place / name) for place in PLACES if (place / name).is_file()), "")


def test_the_map_names_what_is_in_the_files() -> None:
    """What a row of docs/map.md tells one to look at is in one of the files that the row names."""
    for row in _rows("map.md"):
        sources = "".join(_source(name) for name in _FILE.findall(" ".join(row)))
        for name in re.findall(r"`(\w+)(?:\(\))?`", row[2]) if sources else ():
            assert re.search(rf"\b{name}\b", sources), f"docs/map.md: {name} is not in {row[1]}"


def test_the_glossary_is_in_order_and_has_no_word_twice() -> None:
    """Words are found by the alphabet."""
    words = [row[0].lower() for row in _rows("glossary.md")[2:]]
    assert words == sorted(set(words))


# --- The seeds -----------------------------------------------------------------------------------

NUMBERS = [f"S{seed}.{n}" for seed, most in ((1, 24), (2, 20), (3, 24)) for n in range(1, most + 1)]
RULES = [f"C{n}" for n in range(1, 16)]


def test_every_behaviour_and_rule_has_its_row() -> None:
    """docs/seeds.md has exactly one row for each S number of the three seeds and for each C rule, in order."""
    rows = [row[0] for row in _rows("seeds.md")]
    assert [n for n in rows if re.fullmatch(r"S\d\.\d+", n)] == NUMBERS
    assert [n for n in rows if re.fullmatch(r"C\d+", n)] == RULES


def test_every_behaviour_has_its_cases() -> None:
    """A behaviour is shown by cases that are in tests/acceptance, unless its row says that it is not there yet."""
    cases = "".join(_text(path) for path in (ROOT / "tests" / "acceptance").glob("*.py"))
    for number, _, where, named in (row for row in _rows("seeds.md") if row[0] in NUMBERS):
        assert bool(named) is not where.startswith("not yet"), f"{number} names no case"
        for case in re.findall(r"[AS]\d\.\d+", named):
            assert re.search(rf"\b{re.escape(case)}(?!\d)", cases), f"{number}: there is no case {case}"


# --- Decisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("record", DECISIONS, ids=_name)
def test_a_decision_follows_the_template(record: Path) -> None:
    """A decision has its number, its status and the four parts of the template, in fewer than 40 lines."""
    lines = _text(record).splitlines()
    number = "NNNN" if record.name.startswith("0000") else record.name[:4]
    assert lines[0].startswith(f"# {number}: ")
    assert lines[2].startswith("Status: ")
    parts = [line for line in lines if line.startswith("## ")]
    assert parts == ["## Context", "## Options", "## Choice", "## What we give up"]
    assert len(lines) < 40
