"""What a run carries: its place in the tree, its account, deadline, slots, policy, and how it is stopped.

`TreeContext` is what all runs of a tree share; `Scope` is one run's own. Both are live objects of the
engine; what happened to a run is in its events.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from itertools import count, repeat, starmap
from typing import TYPE_CHECKING, Literal, final

from msgspec import Struct

import remit.engine.budget.ledger as ledger
from remit.engine.budget.account import Overrun, Want
from remit.engine.budget.ledger import Account, Reservation
from remit.engine.budget.model_choice import Known
from remit.engine.budget.rate_limit import Lane
from remit.engine.budget.slots import Pool, Seat
from remit.engine.tree.approvals import Approver, Desk
from remit.engine.tree.journal import Journal
from remit.engine.tree.stream import BLOCK, Stream
from remit.history.records import RunRecord, Tree, elapsed
from remit.tasks.cancel import Phase, Stopped, stop_together, wake
from remit.tasks.deadline import Alarm, Deadline
from remit.tools.policy import PolicyFunction
from remit.tools.source import Sources
from remit.types.events import VERSION, CancelRequested, Event, LimitMet, Overran, Warned
from remit.types.limits import Limits, Usage, to_micros
from remit.types.messages import UserMessage
from remit.types.sandbox import OPEN, Sandbox
from remit.types.text import clean

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger("remit")

GRACE_S = 5.0

current_run: ContextVar[str] = ContextVar("current_run", default="")
"""The run whose code is executing, in tools too: so that cancelling oneself does not wait for oneself."""


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
    """A soft limit that was met: the run is asked once for what it has."""

    kind: Literal["turns", "deadline", "budget", "repeating"]
    detail: str


class Sent(Struct, frozen=True):
    """A message for a run's next turn, and the command from another process that it came by, if it did."""

    message: UserMessage
    command: str = ""
    origin: Literal["sent", "runtime"] = "sent"


class TreeContext:
    """What the runs of one tree share. `past` is what its journal has, for a tree that goes on."""

    opened: Sources | None = None
    """`sources`, if any run has any."""
    _desk: Desk | None = None
    overran: frozenset[str] = frozenset()
    """What any model call has used more of than was reserved for it."""

    def __init__(
        self,
        root: str,
        *,
        journal: Journal,
        approver: Approver | None = None,
        deps: object = None,
        workspace: Path | None = None,
        past: Tree | None = None,
    ) -> None:
        self.root = root
        self.loop = loop = asyncio.get_running_loop()
        self.alarm = alarm = Alarm(loop)
        self.clock = clock = alarm.clock
        self.journal = journal
        self.stream = stream = Stream()
        self.lanes: dict[str, Lane] = {}
        """By their names."""
        self.deps = deps
        self.workspace = workspace
        self.runs: dict[str, Scope] = {}
        """Runs that have not ended."""
        self.known: set[str] = set()
        """Ids of all runs there have been."""
        self.spent: list[Usage] = []
        """What every model call of the tree has used so far."""
        self.going_on = _NO_RUNS
        """Runs that the journal has and that are still to be taken up."""
        self.mail = _NO_MAIL
        """What was sent to those."""
        self._approver = approver
        self.trim_at = BLOCK
        """The number after which it is looked whether too many events are kept."""
        first = 1 if past is None else past.seq + 1
        if past is not None:
            self._take_up(past)
        elif journal.shared:
            past = Tree()
        self.past = _NO_PAST if past is None else past
        self.stamp = _stamps(first, getattr(loop, "wall", None), clock)
        """Gives the number of the next event, and when it happens."""
        self.show: Callable[[Event], None] = stream.keep
        """Where an event goes that only those who look on are to see."""
        # What nobody else can ever read need not be kept twice: the stream has it too.
        self.publish: Callable[[Event], None] = self._store if journal.shared else stream.keep
        """The one way an event that is kept goes out: to the store, then to whoever looks."""

    def _take_up(self, past: Tree) -> None:
        from remit.history.fold import going_on  # noqa: PLC0415 - for trees that go on

        self.known.update(past.runs)
        self.overran = frozenset(what for record in past.runs.values() for what in record.overran)
        for record in past.runs.values():
            self.spent.extend(record.usage)
        self.going_on = {r.id for r in going_on(past)}
        self.mail = {}
        self._desk = Desk(self._approver, past)

    @property
    def desk(self) -> Desk:
        """Who asks for approval, from whichever run."""
        if self._desk is None:
            self._desk = Desk(self._approver)
        return self._desk

    @property
    def sources(self) -> Sources:
        """What the tree's tools have opened."""
        if self.opened is None:
            self.opened = Sources(self.alarm, self.workspace)
        return self.opened

    def lane_of(self, model: Known) -> Lane:
        """Where a model's requests count."""
        lane = self.lanes.get(model.lane)
        if lane is None:
            lane = self.lanes[model.lane] = Lane(self.loop, model.in_flight)
        return lane

    def trim(self, seq: int) -> None:
        """Keep no more events than a reader may see."""
        self.trim_at = seq + BLOCK
        self.stream.cut()

    def _store(self, event: Event, /) -> None:
        # Taken out first, here and wherever what is called is no method: as one it is looked for in the class.
        take, show = self.journal.take, self.show
        try:
            take(event)
        except Exception as error:  # noqa: BLE001 - a broken store never breaks a run
            self.journal.refused(error)
            if self.journal.taken_over:
                self._leave()
        show(event)

    def watched(self) -> Stream:
        """The stream, for somebody who reads it from now on: every event is handed out then."""
        stream = self.stream
        self.show = stream.publish
        if not self.journal.shared:
            self.publish = stream.publish
        return stream

    def close(self) -> None:
        """Nothing happens in it any more."""
        self.alarm.close()
        # It is let go of at once, as it would not be while it leads to itself.
        self.publish = self.show

    def _leave(self) -> None:
        """Another process runs this tree now; two must not."""
        root = self.runs.get(self.root)
        if root is not None and root.cause is None:
            root.stop(Cause("cancel", "the journal", self.journal.trouble))


