"""Run a coroutine from code without an event loop, so that Ctrl-C always ends it.

The first SIGINT cancels the coroutine's task. The second SIGINT stops the loop between two callbacks. If a callback
blocks the loop, a thread interrupts that callback. `cancel.py` cancels one tree; the command line has its own handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Generator
from time import monotonic
from types import FrameType
from typing import Generic, TypeVar

from remit.tasks.guest import keep_for_ever

T = TypeVar("T")

PATIENCE_S = 0.25
"""How long a callback may block the loop after the second SIGINT before it is interrupted."""

CLOSING_S = 5.0
"""How long tasks and async generators left by the coroutine may take to end."""

HARD_CLOSING_S = 0.5
"""`CLOSING_S` after the second SIGINT."""

_LOOP_MODULES = frozenset({"asyncio.base_events", "asyncio.windows_events", __name__})
"""An interrupt in these modules could skip cleanup code of `run_forever`. The loop could then not be closed."""


def run_interruptible(main: Callable[[], Coroutine[object, object, T]]) -> T:
    """Run `main()` in a new event loop and return its result.

    Raises KeyboardInterrupt if a SIGINT arrived, even if the coroutine returned a result. SIGINT is handled only in the
    main thread, and only if Python's default SIGINT handler is installed.
    """
    return _Runner(main).run()


class _Runner(Generic[T]):
    """One event loop, its main task, and the SIGINTs received."""

    def __init__(self, main: Callable[[], Coroutine[object, object, T]]) -> None:
        self._main = main
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[T] | None = None
        self._error: BaseException | None = None
        """A KeyboardInterrupt or SystemExit raised inside a callback."""
        self._interrupts = 0
        self._leaving = False
        """Whether the loop must stop although its task has not ended."""
        self._in_loop = False
        self._watchdog = _Watchdog()
        self._pid = os.getpid()

    def run(self) -> T:
        with self._handling():
            self._loop = loop = asyncio.new_event_loop()
            try:
                asyncio.set_event_loop(loop)
                with _woken_by_signals(loop):
                    self._run_task(loop)
                    self._end_others(loop)
            finally:
                self._watchdog.end()
                _discard(loop)
        return self._result()

    def _result(self) -> T:
        task = self._task
        assert task is not None
        if task.done() and not task.cancelled():
            # asyncio logs exceptions that are never retrieved.
            task.exception()
        if self._interrupts:
            raise KeyboardInterrupt
        if self._error is not None:
            raise self._error
        return task.result()

    def _run_task(self, loop: asyncio.AbstractEventLoop) -> None:
        self._task = loop.create_task(self._main())
        if self._interrupts:
            # A SIGINT arrived before the loop existed.
            loop.call_soon(self._react)
        self._drive(loop, self._task)

    def _end_others(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel the tasks that the coroutine left, and run the loop for a bounded time until they end."""
        hard = self._interrupts > 1 or self._error is not None
        seconds = HARD_CLOSING_S if hard else CLOSING_S
        if hard:
            loop.set_exception_handler(_ignore)
        self._watchdog.allow(seconds)
        self._leaving = False
        loop.call_later(seconds, self._leave)
        self._drive(loop, loop.create_task(_end_tasks(loop)))

    def _drive(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[object] | asyncio.Task[T]) -> None:
        """Run the loop until the task is done, `_leave` was called, or a callback raised KeyboardInterrupt or SystemExit."""
        task.add_done_callback(lambda _: loop.stop())
        try:
            while not task.done() and not self._leaving:
                self._in_loop = True
                loop.run_forever()
        except (KeyboardInterrupt, SystemExit) as error:
            self._error = self._error or error
        finally:
            self._in_loop = False

    def _leave(self) -> None:
        assert self._loop is not None
        self._leaving = True
        self._loop.stop()

    @contextlib.contextmanager
    def _handling(self) -> Generator[None]:
        """Inside the block, SIGINT calls `_on_sigint`, which never raises inside remit's own code."""
        handled = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if handled:
            try:
                signal.signal(signal.SIGINT, self._on_sigint)
            except ValueError:
                # An embedded interpreter whose main thread has no signals.
                handled = False
        try:
            yield
        finally:
            # Code inside the block may have installed its own handler.
            if handled and signal.getsignal(signal.SIGINT) == self._on_sigint:
                signal.signal(signal.SIGINT, signal.default_int_handler)

    def _on_sigint(self, _number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._pid:
            # In a forked child the loop is not running.
            raise KeyboardInterrupt
        if self._watchdog.fired():
            if self._in_loop and frame is not None and frame.f_globals.get("__name__") not in _LOOP_MODULES:
                raise KeyboardInterrupt
            return
        self._interrupts += 1
        if self._loop is None or self._loop.is_closed():
            return
        # The handler may have interrupted any line, so the loop reacts later.
        self._loop.call_soon_threadsafe(self._react)
        if self._interrupts > 1:
            self._watchdog.start()

    def _react(self) -> None:
        assert self._task is not None
        if self._interrupts > 1 or self._task.done():
            self._leave()
        elif not self._task.cancelling():
            self._task.cancel()


class _Watchdog:
    """A thread that sends SIGINT to the main thread while a callback blocks the loop for too long."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._deadline = 0.0
        self._sent = False

    def start(self) -> None:
        """Called by the signal handler, in the main thread."""
        if self._thread is None and not self._over.is_set():
            self.allow(0)
            self._thread = threading.Thread(target=self._watch, name="remit-interrupt", daemon=True)
            self._thread.start()

    def allow(self, seconds: float) -> None:
        """Let the loop run for this long before its callbacks are interrupted."""
        self._deadline = monotonic() + seconds + PATIENCE_S

    def fired(self) -> bool:
        """Whether the SIGINT being handled came from the watchdog."""
        sent, self._sent = self._sent, False
        return sent

    def end(self) -> None:
        # The lock ensures that no SIGINT is sent after this returns: it would reach the caller's code.
        with self._lock:
            self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(max(0.0, self._deadline - monotonic())):
            if monotonic() < self._deadline:
                continue
            with self._lock:
                if self._over.is_set():
                    return
                self._sent = True
                # Repeated, because code may catch KeyboardInterrupt.
                self.allow(0)
                _interrupt_main_thread()


def _interrupt_main_thread() -> None:
    if sys.platform == "win32":
        signal.raise_signal(signal.SIGINT)
    else:
        # Sent to that thread, SIGINT also interrupts a system call such as a sleep.
        ident = threading.main_thread().ident
        assert ident is not None
        signal.pthread_kill(ident, signal.SIGINT)


@contextlib.contextmanager
def _woken_by_signals(loop: asyncio.AbstractEventLoop) -> Generator[None]:
    """Let every signal wake the loop.

    Python runs a handler between two bytecodes. A signal that arrives after the last bytecode before `select()` does not
    interrupt `select()`: without a file descriptor that it makes readable, its handler runs when the loop next wakes up.
    """
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        # On Windows, asyncio's loop sets such a file descriptor itself.
        yield
        return
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.setblocking(False)
        loop.add_reader(here, _drain, here)
        before = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(here)


def _drain(here: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        here.recv(4096)


async def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the other tasks, wait for them, then close async generators, as `asyncio.run` does."""
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task(loop)}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            message = "a task raised while the event loop was closing"
            loop.call_exception_handler({"message": message, "exception": error, "task": task})
    await loop.shutdown_asyncgens()


def _discard(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop without waiting for tasks or for threads of its executor."""
    if left := asyncio.all_tasks(loop):
        # Never freed: Python would print that they are pending and run their `finally` blocks without a loop.
        keep_for_ever(*left)
        loop.set_exception_handler(_ignore)
    asyncio.set_event_loop(None)
    loop.close()


def _ignore(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """An exception handler for a loop that was stopped by force."""
