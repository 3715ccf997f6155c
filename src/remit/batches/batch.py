"""`batch()`: one agent on many rows, a tree for each row, with one cap over all of them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Generic, Self, Unpack, cast

import anyio
import msgspec

import remit.engine.checks as checks
import remit.remote as remote
from remit.agent import Agent
from remit.batches.records import Item, Progress, Row, RowResult, Summary, cost_of, results_of, summarise
from remit.batches.total import Total, check_total
from remit.batches.trees import NotRun, RowTrees
from remit.engine.handle import Running
from remit.engine.resume import reopen
from remit.engine.start import TreeOptions, check_options, start, with_options
from remit.errors import TreeExists, TreeOwned, UsageError
from remit.history.records import Tree
from remit.stores import open_store
from remit.stores.memory import MemoryStore
from remit.tools.contexts import ProgramContext
from remit.tools.policy import ApprovalRequest
from remit.types.events import Event
from remit.types.limits import Limits
from remit.types.messages import Json
from remit.types.outcome import Outcome, Status
from remit.types.ports import Store, new_root_id

NAME = "batch"
"""The agent of a batch's own tree."""

CONCURRENCY = 16
RETRIES = 2
MOST_ID = 48
"""Characters of a batch's id: the ids of its trees are longer."""

_ENDLESS = Limits(seconds=None, delegations=0)


class Incomplete(Exception):
    """Some rows did not run. The batch can be resumed, with a larger `total` if that was the reason."""


@with_options(TreeOptions)
def batch(
    agent: Agent,
    rows: Iterable[Row],
    *,
    task: Callable[[Row], str] | None = None,
    id: str | None = None,  # noqa: A002 - the word users expect
    store: Store | str | None = None,
    total: Limits | None = None,
    concurrency: int = CONCURRENCY,
    retries: int = RETRIES,
    **options: Unpack[TreeOptions],
) -> Batch[Row]:
    """Run an agent on each row, in a tree of its own: `async with batch(...) as job:`.

    task: makes a row's task (default: the row itself, which must be a string)
    id: the batch's id; with the same id, a batch resumes, from another process too. Needs a store.
    store: where the journal is kept (default: in memory)
    total: for all trees together; caps requests, tokens or usd, and `limits` must cap the same
    concurrency: trees that run at once
    retries: how often a row is tried again, in a new tree, after a failure that may pass

    `limits` and the other options are for each tree. Raises UsageError for a mistake in the call.
    """
    check_options("batch()", options, TreeOptions)
    for name, value, least in (("concurrency", concurrency, 1), ("retries", retries, 0)):
        if isinstance(value, bool) or not isinstance(cast(object, value), int) or value < least:
            raise UsageError(f"batch(): {name} must be a whole number, {least} or more, not {value!r}.")
    if id is not None and store is None:
        raise UsageError("batch(id=...) needs a store that outlives this process: store=...")
    checks.check_new_run_id(id)
    if id is not None and len(id) > MOST_ID:
        raise UsageError(f"batch(): the id may have at most {MOST_ID} characters, not {len(id)}.")
    if total is not None:
        check_total(total, options.get("limits"))
    found = list(rows)
    tasks = [_task_of(row, number, task) for number, row in enumerate(found, 1)]
    opened = MemoryStore() if store is None else open_store(store) if isinstance(store, str) else store
    options = cast(TreeOptions, {**options, "strict": not getattr(opened, "volatile", False)})
    # Checks everything else; opens nothing.
    start(agent, "a row", store=opened, **options)
    trees = RowTrees(
        agent,
        id or new_root_id.get()(),
        store=opened,
        total=Total(total or Limits()),
        options=options,
    )
    return Batch(trees, found, tasks, concurrency, retries, ours=isinstance(store, str) or store is None)


def _task_of(row: Row, number: int, task: Callable[[Row], str] | None) -> str:
    made: object = row if task is None else task(row)
    if not isinstance(made, str) or not made.strip():
        what = "the row is" if task is None else "task returned"
        raise UsageError(
            f"batch(): the task of row {number} must be a non-empty string, but {what} {repr(made)[:60]}."
        )
    return made


