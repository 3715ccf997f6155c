"""Lent tasks: to the code that runs in one it is a task like any other, and nobody else's."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from contextvars import ContextVar

import anyio
import pytest

from remit.foreign import begin
from remit.hosting import Ended, Guest, Hosts
from remit.phase import Phase

pytestmark = pytest.mark.real_time

mark: ContextVar[str] = ContextVar("mark", default="nobody's")


def start(awaitable: Awaitable[object], hosts: Hosts | None = None) -> Guest | Ended:
    return begin(awaitable, Phase(hosts or Hosts(asyncio.get_running_loop()), lambda: None))


def waiting(awaitable: Awaitable[object], hosts: Hosts | None = None) -> Guest:
    guest = start(awaitable, hosts)
    assert isinstance(guest, Guest)
    return guest


async def ended(guest: Guest | Ended) -> Guest | Ended:
    while isinstance(guest, Guest) and not guest.finished:
        guest.waiter = asyncio.get_running_loop().create_future()
        await guest.waiter
    return guest


async def lend(code: Callable[[], Awaitable[object]], hosts: Hosts | None = None) -> Guest | Ended:
    return await ended(start(code(), hosts))


async def test_code_that_does_not_wait_has_ended_at_once() -> None:
    """Lending costs no round of the loop."""

    async def quick() -> str:
        return "here"

    assert start(quick()) == Ended("returned", "here", None)


async def test_what_it_raises_is_kept() -> None:
    """Whatever ends it is told, a call of sys.exit() too."""

    async def exits() -> None:
        raise SystemExit(3)

    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    assert isinstance((await lend(exits)).error, SystemExit)
    assert isinstance((await lend(fails)).error, KeyError)


async def test_it_has_a_task_of_its_own_from_the_first_step_to_the_last() -> None:
    """The current task is one and the same, and not that of whoever lends it."""
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
    assert seen[0] is not None
    assert seen[0] is not ours
    assert asyncio.current_task() is ours


async def test_two_at_once_never_share_a_task_and_one_after_the_other_do() -> None:
    """A task is lent to one at a time, and used again."""
    hosts = Hosts(asyncio.get_running_loop())

    async def look() -> object:
        await asyncio.sleep(0.001)
        return id(asyncio.current_task())

    both = [waiting(look(), hosts), waiting(look(), hosts)]
    first, second = [(await ended(g)).value for g in both]
    third = (await lend(look, hosts)).value
    assert first != second
    assert third in (first, second)


async def test_its_context_is_its_own() -> None:
    """What it sets is seen by itself to the end, and by nobody else, also when the task is lent again."""
    hosts = Hosts(asyncio.get_running_loop())
    mark.set("ours")

    async def write() -> str:
        before = mark.get()
        mark.set("theirs")
        await asyncio.sleep(0.001)
        return f"{before}, {mark.get()}"

    async def read() -> str:
        return mark.get()

    assert (await lend(write, hosts)).value == "ours, theirs"
    assert (await lend(read, hosts)).value == "ours"
    assert mark.get() == "ours"


async def test_timeouts_and_cancel_scopes_work_as_in_any_task() -> None:
    """asyncio's and anyio's ways to end a wait end that wait and nothing else."""

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


async def test_a_cancel_reaches_what_it_waits_for() -> None:
    """Cancelling is as asyncio does it: what is awaited is cancelled, and cleaning up is possible."""
    below, cleaned = asyncio.ensure_future(asyncio.sleep(100)), list[str]()

    async def work() -> None:
        try:
            await below
        finally:
            await asyncio.sleep(0.001)
            cleaned.append("up")

    guest = waiting(work())
    guest.cancel()
    await ended(guest)
    assert (guest.cancelled, below.cancelled(), cleaned) == (True, True, ["up"])


@pytest.mark.parametrize("waits", [0, 1])
async def test_code_that_cancels_itself_is_cancelled_at_its_next_wait(waits: int) -> None:
    """`current_task().cancel()` means the code, also before the task has had its first turn."""

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


async def test_a_task_that_was_left_cancelled_is_not_lent_again() -> None:
    """Who cancelled its task and swallowed that leaves nothing to the next one."""
    hosts = Hosts(asyncio.get_running_loop())

    async def spoil() -> object:
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(10)
        return id(task)

    async def look() -> object:
        task = asyncio.current_task()
        assert task is not None
        await asyncio.sleep(0.001)
        return task.cancelling()

    await lend(spoil, hosts)
    assert (await lend(look, hosts)).value == 0


async def test_one_that_is_left_is_never_driven_again() -> None:
    """Code that is abandoned does not go on, whatever it waits for."""
    seen: list[str] = []

    async def work() -> None:
        seen.append("began")
        await asyncio.sleep(0.001)
        seen.append("went on")

    guest = waiting(work())
    guest.leave().close()
    await asyncio.sleep(0.01)
    assert seen == ["began"]


async def test_what_cannot_be_awaited_is_raised_in_the_code() -> None:
    """A nonsense yield, or a future of another loop, is the code's own error."""

    @types.coroutine
    def nonsense() -> Generator[object, None, None]:
        yield 7

    other = asyncio.new_event_loop()
    foreign = other.create_future()

    async def first() -> None:
        await nonsense()

    async def second() -> None:
        await foreign

    assert "cannot be awaited" in str((await lend(first)).error)
    assert "another event loop" in str((await lend(second)).error)
    other.close()


async def test_anything_that_can_be_awaited_will_do() -> None:
    """Futures and objects with `__await__` are as good as coroutines."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_later(0.001, future.set_result, "done")
    assert (await lend(lambda: future)).value == "done"


async def test_no_task_is_left_when_they_are_closed() -> None:
    """Idle tasks end with their tree; one that is out ends when it is given back."""
    hosts = Hosts(asyncio.get_running_loop())
    before = asyncio.all_tasks()

    async def work() -> None:
        await asyncio.sleep(0.005)

    guests = [waiting(work(), hosts) for _ in range(3)]
    await ended(guests[0])
    late = waiting(work(), hosts)
    hosts.close()
    await ended(late)
    for _ in range(3):
        await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
