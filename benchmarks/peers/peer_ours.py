"""remit in the comparison of frameworks: public names only, every limit set.

The limits are high enough for the work and are all checked: a turn reserves requests, tokens and money in its own
account and in every ancestor's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from common import SYSTEM_CHILD, SYSTEM_PARENT  # pyright: ignore[reportMissingImports]

from remit import Agent, Call, Limits, Price, Reply, Request, ToolMessage, Usage, run, tool
from remit.types.messages import Message
from remit.types.ports import Store

DIST = "remit"
IMPORT = "from remit import Agent, Limits, run, tool"

LIMITS = Limits(
    depth=10,
    delegations=1_000_000,
    requests=1_000_000,
    tokens=10_000_000_000,
    usd=1_000_000.0,
    calls=1_000_000,
    seconds=3600,
    concurrency=20_000,
    turns=1000,
    call_seconds=120,
    stall_seconds=180,
    result_chars=8000,
)
USED = Usage(requests=1, input_tokens=1, output_tokens=1, usd=0.0)

Run = Callable[[], Awaitable[str]]


def new_store() -> Store | None:
    """The journal of a workload; `peer_ours_journal.py` replaces this function."""
    return None


class Brain(Protocol):
    """The script of the comparison."""

    async def step(
        self, messages: Sequence[Message], results: Callable[[Sequence[Message]], list[str]]
    ) -> str | list[tuple[str, str, str]]: ...


def results(messages: Sequence[Message]) -> list[str]:
    return [message.text for message in messages if isinstance(message, ToolMessage)]


class Scripted:
    """A model that plays a brain; `below` is the agent to delegate to, or None to call `echo`."""

    name = "scripted"
    price = Price(1.0, 1.0)

    def __init__(self, brain: Brain, below: str = "") -> None:
        self.brain = brain
        self.below = below

    async def reply(self, request: Request, emit: object) -> Reply:
        del emit
        said = await self.brain.step(request.messages, results)
        if isinstance(said, str):
            return Reply(said, usage=USED)
        return Reply("", tuple([self._call(*one) for one in said]), stop="calls", usage=USED)

    def _call(self, call_id: str, name: str, value: str) -> Call:
        if self.below:
            return Call(call_id, "task", {"agent": self.below, "prompt": value})
        return Call(call_id, name, {"text": value})


@tool(name="echo", tier="observe")
async def echo_tool(text: str) -> str:
    """Echo the text."""
    return text


def echo(brain: Brain) -> Run:
    return _run(Agent("agent", instructions=SYSTEM_PARENT, tools=[echo_tool], model=Scripted(brain)))


def fanout(parent: Brain, child: Brain) -> Run:
    return chain([parent, child])


def chain(brains: Sequence[Brain]) -> Run:
    last = len(brains) - 1
    agent = Agent(f"agent{last}", instructions=SYSTEM_CHILD, model=Scripted(brains[last]))
    for level in range(last - 1, -1, -1):
        model = Scripted(brains[level], below=agent.name)
        agent = Agent(f"agent{level}", instructions=SYSTEM_PARENT, subagents=[agent], model=model)
    return _run(agent)


def _run(agent: Agent) -> Run:
    store = new_store()

    async def go() -> str:
        return (await run(agent, "go", limits=LIMITS, store=store)).text

    return go
