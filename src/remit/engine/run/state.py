"""One run while it executes: its conversation, its kit of tools, and what it has so far.

`Scope` is where a run stands in the tree; `Run` is what it is doing there. The loop, the exchange with
the model and the dispatch of calls all work on it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Protocol, final

from msgspec import Struct, field

import remit.engine.budget.ledger as ledger
from remit.agent import Agent
from remit.engine.budget.model_choice import Chain, Known
from remit.engine.budget.rate_limit import Lane
from remit.engine.tree.node import Scope
from remit.history.records import CallRecord
from remit.tools.result import ToolResult
from remit.tools.signature import AllowedBy
from remit.tools.source import ToolSource
from remit.tools.tool import Tier, Tool
from remit.types.events import MessageJoined, Purpose
from remit.types.limits import Limits
from remit.types.messages import (
    Call,
    Json,
    JsonObject,
    Message,
    Reply,
    TextPart,
    ToolMessage,
    ToolSpec,
    UserMessage,
    user,
)
from remit.types.outcome import Artifact, Outcome, Rejection, ToolCallLog
from remit.types.sizes import TURN_CHARS

OUTPUT_TOKENS = 4096
"""The most a reply may say when the agent's settings do not."""

IMAGE_TOKENS = 1600
REMEMBERED_TURNS = 20

NOT_IN_FORM = "[remit] Your answer is not in the form that was asked for."
"""Begins what a model is told whose structured answer does not match."""


class Kit(Struct, frozen=True, eq=False):
    """The tools of a run, and what follows from them. Made once per agent; never changes between turns."""

    tools: Mapping[str, Tool]
    """By name; also delegate tools that are not offered, so that calling one anyway is answered properly."""
    specs: tuple[ToolSpec, ...]
    """What the model is told of."""
    tokens: int
    """Estimated tokens of what is in every request: the instructions and the specs."""
    delegates: bool = False
    """Whether the model is offered a way to delegate."""
    delegating: frozenset[str] = frozenset()
    """Names of the tools that start children, those that are not offered included."""
    names: tuple[str, ...] = ()
    """Of what the model is told of."""
    subagents: tuple[str, ...] = ()
    """Names of the agents below, those that cannot be delegated to included."""
    shares: dict[object, Kit] = field(default_factory=dict[object, "Kit"])
    """Kits of ad hoc children made from this one."""


class Circles:
    """Each call of the last turns by its `key_of` in `tool_calls.py`, to see a run that goes in circles."""

    __slots__ = ("_times", "_turns")

    def __init__(self) -> None:
        self._turns: list[Iterable[int]] = []
        self._times: dict[int, int] = {}

    def add(self, keys: Sequence[int]) -> None:
        """Remember a turn. By turns, not by calls: the same call twice in one reply is not yet a circle."""
        turn = keys if len(keys) == 1 else frozenset(keys)
        turns, times = self._turns, self._times
        turns.append(turn)
        for key in turn:
            times[key] = times.get(key, 0) + 1
        if len(turns) > REMEMBERED_TURNS:
            for key in turns.pop(0):
                if times[key] == 1:
                    del times[key]
                else:
                    times[key] -= 1

    def times(self, key: int) -> int:
        """In how many of the last turns this same call had this same result."""
        return self._times.get(key, 0)


_NO_CALLS: dict[str, CallRecord] = {}
_NO_APPROVALS: Mapping[str, str] = {}
_NO_REPLIES: dict[str, Reply] = {}


class Shared(Struct, frozen=True):
    """What runs of one agent at one place have in common, worked out once: siblings are many."""

    limits: Limits
    depth_left: int | None
    """Levels they may still delegate to; None is unlimited."""
    models: Chain
    """In order of preference."""
    lane: Lane
    kit: Kit
    output_schema: JsonObject | None
    window: int | None
    most_turns: float
    """`inf` is any number."""
    below: dict[tuple[Agent, Kit | None, int | None], Shared]
    """The same of their children, by agent, kit and turns."""


