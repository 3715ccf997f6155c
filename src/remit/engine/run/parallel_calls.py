"""Runs the calls of one turn in parallel: each in its own task, ordinary calls at most `calls_at_once` at a time."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from math import inf
from typing import Generic, TypeVar

from remit.engine.budget.call_queue import CallQueue
from remit.engine.run.state import Run
from remit.tasks.cancel import wake
from remit.types.messages import Call

T = TypeVar("T")

STARTED_TOGETHER = 64
"""Calls that are started before the event loop gets a turn."""


class Together(Generic[T]):
    """The calls of one turn; `one` runs a call. The run holds its slot only while an ordinary call runs or waits."""

    def __init__(
        self, run: Run, calls: Sequence[Call], one: Callable[[Run, Call], Coroutine[object, object, T]]
    ) -> None:
        self.run = run
        self.calls = calls
        self.one = one
        self.left = len(calls)
        self.back = False
        """Whether the run holds its slot again."""
        self.all_done: asyncio.Future[None] = run.node.tree.loop.create_future()
        self.tasks: list[asyncio.Task[T] | None] = [None] * len(calls)
        """None for a call that was not started."""
        most = run.node.bounds.limits.calls_at_once
        self.queue = CallQueue(most if isinstance(most, int) else inf)

    async def go(self) -> list[T | None]:
        """Run all calls; None for a call that was not started because of a stop, or whose task was cancelled."""
        seat, phase, all_done = self.run.node.means.seat, self.run.node.life.phase, self.all_done
        if not self.calls:
            wake(all_done)
        seat.queue = self.queue
        phase.join(self)
        try:
            await self._start_all()
            while not all_done.done():
                try:
                    await asyncio.shield(all_done)
                except asyncio.CancelledError:
                    phase.on_cancelled()
        finally:
            phase.part(self)
            seat.queue = None
        return [_result(task) for task in self.tasks]

    async def _start_all(self) -> None:
        names, seat = self.run.kit.delegating, self.run.node.means.seat
        delegating = [call.name in names for call in self.calls]
        seat.work += delegating.count(False)
        seat.leave()
        for number, delegates in enumerate(delegating):
            if number and number % STARTED_TOGETHER == 0:
                await self._let_others_run()
            if delegates:
                self._start(number, self._ended_call)
            else:
                self.queue.enter(functools.partial(self._start, number, self._ended_work))
        if self.run.node.life.phase.stopped:
            # Calls that were queued after the stop.
            self.stop(0)

    async def _let_others_run(self) -> None:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.run.node.life.phase.on_cancelled()

    def _start(self, number: int, ended: Callable[[asyncio.Task[T]], None]) -> None:
        run = self.run
        task = self.tasks[number] = run.node.tree.loop.create_task(self.one(run, self.calls[number]))
        # A task callback, because a task cancelled before its first step never runs its own code.
        task.add_done_callback(ended)

    def stop(self, grace_s: float) -> None:
        """The run is stopped: drop the calls that wait. Calls that have started see the stop themselves."""
        del grace_s
        for _ in range(self.queue.drop()):
            self._less_work()

    def _ended_work(self, task: asyncio.Task[T]) -> None:
        del task
        self.queue.leave()
        self._less_work()

    def _ended_call(self, task: asyncio.Task[T]) -> None:
        del task
        self._less()

    def _less_work(self) -> None:
        seat = self.run.node.means.seat
        # The last call keeps the slot for the loop instead of releasing it in between.
        if self.left == 1 and seat.held:
            seat.work += 1
            self.back = True
        seat.leave()
        self._less()

    def _less(self) -> None:
        self.left -= 1
        if self.left == 0:
            wake(self.all_done)


def _result(task: asyncio.Task[T] | None) -> T | None:
    if task is None or task.cancelled() or task.exception() is not None:
        return None
    return task.result()
