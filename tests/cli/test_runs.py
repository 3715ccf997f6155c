"""`remit runs`, and how commands find their journal and their run."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commandbench import Bench, make_bench, remit, two_scouts
from hypothesis import given, settings
from hypothesis import strategies as st

import remit.cli.commands.runs as runs
import remit.cli.run_lookup as run_lookup
from remit import Limits
from remit.cli.views.columns import table
from remit.errors import UsageError
from remit.stores import open_store
from remit.testing import ScriptedModel, call, fail, say
from remit.types.events import ApprovalRequested
from remit.types.ports import TreeInfo

pytestmark = pytest.mark.real_time


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return make_bench(tmp_path, monkeypatch)


def test_newest_first_with_usage(bench: Bench) -> None:
    """Every tree is one line: short id, status, agent, task, tokens, children."""
    bench.run(two_scouts(), "Look at it all")
    bench.run(ScriptedModel({"lead": [fail("no such model", "not_found")]}), "Fail")
    code, out, err = remit("runs")
    head, second, first = out.splitlines()
    assert code == 0
    assert err == ""
    assert head.split() == ["ID", "STATUS", "AGENT", "TASK", "STARTED", "TOKENS", "CHILDREN"]
    assert second.split()[:4] == ["mnpqr", "failed", "lead", "Fail"]
    assert first.split()[:6] == ["abcde", "completed", "lead", "Look", "at", "it"]
    assert first.split()[-2:] == ["90", "2"]


def test_an_empty_journal_is_not_an_error(bench: Bench) -> None:
    """With an empty journal, standard output is empty and standard error says how to start a run."""
    code, out, err = remit("runs")
    assert (code, out) == (0, "")
    assert "No runs in " in err
    assert "remit run" in err


def test_json_is_one_object_per_line(bench: Bench) -> None:
    """--json prints the whole id, the status and the usage of each run."""
    bench.run(two_scouts())
    bench.run(ScriptedModel([call("look", path="x")]), limits=Limits(requests=1))
    code, out, _ = remit("runs", "--json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["id"] for line in lines] == ["mnpqrstuvw", "abcdefghjk"]
    assert [line["status"] for line in lines] == ["over_budget", "completed"]
    assert lines[1]["runs"] == 3
    assert (lines[1]["requests"], lines[1]["tokens"]) == (6, 90)
    assert lines[1]["usd"] is None


def test_how_many_are_listed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest few by default, `--limit` as many as given, --all everything; the rest is counted."""
    monkeypatch.setattr(runs, "SHOWN", 2)
    for _ in range(4):
        bench.run(ScriptedModel([say("Done.")]))
    counts = {
        args: len(remit("runs", *args).out.splitlines()) - 1 for args in ((), ("--limit", "3"), ("--all",))
    }
    assert counts == {(): 2, ("--limit", "3"): 3, ("--all",): 4}
    assert "2 of 4 runs" in remit("runs").err
    code, _, err = remit("runs", "--all", "--limit", "3")
    assert code == 2
    assert "cannot be combined" in err


def test_a_live_tree_shows_its_process_and_open_requests(bench: Bench) -> None:
    """A running tree is `running`, with its process; open requests are listed with the command that answers them."""
    with bench.running(ScriptedModel([call("publish", page="news"), say("Done.")])) as tree:
        tree.wait_for(bench, ApprovalRequested)
        code, out, err = remit("runs")
    assert code == 0
    assert f"running (pid {os.getpid()})" in out
    assert "remit approve abcde" in err


def test_a_tree_whose_process_died_is_interrupted(bench: Bench) -> None:
    """A tree without an end and without a process is interrupted, not running."""
    bench.interrupted()
    assert remit("runs").out.splitlines()[1].split()[1] == "interrupted"


