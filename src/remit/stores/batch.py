"""Events on their way into the tables: redacted, counted by tree, and written in one transaction."""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import cast

import remit.stores.tables as tables
from remit.errors import TreeOwned
from remit.events import Event, ModelCallFailed, ReplyReceived, RunEnded, RunResumed, RunStarted
from remit.limits import to_micros
from remit.redaction import Redactor
from remit.stores.owner import LEASE_S
from remit.stores.place import Link

MOST_ROWS = 4096
MOST_BYTES = 8_000_000
"""Of events in one transaction."""

STATEMENT_ROWS = 256
"""Rows in one statement. Each statement gives up the interpreter's lock, and must wait to get it back."""

TASK_CHARS = 200

COLUMNS = 6


class Part:
    """What a batch adds to one tree."""

    __slots__ = ("beginning", "resumed", "size", "spent", "status", "values")

    def __init__(self, agent: str, at: float) -> None:
        self.values: list[object] = []
        """Its rows, one behind the other. Not a tuple for each: so many would set off the garbage collector."""
        self.size = 0
        """Of the events' JSON, in bytes."""
        self.beginning: tuple[str, str, float] = (agent, "", at)
        """Agent, task and time, for a tree that has no events yet."""
        self.spent = [0, 0, 0, 0, 0]
        """Runs, requests, tokens, micro-dollars, and requests whose price is not known."""
        self.resumed = False
        self.status: str | None = None
        """How the root ended, or None with `resumed`; without either, as before."""

    def without(self, last_seq: int) -> Part:
        """What is left of it when events up to `last_seq` are in the tables already."""
        left = Part(self.beginning[0], self.beginning[2])
        left.beginning, left.resumed, left.status = self.beginning, self.resumed, self.status
        for at in range(0, len(self.values), COLUMNS):
            row = self.values[at : at + COLUMNS]
            if cast(int, row[1]) > last_seq:
                left.values += row
                left.size += len(str(row[5]).encode())
        if len(left.values) == len(self.values):
            # Written in one transaction: all of it is there, or nothing.
            left.spent = self.spent
        return left

    def count(self, event: Event) -> None:
        """Add what an event says was used."""
        # By class: `isinstance` takes several times as long for a record that is of another one.
        kind, spent = type(event), self.spent
        if kind is RunStarted:
            spent[0] += 1
        elif kind is ReplyReceived or kind is ModelCallFailed:
            usage = cast(ReplyReceived, event).usage
            tokens, usd = usage.input_tokens + usage.output_tokens, usage.usd
            spent[1] += usage.requests
            spent[2] += tokens
            if usd:
                spent[3] += to_micros(usd)
            elif usd is None and tokens:
                spent[4] += 1


class Buffer:
    """Events that wait, with their JSON. One thread adds and one takes.

    Two queues instead of pairs, for the garbage collector's sake. The JSON is added first, and taken last.
    """

    __slots__ = ("events", "texts")

    def __init__(self) -> None:
        self.events: deque[Event] = deque()
        self.texts: deque[bytes] = deque()


class Batch:
    """What is written together. Kept as it is until it is written, however often that is tried."""

    def __init__(self) -> None:
        self.parts: dict[str, Part] = {}
        self.count = 0
        self.taken_bytes = 0
        """As they were buffered."""
        self.unsure = False
        """Whether an earlier try may have worked without our hearing of it."""

    def add(self, event: Event, text: str, size: int, redactor: Redactor) -> None:
        part = self.parts.get(event.root)
        if part is None:
            part = self.parts[event.root] = Part(event.agent, event.at)
        part.size += size
        part.values += (event.root, event.seq, _KINDS[type(event)], event.run, event.at, text)
        part.count(event)
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
        values: list[object] = []
        lost: list[tuple[str, TreeOwned]] = []
        for root, whole in self.parts.items():
            held = tables.lease(link, root) if self.unsure else None
            part = whole if held is None else whole.without(held.last_seq)
            if not part.values:
                continue
            if _count(link, owner, root, part):
                values += part.values
            else:
                lost.append((root, tables.taken_over(link, root)))
        _insert(link, values)
        return lost


def take(buffer: Buffer, redactor: Redactor) -> Batch:
    """As much from the buffer as goes into one transaction. Others may add to it meanwhile."""
    batch = Batch()
    events: list[Event] = []
    texts: list[bytes] = []
    while buffer.events and len(events) < MOST_ROWS and batch.taken_bytes < MOST_BYTES:
        events.append(buffer.events.popleft())
        texts.append(buffer.texts.popleft())
        batch.taken_bytes += len(texts[-1])
    batch.count = len(events)
    for event, data in zip(events, redactor.redact_all(texts), strict=True):
        batch.add(event, data.decode(), len(data), redactor)
    return batch


def _count(link: Link, owner: str, root: str, part: Part) -> bool:
    """Brings the tree's own row up to date, and renews the claim; False when it is not ours."""
    _, last_seq, _, _, last_at, _ = part.values[-COLUMNS:]
    count = len(part.values) // COLUMNS
    ours = link.change(
        _count_sql(link.now),
        (*part.beginning, count, part.size, last_seq, last_at, *part.spent, LEASE_S, root, owner),
    )
    if ours and (part.resumed or part.status is not None):
        link.change("UPDATE remit_trees SET status = ? WHERE root = ?", (part.status, root))
    return bool(ours)


def _insert(link: Link, values: list[object]) -> None:
    done = 0
    rows = STATEMENT_ROWS
    while left := len(values) // COLUMNS - done:
        # Powers of two: few different statements, so that each is prepared once.
        while rows > left:
            rows //= 2
        link.change(_statement(rows), values[done * COLUMNS : (done + rows) * COLUMNS])
        done += rows


@cache
def _count_sql(now: str) -> str:
    # An UPDATE reads the row as it was, so `events = 0` means the tree's first batch throughout.
    return f"""
        UPDATE remit_trees SET
            agent = CASE WHEN events = 0 THEN ? ELSE agent END,
            task = CASE WHEN events = 0 THEN ? ELSE task END,
            started_at = CASE WHEN events = 0 THEN ? ELSE started_at END,
            events = events + ?, bytes = bytes + ?, last_seq = ?, last_at = ?,
            runs = runs + ?, requests = requests + ?, tokens = tokens + ?, micros = micros + ?,
            unpriced = unpriced + ?, expires = {now} + ?
        WHERE root = ? AND owner = ?
        """  # noqa: S608 - our own constant


@cache
def _statement(rows: int) -> str:
    values = ", ".join(["(?, ?, ?, ?, ?, ?)"] * rows)
    return f"INSERT INTO remit_events (root, seq, kind, run, at, data) VALUES {values}"  # noqa: S608 - only marks


class _Kinds(dict[type[Event], str]):
    def __missing__(self, event: type[Event]) -> str:
        kind = self[event] = str(event.__struct_config__.tag)
        return kind


_KINDS = _Kinds()
