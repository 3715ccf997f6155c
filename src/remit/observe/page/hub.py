"""Trees as the page follows them: read once for all who watch, kept while there is room. See decision 0050."""

from __future__ import annotations

import time
from collections import OrderedDict

import anyio
import anyio.lowlevel

from remit.errors import StoreError
from remit.history.records import REOPENED
from remit.observe.page.projection import TASK_CHARS, Projection
from remit.observe.page.rows import Head
from remit.observe.words import line
from remit.types.outcome import Status
from remit.types.ports import Store, TreeInfo

POLL_S = 0.2
"""A tree that was read so recently is not read again."""
IDLE_S = 2.0
"""The same for a tree that has ended, or in which nothing has happened for a while."""
ACTIVE_S = 5.0
"""How long after its last event a tree is read often."""
LOOK_S = 1.0
"""How often it is asked which process runs a tree."""
BREATH = 100
"""Events that are read before others on the event loop have a turn."""
KEPT_BYTES = 128_000_000
"""Bytes of journal kept in memory for trees that no stream watches."""
KEPT_TREES = 64


class UnknownRun(Exception):
    """The journal has no such run."""


class Watched:
    """One tree, as the journal had it at the last reading."""

    def __init__(self, hub: Hub, info: TreeInfo) -> None:
        self.projection = Projection()
        self.info = info
        self.watchers = 0
        self._hub = hub
        self._lock = anyio.Lock()
        self._read_at = -IDLE_S
        self._looked_at = -LOOK_S
        self._active_at = 0.0
        self._started_by_command: bool | None = None
        self.projection.live = info.live

    @property
    def root(self) -> str:
        return self.info.root

    async def catch_up(self, *, at_once: bool = False) -> None:
        """Read what was added. Those who ask together wait for one reading.

        Raises StoreError for a journal that cannot be read, and UnknownRun for a tree that was deleted.
        """
        asked = time.monotonic()
        async with self._lock:
            if self._read_at >= asked or (not at_once and time.monotonic() - self._read_at < self._pause()):
                return
            await self._read()
            if time.monotonic() - self._looked_at >= LOOK_S:
                await self._look()
            self._read_at = time.monotonic()

    def _pause(self) -> float:
        idle = not self.info.live or time.monotonic() - self._active_at > ACTIVE_S
        return IDLE_S / 4 if idle and self.info.live else IDLE_S if idle else POLL_S

    async def _read(self) -> bool:
        """Whether anything was added."""
        before = self.projection.seq
        count = 0
        async for event in self._hub.store.read(self.root, before):
            self.projection.feed(event)
            count += 1
            if not count % BREATH:
                await anyio.lowlevel.checkpoint()
        if self.projection.seq != before:
            self._active_at = time.monotonic()
        return self.projection.seq != before

    async def _look(self) -> None:
        infos = await self._hub.infos(LOOK_S)
        self._looked_at = time.monotonic()
        info = infos.get(self.root)
        if info is None:
            self._hub.forget(self.root)
            raise UnknownRun(self.root)
        if not info.live and self.projection.tree.status is None:
            # Its last events may have come after they were read, and before it was asked who runs it.
            await self._read()
        self.info = info
        self.projection.live = info.live

    async def is_called(self) -> bool:
        """Whether the command line started it, so that `remit resume` can resume it."""
        if self._started_by_command is None:
            record = await self._hub.store.load_artifact(self.root, f"{self.root}/cli", 0, 1)
            # The record is written just after the first event.
            if record is None and time.time() - self.info.started_at < IDLE_S:
                return False
            self._started_by_command = record is not None
        return self._started_by_command

    async def head(self, *, hosted: bool, may_start: bool) -> Head:
        tree, info = self.projection.tree, self.info
        if tree.root not in tree.runs:
            raise StoreError(f"The journal of {self.root!r} has no beginning, so it cannot be shown.")
        record = tree.runs[tree.root]
        status = self.projection.status(record)
        resumable = ""
        if not info.live and (status in map(str, REOPENED) or status == Status.INTERRUPTED):
            resumable = ("here" if may_start else "command") if await self.is_called() else "program"
        return Head(
            root=self.root,
            agent=record.agent,
            task=line(record.task.text, TASK_CHARS),
            status=status,
            live=info.live,
            owner=line(info.owner, TASK_CHARS),
            hosted=hosted,
            resumable=resumable,
            seq=tree.seq,
            at=tree.at,
            started_at=record.started_at,
            runs=len(tree.runs),
            events=len(self.projection.events),
            questions=self.projection.questions(),
        )


class Hub:
    """The trees of one journal."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lock = anyio.Lock()
        self._infos: dict[str, TreeInfo] = {}
        self._read_at = -LOOK_S
        self._trees: OrderedDict[str, Watched] = OrderedDict()

    async def infos(self, age_s: float = 0.5) -> dict[str, TreeInfo]:
        """A line about each tree, the newest first; not older than `age_s`. Raises StoreError."""
        async with self._lock:
            if time.monotonic() - self._read_at > age_s:
                self._infos = {info.root: info for info in await self.store.trees()}
                self._read_at = time.monotonic()
            return self._infos

    async def tree(self, run: str, *, at_once: bool = True) -> Watched:
        """The tree of a run. `at_once`: as it is now, instead of up to `IDLE_S` ago. Raises UnknownRun and StoreError."""
        root = run.partition(".")[0]
        found = self._trees.get(root)
        if found is None:
            info = (await self.infos()).get(root)
            if info is None:
                info = (await self.infos(0.0)).get(root)
            if info is None:
                raise UnknownRun(run)
            # Another request may have come first.
            found = self._trees.setdefault(root, Watched(self, info))
        self._trees.move_to_end(root)
        await found.catch_up(at_once=at_once)
        if run != root and run not in found.projection.tree.runs:
            raise UnknownRun(run)
        self._make_room()
        return found

    def forget(self, root: str) -> None:
        self._trees.pop(root, None)

    def _make_room(self) -> None:
        unwatched = [one for one in self._trees.values() if not one.watchers]
        size, count = sum(one.info.bytes for one in unwatched), len(unwatched)
        for one in unwatched[:-1]:
            if size <= KEPT_BYTES and count <= KEPT_TREES:
                return
            self.forget(one.root)
            size, count = size - one.info.bytes, count - 1
