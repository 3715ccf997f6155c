"""Random trees whose runs delegate from code: programs and tools that map, gather, time out, raise and leave children open."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import strategies as st
from random_trees import DELAYS, Told

from remit import (
    Agent,
    Call,
    Limits,
    Outcome,
    ProgramContext,
    Rejection,
    Reply,
    Request,
    ToolContext,
    Usage,
    start,
    tool,
)
from remit.types.events import Event, RunStarted
from remit.types.messages import ToolMessage
from remit.types.ports import Emit, Store

WAYS = ("map", "map", "gather", "in turn", "timeout", "leave", "twice")
ENDS = ("return", "return", "return", "raise", "empty")


@dataclass
class Part:
    """One run: a model that calls a tool, or a program. Both run the same code over their children."""

    program: bool
    way: str
    end: str
    delay: float
    children: list[Part] = field(default_factory=list["Part"])


def parts(depth: int, ways: tuple[str, ...] = WAYS, ends: tuple[str, ...] = ENDS) -> st.SearchStrategy[Part]:
    below = st.lists(parts(depth - 1, ways, ends), max_size=4) if depth else st.just(list[Part]())
    return st.builds(
        Part,
        program=st.booleans(),
        way=st.sampled_from(ways),
        end=st.sampled_from(ends),
        delay=st.sampled_from(DELAYS),
        children=below,
    )


@dataclass
class CodeWorld:
    """The random tree as a model. The prompt of a run is the key of its part."""

    parts: dict[str, Part] = field(default_factory=dict[str, Part])
    sent: int = 0
    in_flight: int = 0
    name: str = "world"

    def register(self, part: Part, key: str) -> None:
        self.parts[key] = part
        for number, child in enumerate(part.children):
            self.register(child, f"{key}.{number}")

    async def reply(self, request: Request, emit: Emit) -> Reply:
        del emit
        self.sent += 1
        self.in_flight += 1
        try:
            key = request.messages[0].text
            part, usage = self.parts[key], Usage(1, len(request.messages) * 10, 20)
            await asyncio.sleep(part.delay)
            answers = [m.content for m in request.messages if isinstance(m, ToolMessage)]
            if part.children and not answers and request.tool_choice != "none":
                return Reply("", (Call("c1", "code", {"key": key}),), stop="calls", usage=usage)
            return Reply(f"{key}: {' '.join(answers)}", usage=usage)
        finally:
            self.in_flight -= 1


Context = ToolContext | ProgramContext
Result = Outcome | Rejection


async def delegate(ctx: Context, world: CodeWorld, key: str) -> str:
    """Run the children of a part in its way, then end in its way."""
    part = world.parts[key]
    items = [(agent_of(world, child), f"{key}.{n}") for n, child in enumerate(part.children)]
    found = await _results(ctx, part.way, items)
    if part.end == "raise":
        raise ValueError("broken")
    return "" if part.end == "empty" else f"[{' '.join(one.text for one in found if one.ok)}]"


async def _results(ctx: Context, way: str, items: list[tuple[Agent, str]]) -> list[Result]:
    if way == "in turn":
        return [await ctx.delegate(*item) for item in items]
    if way == "map":
        kinds = {agent.name: agent for agent, _ in items}
        found = [await ctx.map(kinds[name], [k for a, k in items if a.name == name]) for name in kinds]
        return [one for some in found for one in some]
    tasks = [asyncio.ensure_future(ctx.delegate(*item)) for item in items]
    if way == "leave":
        await asyncio.sleep(0.05)
        return []
    if way == "timeout":
        done, still_open = await asyncio.wait(tasks, timeout=1.0) if tasks else (set(), set())
        for task in still_open:
            task.cancel()
        return [task.result() for task in tasks if task in done]
    found = [await task for task in tasks]
    if way == "twice":
        found += [await ctx.delegate(*item) for item in items[:1]]
    return found


def agent_of(world: CodeWorld, part: Part) -> Agent:
    if part.program:

        async def program(ctx: ProgramContext) -> str:
            await asyncio.sleep(part.delay)
            return await delegate(ctx, world, ctx.task) or ""

        return Agent("program", program=program)

    @tool(tier="observe")
    async def code(key: str, ctx: ToolContext) -> str:
        """Delegate."""
        return await delegate(ctx, world, key)

    return Agent("worker", tools=[code])


async def play(
    part: Part, asked: Limits, cancel_at: float | None, victim: int, store: Store | None = None
) -> Told:
    world = CodeWorld()
    world.register(part, "root")
    events: list[Event] = []
    async with start(agent_of(world, part), "root", model=world, limits=asked, store=store) as running:

        async def read() -> None:
            async for event in running.events():
                # Appended one by one: the cancel below reads the runs that have started so far.
                events.append(event)  # noqa: PERF401

        reader = asyncio.get_running_loop().create_task(read())
        if cancel_at is not None:
            await asyncio.sleep(cancel_at)
            started = [e.run for e in events if isinstance(e, RunStarted)]
            await running.cancel("random", run=started[victim % len(started)] if started else None)
        outcome = await running.outcome()
        await reader
    return Told(outcome, events, world, asked)  # pyright: ignore[reportArgumentType] - both worlds count alike
