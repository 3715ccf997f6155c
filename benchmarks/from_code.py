"""The CPU time of a child that code delegates, against a child that a model delegates.

    .venv/bin/python benchmarks/from_code.py [--rounds 9]

Each tree has 1,000 children that answer at once. The trees alternate, so that a busy machine is busy for all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path

from own import USED, Go, Scripted, Shape, agent_of, at_least_one, echo, limits, spent

from remit import Agent, Call, ProgramContext, Reply, Request, ToolContext, run, tool
from remit.stores import open_store
from remit.types.ports import Store

CHILDREN = 1000
PROMPTS = [f"part {n} " for n in range(CHILDREN)]
SHAPE = Shape((CHILDREN,))
CHILD = Agent("level1", instructions="Do your part.", tools=[echo])
"""The same agent that the model's `task` starts."""


class CallsOnce:
    """A lead that calls the tool once and then answers; its children answer at once."""

    name = "scripted"
    price = Scripted.price

    async def reply(self, request: Request, emit: object) -> Reply:
        del emit
        if request.depth == 0 and len(request.messages) == 1:
            return Reply("", (Call("c1", "survey", {}),), stop="calls", usage=USED)
        return Reply("done", usage=USED)


@tool(tier="observe")
async def survey(ctx: ToolContext) -> str:
    """Map over the parts."""
    return f"{sum(one.ok for one in await ctx.map(CHILD, PROMPTS))}"


async def program(ctx: ProgramContext) -> str:
    return f"{sum(one.ok for one in await ctx.map(CHILD, PROMPTS))}"


KINDS = {
    "a model's task": (agent_of(SHAPE), Scripted(SHAPE)),
    "a tool's map": (Agent("lead", tools=[survey]), CallsOnce()),
    "a program's map": (Agent("lead", program=program), CallsOnce()),
}


def go_of(kind: str, store: Store | None) -> Go:
    agent, model = KINDS[kind]

    async def go() -> None:
        outcome = await run(agent, "go", model=model, limits=limits(SHAPE), store=store)
        outcome.raise_for_status()
        assert len(outcome.children) == CHILDREN, outcome.text
        assert all(one.ok for one in outcome.children)

    return go


async def measure(rounds: int, store: Store | None) -> dict[str, float]:
    """Microseconds of CPU per child, medians."""
    works = {kind: go_of(kind, store) for kind in KINDS}
    seen: dict[str, list[float]] = {kind: [] for kind in works}
    for go in works.values():
        await go()
    for _ in range(rounds):
        for kind, go in works.items():
            seen[kind].append((await spent(go))[0] * 1e3 / CHILDREN)
    return {kind: statistics.median(some) for kind, some in seen.items()}


async def main(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{Path(folder, 'runs.db')}")
        plain, kept = await measure(rounds, None), await measure(rounds, store)
        await store.close()
    first = next(iter(KINDS))
    print(f"CPU per child, medians of {rounds}:")
    for kind in KINDS:
        ratio, kept_ratio = plain[kind] / plain[first], kept[kind] / kept[first]
        print(
            f"  {kind:16} {plain[kind]:6.0f} us ({ratio:.2f}x), with SQLite {kept[kind]:6.0f} us ({kept_ratio:.2f}x)"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=at_least_one, default=9, help="medians of so many")
    asyncio.run(main(parser.parse_args().rounds))
