"""Converts an event to a line of the journal: its JSON, and the values that its tree's row counts."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from remit.types.event_json import encode
from remit.types.events import Event, ModelCallFailed, ReplyReceived, RunEnded, RunResumed, RunStarted
from remit.types.limits import Usage

LINE_BYTES = 200
"""Approximate memory of a line besides its JSON."""

TASK_CHARS = 200
"""Characters of the root's task in the list of trees."""

_any_json = msgspec.json.Decoder(msgspec.Raw)
"""Validates JSON without creating values."""


class Line(Struct, frozen=True, gc=False):
    """An event that waits to be written. A copy: it does not change when the event's values do."""

    json: bytes
    """One line, not redacted yet."""
    size: int
    """Approximate memory of the line in bytes."""
    seq: int
    at: float
    agent: str
    runs: int = 0
    """1 if the event starts a run."""
    usage: Usage | None = None
    """Set if the event ends a model call."""
    task: str | None = None
    """The beginning of the root's task, not redacted yet; set if the event starts the root."""
    status: str | None = None
    """Set if the event ends the root."""
    resumed: bool = False
    """Whether the event resumes the root."""


def line_of(event: Event) -> Line:
    """The line of an event in its current state: models and tools may change its values later. Raises if not JSON."""
    json = _json_of(event)
    runs, usage, task, status, resumed = 0, None, None, None, False
    of_root = event.run == event.root
    if isinstance(event, (ReplyReceived, ModelCallFailed)):
        usage = event.usage
    elif isinstance(event, RunStarted):
        runs = 1
        # Longer than shown, so that a secret at the end is recognised.
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
    # `msgspec.Raw` from a model or a tool is copied unchecked. PostgreSQL would reject invalid JSON later, together with
    # events of other trees.
    if not json.isascii():
        json.decode()
    _any_json.decode(json)
    # An event is one line of its page.
    return json if b"\n" not in json else msgspec.json.encode(msgspec.json.decode(json))
