"""Whether a child may start: checks in order, and the charge last, so that no charge has to be undone."""

from __future__ import annotations

import asyncio
from math import inf

import remit.engine.budget.ledger as ledger
import remit.engine.budget.slots as slots
from remit.engine.budget.ledger import Over
from remit.engine.budget.slots import Pool
from remit.engine.run.runtime_tool import Delegation, Plan
from remit.engine.run.state import Run
from remit.tasks.cancel import Stopped
from remit.types.events import ChildQueued
from remit.types.limits import Limits
from remit.types.outcome import Rejection

Admitted = tuple[Pool, ...]
"""The pools in which an admitted child holds a slot."""


def refused(delegation: Delegation) -> Rejection | None:
    """Why a child cannot start, as far as that is known before it waits for a place: depth, cancelled, time, budget."""
    parent, life = delegation.parent, delegation.parent.node.life
    if not parent.node.bounds.may_delegate:
        return _too_deep(parent, delegation.plan)
    if life.phase.stopped or delegation.phase.stopped:
        return _cancelled(parent)
    # Code may ask again and again, each time for a child with less time.
    left = life.deadline.useful_left() if delegation.key else life.deadline.soft_left()
    if parent.turn.no_children or left <= 0:
        return _no_use(parent)
    over = ledger.look(parent.node.means.account)
    return None if over is None else _over(over)


async def admit(delegation: Delegation) -> Admitted | Rejection:
    """Check depth and cancellation, the budget, wait for a slot, check again, charge. Raises nothing."""
    if (rejected := refused(delegation)) is not None:
        return rejected
    parent, account = delegation.parent, delegation.parent.node.means.account
    above = parent.node.means.seat.pools
    # The check above is repeated below; doing it first avoids queueing a child that cannot start.
    if not slots.step_in(above) and (rejected := await _slot(delegation, above)) is not None:
        return rejected
    # Nothing is awaited from here on, so the slots are either charged or given back. A model's call is charged with its
    # child; code that delegates was charged when its own call began.
    rejected = refused(delegation)
    if rejected is None and (over := ledger.charge(account, 0 if delegation.key else 1, 1)) is not None:
        rejected = _over(over)
    if rejected is not None:
        slots.give_back(above)
        return rejected
    return _with_own(delegation.plan.agent.limits, above)


async def readmit(delegation: Delegation) -> Admitted | Rejection:
    """Wait for a slot for a child that was admitted and charged before its tree was resumed. Raises nothing."""
    parent, above = delegation.parent, delegation.parent.node.means.seat.pools
    if delegation.phase.stopped:
        return _cancelled(parent)
    rejected = await _slot(delegation, above, queue=True)
    if rejected is not None:
        return rejected
    if delegation.phase.stopped:
        slots.give_back(above)
        return _cancelled(parent)
    return _with_own(delegation.plan.agent.limits, above)


def _too_deep(parent: Run, plan: Plan) -> Rejection:
    depth = parent.node.depth
    return Rejection(
        "depth",
        f"Recursion limit reached (depth exceeded): this run is at depth {depth} with max_depth {depth}, so"
        f" {plan.agent.name!r} cannot be started. Do the work yourself.",
        limit=depth,
        used=depth,
    )


def _cancelled(parent: Run) -> Rejection:
    cause = parent.node.life.cause
    why = cause.words if cause else "the run is wrapping up"
    return Rejection("cancelled", f"Cancelled before it started: {why}.")


def _no_use(parent: Run) -> Rejection:
    why = parent.turn.no_children or "no time is left"
    return Rejection("budget", f"Not started, budget exhausted: {why}. Answer with what you have.")


def _over(over: Over) -> Rejection:
    message = f"Not started, budget exhausted: {over.words}. Answer with what you have."
    return Rejection("budget", message, limit=over.cap, used=over.used)


def _with_own(limits: Limits | None, above: tuple[Pool, ...]) -> tuple[Pool, ...]:
    """The pools above, and the child's own if it limits concurrency; the child holds its own pool's first slot."""
    own = None if limits is None else limits.concurrency
    if not isinstance(own, int):
        return above
    return (Pool(own, working=1), *above)


async def _slot(delegation: Delegation, pools: tuple[Pool, ...], *, queue: bool = False) -> Rejection | None:
    parent, node = delegation.parent, delegation.parent.node
    if slots.is_full(pools):
        full = max(pools, key=lambda p: p.working - p.size)
        if node.bounds.limits.when_full == "reject" and not queue:
            return Rejection(
                "busy",
                f"Not started: {full.working} of {full.size} runs are working (concurrency limit). Try again later.",
                limit=full.size,
                used=full.working,
            )
        name, place = delegation.plan.agent.name, slots.waiting(pools) + 1
        queued = ChildQueued(
            *node.stamp(), call=delegation.call, child=name, waiting=place, key=delegation.key
        )
        node.emit(queued)
    # Code is rejected early enough to still use its results; a model's calls end with its turn anyway.
    timer = _Patience(delegation) if delegation.key else None
    try:
        await slots.wait_for(pools, delegation.phase)
    except Stopped:
        if delegation.late:
            return _no_use(parent)
        if node.life.phase.stopped:
            return _cancelled(parent)
        return Rejection("cancelled", "Cancelled while waiting for a slot.")
    finally:
        if timer is not None:
            timer.close()
    return None


LEAST_PATIENCE_S = 0.01
"""The shortest wait between two looks at the time left: a remainder that rounds to no time at all would never end."""


class _Patience:
    """Ends the wait for a place when there is no time left for the child."""

    def __init__(self, delegation: Delegation) -> None:
        self._delegation = delegation
        self._timer: asyncio.TimerHandle | None = None
        self._arm()

    def _arm(self) -> None:
        left = self._delegation.parent.node.life.deadline.useful_left()
        if left <= 0:
            self._delegation.late = True
            self._delegation.phase.stop()
        elif left < inf:
            # The run's time may pause meanwhile, so the time left is read again.
            wait = max(left, LEAST_PATIENCE_S)
            self._timer = self._delegation.phase.loop.call_later(wait, self._arm)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
