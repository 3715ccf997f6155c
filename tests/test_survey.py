"""The offline survey: the real engine and tools, rules instead of a model, and correct facts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import remit.models.offline as offline
from remit import Agent, Limits, Outcome, Request, UsageError, run
from remit.models.offline import LABEL, Offline
from remit.models.survey_facts import Facts, merge, of_listing, parse, render
from remit.survey import survey
from remit.types.messages import AssistantMessage, Call, ToolMessage, ToolSpec, user

pytestmark = pytest.mark.real_time


def make(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def fact(outcome: Outcome, name: str) -> str:
    found = re.search(rf"^- {name}: (.*)$", outcome.text, re.MULTILINE)
    assert found, outcome.text
    return found[1]


async def surveyed(folder: Path, limits: Limits | None = None) -> Outcome:
    return await run(survey(), "Survey this folder.", model="offline", workspace=folder, limits=limits)


async def test_the_facts_are_true(tmp_path: Path) -> None:
    """Counts, sizes, languages, largest files, TODO, tests, licences and entry points match the folder."""
    files = {
        "LICENSE": "MIT License\n\nPermission is hereby granted, free of charge, to any person",
        "pyproject.toml": "[project]\nname = 'x'\n",
        "README.md": "# x\n",
        "src/x/__main__.py": "print(1)  # TODO: more\n# FIXME\n",
        "src/x/big.py": "x = 1\n" * 2000,
        "tests/test_x.py": "def test(): pass\n",
        "tests/deep/er/test_y.py": "TODOS = 1\n",
        "web/app.ts": "let a = 1\n",
    }
    outcome = await surveyed(make(tmp_path, files))
    assert outcome.ok
    assert [child.label for child in outcome.children] == ["src", "tests", "web"]
    assert LABEL in outcome.text, "the report does not name its author"
    assert fact(outcome, "files").startswith(f"{len(files)}, ")
    languages = fact(outcome, "languages")
    assert "Python 4 files about 12 KB" in languages
    assert "TypeScript 1 file" in languages
    assert fact(outcome, "largest").startswith("src/x/big.py 12 KB")
    assert fact(outcome, "TODO and FIXME") == "src/x/__main__.py 2", "TODOS is another word"
    assert fact(outcome, "tests") == "2 files"
    assert fact(outcome, "licences") == "LICENSE (MIT)"
    assert fact(outcome, "entry points") == "pyproject.toml; src/x/__main__.py"
    assert outcome.total_usage.usd == 0


async def test_a_large_part_is_surveyed_in_parts(tmp_path: Path) -> None:
    """A part with many files is delegated again, and no file is counted twice."""
    files = {f"big/part{p}/f{n}.py": "x = 1\n" for p in range(5) for n in range(90)}
    outcome = await surveyed(make(tmp_path, files))
    (big,) = outcome.children
    assert len(big.children) == 5
    assert fact(outcome, "files").startswith("450, ")


async def test_a_part_that_was_not_surveyed_is_named(tmp_path: Path) -> None:
    """The report names a part whose surveyor could not start."""
    files = {f"part{n}/x.py": "x = 1\n" for n in range(4)}
    outcome = await surveyed(make(tmp_path, files), Limits(delegations=2))
    assert outcome.ok
    assert fact(outcome, "files").startswith("2, ")
    missing = fact(outcome, "not surveyed")
    assert "part2" in missing
    assert "part3" in missing


async def test_long_lists_and_deep_folders_are_not_silently_cut(tmp_path: Path) -> None:
    """The report counts names that did not fit and mentions folders that were too deep."""
    files = {f"p/f{n:02}.py": "# TODO\n" for n in range(30)}
    files["deep/" + "x/" * 14 + "y.py"] = "x = 1\n"
    outcome = await surveyed(make(tmp_path, files))
    assert fact(outcome, "TODO and FIXME").endswith("; and 18 more")
    assert "too deep" in fact(outcome, "not surveyed")


async def test_the_facts_come_from_tool_results_alone() -> None:
    """The rules report exactly what the tool results say."""
    spec = ToolSpec("ls", "", {})
    messages = (
        user("Survey the folder `nowhere`."),
        AssistantMessage(calls=(Call("ls", "ls", {"path": "nowhere", "depth": 10}),)),
        ToolMessage("ls", "ls", "a.rs  7.0 KB\nsub/\n  b.rs  1.0 KB\n(nowhere: 1 folder, 2 files.)"),
    )
    reply = await Offline().reply(request(messages, (spec,)), lambda _: None)
    assert "Rust 2 files about 8.0 KB" in reply.text
    assert "nowhere/sub/b.rs" in reply.text


async def test_the_offline_model_explains_what_it_cannot_do() -> None:
    """For any other task, the offline model says that it is not a language model and what to do."""
    outcome = await run(Agent("poet"), "Write a poem", model="offline")
    assert LABEL in outcome.text
    assert "real model" in outcome.text


@pytest.mark.parametrize(
    ("task", "folder"),
    [
        ("Survey this folder", "."),
        ("Survey this folder.", "."),
        ("survey the code base", "."),
        ("Survey this repository and tell me what it is", "."),
        ("Survey docs", "docs"),
        ("Survey the current directory", "."),
        ("Survey the whole repository.", "."),
        ("Survey this workspace", "."),
        ("Survey this folder now", "."),
        ("Survey this folder and tell me what it is", "."),
        ("Survey this folder docs", "docs"),
        ("Do a survey of this repository", "."),
        ("Do a survey of docs", "docs"),
        ("\u0130\u0130\u0130: survey docs", "docs"),
        ('Survey the folder "C:\\Users\\me"', "C:\\Users\\me"),
        ("Survey docs/.", "docs"),
        ("Survey ./docs please", "./docs"),
        ("Please survey 'docs', please!", "docs"),
        ('survey the folder "my files"', "my files"),
        ("What is in this folder?", "."),
        ("Survey the folder src/remit", "src/remit"),
        ("Survey the docs folder.", "docs"),
        ("Survey my directory ./a-b/c!", "./a-b/c"),
        ("Survey the folder `with spaces`, please", "with spaces"),
        ('Survey the folder "a \\"b\\"" and report what is in it.', 'a "b"'),
        ("Survey @README.md\n\nRun `make` in the folder docs", "."),
    ],
)
def test_the_survey_finds_the_folder_in_the_task(task: str, folder: str) -> None:
    """The folder can be written in many ways; the content of an attached file does not count."""
    assert offline._folder_in(task) == folder


@pytest.mark.parametrize(
    "task",
    [
        "Survey docs and tests",
        "Survey docs, but not tests",
        "Survey src except a.py",
        "Survey docs in this folder",
        "Survey everything in docs",
    ],
)
async def test_an_unclear_folder_is_reported(tmp_path: Path, task: str) -> None:
    """If the folder is unclear, everything is surveyed, and the report says so."""
    (tmp_path / "a.txt").write_text("a\n")
    outcome = await run(survey(), task, model="offline", workspace=tmp_path)
    assert "files: 1" in outcome.text
    assert outcome.text.endswith(offline.UNCLEAR)
    assert (
        offline.UNCLEAR not in (await run(survey(), "Survey this", model="offline", workspace=tmp_path)).text
    )


@pytest.mark.parametrize(
    "name", ['a"b', "back\\slash", "end\\", "\\n", "日本 x", "`tick`", 'folder "x"', "now", "@at", "a'b"]
)
async def test_folders_with_odd_names_are_surveyed(tmp_path: Path, name: str) -> None:
    """A lead passes folder names to its surveyors as JSON, so no name is taken for a sentence."""
    (tmp_path / name).mkdir()
    (tmp_path / name / "a.py").write_text("# TODO\n")
    outcome = await run(survey(), "Survey this folder", model="offline", workspace=tmp_path)
    assert "files: 1" in outcome.text
    assert "not surveyed" not in outcome.text


async def test_a_missing_folder(tmp_path: Path) -> None:
    """The report quotes a failed tool; a workspace that is not a folder raises before the run."""
    outcome = await run(survey(), "Survey the folder `gone`.", model="offline", workspace=tmp_path)
    assert "could not be listed" in outcome.text
    with pytest.raises(UsageError, match="is not a folder"):
        await surveyed(tmp_path / "gone")


def request(messages: tuple[object, ...], tools: tuple[ToolSpec, ...]) -> Request:
    return Request(
        agent="surveyor",
        run_id="r1",
        depth=0,
        instructions="",
        messages=messages,  # pyright: ignore[reportArgumentType]
        tools=tools,
        tool_choice="auto",
        max_output_tokens=100,
        output_schema=None,
        settings={},
    )


def test_a_report_can_be_read_back() -> None:
    """A lead adds up the reports of its surveyors."""
    facts = of_listing("src", "a.py  1.5 KB\nsub/\n  test_b.py  20 bytes\n  LICENSE  1 byte\n")
    facts.todo = {"src/a.py": 3}
    facts.missing = ["src/x (gone); and y"]
    again = parse(render(facts, LABEL, for_people=False))
    assert again is not None
    for name in ("count", "size", "languages", "largest", "todo", "tests", "licences", "entries", "missing"):
        assert getattr(again, name) == getattr(facts, name), name
    assert merge(Facts("."), again).count == 3
    assert parse("no report") is None
