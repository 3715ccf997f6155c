"""Pages: many events in one row, read from any event, also from older files; an error in one tree does not affect others."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

import remit.stores.journal_store as journal_store
import remit.stores.sql.migrations as migrations
import remit.stores.writing.pages as pages
from remit.errors import StoreError
from remit.history.journal_files import APPLICATION_ID
from remit.history.redaction import Redactor
from remit.stores.sqlite import SqliteStore
from remit.stores.writing.lines import Line, line_of
from remit.testing.samples import ended, head, known, new_tree, read_events, refused, replied, started, warned
from remit.types.event_json import encode
from remit.types.events import Event, ReplyReceived, TurnStarted
from remit.types.limits import Usage
from remit.types.messages import Call, JsonObject, Reply

pytestmark = pytest.mark.real_time


def rows(path: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql).fetchall()


def turn(root: str, seq: int) -> TurnStarted:
    return TurnStarted(turn=seq, **head(root, seq))


def asked(root: str, seq: int, args: JsonObject) -> ReplyReceived:
    reply = Reply(calls=(Call("c1", "look", args),), stop="calls")
    return ReplyReceived(turn=1, reply=reply, usage=Usage(), **head(root, seq))


async def test_events_appended_together_share_a_row(tmp_path: Path) -> None:
    """Events of any kind are read back unchanged, from the start or the middle of a page."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    given: list[Event] = [started(root, 1)]
    given += [turn(root, seq) if seq % 2 else warned(root, seq, "ä\n") for seq in range(2, 300)]
    given += [replied(root, 300, Usage(requests=1, input_tokens=5)), ended(root, 301)]
    for event in given:
        store.append(event)
    assert await read_events(store, root) == given
    for after in (1, 150, 300):
        assert await read_events(store, root, after) == given[after:]
    line = await known(store, root)
    await store.close()
    assert line.events == 301
    assert (line.requests, line.tokens, line.status) == (1, 5, "completed")
    assert len(rows(path, "SELECT * FROM remit_pages")) < 10


async def test_a_full_page_is_followed_by_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same order."""
    monkeypatch.setattr(pages, "PAGE_BYTES", 2_000)
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    for seq in range(1, 201):
        store.append(warned(root, seq))
    assert [event.seq for event in await read_events(store, root)] == list(range(1, 201))
    await store.close()
    assert len(rows(path, "SELECT * FROM remit_pages")) > 10


async def test_later_changes_of_arguments_are_not_written(tmp_path: Path) -> None:
    """The arguments of a call belong to the model, which may reuse its dictionary."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    args: JsonObject = {"n": 1}
    store.append(asked(root, 1, args))
    args["n"] = 2
    (event,) = await read_events(store, root)
    await store.close()
    assert isinstance(event, ReplyReceived)
    assert event.reply.calls[0].args == {"n": 1}


async def test_long_and_short_events_are_written_in_their_order(tmp_path: Path) -> None:
    """Events are read in the order they were added, and none is left waiting."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    kinds: list[Callable[[int], Event]] = [
        lambda seq: turn(root, seq),
        lambda seq: started(root, seq, task=f"long {seq} " * 200),
        lambda seq: asked(root, seq, {"n": seq}),
        lambda seq: warned(root, seq, "w" * (seq % 3) * 1_000),
    ]
    given = [kinds[seq % 4](seq) for seq in range(1, 1_001)]
    for event in given:
        store.append(event)
    assert await read_events(store, root) == given
    assert store._writer.waiting_bytes() == 0
    await store.close()


async def test_a_lone_surrogate_is_refused_at_once(tmp_path: Path) -> None:
    """It cannot be encoded as JSON. No other event is lost, of the same tree or of another in the same transaction."""
    store = SqliteStore(tmp_path / "runs.db")
    odd, other = await new_tree(store), await new_tree(store)
    store.append(turn(odd, 1))
    with pytest.raises(StoreError, match=r"Event 2 of the run .* cannot be encoded as JSON"):
        store.append(ReplyReceived(turn=1, reply=Reply("\ud800"), usage=Usage(), **head(odd, 2)))
    store.append(turn(other, 1))
    await store.flush()
    assert [len(await read_events(store, root)) for root in (odd, other)] == [1, 1]
    await store.close()


async def test_an_error_in_one_tree_does_not_affect_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree whose page cannot be created loses its last events and gets the error; another tree loses nothing."""
    store = SqliteStore(tmp_path / "runs.db")
    broken, sound = await new_tree(store), await new_tree(store)
    store.append(turn(broken, 1))
    await store.flush()
    redact = Redactor.redact_lines

    def fail(self: Redactor, lines: bytes) -> bytes:
        if b"the odd one" in lines:
            raise ZeroDivisionError("a bug")
        return redact(self, lines)

    monkeypatch.setattr(Redactor, "redact_lines", fail)
    for event in (warned(broken, 2, "the odd one"), turn(sound, 1), turn(broken, 3)):
        store.append(event)
    assert "unexpected error" in str(await refused(store.flush(broken)))
    await store.flush(sound)
    with pytest.raises(StoreError):
        store.append(turn(broken, 4))
    store.append(turn(sound, 2))
    assert [event.seq for event in await read_events(store, sound)] == [1, 2]
    await store.release(broken)
    await store.close()
    other = SqliteStore(tmp_path / "runs.db")
    assert [event.seq for event in await read_events(other, broken)] == [1]
    await other.close()


async def test_an_event_added_while_the_writer_gives_up_leaves_no_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal may lack its last events, never events in between."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    store.append(warned(root, 1))
    await store.flush()

    def slow(event: Event) -> Line:
        if event.seq == 3:
            # The writer's thread gives up between the check of the claim and the adding.
            threading.Thread(target=store._writer._forget, args=(StoreError("The disk is gone."),)).start()
            time.sleep(0.05)
        return line_of(event)

    monkeypatch.setattr(journal_store, "line_of", slow)
    for seq in (2, 3, 4):
        with suppress(StoreError):
            store.append(warned(root, seq))
            await asyncio.sleep(0.05)
    await store.close()
    # The writer may have been writing the second or third event.
    assert rows(path, "SELECT seq FROM remit_events") in ([(1,)], [(1,), (2,)], [(1,), (2,), (3,)])


async def test_a_file_with_one_row_per_event_is_migrated(tmp_path: Path) -> None:
    """No event is lost, and later events follow the old ones."""
    path, root = tmp_path / "runs.db", "old"
    given: list[Event] = [started(root, 1), warned(root, 2, "ä"), turn(root, 3)]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for sql in (sql for step in migrations.MIGRATIONS[:2] for sql in step):
            connection.execute(sql.format(blob="BLOB"))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 2")
        connection.execute(
            "INSERT INTO remit_trees (root, owner, expires, claimed_at, agent, task, started_at, last_at, last_seq,"
            " events, bytes) VALUES ('old', '', 0, 0, 'lead', 'a task', 1, 3, 3, 3, 300)"
        )
        for event in given:
            connection.execute(
                "INSERT INTO remit_events VALUES (?, ?, ?, ?, ?, ?)",
                (root, event.seq, event.kind, event.run, event.at, encode(event).decode()),
            )
    store = SqliteStore(path)
    assert await read_events(store, root) == given
    await store.claim(root, new=False)
    store.append(ended(root, 4))
    assert await read_events(store, root) == [*given, ended(root, 4)]
    await store.close()
    assert [row[0] for row in rows(path, "SELECT seq FROM remit_events ORDER BY seq")] == [1, 2, 3, 4]
