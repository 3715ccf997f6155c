"""Stopping: a stretch of a run's work whose every wait can be ended at once.

All waits of the engine go through `Phase.wait`. Code that is not ours (models, tools, approvers,
stores) runs in other tasks (`guest.py`), so a stop is never an exception thrown into code
that may swallow it, and never has to pass through an `await` that ignores it.
"""

from __future__ import annotations

import asyncio
import time
import types
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

if TYPE_CHECKING:
    from remit.tasks.deadline import Alarm
    from remit.tasks.guest import Ended


ENDED_TOGETHER = 256
"""Waits that are ended before everybody else on the event loop has a turn."""

MOST_TURNS_HELD = 8
MOST_S_HELD = 0.05
"""How long a run whose model and tools never wait may have the event loop for itself."""


class Stopped(BaseException):
    """Raised by a wait of a phase that was stopped. Not an Exception: only the loop may catch it.

    `ended` is how foreign code ended by itself, if it did so before or while it was stopped.
    """

    def __init__(self, ended: Ended | None = None) -> None:
        self.ended = ended


class Work(Protocol):
    """Foreign code that is attended to."""

    def stop(self, grace_s: float) -> None:
        """Have it end, or be looked at at once."""
        ...


class Owner(Protocol):
    """Whose phase it is."""

    def cancelled_outside(self) -> None:
        """Asyncio itself cancelled the task that waits: somebody outside wants the end."""
        ...


Waiting: TypeAlias = "asyncio.Future[None] | Work"


class Breath:
    """When everybody else is to have the event loop, for work that never waits."""

    __slots__ = ("_until", "held")

    def __init__(self) -> None:
        self.held = 0
        """Pieces of work since everybody else last could run."""

    def is_due(self, now: float) -> bool:
        """Whether it is time to breathe: asked after each piece of work."""
        self.held = held = self.held + 1
        if held == 1:
            self._until = now + MOST_S_HELD
        if now < self._until and held < MOST_TURNS_HELD:
            return False
        self.held = 0
        return True


class Phase(Breath):
    """Work of one run up to a stop. After a soft stop the run goes on in a new phase."""

    __slots__ = ("alarm", "first", "grace_s", "others", "owner", "stopped")

    def __init__(self, alarm: Alarm, owner: Owner | None = None) -> None:
        super().__init__()
        self.alarm = alarm
        self.stopped = False
        self.grace_s = 5.0
        """How long stopped code is waited for before it is left behind."""
        self.first: Waiting | None = None
        """Most phases have one wait at a time: no dictionary for that."""
        self.others: dict[Waiting, None] | None = None
        """Those that began while there were others, in order: who waited first is woken first, every time."""
        self.owner = owner

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.alarm.loop

    def check(self) -> None:
        """Raises Stopped. Called after every await: a model that never yields never sees a cancel."""
        if self.stopped:
            raise Stopped

    def stop(self) -> None:
        stop_together([self])

    def waiting(self) -> list[Waiting]:
        """Everything that waits in it, in order."""
        first = [] if self.first is None else [self.first]
        return [*first, *self.others] if self.others else first

    def end(self, one: Waiting) -> None:
        """End a wait, now that the phase is stopped."""
        if not isinstance(one, asyncio.Future):
            one.stop(self.grace_s)
        else:
            wake(one)

    def on_cancelled(self) -> None:
        """Asyncio itself cancelled the task that waits."""
        if self.owner is not None:
            self.owner.cancelled_outside()

    def join(self, one: Waiting) -> None:
        """Have a stop end it."""
        if self.first is None and not self.others:
            self.first = one
        elif self.others is None:
            self.others = {one: None}
        else:
            self.others[one] = None

    def part(self, one: Waiting) -> None:
        """It waits no more."""
        if self.first is one:
            self.first = None
        elif self.others is not None:
            self.others.pop(one, None)

    async def wait(self, future: asyncio.Future[None]) -> None:
        """Until the future is done or the phase is stopped.

        Raises Stopped in the second case, also when both happened.
        """
        if self.stopped:
            raise Stopped
        self.join(future)
        try:
            await future
        except asyncio.CancelledError:
            self.on_cancelled()
            raise Stopped from None
        finally:
            self.part(future)
        self.held = 0
        if self.stopped:
            raise Stopped

    async def breathe(self) -> None:
        """Let everybody else run once: a model and tools that never wait must not have the loop for themselves."""
        try:
            await _bare_yield()
        except asyncio.CancelledError:
            self.on_cancelled()
            raise Stopped from None
        self.check()

    async def sleep(self, seconds: float) -> None:
        future: asyncio.Future[None] = self.loop.create_future()
        timer = self.loop.call_later(seconds, wake, future)
        try:
            await self.wait(future)
        finally:
            timer.cancel()


class SubPhase(Phase):
    """A part of a phase that can also be stopped by itself. `leave` it when its work is done."""

    __slots__ = ("_above", "_link")

    def __init__(self, above: Phase) -> None:
        super().__init__(above.alarm, above.owner)
        self._above = above
        self._link = _Link(self)
        above.join(self._link)
        if above.stopped:
            self.stop()

    def leave(self) -> None:
        """A stop of the phase above does not reach it any more."""
        self._above.part(self._link)


class _Link:
    """Passes a stop on to a part of a phase."""

    def __init__(self, below: Phase) -> None:
        self._below = below

    def stop(self, grace_s: float) -> None:
        self._below.grace_s = grace_s
        self._below.stop()


def stop_together(phases: Sequence[Phase]) -> None:
    """Stop them all, now. Their waits are ended a few at a time, so that the event loop is not blocked by thousands."""
    waits: list[tuple[Phase, Waiting]] = []
    for phase in phases:
        phase.stopped = True
        waits += [(phase, one) for one in phase.waiting()]
    _end_waits(waits)


def _end_waits(waits: Sequence[tuple[Phase, Waiting]]) -> None:
    now, later = waits[:ENDED_TOGETHER], waits[ENDED_TOGETHER:]
    for phase, one in now:
        phase.end(one)
    if later:
        later[0][0].loop.call_soon(_end_waits, later)


@types.coroutine
def _bare_yield() -> Generator[None, None, None]:
    yield


def clock_of(loop: asyncio.AbstractEventLoop) -> Callable[[], float]:
    """The loop's clock, by the shortest way: it is asked many times a turn."""
    usual = getattr(type(loop), "time", None) is asyncio.BaseEventLoop.time
    return time.monotonic if usual else loop.time


def wake(future: asyncio.Future[None]) -> None:
    """Resolve it unless that has happened already."""
    if not future.done():
        try:  # noqa: SIM105 - a context manager costs more than the rest
            future.set_result(None)
        except asyncio.InvalidStateError:
            # A signal's handler cancelled it in between.
            pass


async def settled(tasks: Iterable[asyncio.Future[Any]]) -> asyncio.CancelledError | None:
    """Wait for tasks to end, whatever cancels this one meanwhile. The caller raises the cancellation that is returned."""
    from anyio import CancelScope  # noqa: PLC0415 - only if a caller was cancelled

    cancelled: asyncio.CancelledError | None = None
    left: set[asyncio.Future[Any]] = {task for task in tasks if not task.done()}
    # Shielded from anyio too, whose scopes would cancel this wait in every round of the loop.
    with CancelScope(shield=True):
        while left:
            try:
                await asyncio.wait(left)
            except asyncio.CancelledError as error:
                cancelled = error
            left = {task for task in left if not task.done()}
    return cancelled


def on_loop(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this code runs on the loop's own thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