def test_a_task_cannot_control_the_terminal(bench: Bench) -> None:
    """A task is shown on one line without control or bidi characters."""
    bench.run(ScriptedModel([say("Done.")]), "\x1b[2J\nclear\u202e\x9b31m [bold]x[/bold]")
    for args in ((), ("--json",)):
        out = remit("runs", *args).out
        assert "\x1b" not in out
        assert "\x9b" not in out
        assert "\u202e" not in out
    assert json.loads(remit("runs", "--json").out)["task"] == "\x1b[2J\nclear\u202e\x9b31m [bold]x[/bold]"
    assert "[bold]x[/bold]" in remit("runs").out


def test_events_of_ended_trees_are_not_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing a tree costs the same however large the tree is."""
    bench.run(two_scouts())

    def fold(events: object) -> None:
        raise AssertionError(events)

    monkeypatch.setattr(runs, "fold", fold)
    assert remit("runs").out.split()[-1] == "2"


def test_a_table_fits_its_window() -> None:
    """One column is cut to fit the width, in cells and not in characters; empty columns are left out."""
    rows = [("A", "B", "C", "D"), ("1", "漢字" * 40, "", "x" * 9), ("22", "short", "", "y")]
    lines = table(rows, gives_way=1, width=40)
    assert lines[0].split() == ["A", "B", "D"]
    assert lines[1].endswith("…  xxxxxxxxx")
    assert all(sum(2 if ord(c) > 0x2E80 else 1 for c in line) <= 40 for line in lines)
    assert table(rows, gives_way=1)[1].count("漢") == 40


# --- Which journal --------------------------------------------------------------------------------


def test_the_order_of_journal_settings(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """--journal overrides REMIT_JOURNAL, which overrides the user's and the project's files, which override the default."""
    bench.run(ScriptedModel([say("Done.")]))
    other = f"sqlite:///{bench.folder / 'other.db'}"
    assert remit("runs", "--journal", other).out == ""
    assert remit("runs").out != ""
    monkeypatch.delenv("REMIT_JOURNAL")
    assert ".local/state/remit/runs.db" in remit("runs").err
    config = bench.folder / "home" / ".config" / "remit"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f'journal = "{bench.url}"\n')
    assert remit("runs").out != ""
    monkeypatch.setenv("REMIT_TRUST", "1")
    Path("remit.toml").write_text(f'journal = "{other}"\n')
    assert str(bench.folder / "other.db") in remit("runs").err


def test_settings_of_a_parent_folder(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command finds the journal of remit.toml in a parent folder, up to the root of the repository."""
    bench.run(ScriptedModel([say("Done.")]))
    monkeypatch.delenv("REMIT_JOURNAL")
    monkeypatch.setenv("REMIT_TRUST", "1")
    Path(".git").mkdir()
    Path("deep/below").mkdir(parents=True)
    Path("pyproject.toml").write_text(f'[tool.remit]\njournal = "{bench.url}"\n')
    monkeypatch.chdir("deep/below")
    assert "abcde" in remit("runs").out


@pytest.mark.parametrize("args", [("--journal", "memory"), ()])
def test_without_a_journal(bench: Bench, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...]) -> None:
    """If the journal is off there is nothing to list: one sentence with the right form, exit code 2."""
    monkeypatch.setenv("REMIT_JOURNAL", "off")
    code, out, err = remit("runs", *args)
    assert (code, out) == (2, "")
    assert "The journal is off" in err
    assert "--journal sqlite:///" in err


def test_a_file_that_is_not_a_journal(bench: Bench) -> None:
    """A file that is not a journal is reported in one sentence, without a traceback."""
    Path("notes.db").write_text("These are my notes, and no database at all." * 20)
    code, out, err = remit("runs", "--journal", "sqlite:///notes.db")
    assert (code, out) == (1, "")
    assert "is not a run store" in err
    assert "Traceback" not in err
    assert remit("runs", "--journal", "runs.db").code == 2


# --- Which run ------------------------------------------------------------------------------------


