"""The recorded state of a tree, built from its events by `history.fold`. Plain data."""

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
from remit.types.messages import Call, JsonObject, Message, Reply, ToolMessage, UserMessage
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
"""Statuses of runs that can resume. `completed`, `failed` and `refused` are final."""


class CallRecord(Struct, omit_defaults=True):
    """One call that a model requested, and its state."""

    call: Call
    turn: int
    started: bool = False
    tier: str = ""
    delegates: bool = False
    request: str = ""
    """The id of the approval request for this call."""
    answer: ApprovalAnswered | None = None
    changed: JsonObject | None = None
    """The arguments in place of the model's, if hooks or the approver replaced them."""
    child: str = ""
    """The run that the call started."""
    code: list[str] = []
    """The runs that the tool's code started."""
    ended: CallEnded | None = None
    goes_on: bool = False
    """Set when the run is resumed: whether `child` resumes too."""

    @property
    def args(self) -> JsonObject | str:
        """The arguments that the call runs with."""
        return self.call.args if self.changed is None else self.changed

    @property
    def is_judged(self) -> bool:
        """Whether the hooks have seen the call: a resumed run does not call them again."""
        return self.started or bool(self.request) or self.changed is not None

    @property
    def is_step(self) -> bool:
        """Whether this is a recorded step of a program, not a call by a model."""
        return self.tier == "step"

    @property
    def message(self) -> ToolMessage | None:
        """The result as the model reads it."""
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
    """The conversation of a run with its model."""

    messages: list[Message] = []
    """The results of a turn are added together, when the last of them has arrived."""
    task_at: int = 0
    """The index of the task in `messages`."""
    text: str = ""
    """The last non-empty text that the model wrote."""
    model: str = ""
    """The model that gave the last reply."""
    turns: int = 0
    replies: int = 0
    """Replies of turns, wrap-ups, summaries and compactions."""
    reply: Reply | None = None
    """The last reply, until the run has acted on all of it."""
    asides: dict[str, Reply] = {}
    """Replies of wrap-up, summary and compact calls since the last turn, by purpose."""
    aside_at: int | None = None
    """The index in `messages` where such a call begins."""
    unjoined: list[UserMessage] = []
    """Sent messages that are not in `messages` yet, or must be added again after a resumed turn."""
    measured: int = 0
    """Tokens of the conversation up to `measured_at`, as counted by the provider."""
    measured_at: int = 0


class TurnRecord(Struct, omit_defaults=True):
    """The calls of the last reply that had any."""

    at: int = 0
    """The index in `RunRecord.calls` of the first call."""
    places: dict[str, int] = {}
    """The index in `RunRecord.calls` of each call id."""
    open: int = 0
    """How many calls have no result."""


class ClockRecord(Struct, omit_defaults=True):
    """A run's clock. It pauses while a person is asked and while no process runs the tree."""

    worked_s: float = 0.0
    """Seconds until `since`."""
    since: float | None = None
    """When the clock last started; None while it is paused."""
    waits: int = 0
    """Approvals that the run or a run below it waits for."""


class RunRecord(Struct, omit_defaults=True):
    """The recorded state of one run."""

    start: RunStarted
    """The run's first event: its place, task, instructions and tools."""
    limits: Limits
    model: str
    """The model in use."""
    instructions: str | None = None
    """The instructions that the agent's function wrote; None if it has not, or if the agent has a text."""
    switched: int = 0
    """How often the run switched to the next model in its order of preference."""
    talk: TalkRecord = field(default_factory=TalkRecord)
    calls: list[CallRecord] = []
    turn: TurnRecord = field(default_factory=TurnRecord)
    clock: ClockRecord = field(default_factory=ClockRecord)
    usage: list[Usage] = []
    asking: TurnStarted | None = None
    """The model call in flight."""
    children: list[str] = []
    artifacts: list[Artifact] = []
    warnings: list[str] = []
    until_resumed: list[str] = []
    """The warnings that a resume makes obsolete."""
    overran: dict[str, Limits] = {}
    """Resources of which a provider used more than was reserved, with the limits at that time."""
    died: bool = False
    """Whether the run had no recorded end when it was last resumed."""
    goes_on: bool = False
    """Set for a child of code when its parent is resumed: whether the child resumes if code requests it again."""
    cancelled: CancelRequested | None = None
    """Set if this run itself was cancelled, not a run above it."""
    stopped: bool = False
    """Whether the whole tree was cancelled before this run ended. Its end may be missing if the process then died."""
    outcome: Outcome | None = None
    """The outcome as recorded: without messages, children and structured output."""

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
        """The id of the parent's call that started this run."""
        return self.start.call

    @property
    def started_at(self) -> float:
        return self.start.at

    @property
    def model_used(self) -> str:
        """The model that gave the last reply, or the model in use if there is no reply yet."""
        return self.talk.model or self.model

    @property
    def status(self) -> Status | None:
        """None while the run has not ended."""
        return None if self.outcome is None else self.outcome.status

    @property
    def unanswered(self) -> Reply | None:
        """A reply that the run must still act on: the answer, or calls without results."""
        reply = self.talk.reply
        return reply if reply is not None and (not reply.calls or self.turn.open) else None

    def last_turn(self) -> list[CallRecord]:
        """The calls of the last reply that had any."""
        return self.calls[self.turn.at :]

    def open_calls(self) -> list[CallRecord]:
        return [c for c in self.last_turn() if c.ended is None] if self.turn.open else []

    def find(self, call: str) -> CallRecord | None:
        """The call of the last turn with this id."""
        place = self.turn.places.get(call)
        return None if place is None else self.calls[place]

    def begin_turn(self, at: int) -> None:
        """Make the calls from index `at` on the last turn."""
        calls = self.calls[at:]
        places = {c.call.id: at + n for n, c in enumerate(calls)}
        self.turn = TurnRecord(at, places, sum(c.ended is None for c in calls))


