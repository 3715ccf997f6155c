"""Where async code that is not ours runs: in tasks that are lent to it, and used again where it did not wait.

Lending a task costs nothing where the code does not wait, while a task of its own would cost it two rounds of the
event loop. To the code it looks the same: it has a current task that is nobody else's, with which timeouts and cancel
scopes work, and a context of its own.
"""

from __future__ import annotations

import asyncio
import sys
import types
from asyncio import CancelledError
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, copy_context
from math import inf
from typing import Any, Literal, cast, final

import msgspec

from remit.tasks.cancel import wake
from remit.tasks.deadline import Alarm
from remit.types.text import FOREIGN

Loop = asyncio.AbstractEventLoop
Task = asyncio.Task[object]
Code = Coroutine[asyncio.Future[object] | None, object, object]
"""A coroutine, and what one may wait for on an asyncio loop."""

# In asyncio's own list of names since 3.7, for those who drive tasks themselves.
_enter = cast("Callable[[Loop, Task], None]", getattr(asyncio.tasks, "_enter_task"))  # noqa: B009
_leave = cast("Callable[[Loop, Task], None]", getattr(asyncio.tasks, "_leave_task"))  # noqa: B009


class CurrentTasks:
    """The current task of each loop, as asyncio's functions have it."""

    def get(self, loop: Loop) -> Task | None:
        return asyncio.current_task(loop)

    def __setitem__(self, loop: Loop, task: Task) -> None:
        if self.get(loop) is not None:
            del self[loop]
        _enter(loop, task)

    def __delitem__(self, loop: Loop) -> None:
        _leave(loop, cast("Task", self.get(loop)))


# Where asyncio's C half shows it, it is a dictionary, and those functions do no more than this with it.
current_tasks = cast(
    "dict[Loop, Task] | CurrentTasks",
    getattr(sys.modules.get("_asyncio"), "_current_tasks", CurrentTasks()),
)


@final
class Ended(msgspec.Struct):
    """How foreign code ended. What timed out may have a value too: it returned while it was being stopped."""

    how: Literal["returned", "raised", "timed_out"]
    value: object = None
    error: BaseException | None = None


Driver = Generator["asyncio.Future[object] | Ended | None", Any]
"""What it is sent is a coroutine, or None for who waits: no type says that a generator may run both."""


def _drive() -> Driver:
    """Run one coroutine after another: each is sent to it, and how each ended is what it yields then.

    An exception, by which a coroutine itself tells that it has ended, takes twice as long. Nothing of what has ended is
    kept here, since it may be long before the next one comes.
    """
    raised: list[Ended] = []
    coroutine = yield None
    while True:
        try:
            coroutine = yield Ended("returned", (yield from coroutine))  # pyright: ignore[reportUnknownArgumentType] - whatever it is
            continue
        except GeneratorExit:
            # It is let go of, with what it runs; or that raised it by itself, and is told by it.
            raise
        except BaseException as error:  # noqa: BLE001 - a tool that calls sys.exit() must not end the process
            # Without this frame, which is somebody else's next: who clears the frames of a traceback would end it.
            if error.__traceback__ is not None:
                error.__traceback__ = error.__traceback__.tb_next
            raised.append(Ended("raised", None, error))
        coroutine = yield raised.pop()


# A generator that may run coroutines.
_driver = cast("Callable[[], Driver]", types.coroutine(_drive))


class Hosts:
    """The tasks of one tree that are lent to foreign code, and the tree's timer."""

    __slots__ = ("alarm", "clock", "closed", "context", "drivers", "idle", "loop")

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.context = copy_context()
        """What the tasks that are lent have until they are, and what its timer has: one for the tree."""
        self.alarm = Alarm(loop, self.context)
        self.clock = self.alarm.clock
        self.idle: list[Host] = []
        self.drivers: list[Driver] = []
        """Of tasks that are not lent any more. The tree's own: what a collector finds together it also closes together."""
        self.closed = False

    def close(self) -> None:
        """End every task that is not lent; the others end when they are given back."""
        self.closed = True
        self.alarm.close()
        while self.idle:
            self.idle.pop().end()


