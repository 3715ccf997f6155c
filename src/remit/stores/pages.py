"""Events that wait to be written, in pages: what will stand in one row.

A short event in which nothing can change any more waits as it is, and the writer makes JSON of many at once: that takes
a third of the time, and no memory. Of any other JSON is made when it comes.
"""

from __future__ import annotations

from collections import deque

from msgspec import Raw

from remit.events import (
    NO_TERMS,
    CallEnded,
    CallStarted,
    Event,
    ReplyReceived,
    RunEnded,
    RunStarted,
    TurnStarted,
    encode,
)
from remit.messages import NO_DETAILS, TextPart

PAGE_BYTES = 500_000
"""A page that has so many is full. Few large ones: each statement gives up the interpreter's lock, and must wait to
get it back."""

MOST_BYTES = 8_000_000
"""Of events in one transaction, or one page."""

LATER_BYTES = 400
"""About what an event takes of which the writer makes JSON. Not more, or a burst of them would look like trouble."""

LEVEL_BYTES = 20
"""What its path takes for each level: the names of all runs above."""

LONG_CHARS = 1_000
"""From here on a text is long. Other texts of such an event than those that are looked at are short."""

Line = Event | Raw


class Page:
    """Events of one tree. Added to by one thread and taken by another, both of which hold the writer's lock."""

    __slots__ = ("events", "lines", "open", "root", "size")

    def __init__(self, root: str, *, is_open: bool = True) -> None:
        self.root = root
        self.open = is_open
        """Whether more can be added."""
        self.events: list[Event] = []
        self.lines: list[Line] = []
        """The same, or their JSON. Two lists instead of pairs, for the garbage collector's sake."""
        self.size = 0
        """About how many bytes these take."""


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


def line_of(event: Event) -> Line:
    """What waits of an event: itself, if nothing in it can change and it is not long. Raises where it has no JSON."""
    # By class first: `isinstance` takes long for a record that is of another one.
    kind = type(event)
    if kind is TurnStarted or kind is CallStarted:
        return event
    if kind is ReplyReceived and isinstance(event, ReplyReceived):
        reply = event.reply
        # The arguments and the details are the model's, which may have kept them.
        if not reply.calls and reply.details is None and not reply.thinking and len(reply.text) < LONG_CHARS:
            return event
    elif kind is RunStarted and isinstance(event, RunStarted):
        parts = event.task.content
        # A list could still grow.
        part = parts[0] if type(parts) is tuple and len(parts) == 1 else None
        short = type(part) is TextPart and len(part.text) + len(event.instructions) < LONG_CHARS
        if short and not event.history and event.terms is NO_TERMS:
            return event
    elif kind is RunEnded and isinstance(event, RunEnded):
        outcome = event.outcome
        led = outcome.output is not None or outcome.calls or outcome.messages or outcome.children
        led = led or outcome.warnings or outcome.artifacts
        if not led and len(outcome.text) + len(outcome.partial) < LONG_CHARS:
            return event
    elif kind is CallEnded and isinstance(event, CallEnded):
        # Not with empty details of somebody else's: they may be filled later.
        fixed = event.details is None or event.details is NO_DETAILS
        if fixed and not event.parts and len(event.content) + len(event.note) < LONG_CHARS:
            return event
    return Raw(encode(event))
