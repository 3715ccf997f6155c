"""A store whose writes fail or hang, recover and fail again: how a tree on a real database behaves."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import remit.engine.tree.journal
import remit.stores.journal_store as journal_store
import remit.stores.sqlite as sqlite
import remit.stores.writing.writer as writer
from remit import Agent, start, tool
from remit.engine.handle import Running
from remit.remote import look
from remit.stores.journal_store import JournalStore
from remit.stores.postgres import PostgresStore
from remit.stores.sql.database import Link
from remit.stores.sqlite import SqliteFile, SqliteStore
from remit.tasks.cancel import Phase
from remit.testing import ScriptedModel, call, say
from remit.types.ports import Store

pytestmark = pytest.mark.real_time

Outage = Callable[[], contextlib.AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short timeouts, so that the tests are fast."""
    for module in (writer, journal_store):
        monkeypatch.setattr(module, "PATIENCE_S", 0.3)
    monkeypatch.setattr(sqlite, "BUSY_S", 0.05)
    monkeypatch.setattr(remit.engine.tree.journal, "AGAIN_S", 0.02)


def locked_file(path: Path) -> tuple[Store, Outage]:
    """Another program holds the write lock of the file."""

    @contextmanager
    def outage() -> Iterator[None]:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("BEGIN EXCLUSIVE")
            yield
            connection.execute("ROLLBACK")

    return SqliteStore(path), outage


def hanging_file(path: Path) -> tuple[Store, Outage]:
    """The disk does not respond."""
    answers = threading.Event()
    answers.set()

    class Hanging(SqliteFile):
        def open_writer(self) -> Link:
            link = super().open_writer()
            begin = link.begin

            def hang(*, lasting: bool = True) -> None:
                assert answers.wait(20)
                begin(lasting=lasting)

            link.begin = hang
            return link

    @contextmanager
    def outage() -> Iterator[None]:
        answers.clear()
        yield
        answers.set()

    return JournalStore(Hanging(path)), outage


def closed_database(url: str) -> tuple[Store, Outage]:
    """The server accepts no connections to the database."""
    server, _, name = url.rpartition("/")

    def do(connection: psycopg.Connection, allow: str) -> None:
        connection.execute(
            sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS {}").format(sql.Identifier(name), sql.SQL(allow))  # pyright: ignore[reportArgumentType] - true or false
        )

    @contextmanager
    def outage() -> Iterator[None]:
        with psycopg.connect(f"{server}/postgres", autocommit=True) as connection:
            do(connection, "false")
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
            yield
            do(connection, "true")

    return PostgresStore(url), outage


def locked_table(url: str) -> tuple[Store, Outage]:
    """Another session holds a lock, so that writes hang."""

    @contextmanager
    def outage() -> Iterator[None]:
        with psycopg.connect(url) as connection:
            connection.execute("LOCK TABLE remit_pages IN ACCESS EXCLUSIVE MODE")
            yield
            connection.rollback()

    return PostgresStore(url), outage


@pytest.mark.parametrize("make", [locked_file, hanging_file])
async def test_a_file_that_fails_or_hangs_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], tuple[Store, Outage]]
) -> None:
    """In each outage one call waits and the others are refused at once; calls run in between; no event is lost."""
    await go_through_two_outages(*make(tmp_path / "runs.db"), monkeypatch)


@pytest.mark.parametrize("make", [closed_database, locked_table])
async def test_a_server_that_fails_or_hangs_twice(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, make: Callable[[str], tuple[Store, Outage]]
) -> None:
    """In each outage one call waits and the others are refused at once; calls run in between; no event is lost."""
    await go_through_two_outages(*make(postgres_url), monkeypatch)


async def go_through_two_outages(store: Store, outage: Outage, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    waited: list[str] = []
    held: list[contextlib.AbstractContextManager[None]] = []
    flush = remit.engine.tree.journal.Journal.flush

    async def seen(self: remit.engine.tree.journal.Journal, phase: Phase | None = None) -> str:
        trouble = await flush(self, phase)
        if phase is not None:
            waited.append("refused" if trouble else "ran")
        return trouble

    monkeypatch.setattr(remit.engine.tree.journal.Journal, "flush", seen)

    @tool
    async def change(what: str) -> str:
        """Changes something."""
        ran.append(what)
        return "changed"

    @tool(tier="observe")
    async def fail() -> str:
        """Start an outage."""
        held.append(outage())
        held[-1].__enter__()
        return "down"

    @tool(tier="observe")
    async def mend() -> str:
        """End the outage, and wait until the tree has noticed."""
        held.pop().__exit__(None, None, None)
        while journal_of(running).down:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.01)
        return "up"

    first = [call("fail"), *(call("change", what=w) for w in "abc"), call("mend"), call("change", what="d")]
    second = [call("fail"), *(call("change", what=w) for w in "ef"), call("mend"), call("change", what="g")]
    agent = Agent("lead", tools=[change, fail, mend])
    model = ScriptedModel([*first, *second, say("done")])
    try:
        async with start(agent, "go", model=model, store=store, policy=["allow *"]) as running:
            seqs = [event.seq async for event in running.events()]
            outcome = await running.outcome()
        assert (outcome.text, ran) == ("done", ["d", "g"])
        assert waited == ["refused", "ran", "refused", "ran"]
        (warning,) = outcome.warnings
        assert warning.startswith("5 calls that change things were not run")
        tree = await look(store, outcome.run_id)
        assert tree.seq == seqs[-1]
        assert tree.outcome().warnings == (warning,)
    finally:
        await store.close()


def journal_of(running: Running) -> remit.engine.tree.journal.Journal:
    return running._inside().journal
