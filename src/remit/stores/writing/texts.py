"""The texts in events that wait unwritten: looked through for secrets before there is any JSON of them.

They are a quarter of the JSON, and siblings have many of them in common. Some stand in several events, and are looked
through once: a task in the call that asked for it too, an answer in the reply, the outcome and the result.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import cast

from remit.types.events import CallEnded, CallStarted, Event, ReplyReceived, RunEnded, RunStarted, TurnStarted
from remit.types.messages import TextPart

Find = Callable[[Event], Iterable[str | None]]

_call = cast("Callable[[Find, Event], Iterable[str | None]]", operator.call)


def _of_start(started: Event) -> Iterable[str | None]:
    assert isinstance(started, RunStarted)
    # As `weigh` has seen to.
    part = started.task.content[0]
    assert isinstance(part, TextPart)
    names = (started.agent, started.label, started.call, started.nickname, started.model)
    return (part.text, started.instructions, *names, *started.tools, *started.subagents)


TEXTS: Mapping[type[Event], Find] = {
    RunStarted: _of_start,
    TurnStarted: attrgetter("path"),
    ReplyReceived: attrgetter("reply.text", "reply.model"),
    CallStarted: attrgetter("call", "tool", "display_name", "context", "tier"),
    CallEnded: attrgetter("call", "tool", "content", "note", "display_name", "context", "summary"),
    RunEnded: attrgetter(
        "outcome.text",
        "outcome.partial",
        "outcome.reason",
        "outcome.label",
        "outcome.model",
        "outcome.error",
        "outcome.failed_tool",
    ),
}
"""Every text of an event that waits as it is, but for who it is of: ids are ours, and an agent's name, in
whatever event it stands, is that of a run which began."""


LONG_CHARS = 1_000
"""From here on a text is long."""

MOST_SEARCHED = 8_000_000
"""About how many bytes of them are remembered. Most are in the tree's conversations anyway."""

TEXT_BYTES = 64
"""About what a text takes besides its characters."""


class Searched:
    """Texts of a tree in which no secret was found and that will be seen again, as long as they are not too many."""

    __slots__ = ("_bytes", "_texts")

    def __init__(self) -> None:
        self._texts: set[str] = set()
        self._bytes = 0

    def without(self, texts: set[str]) -> set[str]:
        """Those that have not been looked through."""
        return texts - self._texts

    def add(self, texts: Iterable[str]) -> None:
        fresh = set(texts) - self._texts
        size = sum(map(len, fresh)) + TEXT_BYTES * len(fresh)
        if self._bytes + size > MOST_SEARCHED:
            self._texts.clear()
            self._bytes = 0
        self._texts |= fresh
        self._bytes += size


def texts_of(events: Sequence[Event]) -> set[str]:
    """All that is anybody's in events of which there is no JSON yet."""
    # Without a line of Python for each: there are many.
    found = set(chain.from_iterable(map(_call, map(TEXTS.__getitem__, map(type, events)), events)))
    found.discard(None)
    return cast("set[str]", found)
