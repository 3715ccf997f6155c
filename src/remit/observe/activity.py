"""The current activity of a run: the part of its state that its history does not record."""

from __future__ import annotations

from msgspec import Struct, field

import remit.observe.words as words
import remit.types.events as events
from remit.types.events import Event


class Live(Struct):
    """The current state of a run that its history does not record."""

    calls: dict[str, str] = field(default_factory=dict[str, str])
    """Running calls, described in words."""
    said: str = ""
    """The last change of its model call: writing, or waiting for a retry."""
    queued: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    """Queued children, by call and key: code may request many children in one call."""


def note(live: Live, event: Event) -> None:
    """Apply an event of the run."""
    if isinstance(event, (events.CallStarted, events.CallEnded, events.ChildQueued)):
        _note_call(live, event)
    else:
        _note_model(live, event)


def _note_call(live: Live, event: events.CallStarted | events.CallEnded | events.ChildQueued) -> None:
    live.calls.pop(event.call, None)
    if isinstance(event, events.ChildQueued):
        live.queued.add((event.call, event.key))
        return
    live.queued = {one for one in live.queued if one[0] != event.call}
    if isinstance(event, events.CallStarted) and not event.delegates:
        live.calls[event.call] = words.doing(event.tool, event.context, event.display_name)


def _note_model(live: Live, event: Event) -> None:
    if isinstance(event, events.DeltaReceived):
        live.said = "writing…" if event.text else live.said
    elif isinstance(event, events.ModelCallFailed):
        wait = event.retry_in_s
        live.said = "" if wait is None else f"{event.error_kind.replace('_', ' ')}: retry in {wait:.0f}s"
    elif isinstance(event, (events.TurnStarted, events.ReplyReceived)):
        live.said = ""
