"""Code that is not ours (models, tools, approvers, stores), run so that it can always be left behind.

An async function is lent a task (`guest_hosts.py`), a sync one gets a daemon thread. When its time is up or its run is
stopped, it is cancelled, given a short grace to clean up, cancelled again, and then abandoned: its coroutine closed,
its result dropped. What refuses even that is never driven again, so that the loop's exit does not wait
for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from asyncio import CancelledError, Future
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from math import inf
from sys import getrefcount
from types import CoroutineType
from typing import TypeAlias, TypeGuard, cast

import remit.tasks.threads as threads
from remit.tasks.cancel import Phase, Stopped, wake
from remit.tasks.guest_hosts import Code, Ended, Guest, Host, current_tasks

MOST_ABANDONED = 64
"""With this many calls left behind and still running in the process, no new one is started."""

_still_running: list[str] = []
"""Names of coroutines that refused to be closed: nobody drives them, and they are never freed."""


Expires = Callable[[], float | None]
"""The loop time at which the code has had its time; asked again whenever that time comes."""

# What `inspect.iscoroutine` asks, without the call of a Python function.
_is_coroutine = cast("Callable[[object], TypeGuard[Code]]", CoroutineType.__instancecheck__)
_Work: TypeAlias = "Guest | _ThreadWork"


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
    coroutine = awaitable if _is_coroutine(awaitable) else _awaiting(awaitable)
    hosts, tasks = phase.hosts, current_tasks
    loop, idle = hosts.loop, hosts.idle
    if idle:
        host = idle.pop()
    else:
        host = Host(hosts)
        host.known = getrefcount(host)
    context, here = copy_context(), tasks.get(loop)
    tasks[loop] = host
    try:
        ended = context.run(host.send, coroutine)
    except BaseException as raised:  # noqa: BLE001 - as a driver has it, which has ended with it
        host.end()
        return _raised_at_once(raised, phase)
    finally:
        if here is None:
            del tasks[loop]
        else:
            tasks[loop] = here
    if type(ended) is not Ended:
        return Guest(coroutine, context, hosts, host, ended)
    if hosts.closed or host.requests or getrefcount(host) > host.known:
        # Whoever keeps the task of code that has ended may still cancel it: it is nobody else's then.
        host.end()
    else:
        idle.append(host)
    if ended.error is not None:
        return _raised_at_once(ended.error, phase)
    if phase.stopped:
        raise Stopped(_kept(ended))
    return ended


def _raised_at_once(raised: BaseException, phase: Phase) -> Ended:
    if isinstance(raised, KeyboardInterrupt):
        raise raised
    ended = None if isinstance(raised, CancelledError) else Ended("raised", None, raised)
    if phase.stopped:
        raise Stopped(ended)
    return ended or _cancelled_inside()


async def _awaiting(awaitable: Awaitable[object]) -> object:
    return await awaitable


async def attend(
    work: _Work,
    phase: Phase,
    *,
    name: str,
    expires: Expires | None = None,
    poked: Callable[[Callable[[], None]], None] | None = None,
    on_abandoned: Callable[[str], None],
) -> Ended:
    """To be awaited at once: waits for what has begun. Raises Stopped, as `run` does."""
    if poked is not None:
        poked(work.ring)
    at = None if expires is None else expires()
    stopped = phase.stopped
    while not stopped and not work.finished:
        try:
            await _look_out(work, phase, at)
        except CancelledError:
            phase.on_cancelled()
            stopped = True
        _look_away(work, phase, at)
        stopped = stopped or phase.stopped
        if expires is not None and not stopped and not work.finished:
            at = expires()
            if at is not None and at <= phase.hosts.clock():
                break
    if work.finished and not stopped:
        return work.ended or _cancelled_inside()
    if not work.finished:
        await _stop(work, phase, name, on_abandoned)
    own = _kept(work.ended)
    if stopped or phase.stopped:
        raise Stopped(own)
    return Ended("timed_out") if own is None else Ended("timed_out", own.value, own.error)


def _look_out(work: _Work, phase: Phase, at: float | None) -> Future[None]:
    """What is woken when the work has finished, its time has come, or the phase is stopped."""
    waiter: Future[None] = Future(loop=phase.hosts.loop)
    work.waiter = waiter
    if phase.first is None and not phase.others:
        phase.first = work
    else:
        phase.join(work)
    if at is not None:
        work.at = at
        phase.hosts.alarm.set(work)
    return waiter


def _look_away(work: _Work, phase: Phase, at: float | None) -> None:
    if phase.first is work:
        phase.first = None
    else:
        phase.part(work)
    if at is not None or phase.stopped:
        phase.hosts.alarm.drop(work)


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
    return await attend(work, phase, name=name, expires=expires, on_abandoned=on_abandoned)


def _cancelled_inside() -> Ended:
    return Ended("raised", None, RuntimeError("it was cancelled from inside"))


def _kept(ended: Ended | None) -> Ended | None:
    """How it ended although it was stopped: what was done is done, and what was said is paid for."""
    if ended is None or isinstance(ended.error, threads.NeverBegan):
        return None
    if inspect.isawaitable(ended.value):
        # What would have come of it will not be waited for any more.
        if inspect.iscoroutine(ended.value):
            ended.value.close()
        return None
    return ended


async def _stop(work: _Work, phase: Phase, name: str, on_abandoned: Callable[[str], None]) -> None:
    """Cancel, give it half of the grace to clean up, insist for the other half, and leave it behind."""
    grace, hosts = phase.grace_s, phase.hosts
    work.cancel()
    for attempt in range(work.stopping, 11):
        if not work.finished:
            waiter: Future[None] = Future(loop=hosts.loop)
            work.waiter = waiter
            work.at = hosts.clock() + (grace / 20 if attempt else grace / 2)
            hosts.alarm.set(work)
            try:
                await waiter
            except CancelledError:
                # It is being stopped already; whoever wishes for the end of the whole run is heard after it.
                phase.on_cancelled()
            hosts.alarm.drop(work)
        if work.finished:
            return
        work.cancel()
    _abandon(work, name)
    on_abandoned(name)


def _abandon(work: _Work, name: str) -> None:
    if isinstance(work, _ThreadWork):
        work.job.abandon()
        return
    coroutine = work.leave()
    awaited = _chain(coroutine)
    with contextlib.suppress(BaseException):
        coroutine.close()
    refused = [c for c in awaited if inspect.getcoroutinestate(c) != inspect.CORO_CLOSED]
    for one in refused:
        _never_free(one)
    if refused:
        # It would close what it drives.
        _never_free(work.driver)
        _still_running.append(name)


class _ThreadWork:
    """A function in a thread: to whoever attends to it, the same as a Guest."""

    def __init__(
        self,
        function: Callable[[], object],
        loop: asyncio.AbstractEventLoop,
        name: str,
        on_begin: Callable[[], None] | None,
        *,
        urgent: bool,
    ) -> None:
        self.waiter: Future[None] | None = None
        self.at = inf
        self.stopping = False
        """Always: a stop does not reach into a thread."""
        self.on_begin = on_begin
        self.job = threads.start(function, loop, name=name, urgent=urgent, on_begin=self._begun)
        self.job.done_future.add_done_callback(self._done)

    @property
    def finished(self) -> bool:
        return self.job.done_future.done()

    def _begun(self) -> None:
        if self.on_begin is not None:
            self.on_begin()
        self.ring()

    def _done(self, _: object) -> None:
        self.ring()

    def ring(self) -> None:
        if self.waiter is not None:
            wake(self.waiter)

    def stop(self, grace_s: float) -> None:
        del grace_s
        self.ring()

    @property
    def ended(self) -> Ended | None:
        if not self.finished:
            return None
        error = self.job.error
        return Ended("returned", self.job.result()) if error is None else Ended("raised", None, error)

    def cancel(self) -> None:
        """A running thread cannot be cancelled, its function may look at `ctx.cancelled`; a waiting one never begins."""
        self.job.withdraw()


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
