"""Virtual time: how the clock moves, and how a hanging test is stopped."""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from collections.abc import Callable, Coroutine

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

import remit.tasks.threads as threads
from remit.testing import VirtualTimeLoop, fixed_ids, run_virtual
from remit.types.ports import new_root_id


def now() -> float:
    return asyncio.get_running_loop().time()


async def sleeps(delays: list[float]) -> list[float]:
    seen: list[float] = []

    async def one(delay: float) -> None:
        await anyio.sleep(delay)
        seen.append(now())

    async with anyio.create_task_group() as group:
        for delay in delays:
            group.start_soon(one, delay)
    return seen


async def test_async_tests_run_in_virtual_time(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    """An async test gets a virtual loop and its fixtures."""
    assert isinstance(asyncio.get_running_loop(), VirtualTimeLoop)
    assert tmp_path is not None
    assert capsys.readouterr().out == ""


@pytest.mark.real_time
async def test_marked_tests_run_in_real_time() -> None:
    """The marker `real_time` gives an async test an ordinary loop."""
    assert not isinstance(asyncio.get_running_loop(), VirtualTimeLoop)


async def test_the_clock_moves_only_when_nothing_is_ready() -> None:
    """Time does not move while callbacks are ready to run."""
    for _ in range(100):
        await asyncio.sleep(0)
    assert now() == 0


async def test_a_million_seconds_do_not_drift() -> None:
    """A sleep ends exactly at its timer, however long it is."""
    for expected in range(1000, 1_000_001, 1000):
        await anyio.sleep(1000)
        assert now() == expected
    await anyio.sleep_until(1e15)
    assert now() == 1e15


async def test_timers_fire_at_times_where_floats_are_coarse() -> None:
    """A timer far in the future fires although floats cannot express the clock's resolution there."""
    await asyncio.sleep(3e9 + 0.1)
    before = now()
    await asyncio.sleep(0.1)
    assert before < now() < before + 0.2


async def test_a_deadline_further_than_a_day_is_reached() -> None:
    """asyncio's limit on one wait has no effect."""
    with anyio.move_on_after(10 * 86400) as scope:
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert now() == 10 * 86400


@given(st.lists(st.floats(0, 1e6), max_size=20))
def test_two_runs_see_the_same_times(delays: list[float]) -> None:
    """Timers fire in order at exactly their time, in every run."""
    first = run_virtual(sleeps, delays)
    assert first == run_virtual(sleeps(delays))
    assert len(first) == len(delays)
    assert all(abs(a - b) <= 1e-9 for a, b in zip(first, sorted(delays), strict=True))


async def test_a_deadline_ends_a_sleep() -> None:
    """Deadlines of anyio and asyncio use the virtual clock."""
    with anyio.move_on_after(5):
        await anyio.sleep(60)
    assert now() == 5
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.sleep(60), 5)
    assert now() == 10


