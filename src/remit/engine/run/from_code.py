"""Delegation from code: the children that one tool call, or one program, starts.

Each child runs in its own task, and the code waits for it. A stop therefore never interrupts the code inside an engine
wait, and a timeout in the code stops only the child that it waited for. While children are open, the call gives up its
slot and its timeout pauses.
"""

from __future__ import annotations

import asyncio
import hashlib
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from concurrent.futures import CancelledError
from typing import Any, TypeVar, cast

import msgspec

import remit.engine.budget.ledger as ledger
import remit.tasks.threads as threads
from remit.agent import Agent
from remit.engine.run.model_call import OverBudget, keep_last_word, want_after
from remit.engine.run.runtime_tool import Delegation, Plan
from remit.engine.run.state import Run
from remit.errors import UsageError
from remit.tasks.cancel import Stopped, SubPhase, on_loop, settled, wake
from remit.types.events import DelegationRejected
from remit.types.limits import Left, Limits
from remit.types.outcome import Outcome, Rejection
from remit.types.ports import ModelChoice
from remit.types.spelling import suggest
from remit.types.task_message import Task, as_message
from remit.types.text import clean
from remit.types.type_variables import Output

MOST_RECORDED = 20
"""How many rejections of one call become events: code may ask in a loop."""

REJECTIONS_BEFORE_DELAY = 100
"""Rejections in a row before `delegate` starts to slow down: code may ask in an endless loop."""

LONGEST_WAIT_S = 1.0

