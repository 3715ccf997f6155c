"""Lent tasks: to the code that runs in one it is a task like any other, and nobody else's."""

from __future__ import annotations

import asyncio
import traceback
import types
import weakref
from collections.abc import Awaitable, Callable, Generator
from contextlib import suppress
from contextvars import ContextVar

import anyio
import pytest

import remit.tasks.guest as foreign
import remit.tasks.guest_hosts as hosting
from remit.tasks.cancel import Phase, Stopped
from remit.tasks.guest import begin
from remit.tasks.guest_hosts import Ended, Guest, Hosts

pytestmark = pytest.mark.real_time

mark: ContextVar[str] = ContextVar("mark", default="nobody's")


def start(awaitable: Awaitable[object], hosts: Hosts | None = None) -> Guest | Ended:
    return begin(awaitable, Phase(hosts or Hosts(asyncio.get_running_loop())))


def waiting(awaitable: Awaitable[object], hosts: Hosts | None = None) -> Guest:
    guest = start(awaitable, hosts)
    assert isinstance(guest, Guest)
    return guest


async def ended(guest: Guest | Ended) -> Ended | None:
    """How it ended; None when it was cancelled."""
    if isinstance(guest, Ended):
        return guest
    while not guest.finished:
        guest.waiter = asyncio.get_running_loop().create_future()
        await guest.waiter
    return guest.ended


async def lend(code: Callable[[], Awaitable[object]], hosts: Hosts | None = None) -> Ended:
    end = await ended(start(code(), hosts))
    assert end is not None
    return end


async def quick() -> str:
    return "here"


NEW = "remit lends this task"


def named(name: str) -> str:
    """What the current task was called before, and gives it another name."""
    task = asyncio.current_task()
    assert task is not None
    before = task.get_name()
    task.set_name(name)
    return before


class Something:
    """What code has in its hands."""


async def test_code_that_does_not_wait_has_ended_at_once() -> None:
    """Lending costs no round of the loop."""
    assert start(quick()) == Ended("returned", "here", None)


@pytest.mark.parametrize("waits", [False, True])
async def test_what_drives_the_next_one_knows_nothing_of_the_one_before(waits: bool) -> None:
    """What code had in its hands is let go of with its end, though what drove it is used again."""
    seen: list[weakref.ref[Something]] = []

    async def has_something() -> None:
        mine = Something()
        seen.append(weakref.ref(mine))
        if waits:
            await asyncio.sleep(0)

    await lend(has_something, Hosts(asyncio.get_running_loop()))
    assert seen[0]() is None


async def test_who_clears_a_traceback_ends_nobody_else() -> None:
    """Law 5: what was raised does not lead to what drives the next one; `assertRaises` clears all that it leads to."""
    hosts = Hosts(asyncio.get_running_loop())

    async def fails() -> None:
        raise ValueError("no")

    error = (await lend(fails, hosts)).error
    assert isinstance(error, ValueError)
    other = waiting(asyncio.sleep(0.01, "fine"), hosts)
    traceback.clear_frames(error.__traceback__)
    assert (await ended(other)) == Ended("returned", "fine")


async def test_an_idle_task_ends_with_its_tree() -> None:
    """Whether asyncio has given it a step by then or not, nothing of it is left in the loop's next round."""
    for rounds in (0, 1):
        hosts = Hosts(asyncio.get_running_loop())
        await lend(quick, hosts)
        (host,) = hosts.idle
        for _ in range(rounds):
            await asyncio.sleep(0)
        assert host in asyncio.all_tasks()
        hosts.close()
        for _ in range(2):
            await asyncio.sleep(0)
        assert host.done()
        assert host not in asyncio.all_tasks()


async def test_what_it_raises_is_kept() -> None:
    """Whatever ends it is told, a call of sys.exit() too."""

    async def exits() -> None:
        raise SystemExit(3)

    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("x")

    assert isinstance((await lend(exits)).error, SystemExit)
    assert isinstance((await lend(fails)).error, KeyError)


