"""Maps over many children under a small budget: exact, in order, and the run still answers."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from codebench import (
    WORKER,
    Played,
    lead_of,
    play,
    program_of,
    results,
    script,
    statuses,
    sync_tool_of,
    tool_of,
)

from remit import Limits, Outcome, ProgramContext, Rejection, Request, ToolContext
from remit.testing import say
from remit.testing.scripted import Line
from remit.types.events import CallProgressed, RunEnded, RunStarted

MANY = 200


def worker(request: Request) -> Line:
    """A worker whose delay depends on its number, so that workers end out of order."""
    number = int(request.messages[0].text)
    return say(f"{number}", delay=1 + number % 7 / 10)


def in_order(found: list[Outcome | Rejection]) -> bool:
    return all(one.text == f"{n}" for n, one in enumerate(found) if one.ok)


def check_books(played: Played, *, done: int) -> None:
    """Exactly 50 requests, in events and in the outcome; every child that started has one end."""
    assert played.requests == played.outcome.total_usage.requests == 50
    assert Counter(e.run for e in played.of(RunStarted)) == Counter(e.run for e in played.of(RunEnded))
    assert sum(one.ok for one in played.outcome.children) == done


@pytest.mark.parametrize(("concurrency", "peak"), [(8, 8), (1, 1)])
async def test_a_tool_maps_over_200_children_under_50_requests(concurrency: int, peak: int) -> None:
    """200 children under `requests=50`: 50 model calls in all, every item has its result in order, and the lead answers."""
    own_work = 0

    async def work(ctx: ToolContext) -> str:
        async def beside() -> None:
            nonlocal own_work
            while True:
                await asyncio.sleep(0.5)
                own_work += 1
                ctx.emit(f"tick {own_work}")

        task = asyncio.create_task(beside())
        found = await ctx.map(WORKER, [f"{n}" for n in range(MANY)])
        task.cancel()
        kinds = Counter(statuses(found))
        assert in_order(found)
        assert len(found) == MANY
        assert set(kinds) <= {"completed", "over_budget", "budget"}
        return f"{kinds['completed']} of {kinds.total()}"

    model = script(worker)
    limits = Limits(requests=50, concurrency=concurrency, delegations=None)
    played = await play(lead_of(tool_of(work)), model, limits)
    assert results(played.outcome) == ["48 of 200"]
    assert (played.outcome.text, model.peak) == ("done", peak)
    check_books(played, done=48)
    assert own_work > 10
    assert len(played.of(CallProgressed)) == own_work
    assert len(played.rejected) == 20


async def test_a_sync_tool_maps_over_200_children() -> None:
    """200 children under `requests=50` from the thread of a sync tool, one child at a time: 50 model calls in all."""

    def work(ctx: ToolContext) -> str:
        found = ctx.map_sync(WORKER, [f"{n}" for n in range(MANY)])
        assert in_order(found)
        return f"{Counter(statuses(found))['completed']} of {len(found)}"

    model = script(worker)
    limits = Limits(requests=50, concurrency=1, delegations=None)
    played = await play(lead_of(sync_tool_of(work)), model, limits)
    assert results(played.outcome) == ["48 of 200"]
    assert (played.outcome.text, model.peak) == ("done", 1)
    check_books(played, done=48)


async def test_a_program_maps_over_200_children() -> None:
    """200 children of a program under `requests=50`: the children get all 50, because a program has no last word."""

    async def work(ctx: ProgramContext) -> str:
        found = await ctx.map(WORKER, [f"{n}" for n in range(MANY)])
        assert in_order(found)
        return f"{Counter(statuses(found))['completed']} of {len(found)}"

    model = script(worker)
    played = await play(program_of(work), model, Limits(requests=50, concurrency=8, delegations=None))
    assert (played.outcome.text, model.peak) == ("50 of 200", 8)
    check_books(played, done=50)
