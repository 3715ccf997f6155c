"""`MemoryStore`: keeps everything in the memory of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator

from remit.errors import NoSuchTree, StoreError, TreeExists, TreeOwned
from remit.types.commands import AnyCommand
from remit.types.commands import decode as decode_command
from remit.types.commands import encode as encode_command
from remit.types.event_json import encode
from remit.types.events import Event, ModelCallFailed, ReplyReceived, RunEnded, RunResumed, RunStarted
from remit.types.limits import total
from remit.types.outcome import Status
from remit.types.ports import Posted, TreeInfo


class _Kept:
    """A stored tree."""

    __slots__ = ("artifacts", "commands", "events", "owned", "waiting")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.artifacts: dict[str, str] = {}
        self.commands: list[Posted] = []
        self.waiting: list[asyncio.Future[None]] = []
        self.owned = False

    def wake(self) -> None:
        """Wake all waits for a command."""
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
        self.waiting.clear()


class MemoryStore:
    """Keeps trees until it is closed or freed. The default store."""

    volatile = True

    def __init__(self) -> None:
        self._trees: dict[str, _Kept] = {}
        self._closed = False

    async def claim(self, root: str, *, new: bool) -> None:
        self._check()
        if new:
            if root in self._trees:
                raise TreeExists(f"This store already has a run {root!r}. Resume it, or use another id.")
            self._trees[root] = _Kept()
        kept = self._of(root)
        if kept.owned:
            raise TreeOwned(f"This process is already running {root!r}. Wait until that run has ended.")
        kept.owned = True

    async def release(self, root: str) -> None:
        self._check()
        kept = self._trees.get(root)
        if kept is not None and kept.events:
            kept.owned = False
        elif kept is not None:
            self._forget(root)

    def append(self, event: Event) -> None:
        try:
            kept = self._trees[event.root]
        except KeyError:
            kept = self._of(event.root)
        if not kept.owned:
            raise StoreError(f"The run {event.root!r} is not claimed, so no event can be added.")
        kept.events.append(event)

    async def flush(self, root: str | None = None) -> None:
        """Nothing to do: this store is not durable."""
        del root
        self._check()

    async def read(self, root: str, after: int = 0) -> AsyncIterator[Event]:
        self._check()
        kept = self._trees.get(root)
        for event in tuple(kept.events) if kept else ():
            if event.seq > after:
                yield event

    async def save_artifact(self, root: str, artifact: str, data: str | AsyncIterable[str]) -> None:
        kept = self._of(root)
        if not kept.owned:
            raise StoreError(f"The run {root!r} is not claimed, so no artifact can be added.")
        text = data if isinstance(data, str) else "".join([piece async for piece in data])
        kept.artifacts[artifact] = text

    async def load_artifact(self, root: str, artifact: str, start: int, length: int) -> str | None:
        self._check()
        kept = self._trees.get(root)
        data = kept.artifacts.get(artifact) if kept else None
        return None if data is None else data[start : start + length]

    async def post(self, root: str, command: AnyCommand) -> None:
        try:
            decode_command(encode_command(command))
        except Exception as error:
            raise StoreError(f"Invalid command for the run {root!r}: {error}") from error
        kept = self._of(root)
        kept.commands.append(Posted(len(kept.commands) + 1, command))
        kept.wake()

    async def commands(self, root: str, after: int, *, wait: bool) -> list[Posted]:
        kept = self._of(root)
        while wait and len(kept.commands) <= after:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            kept.waiting.append(future)
            await future
            # The tree may have been deleted meanwhile, or the store closed.
            kept = self._of(root)
        return kept.commands[after:]

    async def trees(self) -> list[TreeInfo]:
        self._check()
        found = [_info(root, kept) for root, kept in self._trees.items() if kept.events]
        return sorted(found, key=lambda t: t.started_at, reverse=True)

    async def delete(self, root: str) -> None:
        self._check()
        kept = self._trees.get(root)
        if kept is not None and kept.owned:
            raise TreeOwned(
                f"This process is running {root!r}, so it cannot be deleted. Wait until the run has ended."
            )
        self._forget(root)

    async def close(self) -> None:
        self._closed = True
        for root in list(self._trees):
            self._forget(root)

    def _forget(self, root: str) -> None:
        kept = self._trees.pop(root, None)
        if kept is not None:
            kept.wake()

    def _check(self) -> None:
        if self._closed:
            raise StoreError("This store is closed.")

    def _of(self, root: str) -> _Kept:
        self._check()
        try:
            return self._trees[root]
        except KeyError:
            raise NoSuchTree(f"No run {root!r} in this store.") from None


def _info(root: str, kept: _Kept) -> TreeInfo:
    first, last = kept.events[0], kept.events[-1]
    turns = [event for event in kept.events if event.run == root and isinstance(event, RunEnded | RunResumed)]
    status: Status | None = turns[-1].outcome.status if turns and isinstance(turns[-1], RunEnded) else None
    used = total(e.usage for e in kept.events if isinstance(e, ReplyReceived | ModelCallFailed))
    return TreeInfo(
        root=root,
        agent=first.agent,
        task=first.task.text[:200] if isinstance(first, RunStarted) else "",
        status=status,
        started_at=first.at,
        last_at=last.at,
        events=len(kept.events),
        bytes=sum(len(encode(event)) for event in kept.events)
        + sum(len(text.encode("utf-8", "replace")) for text in kept.artifacts.values()),
        owner="this process" if kept.owned else "",
        runs=sum(isinstance(event, RunStarted) for event in kept.events),
        requests=used.requests,
        tokens=used.tokens,
        usd=used.usd if used.usd is not None or used.tokens else 0.0,
    )
