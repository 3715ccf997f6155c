"""A run as plain lines, one per thing that happened: for logs, pipes and terminals that cannot do more."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TextIO

import remit.cli.views.words as words
import remit.types.events as events
from remit.cli.views.event_words import in_words
from remit.cli.views.run_words import how_it_ended
from remit.cli.views.tree_view import TreeView, shown, summary
from remit.types.events import Event

WIDEST = 200
"""Characters of a line; a log is read by people too."""

_TOLD = (
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
    """Writes a line per event that people want to know of."""

    def __init__(self, view: TreeView, stream: TextIO) -> None:
        self.view = view
        self._stream = stream
        self._began: float | None = None
        self._broken = False
        self._held: list[str] | None = None
        """Lines that wait for an answer."""

    def begin(self) -> None:
        """Nothing to be made ready."""

    def feed(self, event: Event) -> None:
        self.view.feed(event)
        if self._began is None:
            self._began = event.at
        said = self._say(event)
        if said:
            record = self.view.tree.runs.get(event.run)
            # Siblings of one agent are told apart by their labels, else by the number that ends their ids.
            number = event.run.partition(".")[2]
            label = words.line(record.label, 40) if record is not None and record.label else number
            who = words.path(event.path) + (f" ({label})" if label else "")
            self._write(f"{words.duration(event.at - self._began):>6}  {who}: {words.line(said, WIDEST)}")

    def paint(self) -> None:
        """Lines are written when they come."""

    def note(self, text: str) -> None:
        self._write(text)

    @contextmanager
    def paused(self) -> Generator[None]:
        """What comes meanwhile is written afterwards, not between a question and its answer."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for text in held:
                self._write(text)

    def go_on(self) -> None:
        """Nothing to be drawn again."""

    def end(self, *, tree: bool = True) -> None:
        if tree and self.view.tree.runs:
            self._write(shown([summary(self.view, WIDEST, self.view.tree.at)], colour=False))

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
        return in_words(event) if isinstance(event, _TOLD) else ""

    def _delegates(self, event: events.CallEnded) -> bool:
        """Whether the call asked for a child: how that ended has a line of its own."""
        record = self.view.tree.runs.get(event.run)
        place = None if record is None else record.turn.places.get(event.call)
        return record is not None and place is not None and record.calls[place].delegates

    def _write(self, text: str) -> None:
        if self._held is not None:
            self._held.append(text)
        if self._broken or self._held is not None:
            return
        shown_text = text if words.has_unicode(self._stream) else words.ascii_only(text)
        try:
            self._stream.write(f"{shown_text}\n")
            self._stream.flush()
        except (OSError, ValueError):
            self._broken = True
