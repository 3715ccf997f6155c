"""`run(..., show=True)`: shows a tree while it runs, in a thread, so that a slow or broken display never harms the run."""

from __future__ import annotations

import asyncio
import atexit
import copy
import inspect
import logging
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Protocol, TextIO, cast

import remit.observe.words as words
import remit.tasks.threads as threads
from remit.engine.tree.approvals import Approver
from remit.history.records import Tree
from remit.observe.display.line_display import LineDisplay
from remit.observe.display.notebook import NotebookDisplay, find_notebook
from remit.observe.display.open_display import can_draw
from remit.observe.display.tree_view import TreeView
from remit.remote import ask_elsewhere
from remit.tasks.cancel import wake
from remit.tasks.guest import is_async
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.events import Event
from remit.types.text import describe_error

log = logging.getLogger("remit")

FRAME_S = 0.1
"""Seconds between two frames."""
LAST_LOOK_S = 2.0
"""How long the end of a tree waits for its last frame."""
HIDE_S = 1.0
"""How long a question waits for the tree to be hidden."""

# One lock for all displays: they may share a terminal. Only worker threads wait for it, never the event loop.
_lock = threading.RLock()


class Shown(Protocol):
    """The part of a display that is used here."""

    def begin(self) -> None: ...
    def feed(self, event: Event) -> None: ...
    def paint(self) -> None: ...
    def paused(self) -> AbstractContextManager[None]: ...
    def end(self, *, tree: bool = True) -> None: ...


def open_showing(past: Tree | None, loop: asyncio.AbstractEventLoop) -> Showing | None:
    """The display of a tree that is about to run; `past` is its recorded part. None if there is nothing to draw on.

    Raises nothing: a display that cannot be opened is logged.
    """
    try:
        # A copy, because the display applies events to it.
        display = _open(TreeView(copy.deepcopy(past)), loop)
    except Exception as error:  # noqa: BLE001 - notebooks and terminals may fail in any way
        log.warning("the display could not be opened: %s; the run continues", describe_error(error))
        return None
    return None if display is None else Showing(display, loop)


def _open(view: TreeView, loop: asyncio.AbstractEventLoop) -> Shown | None:
    publish = find_notebook()
    if publish is not None:
        return NotebookDisplay(view, publish, loop)
    stream = cast("TextIO | None", sys.stderr)
    if stream is None:
        # A program without a console on Windows.
        return None
    if not can_draw(stream):
        return LineDisplay(view, stream)
    from remit.observe.display.live_display import LiveDisplay  # noqa: PLC0415 - it needs rich

    # The echo stays on: code of the user may ask for input, and a killed program could not turn it on again.
    return LiveDisplay(view, stream, hush=False, redirect=words.is_terminal(sys.stdout))


class Showing:
    """Feeds a display with the events of one tree. All its methods except `see` are called on the event loop's thread."""

    def __init__(self, display: Shown, loop: asyncio.AbstractEventLoop) -> None:
        self._display = display
        self._loop = loop
        self._begun = self._broken = self._ended = False
        self._frame = self._start(self._paint)
        self._timer = loop.call_later(FRAME_S, self._tick)
        self._hidden = ExitStack()

    def see(self, event: Event) -> None:
        """Process an event; called in a worker thread."""
        self._safely(lambda: self._display.feed(event))

    def _tick(self) -> None:
        """Start a frame, unless the last one is not finished."""
        if self._frame.done_future.done():
            self._frame = self._start(self._paint)
        self._timer = self._loop.call_later(FRAME_S, self._tick)

    def _paint(self) -> None:
        with _lock:
            # The thread of the last frame may begin late.
            if not self._ended:
                self._safely(self._display.paint)

    async def finish(self) -> None:
        """Draw the last state and leave the terminal; waits at most `LAST_LOOK_S`."""
        self._timer.cancel()
        await self._wait(self._start(self._end), LAST_LOOK_S)

    def _end(self) -> None:
        with _lock:
            self._safely(self._display.end)
            self._ended = True
        atexit.unregister(self._restore)

    def _restore(self) -> None:
        """Restore the terminal when the process ends before the tree."""
        if not self._ended and _lock.acquire(timeout=0.5):
            # Frames that still wait for the lock must not draw again.
            self._broken = True
            try:
                with suppress(Exception):
                    self._display.end(tree=False)
            finally:
                _lock.release()

    # --- Questions -----------------------------------------------------------------------------------

    def hiding(self, approver: Approver) -> Approver:
        """The approver, with the tree hidden while it asks. Only for terminals, where a question needs the room."""
        is_elsewhere = approver is ask_elsewhere or isinstance(self._display, NotebookDisplay)
        if is_elsewhere or not words.is_terminal(sys.stderr):
            return approver
        return self._hiding_async(approver) if is_async(approver) else self._hiding_sync(approver)

    def _hiding_async(self, approver: Approver) -> Approver:
        async def ask(request: ApprovalRequest) -> Decision:
            try:
                await self._wait(self._start(self._hide), HIDE_S)
                answer = approver(request)
                return await answer if inspect.isawaitable(answer) else answer
            finally:
                self._start(self._unhide)

        return ask

    def _hiding_sync(self, approver: Approver) -> Approver:
        # It runs in a worker thread, where it may wait for the lock.
        def ask(request: ApprovalRequest) -> Decision | Awaitable[Decision]:
            self._hide()
            try:
                return approver(request)
            finally:
                self._unhide()

        return ask

    def _hide(self) -> None:
        self._safely(lambda: self._hidden.enter_context(self._display.paused()))

    def _unhide(self) -> None:
        self._safely(self._hidden.close)

    # --- Threads and failures --------------------------------------------------------------------------

    def _start(self, step: Callable[[], None]) -> threads.Job[None]:
        return threads.start(step, self._loop, name="show", urgent=True)

    async def _wait(self, job: threads.Job[None], seconds: float) -> None:
        """Wait for a job, but not longer than that: a terminal may be stopped (Ctrl-S)."""
        done: asyncio.Future[None] = self._loop.create_future()
        job.done_future.add_done_callback(lambda _: wake(done))
        timer = self._loop.call_later(seconds, wake, done)
        try:
            await done
        finally:
            timer.cancel()
            if not job.done_future.done():
                job.abandon()

    def _safely(self, draw: Callable[[], object]) -> None:
        """Keep an error in the display from harming the run: it is logged once, and nothing more is drawn.

        The first step begins the display, whichever step that is: steps in different threads have no order.
        """
        with _lock:
            if self._broken:
                return
            try:
                if not self._begun:
                    self._begun = True
                    # A program that is stopped at once still has to restore its terminal.
                    atexit.register(self._restore)
                    self._display.begin()
                draw()
            except Exception:
                self._broken = True
                log.warning("the display failed; the run continues without it", exc_info=True)
                with suppress(Exception):
                    self._display.end(tree=False)
