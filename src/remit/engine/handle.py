"""The handle on a tree that is running: events, cancel, send, outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, cast

import msgspec
from msgspec import Struct

from remit.engine.tree.context import Sent, TreeContext
from remit.engine.tree.node import Node, current_run
from remit.engine.tree.stream_progress import ChildProgress, ProgressReader
from remit.errors import UsageError
from remit.history.records import is_within
from remit.tasks.cancel import settled, wake
from remit.types.events import AnyEvent, MessageSent
from remit.types.messages import user
from remit.types.outcome import Outcome
from remit.types.ports import Posted
from remit.types.text import clean, safe_str
from remit.types.type_variables import OutputOut

if TYPE_CHECKING:
    from remit.observe.display.drawings import TreeDrawing

log = logging.getLogger("remit")


class Opened(Struct, frozen=True):
    """A tree that is claimed in the store, and the coroutine that runs it."""

    tree: TreeContext
    root: Coroutine[object, object, Outcome]
    close: Callable[[], Awaitable[None]] | None
    """Closes everything opened for the tree except the store; called after the tree has stopped."""
    posted: Sequence[Posted] | None = ()
    """Commands that other processes sent before the tree was claimed; None if they are not known yet."""
    unfinished: bool = False
    """Whether a recorded tree had no end, so that a cancel among these commands applies."""


class _TreeTask(asyncio.Task[Outcome]):
    """The task that runs a tree. A cancel before its first step waits for that step, which starts the cleanup."""

    begun = False

    def cancel(self, msg: object = None) -> bool:
        if self.begun or self.done():
            return super().cancel(msg)
        self.get_loop().call_soon(super().cancel, msg)
        return True


class Running(Generic[OutputOut]):
    """A tree while it runs. Leaving the `async with` block cancels a tree that is still running."""

    def __init__(self, opening: Callable[[], Awaitable[Opened]]) -> None:
        self._opening: Callable[[], Awaitable[Opened]] | None = opening
        self._tree: TreeContext | None = None
        self._task: _TreeTask | None = None
        self._waiters: list[asyncio.Future[None]] = []
        """Callers that wait for the outcome."""

    @property
    def run_id(self) -> str:
        """The root run's id."""
        return self._inside().root

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more; `outcome()` returns at once then."""
        return self._task is not None and self._task.done()

    def __await__(self) -> Generator[None, None, None]:
        raise UsageError(
            "start() is not awaited: write `async with start(...) as running:`, or `await run(...)`."
        )

    def __enter__(self) -> None:
        raise UsageError("start() needs `async with`, not `with`.")

    def __exit__(self, *_: object) -> None:
        """Never reached; Python looks for it before it calls `__enter__`."""

    async def __aenter__(self) -> Self:
        check_loop()
        opening, self._opening = self._opening, None
        if opening is None:
            raise UsageError("This tree was started already; call start() again for another one.")
        opened = await opening()
        self._tree = tree = opened.tree
        tree.alarm.start()
        self._task = _TreeTask(self._run(_live(opened)), loop=tree.loop, name=f"remit {tree.root}")
        return self

    async def _run(self, life: Awaitable[Outcome]) -> Outcome:
        assert self._task is not None
        self._task.begun = True
        try:
            return await life
        finally:
            # Wake them here: callers that await the task itself wake two iterations of the event loop later.
            self._wake_waiters()

    def _wake_waiters(self) -> None:
        for waiter in self._waiters:
            wake(waiter)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        if not self._task.done():
            root = self._inside().runs.get(self.run_id)
            by = (
                "the caller"
                if isinstance(error, asyncio.CancelledError)
                else "the end of the `async with` block"
            )
            if root:
                root.life.cancel(by, "the run had not finished")
            if (cancelled := await settled([self._task])) is not None:
                raise cancelled

    def tree(self) -> TreeDrawing:
        """The tree as it is now, one line per run: for `print`, rich and notebooks."""
        from remit.observe.display.running_tree import draw_running  # noqa: PLC0415 - only if it is displayed

        return draw_running(self._inside())

    def __rich__(self) -> TreeDrawing:
        return self.tree()

    def _repr_html_(self) -> str | None:
        return None if self._tree is None else self.tree().html

    def events(self) -> AsyncIterator[AnyEvent]:
        """Every event from the beginning; ends when the root has ended. Each call returns a new, independent reader."""
        return cast("AsyncIterator[AnyEvent]", self._inside().stream.reader())

    def progress(self) -> AsyncIterator[ChildProgress]:
        """Each tool call of the children, when it starts and when it ends; computed from `events()`."""
        return ProgressReader(self.events())

    async def cancel(self, reason: str = "", *, run: str | None = None) -> bool:
        """Cancel a run (default: the root) and everything below it; returns after all of them have stopped.

        Returns False if the run had already ended or been cancelled. Called inside that run, it returns at once.
        """
        if run is None and reason in self._inside().known:
            raise UsageError(
                f"cancel({reason!r}): the reason is a run's id. Write cancel(reason, run={reason!r})."
            )
        self._check_loop("cancel")
        node = self._live(run)
        if node is None:
            return False
        first = node.life.cancel("the caller", safe_str(reason))
        if not is_within(current_run.get(), node.run_id):
            await node.life.wait()
            if node.parent is None and self._task is not None:
                await asyncio.wait({self._task})
        return first

    def send(self, text: str, *, run: str | None = None) -> bool:
        """Add a message to the run's next turn. False if there is none: the run has ended or is wrapping up."""
        if not isinstance(cast(object, text), str) or not text.strip():
            raise UsageError("send() needs a non-empty text.")
        node = self._live(run)
        if node is None or not node.hears:
            return False
        message = user(clean(text))
        node.inbox.append(Sent(message))
        node.emit(MessageSent(*node.stamp(), message=message))
        return True

    async def outcome(self) -> Outcome[OutputOut]:
        """Wait for the root to end and return its outcome. Cancelling this call does not cancel the tree."""
        self._check_loop("outcome")
        assert self._task is not None
        while not self._task.done():
            waiter: asyncio.Future[None] = self._task.get_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            finally:
                self._waiters.remove(waiter)
        return self._task.result()

    def _inside(self) -> TreeContext:
        if self._tree is None:
            raise UsageError("The tree has not started: use `async with start(...) as running:`.")
        return self._tree

    def _check_loop(self, name: str) -> None:
        if asyncio.get_running_loop() is not self._inside().loop:
            raise UsageError(
                f"{name}() was called on another event loop than the tree's. Pass running.{name}() to"
                " asyncio.run_coroutine_threadsafe() with the loop that started the tree."
            )

    def _live(self, run: str | None) -> Node | None:
        tree = self._inside()
        name = tree.root if run is None else run
        if not isinstance(cast(object, name), str):
            raise UsageError(f"run must be a run's id, not {run!r}.")
        if name not in tree.known:
            raise UsageError(f"No run {name!r} in this tree. Its root is {tree.root!r}.")
        return tree.runs.get(name)


