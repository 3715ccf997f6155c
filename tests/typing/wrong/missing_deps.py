"""Wrong: the agent's functions need a `Shop`, and the calls do not give one. `error` marks each line with an error."""

from __future__ import annotations

from dataclasses import dataclass

from remit import Agent, RunContext, run


@dataclass
class Shop:
    name: str


def instructions(ctx: RunContext[Shop]) -> str:
    return ctx.deps.name


helper = Agent("helper", instructions=instructions)


async def main() -> None:
    await run(helper, "go", deps=Shop("corner"))
    await run(helper, "go")  # error
    await run(helper, "go", deps="corner")  # error
