"""The laws in real time on uvloop, whose clock and timers have their own grain: a timer may fire half a millisecond early.

`REMIT_TREES` is the number of trees of each kind; `make torture` asks for 500.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Coroutine
from typing import TypeVar

import pytest
from random_trees import Node, check_laws, over_random_trees, pace, play

from remit import Agent, Call, Limits, ModelError, Outcome, Reply, Request, Usage, run, start, tool

uvloop = pytest.importorskip("uvloop", reason="uvloop has no wheels for Windows")

pytestmark = pytest.mark.real_time

T = TypeVar("T")

TREES = int(os.environ.get("REMIT_TREES") or 60)
AT_ONCE = 25
STUCK_S = 15.0
"""Trees here take milliseconds: one that takes this long is stuck."""

USAGE = Usage(1, 10, 5)


async def checked(work: Coroutine[object, object, T]) -> T:
    """What comes of it. Raises TimeoutError when it is stuck; afterwards nothing else is left on the loop."""
    value = await asyncio.wait_for(work, STUCK_S)
    # A task that has just ended is dropped by the loop in its next round.
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    return value


def on_uvloop(work: Coroutine[object, object, T]) -> T:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(checked(work))


async def together(works: list[Coroutine[object, object, T]]) -> list[T]:
    """Several trees at a time: most of their time is waiting."""
    found: list[T] = []
    for at in range(0, len(works), AT_ONCE):
        found += await asyncio.wait_for(asyncio.gather(*works[at : at + AT_ONCE]), STUCK_S)
    return found


class RefusedFirst:
    """A provider that refuses each run's first two requests, for a few milliseconds."""

    name = "refused-first"

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.refusals: dict[str, int] = {}

    async def reply(self, request: Request, emit: object) -> Reply:
        await asyncio.sleep(self.random.uniform(0, 0.002))
        times = self.refusals[request.run_id] = self.refusals.get(request.run_id, 0) + 1
        if times <= 2:
            raise ModelError("later", kind="rate_limit", retry_after=self.random.uniform(0.0005, 0.004))
        if request.agent == "lead" and len(request.messages) == 1:
            calls = [Call(f"c{n}", "task", {"agent": "worker", "prompt": f"{n}"}) for n in range(5)]
            return Reply(calls=tuple(calls), stop="calls", usage=USAGE)
        return Reply("done", usage=USAGE)


def test_no_run_is_stuck_behind_a_rate_limit() -> None:
    """Every run that a provider refused for a while goes on when the lane opens."""
    lead = Agent("lead", subagents=[Agent("worker")])

    async def one(seed: int) -> Outcome:
        return await run(lead, "go", model=RefusedFirst(seed), limits=Limits(seconds=None))

    for outcome in on_uvloop(together([one(seed) for seed in range(2 * TREES)])):
        assert [c.status for c in outcome.children] == ["completed"] * 5


@tool(tier="observe")
async def hang() -> str:
    """Never ends by itself."""
    await asyncio.sleep(3600)
    return "never"


class Hangs(RefusedFirst):
    """Refuses, then delegates, then has every child call a tool that hangs."""

    async def reply(self, request: Request, emit: object) -> Reply:
        said = await super().reply(request, emit)
        if request.agent == "worker":
            return Reply(calls=(Call("h", "hang", {}),), stop="calls", usage=USAGE)
        return said


def test_a_cancel_at_any_moment_ends_the_tree() -> None:
    """Law 4: cancelled in a back-off, in a lane, in a model call or in a tool, a tree ends and leaves nothing behind."""
    lead = Agent("lead", subagents=[Agent("worker", tools=[hang])])

    async def one(seed: int) -> Outcome:
        async with start(lead, "go", model=Hangs(seed), limits=Limits(seconds=None)) as running:
            await asyncio.sleep(random.Random(seed).uniform(0, 0.03))
            await running.cancel("enough")
            return await running.outcome()

    for outcome in on_uvloop(together([one(seed) for seed in range(2 * TREES)])):
        assert (outcome.status, outcome.reason) == ("cancelled", "cancelled by the caller: enough")


@pytest.mark.timeout(900)
@over_random_trees(TREES, shrink=False)
def test_laws_hold_on_random_trees_in_real_time(
    node: Node, asked: Limits, cancel_at: float | None, victim: int
) -> None:
    """The laws hold on random trees on uvloop, with all times a five-hundredth of those in virtual time."""
    token = pace.set(0.002)
    try:
        check_laws(on_uvloop(play(node, asked, cancel_at, victim)))
    finally:
        pace.reset(token)
