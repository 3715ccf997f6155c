"""The SQLite store: files, threads, leases, redaction."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import anyio
import pytest

import remit.stores.owner as owner
import remit.stores.writing.writer as writer
from remit.errors import StoreError, TreeOwned
from remit.stores.sqlite import SqliteStore
from remit.testing.samples import ended, info, known, new_tree, read_events, refused, send, started, warned
from remit.types.commands import Send
from remit.types.events import RunEnded

pytestmark = pytest.mark.real_time

SECRET = "sk-ant-api03-a1B2c3D4e5F6g7H8i9J0k1L2m3N4"

HOLD = """
import asyncio, sys
from remit.stores.sqlite import SqliteStore
from remit.testing.samples import started

async def main():
    store = SqliteStore(sys.argv[1])
    await store.claim("held", new=True)
    store.append(started("held", 1))
    await store.flush()
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def ask(path: Path, sql: str) -> list[tuple[object, ...]]:
    """Run a statement as another program would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql).fetchall()


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_nothing_is_created_before_the_first_use(tmp_path: Path) -> None:
    """Creating a store object touches no disk and starts no thread; nor does closing an unused store."""
    before = threading.active_count()
    store = SqliteStore(tmp_path / "new" / "runs.db")
    await store.close()
    assert files(tmp_path) == []
    assert threading.active_count() == before


async def test_files_are_private(tmp_path: Path) -> None:
    """Other users cannot read the database and the folders created for it."""
    path = tmp_path / "a" / "b" / "runs.db"
    store = SqliteStore(path)
    await new_tree(store)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (path, path.parent, path.parent.parent)}
    modes |= {p.suffix: stat.S_IMODE(p.stat().st_mode) for p in path.parent.glob("runs.db-*")}
    await store.close()
    assert modes == {"runs.db": 0o600, "b": 0o700, "a": 0o700, ".db-wal": 0o600, ".db-shm": 0o600}


async def test_a_file_that_others_may_read_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A journal that other users can read or own causes one warning, and is still written."""
    path = tmp_path / "runs.db"
    for _ in range(2):
        path.touch()
        path.chmod(0o644)
        store = SqliteStore(path)
        await new_tree(store)
        await store.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"The run store {path} is open to other users: its mode lets them read it. Run: chmod 600 {path}"
    ]


async def test_names_with_special_characters(tmp_path: Path) -> None:
    """A path may contain any characters."""
    path = tmp_path / "a b?c#d%20é" / "runs.db"
    store = SqliteStore(path)
    await new_tree(store)
    await store.close()
    assert path.exists()


async def test_no_thread_is_left(tmp_path: Path) -> None:
    """After `close` the threads have ended."""
    before = set(threading.enumerate())
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    store.append(started(root, 1))
    await read_events(store, root)
    assert len(threading.enumerate()) == len(before) + 2
    await store.close()
    assert set(threading.enumerate()) == before


def test_one_loop_after_another(tmp_path: Path) -> None:
    """A store can be used from a new loop after the old one is closed, even with answers pending."""
    store = SqliteStore(tmp_path / "runs.db")

    async def first() -> str:
        root = await new_tree(store)
        store.append(started(root, 1))
        # The loop will be closed before the answer.
        asyncio.get_running_loop().call_soon(asyncio.ensure_future, store.flush())
        await asyncio.sleep(0)
        return root

    root = asyncio.run(first())

    async def second() -> int:
        store.append(warned(root, 2))
        count = len(await read_events(store, root))
        await store.close()
        return count

    assert asyncio.run(second()) == 2


async def test_an_event_is_copied_when_it_is_appended(tmp_path: Path) -> None:
    """Changes to an event's values after `append` are not stored."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    output = {"answer": [1]}
    store.append(ended(root, 1, output=output))
    output["answer"].append(2)
    (event,) = await read_events(store, root)
    await store.close()
    assert isinstance(event, RunEnded)
    assert event.outcome.output == {"answer": [1]}


async def test_an_event_without_json_is_refused(tmp_path: Path) -> None:
    """An event that cannot be encoded is refused; the next event is accepted."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    with pytest.raises(StoreError, match=r"Event 1 .* cannot be encoded as JSON"):
        store.append(ended(root, 1, output=object()))
    with pytest.raises(StoreError, match="in order"):
        store.append(warned(root, 0))
    store.append(warned(root, 2))
    await store.flush()
    await store.close()


