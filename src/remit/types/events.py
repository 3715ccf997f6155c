"""What happened, as frozen, versioned records. The journal is the list of these.

Every event has the header of its run (`Where`), so that a tree can be rebuilt from its events alone. Arguments and
texts are stored once: a call's arguments are in the `ReplyReceived` that asked for it, a result in its `CallEnded`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from remit.types.limits import Limits, Usage
from remit.types.messages import FilePart, ImagePart, Json, Message, Reply, UserMessage
from remit.types.outcome import Artifact, Outcome, Rejection
from remit.types.sandbox import Sandbox

Purpose = Literal["turn", "wrap_up", "summary", "compact"]
"""What a model call is for. All but turns are asides: a resumed run goes on from before them."""

VERSION = 2
"""Raised when a recorded event would be read differently; `decode` still reads older versions."""


class Where(Struct, frozen=True):
    """The place of a run in its tree: made once per run, the header of each of its events."""

    run: str
    parent: str | None
    root: str
    depth: int
    path: tuple[str, ...]
    """Agent names from the root down to this run."""
    agent: str


class Event(Struct, frozen=True, omit_defaults=True, gc=False, tag_field="kind"):
    """The fields that every event has. Subclasses are in the past tense; their `kind` is their tag."""

    seq: int
    """1, 2, 3... within the tree."""
    at: float
    """Seconds since the epoch."""
    where: Where
    v: int
    """The version it was written with. No default, so that it is always written."""

    live_only: ClassVar[bool] = False
    """Whether only live readers see it: it is never journalled."""

    @property
    def kind(self) -> str:
        return str(self.__struct_config__.tag)

    @property
    def run(self) -> str:
        return self.where.run

    @property
    def parent(self) -> str | None:
        return self.where.parent

    @property
    def root(self) -> str:
        return self.where.root

    @property
    def depth(self) -> int:
        return self.where.depth

    @property
    def path(self) -> tuple[str, ...]:
        return self.where.path

    @property
    def agent(self) -> str:
        return self.where.agent


class Terms(Struct, frozen=True, omit_defaults=True):
    """What the caller allowed a whole tree besides its limits: it holds when the tree is resumed too."""

    sandbox: Sandbox | None = None
    workspace: str = ""
    policy: tuple[str, ...] | None = None
    """The caller's rules; None when there were none, or a function."""
    function: bool = False
    """Whether the policy was a function, which cannot be written down."""


class RunStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run_started"):
    """Written before any of the run's work."""

    task: UserMessage
    label: str = ""
    call: str = ""
    """The id of the parent's call that asked for it; empty for the root and for children of a program."""
    key: str = ""
    """Not empty if code asked for the run: its name among the children of that call or program."""
    program: bool = False
    """Whether the run is a program: code instead of turns of a model."""
    trace: str = ""
    """The root's trace (W3C `traceparent`), if the tree is traced."""
    nickname: str = ""
    model: str = ""
    instructions: str = ""
    tools: tuple[str, ...] = ()
    subagents: tuple[str, ...] = ()
    limits: Limits = Limits()
    """Its own. What is not set here is bounded by the runs above it."""
    history: tuple[Message, ...] = ()
    terms: Terms | None = None
    """Only the root has them, if the caller set any."""


class ToolsOpened(Event, frozen=True, kw_only=True, omit_defaults=True, tag="tools_opened"):
    """A source of tools, an MCP server for one, was opened or borrowed for this run."""

    source: str
    tools: tuple[str, ...] = ()
    trouble: str = ""
    """What is missing and why, in words."""


class RunResumed(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run_resumed"):
    """A run goes on that had ended short of its answer, or whose process died. `limits` hold from here on."""

    limits: Limits = Limits()


class RunEnded(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run_ended"):
    """The outcome, without its messages and its children: those have events of their own."""

    outcome: Outcome


class TurnStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="turn_started"):
    """A model call is about to be sent. `reserved` is its worst case."""

    turn: int
    attempt: int = 1
    purpose: Purpose = "turn"
    reserved: int = 0
    """Tokens."""
    input_tokens: int = 0
    """Estimated; with its price, what is counted if the process dies before there is an answer."""
    input_usd: float | None = None


class ReplyReceived(Event, frozen=True, kw_only=True, omit_defaults=True, tag="reply_received"):
    """A model call came back."""

    turn: int
    reply: Reply
    usage: Usage
    purpose: Purpose = "turn"
    again: bool = False
    """Taken from the journal after a resume: it was paid for before, so its `usage` is zero."""


class ModelCallFailed(Event, frozen=True, kw_only=True, omit_defaults=True, tag="model_call_failed"):
    """A model call did not come back with a reply: it failed, or it was stopped."""

    turn: int
    attempt: int
    error: str
    error_kind: str
    usage: Usage
    retry_in_s: float | None = None
    """None when it is not tried again."""


class ModelSwitched(Event, frozen=True, kw_only=True, omit_defaults=True, tag="model_switched"):
    """A model failed for good, and the run turned to the next one in its order of preference."""

    before: str
    model: str
    reason: str = ""


class DeltaReceived(Event, frozen=True, kw_only=True, omit_defaults=True, tag="delta_received"):
    """A piece of a reply: the whole is in `ReplyReceived`."""

    live_only: ClassVar[bool] = True

    turn: int
    text: str = ""
    thinking: str = ""


class CallStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="call_started"):
    """A tool is about to run."""

    call: str
    tool: str
    display_name: str = ""
    context: str = ""
    tier: str = "observe"
    delegates: bool = False
    turn: int = 0
    count: int = 0
    """Calls of this run so far, this one included."""
    tokens: int = 0
    """Tokens of this run so far."""