def _stamps(
    first: int, wall: Callable[[], float] | None, clock: Callable[[], float]
) -> Callable[[], tuple[int, float]]:
    """Numbers from the first, each with the time at which it is asked for.

    Put together from what Python has in C: it is asked for with every event.
    """
    if wall is None:
        # By the loop's clock, which never jumps: times in one journal can be subtracted.
        times = map((time.time() - clock()).__add__, starmap(clock, repeat(())))
    else:
        times = starmap(wall, repeat(()))
    return zip(count(first), times).__next__


_NO_PAST = Tree()
_NO_RUNS: set[str] = set()
_NO_MAIL: dict[str, list[Sent]] = {}
"""Of trees that nobody else can reach or that are new; never written to."""

_NOBODY: dict[str, Scope] = {}
"""The children of those who have none yet; never written to."""


_NO_GRANTS: frozenset[object] = frozenset()


class Scope:
    """One live run."""

    __slots__ = (
        "_waiting",
        "account",
        "agent",
        "cause",
        "children",
        "deadline",
        "depth",
        "depth_left",
        "grants",
        "hears",
        "inbox",
        "limit",
        "limits",
        "over",
        "parent",
        "parent_id",
        "path",
        "phase",
        "policies",
        "run_id",
        "sandbox",
        "seat",
        "spawned",
        "stacked",
        "task",
        "tokens",
        "tree",
        "unruled",
        "usage",
        "warnings",
    )

    def __init__(  # noqa: PLR0915, PLR0917 - one line for each attribute; by name they take longer to hand over
        self,
        tree: TreeContext,
        parent: Scope | None,
        run_id: str,
        agent: str,
        limits: Limits,
        depth_left: int | None,
        policies: tuple[PolicyFunction | None, ...],
        pools: tuple[Pool, ...],
        task: str,
        sandbox: Sandbox = OPEN,
        record: RunRecord | None = None,
        shares_task: bool = False,
    ) -> None:
        self.tree = tree
        self.parent = parent
        self.run_id = run_id
        self.agent = agent
        self.policies = policies
        self.stacked = 0
        """How many runs above it are in the same task, waiting for this one."""
        if parent is None:
            self.parent_id, self.depth = None, 0
            self.path: tuple[str, ...] = (agent,)
            self.unruled = policies.count(None) == len(policies)
            """Whether no policy has a say, so that the tools' tiers decide."""
            self.account = Account(agent, limits)
        else:
            self.parent_id, self.depth = parent.run_id, parent.depth + 1
            self.path = parent.path + (agent,)  # noqa: RUF005 - by way of a list it takes twice as long
            self.unruled = parent.unruled and (policies is parent.policies or policies[-1] is None)
            self.account = Account(agent, limits, parent.account)
            if shares_task:
                self.stacked = parent.stacked + 1
        self.limits = limits
        """Its own. At the root every field is a number or None; below it, what is shared is not set where it has none."""
        self.depth_left = depth_left
        """Levels it may still delegate to; None is unlimited."""
        self.task = task
        self.sandbox = sandbox
        self.seat = Seat(pools)
        self.children: dict[str, Scope] = _NOBODY
        self.spawned = 0
        self.cause: Cause | None = None
        self.limit: Limit | None = None
        self.usage: list[Usage] = []
        self.tokens = 0
        self.inbox: tuple[Sent, ...] = ()
        self.hears = True
        """Whether what is sent can still join a turn."""
        self.over = False
        """Whether its turns are done; what is left is to write the end down."""
        # Tuples where most runs have none: with a thousand of them alive, what has to be looked through counts.
        self.warnings: Sequence[str] = ()
        self.grants: frozenset[object] = _NO_GRANTS
        self._waiting: tuple[asyncio.Future[None], ...] = ()
        """Who waits for its end."""
        self.phase = Phase(tree.alarm, self)
        self.deadline = Deadline(
            tree.alarm,
            limits.seconds if isinstance(limits.seconds, (int, float)) else None,
            parent.deadline if parent else None,
            self,
            elapsed(record, tree.past.at) if record else 0.0,
        )

    def adopt(self, child: Scope) -> None:
        """From now on it is stopped with this one."""
        if self.children is _NOBODY:
            self.children = {}
        self.children[child.run_id] = child

    def emit(self, kind: Callable[..., Event], **fields: object) -> Event:
        """Tell of something that does not happen every turn: what does is written out where it does.

        Fields that are handed on in a dictionary cost five times as much.
        """
        tree = self.tree
        seq, at = tree.stamp()
        if seq > tree.trim_at:
            # One call of a tool may say any number of things.
            tree.trim(seq)
        event = kind(
            seq=seq,
            at=at,
            run=self.run_id,
            parent=self.parent_id,
            root=tree.root,
            depth=self.depth,
            path=self.path,
            agent=self.agent,
            v=VERSION,
            **fields,
        )
        (tree.show if event.live_only else tree.publish)(event)
        return event

    def warn(self, text: str, *, above: bool = False, until_resumed: bool = False) -> None:
        self.warnings = (*self.warnings, text)
        self.emit(Warned, text=text, above=above, until_resumed=until_resumed)

    def left_behind(self, name: str) -> None:
        """Foreign code of this run ignored its cancellation and was abandoned; the root's outcome says so too."""
        self.warn_root_too(f"{name} could not be stopped and was left behind; its result is dropped.")

    def warn_root_too(self, text: str) -> None:
        """For what the caller should know, wherever it happened."""
        *_, root = self.lineage()
        self.warn(text, above=root is not self)
        if root is not self:
            root.warnings = (*root.warnings, f"{' > '.join(self.path)}: {text}")

    def spend(self, usage: Usage, reservation: Reservation, word: Want | None) -> None:
        """Record what one model call used, here and in the accounts above; `word` as for `ledger.settle`."""
        tokens, usd = usage.input_tokens + usage.output_tokens, usage.usd
        self.usage.append(usage)
        self.tokens += tokens
        self.tree.spent.append(usage)
        overruns = ledger.settle(reservation, tokens, to_micros(usd) if usd else 0, word)
        if overruns:
            for one in overruns:
                self.emit(Overran, resource=one.resource, reserved=one.reserved, used=one.used)
                self._warn_of(one)

    def _warn_of(self, overrun: Overrun) -> None:
        """Once a tree for each resource: whoever wonders why it stops so far below its limit finds it in the outcome."""
        if overrun.resource not in self.tree.overran:
            self.tree.overran |= {overrun.resource}
            self.warn_root_too(overrun.words)

    def look_at_clock(self) -> None:
        """Raises Stopped when it is to stop, also where a blocked event loop kept the timer from saying so."""
        deadline, clock = self.deadline, self.tree.clock
        if deadline.at <= clock():
            deadline.look()
        if self.phase.stopped:
            raise Stopped

    def lineage(self) -> Iterator[Scope]:
        """This run and its ancestors, upwards."""
        scope: Scope | None = self
        while scope:
            yield scope
            scope = scope.parent

    def subtree(self) -> Iterator[Scope]:
        """This run and its live descendants."""
        found: list[Scope] = [self]
        # Not by recursion: a tree may be deeper than Python's stack.
        while found:
            scope = found.pop()
            yield scope
            found.extend(scope.children.values())

    def cancel(self, by: str, reason: str, command: str = "") -> bool:
        """Stop this run and everything below it; False when that has happened already."""
        if self.cause or self.over:
            return False
        reason = clean(reason)
        self.emit(CancelRequested, by=by, reason=reason, command=command)
        self.stop(Cause("cancel", by, reason))
        return True

    def meet(self, limit: Limit) -> None:
        """A soft limit was met; the first one stands."""
        if self.limit is None:
            self.limit = limit
            self.emit(LimitMet, limit=limit.kind, detail=limit.detail)

    def new_phase(self) -> None:
        """Go on after a soft stop. Raises nothing: a hard stop that has come is seen at the next wait."""
        self.phase = Phase(self.tree.alarm, self)
        if self.cause:
            self.phase.stop()

    def close(self) -> None:
        """The run has ended. What others wait for is given back last, so that nothing of it is left out."""
        self.over = True
        self.hears = False
        self.deadline.close()
        self.phase.owner = None
        self.tree.runs.pop(self.run_id, None)
        parent = self.parent
        if parent is not None:
            parent.children.pop(self.run_id, None)
        for waiter in self._waiting:
            wake(waiter)
        if self.account.has_word:
            ledger.release(self.account)
        self.seat.close()

    def stop(self, cause: Cause) -> None:
        """Stop this run and everything below it for good."""
        stop_together(self.condemn(cause))

    def condemn(self, cause: Cause) -> list[Phase]:
        """Write the cause on this run and everything below it, before any of them wakes up; the phases to be stopped."""
        runs = list(self.subtree())
        below = Cause("parent", f"stopped with {self.agent}", cause.words)
        for scope in runs:
            scope.cause = scope.cause or (cause if scope is self else below)
            scope.phase.grace_s = GRACE_S
        return [scope.phase for scope in runs]

    def soft_end(self) -> None:
        if self.cause or self.limit:
            return
        self.meet(Limit("deadline", f"the time limit of {self.deadline.total_s:.4g} s is reached"))
        cause = Cause("parent", f"stopped because {self.agent} ran out of time", "")
        phases = [phase for child in self.children.values() for phase in child.condemn(cause)]
        self.phase.grace_s = min(GRACE_S, self.deadline.kept_s / 2)
        stop_together([*phases, self.phase])

    def hard_end(self) -> None:
        if self.cause is None:
            self.stop(Cause("deadline", f"the time limit of {self.deadline.total_s:.4g} s is reached", ""))

    async def wait(self) -> None:
        """Until it has ended."""
        if self.run_id in self.tree.runs:
            waiter: asyncio.Future[None] = self.tree.loop.create_future()
            self._waiting = (*self._waiting, waiter)
            await waiter

    def cancelled_outside(self) -> None:
        scope = self
        # Whose task it is: those below it are only guests in it.
        while scope.stacked and scope.parent is not None:
            scope = scope.parent
        scope.cancel("the event loop", "the task that ran it was cancelled")