async def test_the_wall_clock_follows() -> None:
    """`wall` is `EPOCH` plus virtual time."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    before = loop.wall()
    await anyio.sleep(90)
    assert (before, loop.wall()) == (1_800_000_000.0, 1_800_000_090.0)


async def test_time_waits_for_a_thread() -> None:
    """A job that ends soon takes no virtual time, although a timer waits."""
    for _ in range(20):
        job = threads.start(lambda: time.sleep(0.001), asyncio.get_running_loop())
        with anyio.fail_after(1):
            await job.wait()
    assert now() == 0


async def test_a_blocked_thread_does_not_stop_time() -> None:
    """After a short grace period the clock jumps although a job is running; it does not wait for abandoned jobs."""
    gate = threading.Event()
    job = threads.start(gate.wait, asyncio.get_running_loop())
    with anyio.move_on_after(120) as scope:
        await job.wait()
    job.abandon()
    assert scope.cancelled_caught
    assert now() == 120
    for _ in range(200):
        await anyio.sleep(1)
    gate.set()


async def for_ever() -> None:
    await anyio.Event().wait()


def run_stuck(main: Callable[[], Coroutine[object, object, None]]) -> None:
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(stuck_s=0.02)) as runner:
        runner.run(main())


def test_a_deadlock_is_an_error() -> None:
    """With nothing scheduled and no thread running, the test fails with a list of tasks and their places."""
    with pytest.raises(RuntimeError, match="nothing is scheduled, and every task waits") as caught:
        run_stuck(for_ever)
    assert "Event.wait" in str(caught.value)


def test_an_endless_sleep_is_a_deadlock() -> None:
    """A timer at infinity does not count as a timer."""
    with pytest.raises(RuntimeError, match="nothing is scheduled"):
        run_stuck(lambda: asyncio.sleep(math.inf))


def test_a_stuck_task_is_cancelled() -> None:
    """The tasks of a deadlocked test can clean up."""
    cleaned: list[str] = []

    async def tidy() -> None:
        try:
            await for_ever()
        finally:
            cleaned.append("yes")

    with pytest.raises(RuntimeError, match="nothing is scheduled"):
        run_stuck(tidy)
    assert cleaned == ["yes"]


def test_the_loop_waits_for_a_thread_without_a_timer() -> None:
    """With nothing scheduled but a job running, the loop waits for the job."""
    seen: list[object] = []

    async def main() -> None:
        job = threads.start(lambda: time.sleep(0.06) or "done", asyncio.get_running_loop())
        await job.wait()
        seen.extend((job.result(), now()))

    run_stuck(main)
    assert seen == ["done", 0]


def test_a_run_without_end_is_stopped() -> None:
    """After the real timeout, TimeoutError names the tasks that are alive, and they can clean up."""
    cleaned: list[str] = []

    async def again_and_again() -> None:
        try:
            for _ in itertools.count():
                await anyio.sleep(1)
        finally:
            await asyncio.sleep(0)
            cleaned.append("yes")

    with pytest.raises(TimeoutError, match="again_and_again"):
        run_virtual(again_and_again, timeout_s=0.02)
    with (
        pytest.raises(TimeoutError, match=r"after 0\.02 real seconds"),
        asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(timeout_s=0.02)) as runner,
    ):
        runner.run(again_and_again())
    assert cleaned == ["yes", "yes"]


def test_a_task_left_alive_fails_the_run() -> None:
    """A task that outlives the main task is an error, unless it is allowed."""
    cancelled: list[str] = []

    async def straggle() -> None:
        try:
            await for_ever()
        except asyncio.CancelledError:
            cancelled.append("yes")
            raise

    async def leave() -> asyncio.Task[None]:
        task = asyncio.create_task(straggle(), name="straggler")
        await asyncio.sleep(0)
        return task

    with pytest.raises(AssertionError, match="straggler"):
        run_virtual(leave)
    task = run_virtual(leave, allow=lambda task: task.get_name() == "straggler")
    assert task.cancelled()
    assert cancelled == ["yes", "yes"]


def test_the_exception_of_the_main_coroutine_is_raised() -> None:
    """It is raised unchanged, even if tasks are alive."""

    async def broken() -> None:
        asyncio.create_task(for_ever())  # noqa: RUF006 - deliberately without a reference
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        run_virtual(broken)


def test_root_ids_are_counted_in_each_run() -> None:
    """Each run has the root ids r1, r2, ...; outside of it they are random."""

    async def two() -> list[str]:
        return [new_root_id.get()(), new_root_id.get()()]

    assert run_virtual(two) == run_virtual(two) == ["r1", "r2"]
    assert new_root_id.get()() != "r1"


def test_fixed_ids_can_have_another_prefix() -> None:
    """`fixed_ids` counts from 1 and restores the previous ids."""
    before = new_root_id.get()
    with fixed_ids("job"):
        assert [new_root_id.get()(), new_root_id.get()()] == ["job1", "job2"]
    assert new_root_id.get() is before
