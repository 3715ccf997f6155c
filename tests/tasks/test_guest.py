"""Foreign code in ordinary tasks, which can always be abandoned."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import Awaitable, Callable, Generator
from contextvars import ContextVar

import anyio
import pytest

import remit.tasks.guest as foreign
from remit.tasks.cancel import Phase, Stopped
from remit.tasks.deadline import Alarm
from remit.tasks.guest import Ended

pytestmark = pytest.mark.real_time

mark: ContextVar[str] = ContextVar("mark", default="nobody's")


def new_phase(grace_s: float = 5.0) -> Phase:
    alarm = Alarm(asyncio.get_running_loop())
    alarm.start()
    phase = Phase(alarm)
    phase.grace_s = grace_s
    return phase


async def lend(code: Callable[[], Awaitable[object]], phase: Phase | None = None) -> Ended:
    return await foreign.run(code(), phase or new_phase(), name="it", on_abandoned=pytest.fail)


async def test_timeouts_and_cancel_scopes_work_as_in_any_task() -> None:
    """Timeouts and cancel scopes of asyncio and anyio end their own wait and nothing else."""

    async def work() -> tuple[list[str], int]:
        seen: list[str] = []
        for _ in range(3):
            try:
                async with asyncio.timeout(0.001):
                    await asyncio.sleep(10)
            except TimeoutError:
                seen.append("asyncio")
            with anyio.move_on_after(0.001) as scope:
                await anyio.sleep(10)
            seen += ["anyio"] if scope.cancelled_caught else []
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep, 10)
                await anyio.sleep(0.001)
                group.cancel_scope.cancel()
            with anyio.CancelScope() as outer:
                outer.cancel()
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(0.001)
                    seen.append("shielded")
                await anyio.sleep(10)
            await asyncio.wait_for(asyncio.sleep(0.001), 10)
        task = asyncio.current_task()
        assert task is not None
        return seen, task.cancelling()

    guest = await lend(work)
    assert guest.error is None
    assert guest.value == (["asyncio", "anyio", "shielded"] * 3, 0)


@pytest.mark.parametrize("waits", [0, 1])
async def test_code_that_cancels_itself_is_cancelled_at_its_next_wait(waits: int) -> None:
    """`current_task().cancel()` cancels the code, even before the task's first step has ended."""

    async def work() -> str:
        for _ in range(waits):
            await asyncio.sleep(0)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return "cancelled"
        return "not cancelled"

    assert (await lend(work)).value == "cancelled"


async def test_an_exception_of_the_code_is_returned() -> None:
    """Every exception is returned, including that of sys.exit()."""

    async def exits() -> None:
        raise SystemExit(3)

    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    assert isinstance((await lend(exits)).error, SystemExit)
    assert isinstance((await lend(fails)).error, KeyError)


async def test_a_broken_awaitable_raises_in_the_code() -> None:
    """An invalid yield, or a future of another loop, raises in the code itself."""

    @types.coroutine
    def nonsense() -> Generator[object, None, None]:
        yield 7

    other = asyncio.new_event_loop()
    strange = other.create_future()

    async def first() -> None:
        await nonsense()

    async def second() -> None:
        await strange

    assert "bad yield" in str((await lend(first)).error)
    assert "different loop" in str((await lend(second)).error)
    other.close()


