"""`Phase`: a part of a run's work that can be stopped at any wait.

All waits of the engine go through `Phase.wait`. Code that is not ours (models, tools, approvers, stores) runs in other
tasks (`guest.py`). So a stop does not depend on foreign code that may swallow an exception or ignore a cancel.
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
"""Waits ended in one callback of the event loop."""

MOST_TURNS_HELD = 8
MOST_S_HELD = 0.05
"""How long a run whose model and tools never wait may work before it yields to the event loop."""


class Stopped(BaseException):
    """Raised by a wait of a stopped phase. Not an Exception: only the agent loop may catch it.

    `ended` is the result of foreign code that finished by itself before or during the stop, else None.
    """

    def __init__(self, ended: Ended | None = None) -> None:
        self.ended = ended


class Work(Protocol):
    """Foreign code that a phase waits for."""

    def stop(self, grace_s: float) -> None:
        """Cancel the code, or wake its waiter at once."""
        ...


class Owner(Protocol):
    """The owner of a phase."""

    def cancelled_outside(self) -> None:
        """Called when code outside remit cancelled the waiting asyncio task."""
        ...


Waiting: TypeAlias = "asyncio.Future[None] | Work"


class Breath:
    """Decides when work that never waits must yield to the event loop."""

    __slots__ = ("_until", "held")

    def __init__(self) -> None:
        self.held = 0
        """Pieces of work since the last yield."""

    def is_due(self, now: float) -> bool:
        """Whether to yield now. Called after each piece of work."""
        self.held = held = self.held + 1
        if held == 1:
            self._until = now + MOST_S_HELD
        if now < self._until and held < MOST_TURNS_HELD:
            return False
        self.held = 0
        return True


class Phase(Breath):
    """The work of one run until a stop. After a soft stop, the run continues in a new phase."""

    __slots__ = ("alarm", "first", "grace_s", "others", "owner", "stopped")

    def __init__(self, alarm: Alarm, owner: Owner | None = None) -> None:
        super().__init__()
        self.alarm = alarm
        self.stopped = False
        self.grace_s = 5.0
        """How long stopped code may take to end before it is abandoned."""
        self.first: Waiting | None = None
        """Most phases have one wait at a time, which needs no dictionary."""
        self.others: dict[Waiting, None] | None = None
        """Further waits, oldest first, so that they are always woken in the same order."""
        self.owner = owner

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self.alarm.loop

    def check(self) -> None:
        """Raises Stopped if stopped. Called after every await: a model that never yields never sees a cancel."""
        if self.stopped:
            raise Stopped

    def stop(self) -> None:
        stop_together([self])

    def waiting(self) -> list[Waiting]:
        """All current waits, oldest first."""
        first = [] if self.first is None else [self.first]
        return [*first, *self.others] if self.others else first

    def end(self, one: Waiting) -> None:
        """End one wait of the stopped phase."""
        if not isinstance(one, asyncio.Future):
            one.stop(self.grace_s)
        else:
            wake(one)

    def on_cancelled(self) -> None:
        """Tell the owner that code outside remit cancelled the waiting asyncio task."""
        if self.owner is not None:
            self.owner.cancelled_outside()

    def join(self, one: Waiting) -> None:
        """Register a wait, so that a stop ends it."""
        if self.first is None and not self.others:
            self.first = one
        elif self.others is None:
            self.others = {one: None}
        else:
            self.others[one] = None

    def part(self, one: Waiting) -> None:
        """Unregister a wait."""
        if self.first is one:
            self.first = None
        elif self.others is not None:
            self.others.pop(one, None)

    async def wait(self, future: asyncio.Future[None]) -> None:
        """Wait until the future is done. Raises Stopped if the phase was stopped, even if the future is done too."""
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
        """Yield to the event loop once: models and tools that never wait must not block it."""
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
    """A part of a phase that can also be stopped by itself. Call `leave` when its work is done."""

    __slots__ = ("_above", "_link")

    def __init__(self, above: Phase) -> None:
        super().__init__(above.alarm, above.owner)
        self._above = above
        self._link = _Link(self)
        above.join(self._link)
        if above.stopped:
            self.stop()

    def leave(self) -> None:
        """Detach from the phase above: its stop no longer stops this phase."""
        self._above.part(self._link)


class _Link:
    """Passes a stop of a phase on to its sub-phase."""

    def __init__(self, below: Phase) -> None:
        self._below = below

    def stop(self, grace_s: float) -> None:
        self._below.grace_s = grace_s
        self._below.stop()


def stop_together(phases: Sequence[Phase]) -> None:
    """Stop all phases now. Waits are ended in batches, so that ending thousands does not block the event loop."""
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
    """The loop's clock, as directly as possible: it is read many times per turn."""
    usual = getattr(type(loop), "time", None) is asyncio.BaseEventLoop.time
    return time.monotonic if usual else loop.time


def wake(future: asyncio.Future[None]) -> None:
    """Resolve the future unless it is done."""
    if not future.done():
        try:  # noqa: SIM105 - a context manager costs more than the rest
            future.set_result(None)
        except asyncio.InvalidStateError:
            # A signal handler cancelled the future in between.
            pass


async def settled(tasks: Iterable[asyncio.Future[Any]]) -> asyncio.CancelledError | None:
    """Wait for tasks to end even if this task is cancelled. The caller must raise the returned cancellation."""
    from anyio import CancelScope  # noqa: PLC0415 - needed only after a cancel

    cancelled: asyncio.CancelledError | None = None
    left: set[asyncio.Future[Any]] = {task for task in tasks if not task.done()}
    # Shielded from anyio's scopes too: they would cancel this wait in every iteration of the event loop.
    with CancelScope(shield=True):
        while left:
            try:
                await asyncio.wait(left)
            except asyncio.CancelledError as error:
                cancelled = error
            left = {task for task in left if not task.done()}
    return cancelled


def on_loop(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this code runs on the loop's thread."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
