"""The tables of a journal, as numbered steps. A step that was released is never changed: add another.

`{blob}` and `{lines}` are what the databases call differently. Events refer to no other table: they are many, and each check costs.
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
    # What a list of trees shows, so that nobody reads the events for it.
    tuple(
        f"ALTER TABLE remit_trees ADD COLUMN {name} BIGINT NOT NULL DEFAULT 0"
        for name in ("runs", "requests", "tokens", "micros", "unpriced")
    ),
    # Many events in a row, each a line: fewer rows to write. The view is for people, who look at them one by one.
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
    # Version 2 of events has a header: the view finds the run of an event there, or beside the other fields.
    ("DROP VIEW remit_events", "CREATE VIEW remit_events AS {lines}"),
)

VERSION = len(MIGRATIONS)


def steps(after: int, *, blob: str, lines: str) -> list[str]:
    """The statements that bring a database of version `after` up to `VERSION`."""
    return [sql.format(blob=blob, lines=lines) for step in MIGRATIONS[after:] for sql in step]


def newer(where: str, version: int) -> str:
    return (
        f"{where} was written by a newer remit: its version is {version}, and this one knows {VERSION}. "
        "Nothing was changed. Update remit, or name another place."
    )
