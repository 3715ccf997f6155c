"""User-defined futures, awaited by foreign code."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextvars import Context
from typing import TypeVar

import pytest

import remit.tasks.guest as foreign
from remit.tasks.cancel import Phase
from remit.tasks.deadline import Alarm
from remit.tasks.guest import Ended

pytestmark = pytest.mark.real_time

T = TypeVar("T")


async def lend(code: Callable[[], Awaitable[object]], seconds: float = 5.0) -> Ended:
    alarm = Alarm(asyncio.get_running_loop())
    alarm.start()
    phase, end = Phase(alarm), alarm.clock() + seconds
    phase.grace_s = 0.05
    return await foreign.run(code(), phase, name="code", expires=lambda: end, on_abandoned=lambda _: None)


class Odd:
    """A user-defined future, one of whose methods raises."""

    _asyncio_future_blocking = False

    def __init__(self, broken: str) -> None:
        self.broken = broken

    def __await__(self) -> Generator[Odd, None, None]:
        self._asyncio_future_blocking = True
        yield self

    def __repr__(self) -> str:
        return self._do("__repr__", "odd")

    def get_loop(self) -> asyncio.AbstractEventLoop | None:
        return None if self.broken == "__repr__" else self._do("get_loop", asyncio.get_running_loop())

    def add_done_callback(self, function: object, *, context: object) -> None:
        self._do("add_done_callback", None)

    def _do(self, what: str, value: T) -> T:
        if self.broken == what:
            raise ValueError(what)
        return value


class Older:
    """A future that exposes its loop in the old way, which asyncio's tasks support."""

    _asyncio_future_blocking = False

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()

    def __await__(self) -> Generator[Older, None, str]:
        self._asyncio_future_blocking = True
        yield self
        return "waited"

    def add_done_callback(self, function: Callable[[object], None], *, context: Context) -> None:
        self._loop.call_soon(function, self, context=context)

    def result(self) -> None:
        """Nothing."""


async def test_a_future_that_asyncio_supports_can_be_awaited() -> None:
    async def code() -> str:
        return await Older()

    assert await asyncio.get_running_loop().create_task(code()) == "waited"
    assert (await lend(code)).value == "waited"


@pytest.mark.parametrize("waits_before", [False, True])
@pytest.mark.parametrize("broken", ["get_loop", "add_done_callback", "__repr__"])
async def test_code_that_awaits_a_broken_future_is_abandoned_at_its_timeout(
    broken: str, waits_before: bool
) -> None:
    """Law 4: asyncio's tasks cannot wake from such a future, so the timeout of the call ends it."""
    loop, reported = asyncio.get_running_loop(), list[object]()
    loop.set_exception_handler(lambda _, context: reported.append(context))

    async def code() -> object:
        if waits_before:
            await asyncio.sleep(0)
        await Odd(broken)
        return None

    end = await lend(code, 0.02)
    assert end.how in ("raised", "timed_out")
    assert asyncio.all_tasks() == {asyncio.current_task()}