async def test_rows_can_be_read_with_other_programs(tmp_path: Path) -> None:
    """One row of the view is one event, as JSON that SQLite can query."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    for event in (started(root, 1), warned(root, 4, "ä"), ended(root, 5, run=f"{root}.1")):
        store.append(event)
    await store.close()
    rows = ask(
        tmp_path / "runs.db",
        "SELECT root, seq, kind, run, at, json_extract(data, '$.text') FROM remit_events ORDER BY seq",
    )
    assert rows == [
        (root, 1, "run_started", root, 1001.0, None),
        (root, 4, "warned", root, 1004.0, "ä"),
        (root, 5, "run_ended", f"{root}.1", 1005.0, None),
    ]
    assert ask(tmp_path / "runs.db", "PRAGMA journal_mode") == [("wal",)]
    assert ask(tmp_path / "runs.db", "PRAGMA auto_vacuum") == [(2,)]


async def test_secrets_are_not_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recognisable keys, given secrets and those of the environment are nowhere in the files: events, artifacts, commands."""
    monkeypatch.setenv("SOME_API_KEY", "zz-91-yy-82")
    store = SqliteStore(tmp_path / "runs.db", secrets=["blue moon 7"])
    said = f"{SECRET} and blue moon 7 and zz-91-yy-82"
    root = await new_tree(store)
    store.append(started(root, 1, task=said))

    async def pieces() -> AsyncIterator[str]:
        for char in f"{said}\n" * 5000:
            yield char

    await store.save_artifact(root, "a", said)
    await store.save_artifact(root, "streamed", pieces())
    await store.post(root, Send(id="a", at=1.0, run=root, text=said))
    assert (await known(store, root)).task == "[redacted] and [redacted] and [redacted]"
    await store.flush()
    on_disk = b"".join(path.read_bytes() for path in files(tmp_path))
    await store.close()
    assert b"[redacted]" in on_disk
    for secret in (SECRET[8:], "blue moon", "zz-91"):
        assert secret.encode() not in on_disk


async def test_a_long_artifact_needs_little_memory(tmp_path: Path) -> None:
    """Fifty megabytes are written and read in parts and never held whole in memory."""
    piece = "all quiet here.\n" * 4096

    async def pieces() -> AsyncIterator[str]:
        for _ in range(800):
            yield piece

    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    tracemalloc.start()
    try:
        await store.save_artifact(root, "long", pieces())
        part = await store.load_artifact(root, "long", 40_000_000, 32)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    store.append(started(root, 1))
    size = (await known(store, root)).bytes
    await store.close()
    assert part == "all quiet here.\n" * 2
    assert size > 52_000_000
    assert peak < 12_000_000


async def test_deleting_gives_the_space_back(tmp_path: Path) -> None:
    """After a tree is deleted, the file is as small as before."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    store.append(started(root, 1))
    await store.save_artifact(root, "a", "x" * 3_000_000)
    await store.release(root)
    await store.close()
    assert path.stat().st_size > 3_000_000
    store = SqliteStore(path)
    await store.delete(root)
    await store.close()
    assert path.stat().st_size < 200_000


async def test_a_cancelled_claim_is_released(tmp_path: Path) -> None:
    """A caller that is cancelled while it claims a tree does not own it afterwards."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    store.append(started(root, 1))
    await store.release(root)
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.claim(root, new=False)
    await store.flush()
    other = SqliteStore(tmp_path / "runs.db")
    await other.claim(root, new=False)
    await other.close()
    await store.close()


