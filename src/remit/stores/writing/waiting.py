"""Events that wait to be written, tree by tree.

An event in which nothing can change any more waits as it is, and the writer makes JSON of many at once: that takes a
third of the time, and no memory. Of any other JSON is made when it comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from remit.errors import StoreError
from remit.stores.writing.texts import LONG_CHARS, Searched
from remit.types.event_json import encode
from remit.types.events import (
    CallEnded,
    CallStarted,
    Event,
    ReplyReceived,
    RunEnded,
    RunStarted,
    TurnStarted,
)
from remit.types.messages import NO_DETAILS, TextPart

WAITING_BYTES = 400
"""About what an event takes that waits as it is. Not more, or a burst of them would look like trouble."""

_whole = msgspec.json.Decoder(msgspec.Raw)
"""Looks at JSON without making anything of it."""

HEED_EVENTS = 1_024
"""After so many events of a tree it is looked how much waits."""

CHANGEABLE = -1
"""In the place of a weight."""


class Weighed:
    """An event that is long, or in which something can change. Of the latter there is JSON already."""

    __slots__ = ("event", "json", "size", "texts")

    def __init__(self, event: Event, size: int, json: bytes | None = None, texts: Sequence[str] = ()) -> None:
        self.event = event
        self.size = size
        self.json = json
        self.texts = texts
        """Some that the JSON has, each as a whole, and that other events will have too."""


Waiting = Event | Weighed


class Claim:
    """A tree that is ours, and what waits of it.

    The tree's own thread adds at the end while the writer's takes from the beginning. Neither holds a lock for it: each
    is one step of a list, and what is counted is written by one of them only. The garbage collector, which may come at
    any time and end a run that nobody holds any more, finds nothing half done either.
    """

    __slots__ = (
        "error",
        "events",
        "given_up",
        "heed_at",
        "last",
        "loop",
        "root",
        "searched",
        "told",
        "weight_in",
        "weight_out",
    )

    def __init__(self, root: str, last: int) -> None:
        self.root = root
        self.loop = asyncio.get_running_loop()
        """Who runs it: once that is closed, nobody does."""
        self.last = last
        """The `seq` of the last event that was taken."""
        self.heed_at = last + HEED_EVENTS
        """The `seq` from which on it is looked how much waits."""
        self.events: list[Waiting] = []
        self.weight_in = self.weight_out = 0
        """Bytes of what was weighed, so far, and of what the writer has taken of it."""
        self.searched = Searched()
        """For the writer's thread."""
        self.error: StoreError | None = None
        """Why nothing more of it is taken."""
        self.told = False
        """Whether anybody has heard of that."""
        self.given_up = False
        """Whether what waits of it is not written either: it would stand behind a hole."""

    @property
    def size(self) -> int:
        """About how many bytes wait."""
        return len(self.events) * WAITING_BYTES + self.weight_in - self.weight_out

    def take(self) -> list[Waiting]:
        """All that waits. For the writer's thread."""
        count = len(self.events)
        taken = self.events[:count]
        # More may have come meanwhile, and stays.
        del self.events[:count]
        if self.weight_in != self.weight_out:
            self.weight_out += sum(one.size for one in taken if type(one) is Weighed)
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


def weigh(event: Event) -> int:
    """About how many bytes its long texts take; 0 when it has none, and `CHANGEABLE` when something in it can change."""
    kind = type(event)
    return 0 if kind in _SHORT else WEIGHTS.get(kind, _any_other)(event)


def _any_other(_: Event) -> int:
    """The weight of what is of no class below."""
    return CHANGEABLE


def _of_reply(event: ReplyReceived) -> int:
    reply = event.reply
    # The arguments and the details are the model's, which may have kept them.
    if reply.calls or reply.details is not None or reply.thinking:
        return CHANGEABLE
    return _bytes(reply.text) if len(reply.text) >= LONG_CHARS else 0


def _of_start(event: RunStarted) -> int:
    parts = event.task.content
    # A list could still grow.
    part = parts[0] if type(parts) is tuple and len(parts) == 1 else None
    if type(part) is not TextPart or event.history or event.terms is not None:
        return CHANGEABLE
    text, others = part.text, event.instructions
    return _bytes(text) + _bytes(others) if len(text) + len(others) >= LONG_CHARS else 0


def _of_end(event: RunEnded) -> int:
    outcome = event.outcome
    if outcome.output is not None or outcome.calls or outcome.messages or outcome.children:
        return CHANGEABLE
    if outcome.warnings or outcome.artifacts:
        return CHANGEABLE
    text, partial = outcome.text, outcome.partial
    return _bytes(text) + _bytes(partial) if len(text) + len(partial) >= LONG_CHARS else 0


def _of_call(event: CallEnded) -> int:
    details, content, note = event.details, event.content, event.note
    # Not with empty details of somebody else's: they may be filled later.
    if event.parts or (details is not None and details is not NO_DETAILS):
        return CHANGEABLE
    return _bytes(content) + _bytes(note) if len(content) + len(note) >= LONG_CHARS else 0


_SHORT = frozenset((TurnStarted, CallStarted))
"""Those in which nothing is long, and nothing can change."""

WEIGHTS: dict[type[Event], Callable[[Any], int]] = {
    ReplyReceived: _of_reply,
    RunStarted: _of_start,
    RunEnded: _of_end,
    CallEnded: _of_call,
}
"""By class: `isinstance` takes long for a record that is of another one. Each is written out: it is asked for with every
event, from code that has much else in the processor's first cache."""


def _bytes(text: str) -> int:
    # Not guessed from its characters: most texts of models have a few that are longer, and most have no others.
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def weighed(event: Event, weight: int) -> Weighed:
    """One that can change as it is now: raises where it has no JSON."""
    if weight != CHANGEABLE:
        return Weighed(event, weight)
    json = encode(event)
    # What was given as JSON (`msgspec.Raw`) is taken as it is: databases would say too late, or not at all, that it is none.
    if not json.isascii():
        json.decode()
    _whole.decode(json)
    if b"\n" in json:
        # An event is a line.
        json = msgspec.json.encode(msgspec.json.decode(json))
    return Weighed(event, len(json), json, _recurring(event) if isinstance(event, ReplyReceived) else ())


def _recurring(asked: ReplyReceived) -> list[str]:
    """The ids of calls, and their long arguments: one that delegates has the child's task."""
    calls = asked.reply.calls
    given = [call.args for call in calls if isinstance(call.args, dict)]
    long = [text for args in given for text in args.values() if type(text) is str and len(text) >= LONG_CHARS]
    return [*(call.id for call in calls), *long]
