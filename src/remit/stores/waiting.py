"""Events that wait to be written, tree by tree.

A short event in which nothing can change any more waits as it is, and the writer makes JSON of many at once: that takes
a third of the time, and no memory. Of any other JSON is made when it comes.
"""

from __future__ import annotations

import asyncio

from remit.errors import StoreError
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

WAITING_BYTES = 400
"""About what an event takes that waits as it is. Not more, or a burst of them would look like trouble."""

LONG_CHARS = 1_000
"""From here on a text is long. Other texts of such an event than those that are looked at are short."""


class Early:
    """An event that does not wait as it is."""

    __slots__ = ("event", "json")

    def __init__(self, event: Event, json: bytes) -> None:
        self.event = event
        self.json = json


Waiting = Event | Early


class Claim:
    """A tree that is ours, and what waits of it.

    The tree's own thread adds at the end while the writer's takes from the beginning. Neither holds a lock for it: each
    is one step of a list, and what is counted is written by one of them only. The garbage collector, which may come at
    any time and end a run that nobody holds any more, finds nothing half done either.
    """

    __slots__ = ("early_in", "early_out", "error", "events", "given_up", "last", "loop", "root", "told")

    def __init__(self, root: str, last: int) -> None:
        self.root = root
        self.loop = asyncio.get_running_loop()
        """Who runs it: once that is closed, nobody does."""
        self.last = last
        """The `seq` of the last event that was taken."""
        self.events: list[Waiting] = []
        self.early_in = self.early_out = 0
        """Bytes of JSON that were made early, so far, and that the writer has taken."""
        self.error: StoreError | None = None
        """Why nothing more of it is taken."""
        self.told = False
        """Whether anybody has heard of that."""
        self.given_up = False
        """Whether what waits of it is not written either: it would stand behind a hole."""

    @property
    def size(self) -> int:
        """About how many bytes wait."""
        return len(self.events) * WAITING_BYTES + self.early_in - self.early_out

    def take(self) -> list[Waiting]:
        """All that waits. For the writer's thread."""
        count = len(self.events)
        taken = self.events[:count]
        # More may have come meanwhile, and stays.
        del self.events[:count]
        if self.early_in != self.early_out:
            self.early_out += sum(len(one.json) for one in taken if isinstance(one, Early))
        return [] if self.given_up else taken

    def give_up(self, error: StoreError) -> None:
        """Nothing of it is written any more. For the writer's thread."""
        self.error = self.error or error
        self.given_up = True

    def tell(self, error: StoreError) -> StoreError:
        """Its error, for somebody who hears it."""
        self.told = True
        return copy(error)


def copy(error: StoreError) -> StoreError:
    """One for each who hears it: an exception that is raised twice shows a traceback of both."""
    return type(error)(*error.args)


def can_wait(event: Event) -> bool:
    """Whether nothing in it can change and it is not long."""
    # By class first: `isinstance` takes long for a record that is of another one.
    kind = type(event)
    if kind is TurnStarted or kind is CallStarted:
        return True
    if kind is ReplyReceived and isinstance(event, ReplyReceived):
        reply = event.reply
        # The arguments and the details are the model's, which may have kept them.
        return not (
            reply.calls or reply.details is not None or reply.thinking or len(reply.text) >= LONG_CHARS
        )
    if kind is RunStarted and isinstance(event, RunStarted):
        parts = event.task.content
        # A list could still grow.
        part = parts[0] if type(parts) is tuple and len(parts) == 1 else None
        short = type(part) is TextPart and len(part.text) + len(event.instructions) < LONG_CHARS
        return short and not event.history and event.terms is NO_TERMS
    if kind is RunEnded and isinstance(event, RunEnded):
        outcome = event.outcome
        led = outcome.output is not None or outcome.calls or outcome.messages or outcome.children
        led = led or outcome.warnings or outcome.artifacts
        return not led and len(outcome.text) + len(outcome.partial) < LONG_CHARS
    if kind is CallEnded and isinstance(event, CallEnded):
        # Not with empty details of somebody else's: they may be filled later.
        fixed = event.details is None or event.details is NO_DETAILS
        return fixed and not event.parts and len(event.content) + len(event.note) < LONG_CHARS
    return False


def early(event: Event) -> Early:
    """With its JSON. Raises where it has none."""
    return Early(event, encode(event))