async def test_any_awaitable_can_be_run() -> None:
    """Futures and objects with `__await__` work like coroutines."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.001, future.set_result, "done")
    assert (await lend(lambda: future)).value == "done"


async def test_code_runs_in_one_task_that_is_not_the_callers() -> None:
    """The current task is the same from the first step to the last."""
    ours = asyncio.current_task()

    async def look() -> list[object]:
        seen: list[object] = [asyncio.current_task()]
        await asyncio.sleep(0)
        seen.append(asyncio.current_task())
        await asyncio.sleep(0.001)
        return [*seen, asyncio.current_task()]

    seen = (await lend(look)).value
    assert isinstance(seen, list)
    assert len({id(task) for task in seen}) == 1
    assert seen[0] is not ours
    assert asyncio.current_task() is ours


async def test_context_variables_set_by_the_code_stay_in_the_code() -> None:
    """Context variables set by the code are visible only to that code."""
    mark.set("ours")

    async def write() -> str:
        before = mark.get()
        mark.set("theirs")
        await asyncio.sleep(0.001)
        return f"{before}, {mark.get()}"

    assert (await lend(write)).value == "ours, theirs"
    assert mark.get() == "ours"


async def test_a_stop_cancels_once_and_waits_for_cleanup() -> None:
    """Law 4: stopped code gets one cancel, may clean up, and its return value is kept."""
    heard: list[str] = []

    async def work() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            heard.append("cancelled")
        await asyncio.sleep(0.001)
        return "cleaned up"

    phase = new_phase(100.0)
    attending = asyncio.create_task(foreign.run(work(), phase, name="it", on_abandoned=heard.append))
    await asyncio.sleep(0.001)
    for _ in range(3):
        phase.stop()
    with pytest.raises(Stopped) as stopped:
        await attending
    assert stopped.value.ended == Ended("returned", "cleaned up")
    assert heard == ["cancelled"]


async def test_code_stopped_before_its_first_step_never_runs() -> None:
    """A stop before the first step leaves no trace of the code and no warning that it was never awaited."""
    seen: list[str] = []

    async def work() -> None:
        seen.append("began")
        await asyncio.sleep(100)

    phase = new_phase()
    attending = asyncio.create_task(foreign.run(work(), phase, name="it", on_abandoned=pytest.fail))
    phase.stop()
    with pytest.raises(Stopped) as stopped:
        await attending
    assert (stopped.value.ended, seen) == (None, [])


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="the first step runs at once")
async def test_a_stop_between_the_start_of_its_task_and_its_first_step() -> None:
    """The same, if the task exists and has not run yet."""
    seen: list[str] = []

    async def work() -> None:
        seen.append("began")
        await asyncio.sleep(100)

    phase = new_phase()
    running = foreign.run(work(), phase, name="it", on_abandoned=pytest.fail)
    attending = asyncio.create_task(running)
    loop = asyncio.get_running_loop()
    loop.call_soon(phase.stop)
    with pytest.raises(Stopped):
        await attending
    assert seen == []


class Refusing(asyncio.Future[None]):
    """A future that refuses to be cancelled."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.error = error

    def cancel(self, msg: object = None) -> bool:
        if self.error is not None:
            raise self.error
        return False


@pytest.mark.parametrize("error", [None, ValueError("no")])
async def test_a_future_that_refuses_to_be_cancelled_is_abandoned_with_its_code(
    error: Exception | None,
) -> None:
    """Law 4: the abandoned task delays no other code and counts as done, so that the event loop does not wait for it."""
    abandoned: list[str] = []
    future = Refusing(error)

    async def work() -> None:
        await future

    phase = new_phase(0.05)
    attending = asyncio.create_task(foreign.run(work(), phase, name="it", on_abandoned=abandoned.append))
    waits = asyncio.create_task(phase.wait(asyncio.get_running_loop().create_future()))
    await asyncio.sleep(0.001)
    phase.stop()
    with pytest.raises(Stopped):
        await waits
    with pytest.raises(Stopped):
        await attending
    assert abandoned == ["it"]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    future.set_result(None)
    await asyncio.sleep(0)


@pytest.mark.parametrize("swallowed", [asyncio.CancelledError, BaseException])
async def test_abandoned_code_is_never_resumed(swallowed: type[BaseException]) -> None:
    """Law 4: code that swallows every cancel is closed; code that swallows even that is never resumed."""
    seen: list[str] = []

    async def work() -> None:
        while True:
            try:
                await asyncio.sleep(0.02)
                seen.append("went on")
            except swallowed:
                pass

    phase = new_phase(0.01)
    attending = asyncio.create_task(foreign.run(work(), phase, name="it", on_abandoned=lambda _: None))
    await asyncio.sleep(0.001)
    phase.stop()
    with pytest.raises(Stopped):
        await attending
    seen.clear()
    await asyncio.sleep(0.05)
    assert seen == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
