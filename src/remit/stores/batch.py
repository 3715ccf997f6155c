"""Events on their way into the tables: gathered in pages, redacted, counted, and written in one transaction.

A page is a row: events of one tree, one behind the other, each a line of JSON.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import cache
from typing import cast

import remit.stores.tables as tables
from remit.errors import TreeOwned
from remit.events import Event, ModelCallFailed, ReplyReceived, RunEnded, RunResumed, RunStarted
from remit.limits import Usage, to_micros
from remit.redaction import Redactor
from remit.stores.owner import LEASE_S
from remit.stores.place import Link

PAGE_BYTES = 500_000
"""A page that has so many is full. Few large ones: each statement gives up the interpreter's lock, and must wait to
get it back."""

MOST_BYTES = 8_000_000
"""Of events in one transaction, or one page."""

TASK_CHARS = 200


class Page:
    """Events of one tree. Added to by one thread and taken by another, both of which hold the writer's lock."""

    __slots__ = ("events", "open", "root", "size", "texts")

    def __init__(self, root: str, *, is_open: bool = True) -> None:
        self.root = root
        self.open = is_open
        """Whether more can be added."""
        self.events: list[Event] = []
        self.texts: list[bytes] = []
        """Their JSON. Two lists instead of pairs, for the garbage collector's sake."""
        self.size = 0


def take(pages: deque[Page]) -> list[Page]:
    """As many pages as go into one transaction. The lock is held."""
    taken: list[Page] = []
    room = MOST_BYTES
    while pages and room > 0:
        page = pages.popleft()
        page.open = False
        room -= page.size
        taken.append(page)
    return taken


class Part:
    """What a page adds to its tree."""

    __slots__ = ("agent", "last_at", "resumed", "size", "spent", "started_at", "status", "task", "text")

    def __init__(self, page: Page, redactor: Redactor) -> None:
        first, last = page.events[0], page.events[-1]
        data = redactor.redact_all(page.texts)
        self.text, self.size = data.decode(), len(data)
        self.last_at = last.at
        self.agent, self.task, self.started_at = first.agent, "", first.at
        """For a tree that has no events yet."""
        self.spent = [0, 0, 0, 0, 0]
        """Runs, requests, tokens, micro-dollars, and requests whose price is not known."""
        self.resumed = False
        self.status: str | None = None
        """How the root ended, or None with `resumed`; without either, as before."""
        for event in page.events:
            # By class: `isinstance` takes several times as long for a record that is of another one.
            kind = type(event)
            if kind is ReplyReceived or kind is ModelCallFailed:
                self._count(cast(ReplyReceived, event).usage)
            elif kind is RunStarted:
                self.spent[0] += 1
                if event.run == page.root:
                    self._begin(cast(RunStarted, event), redactor)
            elif kind is RunEnded and event.run == page.root:
                self.resumed, self.status = False, cast(RunEnded, event).outcome.status
            elif kind is RunResumed and event.run == page.root:
                self.resumed, self.status = True, None

    def _count(self, usage: Usage) -> None:
        spent, tokens, usd = self.spent, usage.input_tokens + usage.output_tokens, usage.usd
        spent[1] += usage.requests
        spent[2] += tokens
        if usd:
            spent[3] += to_micros(usd)
        elif usd is None and tokens:
            spent[4] += 1

    def _begin(self, event: RunStarted, redactor: Redactor) -> None:
        """What the list of trees says of the root."""
        task = redactor.redact_text(event.task.text[: TASK_CHARS * 4])[:TASK_CHARS]
        # Databases keep neither of these in a text.
        self.task = task.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        self.agent, self.started_at = event.agent, event.at


class Batch:
    """What is written together. Kept as it is until it is written, however often that is tried."""

    def __init__(self, pages: Iterable[Page], redactor: Redactor) -> None:
        self.parts = [(page, Part(page, redactor)) for page in pages]
        self.count = sum(len(page.events) for page, _ in self.parts)
        self.unsure = False
        """Whether an earlier try may have worked without our hearing of it."""

    def write(self, link: Link, owner: str) -> dict[str, TreeOwned]:
        """In one transaction. The trees that are not ours any more are left out, and given back."""
        lost: dict[str, TreeOwned] = {}
        for page, part in self.parts:
            root, last_seq = page.root, page.events[-1].seq
            if root in lost:
                continue
            held = tables.lease(link, root) if self.unsure else None
            # Written in one transaction: all of a page is there, or nothing.
            if held is not None and held.last_seq >= last_seq:
                continue
            if _count(link, owner, page, part):
                link.change(
                    "INSERT INTO remit_pages (root, last, data) VALUES (?, ?, ?)", (root, last_seq, part.text)
                )
            else:
                lost[root] = tables.taken_over(link, root)
        return lost


def _count(link: Link, owner: str, page: Page, part: Part) -> bool:
    """Brings the tree's own row up to date, and renews the claim; False when it is not ours."""
    root, count, last_seq = page.root, len(page.events), page.events[-1].seq
    beginning = part.agent, part.task, part.started_at
    ours = link.change(
        _count_sql(link.now),
        (*beginning, count, part.size, last_seq, part.last_at, *part.spent, LEASE_S, root, owner),
    )
    if ours and (part.resumed or part.status is not None):
        link.change("UPDATE remit_trees SET status = ? WHERE root = ?", (part.status, root))
    return bool(ours)


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
