"""A run put back where the journal left it, so that the loop goes on as if nothing had happened."""

from __future__ import annotations

from typing import Any

import msgspec

import remit.engine.budget.ledger as ledger
import remit.engine.run.tool_calls as dispatch
from remit.engine.budget.account import Amount
from remit.engine.run.model_call import turn_to
from remit.engine.run.state import NOT_IN_FORM, Circles, Run, message_tokens
from remit.engine.tree.approvals import what
from remit.engine.tree.node import Scope, Sent, TreeContext
from remit.history.fold import apply
from remit.history.records import CallRecord, RunRecord, Spending
from remit.types.events import VERSION, CallEnded, Event, ModelCallFailed, RunEnded
from remit.types.limits import Usage
from remit.types.messages import UserMessage
from remit.types.outcome import Outcome
from remit.types.text import call_context, result_summary

LOST = "the process ended while the model was asked, so nobody knows what it said"


def count_lost(tree: TreeContext) -> None:
    """Count the model calls that were in flight when the process ended: they may have been paid for."""
    for record in tree.past.runs.values():
        asking = record.asking
        if asking is None or record.outcome is not None:
            continue
        usage = Usage(requests=1, input_tokens=asking.input_tokens, usd=asking.input_usd, estimated=True)
        event = ModelCallFailed(
            **_stamped(tree, record),
            turn=asking.turn,
            attempt=asking.attempt,
            error=LOST,
            error_kind="lost",
            usage=usage,
            retry_in_s=0.0,
        )
        tree.spent.append(usage)
        _tell(tree, event)


def interrupt(tree: TreeContext, record: RunRecord, outcome: Outcome) -> Outcome:
    """Write down the end of a run that was left open and is not taken up again: the calls it had open, and its own."""
    for one in record.open_calls():
        _tell(tree, _given_up(tree, record, one))
    outcome = msgspec.structs.replace(
        outcome,
        messages=tuple(record.messages),
        calls=tuple(log for log in (c.log for c in record.calls) if log is not None),
    )
    told = msgspec.structs.replace(outcome, children=(), messages=(), output=None)
    _tell(tree, RunEnded(**_stamped(tree, record), outcome=told))
    return outcome


def _tell(tree: TreeContext, event: Event) -> None:
    tree.publish(event)
    apply(tree.past, event)


def _given_up(tree: TreeContext, record: RunRecord, one: CallRecord) -> CallEnded:
    """The result of a call that nobody makes any more: no conversation is left with an open call."""
    call = one.call
    said = dispatch.UNKNOWN if dispatch.may_have_happened(one) else dispatch.NOT_FINISHED
    return CallEnded(
        **_stamped(tree, record),
        call=call.id,
        tool=call.name,
        success=False,
        content=said,
        display_name=call.name,
        context=call_context(call.name, call.args),
        summary=result_summary(call.name, said, False),
        turn=one.turn,
        unfinished=True,
    )


def restore_grants(run: Run, tree: TreeContext) -> None:
    """What a person allowed for this run, or for the whole tree, stays allowed."""
    for grant in tree.past.grants:
        tool = run.kit.tools.get(grant.tool)
        if tool is None or grant.path != run.scope.path:
            continue
        if grant.scope == "tree":
            tree.desk.grant(tool, grant.reasons)
        elif grant.run == run.scope.run_id:
            run.scope.grants |= what(tool, grant.reasons)


def restore(run: Run, record: RunRecord, outcomes: dict[str, Outcome], spent: Spending) -> None:
    """Give a run back its conversation, its spending and what it had begun."""
    run.resumed = True
    run.messages = list(record.messages)
    measured = record.messages[record.measured_at :] if record.measured_at else record.messages
    base = record.measured if record.measured_at else run.base
    run.estimate = base + sum(map(message_tokens, measured))
    run.turns, run.replies, run.text = record.turns, record.replies, record.text
    turn_to(run, min(record.switched, len(run.shared.models) - 1))
    run.model_used, run.task_at = record.model_used, record.task_at
    run.artifacts = list(record.artifacts)
    run.results_kept = len(run.artifacts)
    run.asides = dict(record.asides)
    run.reply = record.unanswered
    pending = record.last_turn() if run.reply is not None and run.reply.calls else []
    run.pending = {c.call.id: c for c in pending}
    run.left_open = {c.child: c for c in pending if c.child and c.ended is None}
    run.children = [outcomes[child] for child in record.children if child not in run.left_open]
    done = record.calls[: len(record.calls) - len(pending)]
    run.log = [log for log in (c.log for c in done) if log is not None]
    run.calls_begun = sum(c.started for c in record.calls)
    _restore_circles(run, done, died=record.died)
    run.tries = sum(isinstance(m, UserMessage) and m.text.startswith(NOT_IN_FORM) for m in run.messages)
    _restore_scope(run.scope, record, spent)


def _restore_circles(run: Run, done: list[CallRecord], *, died: bool) -> None:
    """What the run remembers of its calls. One that ended for going in circles is given another chance."""
    turns: dict[int, dict[int, str]] = {}
    for call in done:
        if call.ended is not None:
            turns.setdefault(call.turn, {})[dispatch.key_of(call.call, call.ended)] = call.call.name
    run.circles = circles = Circles()
    for keys in turns.values():
        circles.add(tuple(keys))
    if not died or run.reply is not None or not turns:
        return
    for key, name in turns[max(turns)].items():
        if circles.times(key) >= dispatch.STOP_AT:
            run.looping = name


def _restore_scope(scope: Scope, record: RunRecord, spent: Spending) -> None:
    scope.usage = list(record.usage)
    scope.tokens = sum(u.tokens for u in record.usage)
    scope.warnings = list(record.warnings)
    scope.spawned = max((int(child.rpartition(".")[2]) for child in record.children), default=0)
    scope.inbox = (*map(Sent, record.unjoined), *scope.tree.mail.pop(record.id, ()))
    # Only what it has a limit of itself is closed, and not where that was raised since.
    shut = [
        r
        for r, limits in record.overran.items()
        if _still_holds(getattr(scope.limits, r), getattr(limits, r))
    ]
    ledger.restore(
        scope.account,
        Amount(spent.requests, spent.tokens, spent.micros),
        calls=spent.calls,
        delegations=spent.delegations,
        overran=shut[0] if shut else "",
    )


def _still_holds(limit: object, before: object) -> bool:
    return isinstance(limit, (int, float)) and limit == before


def _stamped(tree: TreeContext, record: RunRecord) -> dict[str, Any]:
    seq, at = tree.stamp()
    return {
        "seq": seq,
        "at": at,
        "run": record.id,
        "parent": record.parent,
        "root": tree.root,
        "depth": record.depth,
        "path": record.path,
        "agent": record.agent,
        "v": VERSION,
    }
