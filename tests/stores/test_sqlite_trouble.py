"""Problems with a file: each message says what happened, where, and what to do."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import remit.stores.journal_store as journal_store
import remit.stores.sqlite as sqlite
import remit.stores.writing.writer as writer
from remit.errors import StoreError
from remit.stores.sqlite import SqliteFile, SqliteLink, SqliteStore
from remit.stores.writing.lines import line_of
from remit.stores.writing.waiting import LOOK_BYTES
from remit.testing.samples import head, known, new_tree, read_events, refused, send, started, together, warned
from remit.types.events import Event, TurnStarted

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short timeouts, so that the tests are fast."""
    monkeypatch.setattr(writer, "PATIENCE_S", 0.3)
    monkeypatch.setattr(sqlite, "BUSY_S", 0.05)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program holds the write lock of the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield
        connection.execute("ROLLBACK")


def ask(path: Path, sql: str, values: tuple[str, ...] = ()) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql, values).fetchall()


def says(error: StoreError, path: Path, *words: str) -> None:
    """Check that a message names the place, the problem and what to do."""
    for word in (str(path), *words):
        assert word in str(error), f"{word!r} is not in: {error}"


def content(path: Path) -> bytes:
    return path.read_bytes()


async def test_locked_at_open(tmp_path: Path) -> None:
    """The error says that another program locked the file; once it is free, the same store works."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    with locked(path):
        error = await refused(store.claim("r", new=True), str(path))
        says(error, path, "locked by another program", "Close the program that holds the lock", "try again")
    await store.claim("r", new=True)
    await store.close()


async def test_locked_while_running(tmp_path: Path) -> None:
    """While the file is locked, events wait and `flush` raises; afterwards all events are stored, in order."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    store.append(started(root, 1))
    await store.flush()
    with locked(path):
        for seq in range(2, 100):
            store.append(warned(root, seq))
        says(await refused(store.flush()), path, "locked by another program")
        says(await refused(store.save_artifact(root, "a", "text")), path, "locked by another program")
        says(await refused(store.post(root, send(root, "a"))), path, "locked by another program")
        store.append(warned(root, 100))
    await store.flush()
    store.append(warned(root, 101))
    assert [event.seq for event in await read_events(store, root)] == list(range(1, 102))
    assert await store.load_artifact(root, "a", 0, 1) is None
    assert await store.commands(root, 0, wait=False) == []
    await store.close()


def fill(store: SqliteStore, root: str, make: Callable[[int], Event] | None = None) -> tuple[int, StoreError]:
    """Append events until one is refused; returns their number and the error."""
    for taken in range(10_000):
        try:
            store.append(make(taken) if make else warned(root, taken + 1))
        except StoreError as error:
            return taken, error
    raise AssertionError("the store refused no event")


async def test_too_much_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an event was refused for lack of room, later events of its tree are refused too, so that the journal has no gap."""
    monkeypatch.setattr(journal_store, "MOST_BUFFERED", 20_000)
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    with locked(path):
        taken, error = fill(store, root)
        says(error, path, "are waiting")
        assert 20 < taken < 999
    await refused(store.flush())
    with pytest.raises(StoreError, match="are waiting"):
        store.append(warned(root, 2000))
    await store.release(root)
    seqs = [event.seq for event in await read_events(store, root)]
    await store.close()
    assert seqs == list(range(1, taken + 1))


@pytest.mark.parametrize("step", [1, 5_000])
async def test_too_much_waits_of_short_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The waiting bytes are summed up often enough, although not for each event."""
    monkeypatch.setattr(journal_store, "MOST_BUFFERED", 400_000)
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    with locked(path):
        taken, error = fill(store, root, lambda n: TurnStarted(**head(root, 10**9 + n * step), turn=1))
        says(error, path, "are waiting")
    line = line_of(TurnStarted(**head(root, 10**9), turn=1))
    # In between: for events that the writer has taken, only their JSON counts.
    assert 400_000 // line.size < taken <= (400_000 + LOOK_BYTES) // len(line.json) + 1
    await store.close()


