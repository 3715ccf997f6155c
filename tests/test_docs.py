"""The documents and examples are correct: the things they name exist, and their code runs and prints what they show."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from remit.engine.delegation.delegate_tools import AdhocTool
from remit.engine.run.model_call import RETRIES
from remit.errors import RETRYABLE_KINDS, ModelErrorKind
from remit.observe.otel.instrument import uninstrument
from remit.types.limits import ROOT_DEFAULTS, SHARED, Limits
from remit.types.outcome import Status

ROOT = Path(__file__).parent.parent
SRC = ROOT / "src" / "remit"
DOCS = ROOT / "docs"
GENERATED = DOCS / "reference"
"""Written by `make docs`; tests/test_reference.py tests these pages."""
PAPERS = sorted(p for p in (*ROOT.glob("*.md"), *DOCS.rglob("*.md")) if GENERATED not in p.parents)
DECISIONS = sorted((DOCS / "decisions").glob("*.md"))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


# --- Examples ------------------------------------------------------------------------------------

# Lines that do not depend on the clock or on the order of parallel runs.
SAID = {
    "01_first_tree.py": [
        "The model is a script: no network, no API key.",
        "      explorer (stopping)  starts: Where is Phase?",
        "          reader  read tasks/cancel.py -> 1 line",
        "  lead  completed, 30 tokens",
        "The answer (completed):",
        "  Account is in engine/budget/account.py.",
        "In total: 5 runs, 11 model calls, 165 tokens; the lead alone: 2 calls.",
        "Try next",
    ],
    "02_limits_and_partial_results.py": [
        "  child 3: answered",
        "  child 4: no answer",
        "  Started: 3 of 6 children",
        "  Model calls: 5 of 5",
        "  The lead ended completed: 3 of 6 parts were checked.",
        "  The seeker ended timed_out after ",
        "  here 0.2 s. So its work was stopped at 1.8 s.",
        "    Done: no key in the hall, no key in the kitchen. Not finished: the attic.",
        "  The lead ended completed: The seeker was stopped; I continue with its",
    ],
    "03_asking_a_person.py": [
        "  Approval request from lead › editor › reviewer › publish",
        "    reviewer: denied: that page is private",
        "lead completed",
        "Published: news.html",
        "Published: nothing",
    ],
    "04_your_own_model.py": [
        "The provider is a fake in this file: no network, no API key.",
        "  failed: rate_limit: too many requests; again in 0.2 s",
        "  thinks: I should count, not guess.",
        "  count_words -> 7",
        "  piece: 'words.'",
        "counter completed with stand-in-1: Your question has 7 words.",
        "Model calls: 3, the failed one included; replies: 2.",
        "Tokens: 18 in, 16 out; $0.000098.",
    ],
    "05_killed_and_resumed.py": [
        "It was killed (exit code -9), in the middle of a call that changes things.",
        "completed: Counted. Publishing: Unknown: this call may or may not have happened.",
        "5 model calls in both processes together.",
    ],
    "06_survey_a_folder.py": [
        "The model is offline: rules, not a language model.",
        "  surveyor starts: src",
        "# Survey of `.`",
        "(by remit's offline rules, not a language model)",
        "- licences: LICENSE (MIT)",
        "completed: ",
    ],
    "07_commands_and_rules.py": [
        "asked: cat notes.txt && rm notes.txt",
        "  a note",
        "  Denied: keep the notes.",
        "  (exit code 0; ended 1 process left in the background: sleep)",
    ],
    "08_agents_from_files.py": [
        "reader: Use this agent for reading: it reads, and says what it saw",
        "- reader.md:3: description has a colon outside quotes",
        "- reader.md:4: remit does not have the tool 'WebSearch'; the agent does not",
        "completed: It is about milk.",
        "reader completed: It says: remember the milk.",
    ],
    "09_delegate_from_code.py": [
        "  failed: the program raised RuntimeError: a bug after the expensive part",
        "  4 children, 4 model calls",
        "  left: 12 model calls, 56 delegations",
        "  completed: Three parts, no surprises (9 words, 3 titles proposed)",
        "  8 children in both lives, 8 model calls",
    ],
}


def _run(example: Path) -> str:
    env = os.environ | {"PYTHONPATH": str(SRC.parent), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, "-W", "error", str(example)]
    done = subprocess.run(command, env=env, capture_output=True, encoding="utf-8", check=False)
    # An example may show a denial, which makes remit warn.
    unexpected = [line for line in done.stderr.splitlines() if "was denied" not in line]
    assert (done.returncode, unexpected) == (0, [])
    return done.stdout


@pytest.mark.real_time
@pytest.mark.parametrize("example", SAID)
def test_an_example_prints_its_expected_lines(example: str) -> None:
    """Every example runs as a program, within 80 columns, and prints its expected lines."""
    lines = _run(ROOT / "examples" / example).splitlines()
    assert [line for line in SAID[example] if not any(line in said for said in lines)] == []
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.real_time
def test_the_second_example_works_with_other_numbers(tmp_path: Path) -> None:
    """With other numbers, as the example suggests, its output is still correct."""
    changed = _text(ROOT / "examples" / "02_limits_and_partial_results.py")
    for old, new in (("\nREQUESTS = 5\n", "\nREQUESTS = 9\n"), ("\nSECONDS = 2.0\n", "\nSECONDS = 0.5\n")):
        assert old in changed
        changed = changed.replace(old, new)
    example = tmp_path / "changed.py"
    example.write_text(changed, encoding="utf-8")
    said = _run(example)
    for line in (
        "Started: 6 of 6 children",
        "Model calls: 8 of 9",
        "The lead ended completed: 6 of 6 parts were checked.",
        "2. A child with 0.5 s, and 30.2 s of searches",
        "0.05 s. So its work was stopped at 0.45 s.",
    ):
        assert line in said


def test_every_example_is_tested_and_documented() -> None:
    """The tests run every example, and docs/examples.md names each."""
    found = sorted(path.name for path in (ROOT / "examples").glob("*.py"))
    assert found == sorted(SAID)
    assert [name for name in found if f"examples/{name}" not in _text(DOCS / "examples.md")] == []


# --- Code in documents ---------------------------------------------------------------------------


def test_commands_that_run_examples_work_in_a_clone() -> None:
    """Commands use the Python that `make` installs remit for, and name examples that exist."""
    texts = [_text(path) for path in (*PAPERS, *(ROOT / "examples").glob("*.py"))]
    named = [found for text in texts for found in re.findall(r"([^\s`(]*python) (examples/\S+\.py)", text)]
    assert named
    assert {python for python, _ in named} == {".venv/bin/python"}
    assert [example for _, example in named if not (ROOT / example).exists()] == []


_BLOCK = re.compile(
    r"^```python\n(.*?)^```\n(?:\n(?:[^\n`]+\n\n)?```text\n(.*?)^```)?", re.DOTALL | re.MULTILINE
)
BLOCKS = [
    pytest.param(block[1], block[2], id=f"{_name(paper)}:{number}")
    for paper in PAPERS
    for number, block in enumerate(_BLOCK.finditer(_text(paper)), 1)
]


@pytest.mark.parametrize(("code", "printed"), BLOCKS)
def test_python_in_documents_runs(
    code: str,
    printed: str | None,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A Python block runs unchanged and prints the text block after it, unless it is marked as a fragment.

    Tests in a block are called as pytest would call them.
    """
    if code.startswith("# fragment\n"):
        assert printed is None
        compile(code, "document", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        return
    # Each block has its own folder, so that the next block does not see its files.
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "document"}
    # Without the `__future__` imports of this file.
    exec(compile(code, "document", "exec", dont_inherit=True), names)
    uninstrument()
    for test in [value for name, value in names.items() if name.startswith("test_") and callable(value)]:
        test()
    if printed is not None:
        said = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert said == printed.splitlines()


