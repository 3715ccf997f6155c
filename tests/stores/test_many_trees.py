"""Many trees in one store: one poll and one heartbeat for all of them, and claims that do not wait for each other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

import remit.stores.reader as reader
import remit.stores.sql.tables as tables
import remit.stores.writing.writer as writer
from remit.errors import NoSuchTree, TreeOwned
from remit.stores import open_store
from remit.stores.journal_store import JournalStore
from remit.stores.sql.database import Link
from remit.testing.samples import send, started
from remit.types.ports import Posted

pytestmark = pytest.mark.real_time


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/runs.db"


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[JournalStore]:
    store = open_store(url)
    assert isinstance(store, JournalStore)
    try:
        yield store
    finally:
        await store.close()


async def claim(store: JournalStore, roots: Sequence[str]) -> None:
    async with anyio.create_task_group() as group:
        for root in roots:
            group.start_soon(lambda root=root: store.claim(root, new=True))


async def test_five_hundred_claims_at_once_succeed(url: str) -> None:
    """500 trees claimed at once by several stores are all claimed, each once."""
    async with opened(url) as first, opened(url) as second:
        names = [f"t{n}" for n in range(500)]
        async with anyio.create_task_group() as group:
            group.start_soon(claim, first, names[:250])
            group.start_soon(claim, second, names[250:])
        for root in names:
            (first if root in names[:250] else second).append(started(root, 1))
        await first.flush()
        await second.flush()
        assert len([info for info in await first.trees() if info.live]) == 500


async def test_one_query_serves_all_waits(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many trees wait for commands, one query per interval asks for all; each gets its own commands."""
    asked: list[int] = []
    real = tables.last_commands

    def counted(link: Link, roots: Sequence[str]) -> dict[str, int]:
        asked.append(len(roots))
        return real(link, roots)

    monkeypatch.setattr(tables, "last_commands", counted)
    async with opened(url) as store, opened(url) as other:
        names = [f"t{n}" for n in range(60)]
        await claim(store, names)
        found: dict[str, list[Posted]] = {}

        async def wait(root: str) -> None:
            found[root] = await store.commands(root, 0, wait=True)

        async with anyio.create_task_group() as group:
            for root in names:
                group.start_soon(wait, root)
            began = time.monotonic()
            await asyncio.sleep(5 * reader.POLL_S)
            assert 1 <= len(asked) <= (time.monotonic() - began) / reader.POLL_S + 1
            assert set(asked) == {60}
            for root in names:
                await other.post(root, send(root, root))
        assert {root: [p.command.id for p in posted] for root, posted in found.items()} == {
            r: [r] for r in names
        }


async def test_a_wait_for_a_tree_that_is_deleted_ends(url: str) -> None:
    """Waiting for commands of a tree that no longer exists raises NoSuchTree, and other waits go on."""
    async with opened(url) as store:
        await claim(store, ["gone", "here"])
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: store.commands("here", 0, wait=True))

            async def wait() -> None:
                with pytest.raises(NoSuchTree, match="'gone'"):
                    await store.commands("gone", 0, wait=True)

            group.start_soon(wait)
            await asyncio.sleep(0.05)
            await store.release("gone")
            await store.post("here", send("here", "k1"))


async def test_one_transaction_renews_all_claims(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat renews every claim of the store in one transaction, and notices each claim that was lost."""
    monkeypatch.setattr(writer, "HEARTBEAT_S", 0.1)
    renewed: list[int] = []
    real = tables.renew

    def counted(link: Link, roots: Sequence[str], owner: str) -> set[str]:
        renewed.append(len(roots))
        return real(link, roots, owner)

    monkeypatch.setattr(tables, "renew", counted)
    async with opened(url) as store:
        names = [f"t{n}" for n in range(40)]
        await claim(store, names)
        while renewed.count(40) < 2:  # noqa: ASYNC110 - another thread counts
            await asyncio.sleep(0.02)
        for root in names:
            store.append(started(root, 1))
        await store.flush()
        # Another owner takes one of them.
        await store._do(lambda link, _: link.change("UPDATE remit_trees SET owner = 'x' WHERE root = 't7'"))
        while renewed.count(39) < 1:  # noqa: ASYNC110 - another thread counts
            await asyncio.sleep(0.02)
        with pytest.raises(TreeOwned, match="'t7'"):
            await store.flush("t7")
        await store.flush("t8")


OWNER = """
import asyncio, sys
from remit.stores import open_store
from remit.testing.samples import started
async def main():
    store = open_store(sys.argv[1])
    await store.claim("theirs", new=True)
    store.append(started("theirs", 1))
    await store.flush()
    print("claimed", flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def start(url: str) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", OWNER, url], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"claimed\n"
    return process


async def test_a_confirmed_death_frees_a_claim_and_a_suspected_death_does_not(url: str) -> None:
    """A frozen process keeps its claim until the lease ends; a dead process loses it at once."""
    process = start(url)
    try:
        process.send_signal(19)
        async with opened(url) as store:
            with pytest.raises(TreeOwned):
                await store.claim("theirs", new=False)
            process.kill()
            process.wait()
            await store.claim("theirs", new=False)
    finally:
        process.kill()
        process.communicate()
