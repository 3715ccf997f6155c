"""The corpus: what earlier code wrote means the same to the present code, and the present code writes the same.

`scripted/` has the events of scripted trees in virtual time, `stored/` dumps of databases with finished, cancelled and
killed trees, `commands/` what `remit run` and `remit resume` print for programs. When recording again is right is in
`record.py`.
"""

from __future__ import annotations

import ast
import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import dumps
import msgspec
import pytest
import record
import transcripts
from parts import RejectionKind, fold
from pictures import canonical, outputs_of, picture, without_outputs, without_remainders
from record import HERE, SCRIPTED
from staging import Stage
from stored_trees import STORED, play, resumed, root_of

from remit import Event, Outcome, Status
from remit.events import (
    AnyEvent,
    DelegationRejected,
    RunEnded,
    TurnStarted,
    decode_lines,
    encode_lines,
)
from remit.stores import open_store
from remit.testing import run_virtual

PUBLIC = {
    "events",
    "errors",
    "remote",
    "survey",
    "testing",
    "tools",
    "tools.mcp",
    "models",
    "definitions",
    "stores",
}


def text_of(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def events_of(name: str) -> list[AnyEvent]:
    return decode_lines((HERE / name).read_bytes())


def lines(events: Sequence[Event]) -> str:
    return encode_lines(events).decode()


compare = canonical
"""How new events are compared with recorded ones: the order of concurrent work may differ."""

RACES = frozenset({"rate_limits"})
"""Trees in which the order of concurrent work decides who is refused by the provider: only how they end is compared."""


# --- Scripted trees -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCRIPTED)
def test_a_scripted_tree_gives_the_same_events_as_recorded(name: str) -> None:
    """With time, ids, model and store fixed, a tree gives the recorded events, in the stream and in the store."""
    stage = Stage()
    run_virtual(SCRIPTED[name], stage)
    recorded = text_of(f"scripted/{name}.jsonl")
    if name in RACES:
        assert _ends(stage.events) == _ends(events_of(f"scripted/{name}.jsonl"))
    else:
        assert compare(lines(stage.events)) == compare(recorded)
    stored = run_virtual(stage.stored)
    assert stored == [event for event in stage.events if not event.live_only]
    assert stage.outcome is not None
    assert fold(stored).outcome() == without_outputs(stage.outcome)
    file = HERE / f"scripted/{name}.outputs.json"
    assert outputs_of(stage.outcome) == (json.loads(file.read_bytes()) if file.exists() else {})


def _ends(events: Sequence[Event]) -> dict[str, tuple[Status, str]]:
    return {e.run: (e.outcome.status, e.outcome.text) for e in events if isinstance(e, RunEnded)}


@pytest.mark.parametrize("name", SCRIPTED)
def test_a_recorded_tree_folds_as_it_did(name: str) -> None:
    """The recorded events of a tree mean the same in every later version, also those that are never stored."""
    assert picture(fold(events_of(f"scripted/{name}.jsonl"))) == text_of(f"scripted/{name}.tree.json")


# --- Stored trees ---------------------------------------------------------------------------------


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return dumps.restore_sqlite(text_of("stored/sqlite.sql"), tmp_path / "runs.db")


def check_reading(url: str) -> None:
    """Every tree of a restored database folds as it did, and the commands say the same of it, byte for byte."""
    for name in STORED:
        stored = asyncio.run(record.read(name, url))
        assert picture(fold(stored)) == text_of(f"stored/{name}.tree.json")
        assert transcripts.of_tree(root_of(name), url) == text_of(f"stored/{name}.show.txt")
    assert transcripts.of_runs(url) == text_of("stored/runs.txt")


def check_resuming(name: str, url: str) -> None:
    """A tree of a restored database goes on to the recorded outcome with the recorded events."""
    before = asyncio.run(record.read(name, url))
    outcome, new = resumed(name, url)
    assert compare(lines(new)) == compare(text_of(f"stored/{name}.resumed.jsonl"))
    tree = fold([*before, *new])
    recorded = without_remainders(text_of(f"stored/{name}.resumed.tree.json"))
    assert without_remainders(picture(tree)) == recorded
    assert tree.outcome() == without_outputs(outcome)
    assert asyncio.run(record.read(name, url)) == [*before, *new]
    assert transcripts.line_of(root_of(name), url) in transcripts.without_bytes(
        text_of("stored/runs.resumed.txt")
    ).split("\n")


def test_trees_of_an_sqlite_file_are_read_as_they_were(sqlite_url: str) -> None:
    """What an SQLite file has of finished, cancelled and killed trees folds and shows the same."""
    check_reading(sqlite_url)


@pytest.mark.parametrize("name", STORED)
def test_a_tree_of_an_sqlite_file_resumes_as_it_did(name: str, sqlite_url: str) -> None:
    """A tree that was killed, cancelled or limited goes on from an SQLite file in the same way."""
    check_resuming(name, sqlite_url)


@pytest.mark.parametrize("name", [name for name, tree in STORED.items() if not tree.killed])
def test_a_tree_is_written_to_an_sqlite_file_as_it_was(name: str, sqlite_url: str, tmp_path: Path) -> None:
    """The present code makes the tables that a recorded file has once it was written to, and the same rows in them."""
    new, recorded = tmp_path / "new.db", tmp_path / "runs.db"
    play(name, 0, f"sqlite:///{new}")
    asyncio.run(migrate(sqlite_url))
    written, before = (dumps.contents_of(file, root_of(name)) for file in (new, recorded))
    assert canonical(str(written.pop("pages"))) == canonical(str(before.pop("pages")))
    assert written == before


async def migrate(url: str) -> None:
    """Bring the tables of a file up to the present version, as the first claim does."""
    store = open_store(url)
    await store.claim("other", new=True)
    await store.release("other")
    await store.close()


def test_trees_of_a_postgres_dump_are_read_and_resume_as_they_did(
    postgres_programs: Path, postgres_url: str
) -> None:
    """The same holds for the same trees in PostgreSQL."""
    dumps.restore_postgres(postgres_programs, HERE / "stored/postgres.sql", postgres_url)
    check_reading(postgres_url)
    for name in STORED:
        check_resuming(name, postgres_url)


def test_killed_trees_have_everything_open_that_a_kill_can_interrupt() -> None:
    """The killed trees cover model calls, both tiers of tool calls, approvals and asides in flight at several depths."""
    shown = json.loads(text_of("stored/busy.tree.json"))
    open_now = {(kind, what, run.count(".")) for kind, run, what, _ in shown["intents"]}
    assert {
        ("model", "scripted", 2),
        ("call", "watch", 0),
        ("call", "rebuild", 0),
        ("call", "rebuild", 2),
        ("call", "task", 1),
    } <= open_now
    assert len(shown["requests"]) == 2
    assert shown["artifacts"]
    again = json.loads(text_of("stored/twice.tree.json"))
    assert [kind for kind, *_ in again["intents"]].count("model") == 2
    assert again["requests"]


# --- Commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", transcripts.RUN_CASES)
def test_run_prints_the_same_json(case: str, tmp_path: Path) -> None:
    """`remit run --output-format json` and `stream-json` print the same, but for the order of concurrent events."""
    printed, recorded = transcripts.run_case(case, tmp_path), text_of(f"commands/run_{case}.txt")
    assert _parted(printed) == _parted(recorded)


def _parted(printed: str) -> tuple[list[str], object]:
    """The lines that are not events, and the events."""
    events = [line for line in printed.split("\n") if line.startswith('{"kind":') and '"seq":' in line]
    return [line for line in printed.split("\n") if line not in events], canonical("\n".join(events))


def test_resume_by_id_finds_how_the_run_was_called(tmp_path: Path, sqlite_url: str) -> None:
    """`remit resume RUN` reads the stored record of the options of `remit run`, and prints the same."""
    printed, recorded = transcripts.resume_case(tmp_path, sqlite_url), text_of("commands/resume.txt")
    assert printed == transcripts.without_versions(recorded)


# --- The corpus itself ----------------------------------------------------------------------------


def all_events() -> Iterator[AnyEvent]:
    for file in sorted(HERE.glob("*/*.jsonl")):
        yield from decode_lines(file.read_bytes())


def test_the_corpus_has_every_kind_of_event_and_of_end() -> None:
    """Each kind of event, end, rejection and model call is there; `events_missed` alone is never recorded."""
    events = list(all_events())
    kinds = {str(kind.__struct_config__.tag) for kind in get_args(AnyEvent)}
    assert kinds - {event.kind for event in events} == {"events_missed"}
    ended = {event.outcome.status for event in events if isinstance(event, RunEnded)}
    assert set(Status) - ended == {Status.INTERRUPTED}, "which is a run without an end"
    rejected = {event.rejection.kind for event in events if isinstance(event, DelegationRejected)}
    assert rejected == set(get_args(RejectionKind))
    purposes = {event.purpose for event in events if isinstance(event, TurnStarted)}
    assert purposes == {"turn", "wrap_up", "summary", "compact"}


def test_every_recording_has_its_tree() -> None:
    """No file is left over from a tree that is not there any more."""
    names = {file.name.partition(".")[0] for file in (HERE / "scripted").iterdir()}
    assert names == set(SCRIPTED)
    stored = {file.name.partition(".")[0] for file in (HERE / "stored").iterdir()}
    assert stored == {*STORED, "runs", "sqlite", "postgres"}
    commands = {file.name for file in (HERE / "commands").iterdir()}
    assert commands == {*(f"run_{case}.txt" for case in transcripts.RUN_CASES), "resume.txt"}


def test_one_module_of_the_corpus_knows_where_private_things_are() -> None:
    """Only `parts.py` imports modules of remit that may move."""
    found: set[str] = set()
    for file in HERE.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if file.name != "parts.py":
                found |= {name.removeprefix("remit.") for name in names if name.startswith("remit.")}
    assert found <= PUBLIC


def test_the_canonical_form_ignores_the_order_of_siblings_and_nothing_else() -> None:
    """Two orders of concurrent events have one canonical form; a changed field or order within a run has another."""
    events = list(events_of("scripted/three_levels.jsonl"))
    same = canonical(lines(events))
    siblings = sorted(events, key=lambda event: (event.at, event.run, event.seq))
    assert siblings != events
    renumbered = [msgspec.structs.replace(event, seq=seq) for seq, event in enumerate(siblings, 1)]
    assert canonical(lines(renumbered)) == same
    assert canonical(lines(events[:-1])) != same
    later = msgspec.structs.replace(events[-1], at=events[-1].at + 1)
    assert canonical(lines([*events[:-1], later])) != same
    steps = [
        place for place, event in enumerate(events) if event.run == "r1" and event.kind == "turn_started"
    ]
    swapped = list(events)
    swapped[steps[0]], swapped[steps[1]] = events[steps[1]], events[steps[0]]
    assert canonical(lines(swapped)) != same


def test_the_outcome_of_a_tree_is_in_its_canonical_form() -> None:
    """Outcomes and totals are compared too: the root's end has its status and the usage of the whole tree."""
    end = canonical(text_of("scripted/three_levels.jsonl"))["r1", ""][-1]
    outcome = msgspec.convert(end["outcome"], Outcome)
    assert outcome.ok
    assert outcome.total_usage.requests == 17
