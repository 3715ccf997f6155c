"""A store that kills its process at a named point between two writes, with all earlier writes on disk."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterable
from pathlib import Path

from remit.stores.sqlite import SqliteStore
from remit.types.events import CallEnded, CallStarted, Event


class Crashing(SqliteStore):
    """Every write has a name; the process is killed before or after one of them."""

    def __init__(self, path: Path, point: str) -> None:
        super().__init__(path)
        self.places: list[str] = []
        """The writes so far, in order."""
        self._path = path
        self._point = point
        self._seen: Counter[str] = Counter()
        self._last = 0
        """The `seq` of the last event added."""

    async def claim(self, root: str, *, new: bool) -> None:
        place = self._before("claim")
        await super().claim(root, new=new)
        self._after(place)

    async def release(self, root: str) -> None:
        place = self._before("release")
        await super().release(root)
        self._after(place)

    def append(self, event: Event) -> None:
        # The calls of one turn start and end in any order, so each has its tool's name.
        tool = f" {event.tool}" if isinstance(event, (CallStarted, CallEnded)) else ""
        place = self._before(f"{event.kind}{tool} of {'/'.join(event.path)}")
        super().append(event)
        self._last = event.seq
        self._after(place)

    async def save_artifact(self, root: str, artifact: str, data: str | AsyncIterable[str]) -> None:
        place = self._before(f"save of {artifact}")
        await super().save_artifact(root, artifact, data)
        self._after(place)

    def _before(self, what: str) -> str:
        self._seen[what] += 1
        place = f"{what} #{self._seen[what]}"
        self.places.append(place)
        self._die_at(f"before {place}")
        return place

    def _after(self, place: str) -> None:
        self._die_at(f"after {place}")

    def _die_at(self, point: str) -> None:
        if point != self._point:
            return
        if self._last:
            self._wait_for_disk()
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    def _wait_for_disk(self) -> None:
        """With a separate connection: this blocks the loop, so nothing can be awaited."""
        connection = sqlite3.connect(self._path)
        while connection.execute("SELECT max(seq) FROM remit_events").fetchone()[0] != self._last:
            time.sleep(0.001)