class Batch(Generic[Row]):
    """A batch while it runs. Leaving the `async with` block stops it; the same id resumes it."""

    def __init__(
        self,
        trees: RowTrees,
        rows: list[Row],
        tasks: list[str],
        concurrency: int,
        retries: int,
        *,
        ours: bool,
    ) -> None:
        self.id = trees.batch
        self._trees = trees
        self._rows, self._tasks = rows, tasks
        self._concurrency, self._retries = concurrency, retries
        self._ours = ours
        self._running: Running | None = None
        self._began = time.monotonic()
        self._results: dict[int, RowResult] = {}
        self._outcomes: dict[int, Outcome] = {}
        """Of rows that ended in this process, until they are delivered."""
        self._items: deque[Item[Row]] = deque()
        self._news = asyncio.Event()
        self._resumed = False
        self._ended = False
        self._not_run: list[str] = []

    async def __aenter__(self) -> Self:
        trees, prompt = self._trees, self._prompt()
        agent = Agent(NAME, description="Runs one agent on many rows.", program=self._program)
        running = start(agent, prompt, run_id=self.id, store=trees.store, limits=_ENDLESS)
        try:
            await running.__aenter__()
        except TreeExists:
            past = await remote.look(trees.store, self.id)
            self._check_same(past, prompt)
            self._resumed = True
            running = reopen(trees.store, self.id, agent=agent)
            await running.__aenter__()
            if past.status is Status.COMPLETED:
                await self._recall(past)
        self._running = running
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._inside().__aexit__(kind, error, trace)
        finally:
            if self._ours:
                with anyio.CancelScope(shield=True):
                    await self._trees.store.close()

    def _prompt(self) -> str:
        # Recorded as the task of the batch's tree: a resumed batch must have the same rows.
        digest = hashlib.sha256("\0".join(self._tasks).encode("utf-8", "surrogatepass")).hexdigest()[:12]
        return f"{self._trees.agent.name}: {len(self._rows)} rows (fingerprint {digest})"

    def _check_same(self, past: Tree, prompt: str) -> None:
        root = past.runs.get(self.id)
        if root is None:
            raise TreeOwned(f"Another process has just started the batch {self.id!r}.")
        if root.start.agent != NAME:
            raise UsageError(f"{self.id!r} is the id of a run, not of a batch. Choose another id.")
        if root.task.text != prompt:
            raise UsageError(
                f"The batch {self.id!r} has other rows, tasks or another agent: it is {root.task.text!r}, and this is"
                f" {prompt!r}. Pass the same rows, or choose another id."
            )

    async def _recall(self, past: Tree) -> None:
        """Deliver the recorded items of a batch that has completed: its program does not run again."""
        for result in results_of(past):
            await self._deliver(result)
        self._ended = True

    # --- The program of the batch's tree.

    async def _program(self, context: ProgramContext) -> str:
        todo = iter(range(1, len(self._rows) + 1))
        try:
            if self._resumed:
                await self._trees.recount(len(self._rows), self._retries)
            async with anyio.create_task_group() as group:
                for _ in range(min(self._concurrency, len(self._rows))):
                    group.start_soon(self._work, context, todo)
        finally:
            self._ended = True
            self._news.set()
        if self._not_run:
            raise Incomplete(
                f"{len(self._not_run)} of {len(self._rows)} rows did not run: {self._not_run[0]}"
            )
        return msgspec.json.encode(self.summary).decode()

    async def _work(self, context: ProgramContext, todo: Iterable[int]) -> None:
        for number in todo:
            try:
                recorded = await context.step(f"row {number}", self._row, number)
            except NotRun as refused:
                self._not_run.append(refused.rejection.message)
                self._put(Item(number, self._rows[number - 1], refused.rejection, None))
                continue
            await self._deliver(msgspec.convert(recorded, RowResult))

    async def _row(self, number: int) -> Json:
        """Run a row, with its retries, and return its result. Raises NotRun."""
        outcomes: list[Outcome] = []
        while True:
            tree = self._trees.name(number, len(outcomes))
            outcome = await self._trees.run(tree, self._tasks[number - 1])
            outcomes.append(outcome)
            if len(outcomes) > self._retries or not await self._trees.may_pass(outcome):
                break
        self._outcomes[number] = outcome
        used = [one.total_usage for one in outcomes]
        costs = [one.usd for one in used]
        result = RowResult(
            number,
            tree,
            str(outcome.status),
            len(outcomes),
            sum(one.requests for one in used),
            sum(one.tokens for one in used),
            None if None in costs else sum(usd for usd in costs if usd is not None),
            sum(one.duration_s for one in outcomes),
            "" if outcome.ok else outcome.reason[:200],
        )
        return cast(Json, msgspec.to_builtins(result))

    async def _deliver(self, result: RowResult) -> None:
        self._results[result.number] = result
        outcome = self._outcomes.pop(result.number, None)
        if outcome is None:
            outcome = await self._trees.recorded(result.tree)
        self._put(Item(result.number, self._rows[result.number - 1], outcome, result))

    def _put(self, item: Item[Row]) -> None:
        self._items.append(item)
        self._news.set()

    # --- For the caller.

    async def outcomes(self) -> AsyncIterator[Item[Row]]:
        """Each row once, as it ends; a resumed batch first delivers recorded rows. Ends with the batch."""
        self._inside()
        while True:
            while self._items:
                yield self._items.popleft()
            if self._ended:
                return
            self._news.clear()
            await self._news.wait()

    async def outcome(self) -> Outcome:
        """Wait for the end of the batch and return the outcome of its own tree. Its children are separate trees."""
        return await self._inside().outcome()

    async def cancel(self, reason: str = "") -> bool:
        """Stop all trees of the batch; returns after they have stopped. The same id resumes the batch."""
        return await self._inside().cancel(reason)

    def events(self) -> AsyncIterator[Event]:
        """The events of all trees that start after this call, as they happen."""
        self._inside()
        return self._trees.follow(lambda: self._ended)

    async def approvals(self) -> list[ApprovalRequest]:
        """The requests that trees of the batch wait for. Answer with `remote.approve` or `remote.refuse`."""
        waiting = [await remote.waiting(self._trees.store, tree) for tree in tuple(self._trees.live)]
        return [request for some in waiting for request in some]

    @property
    def progress(self) -> Progress:
        done = list(self._results.values())
        return Progress(
            rows=len(self._rows),
            done=len(done),
            ok=sum(one.status == Status.COMPLETED for one in done),
            running=len(self._trees.live),
            requests=sum(one.requests for one in done),
            tokens=sum(one.tokens for one in done),
            usd=cost_of(done),
            seconds=time.monotonic() - self._began,
        )

    @property
    def summary(self) -> Summary:
        return summarise(len(self._rows), self._results.values())

    def _inside(self) -> Running:
        if self._running is None:
            raise UsageError("The batch has not started: use `async with batch(...) as job:`.")
        return self._running
