"""Runs that live in the server's process: started and resumed here, stopped with the server, their text as it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Protocol

import anyio
from msgspec import Struct

from remit.engine.handle import Running
from remit.errors import UsageError
from remit.types.events import DeltaReceived, Event, ModelCallFailed, ReplyReceived, RunEnded

MOST_HOSTED = 32
"""Trees that run in the server at once."""
TEXT_CHARS = 20_000
"""Of a reply while it is written. All of it is there once it is complete."""
STOPPED = "the server stopped"

Hear = Callable[[Event], None]


class Wish(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to start a run. It cannot widen permissions: the rules and the sandbox are the project's."""

    prompt: str
    agent: str = ""
    """Empty: the default of the project."""
    model: str = ""
    limits: str = ""
    """As `remit run --limits` takes them: `usd=0.5,seconds=5m`."""


class AgentChoice(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An agent that can be started."""

    name: str
    description: str = ""
    model: str = ""


class Starter(Protocol):
    """How a server starts runs. Each run reports its events to `hear`, which never blocks.

    `start` and `resume` raise UsageError with what is wrong, when they are called or entered.
    """

    async def agents(self) -> Sequence[AgentChoice]: ...

    def start(self, wish: Wish, hear: Hear) -> AbstractAsyncContextManager[Running]: ...

    def resume(self, root: str, hear: Hear) -> AbstractAsyncContextManager[Running]: ...


class Texts:
    """What the models of a tree are writing at this moment. Heard in a thread, read on the event loop."""

    def __init__(self) -> None:
        self.now: dict[str, tuple[int, str]] = {}
        """For each run the turn and its text so far."""

    def hear(self, event: Event) -> None:
        if isinstance(event, DeltaReceived):
            turn, before = self.now.get(event.run, (event.turn, ""))
            text = before if turn == event.turn else ""
            if event.text and len(text) < TEXT_CHARS:
                self.now[event.run] = (event.turn, (text + event.text)[:TEXT_CHARS])
        elif isinstance(event, (ReplyReceived, ModelCallFailed, RunEnded)):
            self.now.pop(event.run, None)


class _Hosted(Struct):
    stack: AsyncExitStack
    running: Running
    texts: Texts
    ended: bool = False


class Hosting:
    """The trees of this process."""

    def __init__(self, starter: Starter | None) -> None:
        self.starter = starter
        self._runs: dict[str, _Hosted] = {}
        self._closed = False

    def is_hosted(self, root: str) -> bool:
        return root in self._runs

    def texts(self, root: str) -> dict[str, tuple[int, str]]:
        hosted = self._runs.get(root)
        return {} if hosted is None else dict(hosted.texts.now)

    async def start(self, wish: Wish) -> str:
        """The id of the new root. Raises UsageError and StoreError."""
        starter, texts = self._ready(), Texts()
        return await self._enter(starter.start(wish, texts.hear), texts)

    async def resume(self, root: str) -> str:
        starter, texts = self._ready(), Texts()
        return await self._enter(starter.resume(root, texts.hear), texts)

    def _ready(self) -> Starter:
        if self.starter is None:
            raise UsageError("This server starts no runs. Start it with: remit serve --allow-start")
        if self._closed:
            raise UsageError("The server is stopping.")
        if len(self._runs) >= MOST_HOSTED:
            raise UsageError(
                f"{MOST_HOSTED} runs are running here already. Wait until one has ended, or stop one."
            )
        return self.starter

    async def _enter(self, opening: AbstractAsyncContextManager[Running], texts: Texts) -> str:
        stack = AsyncExitStack()
        running = await stack.enter_async_context(opening)
        self._runs[running.run_id] = _Hosted(stack, running, texts)
        if self._closed:
            await self.close()
        return running.run_id

    async def tidy(self) -> None:
        """Close what has ended. Asked by everybody who looks, so that nothing has to run in the background."""
        for root, hosted in list(self._runs.items()):
            if hosted.running.ended and not hosted.ended:
                hosted.ended = True
                del self._runs[root]
                await hosted.stack.aclose()

    async def close(self) -> None:
        """Stop everything; what the runs have is in the journal, and they can be resumed."""
        self._closed = True
        async with anyio.create_task_group() as group:
            for root in list(self._runs):
                group.start_soon(self._stop, self._runs.pop(root))

    async def _stop(self, hosted: _Hosted) -> None:
        try:
            await hosted.running.cancel(STOPPED)
        finally:
            await hosted.stack.aclose()
