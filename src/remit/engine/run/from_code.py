"""Delegation from code: the children that one tool call, or one program, starts.

Each child runs in its own task, and the code waits for it. A stop therefore never interrupts the code inside an engine
wait, and a timeout in the code stops only the child that it waited for. While children are open, the call gives up its
slot and its timeout pauses.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar, cast

import msgspec

import remit.engine.budget.ledger as ledger
import remit.tasks.threads as threads
from remit.agent import Agent
from remit.engine.run.model_call import OverBudget, keep_last_word
from remit.engine.run.runtime_tool import Delegation, Plan
from remit.engine.run.state import Run
from remit.errors import UsageError
from remit.history.redaction import Redactor
from remit.tasks.cancel import Stopped, SubPhase, on_loop, settled, wake
from remit.types.events import DelegationRejected
from remit.types.limits import Left, Limits
from remit.types.outcome import Outcome, Rejection
from remit.types.ports import ModelChoice
from remit.types.spelling import suggest
from remit.types.task_message import Task, as_message
from remit.types.text import clean

MOST_RECORDED = 20
"""How many rejections of one call become events: code may ask in a loop."""

PATIENT = 100
"""Rejections in a row before `delegate` starts to slow down: code may ask in an endless loop."""

LONGEST_WAIT_S = 1.0

AT_ONCE = 64
"""How many children `map` runs at once if nothing else limits them."""

Result = Outcome | Rejection
T = TypeVar("T")


class FromCode:
    """The children of one call or program. Created with its first delegation."""

    def __init__(
        self,
        run: Run,
        call: str,
        who: str,
        *,
        on_wait: Callable[[], None],
        on_back: Callable[[], None],
    ) -> None:
        """`on_wait` is called when the code starts to wait for children, `on_back` when it continues."""
        self._run = run
        self._call = call
        self._who = who
        self._on_wait = on_wait
        self._on_back = on_back
        self._queue = run.node.means.seat.queue
        self._tasks: dict[asyncio.Task[Result], Delegation] = {}
        self._open = 0
        """Children that were requested and have not ended."""
        self._works = True
        """Whether the call holds its slot."""
        self._returning: asyncio.Future[None] | None = None
        """Set while the call waits for its slot."""
        self._closed = False
        self._has_word = run.agent.program is not None
        """Whether budget is withheld for the run's last word; a program has no last word."""
        self._keys: set[str] = set()
        self._prompts: Counter[str] = Counter()
        self._rejected = 0
        self._in_a_row = 0

    # --- Called by the code -----------------------------------------------------------------------

    async def delegate(
        self,
        agent: Agent | str,
        prompt: Task,
        *,
        label: str = "",
        limits: Limits | None = None,
        model: ModelChoice | None = None,
        key: str | None = None,
    ) -> Result:
        """Run a task in a child, and wait for it."""
        self._check_loop("delegate")
        begun = self._begin(agent, prompt, label=label, limits=limits, model=model, key=key)
        if isinstance(begun, Rejection):
            return await self._refuse(begun)
        (result,) = await self._all_of([begun])
        return await self._refuse(result) if isinstance(result, Rejection) else self._accept(result)

    async def map(
        self,
        agent: Agent | str,
        prompts: Iterable[Task],
        *,
        keys: Iterable[str] | None = None,
        concurrency: int | None = None,
        label: str = "",
        limits: Limits | None = None,
        model: ModelChoice | None = None,
    ) -> list[Result]:
        """Run each task in a child, several at once, and wait for all. Results are in the order of the prompts."""
        self._check_loop("map")
        items, names = _pairs(prompts, keys)
        most = self._at_once(concurrency)
        results: list[Result | asyncio.Task[Result]] = []
        begun: list[asyncio.Task[Result]] = []
        for prompt, key in zip(items, names, strict=True):
            while sum(not task.done() for task in begun) >= most:
                await self._first_of(begun)
            one = self._begin(agent, prompt, label=label, limits=limits, model=model, key=key)
            if isinstance(one, Rejection):
                self._record(one)
                await asyncio.sleep(0)
            else:
                begun.append(one)
            results.append(one)
        await self._all_of(begun)
        return [self._mapped(one) for one in results]

    def from_thread(self, name: str, make: Callable[[], Awaitable[T]]) -> T:
        """Run a coroutine on the tree's event loop and wait for it, from the thread of a sync tool."""
        loop = self._run.node.tree.loop
        if on_loop(loop):
            raise UsageError(
                f"{self._who}: ctx.{name}_sync(...) would block the event loop. Write `await ctx.{name}(...)`."
            )

        async def work() -> T:
            return await make()

        # This thread only waits: the children's sync tools may need all the other threads.
        with threads.aside():
            return asyncio.run_coroutine_threadsafe(work(), loop).result()

    @property
    def left(self) -> Left:
        """What the run's children may still spend, without the amount withheld for the run's own last word."""
        node = self._run.node
        seconds = node.life.deadline.soft_left()
        return msgspec.structs.replace(
            ledger.left(node.means.account, own_word=False),
            depth=node.bounds.depth_left,
            seconds=None if seconds == float("inf") else max(0.0, seconds),
        )

    # --- Called by the engine ---------------------------------------------------------------------

    async def close(self) -> None:
        """The call has ended: stop its open children, and wait for them. Raises nothing."""
        self._closed = True
        for delegation in self._tasks.values():
            delegation.stop(self._who, "the code ended without waiting for this run")
        await self.children_ended()
        left = self._run.engine.give_up(self._run, self._call)
        if left:
            self._run.node.warn(
                f"{self._who} was resumed and did not ask again for {len(left)} recorded {'child' if len(left) == 1 else 'children'};"
                " their outcomes are kept. Pass key=... to delegate(), so that children are found even if prompts change."
            )

    async def children_ended(self) -> bool:
        """Wait for every open child; returns whether there was one. Raises nothing."""
        if not self._tasks:
            return False
        while self._tasks:
            try:
                await asyncio.wait(self._tasks)
            except asyncio.CancelledError:
                self._run.node.life.phase.on_cancelled()
        return True

    # --- Starting a child -------------------------------------------------------------------------

    def _begin(
        self,
        agent: object,
        prompt: object,
        *,
        label: object,
        limits: object,
        model: object,
        key: object,
    ) -> asyncio.Task[Result] | Rejection:
        """Start a child in its own task, or return a rejection. Raises UsageError."""
        if self._closed:
            return Rejection("cancelled", f"Cancelled before it started: {self._who} has ended.")
        found = self._find_agent(agent, limits, model)
        plan = found if isinstance(found, Rejection) else _plan(found, prompt, label)
        if isinstance(plan, Rejection):
            return plan
        named = self._name(plan, key)
        if isinstance(named, Rejection):
            return named
        run = self._run
        phase = SubPhase(run.node.life.phase)
        delegation = Delegation(run, plan, self._call, phase, named)
        rejected = run.engine.refused(delegation)
        if rejected is not None:
            phase.leave()
            return rejected
        # Count it before the task exists: on Python 3.12 and later the task's first step may run at once.
        self._opened()
        task = run.node.tree.loop.create_task(
            self._carry(delegation, phase), name=f"remit child of {self._who}"
        )
        self._tasks[task] = delegation
        task.add_done_callback(self._forget)
        return task

    def _find_agent(self, agent: object, limits: object, model: object) -> Agent | Rejection:
        if limits is not None and not isinstance(limits, Limits):
            raise UsageError(f"{self._who}: limits must be a Limits(...), not {limits!r}.")
        if isinstance(agent, str):
            below = {one.name: one for one in self._run.agent.subagents}
            if agent not in below:
                names = ", ".join(below) or "none"
                return Rejection(
                    "unknown_agent",
                    f"Agent {agent!r} is not declared in {self._run.agent.name!r}.{suggest(agent, below)} Its subagents: {names}.",
                )
            agent = below[agent]
        if not isinstance(agent, Agent):
            raise UsageError(f"{self._who}: agent must be an Agent or the name of a subagent, not {agent!r}.")
        if limits is None and model is None:
            return agent
        return agent.narrowed(limits, cast("ModelChoice | None", model))

    def _name(self, plan: Plan, key: object) -> str | Rejection:
        """The child's name among the children of this call; a resumed tree finds the child by this name."""
        if key is None:
            digest = hashlib.blake2s(
                _redactor().redact_text(plan.task).encode("utf-8", "replace"), digest_size=8
            )
            name = f"{plan.agent.name}#{digest.hexdigest()}"
            self._prompts[name] += 1
            return f"{name}#{self._prompts[name]}"
        if not isinstance(key, str) or not key.strip() or len(key) > 200:
            raise UsageError(f"{self._who}: key must be a string of 1 to 200 characters, not {key!r}.")
        name = f"{plan.agent.name}/{clean(key)}"
        if name in self._keys:
            return Rejection(
                "invalid_input", f"The key {key!r} was already used in this call; keys must be unique."
            )
        self._keys.add(name)
        return name

    async def _carry(self, delegation: Delegation, phase: SubPhase) -> Result:
        """Runs one child, from its request to its end, in its own task; the call's slot is free meanwhile."""
        try:
            return await self._keep_word() or await self._run.engine.delegate(delegation)
        finally:
            phase.leave()
            self._open -= 1
            await self._back()

    def _forget(self, task: asyncio.Task[Result]) -> None:
        self._tasks.pop(task, None)

    async def _keep_word(self) -> Rejection | None:
        """Withhold budget for the run's last word before its first child can spend it."""
        if self._has_word:
            return None
        self._run.turn.delegated.add(self._call)
        try:
            await keep_last_word(self._run, self._run.turn.size)
        except OverBudget as over:
            if not self._run.node.means.account.has_word:
                return Rejection(
                    "budget", f"Not started, budget exhausted: {over}. Answer with what you have."
                )
        except Stopped:
            return Rejection("cancelled", "Cancelled before it started: the run was stopped.")
        self._has_word = True
        return None

    # --- The slot of the call ---------------------------------------------------------------------

    def _opened(self) -> None:
        self._open += 1
        if self._works:
            self._release()

    def _release(self) -> None:
        self._works = False
        self._on_wait()
        self._run.node.means.seat.leave()
        if self._queue is not None:
            self._queue.leave()

    async def _back(self) -> None:
        """Take the slot again once the last child has ended: one wait, however many children ended. Raises nothing."""
        while not self._works and not self._open:
            if self._returning is not None:
                await asyncio.shield(self._returning)
                continue
            self._returning = self._run.node.tree.loop.create_future()
            try:
                await self._enter()
            finally:
                wake(self._returning)
                self._returning = None
            self._works = True
            if self._open:
                # Another child was started meanwhile.
                self._release()
            else:
                self._on_back()

    async def _enter(self) -> None:
        seat, phase = self._run.node.means.seat, self._run.node.life.phase
        try:
            await seat.enter(phase)
        except Stopped:
            # Count the call as working without a slot: it is about to end.
            if self._queue is not None:
                self._queue.count()
            return
        if self._queue is not None:
            try:
                await self._queue.come_back(phase)
            except Stopped:
                return

    # --- Waiting ----------------------------------------------------------------------------------

    async def _all_of(self, tasks: Sequence[asyncio.Task[Result]]) -> list[Result]:
        """Wait for children. If the code is cancelled meanwhile, stop them and wait until they have ended."""
        left = [task for task in tasks if not task.done()]
        while left:
            await self._waited(left, asyncio.ALL_COMPLETED)
            left = [task for task in left if not task.done()]
        return [task.result() for task in tasks]

    async def _first_of(self, tasks: Sequence[asyncio.Task[Result]]) -> None:
        await self._waited([task for task in tasks if not task.done()], asyncio.FIRST_COMPLETED)

    async def _waited(self, tasks: Sequence[asyncio.Task[Result]], until: str) -> None:
        try:
            await asyncio.wait(tasks, return_when=until)
        except asyncio.CancelledError:
            for task in tasks:
                if (delegation := self._tasks.get(task)) is not None:
                    delegation.stop(self._who, "the code stopped waiting for this run")
            await settled(tasks)
            raise

    def _accept(self, outcome: Outcome) -> Outcome:
        self._in_a_row = 0
        return outcome

    async def _refuse(self, rejection: Rejection) -> Rejection:
        """Return the rejection to code and yield to the event loop; after many rejections in a row, for longer."""
        self._record(rejection)
        self._in_a_row += 1
        over = max(0, self._in_a_row - PATIENT)
        await asyncio.sleep(min(LONGEST_WAIT_S, 0.001 * over))
        return rejection

    def _record(self, rejection: Rejection) -> None:
        self._rejected += 1
        node = self._run.node
        if self._rejected <= MOST_RECORDED and not self._closed:
            node.emit(DelegationRejected(*node.stamp(), call=self._call, rejection=rejection))

    def _mapped(self, one: Result | asyncio.Task[Result]) -> Result:
        if not isinstance(one, asyncio.Task):
            return one
        result = one.result()
        if isinstance(result, Rejection):
            self._record(result)
        return result

    def _at_once(self, concurrency: object) -> int:
        if concurrency is None:
            return min((pool.size for pool in self._run.node.means.seat.pools), default=AT_ONCE)
        if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
            raise UsageError(
                f"{self._who}: concurrency must be a whole number of at least 1, not {concurrency!r}."
            )
        return concurrency

    def _check_loop(self, name: str) -> None:
        if not on_loop(self._run.node.tree.loop):
            raise UsageError(
                f"{self._who}: `await ctx.{name}(...)` works only on the event loop that runs the tool. In a sync tool's thread,"
                f" call ctx.{name}_sync(...)."
            )


