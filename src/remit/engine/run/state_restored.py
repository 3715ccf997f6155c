"""Restores a run from the journal, so that the loop continues where it stopped."""

from __future__ import annotations

import msgspec

import remit.engine.budget.ledger as ledger
import remit.engine.run.tool_calls as tool_calls
from remit.agent import Agent
from remit.engine.budget.account import Amount
from remit.engine.run.hooks import set_instructions
from remit.engine.run.program import parse_result
from remit.engine.run.state import NOT_ACCEPTED, NOT_IN_FORM, Replay, Run
from remit.engine.run.tokens import message_tokens
from remit.engine.tree.approvals import grants_for
from remit.engine.tree.context import Sent, TreeContext
from remit.engine.tree.node import Node
from remit.history.fold import apply
from remit.history.records import CallRecord, RunRecord, Spending
from remit.tools.schema import parse_output
from remit.types.events import CallEnded, Event, ModelCallFailed, RunEnded, Where
from remit.types.limits import Usage
from remit.types.messages import UserMessage
from remit.types.outcome import Outcome
from remit.types.text import call_context, result_summary

LOST = "the process ended during the model call, so the reply is unknown"


def count_lost(tree: TreeContext) -> None:
    """Count the model calls in flight when the process died: the provider may have billed them."""
    for record in tree.past.runs.values():
        asking = record.asking
        if asking is None or record.outcome is not None:
            continue
        usage = Usage(requests=1, input_tokens=asking.input_tokens, usd=asking.input_usd, estimated=True)
        tree.spent.append(usage)
        _emit(
            tree,
            ModelCallFailed(
                *tree.stamp(_where(tree, record)),
                turn=asking.turn,
                attempt=asking.attempt,
                error=LOST,
                error_kind="lost",
                usage=usage,
                retry_in_s=0.0,
            ),
        )


def interrupt(tree: TreeContext, record: RunRecord, outcome: Outcome) -> Outcome:
    """Record the end of an unfinished run that is not resumed: its open calls, and its outcome."""
    for one in record.open_calls():
        _emit(tree, _given_up(tree, record, one))
    outcome = msgspec.structs.replace(
        outcome,
        messages=tuple(record.talk.messages),
        calls=tuple(log for log in (c.log for c in record.calls) if log is not None),
    )
    told = msgspec.structs.replace(outcome, children=(), messages=(), output=None)
    _emit(tree, RunEnded(*tree.stamp(_where(tree, record)), outcome=told))
    return outcome


def _emit(tree: TreeContext, event: Event) -> None:
    tree.emit(event)
    apply(tree.past, event)


def _given_up(tree: TreeContext, record: RunRecord, one: CallRecord) -> CallEnded:
    """The result of a call that will not run any more, so that every call in the conversation has one."""
    call = one.call
    said = tool_calls.UNKNOWN if tool_calls.may_have_happened(one) else tool_calls.NOT_FINISHED
    return CallEnded(
        *tree.stamp(_where(tree, record)),
        call=call.id,
        tool=call.name,
        success=False,
        content=said,
        display_name=call.name,
        context=call_context(call.name, one.args),
        summary=result_summary(call.name, said, False),
        turn=one.turn,
        unfinished=True,
    )


def with_output(outcome: Outcome, agent: Agent) -> Outcome:
    """A recorded outcome with its structured answer, which is parsed again: the journal has the text alone."""
    if agent.output is None or not outcome.ok:
        return outcome
    parse = parse_output if agent.program is None else parse_result
    value, _ = parse(agent.output, outcome.text)
    return msgspec.structs.replace(outcome, output=value)


def restore_grants(run: Run, tree: TreeContext) -> None:
    """Restore what a person allowed for this run, or for the whole tree."""
    for grant in tree.past.grants:
        tool = run.kit.tools.get(grant.tool)
        if tool is None or grant.path != run.node.path:
            continue
        if grant.scope == "tree":
            tree.desk.grant(tool, grant.reasons)
        elif grant.run == run.node.run_id:
            run.node.grants |= grants_for(tool, grant.reasons)


