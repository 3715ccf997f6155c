"""Events: frozen, versioned records of what happened. The journal is the list of events.

Every event has the header of its run (`Where`), so that a tree can be rebuilt from its events alone. Arguments and
texts are stored once: a call's arguments in the `ReplyReceived` that requested the call, its result in `CallEnded`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from msgspec import Struct

from remit.types.limits import Limits, Usage
from remit.types.messages import FilePart, ImagePart, Json, JsonObject, Message, Reply, UserMessage
from remit.types.outcome import Artifact, Outcome, Rejection
from remit.types.sandbox import Sandbox

Purpose = Literal["turn", "wrap_up", "summary", "compact"]
"""The purpose of a model call. A resumed run continues from before any wrap-up, summary or compact call."""

VERSION = 2
"""Incremented when the meaning of a recorded event changes; `decode` still reads older versions."""


class Where(Struct, frozen=True):
    """The place of a run in its tree: created once per run, the header of each of its events."""

    run: str
    parent: str | None
    root: str
    depth: int
    path: tuple[str, ...]
    """Agent names from the root down to this run."""
    agent: str


class Event(Struct, frozen=True, omit_defaults=True, gc=False, tag_field="kind"):
    """The fields that every event has. `kind` is the tag of the subclass."""

    seq: int
    """1, 2, 3... within the tree."""
    at: float
    """Seconds since the epoch."""
    where: Where
    v: int
    """The `VERSION` that wrote the event. No default, so that it is always encoded."""

    live_only: ClassVar[bool] = False
    """Whether the event is only streamed to live readers and never journalled."""

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
    """The caller's permissions for a whole tree besides its limits; a resumed tree keeps them."""

    sandbox: Sandbox | None = None
    workspace: str = ""
    policy: tuple[str, ...] | None = None
    """The caller's rules; None without rules or with a policy function."""
    function: bool = False
    """Whether the policy was a function, which cannot be recorded."""
    hooks: tuple[str, ...] = ()
    """The options of `run` that were hooks (`on_call`, `on_result`), which cannot be recorded."""


class RunStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run_started"):
    """Written before any of the run's work."""

    task: UserMessage
    label: str = ""
    call: str = ""
    """The id of the parent's call that delegated; empty for the root and for children of a program."""
    key: str = ""
    """The run's name among the children of the call or program whose code delegated; else empty."""
    program: bool = False
    """Whether the run executes a program instead of model turns."""
    trace: str = ""
    """The root's trace (W3C `traceparent`), if the tree is traced."""
    nickname: str = ""
    model: str = ""
    instructions: str = ""
    tools: tuple[str, ...] = ()
    subagents: tuple[str, ...] = ()
    limits: Limits = Limits()
    """The run's own limits. The runs above bound every unset field."""
    history: tuple[Message, ...] = ()
    terms: Terms | None = None
    """Set only for the root, if the caller set any terms."""


class ToolsOpened(Event, frozen=True, kw_only=True, omit_defaults=True, tag="tools_opened"):
    """A tool source, for example an MCP server, was opened for this run or shared with it."""

    source: str
    tools: tuple[str, ...] = ()
    trouble: str = ""
    """A message that says which tools are missing and why."""


class RunResumed(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run_resumed"):
    """A run was resumed after it ended without an answer or its process died. `limits` apply from now on."""

    limits: Limits = Limits()


class InstructionsWritten(Event, frozen=True, kw_only=True, omit_defaults=True, tag="instructions_written"):
    """The agent's function wrote the run's instructions. A resumed run keeps them."""

    instructions: str


class RunEnded(Event, frozen=True, kw_only=True, omit_defaults=True, tag="run_ended"):
    """A run ended. The outcome has no messages and no children: other events record them."""

    outcome: Outcome


class TurnStarted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="turn_started"):
    """A model call is about to be sent. `reserved` is its worst case."""

    turn: int
    attempt: int = 1
    purpose: Purpose = "turn"
    reserved: int = 0
    """Tokens."""
    input_tokens: int = 0
    """Estimated. This and `input_usd` are counted as spent if the process dies before the reply."""
    input_usd: float | None = None


class ReplyReceived(Event, frozen=True, kw_only=True, omit_defaults=True, tag="reply_received"):
    """A model call returned a reply."""

    turn: int
    reply: Reply
    usage: Usage
    purpose: Purpose = "turn"
    again: bool = False
    """Replayed from the journal after a resume: the reply was already paid for, so `usage` is zero."""


class ModelCallFailed(Event, frozen=True, kw_only=True, omit_defaults=True, tag="model_call_failed"):
    """A model call failed or was stopped before its reply."""

    turn: int
    attempt: int
    error: str
    error_kind: str
    usage: Usage
    retry_in_s: float | None = None
    """None if the call is not retried."""


class ModelSwitched(Event, frozen=True, kw_only=True, omit_defaults=True, tag="model_switched"):
    """A model failed permanently, and the run switched to the next model in its order of preference."""

    before: str
    model: str
    reason: str = ""