def check_loop() -> None:
    """Raises UsageError outside an asyncio task, also if trio runs as a guest on an asyncio event loop."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is None:
        raise UsageError(
            "remit needs an asyncio event loop and cannot run under trio: call run_sync(...) in a thread,"
            " for example with trio.to_thread.run_sync."
        )


async def _live(opened: Opened) -> Outcome:
    tree, listener = opened.tree, None
    if tree.journal.shared:
        from remit.engine.listen import catch_up, listen  # noqa: PLC0415 - only if other processes can open the store

        cancels = opened.unfinished
        after = None if opened.posted is None else catch_up(tree, opened.posted, cancels=cancels)
        listener = tree.loop.create_task(
            listen(tree, after, cancels=cancels), name=f"remit {tree.root} listens"
        )
    try:
        outcome = await opened.root
    finally:
        cancelled: asyncio.CancelledError | None = None
        for end in _ends(opened, listener):
            # Every step runs even if another fails or this task is cancelled: the outcome must not be lost.
            try:
                await end()
            except asyncio.CancelledError as error:
                cancelled = error
            except Exception:
                log.exception("could not clean up after %s", tree.root)
        tree.close()
        if cancelled is not None:
            raise cancelled
    # Read here: `on_event` runs in its own thread and may raise after the root has ended.
    if tree.stream.trouble:
        outcome = msgspec.structs.replace(outcome, warnings=(*outcome.warnings, f"{tree.stream.trouble}."))
    return outcome


def _ends(opened: Opened, listener: asyncio.Task[None] | None) -> Iterator[Callable[[], Awaitable[None]]]:
    """The steps that clean up after a tree whose root has ended, in order."""
    tree = opened.tree
    if listener is not None:
        yield partial(_stop_listening, listener)
    yield tree.sources.close
    if opened.close is not None:
        yield opened.close
    if tree.journal.held:
        yield tree.journal.leave
    tree.stream.ended = True
    if tree.stream.watched:
        yield tree.stream.end
    if tree.showing is not None:
        yield tree.showing.finish
    if tree.tracing is not None:
        yield tree.tracing.finish


async def _stop_listening(listener: asyncio.Task[None]) -> None:
    listener.cancel()
    await asyncio.wait({listener})
    if not listener.cancelled():
        listener.exception()