class Spending(NamedTuple):
    """How much of its shared limits a run and its descendants have used."""

    requests: int = 0
    tokens: int = 0
    micros: int = 0
    calls: int = 0
    delegations: int = 0


class Intent(Struct, frozen=True):
    """A run, model call or tool call that started and has no recorded end."""

    kind: Literal["run", "model", "call"]
    run: str
    what: str
    """The name of the agent, model or tool."""
    call: str = ""


class Grant(Struct, frozen=True):
    """An approval for more than one call."""

    run: str
    path: tuple[str, ...]
    tool: str
    scope: str
    reasons: tuple[str, ...] = ("",)
    """The rules that required approval; "" stands for the tool's tier."""


class Tree(Struct, omit_defaults=True):
    """A root run and all its descendants."""

    root: str = ""
    runs: dict[str, RunRecord] = {}
    """By id, in the order in which they started: a parent always before its children."""
    seq: int = 0
    """The `seq` of the last event."""
    at: float = 0.0
    """The time of the last event."""
    requests: dict[str, ApprovalRequested] = {}
    """Unanswered approval requests, by id."""
    asked: int = 0
    """The number of different approval requests so far."""
    grants: list[Grant] = []
    commands: set[str] = field(default_factory=set[str])
    """Ids of commands from other processes that were obeyed."""

    @property
    def status(self) -> Status | None:
        """How the root ended; None while it has not ended."""
        record = self.runs.get(self.root)
        return record.status if record else None

    @property
    def artifacts(self) -> list[Artifact]:
        return [a for record in self.runs.values() for a in record.artifacts]

    def intents(self) -> Iterator[Intent]:
        """Everything that started and has no recorded end, as after a crash."""
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
        """The usage of a run and its descendants; of the whole tree if `run` is None."""
        top = self.root if run is None else run
        return total(u for r in self.runs.values() if is_within(r.id, top) for u in r.usage)

    def spending(self) -> dict[str, Spending]:
        """The amounts to charge to each run's account, descendants included."""
        found: dict[str, Spending] = {}
        for record in reversed(self.runs.values()):
            parts = [found[child] for child in record.children]
            asked = sum(not self.runs[child].start.key for child in record.children)
            parts.append(_own_spending(record, asked))
            found[record.id] = Spending(*map(sum, zip(*parts, strict=True)))
        return found

    def outcomes(self) -> dict[str, Outcome]:
        """The outcome of every run, with messages and children; a run without an end is `interrupted`."""
        found: dict[str, Outcome] = {}
        # In reverse, children come before their parents: no recursion, which deep trees would exhaust.
        for record in reversed(self.runs.values()):
            found[record.id] = _outcome(record, [found[c] for c in record.children], self.at)
        return found

    def outcome(self) -> Outcome:
        """The outcome of the root."""
        return self.outcomes()[self.root]


def is_within(run: str, top: str) -> bool:
    """Whether a run is `top` or below it."""
    return run == top or run.startswith(f"{top}.")


def elapsed(record: RunRecord, at: float) -> float:
    """Seconds on the run's clock."""
    return record.clock.worked_s + (0.0 if record.clock.since is None else max(0.0, at - record.clock.since))


def _own_spending(record: RunRecord, asked: int) -> Spending:
    """`asked` counts the children started by a model's calls. A child started by code is not a call."""
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
    status, reason = Status.INTERRUPTED, "the process ended before the run finished"
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
