"""Events on their way into the tables: redacted, counted by tree, and written in one transaction."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import cache

import remit.stores.tables as tables
from remit.errors import TreeOwned
from remit.events import Event, RunEnded, RunResumed, RunStarted
from remit.redaction import Redactor
from remit.stores.owner import LEASE_S
from remit.stores.place import Link

MOST_ROWS = 4096
MOST_BYTES = 8_000_000
"""Of events in one transaction."""

STATEMENT_ROWS = 256
"""Rows in one statement. Each statement gives up the interpreter's lock, and must wait to get it back."""

TASK_CHARS = 200

Row = tuple[str, int, str, str, float, str]


class Part:
    """What a batch adds to one tree."""

    __slots__ = ("beginning", "resumed", "rows", "size", "status")

    def __init__(self, agent: str, at: float) -> None:
        self.rows: list[Row] = []
        self.size = 0
        """Of the rows' data, in bytes."""
        self.beginning: tuple[str, str, float] = (agent, "", at)
        """Agent, task and time, for a tree that has no events yet."""
        self.resumed = False
        self.status: str | None = None
        """How the root ended, or None with `resumed`; without either, as before."""


class Batch:
    """What is written together. Kept as it is until it is written, however often that is tried."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.count = 0
        self.taken_bytes = 0
        """As they were buffered."""
        self.unsure = False
        """Whether an earlier try may have worked without our hearing of it."""

    def add(self, event: Event, data: bytes, redactor: Redactor) -> None:
        self.count += 1
        self.taken_bytes += len(data)
        part = self.parts.get(event.root)
        if part is None:
            part = self.parts[event.root] = Part(event.agent, event.at)
        redacted = redactor.redact(data)
        part.size += len(redacted)
        row = (event.root, event.seq, _kind(type(event)), event.run, event.at, redacted.decode())
        part.rows.append(row)
        if event.run != event.root:
            return
        if isinstance(event, RunStarted):
            task = redactor.redact_text(event.task.text[: TASK_CHARS * 4])[:TASK_CHARS]
            # Databases keep neither of these in a text.
            task = task.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
            part.beginning = (event.agent, task, event.at)
        elif isinstance(event, RunEnded):
            part.resumed, part.status = False, event.outcome.status
        elif isinstance(event, RunResumed):
            part.resumed, part.status = True, None

    def write(self, link: Link, owner: str) -> list[tuple[str, TreeOwned]]:
        """In one transaction. The trees that are not ours any more are left out, and given back."""
        rows: list[Row] = []
        lost: list[tuple[str, TreeOwned]] = []
        for root, part in self.parts.items():
            missing = self._missing(link, root, part.rows)
            if not missing:
                continue
            if _count(link, owner, root, part, missing):
                rows += missing
            else:
                lost.append((root, tables.taken_over(link, root)))
        _insert(link, rows)
        return lost

    def _missing(self, link: Link, root: str, rows: list[Row]) -> list[Row]:
        held = tables.lease(link, root) if self.unsure else None
        return rows if held is None else [row for row in rows if row[1] > held.last_seq]


def take(buffer: deque[tuple[Event, bytes]], redactor: Redactor) -> Batch:
    """As much from the buffer as goes into one transaction. Others may add to it meanwhile."""
    batch = Batch()
    add = batch.add
    while buffer and batch.count < MOST_ROWS and batch.taken_bytes < MOST_BYTES:
        event, data = buffer.popleft()
        add(event, data, redactor)
    return batch


def _count(link: Link, owner: str, root: str, part: Part, rows: Sequence[Row]) -> bool:
    """Brings the tree's own row up to date, and renews the claim; False when it is not ours."""
    agent, task, started = part.beginning
    last = rows[-1]
    size = part.size if rows is part.rows else sum(len(row[5].encode()) for row in rows)
    ours = link.change(
        _count_sql(link.now),
        (agent, task, started, len(rows), size, last[1], last[4], LEASE_S, root, owner),
    )
    if ours and (part.resumed or part.status is not None):
        link.change("UPDATE remit_trees SET status = ? WHERE root = ?", (part.status, root))
    return bool(ours)


def _insert(link: Link, rows: Sequence[Row]) -> None:
    done = 0
    size = STATEMENT_ROWS
    while done < len(rows):
        # Powers of two: few different statements, so that each is prepared once.
        while size > len(rows) - done:
            size //= 2
        values: list[object] = []
        for row in rows[done : done + size]:
            values += row
        link.change(_statement(size), values)
        done += size


@cache
def _count_sql(now: str) -> str:
    # An UPDATE reads the row as it was, so `events = 0` means the tree's first batch throughout.
    return f"""
        UPDATE remit_trees SET
            agent = CASE WHEN events = 0 THEN ? ELSE agent END,
            task = CASE WHEN events = 0 THEN ? ELSE task END,
            started_at = CASE WHEN events = 0 THEN ? ELSE started_at END,
            events = events + ?, bytes = bytes + ?, last_seq = ?, last_at = ?, expires = {now} + ?
        WHERE root = ? AND owner = ?
        """  # noqa: S608 - our own constant


@cache
def _statement(rows: int) -> str:
    values = ", ".join(["(?, ?, ?, ?, ?, ?)"] * rows)
    return f"INSERT INTO remit_events (root, seq, kind, run, at, data) VALUES {values}"  # noqa: S608 - only marks


@cache
def _kind(event: type[Event]) -> str:
    return str(event.__struct_config__.tag)
