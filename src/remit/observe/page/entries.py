"""A run's conversation for people: every message, reply and call in order, including those that compaction removed.

The fold keeps what the model reads next; this keeps what happened. Both refer to the same records.
"""

from __future__ import annotations

from msgspec import Struct, field

import remit.types.events as events
from remit.history.records import CallRecord, RunRecord
from remit.types.events import Event

NOTES = (
    events.ModelSwitched,
    events.Compacted,
    events.LimitMet,
    events.Overran,
    events.Warned,
    events.CancelRequested,
    events.RunResumed,
    events.ArtifactSaved,
)
"""Events that stand in the conversation as one line."""

SHOWN = (
    events.RunStarted,
    events.ReplyReceived,
    events.ModelCallFailed,
    events.MessageJoined,
    events.RunEnded,
    *NOTES,
)


class Entry(Struct):
    """One piece of the conversation."""

    n: int
    """Its place: 0, 1, 2..."""
    event: Event
    calls: list[CallRecord] = field(default_factory=list[CallRecord])
    """The calls that a reply asked for; of a program the one step."""
    changed: int = 0
    """The number of the event that changed it last: one of its calls ended, say."""

    @property
    def seq(self) -> int:
        return self.event.seq


class Conversation:
    """The entries of one run."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._by_call: dict[str, Entry] = {}
        """The entries of the last turn's calls."""

    def feed(self, record: RunRecord, event: Event) -> None:
        """Take in an event of this run, after the fold has."""
        if isinstance(event, events.ToolsOpened):
            if event.trouble:
                self._add(event)
        elif isinstance(event, SHOWN):
            self._add(event)
            if isinstance(event, events.ReplyReceived) and event.reply.calls:
                self._asked(record, event)
        elif isinstance(event, (events.CallStarted, events.CallEnded)):
            self._called(record, event)
        elif isinstance(event, (events.ApprovalRequested, events.ApprovalAnswered, events.ResultCut)):
            self.touch(event.call, event.seq)

    def started_child(self, event: events.RunStarted) -> None:
        """A run below this one began: by one of its calls, or by the program that it is."""
        if not self.touch(event.call, event.seq):
            self._add(event)

    def touch(self, call: str, seq: int) -> bool:
        """Something happened to a call of the last turn. Whether there is such a call."""
        entry = self._by_call.get(call)
        if entry is not None:
            entry.changed = seq
        return entry is not None

    def find(self, seq: int) -> Entry | None:
        """The entry of an event, by its number."""
        low, high = 0, len(self.entries)
        while low < high:
            middle = (low + high) // 2
            if self.entries[middle].seq < seq:
                low = middle + 1
            else:
                high = middle
        found = self.entries[low] if low < len(self.entries) else None
        return found if found is not None and found.seq == seq else None

    def changed_after(self, seq: int) -> list[Entry]:
        return [entry for entry in self.entries if entry.changed > seq]

    def _add(self, event: Event) -> Entry:
        entry = Entry(len(self.entries), event, changed=event.seq)
        self.entries.append(entry)
        return entry

    def _asked(self, record: RunRecord, event: events.ReplyReceived) -> None:
        entry = self.entries[-1]
        entry.calls = record.calls[-len(event.reply.calls) :]
        self._by_call = {one.call.id: entry for one in entry.calls}

    def _called(self, record: RunRecord, event: events.CallStarted | events.CallEnded) -> None:
        if self.touch(event.call, event.seq):
            return
        call = record.find(event.call)
        if call is not None and record.start.program:
            entry = self._add(event)
            entry.calls = [call]
            self._by_call[event.call] = entry
