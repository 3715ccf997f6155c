"""Events on their way into the tables: made pages of JSON, redacted, counted, and written in one transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import cast

from msgspec import Raw

import remit.stores.sql.tables as tables
from remit.errors import TreeOwned
from remit.history.redaction import Redactor
from remit.stores.owner import LEASE_S
from remit.stores.sql.database import Link
from remit.stores.writing.texts import LONG_CHARS, Searched, texts_of
from remit.stores.writing.waiting import Waiting, Weighed
from remit.types.event_json import encode_lines
from remit.types.events import Event, ModelCallFailed, ReplyReceived, RunEnded, RunResumed, RunStarted
from remit.types.limits import HIGHEST, to_micros

PAGE_BYTES = 500_000
"""A page that has so many is full. Few large ones: each statement gives up the interpreter's lock, and must wait to
get it back."""

TOGETHER = 128
"""Events that are made JSON of, and are redacted, together."""

TASK_CHARS = 200

_PAID = frozenset((ReplyReceived, ModelCallFailed))
"""Events with something that was spent."""

_TURNING = frozenset((RunStarted, RunEnded, RunResumed))
"""Events of the root that change what is said of its tree."""


class Page:
    """What one row has, and adds to its tree."""

    __slots__ = (
        "agent",
        "count",
        "data",
        "last_at",
        "last_seq",
        "resumed",
        "root",
        "size",
        "spent",
        "started_at",
        "status",
        "task",
    )

    def __init__(
        self, root: str, events: Sequence[Event], lines: Sequence[bytes], redactor: Redactor
    ) -> None:
        first, last = events[0], events[-1]
        self.root = root
        # Without the end of the last line; the others are as long as they are, and not copied twice.
        self.data = b"".join([*lines[:-1], lines[-1][:-1]])
        self.size = len(self.data)
        self.count, self.last_seq, self.last_at = len(events), last.seq, last.at
        self.agent, self.task, self.started_at = first.agent, "", first.at
        """For a tree that has no events yet."""
        self.resumed = False
        self.status: str | None = None
        """How the root ended, or None with `resumed`; without either, as before."""
        requests = all_tokens = micros = unpriced = 0
        # By class: `isinstance` takes several times as long for a record that is of another one.
        for event in [event for event in events if type(event) in _PAID]:
            usage = cast("ReplyReceived | ModelCallFailed", event).usage
            requests += usage.requests
            tokens, usd = usage.input_tokens + usage.output_tokens, usage.usd
            all_tokens += tokens
            if usd:
                micros += to_micros(usd)
            elif usd is None and tokens:
                unpriced += 1
        runs = list(map(type, events)).count(RunStarted)
        for event in [event for event in events if type(event) in _TURNING and event.run == root]:
            if type(event) is RunStarted:
                self._begin(event, redactor)
            else:
                self.resumed = type(event) is RunResumed
                self.status = event.outcome.status if type(event) is RunEnded else None
        spent = runs, requests, all_tokens, micros, unpriced
        # What a model says is no reason to write nothing: databases count no further than 9 * 10**18.
        self.spent = [min(amount, HIGHEST) for amount in spent]
        """The last two: micro-dollars, and requests whose price is not known."""

    def _begin(self, event: RunStarted, redactor: Redactor) -> None:
        """What the list of trees says of the root."""
        task = redactor.redact_text(event.task.text[: TASK_CHARS * 4])[:TASK_CHARS]
        # Databases keep neither of these in a text.
        self.task = task.replace("\0", "\ufffd").encode("utf-8", "replace").decode()
        self.agent, self.started_at = event.agent, event.at


def pages_of(root: str, taken: Sequence[Waiting], redactor: Redactor, searched: Searched) -> Iterator[Page]:
    """What waited of a tree, as pages. Raises where an event has no JSON."""
    held: list[Event] = []
    made: list[bytes] = []
    size = 0
    for group, weighed in _groups(taken):
        if weighed:
            data = _json_of_weighed(group, redactor, searched)
            held += [one.event if isinstance(one, Weighed) else one for one in group]
        else:
            events = cast("Sequence[Event]", group)
            data = _json_of(events, redactor, searched)
            held += events
        made.append(data)
        size += len(data)
        if size >= PAGE_BYTES:
            yield Page(root, held, made, redactor)
            held, made, size = [], [], 0
    if held:
        yield Page(root, held, made, redactor)


def _groups(taken: Sequence[Waiting]) -> Iterator[tuple[Sequence[Waiting], bool]]:
    """`TOGETHER`, or fewer where those are long; and whether any of them was weighed."""
    start = 0
    while start < len(taken):
        group = taken[start : start + TOGETHER]
        # Without a line of Python for each: there are many.
        weighed = Weighed in set(map(type, group))
        if weighed:
            group = list(_no_more_than_a_page(group))
        yield group, weighed
        start += len(group)


def _no_more_than_a_page(group: Iterable[Waiting]) -> Iterator[Waiting]:
    size = 0
    for one in group:
        yield one
        size += one.size if type(one) is Weighed else 0
        if size >= PAGE_BYTES:
            return


def _json_of(events: Sequence[Event], redactor: Redactor, searched: Searched) -> bytes:
    """Lines, redacted: looked through by their texts."""
    data = encode_lines(events)
    clean = redactor.are_clean(searched.without(texts_of(events)))
    return data if clean else redactor.redact_lines(data)


def _json_of_weighed(group: Sequence[Waiting], redactor: Redactor, searched: Searched) -> bytes:
    """The same. What is JSON already is looked through as that."""
    lines = [_line(one) for one in group]
    data = encode_lines(lines)
    texts = searched.without(texts_of([line for line in lines if isinstance(line, Event)]))
    ready = [one for one in group if type(one) is Weighed and one.json is not None]
    if not (redactor.are_clean(texts) and redactor.is_clean(b"\n".join([one.json or b"" for one in ready]))):
        return redactor.redact_lines(data)
    # What should be a text and is not is somebody's slip, and no reason to write nothing.
    searched.add(text for text in texts if type(text) is str and len(text) >= LONG_CHARS)
    for one in ready:
        searched.add(one.texts)
    return data


def _line(one: Waiting) -> Event | Raw:
    if type(one) is not Weighed:
        return cast(Event, one)
    return one.event if one.json is None else Raw(one.json)


def write(link: Link, pages: Iterable[Page], owner: str, *, unsure: bool) -> dict[str, TreeOwned]:
    """In one transaction. The trees that are not ours any more are left out, and given back.

    `unsure`: an earlier try may have worked without our hearing of it.
    """
    lost: dict[str, TreeOwned] = {}
    for page in pages:
        root = page.root
        if root in lost:
            continue
        held = tables.lease(link, root) if unsure else None
        # Written in one transaction: all of a row is there, or nothing. Another owner's events are not these.
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
    """Brings the tree's own row up to date, and renews the claim; False when it is not ours."""
    beginning = page.agent, page.task, page.started_at
    added = page.count, page.size, page.last_seq, page.last_at
    ours = link.change(_count_sql(link.now), (*beginning, *added, *page.spent, LEASE_S, page.root, owner))
    if ours and (page.resumed or page.status is not None):
        link.change("UPDATE remit_trees SET status = ? WHERE root = ?", (page.status, page.root))
    return bool(ours)


@cache
def _count_sql(now: str) -> str:
    # An UPDATE reads the row as it was, so `events = 0` means the tree's first page throughout.
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
