"""Tools that act on the run itself, and the plan of a child that such a tool asks for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol, final

from msgspec import Struct

from remit.agent import Agent
from remit.engine.tree.bounds import Kit
from remit.tools.result import ToolResult
from remit.tools.tool import Tier, Tool
from remit.types.messages import JsonObject, ToolSpec, UserMessage
from remit.types.outcome import Outcome, Rejection

if TYPE_CHECKING:
    from remit.engine.run.state import Run
    from remit.engine.tree.node import Node
    from remit.history.records import RunRecord
    from remit.tasks.cancel import Phase


class RuntimeTool(Tool):
    """A tool that acts on the run itself instead of calling a function."""

    def __init__(self, name: str, *, display_name: str, tier: Tier, spec: ToolSpec) -> None:
        # Tool.__init__ is not called: it reads a function's signature, and there is no function.
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
        """Run the call. Raises only Stopped: a failure is a result. Not used for tools that delegate."""


class DelegateTool(RuntimeTool):
    """Starts a child. The three tools are in `engine/delegation/delegate_tools.py`.

    It has two steps instead of `act`, so that the call awaits the child directly.
    """

    delegates = True

    @abstractmethod
    def plan(self, run: Run, call_id: str, args: JsonObject) -> Plan | ToolResult:
        """The child that the call asks for, or a failed result if the arguments are invalid. Raises nothing."""

    @abstractmethod
    def report(self, run: Run, plan: Plan, done: Outcome | Rejection) -> ToolResult:
        """The result that the parent's model reads. Raises nothing."""


@final
class Plan(Struct, frozen=True, gc=False):
    """A child as its delegate tool asks for it. Everything in it is checked; nothing in it can widen a limit."""

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


class Delegation(Struct, eq=False):
    """One request for a child, from a model's call or from code."""

    parent: Run
    plan: Plan
    call: str
    """The id of the parent's call; empty if the parent is a program."""
    phase: Phase
    """Ends the waits of the request, until the child has started."""
    key: str = ""
    """Not empty if code asks: the child's name among the children of the same call or program."""
    late: bool = False
    """Whether it waited for a place until there was no time left for the child."""
    record: RunRecord | None = None
    """What the journal has of the child, if the child is resumed."""
    node: Node | None = None
    """The child, once it has started."""

    def stop(self, by: str, reason: str) -> None:
        """Stop the child, or its wait for a slot."""
        if self.node is None:
            self.phase.stop()
        else:
            self.node.life.cancel(by, reason)


class Delegator(Protocol):
    """Starts the children of runs."""

    def recall(self, delegation: Delegation) -> Outcome | None:
        """The recorded outcome of a child that is not resumed; None for any other child."""
        ...

    def decline(self, delegation: Delegation, rejection: Rejection) -> Outcome | Rejection:
        """The rejection of a child; for one that the journal has and that cannot be resumed, what is recorded of it."""
        ...

    def refused(self, delegation: Delegation) -> Rejection | None:
        """Why the child cannot start, as far as known before it waits for a slot."""
        ...

    def give_up(self, parent: Run, call: str) -> list[Outcome]:
        """Add the recorded children that a call or program did not ask for again, and return their outcomes."""
        ...

    def delegate(self, delegation: Delegation) -> Awaitable[Outcome | Rejection]:
        """Run the plan in a child. Raises nothing."""
        ...
