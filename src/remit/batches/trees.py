"""The trees of a batch: started, resumed, paid from the total, and read back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import cast

import anyio
import msgspec

import remit.remote as remote
from remit.agent import Agent
from remit.batches.total import Total, amount_of, used_by
from remit.engine.budget.account import Amount
from remit.engine.handle import Running
from remit.engine.resume import reopen
from remit.engine.run.state_restored import with_output
from remit.engine.start import TreeOptions, start, with_trees_above
from remit.errors import RETRYABLE_KINDS, TreeExists, TreeOwned
from remit.history.records import Tree
from remit.types.events import Event, ModelCallFailed
from remit.types.limits import Limits, to_micros
from remit.types.outcome import Outcome, Rejection, Status
from remit.types.ports import Store, TreeInfo

OWNED_S = 1.0
"""The pause while a process that lost the batch still owns one of its trees."""


class NotRun(Exception):
    """A row did not fit into the total."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(rejection.message)
        self.rejection = rejection


class RowTrees:
    """The trees of one batch."""

    def __init__(
        self,
        agent: Agent,
        batch: str,
        *,
        store: Store,
        total: Total,
        options: TreeOptions,
    ) -> None:
        self.agent = agent
        self.batch = batch
        self.store = store
        self.live: dict[str, Running] = {}
        self._limits = options.get("limits") or Limits()
        self._total = total
        self._options = options
        self._known: dict[str, TreeInfo] = {}
        """Trees that the store had when the batch was resumed."""
        self._readers: list[asyncio.Queue[Event | None]] = []

    def name(self, number: int, attempt: int) -> str:
        """The id of a row's tree. Computed, so that every process finds the same trees."""
        return f"{self.batch}-{number}" + (f"r{attempt}" if attempt else "")

    async def recount(self, rows: int, retries: int) -> None:
        """Enter what the trees of earlier processes used, and what unfinished trees reserved."""
        names = [
            self.name(number, attempt) for number in range(1, rows + 1) for attempt in range(retries + 1)
        ]
        for info in await remote.infos(self.store, names):
            self._known[info.root] = info
            if _is_final(info):
                micros = to_micros(info.usd) if info.usd else 0
                self._total.spend(Amount(info.requests, info.tokens, micros))
            else:
                past = await remote.look(self.store, info.root)
                self._total.enter(info.root, amount_of(past.runs[info.root].limits))

    async def run(self, tree: str, task: str) -> Outcome:
        """Start or resume a tree and return its outcome. Raises NotRun if the total has no room."""
        info = self._known.get(tree)
        if info is not None and _is_final(info):
            return await self.recorded(tree)
        if info is None:
            rejection = await self._total.reserve(tree, amount_of(self._limits))
            if rejection is not None:
                raise NotRun(rejection)
            try:
                outcome = await self._execute(tree, lambda: self._start(tree, task))
            except TreeExists:
                # A driver that was replaced had started it meanwhile; it could not send anything.
                outcome = await self._resume(tree)
        else:
            outcome = await self._resume(tree)
        await self._total.settle(tree, used_by(outcome.total_usage))
        return outcome

    def _start(self, tree: str, task: str) -> Running:
        with with_trees_above(self.batch):
            return start(self.agent, task, run_id=tree, store=self.store, **self._options)

    async def _resume(self, tree: str) -> Outcome:
        past = await remote.look(self.store, tree)
        options = cast(TreeOptions, {**self._options, "limits": self._topped_up(tree, past)})

        def make() -> Running:
            with with_trees_above(self.batch):
                return reopen(self.store, tree, agent=self.agent, **options)

        return await self._execute(tree, make)

    def _topped_up(self, tree: str, past: Tree) -> Limits | None:
        """The tree's limits plus what its lost calls used up, if the total has room; None: the recorded limits."""
        lost = [r.asking for r in past.runs.values() if r.asking is not None and r.outcome is None]
        if tree not in past.runs or not lost:
            return None
        limits = past.runs[tree].limits
        usd = sum(one.input_usd or 0.0 for one in lost)
        more = {"requests": len(lost), "tokens": sum(one.input_tokens for one in lost), "usd": usd}
        raised = {
            name: cast(float, getattr(limits, name)) + value
            for name, value in more.items()
            if isinstance(getattr(limits, name), (int, float))
        }
        wider = msgspec.structs.replace(limits, **raised)
        before, after = amount_of(limits), amount_of(wider)
        extra = Amount(*(b - a for a, b in zip(before, after, strict=True)))
        return wider if self._total.add(tree, extra) else None

    async def _execute(self, tree: str, make: Callable[[], Running]) -> Outcome:
        while True:
            try:
                async with make() as running:
                    self.live[tree] = running
                    return await self._follow(running)
            except TreeOwned:
                await anyio.sleep(OWNED_S)
            finally:
                self.live.pop(tree, None)

    async def _follow(self, running: Running) -> Outcome:
        if self._readers:
            async for event in running.events():
                for reader in self._readers:
                    reader.put_nowait(event)
        return await running.outcome()

    async def follow(self, ended: Callable[[], bool]) -> AsyncIterator[Event]:
        """The events of trees that start from now on."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._readers.append(queue)
        try:
            while not (ended() and queue.empty()):
                with anyio.move_on_after(0.1):
                    event = await queue.get()
                    if event is not None:
                        yield event
        finally:
            self._readers.remove(queue)

    async def recorded(self, tree: str) -> Outcome:
        """The recorded outcome of a tree that has ended."""
        return with_output((await remote.look(self.store, tree)).outcome(), self.agent)

    async def may_pass(self, outcome: Outcome) -> bool:
        """Whether a tree failed because of a model error that a later attempt may not meet."""
        if outcome.status is Status.STALLED:
            return True
        if outcome.status is not Status.FAILED:
            return False
        last = ""
        async for event in self.store.read(outcome.run_id):
            if isinstance(event, ModelCallFailed) and event.run == outcome.run_id:
                last = event.error_kind
        return last in RETRYABLE_KINDS


def _is_final(info: TreeInfo) -> bool:
    """Whether the tree is not resumed. A tree that was cancelled with its batch is."""
    return info.status is not None and info.status is not Status.CANCELLED
