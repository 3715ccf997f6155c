"""The stored trees as SQL text: what a database has, made the same for every recording, and put back for a test.

Four things are not what the program wrote, since they differ each time: who owned a tree (the values, not the form),
when it was claimed, until when, and the random numbers that tell versions of an artifact apart.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

LONG_AGO = 1_000_000_000.0
"""When claims were made and ran out: before every test."""

TABLES = ("trees", "pages", "artifacts", "chunks", "commands")

PRAGMAS = ("page_size", "auto_vacuum", "journal_mode", "application_id", "user_version")
"""What an SQLite file has besides its tables. The first two have to be set before the first table."""

Execute = Callable[[str, Sequence[object]], list[Any]]


def dump_sqlite(file: Path) -> str:
    with sqlite3.connect(file) as connection:
        _make_neutral(lambda sql, values: connection.execute(sql, values).fetchall())
        connection.commit()
        settings = [(name, connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in PRAGMAS]
        lines = [f"PRAGMA {name} = {value};" for name, value in settings]
        text = "\n".join([*lines, *connection.iterdump(), ""])
    connection.close()
    return text


def restore_sqlite(text: str, file: Path) -> str:
    """The URL of a new file that has all of it."""
    connection = sqlite3.connect(file)
    connection.executescript(text)
    connection.close()
    return f"sqlite:///{file}"


def contents_of(file: Path, root: str) -> dict[str, object]:
    """The tables of an SQLite file and what they have of one tree, however its events are parted into rows."""
    with sqlite3.connect(file) as connection:
        _make_neutral(lambda sql, values: connection.execute(sql, values).fetchall())
        # The size of a tree depends on the version of its events.
        connection.execute("UPDATE remit_trees SET bytes = 0")
        found: dict[str, object] = {
            table: connection.execute(
                f"SELECT * FROM remit_{table} WHERE root = ? ORDER BY 2", (root,)
            ).fetchall()
            for table in TABLES
            if table != "pages"
        }
        pages = connection.execute("SELECT data FROM remit_pages WHERE root = ? ORDER BY last", (root,))
        found["pages"] = "\n".join(data for (data,) in pages)
        found["schema"] = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
        found["settings"] = [connection.execute(f"PRAGMA {name}").fetchone() for name in PRAGMAS]
    connection.close()
    return found


def dump_postgres(programs: Path, url: str) -> str:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:

        def execute(sql: str, values: Sequence[object]) -> list[Any]:
            cursor = connection.execute(sql.replace("?", "%s"), values)  # pyright: ignore[reportArgumentType]
            return cursor.fetchall() if cursor.description else []

        _make_neutral(execute)
        for table in TABLES:
            # The rows in the order of their keys: a dump has them in the order in which they lie on disk.
            execute(f"CLUSTER remit_{table} USING remit_{table}_pkey", ())
    command = [str(programs / "pg_dump"), "--no-owner", "--no-privileges", "--table=remit_*", url]
    dumped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # Comments name versions; \restrict has a random word; other servers do not know every setting.
    noise = ("--", "\\restrict", "\\unrestrict", "SET ")
    lines = [line for line in dumped.split("\n") if line and not line.startswith(noise)]
    return "\n".join(["SET client_encoding = 'UTF8';", "SET client_min_messages = warning;", *lines, ""])


def restore_postgres(programs: Path, file: Path, url: str) -> None:
    """Into an empty database."""
    command = [
        str(programs / "psql"),
        "-X",
        "-q",
        "-v",
        "ON_ERROR_STOP=1",
        "-o",
        "/dev/null",
        "-f",
        str(file),
        url,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


def _make_neutral(execute: Execute) -> None:
    execute("UPDATE remit_trees SET claimed_at = ?", (LONG_AGO,))
    for root, owner in execute("SELECT root, owner FROM remit_trees WHERE owner <> ''", ()):
        values = (_neutral_owner(owner), LONG_AGO, root)
        execute("UPDATE remit_trees SET owner = ?, expires = ? WHERE root = ?", values)
    kept = execute("SELECT root, name, version FROM remit_artifacts ORDER BY root, name", ())
    numbers: Counter[str] = Counter()
    for root, name, version in kept:
        numbers[root] += 1
        number = numbers[root]
        execute("UPDATE remit_artifacts SET version = ? WHERE root = ? AND name = ?", (number, root, name))
        execute("UPDATE remit_chunks SET version = ? WHERE root = ? AND version = ?", (number, root, version))


def _neutral_owner(text: str) -> str:
    """The same keys with values of the same kinds."""
    owner = json.loads(text)
    return json.dumps(
        {key: 4242 if isinstance(value, int) else f"recorded {key}" for key, value in owner.items()}
    )
