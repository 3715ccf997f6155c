"""From an event to a line of the journal: the JSON, and what the row of its tree needs to know of it."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from remit.types.event_json import encode
from remit.types.events import Event, ModelCallFailed, ReplyReceived, RunEnded, RunResumed, RunStarted
from remit.types.limits import Usage

LINE_BYTES = 200
"""About how much memory a line takes besides its JSON."""

TASK_CHARS = 200
"""How much of the root's task the list of trees shows."""

_any_json = msgspec.json.Decoder(msgspec.Raw)
"""Checks JSON without making values of it."""


class Line(Struct, frozen=True, gc=False):
    """An event that waits to be written. Plain data: it does not change when the event's values do."""

    json: bytes
    """One line, not redacted yet."""
    size: int
    """About how many bytes of memory the line takes."""
    seq: int
    at: float
    agent: str
    runs: int = 0
    """1 if the event starts a run."""
    usage: Usage | None = None
    """If the event is about a model call that was made."""
    task: str | None = None
    """If the event starts the root: the beginning of its task, not redacted yet."""
    status: str | None = None
    """If the event ends the root."""
    resumed: bool = False
    """Whether the event resumes the root."""


def line_of(event: Event) -> Line:
    """The line of an event as the event is now: what a model or a tool keeps of it may change. Raises if it has no JSON."""
    json = _json_of(event)
    runs, usage, task, status, resumed = 0, None, None, None, False
    of_root = event.run == event.root
    if isinstance(event, (ReplyReceived, ModelCallFailed)):
        usage = event.usage
    elif isinstance(event, RunStarted):
        runs = 1
        # More than is shown, so that a secret at the end is recognised.
        task = event.task.text[: TASK_CHARS * 4] if of_root else None
    elif isinstance(event, RunEnded) and of_root:
        status = event.outcome.status
    elif isinstance(event, RunResumed) and of_root:
        resumed = True
    return Line(
        json=json,
        size=len(json) + LINE_BYTES,
        seq=event.seq,
        at=event.at,
        agent=event.agent,
        runs=runs,
        usage=usage,
        task=task,
        status=status,
        resumed=resumed,
    )


def _json_of(event: Event) -> bytes:
    json = encode(event)
    # JSON that a model or a tool gave as `msgspec.Raw` is copied unchecked. PostgreSQL would refuse it later, together
    # with the events of other trees.
    if not json.isascii():
        json.decode()
    _any_json.decode(json)
    # An event is one line of its page.
    return json if b"\n" not in json else msgspec.json.encode(msgspec.json.decode(json))
