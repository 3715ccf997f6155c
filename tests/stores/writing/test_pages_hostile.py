"""Hostile cases for pages: damage in the middle, late changes, finalizers, tables read by people."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import cast

import psycopg
import pytest
from msgspec import structs

import remit.stores.journal_store as journal_store
from remit.errors import StoreError, TreeOwned
from remit.history.redaction import Redactor
from remit.stores.postgres import PostgresStore
from remit.stores.sql.database import Trouble
from remit.stores.sqlite import SqliteLink, SqliteStore
from remit.stores.writing.lines import Line, line_of
from remit.stores.writing.pages import PAGE_BYTES
from remit.stores.writing.worker import Worker
from remit.testing.samples import head, known, new_tree, read_events, refused, warned
from remit.types.event_json import encode
from remit.types.events import CallEnded, Event, TurnStarted, Warned
from remit.types.messages import Json
from remit.types.ports import Store

pytestmark = pytest.mark.real_time


def change(path: Path, sql: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql, values).fetchall()


async def two_pages(path: Path) -> str:
    """A tree with events 1 to 3 in one page and 5 to 8 in another."""
    store = SqliteStore(path)
    root = await new_tree(store)
    for seqs in (range(1, 4), range(5, 9)):
        for seq in seqs:
            store.append(warned(root, seq))
        await store.flush()
    await store.close()
    return root


async def read_some(path: Path, root: str, after: int = 0) -> tuple[list[int], str]:
    """The numbers of the readable events, and the error for the rest."""
    store = SqliteStore(path)
    found: list[Event] = []
    said = ""
    try:
        async for event in store.read(root, after):
            found.append(event)  # noqa: PERF401 - events before the error count
    except StoreError as error:
        said = str(error)
    await store.close()
    return [event.seq for event in found], said


NEWER = '{"kind":"not_known_yet","seq":%s}'


@pytest.mark.parametrize(
    ("damage", "after", "left", "named"),
    [
        (lambda lines: [NEWER % 5, *lines[1:]], 0, [1, 2, 3], "5"),
        (lambda lines: ["garbage", *lines[1:]], 0, [1, 2, 3], "5"),
        (lambda lines: ["garbage", *lines[1:]], 3, [], "5"),
        (lambda lines: [",".join(lines)], 0, [1, 2, 3], "8"),
        (lambda lines: [*lines[:1], "{", *lines[2:]], 0, [1, 2, 3, 5], "6"),
        (lambda lines: lines[:2], 0, [1, 2, 3, 5, 6], "8"),
        (lambda _: [], 0, [1, 2, 3], "8"),
        # Damage before `after` does not matter.
        (lambda lines: [NEWER % 5, *lines[1:]], 5, [6, 7, 8], ""),
        (lambda lines: ["garbage", *lines[1:]], 5, [6, 7, 8], ""),
        (lambda lines: ["garbage", *lines[1:]], 6, [7, 8], ""),
        (lambda lines: ["garbage", NEWER % 6, *lines[2:]], 5, [], "6"),
        (lambda lines: ["", *lines, ""], 0, [1, 2, 3, 5, 6, 7, 8], ""),
    ],
)
async def test_an_unreadable_event_of_a_page_is_always_reported(
    tmp_path: Path, damage: Callable[[list[str]], list[str]], after: int, left: list[int], named: str
) -> None:
    """A history with a silent gap would be taken for the truth, wherever in its page the damage is."""
    path = tmp_path / "runs.db"
    root = await two_pages(path)
    ((data,),) = change(path, "SELECT data FROM remit_pages WHERE last = 8")
    lines = "\n".join(damage(str(data).split("\n")))
    change(path, "UPDATE remit_pages SET data = ? WHERE last = 8", lines)
    found, said = await read_some(path, root, after)
    assert found == left
    assert (f"cannot read event {named} of the run" in said) if named else not said


def called(root: str, seq: int, details: Json) -> CallEnded:
    return CallEnded(call="c1", tool="look", success=True, content="seen", details=details, **head(root, seq))


@pytest.mark.parametrize("details", [{}, []])
async def test_details_changed_later_are_not_written(
    tmp_path: Path, details: dict[str, Json] | list[Json]
) -> None:
    """A tool may return an empty dictionary and fill it later."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    store.append(called(root, 1, details))
    if isinstance(details, dict):
        details["late"] = True
    else:
        details.append("late")
    (event,) = await read_events(store, root)
    await store.close()
    assert isinstance(event, CallEnded)
    assert not event.details


