"""Streams: every change arrives once, a reconnect continues, slow readers are dropped, many readers are possible."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from commandbench import Bench, Waiting, make_bench, two_scouts
from pagebench import TOKEN, Client, scope

import remit.observe.page.stream as stream
from remit.observe.page import app
from remit.types.events import TurnStarted

pytestmark = pytest.mark.real_time


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return make_bench(tmp_path, monkeypatch)


@asynccontextmanager
async def served(url: str) -> AsyncIterator[Client]:
    page = app(url, token=TOKEN, hosts={"127.0.0.1"})
    try:
        yield Client(page)
    finally:
        await page.close()


async def test_a_stream_shows_a_tree_until_its_end(bench: Bench) -> None:
    """Patches contain the rows that changed; at the end they say the same as a fresh reading."""
    model = Waiting()
    with bench.running(model, "Wait") as tree:
        await asyncio.to_thread(tree.wait_for, bench, TurnStarted)
        async with served(bench.url) as client:
            rows: dict[str, Any] = {}
            async with client.stream(f"/api/runs/{tree.id}/stream") as patches:
                async for patch in patches:
                    rows |= {row["id"]: row for row in patch.data.get("rows", ())}
                    model.go.set()
                    if rows[tree.id]["status"] == "completed":
                        break
            fresh = (await client.get(f"/api/runs/{tree.id}")).json["rows"]
            assert list(rows.values()) == fresh


async def test_a_reconnect_continues_after_the_last_id(bench: Bench) -> None:
    """With `Last-Event-ID` only rows that changed afterwards are sent; an id from another tree begins anew."""
    root = bench.run(two_scouts()).run_id
    async with served(bench.url) as client:

        async def first(last: str) -> Any:
            async with client.stream(f"/api/runs/{root}/stream", Last_Event_ID=last) as patches:
                async for patch in patches:
                    return patch
            raise AssertionError

        whole = await first("")
        assert len(whole.data["rows"]) == 3
        assert "rows" not in (await first(whole.id)).data
        assert len((await first(str(int(whole.id) - 1))).data["rows"]) == 1
        again = await first("99999")
        assert again.data["reset"] is True
        assert len(again.data["rows"]) == 3
        assert len((await first("nonsense")).data["rows"]) == 3


async def test_patches_come_at_most_four_times_a_second(bench: Bench) -> None:
    """However fast a tree runs, a stream sends at most one patch in a quarter of a second."""
    with bench.running(two_scouts()) as tree:
        async with served(bench.url) as client:
            times: list[float] = []
            async with client.stream(f"/api/runs/{tree.id}/stream") as patches:
                async for patch in patches:
                    times.append(time.monotonic())
                    if patch.data.get("head", {}).get("status") == "completed":
                        break
            assert all(b - a > 0.2 for a, b in itertools.pairwise(times))


async def test_a_deleted_run_ends_its_stream(bench: Bench) -> None:
    """When a run is deleted, its stream says so and ends."""
    root = bench.run(two_scouts()).run_id
    async with served(bench.url) as client:
        async with client.stream(f"/api/runs/{root}/stream") as patches:
            async for patch in patches:
                if patch.kind == "trouble":
                    assert patch.data["ended"] is True
                    break
                await client.app._site.store.delete(root)
        assert (await client.get(f"/api/runs/{root}")).status == 404


async def test_the_list_streams_new_runs(bench: Bench) -> None:
    """The stream of the list sends a run that starts later, and only the rows that changed."""
    first = bench.run(two_scouts()).run_id
    async with served(bench.url) as client, client.stream("/api/stream") as patches:
        assert [row["root"] for row in (await anext(patches)).data["rows"]] == [first]
        second = (await asyncio.to_thread(bench.run, two_scouts())).run_id
        patch = await anext(patches)
        assert [row["root"] for row in patch.data["rows"]] == [second]
        assert patch.data["total"] == 2


async def test_a_slow_reader_is_dropped_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that takes nothing is dropped; the run and other readers are not affected."""
    monkeypatch.setattr(stream, "SEND_S", 0.2)
    root = bench.run(two_scouts()).run_id
    async with served(bench.url) as client:
        headers = dict(client.headers)

        async def receive() -> Any:
            await asyncio.sleep(60)

        async def send(message: Any) -> None:
            if message["type"] == "http.response.body":
                await asyncio.sleep(60)

        slow = asyncio.create_task(client.app(scope(f"/api/runs/{root}/stream", headers), receive, send))
        async with client.stream(f"/api/runs/{root}/stream") as patches:
            assert (await anext(patches)).data["rows"]
        await asyncio.wait_for(slow, 5)
        assert client.app._site.streams.open == 0


async def test_two_hundred_idle_streams(bench: Bench) -> None:
    """With 200 open streams a request is answered quickly, and beyond 300 streams new ones are refused."""
    root = bench.run(two_scouts()).run_id
    async with served(bench.url) as client, AsyncExitStack() as stack:
        for _ in range(200):
            patches = await stack.enter_async_context(client.stream(f"/api/runs/{root}/stream"))
            await anext(patches)
        began = time.monotonic()
        assert (await client.get(f"/api/runs/{root}")).status == 200
        assert time.monotonic() - began < 2
        client.app._site.streams.open += 100
        assert (await client.get("/api/stream")).status == 503
        client.app._site.streams.open -= 100
        client.app.end_streams()


async def test_a_postgres_journal(postgres_url: str, bench: Bench) -> None:
    """The page reads and streams runs of a PostgreSQL journal."""
    bench.url = postgres_url
    with bench.running(two_scouts()) as tree:
        async with served(postgres_url) as client:
            async with client.stream(f"/api/runs/{tree.id}/stream") as patches:
                async for patch in patches:
                    if patch.data.get("head", {}).get("status") == "completed":
                        break
            rows = (await client.get(f"/api/runs/{tree.id}")).json["rows"]
            assert [row["status"] for row in rows] == ["completed"] * 3
            assert (await client.get("/api/runs")).json["total"] == 1


async def test_an_unreadable_journal_is_reported(tmp_path: Path) -> None:
    """A journal that cannot be read gives 503 with its reason."""
    (tmp_path / "runs.db").write_bytes(b"this is not a database" * 100)
    async with served(f"sqlite:///{tmp_path / 'runs.db'}") as client:
        answer = await client.get("/api/runs")
        assert answer.status == 503
        assert "runs.db" in answer.error
