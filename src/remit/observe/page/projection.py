"""From events to rows: one projection for live and for ended trees. See decision 0050.

It feeds the fold and keeps beside it what rows need and the fold does not have: sums per branch, changed with each
event, and for each run the number of the event that changed its row last.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import UNSET, Struct, field

import remit.observe.words as words
import remit.types.events as events
from remit.history.fold import apply
from remit.history.records import RunRecord, Tree
from remit.observe.activity import Live, note
from remit.observe.page.bars import Bar, Kind, Span
from remit.observe.page.entries import Conversation
from remit.observe.page.rows import RUNNING, Amount, Question, Row
from remit.observe.run_words import Action, action_of, how_it_ended
from remit.types.events import Event
from remit.types.limits import Limits, Usage, to_micros
from remit.types.outcome import Status

TASK_CHARS = 160
DOING_CHARS = 200


class Tally(Struct):
    """Usage, added up."""

    requests: int = 0
    tokens: int = 0
    input: int = 0
    cached: int = 0
    micros: int = 0
    priced: bool = False
    unpriced: bool = False
    estimated: bool = False

    def add(self, usage: Usage) -> None:
        self.requests += usage.requests
        self.tokens += usage.tokens
        self.input += usage.input_tokens
        self.cached += usage.cache_read_tokens
        self.estimated = self.estimated or usage.estimated
        if usage.usd is not None:
            self.micros += to_micros(usage.usd)
            self.priced = True
        elif usage.tokens:
            self.unpriced = True

    def amount(self) -> Amount:
        known = self.priced and not self.unpriced
        return Amount(
            requests=self.requests,
            tokens=self.tokens,
            cached=self.cached,
            input=self.input,
            usd=self.micros / 1_000_000 if known else None,
            estimated=self.estimated,
        )


class Branch(Struct):
    """What is kept of a run beside its record."""

    own: Tally = field(default_factory=Tally)
    sum: Tally = field(default_factory=Tally)
    runs: int = 0
    calls: int = 0
    held: int = 0
    """Tokens reserved, everything below included."""
    reserved: int = 0
    """The part of `held` that is the run's own."""
    errors: int = 0
    live: Live = field(default_factory=Live)
    bar: Bar = field(default_factory=Bar)
    talk: Conversation = field(default_factory=Conversation)
    asks: dict[str, events.ApprovalRequested] = field(default_factory=dict[str, events.ApprovalRequested])
    open_children: int = 0
    waiting: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """Children that wait for a place, by call and key, and since when."""
    queued: float | None = None
    ended_at: float | None = None
    turns: int | None = None
    """The limit that holds for it, its own or its parent's."""