@pytest.mark.parametrize("table", [hosting.current_tasks, hosting.CurrentTasks()])
async def test_it_has_a_task_of_its_own_from_the_first_step_to_the_last(
    table: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The current task is one and the same, and not that of whoever lends it, on every version of asyncio."""
    monkeypatch.setattr(hosting, "current_tasks", table)
    monkeypatch.setattr(foreign, "current_tasks", table)
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


async def test_those_who_wait_never_share_a_task() -> None:
    """A task is lent again only where the code did not wait: whoever knows the task of one that did may still cancel it."""
    hosts = Hosts(asyncio.get_running_loop())

    async def look(name: str, *, waits: bool) -> str:
        # Known by its name: who keeps the task itself has it for good.
        before = named(name)
        if waits:
            await asyncio.sleep(0.001)
        return before

    both = [waiting(look("first", waits=True), hosts), waiting(look("second", waits=True), hosts)]
    assert [end.value for g in both if (end := await ended(g))] == [NEW, NEW]
    assert (await lend(lambda: look("third", waits=False), hosts)).value == NEW
    assert (await lend(lambda: look("fourth", waits=False), hosts)).value == "third"


async def test_a_task_that_somebody_keeps_is_nobody_elses() -> None:
    """Law 5: whoever knows the task of code that has ended may still cancel it, and nobody is cancelled by that."""
    hosts, kept = Hosts(asyncio.get_running_loop()), list[asyncio.Task[object] | None]()

    async def keep() -> None:
        kept.append(asyncio.current_task())

    async def wait() -> str:
        assert kept[0] is not None
        kept[0].cancel()
        await asyncio.sleep(0.001)
        return named("other")

    await lend(keep, hosts)
    assert (await lend(wait, hosts)).value == NEW


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
    assert await ended(guest) is None
    assert (below.cancelled(), cleaned) == (True, ["up"])


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


async def test_who_takes_a_cancel_back_leaves_nothing_to_the_next_one() -> None:
    """A cancel in the first step that was taken back is nobody else's, and the task can be lent again."""
    hosts = Hosts(asyncio.get_running_loop())

    async def waits() -> str:
        await asyncio.sleep(0.001)
        return named("second")

    async def changes_its_mind() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        task.uncancel()
        return named("first")

    assert (await lend(changes_its_mind, hosts)).value == NEW
    assert (await lend(waits, hosts)).value == "first"


async def test_a_stop_cancels_it_where_it_waits() -> None:
    """Stopping takes no round of the loop before the code hears of it, and is heard once."""
    heard: list[str] = []
    loop = asyncio.get_running_loop()

    async def work() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            heard.append("cancelled")
        await asyncio.sleep(0.001)
        return "cleaned up"

    phase = Phase(Hosts(loop))
    phase.grace_s = 100.0
    guest = begin(work(), phase)
    assert isinstance(guest, Guest)
    attending = asyncio.create_task(foreign.attend(guest, phase, name="it", on_abandoned=heard.append))
    await asyncio.sleep(0)
    for _ in range(3):
        phase.stop()
    await asyncio.sleep(0)
    assert heard == ["cancelled"]
    with pytest.raises(Stopped) as stopped:
        await attending
    assert stopped.value.ended == Ended("returned", "cleaned up")
    assert heard == ["cancelled"]


async def test_a_future_that_cannot_be_cancelled_keeps_nobody_else_from_being_stopped() -> None:
    """What goes wrong when a future of the code's own is cancelled is heard by its own run only."""
    loop = asyncio.get_running_loop()

    class Stubborn(asyncio.Future[None]):
        def cancel(self, msg: object = None) -> bool:
            raise ValueError("no")

    stubborn = Stubborn(loop=loop)

    async def work() -> None:
        await stubborn

    phase = Phase(Hosts(loop))
    guest = begin(work(), phase)
    assert isinstance(guest, Guest)
    attending = asyncio.create_task(foreign.attend(guest, phase, name="it", on_abandoned=lambda _: None))
    other: asyncio.Future[None] = loop.create_future()
    waits = asyncio.create_task(phase.wait(other))
    await asyncio.sleep(0)
    phase.stop()
    with pytest.raises(Stopped):
        await waits
    with pytest.raises(ValueError, match="no"):
        await attending
    stubborn.set_result(None)
    assert await ended(guest) == Ended("returned")


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
    strange = other.create_future()

    async def first() -> None:
        await nonsense()

    async def second() -> None:
        await strange

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
