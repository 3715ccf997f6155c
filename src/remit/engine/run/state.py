"""The state of one run while it executes: its conversation, its model, its counts, and the calls of its turn.

`Node` (engine/tree/node.py) is the run's place in the tree; `Run` is what it does there. The loop, the model calls and the
tool calls all work on these records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

import remit.engine.budget.ledger as ledger
from remit.agent import Agent
from remit.engine.budget.model_choice import NO_MODEL, Known, window_of
from remit.engine.budget.rate_limit import Lane
from remit.engine.run.runtime_tool import Delegator, Plan
from remit.engine.run.tokens import message_tokens
from remit.engine.tree.bounds import Bounds, Kit
from remit.engine.tree.context import TreeContext
from remit.engine.tree.node import Node
from remit.history.records import CallRecord, RunRecord
from remit.tools.contexts import AllowedBy
from remit.tools.result import ToolResult
from remit.types.events import MessageJoined, Purpose
from remit.types.messages import Call, Message, Reply, user
from remit.types.outcome import Artifact, Outcome, ToolCallLog
from remit.types.sizes import TURN_CHARS

OUTPUT_TOKENS = 4096
"""The maximum output of a reply if the agent's settings set none."""

REMEMBERED_TURNS = 20

NOT_IN_FORM = "[remit] Your answer is not in the form that was asked for."
"""Start of the message to a model whose structured answer failed validation; `state_restored.py` counts these."""

NOT_ACCEPTED = "[remit] Your answer was not accepted."
"""The same for an answer that a validator rejected."""


class Talk(Struct, eq=False):
    """The conversation, and how many tokens the next request has."""

    base: int
    """Estimated tokens of the instructions and tools, which every request has."""
    tokens: int
    """Input tokens of the next request: what the provider last counted, plus an estimate of what came since."""
    messages: list[Message] = field(default_factory=list[Message])
    task_at: int = 0
    """The place of the task in the conversation."""
    text: str = ""
    """The last non-empty text that the model wrote."""
    unsummarised: int = 0
    """The size of the conversation when it last could not be summarised; 0 if that never happened."""

    def add(self, message: Message) -> None:
        self.messages.append(message)
        self.tokens += message_tokens(message)


class Asking(Struct, eq=False):
    """Which model is asked, and how."""

    place: int
    """Its place in `Bounds.models`."""
    model: Known
    lane: Lane
    window: int | None
    """The model's context window in tokens; None if unknown, or if conversations are not to be shortened."""
    output_tokens: int
    """The maximum output of a reply."""
    learnt: int | None = None
    """A context window that a provider revealed by refusing a request."""
    used: str = ""
    """The name of the model that gave the last reply."""
    last_error: str | None = None
    """The provider's error before a retry that the budget did not allow."""

    def turn_to(self, place: int, bounds: Bounds, tree: TreeContext) -> None:
        """Ask another model from now on: the one at this place in the order of preference."""
        self.place, self.model = place, bounds.models[place]
        self.window = window_of(self.model, bounds.limits, self.learnt)
        self.lane = tree.lane_of(self.model)


class Tally(Struct, eq=False):
    """The counts of a run."""

    started_at: float
    turns: int = 0
    """Ordinary turns begun; wrap-up and summary turns are not counted."""
    replies: int = 0
    calls: int = 0
    """Calls begun."""
    results_kept: int = 0
    """Long results stored as artifacts."""
    tries: int = 0
    """Answers that failed validation."""


class Turn(Struct, eq=False):
    """The calls of one reply while they run."""

    inline_chars: int = TURN_CHARS
    """The maximum of each result that the model reads."""
    delegates: bool = False
    """Whether any of the calls asks for a child."""
    size: int = 1
    """How many calls there are."""
    delegated: set[str] = field(default_factory=set[str])
    """Calls whose code asked for children."""
    no_children: str = ""
    """Why these calls may not delegate: no budget for the run's last word."""
    lends_task: bool = False
    """Whether its only call is a child that runs in this run's task."""
    contexts: dict[str, str] = field(default_factory=dict[str, str])
    """By call id: a short description."""
    allowed_by: dict[str, AllowedBy] = field(default_factory=dict[str, AllowedBy])
    """By id of a call that has not begun: why it may run, if a person or a rule with a pattern allowed it."""
    approved: dict[str, str] = field(default_factory=dict[str, str])
    """By call id: the change that only a person may approve, and that a person approved."""


