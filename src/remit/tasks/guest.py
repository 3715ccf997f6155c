"""Code that is not ours (models, tools, approvers, stores), run so that it can always be abandoned.

An async function runs in an ordinary asyncio task, a sync function in a daemon thread. At its timeout, or when its run is
stopped, the code is cancelled, given a grace period to clean up, cancelled again, and then abandoned: its coroutine is
closed and its result dropped. A coroutine that refuses to close is never resumed, so the event loop can still end.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import sys
import threading
from asyncio import CancelledError, Future
from collections.abc import Awaitable, Callable, Coroutine
from math import inf
from typing import Any, Literal, TypeAlias, cast, final

import msgspec

import remit.tasks.threads as threads
from remit.tasks.cancel import Phase, Stopped, wake

MOST_ABANDONED = 64
"""With this many abandoned calls still running in the process, no new call is started."""

_still_running: list[str] = []
"""Names of abandoned calls whose coroutines refused to be closed."""

_unclosed: list[object] = []
"""Those coroutines. They are never freed: see `keep_for_ever`."""

Expires = Callable[[], float | None]
"""Returns the loop time of the timeout; called again whenever that time comes."""

Settle = Callable[[], Awaitable[bool]]
"""Waits for the children that the code started; returns whether there were any. Raises nothing."""

_Work: TypeAlias = "Guest | _ThreadWork"


@final
class Ended(msgspec.Struct):
    """How foreign code ended. Code that timed out has a value if it returned while it was being stopped."""

    how: Literal["returned", "raised", "timed_out"]
    value: object = None
    error: BaseException | None = None


def abandoned() -> list[str]:
    """Names of abandoned calls that still run in this process."""
    return _still_running + threads.abandoned()


def count_abandoned() -> int:
    return len(_still_running) + threads.count_abandoned()


def is_async(function: object) -> bool:
    """Whether a call returns an awaitable, as far as can be seen without calling."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[object]", function).func
    called = getattr(function, "__call__", None)  # noqa: B004 - an object may have an async __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


async def run(
    awaitable: Awaitable[object],
    phase: Phase,
    *,
    name: str,
    expires: Expires | None = None,
    poked: Callable[[Callable[[], None]], None] | None = None,
    settle: Settle | None = None,
    on_abandoned: Callable[[str], None],
) -> Ended:
    """Run an awaitable in a new task. Raises Stopped, after the grace period, if the phase is stopped.

    `poked` receives a function that makes `run` call `expires` again at once. `settle` is awaited before the grace period
    of stopped code begins.
    """
    if phase.stopped:
        _close(awaitable)
        raise Stopped
    try:
        guest = Guest(awaitable, phase)
    except Exception as error:  # noqa: BLE001 - the first step of the code awaited a broken awaitable
        return Ended("raised", None, error)
    return await _attend(
        guest, phase, name=name, expires=expires, poked=poked, settle=settle, on_abandoned=on_abandoned
    )


async def run_in_thread(
    function: Callable[[], object],
    phase: Phase,
    *,
    name: str,
    expires: Expires | None = None,
    on_begin: Callable[[], None] | None = None,
    urgent: bool = False,
    hears: bool = True,
    poked: Callable[[Callable[[], None]], None] | None = None,
    settle: Settle | None = None,
    on_abandoned: Callable[[str], None],
) -> Ended:
    """Run a function in a daemon thread. Raises Stopped, after the grace period, if the phase is stopped.

    The function may wait for a thread, unless it is `urgent`; `on_begin` is called when it has a thread. A function that
    cannot notice its timeout (`hears=False`) is abandoned at that moment.
    """
    work = _ThreadWork(function, phase.loop, name, on_begin, urgent=urgent, hears=hears)
    return await _attend(
        work, phase, name=name, expires=expires, poked=poked, settle=settle, on_abandoned=on_abandoned
    )


async def _attend(
    work: _Work,
    phase: Phase,
    *,
    name: str,
    expires: Expires | None,
    poked: Callable[[Callable[[], None]], None] | None,
    settle: Settle | None,
    on_abandoned: Callable[[str], None],
) -> Ended:
    """Wait until the work finishes, its timeout comes or its phase is stopped. Raises Stopped."""
    if poked is not None:
        poked(work.ring)
    stopped, timed_out = phase.stopped, False
    while not (stopped or work.finished or timed_out):
        at = None if expires is None else expires()
        timed_out = at is not None and at <= phase.alarm.clock()
        if not timed_out:
            stopped = not await _waited(work, phase, at)
    if work.finished and not stopped:
        return work.ended or _cancelled_inside()
    if not work.finished and not stopped and not work.hears:
        _abandon(work, name, on_abandoned)
    elif not work.finished:
        await _stop(work, phase, name, settle, on_abandoned)
    own = _kept(work.ended)
    if stopped or phase.stopped:
        raise Stopped(own)
    return Ended("timed_out") if own is None else Ended("timed_out", own.value, own.error)


