"""What is known of a tree from its events: `tree.fold` makes these. Plain data; nothing in it is live."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct, field

from remit.types.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallEnded,
    CancelRequested,
    RunStarted,
    TurnStarted,
)
from remit.types.limits import Limits, Usage, to_micros, total
from remit.types.messages import Call, Message, Reply, ToolMessage, UserMessage
from remit.types.outcome import Artifact, Outcome, Status, ToolCallLog

REOPENED = frozenset(
    {
        Status.CANCELLED,
        Status.INTERRUPTED,
        Status.OVER_BUDGET,
        Status.TIMED_OUT,
        Status.STALLED,
        Status.INCOMPLETE,
    }
)
"""Statuses of runs that can go on. `completed`, `failed` and `refused` stay as they are."""


class CallRecord(Struct, omit_defaults=True):
    """One call that a model asked for, and what has become of it."""

    call: Call
    turn: int
    started: bool = False
    tier: str = ""
    delegates: bool = False
    request: str = ""
    """The approval it was asked about."""
    answer: ApprovalAnswered | None = None
    child: str = ""
    """The run it started."""
    code: list[str] = []
    """The runs that its tool's code started."""
    ended: CallEnded | None = None
    goes_on: bool = False
    """Set when the run is resumed: whether the child it started does too."""

    @property
    def is_step(self) -> bool:
        """Whether it is a recorded step of a program, not a call of a model."""
        return self.tier == "step"

    @property
    def message(self) -> ToolMessage | None:
        """Its result as the model reads it."""
        end = self.ended
        return end and ToolMessage(
            self.call.id, self.call.name, end.content, end.success, end.note, end.parts
        )

    @property
    def log(self) -> ToolCallLog | None:
        end = self.ended
        return end and ToolCallLog(
            end.tool, end.display_name, end.context, end.summary, end.success, end.duration_ms
        )


class TalkRecord(Struct, omit_defaults=True):
    """What a run and its model said."""

    messages: list[Message] = []
    """The conversation. The results of a turn join it together, once the last of them is there."""
    task_at: int = 0
    """The place of the task in it."""
    text: str = ""
    """The last non-empty text that the model wrote."""
    model: str = ""
    """The model that gave the last reply."""
    turns: int = 0
    replies: int = 0
    """Turns, and besides them wrap-ups and summaries."""
    reply: Reply | None = None
    """The last reply, until the run has acted on all of it."""
    asides: dict[str, Reply] = {}
    """The wrap-up or summary since the last ordinary turn."""
    aside_at: int | None = None
    """Where in the conversation an aside begins."""
    unjoined: list[UserMessage] = []
    """Messages that were sent and have not joined yet, or have to join again after a turn that is resumed."""
    measured: int = 0
    """Tokens of the conversation up to `measured_at`, as the provider counted them."""
    measured_at: int = 0


class TurnRecord(Struct, omit_defaults=True):
    """The calls of the last reply that had any."""

    at: int = 0
    """Where in `RunRecord.calls` they begin."""
    places: dict[str, int] = {}
    """Their places in `RunRecord.calls`, by their ids."""
    open: int = 0
    """How many of them have no result."""


class ClockRecord(Struct, omit_defaults=True):
    """A run's own clock: it stands while a person is asked and while no process runs the tree."""

    worked_s: float = 0.0
    """Seconds up to `since`."""
    since: float | None = None
    """When it last began to run; None while it stands."""
    waits: int = 0
    """Approvals that the run or a run below it waits for."""


