"""The store that forgets: events and artifacts in this process's memory."""

from __future__ import annotations

from collections.abc import AsyncIterator

from remit.events import Event


class MemoryStore:
    """Keeps every tree until it is dropped. The default when no store is named."""

    def __init__(self) -> None:
        self._events: dict[str, list[Event]] = {}
        self._artifacts: dict[tuple[str, str], str] = {}

    def append(self, event: Event) -> None:
        trees = self._events
        if event.root in trees:
            trees[event.root].append(event)
        else:
            trees[event.root] = [event]

    async def flush(self) -> None:
        """Nothing to do: memory is as durable as it gets."""

    async def read(self, root: str) -> AsyncIterator[Event]:
        for event in tuple(self._events.get(root, ())):
            yield event

    async def save_artifact(self, root: str, artifact: str, data: str) -> None:
        self._artifacts[root, artifact] = data

    async def load_artifact(self, root: str, artifact: str, start: int, length: int) -> str | None:
        data = self._artifacts.get((root, artifact))
        return None if data is None else data[start : start + length]

    async def close(self) -> None:
        self._events.clear()
        self._artifacts.clear()