THREAD_WAIT_S = 0.01
"""How long a thread waits for each answer once its call has ended: it may ask in a loop that never ends."""

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
        ended: bool = False,
    ) -> None:
        """`on_wait` is called when the code begins to wait for children, `on_back` when it works again.

        May be called from a thread of a tool. `ended`: the call is over, so every delegation is rejected.
        """
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
        """While the call waits for its slot."""
        self._end: asyncio.Future[None] = run.node.tree.loop.create_future()
        """Done when the call has ended."""
        if ended:
            self._end.set_result(None)
        self._next_end: asyncio.Future[None] | None = None
        """Done when a child has ended, if code waits for that."""
        self._errands: set[asyncio.Task[object]] = set()
        """The requests of the call's threads, as tasks on the event loop."""
        self._has_word = run.agent.program is not None
        """Whether budget is withheld for the run's last word; a program has no last word."""
        self._keys: set[str] = set()
        self._prompts: Counter[str] = Counter()
        self._rejected = 0
        self._in_a_row = 0

    # --- Called by the code -----------------------------------------------------------------------

    async def delegate(
        self,
        agent: Agent[Any, Output] | str,
        prompt: Task,
        *,
        label: str = "",
        limits: Limits | None = None,
        model: ModelChoice | None = None,
        key: str | None = None,
    ) -> Outcome[Output] | Rejection:
        """Run a task in a child, and wait for it."""
        self._check_loop("delegate")
        one = self._begin(agent, prompt, label=label, limits=limits, model=model, key=key)
        if isinstance(one, asyncio.Task):
            try:
                await asyncio.wait([one])
            except asyncio.CancelledError:
                await self._stop([one])
                raise
            one = one.result()
        return await self._answer(one)

    async def map(
        self,
        agent: Agent[Any, Output] | str,
        prompts: Iterable[Task],
        *,
        keys: Iterable[str] | None = None,
        concurrency: int | None = None,
        label: str = "",
        limits: Limits | None = None,
        model: ModelChoice | None = None,
    ) -> list[Outcome[Output] | Rejection]:
        """Run each task in a child, several at once, and wait for all. Results are in the order of the prompts."""
        self._check_loop("map")
        items, names = _pairs(prompts, keys)
        most = self._at_once(concurrency)
        found: list[Result | asyncio.Task[Result]] = []
        still_open: set[asyncio.Task[Result]] = set()
        try:
            for prompt, key in zip(items, names, strict=True):
                while len(still_open) >= most:
                    await self._a_child_ended()
                one = self._begin(agent, prompt, label=label, limits=limits, model=model, key=key)
                found.append(one)
                if isinstance(one, asyncio.Task):
                    still_open.add(one)
                    one.add_done_callback(still_open.discard)
                elif not self._end.done():
                    await asyncio.sleep(0)
            if still_open:
                await asyncio.wait(still_open)
        except BaseException:
            # Cancelled, or a prompt of a wrong type: stop every child that this call started.
            await self._stop(still_open)
            raise
        results = [one.result() if isinstance(one, asyncio.Task) else one for one in found]
        for one in results:
            self._record(one)
        return results

    def from_thread(
        self, name: str, make: Callable[[], Awaitable[T]], rejected: Callable[[Rejection], T]
    ) -> T:
        """Run a coroutine on the event loop of the tree and wait for it, in the thread of a sync tool.

        `rejected` makes the result if the call has ended.
        """
        loop = self._run.node.tree.loop
        if on_loop(loop):
            raise UsageError(
                f"{self._who}: ctx.{name}_sync(...) would block the event loop. Write `await ctx.{name}(...)`."
            )
        if not self._end.done():
            # This thread only waits, so it does not count as busy: the children's sync tools may need all other threads.
            with threads.waiting() as go_on:
                errand = self._errand(make, go_on)
                try:
                    return asyncio.run_coroutine_threadsafe(errand, loop).result()
                except (CancelledError, RuntimeError):
                    # The event loop is being closed, or is closed: then nothing awaits the errand.
                    if not loop.is_closed() and not self._end.done():
                        raise
                    errand.close()
        threading.Event().wait(THREAD_WAIT_S)
        return rejected(self._ended_before())

    async def _errand(self, make: Callable[[], Awaitable[T]], done: Callable[[], None]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._errands.add(task)
        try:
            return await make()
        finally:
            self._errands.discard(task)
            done()

    @property
    def left(self) -> Left:
        """The amounts that the run's children may still spend, without the amount for the run's own last word."""
        node, run = self._run.node, self._run
        account, seconds = node.means.account, node.life.deadline.soft_left()
        word = account.last_word
        if not account.has_word and run.agent.program is None:
            want = want_after(run, run.talk.tokens, run.turn.size)
            word = want.amount(want.output_tokens)
        return msgspec.structs.replace(
            ledger.left(account, word),
            depth=node.bounds.depth_left,
            seconds=None if seconds == float("inf") else max(0.0, seconds),
        )

    # --- Called by the engine ---------------------------------------------------------------------

    async def close(self) -> None:
        """The call has ended: stop the children that it left open, and wait until they end. Raises nothing."""
        wake(self._end)
        for delegation in self._tasks.values():
            delegation.stop(self._who, "it ended without waiting for this run")
        while self._tasks or self._errands:
            await self._settle([*self._tasks, *self._errands])
        if self._run.node.life.phase.stopped:
            # The code was stopped before it could ask for all recorded children; they stay recorded for the next resume.
            return
        left = len(self._run.engine.give_up(self._run, self._call))
        if left:
            self._run.node.warn(
                f"{self._who} did not ask again for {left} recorded {'child' if left == 1 else 'children'} when it was"
                " resumed; their outcomes are kept. Give children a key=..., so that they are found if their prompts change."
            )

    async def children_ended(self) -> bool:
        """Wait for every open child; returns whether there was one. Raises nothing."""
        if not self._tasks:
            return False
        while self._tasks:
            await self._settle(self._tasks)
        return True

    async def _settle(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            self._run.node.life.phase.on_cancelled()

    # --- Asking for a child -----------------------------------------------------------------------

    def _begin(
        self,
        agent: object,
        prompt: object,
        *,
        label: object,
        limits: object,
        model: object,
        key: object,
    ) -> asyncio.Task[Result] | Result:
        """Ask for a child in a task of the engine; a recorded outcome, or a rejection if it cannot start. Raises UsageError."""
        if self._end.done():
            return self._ended_before()
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
        result = run.engine.recall(delegation)
        if result is None and delegation.record is None:
            result = run.engine.refused(delegation)
        if result is not None:
            phase.leave()
            return self._unless_rejected(result, named)
        # Opened before the task exists: on Python 3.12 and later its first step may run at once.
        self._opened()
        task = run.node.tree.loop.create_task(
            self._carry(delegation, phase), name=f"remit child of {self._who}"
        )
        self._tasks[task] = delegation
        task.add_done_callback(self._forget)
        return task

    def _ended_before(self) -> Rejection:
        return Rejection("cancelled", f"Cancelled before it started: {self._who} has ended.")

    def _unless_rejected(self, result: Result, name: str) -> Result:
        """The result. The key of a child that did not start may be used again."""
        if isinstance(result, Rejection):
            self._keys.discard(name)
        return result

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
        found = cast("Agent", agent)
        if limits is None and model is None:
            return found
        return found.narrowed(limits, cast("ModelChoice | None", model))

    def _name(self, plan: Plan, key: object) -> str | Rejection:
        """The child's name among the children of this call; a resumed tree finds the child by this name."""
        if key is None:
            # Redacted, as in the journal: after a resume, a prompt may contain answers that are read from the journal.
            shown = self._run.node.tree.journal.redact(plan.task)
            digest = hashlib.blake2s(shown.encode("utf-8", "replace"), digest_size=8)
            name = f"{plan.agent.name}#{digest.hexdigest()}"
            self._prompts[name] += 1
            return f"{name}#{self._prompts[name]}"
        if not isinstance(key, str) or not key.strip() or len(key) > 200:
            raise UsageError(f"{self._who}: key must be a text of 1 to 200 characters, not {key!r}.")
        name = f"{plan.agent.name}/{clean(self._run.node.tree.journal.redact(key))}"
        if name in self._keys:
            return Rejection(
                "invalid_input", f"The key {key!r} was already used in this call; keys must be unique."
            )
        self._keys.add(name)
        return name

    async def _carry(self, delegation: Delegation, phase: SubPhase) -> Result:
        """Runs one child, from its request to its end, in its own task; the call's slot is free meanwhile."""
        try:
            engine, rejected = self._run.engine, await self._keep_word(phase)
            if rejected is None:
                result = await engine.delegate(delegation)
            else:
                result = engine.decline(delegation, rejected)
            return self._unless_rejected(result, delegation.key)
        finally:
            phase.leave()
            self._open -= 1
            await self._back()

    def _forget(self, task: asyncio.Task[Result]) -> None:
        self._tasks.pop(task, None)
        if self._next_end is not None:
            wake(self._next_end)

    async def _keep_word(self, phase: SubPhase) -> Rejection | None:
        """Withhold the run's last word before its first child can spend it."""
        if self._has_word:
            return None
        self._run.turn.delegated.add(self._call)
        try:
            await keep_last_word(self._run, self._run.turn.size, phase)
        except OverBudget as over:
            if not self._run.node.means.account.has_word:
                return Rejection(
                    "budget", f"Not started, budget exhausted: {over}. Answer with what you have."
                )
        except Stopped:
            return Rejection("cancelled", "Cancelled before it started.")
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

    async def _a_child_ended(self) -> None:
        """Wait until any child of the call has ended."""
        if self._next_end is None or self._next_end.done():
            self._next_end = self._run.node.tree.loop.create_future()
        await asyncio.wait([self._next_end])

    async def _stop(self, tasks: Collection[asyncio.Task[Result]]) -> None:
        """Stop children that the code no longer waits for, and wait until they end, even if the code is cancelled meanwhile."""
        for task in tasks:
            if (delegation := self._tasks.get(task)) is not None:
                delegation.stop(self._who, "it stopped waiting for this run")
        await settled(tasks)

    async def _answer(self, result: Result) -> Result:
        """Return the result to the code. After many rejections in a row, wait first, so that other tasks can run."""
        self._record(result)
        self._in_a_row = self._in_a_row + 1 if isinstance(result, Rejection) else 0
        over = self._in_a_row - REJECTIONS_BEFORE_DELAY
        if over > 0:
            await asyncio.wait([self._end], timeout=min(LONGEST_WAIT_S, 0.001 * over))
        await asyncio.sleep(0)
        return result

    def _record(self, result: Result) -> None:
        if not isinstance(result, Rejection):
            return
        self._rejected += 1
        node = self._run.node
        if self._rejected <= MOST_RECORDED and not self._end.done():
            node.emit(DelegationRejected(*node.stamp(), call=self._call, rejection=result))

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
