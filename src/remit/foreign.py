"""Code that is not ours (models, tools, approvers, stores), run so that it can always be left behind.

An async function gets a task of its own, a sync one a daemon thread. When its time is up or its run is
stopped, it is cancelled, given a short grace to clean up, cancelled again, and then abandoned: its coroutine closed,
its result dropped. What refuses even that is never driven again, so that the loop's exit does not wait
for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Literal, NamedTuple, Protocol, cast

import remit.threads as threads
from remit.phase import Phase, Stopped, wake

MOST_ABANDONED = 64
"""With this many calls left behind and still running in the process, no new one is started."""

_still_running: set[asyncio.Task[Ended]] = set()


class Ended(NamedTuple):
    """How foreign code ended. What timed out may have a value too: it returned while it was being stopped."""

    how: Literal["returned", "raised", "timed_out"]
    value: object = None
    error: BaseException | None = None


class _Work(Protocol):
    done: asyncio.Future[object]

    def tell(self, waiter: asyncio.Future[None]) -> None: ...
    def ended(self) -> Ended: ...
    def cancel(self) -> None: ...
    def abandon(self) -> None: ...


Expires = Callable[[], float | None]
"""The loop time at which the code has had its time; asked again whenever that time comes."""


def abandoned() -> list[str]:
    """Names of the calls in this process that were left behind and still run."""
    return [t.get_name() for t in _still_running if not t.done()] + threads.abandoned()


def is_async(function: object) -> bool:
    """Whether calling it gives something to await, as far as that can be seen from outside."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[object]", function).func
    called = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async one
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


async def run(
    awaitable: Awaitable[object],
    phase: Phase,
    *,
    name: str,
    expires: Expires | None = None,
    poked: Callable[[Callable[[], None]], None] | None = None,
    on_abandoned: Callable[[str], None],
) -> Ended:
    """Run an awaitable in a task of its own. Raises Stopped, after the grace, if the phase is stopped.

    `poked` is given a function that has `expires` asked again at once.
    """
    work = _TaskWork(awaitable, phase.loop, name)
    if poked is not None:
        poked(work.poke)
    return await _attend(work, phase, name, expires, on_abandoned)


async def run_in_thread(
    function: Callable[[], object],
    phase: Phase,
    *,
    name: str,
    expires: Expires | None = None,
    on_begin: Callable[[], None] | None = None,
    urgent: bool = False,
    on_abandoned: Callable[[str], None],
) -> Ended:
    """Run a function in a daemon thread. Raises Stopped, after the grace, if the phase is stopped.

    It may have to wait for a thread, unless it is `urgent`; `on_begin` is called when it has one.
    """
    work = _ThreadWork(function, phase.loop, name, on_begin, urgent=urgent)
    return await _attend(work, phase, name, expires, on_abandoned)


async def _attend(
    work: _Work, phase: Phase, name: str, expires: Expires | None, on_abandoned: Callable[[str], None]
) -> Ended:
    try:
        if await _wait(work, phase, expires):
            return work.ended()
    except Stopped:
        await _stop(work, phase, name, on_abandoned)
        raise Stopped(_own_end(work)) from None
    await _stop(work, phase, name, on_abandoned)
    if phase.stopped:
        raise Stopped(_own_end(work))
    own = _own_end(work) or Ended("timed_out")
    return Ended("timed_out", own.value, own.error)


def _own_end(work: _Work) -> Ended | None:
    """How it ended all the same: what was done is done, and what was said is paid for."""
    if not work.done.done() or work.done.cancelled():
        return None
    ended = work.ended()
    if inspect.isawaitable(ended.value):
        # What would have come of it will not be waited for any more.
        if inspect.iscoroutine(ended.value):
            ended.value.close()
        return None
    return None if isinstance(ended.error, threads.NeverBegan) else ended


async def _wait(work: _Work, phase: Phase, expires: Expires | None) -> bool:
    """True when the work is done, False when its time is up."""
    at = expires() if expires else None
    while not work.done.done():
        waiter: asyncio.Future[None] = phase.loop.create_future()
        work.tell(waiter)
        timer = None if at is None else phase.loop.call_at(at, wake, waiter)
        try:
            await phase.wait(waiter)
        finally:
            if timer:
                timer.cancel()
        if not work.done.done() and expires:
            at = expires()
            if at is not None and at <= phase.loop.time():
                return False
    return True