class Run:
    """One run being executed."""

    # Written out: a data class with this many fields takes several times as long to make.
    __slots__ = (
        "agent",
        "allowed_by",
        "approved",
        "artifacts",
        "asides",
        "base",
        "borrowed",
        "calls_begun",
        "children",
        "circles",
        "contexts",
        "delegator",
        "estimate",
        "failed_tool",
        "inline_chars",
        "kit",
        "lane",
        "last_error",
        "learnt",
        "left_open",
        "lends_task",
        "log",
        "looping",
        "messages",
        "model",
        "model_at",
        "model_used",
        "output_tokens",
        "pending",
        "plan",
        "replies",
        "reply",
        "results_kept",
        "resumed",
        "scope",
        "settings",
        "shared",
        "speechless",
        "started_at",
        "task_at",
        "text",
        "tight",
        "tries",
        "turns",
        "window",
    )

    def __init__(  # noqa: PLR0915 - one line for each attribute
        self,
        scope: Scope,
        plan: Plan,
        shared: Shared,
        settings: Mapping[str, Json],
        delegator: Delegator,
    ) -> None:
        self.scope = scope
        self.plan = plan
        self.shared = shared
        self.agent = plan.agent
        self.model: Known = shared.models[0]
        """The one that is asked now."""
        self.settings = settings
        self.output_tokens = _output_tokens(settings) if settings else OUTPUT_TOKENS
        self.kit = shared.kit
        self.delegator = delegator
        self.lane = shared.lane
        self.messages: list[Message] = []
        self.estimate = self.base = shared.kit.tokens
        """Input tokens of the next request: what the provider last said, plus an estimate of what came since."""
        """Of which instructions and tools: `base`."""
        self.task_at = 0
        """Where in the conversation the task stands."""
        self.tight = 0
        """What its conversation had when a summary of it was last asked for in vain."""
        self.window = shared.window
        """Tokens of conversation that the model can take; None where nobody knows, or nothing is to be shortened."""
        self.learnt: int | None = None
        """The same, learnt from a provider that said no."""
        self.turns = 0
        """Ordinary turns begun; wrap-up and summary turns are not counted."""
        self.replies = 0
        self.text = ""
        """The last non-empty thing it said."""
        self.model_used = ""
        self.log: list[ToolCallLog] = []
        self.calls_begun = 0
        self.contexts: dict[str, str] = {}
        """What the calls in flight are about."""
        self.approved: Mapping[str, str] = _NO_APPROVALS
        """By call: what only a person may approve, and has."""
        self.allowed_by: dict[str, AllowedBy] = {}
        """Why calls that have not begun yet may run, where a person or a rule with a pattern allowed them."""
        self.children: Sequence[Outcome] = ()
        self.artifacts: Sequence[Artifact] = ()
        self.results_kept = 0
        self.inline_chars = TURN_CHARS
        """How much of each result of this turn its model reads at most."""
        self.failed_tool: str | None = None
        self.last_error: str | None = None
        """The provider's error that was to be tried again when the budget ran out."""
        self.circles: Circles | None = None
        """Made with the first result."""
        self.lends_task = False
        """Whether its next child runs in its own task."""
        self.speechless = ""
        """Why nothing could be withheld for its last word; it may then not delegate."""
        clock = scope.tree.clock
        self.started_at = clock()
        self.tries = 0
        """Answers that did not have the form that was asked for."""
        self.borrowed: tuple[ToolSource, ...] = ()
        self.looping = ""
        """The tool that it called again and again with the same result."""
        self.model_at = 0
        """Which of `shared.models` is asked now."""
        self.resumed = False
        self.reply: Reply | None = None
        """A recorded reply that a resumed run has still to act on."""
        # A resumed run is given its own: these are everybody's, and stay empty.
        self.pending: dict[str, CallRecord] = _NO_CALLS
        """What the journal has of that reply's calls."""
        self.asides: dict[str, Reply] = _NO_REPLIES
        """Recorded wrap-ups and summaries: good until there is a new turn."""
        self.left_open: dict[str, CallRecord] = _NO_CALLS
        """Calls of that reply that have a child which is still to be taken up, by the child's id."""

    def delegates(self, calls: Sequence[Call]) -> bool:
        """Whether any of these calls asks for a child."""
        names = self.kit.delegating
        if len(calls) == 1:
            return calls[0].name in names
        return any(call.name in names for call in calls)

    def ended_child(self, outcome: Outcome) -> None:
        if not isinstance(self.children, list):
            self.children = list(self.children)
        self.children.append(outcome)

    def charge_call(self) -> ToolResult | None:
        """Count one tool call; what the model reads instead of a result when none is left."""
        over = ledger.charge(self.scope.account, 1)
        if over is None:
            return None
        return ToolResult(
            f"Not run: no tool calls are left. {over.words}. Answer with what you have.", ok=False
        )

    def tell(self, text: str, purpose: Purpose = "turn") -> None:
        """Have the runtime say something to the model."""
        message = user(text)
        self.add(message)
        self.scope.emit(MessageJoined, message=message, origin="runtime", purpose=purpose)

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.estimate += message_tokens(message)


