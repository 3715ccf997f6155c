"""The handle on a tree that is running: events, cancel, send, outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from types import TracebackType
from typing import NamedTuple, Self, cast

from anyio import CancelScope

from remit.errors import UsageError
from remit.events import Event, MessageSent
from remit.listening import catch_up, listen
from remit.messages import user
from remit.outcome import Outcome
from remit.phase import wake
from remit.ports import Posted
from remit.progress import ChildProgress, ProgressReader
from remit.scope import Scope, Sent, TreeContext, current_run
from remit.text import clean, safe_str

log = logging.getLogger("remit")


class Opened(NamedTuple):
    """A tree whose place in the store is claimed, and what runs it."""

    tree: TreeContext
    go: Callable[[], Coroutine[object, object, Outcome]]
    close: Callable[[], Awaitable[None]]
    """Closes what was opened for it besides the store; called once nothing of it runs."""
    posted: Sequence[Posted] | None = ()
    """What other processes asked of it before it was claimed; None when that is not known yet."""


class Running:
    """A tree while it runs. Leaving its `async with` block stops what is still running."""

    def __init__(
        self, open_tree: Callable[[], Awaitable[Opened]], on_event: Callable[[Event], object] | None
    ) -> None:
        self._open = open_tree
        self._on_event = on_event
        self._entered = False
        self._tree: TreeContext | None = None
        self._task: asyncio.Task[Outcome] | None = None
        self._waiters: list[asyncio.Future[None]] = []
        """Who waits for the outcome."""

    @property
    def run_id(self) -> str:
        """The root run's id."""
        return self._inside().root

    def __await__(self) -> Generator[None, None, None]:
        raise UsageError(
            "start() is not awaited: write `async with start(...) as running:`, or `await run(...)`."
        )

    def __enter__(self) -> None:
        raise UsageError("start() needs `async with`, not `with`.")

    def __exit__(self, *_: object) -> None:
        """Never reached; Python looks for it before it calls `__enter__`."""

    async def __aenter__(self) -> Self:
        if self._entered:
            raise UsageError("This tree was started already; call start() again for another one.")
        self._entered = True
        opened = await self._open()
        tree = opened.tree
        if self._on_event:
            tree.stream.watch(self._on_event, tree.loop)
        self._tree = tree
        self._task = tree.loop.create_task(self._run(opened, opened.go()), name=f"remit {tree.root}")
        # For a task that is cancelled before it has begun, and so never comes to say it itself.
        self._task.add_done_callback(self._tell)
        return self

    async def _run(self, opened: Opened, root: Coroutine[object, object, Outcome]) -> Outcome:
        tree, ears = opened.tree, None
        if tree.journal.shared:
            after = None if opened.posted is None else catch_up(tree, opened.posted)
            ears = tree.loop.create_task(listen(tree, after), name=f"remit {tree.root} listens")
        try:
            return await root
        finally:
            await self._close(opened, ears)
            # Said here: who waits for the task itself hears of it two rounds of the loop later.
            self._tell()

    def _tell(self, _: object = None) -> None:
        for waiter in self._waiters:
            wake(waiter)

    async def _close(self, opened: Opened, ears: asyncio.Task[None] | None) -> None:
        """Let go of everything, whatever goes wrong with any of it: the outcome is worth more."""
        if ears is not None:
            ears.cancel()
            await asyncio.wait({ears})
            if not ears.cancelled():
                ears.exception()
        tree = opened.tree
        for end in (tree.sources.close, opened.close, tree.journal.leave, tree.stream.end):
            try:
                await end()
            except Exception:
                log.exception("the end of %s was not in order", opened.tree.root)
        tree.hosts.close()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        if not self._task.done():
            root = self._inside().runs.get(self.run_id)
            by = "the caller" if isinstance(error, asyncio.CancelledError) else "the block that started it"
            if root:
                root.cancel(by, "it was left before the run had ended")
            await _settled(self._task)

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
        scope = self._live(run)
        if scope is None:
            return False
        first = scope.cancel("the caller", safe_str(reason))
        here = current_run.get()
        if here != scope.run_id and not here.startswith(f"{scope.run_id}."):
            await scope.wait()
            if scope.parent is None and self._task is not None:
                await asyncio.wait({self._task})
        return first

    def send(self, text: str, *, run: str | None = None) -> bool:
        """Have a message join that run's next turn. False when it has none: it has ended, or is giving its last word."""
        if not isinstance(cast(object, text), str) or not text.strip():
            raise UsageError("send() needs a non-empty text.")
        scope = self._live(run)
        if scope is None or not scope.hears:
            return False
        message = user(clean(text))
        scope.inbox += (Sent(message),)
        scope.emit(MessageSent, message=message)
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

    def _live(self, run: str | None) -> Scope | None:
        tree = self._inside()
        name = tree.root if run is None else run
        if not isinstance(cast(object, name), str):
            raise UsageError(f"run must be a run's id, not {run!r}.")
        if name not in tree.known:
            raise UsageError(f"There is no run {name!r} in this tree; its root is {tree.root!r}.")
        return tree.runs.get(name)


async def _settled(task: asyncio.Task[Outcome]) -> None:
    """Wait for the tree to end, whatever is wished of us meanwhile; pass a cancellation on afterwards."""
    wished: asyncio.CancelledError | None = None
    with CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait({task})
            except asyncio.CancelledError as error:
                wished = error
    if wished:
        raise wished
