"""Whether a child may start: checks in order, the charge last, so that there is nothing to give back."""

from __future__ import annotations

import remit.engine.budget.ledger as ledger
import remit.engine.budget.slots as slots
from remit.engine.budget.ledger import Over
from remit.engine.budget.slots import Pool
from remit.engine.run.runtime_tool import Plan
from remit.engine.run.state import Run
from remit.tasks.cancel import Stopped
from remit.types.events import ChildQueued
from remit.types.limits import Limits
from remit.types.outcome import Rejection

Admitted = tuple[Pool, ...]
"""A child that may start: it holds a slot in each of these pools."""


async def admit(parent: Run, plan: Plan, call_id: str) -> Admitted | Rejection:
    """Depth, cancelled, a first look at the budget, a slot, cancelled again, the charge. Raises nothing."""
    node, life, account = parent.node, parent.node.life, parent.node.means.account
    if not node.bounds.may_delegate:
        return _too_deep(parent, plan)
    if life.phase.stopped:
        return _cancelled(parent)
    if parent.turn.no_children or life.deadline.soft_left() <= 0:
        return _no_use(parent)
    above = node.means.seat.pools
    if not slots.step_in(above):
        # A first look, so that no child queues for nothing.
        if (over := ledger.look(account)) is not None:
            return _over(over)
        if (rejected := await _slot(parent, plan, call_id, above)) is not None:
            return rejected
    # From here to the end nothing is awaited: what is held is charged, or given back.
    over = None if life.phase.stopped else ledger.admit(account)
    if life.phase.stopped or over is not None:
        slots.give_back(above)
        return _cancelled(parent) if over is None else _over(over)
    return _with_own(plan.agent.limits, above)


async def readmit(parent: Run, plan: Plan, call_id: str) -> Admitted | Rejection:
    """A place for a child that was admitted, and charged, before its tree was resumed. Raises nothing."""
    above, life = parent.node.means.seat.pools, parent.node.life
    if life.phase.stopped:
        return _cancelled(parent)
    rejected = await _slot(parent, plan, call_id, above, queue=True)
    if rejected is not None:
        return rejected
    if life.phase.stopped:
        slots.give_back(above)
        return _cancelled(parent)
    return _with_own(plan.agent.limits, above)


def _too_deep(parent: Run, plan: Plan) -> Rejection:
    depth = parent.node.depth
    return Rejection(
        "depth",
        f"The recursion limit is reached: this run is at depth {depth} and max_depth is {depth}, so"
        f" {plan.agent.name!r} cannot be started. Do the work yourself.",
        limit=depth,
        used=depth,
    )


def _cancelled(parent: Run) -> Rejection:
    cause = parent.node.life.cause
    why = cause.words if cause else "the run is being wrapped up"
    return Rejection("cancelled", f"Cancelled before it started: {why}.")


def _no_use(parent: Run) -> Rejection:
    why = parent.turn.no_children or "there is no time left"
    return Rejection("budget", f"The budget is exhausted: {why}. Answer with what you have.")


def _over(over: Over) -> Rejection:
    message = f"The budget is exhausted: {over.words}. Answer with what you have."
    return Rejection("budget", message, limit=over.cap, used=over.used)


def _with_own(limits: Limits | None, above: tuple[Pool, ...]) -> tuple[Pool, ...]:
    """The pools above and the child's own, if it has one; there it works already, so it is not waited for."""
    own = None if limits is None else limits.concurrency
    if not isinstance(own, int):
        return above
    return (Pool(own, working=1), *above)


async def _slot(
    parent: Run, plan: Plan, call_id: str, pools: tuple[Pool, ...], *, queue: bool = False
) -> Rejection | None:
    node, phase = parent.node, parent.node.life.phase
    if slots.is_full(pools):
        full = max(pools, key=lambda p: p.working - p.size)
        if node.bounds.limits.when_full == "reject" and not queue:
            return Rejection(
                "busy",
                f"{full.working} of {full.size} runs are working and none may be added. Try again later.",
                limit=full.size,
                used=full.working,
            )
        place = slots.waiting(pools) + 1
        node.emit(ChildQueued(*node.stamp(), call=call_id, child=plan.agent.name, waiting=place))
    try:
        await slots.wait_for(pools, phase)
    except Stopped:
        if phase.stopped:
            return _cancelled(parent)
        return Rejection("cancelled", "Cancelled while it waited for a place.")
    return None
