"""What many trees cost their store: transactions of idle trees, and the time to cancel trees from another process.

    .venv/bin/python benchmarks/many_trees.py idle 100 sqlite:////tmp/many.db
    .venv/bin/python benchmarks/many_trees.py cancel 200 postgresql://remit@127.0.0.1:5432/postgres

Without a URL, it uses a SQLite file in a temporary folder and, if PostgreSQL is installed, a server of its own.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "builders"))

import psycopg
from postgres_server import find_programs, server

import remit.remote as remote
from remit import Agent, Limits, Reply, Request, start
from remit.stores import open_store
from remit.stores.sqlite import SqliteLink

LEAD = Agent("lead")
SECONDS = 5.0


class Idle:
    """A model that never replies."""

    name = "idle"

    async def reply(self, request: Request, emit: object) -> Reply:  # noqa: ARG002 - the interface
        await asyncio.Event().wait()
        return Reply("")


def counter(url: str) -> Callable[[], int]:
    """A function that returns the number of transactions so far."""
    if url.startswith("postgresql"):

        def committed() -> int:
            with psycopg.connect(url, autocommit=True) as link:
                row = link.execute(
                    "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
                ).fetchone()
            return int(row[0]) if row else 0

        return committed
    count = [0]

    def counted(name: str) -> None:
        real = getattr(SqliteLink, name)

        def call(self: SqliteLink, sql: str, values: object = ()) -> object:
            # A statement outside a transaction is one by itself; BEGIN stands for all statements up to COMMIT.
            inside = self._connection.in_transaction
            count[0] += not inside and not sql.startswith("PRAGMA")
            return real(self, sql, values)

        setattr(SqliteLink, name, call)

    counted("rows")
    counted("change")
    return lambda: count[0]


async def measure(what: str, trees: int, url: str) -> str:
    now = counter(url)
    store = open_store(url)
    async with AsyncExitStack() as stack:
        began = time.perf_counter()
        running = await asyncio.gather(  # noqa: TID251 - a benchmark
            *(
                stack.enter_async_context(
                    start(LEAD, "wait", model=Idle(), store=store, limits=Limits(seconds=None))
                )
                for _ in range(trees)
            )
        )
        opened = time.perf_counter() - began
        # PostgreSQL publishes its counters with a delay.
        await asyncio.sleep(5)
        if what == "idle":
            before, began = now(), time.perf_counter()
            await asyncio.sleep(SECONDS)
            result = f"{(now() - before) / (time.perf_counter() - began):.0f} transactions a second"
        else:
            # As a process that cancels many: with one store of its own.
            other = open_store(url)
            began = time.perf_counter()
            for one in running:
                await remote.cancel(other, one.run_id, "benchmark")
            posted = time.perf_counter() - began
            for one in running:
                await one.outcome()
            await other.close()
            result = f"posted in {posted:.2f} s, all ended after {time.perf_counter() - began:.2f} s"
        for one in running:
            await one.cancel()
    await store.close()
    return f"{what}, {trees} trees, {url.partition(':')[0]}: claimed in {opened:.2f} s; {result}"


def main() -> None:
    what, trees, *urls = sys.argv[1:]
    with ExitStack() as stack:
        if not urls:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            urls = [f"sqlite:///{folder}/runs.db"]
            programs = find_programs()
            if programs is not None:
                urls.append(stack.enter_context(server(programs)))
        for url in urls:
            print(asyncio.run(measure(what, int(trees), url)), flush=True)


if __name__ == "__main__":
    main()