# --- Tables --------------------------------------------------------------------------------------


def _words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def _table(paper: str, head: str) -> list[list[str]]:
    """The rows of the table whose first header cell is `head`."""
    text = _text(DOCS / paper)
    begun = text.index(f"| {head} |")
    return [_cells(line) for line in text[begun : text.index("\n\n", begun)].splitlines()[2:]]


def test_the_limits_page_has_every_limit() -> None:
    """The table has each field of Limits with its default at the root, and says which are shared."""
    told = {_words(row[0])[0]: (row[2], row[3]) for row in _table("how-to/limits.md", "field")}
    real = {
        name: (_default(getattr(ROOT_DEFAULTS, name)), "shared" if name in SHARED else "own")
        for name in Limits.__struct_fields__
    }
    assert told == real


def _default(value: object) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return "None" if value is None else f"{value:g}" if float(str(value)) < 10**6 else f"{value:,}"


def test_the_errors_page_has_every_status() -> None:
    """The table has each status once."""
    assert sorted(_words(row[0])[0] for row in _table("how-to/errors.md", "`status`")) == sorted(Status)


def test_the_model_page_has_every_kind_of_model_error() -> None:
    """The page says for each kind of ModelError whether and how often it is retried."""
    yes, no = _table("how-to/own-model.md", "`kind`")
    assert (yes[1], set(_words(yes[0]))) == ("yes", RETRYABLE_KINDS)
    assert (no[1], set(_words(no[0]))) == ("no", set(get_args(ModelErrorKind)) - RETRYABLE_KINDS)
    assert f"up to {RETRIES} retries" in _text(DOCS / "how-to" / "own-model.md")


