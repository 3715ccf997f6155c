"""Whether a run is alive: its deadline, its phase, and why it was stopped. All code that stops runs is here.

The lives of a tree's runs form the same tree as the runs: a stop writes its cause on a life and on every life below it,
and only then wakes any of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal, final

from msgspec import Struct

from remit.engine.tree.context import TreeContext
from remit.tasks.cancel import Phase, stop_together, wake
from remit.tasks.deadline import Deadline
from remit.types.events import CancelRequested, LimitMet, Where
from remit.types.text import clean, seconds

GRACE_S = 5.0


class Cause(Struct, frozen=True):
    """Why a run was stopped for good. The first cause stands."""

    kind: Literal["cancel", "deadline", "parent"]
    by: str
    reason: str

    @property
    def words(self) -> str:
        lead = f"cancelled by {self.by}" if self.kind == "cancel" else self.by
        return f"{lead}: {self.reason}" if self.reason else lead


@final
class Limit(Struct, frozen=True):
    """A soft limit that a run reached: the run is asked once for what it has."""

    kind: Literal["turns", "deadline", "budget", "repeating"]
    detail: str


@final
class Life:
    """The life of one run. It owns the run's deadline and phase."""

    __slots__ = (
        "_waiters",
        "cause",
        "children",
        "deadline",
        "ended",
        "limit",
        "parent",
        "phase",
        "program",
        "stacked",
        "tree",
        "where",
    )

    def __init__(
        self,
        tree: TreeContext,
        where: Where,
        parent: Life | None,
        *,
        seconds: float | None,
        elapsed_s: float,
        shares_task: bool,
        program: bool,
    ) -> None:
        self.tree = tree
        self.where = where
        self.program = program
        """Whether it is a program: at its soft deadline it wraps up by itself, and only its hard deadline stops it."""
        self.parent = parent
        self.children: dict[str, Life] = {}
        self.stacked = parent.stacked + 1 if parent is not None and shares_task else 0
        """How many runs above it are in the same task, waiting for this one."""
        self.cause: Cause | None = None
        self.limit: Limit | None = None
        self.ended = False
        """Whether its turns are done; only its end is still to be recorded."""
        self._waiters: list[asyncio.Future[None]] | None = []
        """Futures of callers that wait for its end; None once it has been recorded."""
        self.phase = Phase(tree.alarm, self)
        above = None if parent is None else parent.deadline
        self.deadline = Deadline(tree.alarm, seconds, above, self, elapsed_s)
        if parent is not None:
            parent.children[where.run] = self

    def check_clock(self) -> None:
        """Raises Stopped if the run must stop, even if a blocked event loop delayed the timer."""
        self.deadline.look()
        self.phase.check()

    def cancel(self, by: str, reason: str, command: str = "") -> bool:
        """Stop this run and everything below it; False if it was stopped or has ended already."""
        if self.cause or self.ended:
            return False
        reason = clean(reason)
        stamp = self.tree.stamp(self.where)
        self.tree.emit(CancelRequested(*stamp, by=by, reason=reason, command=command))
        self._stop(Cause("cancel", by, reason))
        return True

    def cancelled_outside(self) -> None:
        """Asyncio cancelled the task that runs this run: cancel the run that owns the task."""
        life = self
        while life.stacked and life.parent is not None:
            life = life.parent
        life.cancel("the event loop", "the task that ran it was cancelled")

    def lose_tree(self, trouble: str) -> None:
        """Stop because another process has taken the tree. Nothing can be recorded any more."""
        if self.cause is None:
            self._stop(Cause("cancel", "the journal", trouble))

    def meet(self, limit: Limit) -> None:
        """Record a soft limit that was reached; the first one stands."""
        if self.limit is None:
            self.limit = limit
            stamp = self.tree.stamp(self.where)
            self.tree.emit(LimitMet(*stamp, limit=limit.kind, detail=limit.detail))

    def soft_end(self) -> None:
        """The deadline's soft end: stop the children and what is in flight, so that the run can wrap up."""
        if self.cause or self.limit or self.program:
            return
        self.meet(Limit("deadline", self._time_words()))
        cause = Cause("parent", f"stopped because {self.where.agent} ran out of time", "")
        phases = [phase for child in self.children.values() for phase in child.condemn(cause)]
        self.phase.grace_s = min(GRACE_S, self.deadline.kept_s / 2)
        stop_together([*phases, self.phase])

    def hard_end(self) -> None:
        """The deadline's hard end: stop at once."""
        if self.cause is None:
            self._stop(Cause("deadline", self._time_words(), ""))

    def _time_words(self) -> str:
        return f"the time limit of {seconds(self.deadline.total_s)} is reached"

    def _stop(self, cause: Cause) -> None:
        stop_together(self.condemn(cause))

    def condemn(self, cause: Cause) -> list[Phase]:
        """Write the cause on this life and every life below, before any wakes up; returns the phases to stop."""
        lives = list(self._subtree())
        below = Cause("parent", f"stopped with {self.where.agent}", cause.words)
        for life in lives:
            life.cause = life.cause or (cause if life is self else below)
            life.phase.grace_s = GRACE_S
        return [life.phase for life in lives]

    def _subtree(self) -> Iterator[Life]:
        """This life and every life below it. Not by recursion: a tree may be deeper than Python's stack."""
        found: list[Life] = [self]
        while found:
            life = found.pop()
            yield life
            found.extend(life.children.values())

    def new_phase(self) -> None:
        """Continue after a soft stop. A hard stop that has come is seen at the next wait."""
        self.phase = Phase(self.tree.alarm, self)
        if self.cause:
            self.phase.stop()

    async def wait(self) -> None:
        """Wait until the run's end is recorded."""
        if self._waiters is not None:
            waiter: asyncio.Future[None] = self.tree.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    def close(self) -> None:
        """The run's end is recorded: leave the tree of lives and wake the callers that wait."""
        self.ended = True
        self.deadline.close()
        self.phase.owner = None
        if self.parent is not None:
            self.parent.children.pop(self.where.run, None)
        waiters, self._waiters = self._waiters or [], None
        for waiter in waiters:
            wake(waiter)
