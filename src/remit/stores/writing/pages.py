"""Joins lines to pages, redacts and counts them, and writes them in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from msgspec import Struct

import remit.stores.sql.tables as tables
from remit.errors import TreeOwned
from remit.history.redaction import Redactor
from remit.stores.owner import LEASE_S
from remit.stores.sql.database import Link
from remit.stores.writing.lines import TASK_CHARS, Line
from remit.types.limits import HIGHEST, to_micros

PAGE_BYTES = 500_000
"""Size of a full page. Large, because each statement releases the GIL and must wait to get it back."""


class Page(Struct, frozen=True):
    """One row of pages, and the values that it adds to its tree's row."""

    root: str
    data: bytes
    """Redacted JSON, one line per event."""
    count: int
    last_seq: int
    last_at: float
    agent: str
    task: str
    started_at: float
    """`agent`, `task` and `started_at` are used only for the first page of a tree."""
    spent: Sequence[int]
    """Runs, requests, tokens, micro-dollars, and requests of unknown price."""
    status: str | None
    """How the root ended. None with `resumed` clears the tree's status; None without it keeps the status."""
    resumed: bool

    @property
    def size(self) -> int:
        return len(self.data)


def pages_of(root: str, lines: Sequence[Line], redactor: Redactor) -> Iterator[Page]:
    """The waiting lines of a tree as pages."""
    start = size = 0
    for end, line in enumerate(lines, 1):
        size += len(line.json)
        if size >= PAGE_BYTES or end == len(lines):
            yield _page(root, lines[start:end], redactor)
            start, size = end, 0


def _page(root: str, lines: Sequence[Line], redactor: Redactor) -> Page:
    first, last = lines[0], lines[-1]
    started = [first, *(line for line in lines if line.task is not None)][-1]
    turned = [line for line in lines if line.status is not None or line.resumed]
    return Page(
        root=root,
        data=redactor.redact_lines(b"\n".join([line.json for line in lines])),
        count=len(lines),
        last_seq=last.seq,
        last_at=last.at,
        agent=started.agent,
        task=_shown(started.task or "", redactor),
        started_at=started.at,
        spent=_spent(lines),
        status=turned[-1].status if turned else None,
        resumed=bool(turned) and turned[-1].resumed,
    )


def _shown(task: str, redactor: Redactor) -> str:
    """The task as the list of trees shows it."""
    shown = redactor.redact_text(task)[:TASK_CHARS]
    # Databases cannot store zero characters and lone surrogates.
    return shown.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _spent(lines: Sequence[Line]) -> list[int]:
    usages = [line.usage for line in lines if line.usage is not None]
    spent = (
        sum(line.runs for line in lines),
        sum(usage.requests for usage in usages),
        sum(usage.tokens for usage in usages),
        sum(to_micros(usage.usd) for usage in usages if usage.usd is not None),
        sum(usage.usd is None and usage.tokens > 0 for usage in usages),
    )
    # A model may report any number, and databases count only up to 9 * 10**18.
    return [min(amount, HIGHEST) for amount in spent]


def write(link: Link, pages: Iterable[Page], owner: str, *, unsure: bool) -> dict[str, TreeOwned]:
    """Write pages in the current transaction. Skips and returns the trees that this process no longer owns.

    `unsure`: an earlier attempt may have been committed.
    """
    lost: dict[str, TreeOwned] = {}
    for page in pages:
        root = page.root
        if root in lost:
            continue
        held = tables.lease(link, root) if unsure else None
        # Already committed: a transaction writes all of a page or nothing. The owner check excludes another's events.
        if held is not None and held.owner == owner and held.last_seq >= page.last_seq:
            continue
        if _count(link, owner, page):
            link.change(
                f"INSERT INTO remit_pages (root, last, data) VALUES (?, ?, {link.text})",  # noqa: S608 - our own constant
                (root, page.last_seq, page.data),
            )
        else:
            lost[root] = tables.taken_over(link, root)
    return lost


def _count(link: Link, owner: str, page: Page) -> bool:
    """Update the tree's row and renew the claim; False if this process no longer owns the tree."""
    beginning = page.agent, page.task, page.started_at
    added = page.count, page.size, page.last_seq, page.last_at
    ours = link.change(_count_sql(link.now), (*beginning, *added, *page.spent, LEASE_S, page.root, owner))
    if ours and (page.resumed or page.status is not None):
        link.change("UPDATE remit_trees SET status = ? WHERE root = ?", (page.status, page.root))
    return bool(ours)


@cache
def _count_sql(now: str) -> str:
    # An UPDATE reads the old values of the row, so `events = 0` always means the tree's first page.
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
