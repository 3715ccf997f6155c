"""Code that is not ours (models, tools, approvers, stores), run so that it can always be left behind.

An async function is lent a task (`hosting.py`), a sync one gets a daemon thread. When its time is up or its run is
stopped, it is cancelled, given a short grace to clean up, cancelled again, and then abandoned: its coroutine closed,
its result dropped. What refuses even that is never driven again, so that the loop's exit does not wait
for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Literal, NamedTuple, Protocol, cast

import remit.threads as threads
from remit.hosting import Guest
from remit.phase import Phase, Stopped, wake

MOST_ABANDONED = 64
"""With this many calls left behind and still running in the process, no new one is started."""

_still_running: list[str] = []
"""Names of coroutines that refused to be closed: nobody drives them, and they are never freed."""


class Ended(NamedTuple):
    """How foreign code ended. What timed out may have a value too: it returned while it was being stopped."""

    how: Literal["returned", "raised", "timed_out"]
    value: object = None
    error: BaseException | None = None


class _Work(Protocol):
    @property
    def finished(self) -> bool: ...

    def tell(self, waiter: asyncio.Future[None]) -> None:
        """Wake it when the work has finished, or is to be looked at again."""
        ...

    def ended(self) -> Ended | None:
        """How it ended by itself; None when it was cancelled or left."""
        ...

    def cancel(self) -> None: ...

    def abandon(self, name: str) -> None: ...


Expires = Callable[[], float | None]
"""The loop time at which the code has had its time; asked again whenever that time comes."""


def abandoned() -> list[str]:
    """Names of the calls in this process that were left behind and still run."""
    return _still_running + threads.abandoned()


def count_abandoned() -> int:
    return len(_still_running) + threads.count_abandoned()


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
    """Run an awaitable in a task that is lent to it. Raises Stopped, after the grace, if the phase is stopped.

    `poked` is given a function that has `expires` asked again at once.
    """
    begun = begin(awaitable, phase)
    if isinstance(begun, Ended):
        return begun
    return await attend(begun, phase, name=name, expires=expires, poked=poked, on_abandoned=on_abandoned)


def begin(awaitable: Awaitable[object], phase: Phase) -> Ended | Guest:
    """Run an awaitable up to its first wait: how it ended, or what is now to be attended to. Raises Stopped."""
    guest = Guest(awaitable, phase.hosts)
    if not guest.finished:
        return guest
    if phase.stopped:
        raise Stopped(_own_end(_GuestWork(guest)))
    if guest.cancelled:
        return _cancelled_inside()
    return Ended("returned", guest.value) if guest.error is None else Ended("raised", None, guest.error)


def attend(
    guest: Guest,
    phase: Phase,
    *,
    name: str,
    expires: Expires | None = None,
    poked: Callable[[Callable[[], None]], None] | None = None,
    on_abandoned: Callable[[str], None],
) -> Awaitable[Ended]:
    """To be awaited at once: waits for what `begin` began. Raises Stopped, as `run` does."""
    if poked is not None:
        poked(guest.poke)
    return _attend(_GuestWork(guest), phase, name, expires, on_abandoned)


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
            return _ended(work)
    except Stopped:
        await _stop(work, phase, name, on_abandoned)
        raise Stopped(_own_end(work)) from None
    await _stop(work, phase, name, on_abandoned)
    if phase.stopped:
        raise Stopped(_own_end(work))
    own = _own_end(work) or Ended("timed_out")
    return Ended("timed_out", own.value, own.error)


def _ended(work: _Work) -> Ended:
    return work.ended() or _cancelled_inside()


def _cancelled_inside() -> Ended:
    return Ended("raised", error=RuntimeError("it was cancelled from inside"))


def _own_end(work: _Work) -> Ended | None:
    """How it ended all the same: what was done is done, and what was said is paid for."""
    ended = work.ended() if work.finished else None
    if ended is not None and inspect.isawaitable(ended.value):
        # What would have come of it will not be waited for any more.
        if inspect.iscoroutine(ended.value):
            ended.value.close()
        return None
    return None if ended is None or isinstance(ended.error, threads.NeverBegan) else ended


async def _wait(work: _Work, phase: Phase, expires: Expires | None) -> bool:
    """True when the work is done, False when its time is up."""
    at = expires() if expires else None
    while not work.finished:
        waiter: asyncio.Future[None] = phase.loop.create_future()
        work.tell(waiter)
        timer = None if at is None else phase.loop.call_at(at, wake, waiter)
        try:
            await phase.wait(waiter)
        finally:
            if timer:
                timer.cancel()
        if not work.finished and expires:
            at = expires()
            if at is not None and at <= phase.loop.time():
                return False
    return True


async def _stop(work: _Work, phase: Phase, name: str, on_abandoned: Callable[[str], None]) -> None:
    """Cancel, give it half of the grace to clean up, insist for the other half, and leave it behind."""
    grace = phase.grace_s
    work.cancel()
    for rest in (grace / 2, *[grace / 20] * 10):
        await _rest(work, phase, rest)
        if work.finished:
            return
        work.cancel()
    work.abandon(name)
    on_abandoned(name)


async def _rest(work: _Work, phase: Phase, seconds: float) -> None:
    """Until it is done, or the time is over."""
    if work.finished:
        return
    loop = phase.loop
    waiter: asyncio.Future[None] = loop.create_future()
    work.tell(waiter)
    timer = loop.call_later(seconds, wake, waiter)
    try:
        await waiter
    except asyncio.CancelledError:
        # It is being stopped already; whoever wishes for the end of the whole run is heard after it.
        phase.on_cancelled()
    finally:
        timer.cancel()


class _GuestWork:
    __slots__ = ("guest",)

    def __init__(self, guest: Guest) -> None:
        self.guest = guest

    @property
    def finished(self) -> bool:
        return self.guest.finished

    def tell(self, waiter: asyncio.Future[None]) -> None:
        self.guest.waiter = waiter

    def ended(self) -> Ended | None:
        guest = self.guest
        if guest.cancelled:
            return None
        if guest.error is not None:
            return Ended("raised", error=guest.error)
        return Ended("returned", guest.value)

    def cancel(self) -> None:
        self.guest.cancel()

    def abandon(self, name: str) -> None:
        coroutine = self.guest.leave()
        awaited = _chain(coroutine)
        with contextlib.suppress(BaseException):
            coroutine.close()
        refused = [c for c in awaited if inspect.getcoroutinestate(c) != inspect.CORO_CLOSED]
        for one in refused:
            _never_free(one)
        if refused:
            _still_running.append(name)


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
        self.job.done_future.add_done_callback(self._wake)

    @property
    def finished(self) -> bool:
        return self.job.done_future.done()

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

    def abandon(self, name: str) -> None:
        del name
        self.job.abandon()


def _chain(coroutine: object) -> list[Coroutine[object, object, object]]:
    """A suspended coroutine, the one it awaits, the one that awaits, and so on."""
    found: list[Coroutine[object, object, object]] = []
    while inspect.iscoroutine(coroutine):
        found.append(coroutine)
        coroutine = coroutine.cr_await
    return found


def _never_free(coroutine: object) -> None:
    """Keep what refuses to be closed: freeing it would try again, and print that it failed."""
    import ctypes  # noqa: PLC0415 - slow to import, and hardly ever needed

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(coroutine))