async def _stop(work: _Work, phase: Phase, name: str, on_abandoned: Callable[[str], None]) -> None:
    """Cancel, give it half of the grace to clean up, insist for the other half, and leave it behind."""
    grace = phase.grace_s
    work.cancel()
    for rest in (grace / 2, *[grace / 20] * 10):
        await _rest(work.done, phase, rest)
        if work.done.done():
            return
        work.cancel()
    work.abandon()
    on_abandoned(name)


async def _rest(done: asyncio.Future[object], phase: Phase, seconds: float) -> None:
    """Until it is done, or the time is over."""
    if done.done():
        return
    loop = phase.loop
    waiter: asyncio.Future[None] = loop.create_future()

    def finished(_: object) -> None:
        wake(waiter)

    done.add_done_callback(finished)
    timer = loop.call_later(seconds, wake, waiter)
    try:
        await waiter
    except asyncio.CancelledError:
        # It is being stopped already; whoever wishes for the end of the whole run is heard after it.
        phase.on_cancelled()
    finally:
        timer.cancel()
        done.remove_done_callback(finished)


class _TaskWork:
    def __init__(self, awaitable: Awaitable[object], loop: asyncio.AbstractEventLoop, name: str) -> None:
        self.waiter: asyncio.Future[None] | None = None
        self.awaitable = awaitable
        self.task = loop.create_task(self._guard(awaitable), name=name)
        self.done = cast("asyncio.Future[object]", self.task)

    async def _guard(self, awaitable: Awaitable[object]) -> Ended:
        try:
            return Ended("returned", await awaitable)
        except (asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - a tool that calls sys.exit() must not end the process
            return Ended("raised", error=error)
        finally:
            # From in here, not from a callback of the task: that would cost one more round of the loop.
            self.poke()

    def tell(self, waiter: asyncio.Future[None]) -> None:
        self.waiter = waiter

    def poke(self) -> None:
        if self.waiter is not None:
            wake(self.waiter)

    def ended(self) -> Ended:
        if self.task.cancelled():
            return Ended("raised", error=RuntimeError("it was cancelled from inside"))
        return self.task.result()

    def cancel(self) -> None:
        self.task.cancel()
        if (
            inspect.iscoroutine(self.awaitable)
            and inspect.getcoroutinestate(self.awaitable) == inspect.CORO_CREATED
        ):
            # The task never began, so nobody else will close it.
            self.awaitable.close()

    def abandon(self) -> None:
        task = self.task
        task.add_done_callback(_forget)
        _still_running.add(task)
        awaited = _chain(task.get_coro())
        # The guard is closed even where what it awaits refuses: nobody drives that any more.
        with contextlib.suppress(BaseException):
            cast("Coroutine[object, object, Ended]", task.get_coro()).close()
        for coroutine in awaited:
            if inspect.getcoroutinestate(coroutine) != inspect.CORO_CLOSED:
                _never_free(coroutine)
        task.cancel()


class _ThreadWork:
    def __init__(
        self,
        function: Callable[[], object],
        loop: asyncio.AbstractEventLoop,
        name: str,
        on_begin: Callable[[], None] | None,
        *,
        urgent: bool,
    ) -> None:
        self.waiter: asyncio.Future[None] | None = None
        self.on_begin = on_begin
        self.job = threads.start(function, loop, name=name, urgent=urgent, on_begin=self._begun)
        self.done = cast("asyncio.Future[object]", self.job.done_future)
        self.done.add_done_callback(self._wake)

    def _begun(self) -> None:
        if self.on_begin is not None:
            self.on_begin()
        self._wake(None)

    def _wake(self, _: object) -> None:
        if self.waiter is not None:
            wake(self.waiter)

    def tell(self, waiter: asyncio.Future[None]) -> None:
        self.waiter = waiter

    def ended(self) -> Ended:
        error = self.job.error
        return Ended("returned", self.job.result()) if error is None else Ended("raised", error=error)

    def cancel(self) -> None:
        """A running thread cannot be cancelled, its function may look at `ctx.cancelled`; a waiting one never begins."""
        self.job.withdraw()

    def abandon(self) -> None:
        self.job.abandon()


def _forget(task: asyncio.Task[Ended]) -> None:
    _still_running.discard(task)
    if not task.cancelled():
        task.exception()


def _chain(coroutine: object) -> list[Coroutine[object, object, object]]:
    """A suspended coroutine, the one it awaits, the one that awaits, and so on."""
    found: list[Coroutine[object, object, object]] = []
    while inspect.iscoroutine(coroutine):
        found.append(coroutine)
        coroutine = coroutine.cr_await
    return found


def _never_free(coroutine: object) -> None:
    """Keep what refuses to be closed: freeing it would try again, and print that it failed."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))