class RunRecord(Struct, omit_defaults=True):
    """One run, as far as its events tell."""

    start: RunStarted
    """Its first event: where it is, its task, its instructions and tools."""
    limits: Limits
    model: str
    """The model that is asked now."""
    switched: int = 0
    """How often it turned to the next model in its order of preference."""
    talk: TalkRecord = field(default_factory=TalkRecord)
    calls: list[CallRecord] = []
    turn: TurnRecord = field(default_factory=TurnRecord)
    clock: ClockRecord = field(default_factory=ClockRecord)
    usage: list[Usage] = []
    asking: TurnStarted | None = None
    """A model call in flight."""
    children: list[str] = []
    artifacts: list[Artifact] = []
    warnings: list[str] = []
    until_resumed: list[str] = []
    """Those warnings that are true only until the run is resumed."""
    overran: dict[str, Limits] = {}
    """Resources of which a provider used more than was reserved, and the limits that held then."""
    died: bool = False
    """Whether it had no end when it was last resumed."""
    goes_on: bool = False
    """Set for a child of code when its parent is resumed: whether it is resumed if code asks for it again."""
    cancelled: CancelRequested | None = None
    """Set if this run was cancelled, not one above it."""
    stopped: bool = False
    """Whether the whole tree was cancelled before it ended; if the process died just then, its end is missing."""
    outcome: Outcome | None = None
    """As its end was recorded: without messages, children and structured output."""

    @property
    def id(self) -> str:
        return self.start.run

    @property
    def parent(self) -> str | None:
        return self.start.parent

    @property
    def agent(self) -> str:
        return self.start.agent

    @property
    def path(self) -> tuple[str, ...]:
        return self.start.path

    @property
    def depth(self) -> int:
        return self.start.depth

    @property
    def task(self) -> UserMessage:
        return self.start.task

    @property
    def label(self) -> str:
        return self.start.label

    @property
    def call(self) -> str:
        """The id of the parent's call that asked for it."""
        return self.start.call

    @property
    def started_at(self) -> float:
        return self.start.at

    @property
    def model_used(self) -> str:
        """The model that gave the last reply; before there is one, the model that is asked."""
        return self.talk.model or self.model

    @property
    def status(self) -> Status | None:
        """None while it has not ended."""
        return None if self.outcome is None else self.outcome.status

    @property
    def unanswered(self) -> Reply | None:
        """A reply that the run has still to act on: the answer, or calls without results."""
        reply = self.talk.reply
        return reply if reply is not None and (not reply.calls or self.turn.open) else None

    def last_turn(self) -> list[CallRecord]:
        """The calls of the last reply that had any."""
        return self.calls[self.turn.at :]

    def open_calls(self) -> list[CallRecord]:
        return [c for c in self.last_turn() if c.ended is None] if self.turn.open else []

    def find(self, call: str) -> CallRecord | None:
        """A call of the last turn."""
        place = self.turn.places.get(call)
        return None if place is None else self.calls[place]

    def begin_turn(self, at: int) -> None:
        """Let the calls from `at` on be the last turn."""
        calls = self.calls[at:]
        places = {c.call.id: at + n for n, c in enumerate(calls)}
        self.turn = TurnRecord(at, places, sum(c.ended is None for c in calls))


class Spending(NamedTuple):
    """What a run and everything below it has used of its shared limits."""

    requests: int = 0
    tokens: int = 0
    micros: int = 0
    calls: int = 0
    delegations: int = 0


class Intent(Struct, frozen=True):
    """Something that was begun and whose end is not recorded."""

    kind: Literal["run", "model", "call"]
    run: str
    what: str
    """The agent, the model, or the tool."""
    call: str = ""


class Grant(Struct, frozen=True):
    """An allowance for more than one call."""

    run: str
    path: tuple[str, ...]
    tool: str
    scope: str
    reasons: tuple[str, ...] = ("",)
    """Why it was asked; "" is the tool's tier."""


