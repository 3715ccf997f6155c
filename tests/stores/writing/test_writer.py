"""The writer: kills, hanging databases, and reads and artifacts that must not delay it."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Generic, TypeVar

import pytest

import remit.stores.journal_store as journal_store
import remit.stores.writing.writer as writer
from remit.errors import StoreError
from remit.history.redaction import Redactor
from remit.stores import open_store
from remit.stores.journal_store import JournalStore
from remit.stores.sql.database import Link
from remit.stores.sqlite import SqliteFile, SqliteStore
from remit.stores.writing.worker import Promise, Worker
from remit.testing.samples import new_tree, read_events, refused, send, started, stream, together, warned

pytestmark = pytest.mark.real_time

T = TypeVar("T")

WRITE = """
import asyncio, sys
from remit.stores.sqlite import SqliteStore
from remit.testing.samples import warned

async def main():
    store = SqliteStore(sys.argv[1])
    await store.claim("r", new=True)
    seq = 0
    while True:
        for _ in range(50):
            seq += 1
            store.append(warned("r", seq))
        if seq % 500 == 0:
            await store.flush()
            print(seq, flush=True)
        await asyncio.sleep(0)

asyncio.run(main())
"""


def killed_in_the_middle(path: Path, lines: int) -> int:
    """Kill a process that writes; returns the last `seq` that it knew to be durable."""
    process = subprocess.Popen([sys.executable, "-c", WRITE, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    durable = 0
    for _ in range(lines):
        durable = int(process.stdout.readline())
    process.kill()
    process.communicate()
    return durable


@pytest.mark.parametrize("lines", [1, 4, 9])
async def test_a_kill_loses_only_the_last_events(tmp_path: Path, lines: int) -> None:
    """After a SIGKILL all flushed events are stored, and the rest has no gap."""
    path = tmp_path / "runs.db"
    durable = killed_in_the_middle(path, lines)
    store = SqliteStore(path)
    seqs = [event.seq for event in await read_events(store, "r")]
    assert seqs == list(range(1, len(seqs) + 1))
    assert len(seqs) >= durable
    await store.claim("r", new=False)
    store.append(warned("r", len(seqs) + 1))
    await store.close()


class Hanging(SqliteFile):
    """A file that can stop responding."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.answers = threading.Event()
        self.answers.set()

    def open_writer(self) -> Link:
        link = super().open_writer()
        begin = link.begin

        def hang(*, lasting: bool = True) -> None:
            self.answers.wait(20)
            begin(lasting=lasting)

        link.begin = hang
        return link


async def test_a_file_that_does_not_respond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers that wait for a hanging file get an error; when it responds again, nothing is lost."""
    monkeypatch.setattr(journal_store, "PATIENCE_S", 0.2)
    place = Hanging(tmp_path / "runs.db")
    store = JournalStore(place)
    root = await new_tree(store)
    place.answers.clear()
    store.append(started(root, 1))
    assert "does not respond" in str(await refused(store.flush()))
    assert "does not respond" in str(await refused(store.save_artifact(root, "a", "x")))
    place.answers.set()
    store.append(warned(root, 2))
    await store.flush()
    assert [event.seq for event in await read_events(store, root)] == [1, 2]
    await store.close()


async def test_reading_does_not_wait_for_writing(tmp_path: Path) -> None:
    """Stored events can be read while the writer hangs."""
    place = Hanging(tmp_path / "runs.db")
    store, other = JournalStore(place), SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    store.append(started(root, 1))
    await store.flush()
    place.answers.clear()
    store.append(warned(root, 2))
    assert [event.seq for event in await read_events(other, root)] == [1]
    assert await store.load_artifact(root, "a", 0, 1) is None
    assert await store.commands(root, 0, wait=False) == []
    place.answers.set()
    await store.close()
    await other.close()


async def test_events_are_written_between_parts_of_a_long_artifact(tmp_path: Path) -> None:
    """An artifact is written in groups, with the events that arrive meanwhile in between."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    done: list[str] = []

    async def save() -> None:
        await store.save_artifact(root, "a", stream(["x" * 1_000_000] * 30))
        done.append("artifact")

    async def append() -> None:
        await asyncio.sleep(0.01)
        store.append(started(root, 1))
        await store.flush()
        done.append("event")

    await together((save(), append()))
    await store.close()
    assert done == ["event", "artifact"]


