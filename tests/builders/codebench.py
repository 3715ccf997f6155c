"""What the tests of delegating from code share: a tool or a program made of a function, and a tree with its events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from remit import (
    Agent,
    Limits,
    Outcome,
    ProgramContext,
    Rejection,
    ToolContext,
    ToolMessage,
    start,
    tool,
)
from remit.events import AnyEvent
from remit.testing import ScriptedModel, call, say
from remit.testing.scripted import Script
from remit.tools.tool import Tool
from remit.types.events import DelegationRejected, RunStarted, TurnStarted

WORKER = Agent("worker", description="Works.")

Result = Outcome | Rejection
AsyncCode = Callable[[ToolContext], Awaitable[object]]


def tool_of(work: AsyncCode, *, name: str = "code", tier: Literal["observe", "confirm"] = "observe") -> Tool:
    """A tool without arguments whose code is the function."""

    async def code(ctx: ToolContext) -> object:
        """Run code."""
        return await work(ctx)

    return tool(code, name=name, tier=tier)


def sync_tool_of(work: Callable[[ToolContext], object], *, name: str = "code") -> Tool:
    def code(ctx: ToolContext) -> object:
        """Run code in a thread."""
        return work(ctx)

    return tool(code, name=name, tier="observe")


def lead_of(*tools: Tool, subagents: Sequence[Agent] = (), limits: Limits | None = None) -> Agent:
    return Agent("lead", tools=tools, subagents=subagents, limits=limits)


def program_of(
    work: Callable[[ProgramContext], Awaitable[Any]],
    *,
    name: str = "program",
    subagents: Sequence[Agent] = (),
    limits: Limits | None = None,
) -> Agent:
    return Agent(name, program=work, subagents=subagents, limits=limits)


ONE_CALL: Script = (call("code"), say("done"))


def script(worker: Script = lambda _: say("ok"), lead: Script = ONE_CALL, **others: Script) -> ScriptedModel:
    """A lead that calls `code` once and answers, and workers that say "ok"."""
    return ScriptedModel({"lead": lead, "worker": worker, **others})


@dataclass
class Played:
    """A tree that has ended."""

    outcome: Outcome
    events: list[AnyEvent]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def started(self) -> list[RunStarted]:
        """The children."""
        return [event for event in self.of(RunStarted) if event.parent is not None]

    @property
    def rejected(self) -> list[DelegationRejected]:
        return self.of(DelegationRejected)

    @property
    def requests(self) -> int:
        return len(self.of(TurnStarted))


async def play(
    agent: Agent, model: ScriptedModel | None, limits: Limits | None = None, **options: Any
) -> Played:
    async with start(agent, "go", model=model, limits=limits, **options) as running:
        events = [event async for event in running.events()]
        return Played(await running.outcome(), events)


def statuses(results: Sequence[Result]) -> list[str]:
    """The status of each outcome, the kind of each rejection."""
    return [one.kind if isinstance(one, Rejection) else str(one.status) for one in results]


def results(outcome: Outcome) -> list[str]:
    """What the model read of its calls."""
    return [message.content for message in outcome.messages if isinstance(message, ToolMessage)]


def args_of(**named: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", named)