def _info(root: str) -> TreeInfo:
    return TreeInfo(
        root=root, agent="lead", task="", status=None, started_at=0, last_at=0, events=1, bytes=1, owner=""
    )


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text("ab2", min_size=6, max_size=10), min_size=1, max_size=20, unique=True))
def test_a_short_id_means_one_run(roots: list[str]) -> None:
    """Each short id finds its own tree, whatever other ids exist; so does the whole id."""
    trees = [_info(root) for root in roots]
    for root, short in run_lookup.short_ids(roots).items():
        assert root.startswith(short)
        assert len(short) >= run_lookup.LEAST or short == root
        assert run_lookup.find(trees, root).info.root == root
        if short not in roots or short == root:
            assert run_lookup.find(trees, short).info.root == root


def test_prefixes_children_and_last() -> None:
    """A unique prefix is enough, also before a child's number; `last` is the newest tree."""
    trees = [_info("abcdefghjk"), _info("abdefghjkm")]
    assert run_lookup.find(trees, "abc").run == "abcdefghjk"
    found = run_lookup.find(trees, "abd.2.1")
    assert (found.run, found.short, found.is_root) == ("abdefghjkm.2.1", "abdef.2.1", False)
    assert run_lookup.find(trees, "last").run == "abcdefghjk"
    assert run_lookup.find(trees, "last.1").run == "abcdefghjk.1"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("ab", "matches 2 runs: abcde (lead), abdef (lead). Write more"),
        ("zzz", "No run 'zzz' in the journal. `remit runs` lists"),
        ("bcdefghjk", "Did you mean abcdefghjk?"),
        ("", "No run ''"),
        ("\x1b[2J", "No run '\\x1b[2J'"),
    ],
)
def test_unknown_and_ambiguous_ids(written: str, said: str) -> None:
    """An id that matches no run or several is an error that says what to write instead."""
    with pytest.raises(UsageError) as error:
        run_lookup.find([_info("abcdefghjk"), _info("abdefghjkm")], written)
    assert said in str(error.value)


def test_in_an_empty_journal_every_run_is_unknown() -> None:
    """With an empty journal, the message says so instead of suggesting an id."""
    with pytest.raises(UsageError, match="the journal is empty"):
        run_lookup.find([], "last")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("abcde", ("abcde", "")),
        ("abcde/2", ("abcde", "approval2")),
        ("abcde.1/approval12", ("abcde.1", "approval12")),
    ],
)
def test_requests_are_named_by_their_number(written: str, meant: tuple[str, str]) -> None:
    """A request is named by the run's id and a number, or by its id in the journal."""
    assert run_lookup.split_request(written) == meant


# --- Cost -----------------------------------------------------------------------------------------


def test_listing_imports_nothing_heavy(bench: Bench) -> None:
    """`remit runs` and `remit --help` import no provider, web, MCP, schema or drawing package, nor the agent files' reader."""
    bench.run(ScriptedModel([say("Done.")]))
    program = (
        "import sys; from remit.cli.main import main; code = main(sys.argv[1:]);"
        "print(sorted({m.partition('.')[0] for m in sys.modules}), 'remit.definitions' in sys.modules, file=sys.stderr)"
    )
    for args in (["runs"], ["--help"]):
        done = subprocess.run(
            [sys.executable, "-c", program, *args], capture_output=True, text=True, check=True
        )
        said = done.stderr.splitlines()[-1]
        heavy = (
            "pydantic",
            "pydantic_ai",
            "rich",
            "mcp",
            "httpx",
            "httpx2",
            "httpcore2",
            "anthropic",
            "openai",
            "jsonschema",
        )
        assert not [name for name in heavy if f"'{name}'" in said]
        assert said.endswith("False")


def test_listing_creates_nothing(bench: Bench) -> None:
    """Listing a journal that does not exist does not create it."""
    asyncio.run(open_store(bench.url).close())
    remit("runs")
    remit("show")
    assert not (bench.folder / "runs.db").exists()
