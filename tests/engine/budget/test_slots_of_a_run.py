"""Seats: a run holds its slots while anything of its own is in flight, and comes back at the front."""

from __future__ import annotations

import asyncio

import pytest

import remit.engine.budget.slots as slots
from remit.engine.budget.slots import Pool, Seat
from remit.tasks.cancel import Phase, Stopped
from remit.tasks.deadline import Alarm


def new_phase() -> Phase:
    return Phase(Alarm(asyncio.get_running_loop()))


async def seated(*pools: Pool) -> Seat:
    """A run that works."""
    await slots.wait_for(pools, new_phase())
    return Seat(pools)


async def settle() -> None:
    """Lets everything that is ready run."""
    await asyncio.sleep(0.001)


async def test_the_last_activity_gives_the_slot_back() -> None:
    """A run holds its slot as long as any of its activities is in flight."""
    pool, phase = Pool(1), new_phase()
    run = await seated(pool)
    await run.enter(phase)
    run.leave()
    assert pool.working == 1
    run.leave()
    assert pool.working == 0


async def test_one_slot_is_enough_for_a_parent_and_its_child() -> None:
    """A run that waits for its child is not working, so one slot serves both, and the parent comes back."""
    pool, phase = Pool(1), new_phase()
    parent = await seated(pool)
    parent.leave()
    child = await seated(pool)
    back = asyncio.create_task(parent.enter(phase))
    await settle()
    assert not back.done()
    child.close()
    await back
    assert pool.working == 1
    parent.close()
    assert pool.working == 0


async def test_a_returning_parent_goes_before_new_runs() -> None:
    """A returning parent takes its slot at the front of the queue."""
    pool, phase = Pool(1), new_phase()
    parent = await seated(pool)
    parent.leave()
    child = await seated(pool)
    order: list[str] = []

    async def come(name: str, *, new: bool) -> None:
        await (slots.wait_for((pool,), phase) if new else parent.enter(phase))
        order.append(name)

    tasks = [asyncio.create_task(come("new", new=True))]
    await settle()
    tasks.append(asyncio.create_task(come("parent", new=False)))
    await settle()
    child.close()
    await settle()
    parent.close()
    await asyncio.gather(*tasks)
    assert order == ["parent", "new"]


async def test_several_that_come_back_at_once_take_one_slot() -> None:
    """Calls of one run that end together share its slot."""
    pool, phase = Pool(2), new_phase()
    run = await seated(pool)
    run.leave()
    others = [await seated(pool), await seated(pool)]
    tasks = [asyncio.create_task(run.enter(phase)) for _ in range(3)]
    await settle()
    others[0].close()
    await asyncio.gather(*tasks)
    assert pool.working == 2
    others[1].close()
    assert pool.working == 1
    for _ in range(3):
        run.leave()
    assert pool.working == 0


async def test_a_run_stopped_while_it_waits_holds_no_slot() -> None:
    """A stop ends the wait for a slot at once, and the slot goes to the next run."""
    pool, phase = Pool(1), new_phase()
    worker = await seated(pool)
    waits = asyncio.create_task(slots.wait_for((pool,), phase))
    await settle()
    phase.stop()
    with pytest.raises(Stopped):
        await waits
    worker.close()
    assert pool.working == 0


async def test_a_slot_granted_in_the_same_step_as_a_stop_is_passed_on() -> None:
    """A grant and a stop in the same step leak no slot."""
    pool, phase, other = Pool(1), new_phase(), new_phase()
    worker = await seated(pool)
    stopped = asyncio.create_task(slots.wait_for((pool,), phase))
    await settle()
    following = asyncio.create_task(slots.wait_for((pool,), other))
    await settle()
    worker.close()
    phase.stop()
    with pytest.raises(Stopped):
        await stopped
    await following
    assert pool.working == 1


async def test_after_a_stop_a_run_comes_back_to_wrap_up() -> None:
    """Whatever was in flight when it was stopped, a run takes one slot for its wrap-up and gives it back."""
    pool, phase = Pool(1), new_phase()
    run = await seated(pool)
    run.leave()
    child = await seated(pool)
    coming = [asyncio.create_task(run.enter(phase)) for _ in range(2)]
    await settle()
    phase.stop()
    for task in coming:
        with pytest.raises(Stopped):
            await task
    child.close()
    await run.return_to_one(new_phase())
    assert pool.working == 1
    run.leave()
    assert pool.working == 0


async def test_closing_twice_gives_back_once() -> None:
    """The end of a run returns what it held, once."""
    pool = Pool(2)
    run, other = await seated(pool), await seated(pool)
    run.close()
    run.close()
    assert pool.working == 1
    other.close()
    assert pool.working == 0
