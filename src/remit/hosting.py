"""Where async code that is not ours runs: in tasks that are lent to it, one at a time, and used again.

Lending a task costs nothing where the code does not wait, while a task of its own would cost it two rounds of the
event loop. To the code it looks the same: it has a current task that is nobody else's, with which timeouts and cancel
scopes work, and a context of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Coroutine
from inspect import iscoroutine
from typing import cast

from remit.phase import clock_of, wake

Loop = asyncio.AbstractEventLoop
# In asyncio's own list of names since 3.7, for those who drive tasks themselves.
_enter = cast("Callable[[Loop, asyncio.Task[object]], None]", getattr(asyncio.tasks, "_enter_task"))  # noqa: B009
_leave = cast("Callable[[Loop, asyncio.Task[object]], None]", getattr(asyncio.tasks, "_leave_task"))  # noqa: B009


class Hosts:
    """The tasks of one tree that are lent to foreign code."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.clock = clock_of(loop)
        self.context = contextvars.copy_context()
        """What the tasks that are lent have until they are, and what wakes their guests."""
        self._idle: list[Host] = []
        self._closed = False

    def lend(self) -> Host:
        return self._idle.pop() if self._idle else Host(self.loop, self.context)

    def take_back(self, host: Host) -> None:
        """It waits for the next one, unless what ran in it left it cancelled."""
        if self._closed or host.task.cancelling() or host.task.done():
            host.end()
        else:
            self._idle.append(host)

    def close(self) -> None:
        """End every task that is not lent; the others end when they are given back."""
        self._closed = True
        while self._idle:
            self._idle.pop().end()


class Host(asyncio.Future[None]):
    """What a lent task waits for. The task does nothing: it is there for the code that runs in its name."""

    def __init__(self, loop: Loop, context: contextvars.Context) -> None:
        super().__init__(loop=loop)
        self.guest: Guest | None = None
        self.begun = False
        # Of no group: it is lent to code that may have to be left behind.
        self.task: asyncio.Task[object] = loop.create_task(
            self._stay(), name="remit lends this task", context=context
        )

    async def _stay(self) -> None:
        self.begun = True
        await self

    def cancel(self, msg: object = None) -> bool:
        """Who cancels the task means its guest, and means it now."""
        if self.guest is None:
            return super().cancel(msg)
        self.guest.cancel(msg)
        return True

    def end(self) -> None:
        wake(self)


class Guest:
    """One piece of foreign code, run step by step in a task that is lent to it. It begins at once."""

    __slots__ = (
        "_context",
        "_coroutine",
        "_future",
        "_host",
        "_hosts",
        "_must_cancel",
        "cancelled",
        "error",
        "finished",
        "value",
        "waiter",
    )

    def __init__(self, awaitable: Awaitable[object], hosts: Hosts) -> None:
        self._coroutine = awaitable if iscoroutine(awaitable) else _awaiting(awaitable)
        self._context = contextvars.copy_context()
        self._hosts = hosts
        self._future: asyncio.Future[object] | None = None
        self._must_cancel: CancelledError | None = None
        self.finished = False
        self.cancelled = False
        """Whether it ended by being cancelled."""
        self.value: object = None
        self.error: BaseException | None = None
        self.waiter: asyncio.Future[None] | None = None
        """Woken when it has finished, or when somebody wants whoever waits to look again."""
        self._host = hosts.lend()
        self._host.guest = self
        self._go_on(None)

    def cancel(self, why: object = None) -> None:
        """As `Task.cancel`: what it waits for is cancelled, or a CancelledError is thrown into it.

        `why` is passed on: anyio's scopes know their own cancellations by it.
        """
        if self.finished:
            return
        if self._future is None or not self._future.cancel(why):
            self._must_cancel = CancelledError() if why is None else CancelledError(why)

    def leave(self) -> Coroutine[object, object, object]:
        """Never drive it again. Its coroutine is given back, for whoever can close it."""
        self.finished = self.cancelled = True
        host, self._host.guest = self._host, None
        host.task.cancel()
        return self._coroutine

    def poke(self) -> None:
        if self.waiter is not None:
            wake(self.waiter)

    def _step(self, error: BaseException | None) -> None:
        if self.finished:
            return
        if self._must_cancel is not None:
            error, self._must_cancel = error if isinstance(error, CancelledError) else self._must_cancel, None
        self._future = None
        self._go_on(error)

    def _go_on(self, error: BaseException | None) -> None:
        """Run it up to its next wait, or its end, in the name of the task that is lent to it."""
        loop, task = self._hosts.loop, self._host.task
        here = asyncio.current_task(loop)
        if here is not None:
            _leave(loop, here)
        _enter(loop, task)
        try:
            if error is None:
                awaited = self._context.run(self._coroutine.send, None)
            else:
                awaited = self._context.run(self._coroutine.throw, error)
        except StopIteration as stop:
            self._finish(stop.value, None)
        except CancelledError as cancelled:
            self.cancelled = True
            self._finish(None, cancelled)
        except KeyboardInterrupt as interrupt:
            self._finish(None, interrupt)
            raise
        except BaseException as raised:  # noqa: BLE001 - a tool that calls sys.exit() must not end the process
            self._finish(None, raised)
        else:
            self._wait_for(awaited)
        finally:
            _leave(loop, task)
            if here is not None:
                _enter(loop, here)

    def _finish(self, value: object, error: BaseException | None) -> None:
        self.finished, self.value, self.error = True, value, error
        self._host.guest = None
        self._hosts.take_back(self._host)
        if self.waiter is not None:
            wake(self.waiter)

    def _wait_for(self, awaited: object) -> None:
        """Have the next step follow what the code waits for, by the rules of asyncio's own tasks."""
        loop, host = self._hosts.loop, self._host
        if not host.begun and host.task.cancelling():
            # It cancelled itself before the task that is lent to it had its first turn.
            self._must_cancel = CancelledError()
        if awaited is None:
            # A bare yield: everybody else first.
            loop.call_soon(self._step, None)
        elif getattr(awaited, "_asyncio_future_blocking", None):
            future = cast("asyncio.Future[object]", awaited)
            future._asyncio_future_blocking = False  # noqa: SLF001 - how a future knows that it is awaited
            if future.get_loop() is not loop:
                self._complain(f"{future!r} belongs to another event loop")
                return
            self._future = future
            future.add_done_callback(self._woken, context=self._hosts.context)
            if self._must_cancel is not None and future.cancel(*self._must_cancel.args):
                self._must_cancel = None
        else:
            self._complain(f"{awaited!r} was yielded, which cannot be awaited")

    def _complain(self, words: str) -> None:
        self._hosts.loop.call_soon(self._step, RuntimeError(words))

    def _woken(self, future: asyncio.Future[object]) -> None:
        try:
            future.result()
        except BaseException as error:  # noqa: BLE001 - it is the code's own, and is raised there
            self._step(error)
        else:
            self._step(None)


async def _awaiting(awaitable: Awaitable[object]) -> object:
    return await awaitable
