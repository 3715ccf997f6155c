"""The checks of `StoreBattery` on every store."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit.stores.memory import MemoryStore
from remit.stores.postgres import PostgresStore
from remit.stores.sqlite import SqliteStore
from remit.testing import StoreBattery


@pytest.mark.parametrize("name", StoreBattery.names(reopens=False))
async def test_memory(name: str) -> None:
    """The memory store passes every check, within one process."""

    async def make() -> MemoryStore:
        return MemoryStore()

    await StoreBattery(make).check(name)


@pytest.mark.real_time
@pytest.mark.parametrize("name", StoreBattery.names())
async def test_sqlite(name: str, tmp_path: Path) -> None:
    """The SQLite store passes every check."""

    async def make() -> SqliteStore:
        return SqliteStore(tmp_path / "runs.db")

    await StoreBattery(make).check(name)


@pytest.mark.real_time
@pytest.mark.parametrize("name", StoreBattery.names())
async def test_postgres(name: str, postgres_server: str) -> None:
    """The Postgres store passes every check; the checks share one database."""

    async def make() -> PostgresStore:
        return PostgresStore(postgres_server)

    await StoreBattery(make).check(name)
