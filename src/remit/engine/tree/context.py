"""State shared by all runs of one tree: its clock, journal, event stream, approvals and live runs."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from remit.engine.budget.model_choice import Known
from remit.engine.budget.rate_limit import Lane
from remit.engine.tree.approvals import Approver, Desk
from remit.engine.tree.journal import Journal
from remit.engine.tree.stream import Stream
from remit.engine.tree.tracing import new_tracing
from remit.history.fold import going_on
from remit.history.records import Tree
from remit.tasks.deadline import Alarm
from remit.tools.hooks import OnCall, OnResult
from remit.tools.source import Sources
from remit.types.events import VERSION, Event, Where
from remit.types.limits import Usage
from remit.types.messages import UserMessage

if TYPE_CHECKING:
    from pathlib import Path

    from remit.engine.tree.node import Node


class Sent(Struct, frozen=True):
    """A message for a run's next turn; `command` is the id of the command that brought it, if one did."""

    message: UserMessage
    command: str = ""
    origin: Literal["sent", "runtime"] = "sent"


class Showing(Protocol):
    """The display of a tree: see `show`. It reads the stream like any other reader."""

    async def finish(self) -> None:
        """The tree has ended: draw its last state. Waits for a few seconds at most, and raises nothing."""
        ...


class TreeContext:
    """What the runs of one tree share. `past` is the recorded part of a tree that is resumed."""

    def __init__(
        self,
        root: str,
        *,
        journal: Journal,
        approver: Approver | None = None,
        deps: object = None,
        workspace: Path | None = None,
        on_call: tuple[OnCall[Any], ...] = (),
        on_result: tuple[OnResult[Any], ...] = (),
        past: Tree | None = None,
    ) -> None:
        self.root = root
        self.loop = loop = asyncio.get_running_loop()
        self.alarm = Alarm(loop)
        self.clock = self.alarm.clock
        wall = getattr(loop, "wall", time.time)
        self._epoch = wall() - self.clock()
        """Added to the loop's clock. That clock never jumps, so times in one journal can be subtracted."""
        self._seq = 0 if past is None else past.seq
        """The number of the last event."""
        self.journal = journal
        self.stream = Stream()
        self.tracing = new_tracing()
        self.showing: Showing | None = None
        self.desk = Desk(approver, past)
        self.sources = Sources(self.alarm, workspace)
        self.lanes: dict[str, Lane] = {}
        """By name."""
        self.deps = deps
        self.workspace = workspace
        self.on_call = on_call
        """The caller's hooks, for every run of the tree."""
        self.on_result = on_result
        self.runs: dict[str, Node] = {}
        """Runs that have not ended."""
        self.known: set[str] = set()
        """Ids of all runs, ended ones included."""
        self.spent: list[Usage] = []
        """The usage of every model call so far."""
        self.overran: set[str] = set()
        """Resources for which a model call used more than was reserved."""
        self.past = Tree() if past is None else past
        self.waiting: dict[str, list[Sent]] = {}
        """Recorded runs that are still to be resumed, with the messages sent to each meanwhile."""
        self.doomed: dict[str, tuple[str, str, str]] = {}
        """Recorded runs to cancel as soon as they are resumed, with the arguments for `Life.cancel`."""
        if past is not None:
            self._restore(past)

    def _restore(self, past: Tree) -> None:
        self.known.update(past.runs)
        self.waiting = {record.id: [] for record in going_on(past)}
        for record in past.runs.values():
            self.overran.update(record.overran)
            self.spent.extend(record.usage)

    def lane_of(self, model: Known) -> Lane:
        """The lane in which requests to a model are counted."""
        lane = self.lanes.get(model.lane)
        if lane is None:
            lane = self.lanes[model.lane] = Lane(self.loop, model.in_flight)
        return lane

    def stamp(self, where: Where) -> tuple[int, float, Where, int]:
        """The first four fields of a new event: its number, the time, whose event it is, and the version."""
        self._seq += 1
        return self._seq, self._epoch + self.clock(), where, VERSION

    def emit(self, event: Event) -> None:
        """Record an event, unless it is for live readers only; then hand it to the readers."""
        journal = self.journal
        # If no other process can read the journal, events are only in the stream.
        if journal.shared and not event.live_only:
            journal.record(event)
            self.check_claim()
        self.stream.publish(event)
        if self.tracing is not None:
            self.tracing.see(event)

    def check_claim(self) -> None:
        """Stop the tree if another process has taken it over."""
        if not self.journal.taken_over:
            return
        root = self.runs.get(self.root)
        if root is not None:
            root.life.lose_tree(self.journal.trouble)

    def close(self) -> None:
        """Release the timer, after the tree has stopped."""
        self.alarm.close()