class CallProgressed(Event, frozen=True, kw_only=True, omit_defaults=True, tag="call_progressed"):
    """A running tool said something through `ctx.emit`."""

    live_only: ClassVar[bool] = True

    call: str
    tool: str
    text: str


class CallEnded(Event, frozen=True, kw_only=True, omit_defaults=True, tag="call_ended"):
    """A call has its result; also one that never ran (unknown, malformed, denied, rejected)."""

    call: str
    tool: str
    success: bool
    content: str
    note: str = ""
    details: Json = None
    display_name: str = ""
    context: str = ""
    summary: str = ""
    duration_ms: int = 0
    turn: int = 0
    count: int = 0
    tokens: int = 0
    unfinished: bool = False
    """The run was stopped before the call had ended, so a resumed run takes it up again."""
    parts: tuple[ImagePart | FilePart, ...] = ()


class ResultCut(Event, frozen=True, kw_only=True, omit_defaults=True, tag="result_cut"):
    """A result was shortened in the conversation, so that the next request fits."""

    call: str
    content: str
    note: str = ""
    place: int = -1
    """Where in the conversation it stands; -1: the last result of that call."""


class Compacted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="compacted"):
    """The old part of a conversation gave way to a summary: the task, the summary and the last turn are left."""

    summary: str
    task_at: int
    kept_from: int
    kept_to: int
    """The last turn stood from `kept_from` up to here."""
    before: int = 0
    after: int = 0
    """Estimated tokens."""


class ChildQueued(Event, frozen=True, kw_only=True, omit_defaults=True, tag="child_queued"):
    """A delegation waits for a place; `waiting` counts everybody in the tree who does, itself included."""

    call: str
    child: str
    waiting: int
    key: str = ""
    """As `RunStarted.key`."""


class DelegationRejected(Event, frozen=True, kw_only=True, omit_defaults=True, tag="delegation_rejected"):
    """A delegation never started."""

    call: str
    rejection: Rejection


class ApprovalRequested(Event, frozen=True, kw_only=True, omit_defaults=True, tag="approval_requested"):
    """A call waits for a person."""

    request: str
    call: str
    tool: str
    context: str = ""
    preview: str = ""
    reasons: tuple[str, ...] = ("",)
    """Rules that have it asked; "" is the tool's tier."""


class ApprovalAnswered(Event, frozen=True, kw_only=True, omit_defaults=True, tag="approval_answered"):
    """The person, a rule or nobody answered."""

    request: str
    call: str
    allowed: bool
    scope: str = "once"
    reason: str = ""
    stopped: bool = False
    """Nobody answered: the run was stopped while it waited."""
    command: str = ""
    """The command from another process that it came by."""


class MessageSent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="message_sent"):
    """Somebody in this process sent a message; it joins the run's next turn."""

    message: UserMessage


class MessageJoined(Event, frozen=True, kw_only=True, omit_defaults=True, tag="message_joined"):
    """A message joined the conversation from outside the model: sent, or the runtime's own."""

    message: UserMessage
    origin: Literal["sent", "runtime"] = "sent"
    purpose: Purpose = "turn"
    """For the runtime's own: what model call it asks for."""
    command: str = ""


class CancelRequested(Event, frozen=True, kw_only=True, omit_defaults=True, tag="cancel_requested"):
    """Somebody asked for this run and everything below it to stop."""

    by: str
    reason: str = ""
    command: str = ""


class LimitMet(Event, frozen=True, kw_only=True, omit_defaults=True, tag="limit_met"):
    """A soft limit was met: one wrap-up turn follows if there was ever a reply."""

    limit: str
    detail: str = ""


class Overran(Event, frozen=True, kw_only=True, omit_defaults=True, tag="overrun"):
    """A provider reported more than was reserved. The account takes no new reservations."""

    reserved: int
    used: int
    """Both in micro-dollars where the resource is `usd`."""
    resource: str


class ArtifactSaved(Event, frozen=True, kw_only=True, omit_defaults=True, tag="artifact_saved"):
    """A long text was put in the store."""

    artifact: Artifact


class Warned(Event, frozen=True, kw_only=True, omit_defaults=True, tag="warned"):
    """Something a person should know that did not change how the run goes on."""

    text: str
    above: bool = False
    """Whether the root's outcome has it too."""
    until_resumed: bool = False
    """Whether it is true only as long as the run does not go on."""


class EventsMissed(Event, frozen=True, kw_only=True, omit_defaults=True, tag="events_missed"):
    """This reader was too slow, and `missed` events were dropped for it."""

    live_only: ClassVar[bool] = True

    missed: int


AnyEvent = (
    RunStarted
    | ToolsOpened
    | RunResumed
    | RunEnded
    | TurnStarted
    | ReplyReceived
    | ModelCallFailed
    | ModelSwitched
    | DeltaReceived
    | CallStarted
    | CallProgressed
    | CallEnded
    | ResultCut
    | Compacted
    | ChildQueued
    | DelegationRejected
    | ApprovalRequested
    | ApprovalAnswered
    | MessageSent
    | MessageJoined
    | CancelRequested
    | LimitMet
    | Overran
    | ArtifactSaved
    | Warned
    | EventsMissed
)
