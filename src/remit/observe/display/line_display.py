"""A run as plain lines, one per event: for logs, pipes and simple terminals."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

import remit.observe.words as words
import remit.types.events as events
from remit.observe.display.tree_view import TreeView, shown, summary
from remit.observe.event_words import in_words
from remit.observe.run_words import how_it_ended
from remit.types.events import Event

WIDEST = 200
"""Characters of a line."""

_SHOWN = (
    events.RunStarted,
    events.RunResumed,
    events.CallStarted,
    events.ModelCallFailed,
    events.ModelSwitched,
    events.DelegationRejected,
    events.ApprovalRequested,
    events.ApprovalAnswered,
    events.MessageJoined,
    events.CancelRequested,
    events.LimitMet,
    events.Overran,
    events.Warned,
    events.ToolsOpened,
)


class LineDisplay:
    """Writes one line per event that matters to users."""

    def __init__(self, view: TreeView, stream: TextIO) -> None:
        self.view = view
        self._stream = stream
        self._began: float | None = None
        self._broken = False
        self._held: list[str] | None = None
        """Lines that are held back while a question waits for its answer."""

    def begin(self) -> None:
        """Nothing to prepare."""

    def feed(self, event: Event) -> None:
        self.view.feed(event)
        if self._began is None:
            self._began = event.at
        said = self._say(event)
        if said:
            record = self.view.tree.runs.get(event.run)
            # Siblings of one agent differ by their labels, else by the number at the end of their ids.
            number = event.run.partition(".")[2]
            label = words.line(record.label, 40) if record is not None and record.label else number
            who = words.path(event.path) + (f" ({label})" if label else "")
            self._write(f"{words.duration(event.at - self._began):>6}  {who}: {words.line(said, WIDEST)}")

    def paint(self) -> None:
        """Nothing to draw: lines are written at once."""

    def note(self, text: str) -> None:
        self._write(text)

    @contextmanager
    def paused(self) -> Generator[None]:
        """Hold lines back, so that none appears between a question and its answer."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for text in held:
                self._write(text)

    def redraw(self) -> None:
        """Nothing to draw again."""

    def end(self, *, tree: bool = True) -> None:
        if tree and self.view.tree.runs:
            self._write(shown(summary(self.view, self._room() or WIDEST, self.view.tree.at), colour=False))

    def _say(self, event: Event) -> str:
        if isinstance(event, events.RunEnded):
            outcome, record = event.outcome, self.view.tree.runs.get(event.run)
            used = f"{words.count(outcome.turns, 'turn')}, {words.number(outcome.usage.tokens)} tokens, "
            if record is not None and record.start.program:
                # It has neither.
                used = ""
            return f"{how_it_ended(outcome)} ({used}{words.duration(outcome.duration_s)})"
        if isinstance(event, events.CallStarted):
            return "" if event.delegates else words.doing(event.tool, event.context, event.display_name)
        if isinstance(event, events.CallEnded):
            return "" if event.success or self._delegates(event) else in_words(event)
        if isinstance(event, events.ToolsOpened) and not event.trouble:
            return ""
        return in_words(event) if isinstance(event, _SHOWN) else ""

    def _delegates(self, event: events.CallEnded) -> bool:
        """Whether the call is a delegation: the child's end has its own line."""
        record = self.view.tree.runs.get(event.run)
        place = None if record is None else record.turn.places.get(event.call)
        return record is not None and place is not None and record.calls[place].delegates

    def _write(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
        if self._broken or self._held is not None:
            return
        if room := self._room():
            # Align with the text of the line, not with its time.
            rows = (words.wrap(row, room, "    " if row[:1] == " " else "") for row in text.split("\n"))
            text = "\n".join(part for parts in rows for part in parts)
        shown_text = text if words.has_unicode(self._stream) else words.ascii_only(text)
        try:
            self._stream.write(f"{shown_text}\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._broken = True

    def _room(self) -> int | None:
        """Cells of a line; None if the stream is not a terminal."""
        return words.window_of(self._stream) - 1 if words.is_terminal(self._stream) else None