class Host(asyncio.Task[None]):
    """A task that does nothing: it is there for the code that runs in its name, which is who a cancel of it is for."""

    __slots__ = ("_ended", "_hosts", "_over", "driver", "guest", "known", "must_cancel", "requests", "send")

    def __init__(self, hosts: Hosts) -> None:
        self._hosts = hosts
        self.driver = driver = hosts.drivers.pop() if hosts.drivers else _new_driver()
        self.send = driver.send
        self._ended = False
        self._over: asyncio.Future[None] | None = None
        """What it waits for, if it has not ended before asyncio gives it a first step."""
        self.guest: Guest | None = None
        """Who it is lent to; None also in the first step of the code."""
        self.must_cancel: CancelledError | None = None
        """How the code last cancelled itself in its first step."""
        self.known = 0
        """How often it was referred to when it was made, before anybody else could see it."""
        self.requests = 0
        """Cancels that were asked for and not taken back."""
        # Of no group: it is lent to code that may have to be left behind.
        super().__init__(self._stay(), loop=hosts.loop, name="remit lends this task", context=hosts.context)

    def cancel(self, msg: object = None) -> bool:
        """Who cancels the task means its guest, and means it now: also before asyncio has given it a first step."""
        if self._ended or self.done():
            return False
        if self in self._hosts.idle:
            # Meant for code that has ended: nobody else is to be cancelled by it.
            self._hosts.idle.remove(self)
            self.end()
            return True
        self.requests += 1
        if self.guest is not None:
            self.guest.cancel(msg)
        else:
            self.must_cancel = _cancellation(msg)
        return True

    def cancelling(self) -> int:
        return self.requests

    def uncancel(self) -> int:
        """As asyncio has it since 3.13: what was taken back before it was thrown is not thrown."""
        self.requests = max(0, self.requests - 1)
        if not self.requests:
            self.must_cancel = None
            if self.guest is not None:
                self.guest.spare()
        return self.requests

    async def _stay(self) -> None:
        if not self._ended:
            self._over = asyncio.Future(loop=self._hosts.loop)
            await self._over

    def end(self) -> None:
        self._ended = True
        if self._over is not None:
            wake(self._over)


def _new_driver() -> Driver:
    driver = _driver()
    next(driver)
    return driver


def _cancellation(why: object) -> CancelledError:
    return CancelledError() if why is None else CancelledError(why)