class Projection:
    """A tree as the page shows it."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.branches: dict[str, Branch] = {}
        self.events: list[Event] = []
        self.live = True
        """Whether a process runs the tree. If not, runs without an end are `interrupted`."""
        self._changed: dict[str, int] = {}
        """Runs by the event that changed them last, in that order."""

    @property
    def seq(self) -> int:
        return self.tree.seq

    def feed(self, event: Event) -> None:
        """Take in what happened."""
        if event.live_only:
            return
        self.events.append(event)
        if isinstance(event, events.RunResumed) and event.run == self.tree.root:
            self._all_stopped()
        known = event.run in self.tree.runs
        apply(self.tree, event)
        record = self.tree.runs.get(event.run)
        if record is None:
            return
        if not known:
            assert isinstance(event, events.RunStarted)
            self._start(record, event)
        branch = self.branches[event.run]
        self._count(record, branch, event)
        note(branch.live, event)
        branch.talk.feed(record, event)
        self._mark_bars(record, event)
        for run in self._lineage(event.run):
            self._changed.pop(run, None)
            self._changed[run] = event.seq

    # --- Rows -------------------------------------------------------------------------------------

    def rows(self, after: int = 0, *, open_too: bool = False) -> list[Row]:
        """The rows that changed after an event, in the order in which the runs were started.

        With `open_too`, those of runs without an end as well: they change when the process dies, without an event.
        """
        runs = self.tree.runs
        found: set[str] = set()
        for run in reversed(self._changed):
            if self._changed[run] <= after:
                break
            found.add(run)
        if open_too:
            found |= {record.id for record in runs.values() if record.outcome is None}
        if len(found) * 4 > len(runs):
            return [self.row(run) for run in runs if run in found]
        return [self.row(run) for run in sorted(found, key=lambda one: runs[one].start.seq)]

    def row(self, run: str) -> Row:
        record, branch = self.tree.runs[run], self.branches[run]
        status, action = self.status(record), self.action(record)
        clock = record.clock
        return Row(
            id=run,
            parent=record.parent,
            agent=record.agent,
            label=words.line(record.label, TASK_CHARS),
            task=words.line(record.task.text, TASK_CHARS),
            model=record.model_used,
            status=status,
            state=""
            if status != RUNNING
            else "asks"
            if action.asks
            else "waits"
            if action.waits
            else "works",
            doing=words.cut(self._doing(record, action), DOING_CHARS),
            turn=record.talk.turns + (record.asking is not None and record.asking.purpose == "turn"),
            turns=branch.turns,
            own=branch.own.amount(),
            sum=branch.sum.amount(),
            held=branch.held,
            calls=branch.calls,
            start=record.started_at,
            queued=branch.queued,
            end=branch.ended_at if status != Status.INTERRUPTED else branch.ended_at or self.tree.at,
            worked_s=round(clock.worked_s if clock.since is None or self.live else self._worked(record), 3),
            since=clock.since if self.live else None,
            asks=tuple(branch.asks) if status == RUNNING else (),
            children=len(record.children),
            runs=branch.runs,
            errors=branch.errors,
            warnings=len(record.warnings),
            entries=len(branch.talk.entries),
            artifacts=len(record.artifacts),
            program=record.start.program,
            key=words.line(record.start.key, TASK_CHARS),
            limits=_set_limits(record.limits),
            changed=self._changed.get(run, 0),
        )

    def status(self, record: RunRecord) -> str:
        """`running`, or how it ended."""
        if record.outcome is not None:
            return str(record.outcome.status)
        if self.live:
            return RUNNING
        cancelled = record.cancelled is not None and record.parent is not None
        return str(Status.CANCELLED if cancelled else Status.INTERRUPTED)

    def action(self, record: RunRecord) -> Action:
        if record.outcome is not None or not self.live:
            return Action("")
        branch = self.branches[record.id]
        return action_of(
            self.tree, record, list(branch.live.calls.values()), branch.live.said, len(branch.waiting)
        )

    def questions(self) -> tuple[Question, ...]:
        """What waits for a person, the oldest first."""
        if not self.live:
            return ()
        return tuple(
            Question(
                request=asked.request,
                run=asked.run,
                path=tuple(words.line(name, TASK_CHARS) for name in asked.path),
                tool=words.line(asked.tool, TASK_CHARS),
                what=words.cut(words.doing(asked.tool, asked.context), DOING_CHARS),
                at=asked.at,
            )
            for asked in self.tree.requests.values()
        )

    def span(self, run: str, now: float) -> Span:
        """A run from its start to its end, or to now."""
        record, branch = self.tree.runs[run], self.branches[run]
        end = branch.ended_at or (now if self.live else self.tree.at)
        return Span(record.started_at, max(end, record.started_at))

    def _doing(self, record: RunRecord, action: Action) -> str:
        if record.outcome is None:
            return action.words
        return "" if record.outcome.ok else how_it_ended(record.outcome)

    def _worked(self, record: RunRecord) -> float:
        assert record.clock.since is not None
        return record.clock.worked_s + max(0.0, self.tree.at - record.clock.since)

    # --- Events -----------------------------------------------------------------------------------

    def _start(self, record: RunRecord, event: events.RunStarted) -> None:
        branch = self.branches[event.run] = Branch()
        for run in self._lineage(event.run):
            self.branches[run].runs += 1
        above = self.branches.get(event.parent) if event.parent else None
        branch.turns = _turns(record.limits, above)
        if above is None:
            return
        above.open_children += 1
        if not event.key and event.parent:
            # A model's delegation is a call too; a child that code asked for is not.
            for run in self._lineage(event.parent):
                self.branches[run].calls += 1
        branch.queued = above.waiting.pop((event.call, event.key), None)
        above.live.queued.discard(event.call)
        above.talk.started_child(event)

    def _count(self, record: RunRecord, branch: Branch, event: Event) -> None:
        if isinstance(event, (events.ReplyReceived, events.ModelCallFailed)):
            self._hold(branch, event.run, 0)
            branch.errors += isinstance(event, events.ModelCallFailed) and event.error_kind != "stopped"
            if not (isinstance(event, events.ReplyReceived) and event.again):
                branch.own.add(event.usage)
                for run in self._lineage(event.run):
                    self.branches[run].sum.add(event.usage)
        elif isinstance(event, events.TurnStarted):
            self._hold(branch, event.run, event.reserved)
        elif isinstance(event, events.CallStarted):
            if event.tier != "step" and not event.delegates:
                for run in self._lineage(event.run):
                    self.branches[run].calls += 1
        elif isinstance(event, (events.RunEnded, events.RunResumed)):
            self._turn_over(record, branch, event)
        else:
            self._count_waits(branch, event)

    def _count_waits(self, branch: Branch, event: Event) -> None:
        if isinstance(event, events.CallEnded):
            branch.errors += not event.success
            branch.waiting = {key: at for key, at in branch.waiting.items() if key[0] != event.call}
        elif isinstance(event, events.ChildQueued):
            branch.waiting[event.call, event.key] = event.at
        elif isinstance(event, events.DelegationRejected):
            branch.waiting = {key: at for key, at in branch.waiting.items() if key[0] != event.call}
        elif isinstance(event, events.ApprovalRequested):
            branch.asks[event.request] = event
        elif isinstance(event, events.ApprovalAnswered):
            branch.asks.pop(event.request, None)

    def _turn_over(
        self, record: RunRecord, branch: Branch, event: events.RunEnded | events.RunResumed
    ) -> None:
        above = self.branches.get(record.parent) if record.parent else None
        if isinstance(event, events.RunEnded):
            self._hold(branch, event.run, 0)
            branch.asks.clear()
            branch.waiting.clear()
            branch.live = Live()
            if above is not None and branch.ended_at is None:
                above.open_children -= 1
            branch.ended_at = event.at
        else:
            branch.turns = _turns(record.limits, above)
            if above is not None and branch.ended_at is not None:
                above.open_children += 1
            branch.ended_at = None
        if above is not None:
            above.talk.touch(record.call, event.seq)

    def _hold(self, branch: Branch, run: str, tokens: int) -> None:
        """Its model call in flight has reserved so much."""
        change, branch.reserved = tokens - branch.reserved, tokens
        if change:
            for one in self._lineage(run):
                self.branches[one].held += change

    def _all_stopped(self) -> None:
        """The process ended with its last event, as far as anybody knows."""
        for run, branch in self.branches.items():
            if branch.ended_at is None:
                branch.bar.mark(self.tree.at, "none")
                branch.live = Live()
                branch.waiting.clear()
                branch.asks.clear()
                self._hold(branch, run, 0)

    def _mark_bars(self, record: RunRecord, event: Event) -> None:
        self.branches[event.run].bar.mark(event.at, self._kind(record))
        if record.parent and isinstance(event, (events.RunStarted, events.RunEnded, events.RunResumed)):
            above = self.tree.runs[record.parent]
            self.branches[above.id].bar.mark(event.at, self._kind(above))

    def _kind(self, record: RunRecord) -> Kind:
        branch = self.branches[record.id]
        if record.outcome is not None:
            return "none"
        if branch.asks:
            return "person"
        if record.asking is not None:
            return "model"
        if branch.live.calls:
            return "tools"
        if branch.open_children:
            return "children"
        return "tools" if record.start.program and not branch.waiting else "queue"

    def _lineage(self, run: str) -> Iterator[str]:
        above: str | None = run
        while above:
            yield above
            above = self.tree.runs[above].parent


def _turns(limits: Limits, above: Branch | None) -> int | None:
    if limits.turns is UNSET:
        return above.turns if above is not None else None
    return limits.turns if isinstance(limits.turns, int) else None


_LIMITS = ("depth", "delegations", "requests", "tokens", "usd", "calls", "seconds", "concurrency", "turns")


def _set_limits(limits: Limits) -> dict[str, float | None]:
    found = {name: getattr(limits, name) for name in _LIMITS}
    return {name: value for name, value in found.items() if value is not UNSET}
