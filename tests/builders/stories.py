"""Trees that are resumed: stateless scripts, tools, and processes that died at a given event."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from remit import Outcome, Request, tool
from remit.history.fold import fold
from remit.history.records import Tree
from remit.stores.memory import MemoryStore
from remit.testing import wrapped
from remit.testing.scripted import Line
from remit.types.events import ArtifactSaved, Event
from remit.types.messages import AssistantMessage

DAY_S = 86_400.0


def by_turn(*steps: Line, wrap: Line = "in short") -> Callable[[Request], Line]:
    """A stateless script: the step depends on the number of replies of the run."""

    def play(request: Request) -> Line:
        if request.tool_choice == "none":
            return wrapped(wrap) if isinstance(wrap, str) else wrap
        return steps[sum(isinstance(m, AssistantMessage) for m in request.messages)]

    return play


@tool(tier="observe")
async def look(what: str) -> str:
    """Looks."""
    return f"saw {what}"


@tool(tier="observe")
async def stare(seconds: float) -> str:
    """Takes long to look."""
    await asyncio.sleep(seconds)
    return "saw it all"


@tool
async def change(what: str) -> str:
    """Changes something."""
    return f"changed {what}"


async def journal(store: MemoryStore, root: str = "r1") -> list[Event]:
    return [event async for event in store.read(root)]


async def folded(store: MemoryStore) -> Tree:
    return fold(await journal(store))


def timeless(outcome: Outcome) -> Outcome:
    below = tuple(timeless(child) for child in outcome.children)
    return msgspec.structs.replace(outcome, duration_s=0.0, output=None, children=below)


def a(kind: type[Event], **fields: object) -> Callable[[Event], bool]:
    """Matches events of a kind by some of their fields."""
    return lambda e: isinstance(e, kind) and all(getattr(e, k) == v for k, v in fields.items())


async def died(store: MemoryStore, last: Callable[[Event], bool], times: int = 1) -> MemoryStore:
    """The store of a process that died right after the n-th event that `last` matches."""
    left, dead = times, MemoryStore()
    await dead.claim("r1", new=True)
    for event in await journal(store):
        dead.append(event)
        if isinstance(event, ArtifactSaved):
            text = await store.load_artifact("r1", event.artifact.id, 0, 1_000_000)
            await dead.save_artifact("r1", event.artifact.id, text or "")
        left -= last(event)
        if not left:
            await dead.release("r1")
            return dead
    raise AssertionError("it never got that far")
