"""A store in a database for trees that run in virtual time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterable, AsyncIterator, Coroutine
from typing import Any, TypeVar

from parts import AnyCommand, Posted, TreeInfo

from remit import Event, Store
from remit.stores import open_store

T = TypeVar("T")

TOGETHER = 12
"""Events that are handed over in one piece and stored in one row, whatever the machine is doing besides."""


class BlockingStore:
    """The store of a URL. Each of its methods returns only when the database has answered.

    The store itself has an event loop in a thread of its own. The loop of the tree stands still while it waits for
    an answer, so no virtual time passes, and every recording is the same. Commands are read when a tree is opened,
    and never while it runs.
    """

    def __init__(self, url: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._store: Store = self._wait(self._open(url))
        self._held: list[Event] = []

    async def _open(self, url: str) -> Store:
        return open_store(url)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        self._hand_over()
        return self._wait(work)

    def _hand_over(self) -> None:
        held, self._held = self._held, []
        if held:
            self._wait(self._append(held))

    async def _append(self, events: list[Event]) -> None:
        for event in events:
            self._store.append(event)
        await self._store.flush()

    def append(self, event: Event) -> None:
        self._held.append(event)
        if len(self._held) >= TOGETHER:
            self._hand_over()

    async def claim(self, root: str, *, new: bool) -> None:
        self._ask(self._store.claim(root, new=new))

    async def release(self, root: str) -> None:
        self._ask(self._store.release(root))

    async def flush(self, root: str | None = None) -> None:
        self._ask(self._store.flush(root))

    async def read(self, root: str, after: int = 0) -> AsyncIterator[Event]:
        for event in self._ask(self._all(root, after)):
            yield event

    async def _all(self, root: str, after: int) -> list[Event]:
        return [event async for event in self._store.read(root, after)]

    async def save_artifact(self, root: str, artifact: str, data: str | AsyncIterable[str]) -> None:
        self._ask(self._store.save_artifact(root, artifact, data))

    async def load_artifact(self, root: str, artifact: str, start: int, length: int) -> str | None:
        return self._ask(self._store.load_artifact(root, artifact, start, length))

    async def post(self, root: str, command: AnyCommand) -> None:
        self._ask(self._store.post(root, command))

    async def commands(self, root: str, after: int, *, wait: bool) -> list[Posted]:
        if wait:
            await asyncio.Event().wait()
        return self._ask(self._store.commands(root, after, wait=False))

    async def trees(self) -> list[TreeInfo]:
        return self._ask(self._store.trees())

    async def delete(self, root: str) -> None:
        self._ask(self._store.delete(root))

    async def close(self) -> None:
        self._ask(self._store.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