_kept_redactor: list[Redactor] = []


def _redactor() -> Redactor:
    """Created once. A prompt is redacted before it is hashed, so that the journal has no hash of a secret."""
    if not _kept_redactor:
        _kept_redactor.append(Redactor())
    return _kept_redactor[0]


def _plan(agent: Agent, prompt: object, label: object) -> Plan | Rejection:
    if not isinstance(label, str):
        raise UsageError(f"label must be a string, not {label!r}.")
    if not isinstance(prompt, (str, list, tuple)):
        raise UsageError(f"prompt must be a string or a list of parts, not {type(prompt).__name__}.")
    try:
        message = as_message(cast(Task, prompt))
    except UsageError as error:
        return Rejection("invalid_input", str(error).replace("task", "prompt", 1))
    return Plan(agent, message, message.text, clean(label)[:200], summary=agent.summary)


def _pairs(prompts: object, keys: object) -> tuple[list[Task], list[str | None]]:
    if isinstance(prompts, str) or not isinstance(prompts, Iterable):
        raise UsageError("map() takes a list of prompts. For one prompt, use delegate().")
    items = list(cast("Iterable[Task]", prompts))
    if keys is None:
        return items, [None] * len(items)
    if isinstance(keys, str) or not isinstance(keys, Iterable):
        raise UsageError("map(keys=...) takes a list of strings, one for each prompt.")
    names = list(cast("Iterable[str | None]", keys))
    if len(names) != len(items):
        raise UsageError(
            f"map() got {len(items)} prompts but {len(names)} keys. Pass one key for each prompt."
        )
    return items, names