async def _waited(work: _Work, phase: Phase, at: float | None) -> bool:
    """Wait until the work finishes or rings, or until the time `at`. False if the phase was stopped."""
    work.waiter = phase.loop.create_future()
    phase.join(work)
    if at is not None:
        work.at = at
        phase.alarm.set(work)
    try:
        await work.waiter
    except CancelledError:
        # Even if the phase has no owner: a cancel of this task must end the work.
        phase.on_cancelled()
        return False
    finally:
        phase.part(work)
        phase.alarm.drop(work)
    return not phase.stopped


async def _stop(
    work: _Work, phase: Phase, name: str, settle: Settle | None, on_abandoned: Callable[[str], None]
) -> None:
    """Cancel the work, allow half of the grace period for cleaning up, insist for the other half, then abandon it."""
    work.cancel()
    settled = settle is not None and await settle()
    # A stop of the phase has started the grace period; waiting for children restarts it.
    for attempt in range(work.stopping and not settled, 11):
        if not work.finished:
            work.waiter = phase.loop.create_future()
            work.at = phase.alarm.clock() + phase.grace_s / (20 if attempt else 2)
            phase.alarm.set(work)
            try:
                await work.waiter
            except CancelledError:
                # The work is already being stopped; the owner learns of this cancel later.
                phase.on_cancelled()
            phase.alarm.drop(work)
        if work.finished:
            return
        work.cancel()
    _abandon(work, name, on_abandoned)


def _abandon(work: _Work, name: str, on_abandoned: Callable[[str], None]) -> None:
    if not work.abandon():
        _still_running.append(name)
    on_abandoned(name)


def _cancelled_inside() -> Ended:
    return Ended("raised", None, RuntimeError("the code cancelled its own task"))


def _kept(ended: Ended | None) -> Ended | None:
    """The result of code that finished while it was stopped: the result counts, and a reply must be paid for."""
    if ended is None or isinstance(ended.error, threads.NeverBegan):
        return None
    if inspect.isawaitable(ended.value):
        _close(ended.value)
        return None
    return ended


def _close(awaitable: object) -> None:
    """Close a coroutine that will not be awaited, so that Python does not warn."""
    if inspect.iscoroutine(awaitable):
        with contextlib.suppress(BaseException):
            awaitable.close()


class _GuestTask(asyncio.Task[None]):
    """The task of foreign code. An abandoned task counts as done: `asyncio.run` must not wait for it."""

    abandoned = False

    def done(self) -> bool:
        return self.abandoned or super().done()


class _Leash(Coroutine[Any, Any, None]):
    """Wraps the coroutine of foreign code. Once `cut`, the task ends and the coroutine is never resumed."""

    def __init__(self, code: Coroutine[Any, Any, None]) -> None:
        self.code = code
        self.cut = False

    def send(self, value: object, /) -> Any:
        if self.cut:
            raise CancelledError
        return self.code.send(value)

    def throw(self, *error: Any) -> Any:
        if self.cut:
            raise CancelledError
        return self.code.throw(*error)

    def close(self) -> None:
        if not self.cut:
            self.code.close()

    def __await__(self) -> Any:
        return self.code.__await__()