class DeltaReceived(Event, frozen=True, kw_only=True, omit_defaults=True, tag="delta_received"):
    """A piece of a reply; `ReplyReceived` has the whole reply."""

    live_only: ClassVar[bool] = True

    turn: int
    text: str = ""
    thinking: str = ""


class CallChanged(Event, frozen=True, kw_only=True, omit_defaults=True, tag="call_changed"):
    """Hooks replaced the arguments of a call. Policy and approver decide about the new ones."""

    call: str
    tool: str
    args: JsonObject
    hooks: tuple[str, ...] = ()
    """The names of the hooks that replaced them."""


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
    """A running tool reported progress through `ctx.emit`."""

    live_only: ClassVar[bool] = True

    call: str
    tool: str
    text: str


class CallEnded(Event, frozen=True, kw_only=True, omit_defaults=True, tag="call_ended"):
    """A call has its result. Also recorded for a call that never ran (unknown, malformed, denied, rejected)."""

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
    """The run was stopped before the call finished; a resumed run starts the call again."""
    parts: tuple[ImagePart | FilePart, ...] = ()


class ResultCut(Event, frozen=True, kw_only=True, omit_defaults=True, tag="result_cut"):
    """A result was shortened in the conversation, so that the next request fits."""

    call: str
    content: str
    note: str = ""
    place: int = -1
    """The index of the result in the conversation; -1: the last result of that call."""


class Compacted(Event, frozen=True, kw_only=True, omit_defaults=True, tag="compacted"):
    """A summary replaced the old part of a conversation; the task, the summary and the last turn remain."""

    summary: str
    task_at: int
    kept_from: int
    kept_to: int
    """The last turn was at `kept_from` up to, not including, `kept_to`."""
    before: int = 0
    after: int = 0
    """Estimated tokens."""


class ChildQueued(Event, frozen=True, kw_only=True, omit_defaults=True, tag="child_queued"):
    """A delegation waits for a slot; `waiting` counts all waiting runs of the tree, including this child."""

    call: str
    child: str
    waiting: int
    key: str = ""
    """Same as `RunStarted.key`."""


class DelegationRejected(Event, frozen=True, kw_only=True, omit_defaults=True, tag="delegation_rejected"):
    """A delegation was rejected before it started."""

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
    """The rules that require approval; "" stands for the tool's tier."""


class ApprovalAnswered(Event, frozen=True, kw_only=True, omit_defaults=True, tag="approval_answered"):
    """An approval request was answered by a person or a rule, or its run was stopped."""

    request: str
    call: str
    allowed: bool
    scope: str = "once"
    reason: str = ""
    args: JsonObject | None = None
    """The arguments that the approver put in place of the call's."""
    stopped: bool = False
    """The run was stopped before an answer arrived."""
    command: str = ""
    """The id of the command that brought the answer from another process."""


class MessageSent(Event, frozen=True, kw_only=True, omit_defaults=True, tag="message_sent"):
    """Code in this process sent a message; it joins the run's next turn."""

    message: UserMessage


class MessageJoined(Event, frozen=True, kw_only=True, omit_defaults=True, tag="message_joined"):
    """A user message was added to the conversation: a sent message, or one that remit wrote."""

    message: UserMessage
    origin: Literal["sent", "runtime"] = "sent"
    purpose: Purpose = "turn"
    """The purpose of the model call that remit's own message asks for."""
    command: str = ""


class CancelRequested(Event, frozen=True, kw_only=True, omit_defaults=True, tag="cancel_requested"):
    """A caller or another process asked to stop this run and everything below it."""

    by: str
    reason: str = ""
    command: str = ""


class LimitMet(Event, frozen=True, kw_only=True, omit_defaults=True, tag="limit_met"):
    """A soft limit was reached: one wrap-up turn follows if the run has had a reply."""

    limit: str
    detail: str = ""


class Overran(Event, frozen=True, kw_only=True, omit_defaults=True, tag="overrun"):
    """A provider reported more usage than was reserved. The account accepts no new reservations."""

    reserved: int
    used: int
    """`reserved` and `used` are in micro-dollars if `resource` is `usd`."""
    resource: str


class ArtifactSaved(Event, frozen=True, kw_only=True, omit_defaults=True, tag="artifact_saved"):
    """A long text was saved in the store."""

    artifact: Artifact


class Warned(Event, frozen=True, kw_only=True, omit_defaults=True, tag="warned"):
    """A warning for people. It does not change the run."""

    text: str
    above: bool = False
    """Whether the root's outcome has the warning too."""
    until_resumed: bool = False
    """Whether a resume makes the warning obsolete."""


class EventsMissed(Event, frozen=True, kw_only=True, omit_defaults=True, tag="events_missed"):
    """This reader was too slow: `missed` events were dropped from its stream."""

    live_only: ClassVar[bool] = True

    missed: int


AnyEvent = (
    RunStarted
    | ToolsOpened
    | RunResumed
    | InstructionsWritten
    | RunEnded
    | TurnStarted
    | ReplyReceived
    | ModelCallFailed
    | ModelSwitched
    | DeltaReceived
    | CallChanged
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