async def test_closing_a_locked_store(tmp_path: Path) -> None:
    """`close` drops events that cannot be written, and raises nothing."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    store.append(started(root, 1))
    await store.flush()
    with locked(path):
        store.append(warned(root, 2))
        await store.close()
    other = SqliteStore(path)
    assert [event.seq for event in await read_events(other, root)] == [1]
    await other.close()


async def test_disk_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that the disk is full; with space again, all waiting events are written in order."""
    path = tmp_path / "runs.db"
    room = {"pages": 40}
    connect = SqliteFile._connect

    def in_little_room(self: SqliteFile, *, writing: bool) -> SqliteLink:
        link = connect(self, writing=writing)
        link.rows(f"PRAGMA max_page_count = {room['pages']}")
        return link

    monkeypatch.setattr(SqliteFile, "_connect", in_little_room)
    store = SqliteStore(path)
    root = await new_tree(store)
    store.append(started(root, 1))
    await store.flush()
    for seq in range(2, 22):
        store.append(warned(root, seq, "x" * 50_000))
    says(await refused(store.flush()), path, "disk is full", "Free some space")
    assert [event.seq for event in await read_events(SqliteStore(path), root)] == [1]
    room["pages"] = 1_000_000
    await store.flush()
    seqs = [event.seq for event in await read_events(store, root)]
    await store.close()
    assert seqs == list(range(1, 22))
    assert ask(path, "PRAGMA integrity_check") == [("ok",)]


LIMITED = """
import asyncio, resource, sys
import remit.stores.writing.writer as writer
from remit.errors import StoreError
from remit.stores.sqlite import SqliteStore
from remit.testing.samples import started, warned

writer.PATIENCE_S = 0.3

async def main():
    store = SqliteStore(sys.argv[1])
    await store.claim("r", new=True)
    store.append(started("r", 1))
    await store.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
    try:
        for seq in range(2, 50):
            store.append(warned("r", seq, "x" * 20_000))
        await store.flush()
    except StoreError as error:
        print(error)
    await store.close()

asyncio.run(main())
"""