class Guest:
    """Foreign code in its own task. On Python 3.12 and later, its first step runs in the constructor."""

    hears = True
    """Whether the code can notice that it should end."""

    def __init__(self, awaitable: Awaitable[object], phase: Phase) -> None:
        self.phase = phase
        self.awaitable = awaitable
        self.waiter: Future[None] | None = None
        """Woken when the code has finished, or when the owner should check again."""
        self.at = inf
        """When the alarm wakes `waiter`."""
        self.stopping = False
        """Whether a stop has cancelled the code and started its grace period."""
        self.cancelled = False
        self.finished = False
        self.ended: Ended | None = None
        """How the code ended by itself; None if it was cancelled or abandoned."""
        self.leash = _Leash(self._run())
        self.task = _new_task(self.leash, phase.loop)

    async def _run(self) -> None:
        """Raises only CancelledError and KeyboardInterrupt: a sys.exit() in foreign code must not end the event loop."""
        try:
            self.ended = Ended("returned", await self.awaitable)
        except (CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - every exception becomes a result
            self.ended = Ended("raised", None, error)
        finally:
            # Here, because a callback of the task runs one iteration of the event loop later.
            self.finished = True
            self.ring()

    def cancel(self) -> None:
        if not self.cancelled:
            # A task that is cancelled before its first step never runs `_run`.
            self.cancelled = True
            self.task.add_done_callback(self._done)
        # A user-defined future may raise anything when its task is cancelled.
        with contextlib.suppress(Exception):
            self.task.cancel()

    def stop(self, grace_s: float) -> None:
        """Cancel the code now. Wakes the waiter when the code has ended, or after half of the grace period."""
        if self.stopping:
            return
        self.stopping = True
        self.cancel()
        self.at = self.phase.alarm.clock() + grace_s / 2
        self.phase.alarm.set(self)

    def abandon(self) -> bool:
        """Never resume the code again. Returns whether it could be closed."""
        self.leash.cut = self.task.abandoned = True
        frames = _chain(self.leash.code)
        with contextlib.suppress(BaseException):
            self.leash.code.close()
        self.cancel()
        # close() raised GeneratorExit in the code, so the code did not end by itself.
        self.ended = None
        refused = [c for c in frames if inspect.getcoroutinestate(c) != inspect.CORO_CLOSED]
        if refused:
            keep_for_ever(self.task, *refused)
        return not refused

    def ring(self) -> None:
        """Make the owner check again."""
        if self.waiter is not None:
            wake(self.waiter)

    def _done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            # An abandoned task has no other reader, and asyncio logs unread exceptions.
            task.exception()
        # A task that is cancelled before its first step never runs `_run`.
        _close(self.awaitable)
        self.finished = True
        self.ring()


if sys.version_info >= (3, 12):

    def _new_task(code: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> _GuestTask:
        return _GuestTask(code, loop=loop, eager_start=True)

else:

    def _new_task(code: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> _GuestTask:
        return _GuestTask(code, loop=loop)


class _ThreadWork:
    """A function in a thread, with the interface of `Guest`."""

    def __init__(
        self,
        function: Callable[[], object],
        loop: asyncio.AbstractEventLoop,
        name: str,
        on_begin: Callable[[], None] | None,
        *,
        urgent: bool,
        hears: bool,
    ) -> None:
        self.hears = hears
        self.waiter: Future[None] | None = None
        self.at = inf
        self.stopping = False
        """Always False: a stop cannot cancel a thread."""
        self.on_begin = on_begin
        self.job = threads.start(function, loop, name=name, urgent=urgent, on_begin=self._begun)
        self.job.done_future.add_done_callback(self._done)

    @property
    def finished(self) -> bool:
        return self.job.done_future.done()

    @property
    def ended(self) -> Ended | None:
        if not self.finished:
            return None
        error = self.job.error
        return Ended("returned", self.job.result()) if error is None else Ended("raised", None, error)

    def cancel(self) -> None:
        """Withdraw a waiting function. A running one cannot be cancelled; it may check `ctx.cancelled`."""
        self.job.withdraw()

    def stop(self, grace_s: float) -> None:
        del grace_s
        self.ring()

    def abandon(self) -> bool:
        """Leave the thread to `threads`, which counts it as abandoned."""
        self.job.abandon()
        return True

    def ring(self) -> None:
        if self.waiter is not None:
            wake(self.waiter)

    def _begun(self) -> None:
        if self.on_begin is not None:
            self.on_begin()
        self.ring()

    def _done(self, _: object) -> None:
        self.ring()


def _chain(coroutine: object) -> list[Coroutine[object, object, object]]:
    """A suspended coroutine and the chain of coroutines that it awaits."""
    found: list[Coroutine[object, object, object]] = []
    while inspect.iscoroutine(coroutine):
        found.append(coroutine)
        coroutine = coroutine.cr_await
    return found


def keep_for_ever(*refused: object) -> None:
    """Never free code that refuses to be closed: freeing it would run it again, even while Python exits.

    A daemon thread holds the references, because Python frees everything else at exit.
    """
    if not _unclosed:
        threading.Thread(target=_hold, args=(_unclosed,), name="remit-unclosed", daemon=True).start()
    _unclosed.extend(refused)


def _hold(kept: list[object]) -> None:
    threading.Event().wait()
    del kept