def test_the_subagents_page_has_every_field_of_an_ad_hoc_child() -> None:
    """The table has the fields of a `subagent` call."""
    told = [_words(row[0])[0] for row in _table("how-to/subagents.md", "field of a `subagent` call")]
    assert told == [field.name for field in AdhocTool.FIELDS]


# --- Names in documents --------------------------------------------------------------------------

_FILE = re.compile(r"`((?:[\w-]+/)*[\w.-]+\.(?:py|md|toml|txt)|(?:[\w.-]+/)+)`")
PLACES = (ROOT, SRC, DOCS, ROOT / "tests")
# Files in users' own projects.
THEIRS = {"CLAUDE.md", "remit.toml", ".remit/agents/", ".claude/agents/", "config.toml", "SKILL.md"}


@pytest.mark.parametrize("paper", PAPERS, ids=_name)
def test_files_named_in_documents_exist(paper: Path) -> None:
    """Every file or folder that a document names exists."""
    named = [name for name in _FILE.findall(_text(paper)) if name not in THEIRS]
    assert [name for name in named if not any((place / name).exists() for place in PLACES)] == []


def _rows(paper: str) -> list[list[str]]:
    """The cells of every table row of a document."""
    lines = (line for line in _text(DOCS / paper).splitlines() if line.startswith("|"))
    return [_cells(line) for line in lines]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_map_has_every_file() -> None:
    """Every file of the package has a row in docs/map.md."""
    named = set(_FILE.findall(_text(DOCS / "map.md")))
    assert [p for p in (f.relative_to(SRC).as_posix() for f in SRC.rglob("*.py")) if p not in named] == []


def _source(name: str) -> str:
    return next((_text(place / name) for place in PLACES if (place / name).is_file()), "")


def test_names_in_the_map_are_in_their_files() -> None:
    """A name in the last column of docs/map.md occurs in one of the row's files."""
    for row in _rows("map.md"):
        sources = "".join(_source(name) for name in _FILE.findall(" ".join(row)))
        for name in re.findall(r"`(\w+)(?:\(\))?`", row[2]) if sources else ():
            assert re.search(rf"\b{name}\b", sources), f"docs/map.md: {name} is not in {row[1]}"


def test_the_glossary_is_in_order_and_has_no_word_twice() -> None:
    """The glossary is in alphabetical order."""
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
    """A behaviour names cases that are in tests/acceptance, unless its row says "not yet"."""
    cases = "".join(_text(path) for path in (ROOT / "tests" / "acceptance").glob("*.py"))
    for number, _, where, named in (row for row in _rows("seeds.md") if row[0] in NUMBERS):
        assert bool(named) is not where.startswith("not yet"), f"{number} does not name a case"
        for case in re.findall(r"[AS]\d\.\d+", named):
            assert re.search(rf"\b{re.escape(case)}(?!\d)", cases), f"{number}: case {case} does not exist"


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
