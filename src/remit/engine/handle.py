"""The handle on a tree that is running: events, cancel, send, outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self, cast

import msgspec
from msgspec import Struct

from remit.engine.tree.context import Sent, TreeContext
from remit.engine.tree.node import Node, current_run
from remit.engine.tree.stream_progress import ChildProgress, ProgressReader
from remit.errors import UsageError
from remit.history.records import is_within
from remit.tasks.cancel import settled, wake
from remit.types.events import Event, MessageSent
from remit.types.messages import user
from remit.types.outcome import Outcome
from remit.types.ports import Posted
from remit.types.text import clean, safe_str

log = logging.getLogger("remit")


class Opened(Struct, frozen=True):
    """A tree whose place in the store is claimed, and what runs it."""

    tree: TreeContext
    root: Coroutine[object, object, Outcome]
    close: Callable[[], Awaitable[None]] | None
    """Closes what was opened for it besides the store, if anything was; called once nothing of it runs."""
    posted: Sequence[Posted] | None = ()
    """What other processes asked of it before it was claimed; None when that is not known yet."""


class _TreeTask(asyncio.Task[Outcome]):
    """What runs a tree. Cancelled before its first step it has that first: otherwise nothing would stop what has begun."""

    begun = False

    def cancel(self, msg: object = None) -> bool:
        if self.begun or self.done():
            return super().cancel(msg)
        self.get_loop().call_soon(super().cancel, msg)
        return True


class Running:
    """A tree while it runs. Leaving its `async with` block stops what is still running."""

    def __init__(self, opening: Callable[[], Awaitable[Opened]]) -> None:
        self._opening: Callable[[], Awaitable[Opened]] | None = opening
        self._tree: TreeContext | None = None
        self._task: _TreeTask | None = None
        self._waiters: list[asyncio.Future[None]] = []
        """Who waits for the outcome."""

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
            # Said here: who waits for the task itself hears of it two rounds of the loop later.
            self._tell()

    def _tell(self) -> None:
        for waiter in self._waiters:
            wake(waiter)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        if not self._task.done():
            root = self._inside().runs.get(self.run_id)
            by = "the caller" if isinstance(error, asyncio.CancelledError) else "the block that started it"
            if root:
                root.life.cancel(by, "it was left before the run had ended")
            if (cancelled := await settled([self._task])) is not None:
                raise cancelled

    def events(self) -> AsyncIterator[Event]:
        """Everything that happens, from the beginning; ends when the root has ended. For several readers, call it again."""
        return self._inside().stream.reader()

    def progress(self) -> AsyncIterator[ChildProgress]:
        """What the children are doing, call by call: a projection of `events()`."""
        return ProgressReader(self.events())

    async def cancel(self, reason: str = "", *, run: str | None = None) -> bool:
        """Stop a run (the root if none is named) and everything below it; returns when nothing of it runs.

        False when it had ended, or was being stopped, already. From inside the run itself it returns at once.
        """
        if run is None and reason in self._inside().known:
            raise UsageError(
                f"cancel({reason!r}) gives a run's id as the reason: write cancel(reason, run={reason!r})."
            )
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
        """Have a message join that run's next turn. False when it has none: it has ended, or is giving its last word."""
        if not isinstance(cast(object, text), str) or not text.strip():
            raise UsageError("send() needs a non-empty text.")
        node = self._live(run)
        if node is None or not node.hears:
            return False
        message = user(clean(text))
        node.inbox.append(Sent(message))
        node.emit(MessageSent(*node.stamp(), message=message))
        return True

    async def outcome(self) -> Outcome:
        """How the root ended; waits for it. Being cancelled here does not stop the tree; leaving the block does."""
        self._inside()
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
            raise UsageError("The tree does not run yet: use `async with start(...) as running:`.")
        return self._tree

    def _live(self, run: str | None) -> Node | None:
        tree = self._inside()
        name = tree.root if run is None else run
        if not isinstance(cast(object, name), str):
            raise UsageError(f"run must be a run's id, not {run!r}.")
        if name not in tree.known:
            raise UsageError(f"There is no run {name!r} in this tree; its root is {tree.root!r}.")
        return tree.runs.get(name)


def check_loop() -> None:
    """Raises UsageError outside a task of asyncio. Trio's tasks are not: also where trio is a guest on asyncio's loop."""
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
    tree, ears = opened.tree, None
    if tree.journal.shared:
        from remit.engine.listen import catch_up, listen  # noqa: PLC0415 - for trees that others can reach

        after = None if opened.posted is None else catch_up(tree, opened.posted)
        ears = tree.loop.create_task(listen(tree, after), name=f"remit {tree.root} listens")
    try:
        outcome = await opened.root
    finally:
        wished: asyncio.CancelledError | None = None
        for end in _ends(opened, ears):
            # Each of them, whatever is wished meanwhile or goes wrong with another: the outcome is worth more.
            try:
                await end()
            except asyncio.CancelledError as error:
                wished = error
            except Exception:
                log.exception("the end of %s was not in order", tree.root)
        tree.close()
        if wished is not None:
            raise wished
    # Known only now: `on_event` runs in a thread of its own, and sees the last event after the root has ended.
    if tree.stream.trouble:
        outcome = msgspec.structs.replace(outcome, warnings=(*outcome.warnings, f"{tree.stream.trouble}."))
    return outcome


def _ends(opened: Opened, ears: asyncio.Task[None] | None) -> Iterator[Callable[[], Awaitable[None]]]:
    """What is still to be done for a tree whose root has ended, in order."""
    tree = opened.tree
    if ears is not None:
        yield partial(_deafen, ears)
    yield tree.sources.close
    if opened.close is not None:
        yield opened.close
    if tree.journal.held:
        yield tree.journal.leave
    tree.stream.ended = True
    if tree.stream.watched:
        yield tree.stream.end
    if tree.tracing is not None:
        yield tree.tracing.finish


async def _deafen(ears: asyncio.Task[None]) -> None:
    ears.cancel()
    await asyncio.wait({ears})
    if not ears.cancelled():
        ears.exception()