def restore(run: Run, record: RunRecord, outcomes: dict[str, Outcome], spent: Spending) -> None:
    """Restore a run's conversation, its spending and the calls it had begun."""
    if record.instructions is not None and run.instructions is None:
        set_instructions(run, record.instructions)
    _restore_talk(run, record)
    asking, bounds = run.asking, run.node.bounds
    if bounds.models:
        asking.turn_to(min(record.switched, len(bounds.models) - 1), bounds, run.node.tree)
    asking.used = record.talk.model
    reply = record.unanswered
    pending = record.last_turn() if reply is not None and reply.calls else []
    run.replay = Replay(
        reply=reply,
        pending={c.call.id: c for c in pending},
        left_open={c.child: c for c in pending if c.child and c.ended is None},
        asides=dict(record.talk.asides),
        code=_code_children(run.node.tree, record, pending),
        steps={
            c.call.name: c.ended.content for c in record.calls if c.is_step and c.ended and c.ended.success
        },
    )
    run.artifacts = list(record.artifacts)
    asked_again = {one.id for group in run.replay.code.values() for one in group.values()}
    asked_again |= run.replay.left_open.keys()
    run.children = [outcomes[child] for child in record.children if child not in asked_again]
    done = record.calls[: len(record.calls) - len(pending)]
    run.log = [log for log in (c.log for c in done) if log is not None]
    _restore_tally(run, record)
    _restore_circles(run, done, died=record.died)
    _restore_node(run.node, record, spent)


def _code_children(
    tree: TreeContext, record: RunRecord, pending: list[CallRecord]
) -> dict[str, dict[str, RunRecord]]:
    """The recorded children that this run's code may ask for again: a program's, and those of calls without a result."""
    runs = tree.past.runs
    groups = {call.call.id: call.code for call in pending if call.ended is None and call.code}
    if record.start.program:
        groups[""] = record.children
    return {call: {runs[child].start.key: runs[child] for child in group} for call, group in groups.items()}


def _restore_talk(run: Run, record: RunRecord) -> None:
    talk = run.talk
    talk.messages, talk.task_at, talk.text = list(record.talk.messages), record.talk.task_at, record.talk.text
    talk.tokens = record.talk.measured if record.talk.measured_at else talk.base
    talk.tokens += sum(map(message_tokens, record.talk.messages[record.talk.measured_at :]))


def _restore_tally(run: Run, record: RunRecord) -> None:
    tally = run.tally
    tally.started_at -= record.clock.worked_s
    tally.turns, tally.replies = record.talk.turns, record.talk.replies
    tally.calls = sum(c.started for c in record.calls)
    tally.results_kept = len(record.artifacts)
    again = (NOT_IN_FORM, NOT_ACCEPTED)
    told = [m for m in record.talk.messages if isinstance(m, UserMessage) and m.text.startswith(again)]
    tally.tries = len(told)


def _restore_circles(run: Run, done: list[CallRecord], *, died: bool) -> None:
    """Restore the memory of repeated calls. A run that was stopped for repeating itself gets another chance."""
    turns: dict[int, dict[int, str]] = {}
    for call in done:
        if call.ended is not None:
            turns.setdefault(call.turn, {})[tool_calls.key_of(call.call, call.ended)] = call.call.name
    for keys in turns.values():
        run.circles.add(keys)
    if not died or run.reply_left is not None or not turns:
        return
    for key, name in turns[max(turns)].items():
        if run.circles.times(key) >= tool_calls.STOP_AT:
            run.looping = name


def _restore_node(node: Node, record: RunRecord, spent: Spending) -> None:
    means, limits = node.means, node.bounds.limits
    means.usage = list(record.usage)
    means.tokens = sum(u.tokens for u in record.usage)
    node.warnings = list(record.warnings)
    node.spawned = max((int(child.rpartition(".")[2]) for child in record.children), default=0)
    node.inbox = [*map(Sent, record.talk.unjoined), *node.tree.waiting.pop(record.id, ())]
    if why := node.tree.doomed.pop(record.id, None):
        node.life.cancel(*why)
    # Close only resources that the run itself limits, unless their limit was raised since.
    shut = [r for r, old in record.overran.items() if _still_holds(getattr(limits, r), getattr(old, r))]
    ledger.restore(
        means.account,
        Amount(spent.requests, spent.tokens, spent.micros),
        calls=spent.calls,
        delegations=spent.delegations,
        overran=shut[0] if shut else "",
    )


def _still_holds(limit: object, before: object) -> bool:
    return isinstance(limit, (int, float)) and limit == before


def _where(tree: TreeContext, record: RunRecord) -> Where:
    return Where(record.id, record.parent, tree.root, record.depth, record.path, record.agent)
