"""The Postgres store: many writers, lost connections, error messages."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import LiteralString

import psycopg
import pytest
from psycopg import sql

import remit.stores.writing.writer as writer
from remit.errors import StoreError, TreeOwned, UsageError
from remit.stores.postgres import PostgresStore
from remit.testing.samples import known, new_tree, read_events, refused, send, started, together, warned

pytestmark = pytest.mark.real_time

WRITERS = 20
EACH = 200

HOLD = """
import asyncio, sys
from remit.stores.postgres import PostgresStore
from remit.testing.samples import started

async def main():
    store = PostgresStore(sys.argv[1])
    await store.claim("held", new=True)
    store.append(started("held", 1))
    await store.flush()
    print("ready", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def ask(url: str, query: LiteralString | sql.Composed) -> list[tuple[object, ...]]:
    """Run a query as another program would."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []


async def test_many_writers_lose_nothing(postgres_url: str) -> None:
    """Twenty stores open a new database and write at once: every event is stored, in order."""
    roots: list[str] = []

    async def write() -> None:
        store = PostgresStore(postgres_url)
        root = await new_tree(store)
        roots.append(root)
        store.append(started(root, 1))
        for seq in range(2, EACH + 1):
            store.append(warned(root, seq))
            if seq % 50 == 0:
                await store.flush()
        await store.save_artifact(root, "a", "x" * 100_000)
        await store.close()

    await together(write() for _ in range(WRITERS))
    store = PostgresStore(postgres_url)
    for root in roots:
        assert [event.seq for event in await read_events(store, root)] == list(range(1, EACH + 1))
    assert sorted(line.root for line in await store.trees()) == sorted(roots)
    assert {line.events for line in await store.trees()} == {EACH}
    await store.close()


async def test_commands_from_many_are_numbered_without_gaps(postgres_url: str) -> None:
    """Commands that arrive at once get different, consecutive numbers."""
    stores = [PostgresStore(postgres_url) for _ in range(5)]
    root = await new_tree(stores[0])

    async def post(n: int) -> None:
        for m in range(4):
            await stores[n].post(root, send(root, f"{n}.{m}"))

    await together(post(n) for n in range(5))
    found = await stores[0].commands(root, 0, wait=False)
    for store in stores:
        await store.close()
    assert [posted.number for posted in found] == list(range(1, 21))
    assert len({posted.command.id for posted in found}) == 20


async def test_a_lost_connection_is_reopened(postgres_url: str) -> None:
    """If the server closes all connections during a write, no event is lost, duplicated or out of order."""
    store = PostgresStore(postgres_url)
    root = await new_tree(store)
    for seq in range(1, 1001):
        store.append(warned(root, seq))
        if seq % 100 == 0:
            ask(
                postgres_url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'remit'",
            )
            await asyncio.sleep(0)
    await store.flush()
    ask(
        postgres_url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'remit'",
    )
    assert [event.seq for event in await read_events(store, root)] == list(range(1, 1001))
    await store.post(root, send(root, "a"))
    await store.save_artifact(root, "a", "text")
    line = await known(store, root)
    await store.close()
    assert line.events == 1000


async def test_a_commit_without_a_response_counts_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection lost after the commit but before its response duplicates nothing."""
    store = PostgresStore(postgres_url)
    root = await new_tree(store)
    commit = writer.Writer._transact
    lost = 0

    def unheard(self: writer.Writer, link: object, work: object, *, lasting: bool = True) -> object:
        nonlocal lost
        value = commit(self, link, work, lasting=lasting)  # pyright: ignore[reportArgumentType] - passed through
        lost += 1
        if lost <= 4:
            raise writer.Trouble("the connection was lost", passing=True)
        return value

    monkeypatch.setattr(writer.Writer, "_transact", unheard)
    for seq in (1, 2, 3):
        store.append(warned(root, seq))
    await store.flush()
    lost = 3
    await store.save_artifact(root, "a", "12345")
    lost = 3
    await store.post(root, send(root, "a"))
    lost = 3
    await store.claim("another", new=True)
    line = await known(store, root)
    rows = ask(postgres_url, "SELECT count(*), sum(octet_length(data) + 1) - 1 FROM remit_events")
    assert [event.seq for event in await read_events(store, root)] == [1, 2, 3]
    assert len(await store.commands(root, 0, wait=False)) == 1
    await store.close()
    assert (line.events, line.bytes) == (rows[0][0], int(str(rows[0][1])) + 5)


async def test_a_dead_owner_is_noticed_at_once(postgres_url: str) -> None:
    """On one machine, a killed owner is known to be dead at once, and a live owner is not."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, postgres_url, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    store = PostgresStore(postgres_url)
    error = await refused(store.claim("held", new=False), "held", TreeOwned)
    assert f"pid {process.pid} on " in str(error)
    process.kill()
    await process.wait()
    await store.claim("held", new=False)
    await store.close()


async def test_a_newer_database_is_refused(postgres_url: str) -> None:
    """A database of a newer remit is not changed."""
    store = PostgresStore(postgres_url)
    await new_tree(store)
    await store.close()
    ask(postgres_url, "UPDATE remit_meta SET version = 99")
    store = PostgresStore(postgres_url)
    for use in (store.claim("r", new=True), store.trees()):
        error = await refused(use)
        assert "newer version of remit: its format is 99" in str(error)
        assert "Update remit" in str(error)
    await store.close()
    assert ask(postgres_url, "SELECT version FROM remit_meta") == [(99,)]


@pytest.mark.parametrize("kind", ["no database", "no server", "no user"])
async def test_an_unreachable_server(
    postgres_server: str, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Messages name the server and the database, say what to do, and never show the password."""
    monkeypatch.setattr(writer, "PATIENCE_S", 0.3)
    host = postgres_server.partition("@")[2].partition("/")[0]
    url, words = {
        "no database": (f"postgresql://remit:hunter2@{host}/nothing", ("nothing", "does not exist")),
        "no server": (
            "postgresql://remit:hunter2@127.0.0.1:1/postgres",
            ("127.0.0.1:1", "Check its address and that the server is running"),
        ),
        "no user": (f"postgresql://nobody:hunter2@{host}/postgres", ("does not exist",)),
    }[kind]
    store = PostgresStore(url)
    for use in (store.claim("r", new=True), store.trees()):
        error = await refused(use)
        assert all(word in str(error) for word in words), str(error)
        assert "hunter2" not in str(error)
    await store.close()
    assert "hunter2" not in repr(store)


async def test_a_name_that_postgres_cannot_store_is_refused(postgres_url: str) -> None:
    """It raises StoreError, and the store still works."""
    store = PostgresStore(postgres_url)
    await refused(store.claim("a\0b", new=True))
    root = await new_tree(store)
    store.append(started(root, 1, task="nul \0 and \ud800"[:6]))
    await store.flush()
    assert (await known(store, root)).task == "nul \ufffd "
    await store.close()


def test_an_invalid_url() -> None:
    """A malformed URL raises UsageError at once, without its password."""
    with pytest.raises(UsageError) as caught:
        PostgresStore("postgresql://user:hunter2@host:port:80/db?nonsense=1")
    assert "hunter2" not in str(caught.value)
    assert "postgresql://user@host" in str(caught.value)


def test_errors_are_store_errors() -> None:
    """TreeOwned is a StoreError too, so that one `except` is enough."""
    assert issubclass(TreeOwned, StoreError)


async def test_a_database_that_lacks_most_characters_is_refused(postgres_url: str) -> None:
    """One unsupported character in one tree would stop all others."""
    name = f"{postgres_url.rpartition('/')[2]}_latin"
    quoted = sql.Identifier(name)
    made = sql.SQL("CREATE DATABASE {} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    ask(postgres_url, made.format(quoted))
    try:
        store = PostgresStore(f"{postgres_url.rpartition('/')[0]}/{name}")
        said = str(await refused(store.claim("r", new=True)))
        await store.close()
    finally:
        ask(postgres_url, sql.SQL("DROP DATABASE {}").format(quoted))
    assert "uses the encoding LATIN1" in said
    assert "createdb --encoding UTF8" in said


async def test_a_prefix_of_an_id_suggests_the_whole_id(postgres_url: str) -> None:
    store = PostgresStore(postgres_url)
    root = await new_tree(store)
    store.append(started(root, 1))
    await store.release(root)
    assert f"Did you mean {root!r}?" in str(await refused(store.claim(root[:-1], new=False)))
    await store.close()


async def test_a_database_in_sql_ascii_is_used(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are returned as text, whatever client encoding the environment sets."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    name = f"{postgres_url.rpartition('/')[2]}_ascii"
    quoted = sql.Identifier(name)
    made = sql.SQL("CREATE DATABASE {} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    ask(postgres_url, made.format(quoted))
    try:
        for url in (postgres_url, f"{postgres_url.rpartition('/')[0]}/{name}"):
            store = PostgresStore(url)
            await store.claim("r", new=True)
            store.append(started("r", 1, task="grüße, 日本"))
            line = (await store.trees())[0]
            assert (line.root, line.task) == ("r", "grüße, 日本")
            assert [event.seq async for event in store.read("r")] == [1]
            await store.close()
    finally:
        ask(postgres_url, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(quoted))
