"""Stores that need something outside the process: a Postgres server, with a new database for each test."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import LiteralString, cast
from urllib.parse import quote

import psycopg
import pytest
from psycopg import sql

PASSWORD = "correct horse/battery"
"""Of `locked_url`; not as it is in an address."""


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


@pytest.fixture
def locked_url(postgres_url: str) -> str:
    """The same database for a user who needs a password, which is in the address."""
    name = postgres_url.rpartition("/")[2]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        rules = Path(cast(str, cast("tuple[object]", connection.execute("SHOW hba_file").fetchone())[0]))
        rules.write_text(f"host {name} keeper 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        for statement in (
            "DROP ROLE IF EXISTS keeper",
            f"CREATE ROLE keeper LOGIN PASSWORD '{PASSWORD}'",
            f'GRANT ALL ON DATABASE "{name}" TO keeper',
            "GRANT ALL ON SCHEMA public TO keeper",
            "SELECT pg_reload_conf()",
        ):
            connection.execute(cast(LiteralString, statement))
    address = postgres_url.replace("//remit@", f"//keeper:{quote(PASSWORD, safe='')}@")
    until = time.monotonic() + 10
    while _lets_in(address.replace(quote(PASSWORD, safe=""), "wrong")) and time.monotonic() < until:
        time.sleep(0.01)
    return address


def _lets_in(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True
