"""Stores that need something outside the process: a Postgres server, with a new database for each test."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import psycopg
import pytest
from psycopg import sql


def _load(name: str) -> ModuleType:
    """A module of this folder, which is no package."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The address of a server that only these tests use."""
    postgres = _load("postgres_server")
    programs = postgres.find_programs()
    if programs is None:
        if os.environ.get("REMIT_REQUIRE_POSTGRES") == "1":
            pytest.fail(postgres.MISSING)
        pytest.skip(postgres.MISSING)
    with postgres.server(programs) as address:
        yield address


@pytest.fixture
def postgres_url(postgres_server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a database that only this test uses."""
    name = f"test_{abs(hash(request.node.nodeid))}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield postgres_server.rpartition("/")[0] + f"/{name}"
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
