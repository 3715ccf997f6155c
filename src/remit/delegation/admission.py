"""Whether a child may start: checks in order, the charge last, so that there is nothing to give back."""

from __future__ import annotations

import remit.ledger as ledger
import remit.seat as seat
import remit.slots as slots
from remit.events import ChildQueued
from remit.execution import Plan, Run
from remit.ledger import Over
from remit.limits import Limits
from remit.outcome import Rejection
from remit.phase import Stopped
from remit.slots import Pool

Admitted = tuple[Pool, ...]
"""A child that may start: it holds a slot in each of these pools."""


async def admit(parent: Run, plan: Plan, call_id: str) -> Admitted | Rejection:
    """Depth, cancelled, a first look at the budget, a slot, cancelled again, the charge. Raises nothing."""
    early = _depth(parent, plan) or _cancelled(parent) or _budget(parent)
    if early:
        return early
    above = parent.scope.seat.pools
    if slots.is_full(above):
        waited = await _slot(parent, plan, call_id, above)
        if waited:
            return waited
    else:
        slots.occupy(above)
    late = _cancelled(parent) or _charged(parent)
    if late:
        slots.give_back(above)
        return late
    return _with_own(plan.agent.limits, above)


async def readmit(parent: Run, plan: Plan, call_id: str) -> Admitted | Rejection:
    """A place for a child that was admitted before its tree was resumed. Raises nothing."""
    above = parent.scope.seat.pools
    waited = _cancelled(parent) or await _slot(parent, plan, call_id, above, queue=True)
    if waited:
        return waited
    late = _cancelled(parent)
    if late:
        slots.give_back(above)
        return late
    return _with_own(plan.agent.limits, above)


def _depth(parent: Run, plan: Plan) -> Rejection | None:
    scope = parent.scope
    if scope.depth_left is None or scope.depth_left > 0:
        return None
    most = scope.depth
    return Rejection(
        "depth",
        f"The recursion limit is reached: this run is at depth {scope.depth} and max_depth is {most}, so"
        f" {plan.agent.name!r} cannot be started. Do the work yourself.",
        limit=most,
        used=scope.depth,
    )


def _cancelled(parent: Run) -> Rejection | None:
    if not parent.scope.phase.stopped:
        return None
    cause = parent.scope.cause
    why = cause.words if cause else "the run is being wrapped up"
    return Rejection("cancelled", f"Cancelled before it started: {why}.")


def _budget(parent: Run) -> Rejection | None:
    """A first look, so that nobody queues in vain."""
    if parent.speechless:
        return Rejection(
            "budget", f"The budget is exhausted: {parent.speechless}. Answer with what you have."
        )
    if parent.scope.deadline.soft_left() <= 0:
        return Rejection(
            "budget", "The budget is exhausted: there is no time left. Answer with what you have."
        )
    over = ledger.look(parent.scope.account)
    return _over(over) if over else None


def _charged(parent: Run) -> Rejection | None:
    over = ledger.look(parent.scope.account) or ledger.charge(parent.scope.account, calls=1, delegations=1)
    return _over(over) if over else None


def _over(over: Over) -> Rejection:
    message = f"The budget is exhausted: {over.words}. Answer with what you have."
    return Rejection("budget", message, limit=over.cap, used=over.used)


def _with_own(limits: Limits | None, above: tuple[Pool, ...]) -> tuple[Pool, ...]:
    """The pools above and the child's own, if it has one; there it works already, so it is not waited for."""
    own = limits.concurrency if limits else None
    if not isinstance(own, int):
        return above
    pool = Pool(own)
    pool.working = 1
    return (pool, *above)


async def _slot(
    parent: Run, plan: Plan, call_id: str, pools: tuple[Pool, ...], *, queue: bool = False
) -> Rejection | None:
    if slots.is_full(pools):
        full = max(pools, key=lambda p: p.working - p.size)
        if parent.scope.limits.when_full == "reject" and not queue:
            return Rejection(
                "busy",
                f"{full.working} of {full.size} runs are working and none may be added. Try again later.",
                limit=full.size,
                used=full.working,
            )
        place = slots.waiting(pools) + 1
        parent.scope.emit(ChildQueued, call=call_id, child=plan.agent.name, waiting=place)
    try:
        await seat.take(pools, parent.scope.phase)
    except Stopped:
        return _cancelled(parent) or Rejection("cancelled", "Cancelled while it waited for a place.")
    return None
