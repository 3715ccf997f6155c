"""A database on the tests' PostgreSQL server whose user needs a password."""

from __future__ import annotations

import time
from pathlib import Path
from typing import LiteralString, cast
from urllib.parse import quote

import psycopg
import pytest

PASSWORD = "correct horse/battery"
"""The password in `locked_url`, unescaped."""


@pytest.fixture
def locked_url(postgres_url: str) -> str:
    """The same database for a user with a password, which is in the URL."""
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