class Replay(Struct, eq=False):
    """What a resumed run has still to process."""

    reply: Reply | None
    """The last recorded reply, if it has calls without results, or is the answer."""
    pending: dict[str, CallRecord]
    """What the journal has of that reply's calls, by their ids."""
    left_open: dict[str, CallRecord]
    """Calls of that reply with a child that is still to be resumed, by the child's id."""
    asides: dict[str, Reply]
    """Recorded wrap-ups and summaries, by purpose: valid until there is a new turn."""
    code: dict[str, dict[str, RunRecord]]
    """Recorded children started from code, by call and key: the code asks for them again."""
    steps: dict[str, str]
    """The recorded results of a program's steps as JSON, by name."""


class Circles(Struct, eq=False):
    """The calls of the last turns, each by its `key_of` (tool_calls.py), to detect a run that repeats itself."""

    turns: list[Iterable[int]] = field(default_factory=list[Iterable[int]])
    counts: dict[int, int] = field(default_factory=dict[int, int])

    def add(self, keys: Iterable[int]) -> None:
        """Remember a turn. Counts turns, not calls: the same call twice in one reply is not yet a repetition."""
        turn = frozenset(keys)
        self.turns.append(turn)
        for key in turn:
            self.counts[key] = self.counts.get(key, 0) + 1
        if len(self.turns) > REMEMBERED_TURNS:
            for key in self.turns.pop(0):
                self.counts[key] -= 1
                if not self.counts[key]:
                    del self.counts[key]

    def times(self, key: int) -> int:
        """In how many of the last turns this call had this result."""
        return self.counts.get(key, 0)


class Run(Struct, eq=False):
    """One run being executed."""

    node: Node
    plan: Plan
    engine: Delegator
    kit: Kit
    """Its agent's tools, with tools borrowed from sources."""
    talk: Talk
    asking: Asking
    tally: Tally
    instructions: str | None
    """None until the agent's function has written them."""
    turn: Turn = field(default_factory=Turn)
    replay: Replay | None = None
    """Only a resumed run has one."""
    circles: Circles = field(default_factory=Circles)
    looping: str = ""
    """The tool that the run called repeatedly with the same result."""
    failed_tool: str | None = None
    log: list[ToolCallLog] = field(default_factory=list[ToolCallLog])
    children: list[Outcome] = field(default_factory=list[Outcome])
    """Outcomes of the children that have ended."""
    artifacts: list[Artifact] = field(default_factory=list[Artifact])

    @property
    def agent(self) -> Agent:
        return self.plan.agent

    @property
    def reply_left(self) -> Reply | None:
        """A recorded reply that a resumed run has still to process."""
        return None if self.replay is None else self.replay.reply

    def recorded(self, call_id: str) -> CallRecord | None:
        """The record of a call in the turn that a resumed run continues."""
        return None if self.replay is None else self.replay.pending.get(call_id)

    def delegates(self, calls: Sequence[Call]) -> bool:
        """Whether any of these calls asks for a child."""
        names = self.kit.delegating
        return any(call.name in names for call in calls)

    def charge_call(self) -> ToolResult | None:
        """Count one tool call; returns the result for the model if no call is left."""
        over = ledger.charge(self.node.means.account, 1)
        if over is None:
            return None
        return ToolResult(f"Not run: {over.words}. Answer with what you have.", ok=False)

    def tell(self, text: str, purpose: Purpose = "turn") -> None:
        """Add a message of the runtime to the conversation."""
        message = user(text)
        self.talk.add(message)
        node = self.node
        node.emit(MessageJoined(*node.stamp(), message=message, origin="runtime", purpose=purpose))


def new_run(node: Node, plan: Plan, engine: Delegator, history: Sequence[Message] = ()) -> Run:
    """A new run with only its task, after the messages of an earlier conversation if there are any."""
    bounds, tree = node.bounds, node.tree
    kit, most = bounds.kit, bounds.settings.get("max_output_tokens")
    model = bounds.models[0] if bounds.models else NO_MODEL
    talk = Talk(kit.tokens, kit.tokens, task_at=len(history))
    asking = Asking(
        place=0,
        model=model,
        lane=tree.lane_of(model),
        window=window_of(model, bounds.limits, None),
        output_tokens=most if isinstance(most, int) else OUTPUT_TOKENS,
    )
    for message in (*history, plan.prompt):
        talk.add(message)
    written = plan.agent.instructions
    return Run(
        node,
        plan,
        engine,
        kit,
        talk,
        asking,
        Tally(tree.clock()),
        instructions=written if isinstance(written, str) else None,
    )
