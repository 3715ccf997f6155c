"""Pages on their way into the tables: made lines of JSON, redacted, counted, and written in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import cast

from msgspec import Raw

import remit.stores.tables as tables
from remit.errors import TreeOwned
from remit.events import ModelCallFailed, ReplyReceived, RunEnded, RunResumed, RunStarted, encode_lines
from remit.limits import Usage, to_micros
from remit.redaction import Redactor
from remit.stores.owner import LEASE_S
from remit.stores.pages import Line, Page
from remit.stores.place import Link
from remit.stores.texts import texts_of

TOGETHER = 128
"""Events that are made JSON of, and are redacted, together."""

TASK_CHARS = 200

_COUNTED = frozenset((ReplyReceived, ModelCallFailed, RunStarted, RunEnded, RunResumed))
"""Events that change what is said of a tree."""


class Part:
    """What a page adds to its tree."""

    __slots__ = ("agent", "last_at", "resumed", "size", "spent", "started_at", "status", "task", "text")

    def __init__(self, page: Page, redactor: Redactor) -> None:
        first, last = page.events[0], page.events[-1]
        data = b"\n".join(_redacted(page.lines, redactor))
        self.text, self.size = data.decode(), len(data)
        self.last_at = last.at
        self.agent, self.task, self.started_at = first.agent, "", first.at
        """For a tree that has no events yet."""
        self.spent = [0, 0, 0, 0, 0]
        """Runs, requests, tokens, micro-dollars, and requests whose price is not known."""
        self.resumed = False
        self.status: str | None = None
        """How the root ended, or None with `resumed`; without either, as before."""
        root, runs = page.root, 0
        # By class: `isinstance` takes several times as long for a record that is of another one.
        for event in [event for event in page.events if type(event) in _COUNTED]:
            kind = type(event)
            if kind is ReplyReceived or kind is ModelCallFailed:
                self._count(cast(ReplyReceived, event).usage)
            elif kind is RunStarted:
                runs += 1
                if event.run == root:
                    self._begin(cast(RunStarted, event), redactor)
            elif event.run == root:
                self.resumed = kind is RunResumed
                self.status = None if self.resumed else cast(RunEnded, event).outcome.status
        self.spent[0] = runs

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


def _redacted(lines: Sequence[Line], redactor: Redactor) -> Iterator[bytes]:
    clean = redactor.are_clean(texts_of(lines))
    if clean and Raw in set(map(type, lines)):
        # What is JSON already is looked through as that.
        lines = [Raw(redactor.redact(bytes(line))) if isinstance(line, Raw) else line for line in lines]
    for at in range(0, len(lines), TOGETHER):
        some = lines[at : at + TOGETHER]
        data = encode_lines(some)[:-1]
        yield data if clean else redactor.redact_lines(data)


class Batch:
    """What is written together. Kept as it is until it is written, however often that is tried."""

    def __init__(self, pages: Iterable[Page], redactor: Redactor) -> None:
        self.parts: list[tuple[Page, Part]] = []
        self.count = 0
        self.broken: dict[str, Exception] = {}
        """Trees of which a page cannot be written, nor anything after it."""
        for page in pages:
            self.count += len(page.events)
            if page.root in self.broken:
                continue
            try:
                self.parts.append((page, Part(page, redactor)))
            except Exception as error:  # noqa: BLE001 - other trees have nothing to do with it
                self.broken[page.root] = error
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
            # Written in one transaction: all of a page is there, or nothing. Another owner's events are not these.
            if held is not None and held.owner == owner and held.last_seq >= last_seq:
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