def run_limited(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", LIMITED, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)


async def test_a_limit_on_file_size(tmp_path: Path) -> None:
    """A quota on the file size is reported, and events written before are intact."""
    path = tmp_path / "runs.db"
    done = run_limited(path)
    assert (done.returncode, done.stderr) == (0, "")
    says(StoreError(done.stdout), path, "space")
    assert ask(path, "PRAGMA integrity_check") == [("ok",)]
    store = SqliteStore(path)
    seqs = [event.seq for event in await read_events(store, "r")]
    await store.close()
    assert seqs == list(range(1, len(seqs) + 1))
    assert seqs


def damage(path: Path, number: int, line: str) -> None:
    """Replace a line in the first page of a file."""
    data = str(ask(path, "SELECT data FROM remit_pages")[0][0])
    lines = data.split("\n")
    lines[number - 1] = line
    ask(path, "UPDATE remit_pages SET data = replace(data, ?, ?)", (data, "\n".join(lines)))


async def test_an_unreadable_event_is_named(tmp_path: Path) -> None:
    """The events before it are read first."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    for seq in range(1, 6):
        store.append(warned(root, seq))
    await store.flush()
    damage(path, 4, '{"kind":')
    events = aiter(store.read(root))
    assert [(await anext(events)).seq for _ in range(3)] == [1, 2, 3]
    error = await refused(anext(events))
    says(error, path, root, "cannot read event 4 of the run", "delete the run")
    assert [event.seq for event in await read_events(store, root, after=4)] == [5]
    damage(path, 4, '{"kind":"of_the_future"}')
    says(await refused(read_events(store, root)), path, "newer version of remit")
    await store.close()


@pytest.mark.parametrize("seqs", [(4, 5, 6), (6, 8, 9)], ids=["dense", "with live events between"])
@pytest.mark.parametrize("place", [0, 1, 2])
async def test_an_unreadable_event_is_never_skipped(
    tmp_path: Path, seqs: tuple[int, int, int], place: int
) -> None:
    """An unreadable event anywhere in its page is named."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    for some in ((1, 2, 3), seqs):
        for seq in some:
            store.append(warned(root, seq))
        await store.flush()
    ((data,),) = ask(path, f"SELECT data FROM remit_pages WHERE last = {seqs[-1]}")
    lines = str(data).split("\n")
    lines[place] = '{"kind":'
    ask(path, f"UPDATE remit_pages SET data = ? WHERE last = {seqs[-1]}", ("\n".join(lines),))
    events = aiter(store.read(root))
    before = [1, 2, 3, *seqs[:place]]
    assert [(await anext(events)).seq for _ in before] == before
    error = await refused(anext(events))
    named = int(str(error).partition("cannot read event ")[2].split()[0])
    assert seqs[place] <= named < min(seqs[place + 1 :], default=named + 1)
    assert [event.seq for event in await read_events(store, root, after=named)] == [*seqs[place + 1 :]]
    await store.close()


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Run as another user, because root may write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users can enter, unlike pytest's."""
    made = Path(tempfile.mkdtemp(prefix="remit-test-"))
    made.chmod(0o755)
    yield made
    for path in (made, *made.rglob("*")):
        path.chmod(0o700)
    shutil.rmtree(made)


async def test_a_folder_that_may_not_be_written(folder: Path) -> None:
    """If no file can be created, the message names the folder and the missing permission."""
    path = folder / "sub" / "runs.db"
    with as_nobody(folder):
        os.chmod(folder, 0o555)  # noqa: PTH101 - Path.chmod is flagged in async functions
        for store in (SqliteStore(path), SqliteStore(folder / "runs.db")):
            error = await refused(store.claim("r", new=True))
            says(error, folder, "cannot be created", "Permission denied", "can write to")
            assert await store.trees() == [], "reading created a store"
            await store.close()


async def test_a_file_that_may_not_be_written(folder: Path) -> None:
    """A read-only file can still be read; writing is refused at once, with advice."""
    path = folder / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    store.append(started(root, 1))
    await store.close()
    with as_nobody(folder):
        os.chmod(path, 0o444)  # noqa: PTH101 - Path.chmod is flagged in async functions
        before = content(path)
        store = SqliteStore(path)
        assert [event.seq for event in await read_events(store, root)] == [1]
        assert (await known(store, root)).events == 1
        error = await refused(store.claim(root, new=False))
        says(error, path, "cannot be", "writable" if "writable" in str(error) else "read and write")
        await store.close()
        assert content(path) == before


@pytest.mark.parametrize("kind", ["folder", "below a file", "device"])
async def test_a_path_that_is_not_a_file(tmp_path: Path, kind: str) -> None:
    """A folder, a path below a file and a device are refused with a clear message."""
    (tmp_path / "file").touch()
    path = {"folder": tmp_path, "below a file": tmp_path / "file" / "runs.db", "device": Path("/dev/null")}[
        kind
    ]
    store = SqliteStore(path)
    words = {"folder": "is not a file", "below a file": "Not a directory", "device": "is not a file"}[kind]
    says(
        await refused(store.claim("r", new=True)),
        path,
        words,
        "Name a file",
    )
    await refused(store.trees())
    await store.close()


@pytest.mark.parametrize("kind", ["text", "truncated", "beginning", "foreign", "newer"])
async def test_a_file_that_is_not_a_store(tmp_path: Path, kind: str) -> None:
    """Other files are not changed, and the message says what they are."""
    path = tmp_path / "runs.db"
    if kind == "foreign":
        ask(path, "CREATE TABLE recipes (name TEXT)")
    elif kind == "text":
        path.write_text("dear diary, " * 1000, encoding="utf-8")
    else:
        store = SqliteStore(path)
        root = await new_tree(store)
        for seq in range(1, 500):
            store.append(warned(root, seq, "x" * 500))
        await store.close()
        if kind == "newer":
            ask(path, "PRAGMA user_version = 99")
        else:
            os.truncate(path, 50_000 if kind == "truncated" else 60)
    before = content(path)
    words = {
        "text": ("not an SQLite database", "Name another file"),
        "beginning": ("is damaged", "Restore it from a backup"),
        "truncated": ("is damaged", "Restore it from a backup"),
        "foreign": ("belongs to another program", "Name another file"),
        "newer": ("newer version of remit", "its format is 99", "Update remit"),
    }[kind]
    store = SqliteStore(path)
    for use in (store.claim("r", new=True), store.trees(), read_events(store, "r"), store.delete("r")):
        says(await refused(use), path, *words)
    await store.close()
    assert content(path) == before


async def test_a_file_that_is_damaged_during_a_run(tmp_path: Path) -> None:
    """A permanent error is raised at once by every later operation on its trees, and by nothing else."""
    path = tmp_path / "runs.db"
    store = SqliteStore(path)
    root = await new_tree(store)
    store.append(started(root, 1))
    await store.flush()
    ask(path, "DROP TABLE remit_pages")
    store.append(warned(root, 2))
    says(await refused(store.flush()), path, "no such table")
    with pytest.raises(StoreError, match="no such table"):
        store.append(warned(root, 3))
    await refused(store.flush())
    await store.close()


async def test_many_stores_create_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If several stores open a new file at once, one creates the tables and all can use it."""
    # Eight stores wait for one another here, which depends on the speed of the disk.
    monkeypatch.setattr(writer, "PATIENCE_S", 60.0)
    path = tmp_path / "runs.db"
    stores = [SqliteStore(path) for _ in range(8)]

    async def use(store: SqliteStore) -> None:
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.close()

    await together(use(store) for store in stores)
    store = SqliteStore(path)
    assert len(await store.trees()) == 8
    await store.close()