async def test_many_flushes_at_once(tmp_path: Path) -> None:
    """A thousand flushes need few commits, and each returns when its own events are stored."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)

    async def one(seq: int) -> None:
        store.append(warned(root, seq))
        await store.flush()

    await together(one(seq) for seq in range(1, 1001))
    assert len(await read_events(store, root)) == 1000
    await store.close()


async def test_a_flush_that_starts_during_the_last_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush that starts at the moment the last event is written is resolved too."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    seen = store._writer

    class Late(Promise[T], Generic[T]):
        def __init__(self) -> None:
            super().__init__()
            end = time.monotonic() + 30
            while seen._any_event() or seen._behind:
                assert time.monotonic() < end
                time.sleep(0.001)

    monkeypatch.setattr(writer, "Promise", Late)
    store.append(started(root, 1))
    await asyncio.wait_for(store.flush(root), 30)
    await store.close()


async def test_a_cancelled_flush_does_not_affect_others(tmp_path: Path) -> None:
    """Other flushes and the events are not affected."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    for seq in range(1, 20):
        store.append(warned(root, seq))
        task = asyncio.create_task(store.flush())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
    await store.flush()
    assert len(await read_events(store, root)) == 19
    await store.close()


async def test_close_while_others_wait(tmp_path: Path) -> None:
    """A caller that waits for a command when the store is closed gets a StoreError."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    waiting = asyncio.create_task(store.commands(root, 0, wait=True))
    await asyncio.sleep(0.05)
    await store.close()
    with pytest.raises(StoreError):
        await waiting


async def test_a_bug_in_the_writer_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting callers get any exception of the writer, and the store can be closed."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)

    def broken(self: Redactor, lines: bytes) -> bytes:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Redactor, "redact_lines", broken)
    store.append(started(root, 1))
    assert "ZeroDivisionError: a bug" in str(await refused(store.flush()))
    with pytest.raises(StoreError, match="a bug"):
        store.append(warned(root, 2))
    await store.release(root)
    await store.close()


async def test_names_that_no_database_can_store(tmp_path: Path) -> None:
    """A name with a lone surrogate raises StoreError wherever it is used."""
    store = SqliteStore(tmp_path / "runs.db")
    odd = "r\ud800"
    for use in (store.claim(odd, new=True), store.delete(odd), store.load_artifact(odd, "a", 0, 1)):
        await refused(use)
    await refused(store.post(odd, send(odd, "a")))
    await refused(read_events(store, odd))
    await store.close()


async def test_a_broken_artifact_leaves_no_rows(tmp_path: Path) -> None:
    """The rows of a failed artifact are deleted, by its owner or by the next owner."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    store.append(started(root, 1))

    async def broken() -> AsyncIterator[str]:
        yield "x" * 3_000_000
        raise RuntimeError("the source failed")

    with pytest.raises(RuntimeError):
        await store.save_artifact(root, "a", broken())
    await store.release(root)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("SELECT count(*) FROM remit_chunks").fetchone() == (0,)
        connection.execute("INSERT INTO remit_chunks VALUES (?, 1, 0, x'78')", (root,))
        await store.claim(root, new=False)
        assert connection.execute("SELECT count(*) FROM remit_chunks").fetchone() == (0,)
    await store.close()


def test_work_that_arrives_between_a_turn_and_sleep_is_seen() -> None:
    """A worker that was not woken because it was not asleep checks again before it sleeps."""
    turned = threading.Semaphore(0)
    answers = iter([True, False])

    def turn() -> None:
        turned.release()

    worker = Worker("test", turn, lambda: next(answers, True), lambda: None)
    worker.start()
    assert turned.acquire(timeout=60)
    worker.urge()
    assert turned.acquire(timeout=60)
    assert turned.acquire(timeout=60)
    worker.stop()


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
async def test_everything_but_claims_survives_a_power_cut(
    place: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events, artifacts, commands and deletions are synced when they are committed; claims and releases are not."""
    # The test server has synchronous_commit off.
    monkeypatch.setenv("PGOPTIONS", "-c synchronous_commit=on")
    sql, synced = ("PRAGMA synchronous", 2) if place == "sqlite" else ("SHOW synchronous_commit", "on")
    url = f"sqlite:///{tmp_path}/runs.db" if place == "sqlite" else request.getfixturevalue("postgres_url")
    store = open_store(url)
    seen: list[bool] = []
    transact = writer.Writer._transact

    def look(self: writer.Writer, link: Link, work: Callable[[], T], *, lasting: bool = True) -> T:
        def work_and_look() -> T:
            seen.append(link.rows(sql)[0][0] == synced)
            return work()

        return transact(self, link, work_and_look, lasting=lasting)

    monkeypatch.setattr(writer.Writer, "_transact", look)

    async def synced_by(work: Awaitable[None]) -> list[bool]:
        seen.clear()
        await work
        return list(seen)

    assert await synced_by(store.claim("r", new=True)) == [False]
    store.append(started("r", 1))
    assert await synced_by(store.flush()) == [True]
    assert await synced_by(store.save_artifact("r", "a", "text")) == [True]
    assert await synced_by(store.post("r", send("r", "hello"))) == [True]
    store.append(warned("r", 2))
    assert await synced_by(store.release("r")) == [True, False]
    assert await synced_by(store.claim("r", new=False)) == [False]
    assert await synced_by(store.release("r")) == [False]
    assert await synced_by(store.delete("r")) == [True]
    await store.close()