def hold(path: Path) -> subprocess.Popen[str]:
    """Another process that owns the tree `held`."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def died(pid: int) -> None:
    while owner._started(pid):
        time.sleep(0.01)


def stand_still(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_live_process_keeps_its_tree_and_a_dead_one_does_not(tmp_path: Path) -> None:
    """Another process's tree is refused, with its pid, until that process is killed; then it can be claimed at once."""
    path = tmp_path / "runs.db"
    process = hold(path)
    store = SqliteStore(path)
    try:
        error = await refused(store.claim("held", new=False), "held", TreeOwned)
        assert f"pid {process.pid} on " in str(error)
        assert "stop it" in str(error)
        assert (await known(store, "held")).owner.startswith(f"pid {process.pid} on ")
        await refused(store.delete("held"), "held", TreeOwned)
        await store.post("held", send("held", "a"))
        process.kill()
        # Without waiting for it: a zombie process counts as dead.
        died(process.pid)
        assert not (await known(store, "held")).live
        await store.claim("held", new=False)
        store.append(warned("held", 2))
        await store.flush()
    finally:
        process.kill()
        process.communicate()
        await store.close()


async def test_a_claim_is_renewed_while_the_loop_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's thread renews a claim, even without events and while the loop is blocked."""
    monkeypatch.setattr(owner, "LEASE_S", 1.0)
    monkeypatch.setattr(writer, "HEARTBEAT_S", 0.1)
    store, other = SqliteStore(tmp_path / "runs.db"), SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    # Block the loop for longer than the lease.
    stand_still(1.5)
    await refused(other.claim(root, new=True), root)
    await store.close()
    await other.claim(root, new=True)
    await other.close()


async def append_on(store: SqliteStore, root: str, seq: int) -> None:
    """Append events until one is refused."""
    with anyio.fail_after(10):
        while True:
            store.append(warned(root, seq))
            seq += 1
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("notices", ["commit", "heartbeat", "artifact"])
async def test_a_former_owner_writes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notices: str
) -> None:
    """An owner whose lease expired and was taken over is refused from then on; its other trees are not affected."""
    if notices == "heartbeat":
        monkeypatch.setattr(writer, "HEARTBEAT_S", 0.05)
    path = tmp_path / "runs.db"
    store, other = SqliteStore(path), SqliteStore(path)
    lost, kept = await new_tree(store), await new_tree(store)
    store.append(started(lost, 1))
    store.append(started(kept, 1))
    await store.flush()
    ask(path, f"UPDATE remit_trees SET expires = 0, owner = 'somebody' WHERE root = '{lost}'")
    await other.claim(lost, new=False)
    other.append(warned(lost, 2, "the new owner's"))
    await other.flush()
    if notices == "commit":
        store.append(warned(lost, 2, "the old owner's"))
        store.append(warned(kept, 2))
        await refused(store.flush(), lost, TreeOwned)
    elif notices == "artifact":
        await refused(store.save_artifact(lost, "a", "text"), lost, TreeOwned)
    with pytest.raises(TreeOwned, match="taken over by "):
        await append_on(store, lost, 3)
    await store.release(lost)
    store.append(warned(kept, 3))
    await store.flush()
    texts = [getattr(event, "text", "") for event in await read_events(other, lost)]
    seqs = [event.seq for event in await read_events(other, kept)]
    await other.close()
    await store.close()
    assert texts == ["", "the new owner's"]
    assert seqs == ([1, 2, 3] if notices == "commit" else [1, 3])


async def test_unused_claims_of_dead_processes_are_deleted(tmp_path: Path) -> None:
    """A claim without events is deleted long after its process died."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    ask(path, "UPDATE remit_trees SET owner = 'somebody', expires = 0")
    other = SqliteStore(path)
    assert await info(other, root) is None
    await other.delete("nothing")
    assert ask(path, "SELECT root FROM remit_trees") == []
    await other.close()
    await store.close()


async def test_a_prefix_of_an_id_suggests_the_whole_id(tmp_path: Path) -> None:
    """The command line shows and accepts prefixes of ids; programs must pass the whole id."""
    store = SqliteStore(tmp_path / "runs.db")
    for root in ("abcde1", "abcde2", "xyz99"):
        await store.claim(root, new=True)
        store.append(started(root, 1))
        await store.release(root)
    assert "Did you mean 'xyz99'?" in str(await refused(store.claim("xyz", new=False)))
    assert "Several ids begin with it" in str(await refused(store.claim("abcde", new=False)))
    assert "`remit runs` lists the runs" in str(await refused(store.claim("", new=False)))
    assert "Did you mean 'xyz99'?" in str(await refused(store.post("xyz9", send("xyz9", "c"))))
    await store.close()