class Guest:
    """One piece of foreign code that waits, run on step by step in the task that is lent to it.

    It has had its first step, in `context`. `poke` wakes whoever attends to it.
    """

    __slots__ = (
        "_context",
        "_coroutine",
        "_future",
        "_host",
        "_hosts",
        "_must_cancel",
        "at",
        "ended",
        "finished",
        "stopping",
        "waiter",
    )

    def __init__(
        self,
        coroutine: Code,
        context: Context,
        hosts: Hosts,
        host: Host,
        awaited: asyncio.Future[object] | None,
    ) -> None:
        self._coroutine = coroutine
        self._context = context
        self._hosts = hosts
        self._host = host
        host.guest = self
        self._future: asyncio.Future[object] | None = None
        """What it waits for, while it does."""
        self._must_cancel = host.must_cancel
        self.finished = False
        self.ended: Ended | None = None
        """How it ended by itself; None when it was cancelled or left."""
        self.waiter: asyncio.Future[None] | None = None
        """Woken when it has finished, or when somebody wants whoever waits to look again."""
        self.at = inf
        """When the alarm is to have it looked at."""
        self.stopping = False
        """Whether a stop has cancelled it, so that half of its grace is over when it is looked at."""
        self._wait_for(awaited)

    def cancel(self, why: object = None) -> None:
        """As `Task.cancel`: what it waits for is cancelled, or a CancelledError is thrown into it.

        `why` is passed on: anyio's scopes know their own cancellations by it.
        """
        if not self.finished and (self._future is None or not self._future.cancel(why)):
            self._must_cancel = _cancellation(why)

    def spare(self) -> None:
        """Not throw what was asked for, if it has not been thrown."""
        self._must_cancel = None

    def stop(self, grace_s: float) -> None:
        """Cancel it where it waits, without the round of the loop that it takes to ask whoever attends to it.

        Those are woken when it has ended, or when half of the grace is over.
        """
        if self.stopping:
            return
        future = self._future
        if future is not None and not future.done():
            try:
                self.stopping = future.cancel()
            except Exception:  # noqa: BLE001 - it may be somebody's own, and others are still to be stopped
                self.stopping = False
        if self.stopping:
            alarm = self._hosts.alarm
            self.at = alarm.clock() + grace_s / 2
            alarm.set(self)
        else:
            self.ring()

    def leave(self) -> Code:
        """Never drive it again. Its coroutine is given back, for whoever can close it."""
        self.finished = True
        self._host.guest = None
        self._host.end()
        return self._coroutine

    @property
    def driver(self) -> Driver:
        """What drives it: closed with it, or not at all."""
        return self._host.driver

    def ring(self) -> None:
        """Have whoever attends to it look again."""
        if self.waiter is not None:
            wake(self.waiter)

    def _wait_for(self, awaited: asyncio.Future[object] | None) -> None:
        """Have the next step follow what the code waits for, by the rules of asyncio's own tasks."""
        loop, context = self._hosts.loop, self._context
        try:
            if awaited is None:
                # A bare yield: everybody else first.
                loop.call_soon(self._step, None, context=context)
                return
            if not getattr(awaited, "_asyncio_future_blocking", None):
                raise RuntimeError(f"{awaited!r} was yielded, which cannot be awaited")
            awaited._asyncio_future_blocking = False  # noqa: SLF001 - how a future knows that it is awaited
            # As asyncio's own tasks find it.
            theirs = awaited.get_loop() if hasattr(awaited, "get_loop") else awaited._loop  # noqa: SLF001 - as above
            if theirs is not loop:
                raise RuntimeError(f"{awaited!r} belongs to another event loop")
            # In its own context, as the steps of a task are.
            awaited.add_done_callback(self._step, context=context)
            self._future = awaited
            if self._must_cancel is not None and awaited.cancel(*self._must_cancel.args):
                self._must_cancel = None
        except FOREIGN as error:
            # It is raised where the code waits; a future of somebody's own kind may raise anything, anywhere.
            loop.call_soon(self._step, None, error, context=context)

    def _step(self, future: asyncio.Future[object] | None, error: BaseException | None = None) -> None:
        """Run it up to its next wait, or its end, in the name of the task that is lent to it."""
        if self.finished:
            return
        if future is not None:
            try:
                future.result()
            except BaseException as raised:  # noqa: BLE001 - it is the code's own, and is raised there
                error = raised
        if self._must_cancel is not None:
            error, self._must_cancel = error if isinstance(error, CancelledError) else self._must_cancel, None
        self._future = None
        loop = self._hosts.loop
        here = current_tasks.get(loop)
        current_tasks[loop] = host = self._host
        try:
            awaited = host.send(None) if error is None else host.driver.throw(error)
        except BaseException as raised:  # noqa: BLE001 - as in the driver, which has ended with it
            self._fail(raised)
        else:
            if type(awaited) is Ended:
                self._end(awaited)
            else:
                self._wait_for(awaited)
        finally:
            if here is None:
                del current_tasks[loop]
            else:
                current_tasks[loop] = here
            # What was thrown knows this frame: together they would be found by a garbage collector only.
            del error, future

    def _end(self, ended: Ended) -> None:
        self._hosts.drivers.append(self._host.driver)
        if ended.error is not None:
            self._fail(ended.error)
        else:
            self.ended = ended
            self._finish()

    def _fail(self, raised: BaseException) -> None:
        if not isinstance(raised, CancelledError):
            self.ended = Ended("raised", None, raised)
        self._finish()
        if isinstance(raised, KeyboardInterrupt):
            raise raised

    def _finish(self) -> None:
        self.finished = True
        self._host.guest = None
        # Not lent again: who has waited may have told others of its task, and they may still cancel it.
        self._host.end()
        self.ring()
