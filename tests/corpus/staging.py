"""How the trees of the corpus are run: tools, scripts without a memory, and a stage that keeps every event."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from parts import Decision, Line, MemoryStore

from remit import (
    Agent,
    ApprovalRequest,
    Approver,
    AssistantMessage,
    Event,
    Model,
    Outcome,
    Request,
    Running,
    ToolContext,
    allow,
    deny,
    start,
    tool,
)
from remit.testing import wrapped


class Stage:
    """Runs one tree in a store in memory and keeps everything that can be seen of it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.events: list[Event] = []
        """As `Running.events()` gives them, with those that are never stored."""
        self.outcome: Outcome | None = None

    async def run(
        self,
        agent: Agent,
        *,
        model: Model | Sequence[Model],
        task: Any = "go",
        drive: Callable[[Running], Awaitable[object]] | None = None,
        **options: Any,
    ) -> None:
        """Run a tree to its end. `drive` acts on it from outside while it runs."""
        async with start(agent, task, model=model, store=self.store, **options) as running:
            # Before the tree takes its first step, so that no live event is missed.
            reader = running.events()
            watching = asyncio.create_task(self._watch(reader))
            if drive is not None:
                await drive(running)
            self.outcome = await running.outcome()
            await watching

    async def _watch(self, reader: Any) -> None:
        async for event in reader:
            self.events.append(event)

    async def stored(self) -> list[Event]:
        """What the store has of the tree."""
        return [event async for event in self.store.read("r1")]


def by_turn(*steps: Line, wrap: Line = "in short") -> Callable[[Request], Line]:
    """A script without a memory: the step follows from how often the run has spoken."""

    def play(request: Request) -> Line:
        if request.tool_choice == "none":
            return wrapped(wrap) if isinstance(wrap, str) else wrap
        return steps[sum(isinstance(message, AssistantMessage) for message in request.messages)]

    return play


def by_task(**scripts: Callable[[Request], Line]) -> Callable[[Request], Line]:
    """For runs of one agent that differ in their task: the script of the task's first word."""
    return lambda request: scripts[request.messages[0].text.split()[0]](request)


def answering(*decisions: Decision, after_s: float = 60.0) -> Approver:
    """A person who gives these answers, one a minute, and then says no."""
    left = list(decisions)

    async def person(request: ApprovalRequest) -> Decision:
        await asyncio.sleep(after_s)
        return left.pop(0) if left else deny(f"no more of {request.tool}")

    return person


def always(**options: Any) -> Approver:
    async def person(request: ApprovalRequest) -> Decision:
        del request
        return allow(**options)

    return person


async def pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


@tool(tier="observe")
async def look(what: str) -> str:
    """Look at something for a second."""
    await asyncio.sleep(1)
    return f"saw {what}"


@tool(tier="observe")
async def stare(seconds: float, ctx: ToolContext) -> str:
    """Look for long, and say so."""
    ctx.emit(f"staring for {seconds:g} s")
    await asyncio.sleep(seconds)
    return "saw it all"


@tool(tier="observe")
async def count(letters: str) -> dict[str, int]:
    """Count letters."""
    return {letter: letters.count(letter) for letter in sorted(set(letters))}


@tool
async def change(what: str) -> str:
    """Change something for two seconds."""
    await asyncio.sleep(2)
    return f"changed {what}"


@tool(display_name="Publish a page")
async def publish(page: str, urgent: bool = False) -> str:
    """Put a page on the web site."""
    return f"{page} is public{' at once' if urgent else ''}"


@tool(tier="observe", inline_chars=600)
async def print_long(lines: int) -> str:
    """Print many lines."""
    return "\n".join(f"line {number} of {lines}" for number in range(1, lines + 1))


@tool(tier="observe")
async def explode(how: str) -> str:
    """Fail."""
    raise ValueError(f"no {how} today")


@tool(tier="observe", timeout_s=5)
async def dawdle(seconds: float) -> str:
    """Take longer than it may."""
    await asyncio.sleep(seconds)
    return "at last"
