"""The tables of a journal, as numbered migrations. Never change a released migration: add another.

`{blob}` and `{lines}` differ between the databases. Pages of events have no foreign key: there are many, and each check
costs time.
"""

from __future__ import annotations

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """
        CREATE TABLE remit_trees (
            root TEXT NOT NULL PRIMARY KEY,
            owner TEXT NOT NULL,
            expires DOUBLE PRECISION NOT NULL,
            claimed_at DOUBLE PRECISION NOT NULL,
            agent TEXT NOT NULL,
            task TEXT NOT NULL,
            status TEXT,
            started_at DOUBLE PRECISION NOT NULL,
            last_at DOUBLE PRECISION NOT NULL,
            last_seq BIGINT NOT NULL,
            events BIGINT NOT NULL,
            bytes BIGINT NOT NULL
        )
        """,
        """
        CREATE TABLE remit_events (
            root TEXT NOT NULL,
            seq BIGINT NOT NULL,
            kind TEXT NOT NULL,
            run TEXT NOT NULL,
            at DOUBLE PRECISION NOT NULL,
            data TEXT NOT NULL,
            PRIMARY KEY (root, seq)
        )
        """,
        """
        CREATE TABLE remit_artifacts (
            root TEXT NOT NULL REFERENCES remit_trees (root),
            name TEXT NOT NULL,
            version BIGINT NOT NULL,
            chars BIGINT NOT NULL,
            bytes BIGINT NOT NULL,
            PRIMARY KEY (root, name)
        )
        """,
        """
        CREATE TABLE remit_chunks (
            root TEXT NOT NULL REFERENCES remit_trees (root),
            version BIGINT NOT NULL,
            first BIGINT NOT NULL,
            data {blob} NOT NULL,
            PRIMARY KEY (root, version, first)
        )
        """,
        """
        CREATE TABLE remit_commands (
            root TEXT NOT NULL REFERENCES remit_trees (root),
            number BIGINT NOT NULL,
            id TEXT NOT NULL,
            data TEXT NOT NULL,
            PRIMARY KEY (root, number)
        )
        """,
    ),
    # Totals for the list of trees, so that listing does not read events.
    tuple(
        f"ALTER TABLE remit_trees ADD COLUMN {name} BIGINT NOT NULL DEFAULT 0"
        for name in ("runs", "requests", "tokens", "micros", "unpriced")
    ),
    # Many events per row, one line each: fewer rows to write. The view shows people one event per row.
    (
        """
        CREATE TABLE remit_pages (
            root TEXT NOT NULL,
            last BIGINT NOT NULL,
            data TEXT NOT NULL,
            PRIMARY KEY (root, last)
        )
        """,
        "INSERT INTO remit_pages (root, last, data) SELECT root, seq, data FROM remit_events",
        "DROP TABLE remit_events",
        "CREATE VIEW remit_events AS {lines}",
    ),
    # Version 2 of events has a header: the view reads the run from there, or from the event's own fields.
    ("DROP VIEW remit_events", "CREATE VIEW remit_events AS {lines}"),
)

VERSION = len(MIGRATIONS)


def steps(after: int, *, blob: str, lines: str) -> list[str]:
    """The statements that migrate a database from version `after` to `VERSION`."""
    return [sql.format(blob=blob, lines=lines) for step in MIGRATIONS[after:] for sql in step]


def newer(where: str, version: int) -> str:
    return (
        f"{where} was written by a newer version of remit: its format is {version}, and this version supports up to"
        f" {VERSION}. Nothing was changed. Update remit, or name another store."
    )