async def test_a_finalizer_may_add_an_event_while_one_is_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector may run at any time and end a run of another tree, which then adds its last event."""
    store = SqliteStore(tmp_path / "runs.db")
    one, other = await new_tree(store), await new_tree(store)
    waiting = [warned(other, 1)]

    def collect(event: Event) -> Line:
        if waiting:
            store.append(waiting.pop())
        return line_of(event)

    monkeypatch.setattr(journal_store, "line_of", collect)
    adding = threading.Thread(target=store.append, args=(warned(one, 1),), daemon=True)
    adding.start()
    adding.join(2.0)
    assert not adding.is_alive()
    assert [len(await read_events(store, root)) for root in (one, other)] == [1, 1]
    await store.close()


async def test_events_of_another_owner_are_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another owner takes over the tree and writes more events before a commit is retried, our events are lost."""
    path = tmp_path / "runs.db"
    store, taker = SqliteStore(path), SqliteStore(path)
    root = await new_tree(store)
    store.append(warned(root, 1))
    await store.flush()
    sound, ours = SqliteLink.commit, threading.Event()

    def commit(link: SqliteLink) -> None:
        if threading.current_thread() is store._writer.worker._thread and not ours.is_set():
            raise Trouble("The server went away.", passing=True)
        sound(link)

    monkeypatch.setattr(SqliteLink, "commit", commit)
    store.append(warned(root, 2, "ours"))
    await asyncio.sleep(0.1)
    change(path, "UPDATE remit_trees SET owner = '', expires = 0")
    await taker.claim(root, new=False)
    for seq in (2, 3):
        taker.append(warned(root, seq, "theirs"))
    await taker.flush()
    ours.set()
    await refused(store.flush(root), root, TreeOwned)
    await taker.close()
    await store.close()


@pytest.mark.parametrize("wait_s", [0.0, 0.2])
async def test_release_raises_if_the_last_events_were_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_s: float
) -> None:
    """Whether the writer noticed before the release or only then; otherwise the next owner would continue after a gap."""

    def broken(self: Redactor, lines: bytes) -> bytes:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Redactor, "redact_lines", broken)
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    store.append(warned(root, 1))
    await asyncio.sleep(wait_s)
    assert "unexpected error" in str(await refused(store.release(root)))
    # The claim is released despite the error.
    await store.claim(root, new=True)
    await store.close()


async def test_ended_does_not_wait_for_a_thread_that_has_just_ended() -> None:
    """The thread may have looked for a promise right before `ended` created it."""
    worker = Worker("test", lambda: None, lambda: True, lambda: None)
    run = worker._run

    def slow() -> None:
        run()
        time.sleep(0.3)

    worker._run = slow
    worker.start()
    worker.stop()
    await asyncio.sleep(0.1)
    began = time.monotonic()
    await worker.ended(5.0)
    assert time.monotonic() - began < 2.0
    assert not worker.alive


async def test_one_damaged_page_does_not_hide_other_rows_of_the_view(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    await two_pages(path)
    change(path, "UPDATE remit_pages SET data = 'garbage' WHERE last = 3")
    rows = change(path, "SELECT seq, kind FROM remit_events ORDER BY seq")
    assert rows == [(3, "unreadable"), *((seq, "warned") for seq in range(5, 9))]


ODD_TEXTS = ("\0", "\\u0000", "a\u2028b\x85\r\n", '"\\', "\U0001f600")


async def with_odd_texts(store: Store) -> tuple[str, list[Warned]]:
    root = await new_tree(store)
    given = [warned(root, seq, text) for seq, text in enumerate(ODD_TEXTS, 1)]
    for event in given:
        store.append(event)
    await store.flush()
    return root, given


async def test_the_postgres_view_shows_odd_texts(postgres_url: str) -> None:
    """A zero character in one text must not break the view for all events."""
    store = PostgresStore(postgres_url)
    root, given = await with_odd_texts(store)
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute("SELECT seq, kind, run, at, data FROM remit_events ORDER BY seq").fetchall()
    assert rows == [(e.seq, "warned", root, e.at, encode(e).decode()) for e in given]
    assert await read_events(store, root) == given
    await store.close()


async def test_the_sqlite_view_shows_odd_texts(tmp_path: Path) -> None:
    """Each event is a row with its exact text."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root, given = await with_odd_texts(store)
    rows = change(path, "SELECT seq, kind, run, at, data FROM remit_events ORDER BY seq")
    await store.close()
    assert rows == [(e.seq, "warned", root, e.at, encode(e).decode()) for e in given]


async def test_pages_of_a_deep_tree_are_bounded(tmp_path: Path) -> None:
    """Each event names all runs above its own, so events of deep runs are long."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    first = TurnStarted(turn=1, **head(root, 1))
    path_down = tuple(f"agent-number-{n}" for n in range(1000))
    deep = structs.replace(first, where=structs.replace(first.where, depth=999, path=path_down))
    for seq in range(1, 1_001):
        store.append(structs.replace(deep, seq=seq))
    await store.close()
    ((longest,),) = change(path, "SELECT max(length(data)) FROM remit_pages")
    # The tree has 19 MB; the last event of a page may exceed the remaining room.
    assert cast(int, longest) < PAGE_BYTES + 20_000


async def test_a_hundred_thousand_events_at_once_are_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take about 40 MB: a fast run must not lose its journal because of them."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    sound, added = SqliteLink.commit, threading.Event()

    def late(link: SqliteLink) -> None:
        added.wait(20.0)
        sound(link)

    monkeypatch.setattr(SqliteLink, "commit", late)
    try:
        for seq in range(1, 100_001):
            store.append(TurnStarted(turn=1, **head(root, seq)))
    finally:
        added.set()
    await store.flush()
    assert (await known(store, root)).events == 100_000
    await store.close()