class Tree(Struct, omit_defaults=True):
    """A root run and all its descendants."""

    root: str = ""
    runs: dict[str, RunRecord] = {}
    """By id, in the order in which they were started: a parent always before its children."""
    seq: int = 0
    """Of the last event."""
    at: float = 0.0
    """When it happened."""
    requests: dict[str, ApprovalRequested] = {}
    """Approvals that nobody has answered, by their ids."""
    asked: int = 0
    """How many different approvals there have been."""
    grants: list[Grant] = []
    commands: set[str] = field(default_factory=set[str])
    """Ids of the commands from other processes that were obeyed."""

    @property
    def status(self) -> Status | None:
        """How the root ended; None while it has not."""
        record = self.runs.get(self.root)
        return record.status if record else None

    @property
    def artifacts(self) -> list[Artifact]:
        return [a for record in self.runs.values() for a in record.artifacts]

    def intents(self) -> Iterator[Intent]:
        """What was begun and has no recorded end: what a crash left open."""
        for record in self.runs.values():
            if record.outcome is not None:
                continue
            yield Intent("run", record.id, record.agent)
            if record.asking is not None:
                yield Intent("model", record.id, record.model)
            for call in record.open_calls():
                if call.started:
                    yield Intent("call", record.id, call.call.name, call.call.id)

    def usage(self, run: str | None = None) -> Usage:
        """What a run and everything below it has used; the whole tree if none is named."""
        top = self.root if run is None else run
        return total(u for r in self.runs.values() if is_within(r.id, top) for u in r.usage)

    def spending(self) -> dict[str, Spending]:
        """What each run's account has to be charged with, everything below it included."""
        found: dict[str, Spending] = {}
        for record in reversed(self.runs.values()):
            parts = [found[child] for child in record.children]
            asked = sum(not self.runs[child].start.key for child in record.children)
            parts.append(_own_spending(record, asked))
            found[record.id] = Spending(*map(sum, zip(*parts, strict=True)))
        return found

    def outcomes(self) -> dict[str, Outcome]:
        """The outcome of every run, with messages and children; one that has not ended is `interrupted`."""
        found: dict[str, Outcome] = {}
        # Children are started after their parents, so backwards they come first: no recursion on deep trees.
        for record in reversed(self.runs.values()):
            found[record.id] = _outcome(record, [found[c] for c in record.children], self.at)
        return found

    def outcome(self) -> Outcome:
        """The root's."""
        return self.outcomes()[self.root]


def is_within(run: str, top: str) -> bool:
    """Whether a run is `top` or below it."""
    return run == top or run.startswith(f"{top}.")


def elapsed(record: RunRecord, at: float) -> float:
    """Seconds on the run's own clock."""
    return record.clock.worked_s + (0.0 if record.clock.since is None else max(0.0, at - record.clock.since))


def _own_spending(record: RunRecord, asked: int) -> Spending:
    """`asked`: children that calls of a model asked for. A child that code asked for is not a call."""
    micros = sum(to_micros(u.usd) for u in record.usage if u.usd is not None)
    children = len(record.children)
    calls = sum(c.started and not c.delegates and not c.is_step for c in record.calls)
    tokens = sum(u.tokens for u in record.usage)
    return Spending(len(record.usage), tokens, micros, calls + asked, children)


def _outcome(record: RunRecord, children: list[Outcome], at: float) -> Outcome:
    usage = total(record.usage)
    whole = total((usage, *(c.total_usage for c in children))) if children else usage
    messages = tuple(record.talk.messages)
    if record.outcome is not None:
        return msgspec.structs.replace(
            record.outcome, children=tuple(children), messages=messages, total_usage=whole
        )
    status, reason = Status.INTERRUPTED, "its process ended before it did"
    if record.cancelled is not None and record.parent is not None:
        by, why = record.cancelled.by, record.cancelled.reason
        status, reason = Status.CANCELLED, f"cancelled by {by}: {why}" if why else f"cancelled by {by}"
    return Outcome(
        status=status,
        agent=record.agent,
        run_id=record.id,
        partial=record.talk.text,
        reason=reason,
        label=record.label,
        parent_id=record.parent,
        depth=record.depth,
        model=record.model_used,
        turns=record.talk.replies,
        calls=tuple(log for log in (c.log for c in record.calls) if log is not None),
        usage=usage,
        total_usage=whole,
        children=tuple(children),
        messages=messages,
        artifacts=tuple(record.artifacts),
        duration_s=elapsed(record, at),
        warnings=tuple(record.warnings),
    )
