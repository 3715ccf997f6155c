"""Types that survive: what type checkers know about agents, outcomes and contexts. Checked, never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_type

from pydantic import BaseModel

from remit import (
    Agent,
    Outcome,
    ProgramContext,
    Rejection,
    Retry,
    RunContext,
    ToolContext,
    reopen,
    resume,
    run,
    run_sync,
    start,
    tool,
)


@dataclass
class Shop:
    name: str


class Report(BaseModel):
    title: str


def instructions(ctx: RunContext[Shop]) -> str:
    return f"You work for {ctx.deps.name}."


def has_title(report: Report, ctx: RunContext[Shop]) -> None:
    if not report.title:
        raise Retry("Write a title.")


@tool(tier="observe")
async def look(path: str, ctx: ToolContext[Shop]) -> str:
    """Looks."""
    assert_type(ctx.deps, Shop)
    found = await ctx.delegate(writer, path)
    assert_type(found, Outcome[Report] | Rejection)
    assert_type(await ctx.map(plain, [path]), list[Outcome[None] | Rejection])
    return path


plain = Agent("plain")
writer = Agent("writer", output=Report, instructions=instructions, validators=[has_title])
lister = Agent("lister", output=list[int])
lead: Agent[Shop, Report] = Agent("lead", output=Report, tools=[look], subagents=[plain, writer])


async def review(ctx: ProgramContext[Shop]) -> Report:
    found = await ctx.delegate(lister, ctx.deps.name)
    return Report(title=str(found.output) if isinstance(found, Outcome) else found.reason)


async def shout(ctx: ProgramContext) -> str:
    return ctx.task.upper()


reviewer = Agent("reviewer", program=review)
shouter = Agent("shouter", program=shout)


async def every_way_in(shop: Shop) -> None:
    assert_type(await run(plain, "go"), Outcome[None])
    assert_type(await run(writer, "go", deps=shop), Outcome[Report])
    assert_type((await run(writer, "go", deps=shop)).output, Report | None)
    assert_type((await run(lister, "go", deps=3)).output, list[int] | None)
    assert_type(
        (await run(lead, "go", deps=shop, store="sqlite:///runs.db")).raise_for_status(), Outcome[Report]
    )
    assert_type(await run(reviewer, "go", deps=shop), Outcome[Report])
    assert_type(await run(shouter, "go"), Outcome[None])
    assert_type(await resume("sqlite:///runs.db", "id", agent=writer, deps=shop), Outcome[Report])
    async with start(writer, "go", deps=shop) as running:
        assert_type(await running.outcome(), Outcome[Report])
    async with reopen("sqlite:///runs.db", "id", agent=lister) as again:
        assert_type(await again.outcome(), Outcome[list[int]])


def anything(agent: Agent, outcome: Outcome) -> str:
    return agent.name + outcome.text


def sync(shop: Shop) -> str:
    outcome = run_sync(writer, "go", deps=shop)
    assert_type(outcome, Outcome[Report])
    return anything(writer, outcome)