def _output_tokens(settings: Mapping[str, Json]) -> int:
    most = settings.get("max_output_tokens")
    return most if isinstance(most, int) else OUTPUT_TOKENS


def message_tokens(message: Message) -> int:
    """A cautious estimate: what is reserved for input should not be passed by it."""
    if isinstance(message, UserMessage):
        tokens = 4
        for part in message.content:
            tokens += text_tokens(part.text) if isinstance(part, TextPart) else _media_tokens(part.data)
    elif isinstance(message, ToolMessage):
        tokens = text_tokens(message.content) + 12
        if message.note:
            tokens += text_tokens(message.note)
        for part in message.parts:
            tokens += _media_tokens(part.data)
    else:
        tokens = text_tokens(message.text) + 4
        for call in message.calls:
            tokens += text_tokens(str(call.args)) + 12
        for thought in message.thinking:
            tokens += text_tokens(thought.text)
    return tokens


def text_tokens(text: str) -> int:
    """UTF-8 bytes over three: a little above what tokenizers make of prose and code."""
    return ((len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) + 2) // 3


def _media_tokens(data: bytes) -> int:
    return max(IMAGE_TOKENS, len(data) // 100)


class RuntimeTool(Tool):
    """A tool of the runtime's own: it acts on the run itself instead of calling a function."""

    def __init__(self, name: str, *, display_name: str, tier: Tier, spec: ToolSpec) -> None:
        # Not Tool's: there is no function whose signature could be read.
        self.name = name
        self.display_name = display_name
        self.description = spec.description
        self.tier = tier
        self.timeout_s = None
        self.is_async = True
        self.spec = spec
        self.inline_chars = None
        self._describe = self._summarise = self._subjects = self._preview = self._must_ask = None
        self._paths = ()

    @abstractmethod
    async def act(self, run: Run, call_id: str, args: JsonObject) -> ToolResult:
        """Do it. Raises nothing but Stopped: what goes wrong is a result. Not for tools that delegate."""


class DelegateTool(RuntimeTool):
    """Starts a child. `engine/delegation/delegate_tools.py` has the three.

    In two steps instead of `act`: whoever waits for the child is then not woken through this tool as well.
    """

    delegates = True

    @abstractmethod
    def plan(self, run: Run, call_id: str, args: JsonObject) -> Plan | ToolResult:
        """The child that the call asks for; a result where it asks for none that could be had. Raises nothing."""

    @abstractmethod
    def report(self, run: Run, plan: Plan, done: Outcome | Rejection) -> ToolResult:
        """What the model reads of it. Raises nothing."""


@final
class Plan(Struct, frozen=True, gc=False):
    """A child as its surface wants it. Everything in it is checked; nothing in it can widen a limit."""

    agent: Agent
    prompt: UserMessage
    task: str
    """The prompt as text, for people."""
    label: str = ""
    turns: int | None = None
    """An ad hoc child's own limit."""
    summary: str = "never"
    summary_prompt: str = ""
    kit: Kit | None = None
    """An ad hoc child's tools; None: the agent's own."""
    inline_bytes: int | None = None
    """How much of the answer the parent reads inline; None: the parent's `result_chars`."""


class Delegator(Protocol):
    """Starts the children of runs."""

    def delegate(self, parent: Run, plan: Plan, call_id: str) -> Awaitable[Outcome | Rejection]:
        """Have a child do a plan for its parent's call. Raises nothing."""
        ...
