"""The calls of one turn: run in parallel, each with exactly one result, in call order.

A call is prepared (found, seen by hooks, checked, allowed), executed, and finished (seen by hooks, logged, recorded). Any
failure in between is a result that the model reads. Ordinary calls beyond `Limits(calls_at_once=...)` wait in order.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import logging
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from remit.engine.run.gate import may_run
from remit.engine.run.hooks import after_call, before_call
from remit.engine.run.parallel_calls import Together
from remit.engine.run.runtime_tool import DelegateTool, Delegation, RuntimeTool
from remit.engine.run.state import Run
from remit.engine.run.tool_run import check, execute, inline
from remit.history.records import CallRecord
from remit.tasks.cancel import Stopped
from remit.tools.result import ToolResult
from remit.tools.tool import BadArguments, Tier, Tool, WorkedOut, told
from remit.types.events import CallEnded, CallStarted, DelegationRejected
from remit.types.messages import LEFT_OUT, REDACTED, Call, JsonObject, ToolMessage
from remit.types.outcome import Outcome, Rejection, ToolCallLog
from remit.types.text import call_context, clean, describe_error, one_line, result_summary, shorten, text_of

log = logging.getLogger("remit")
_encode = msgspec.json.Encoder(order="deterministic").encode

MOST_STACKED = 8
"""How many runs may share one task, each waiting for the one below it: every wait passes through all of them, and Python's
stack is limited."""

NUDGE_AT = 3
STOP_AT = 6
NOT_FINISHED = "Not finished: the run was stopped before this call ended."
UNKNOWN = (
    "Unknown: this call may or may not have happened. The run was interrupted while the call was running. The call changes"
    " things, so it was not repeated. Check the current state before you repeat it."
)
WITHHELD = (
    "{what}, and the journal does not store its arguments, because they seem to contain a secret. Make the call"
    " again if you still can."
)
CORRECTED = "[remit] The person who approved this call changed its arguments. It ran with: {args}"
NOT_MADE = "Not run: the run was interrupted before this call started"
NOT_ENDED = "Not run again: the run was interrupted before this call finished"
CUT_OFF = "Not run: your reply was cut off at the output limit, so this call may be incomplete. Send it again, shorter."


Done = tuple[ToolMessage, ToolCallLog, int]
"""A finished call: the message for the model, the log entry, and its `key_of`."""


async def run_calls(run: Run, calls: Sequence[Call]) -> str:
    """Run a turn's calls and add one result each to the conversation, in call order.

    Returns the name of a tool that is called repeatedly with the same result, or "". Raises Stopped once every call has
    ended; the results are in the conversation then too.
    """
    past = _recorded(run, calls)
    still_open = [call for call in calls if call.id not in past]
    done, works = await _run_open(run, still_open)
    # Record first, then wait for the slot: a stop during the wait must not lose the results.
    looping = _record(run, _in_order(calls, past, done))
    life, seat = run.node.life, run.node.means.seat
    life.phase.check()
    if len(still_open) == 1 and life.phase.is_due(run.node.tree.clock()):
        await life.phase.breathe()
    if not works:
        await seat.enter(life.phase)
    return looping


async def _run_open(run: Run, calls: Sequence[Call]) -> tuple[Sequence[Done], bool]:
    """The results of calls without one, and whether the run holds its slot afterwards."""
    if len(calls) == 1 and not run.turn.delegates:
        return (await _one(run, calls[0]),), True
    if len(calls) == 1 and run.node.life.stacked < MOST_STACKED:
        return (await _lone_child(run, calls[0]),), False
    turn = Together(run, calls, _one)
    ended = await turn.go()
    return [one or _unfinished(run, call) for call, one in zip(calls, ended, strict=True)], turn.back


async def _lone_child(run: Run, call: Call) -> Done:
    """Run a turn's only call in the run's own task, which saves a task and its context switches."""
    run.node.means.seat.leave()
    run.turn.lends_task = True
    try:
        return await _one(run, call)
    except asyncio.CancelledError:
        run.node.life.phase.on_cancelled()
        return _unfinished(run, call)
    finally:
        run.turn.lends_task = False


def refuse_calls(run: Run, calls: Sequence[Call], why: str, *, unfinished: bool = False) -> str:
    """Answer calls without running them, so that every call in the conversation has a result."""
    if not calls:
        return ""
    past, tools, result = _recorded(run, calls), run.kit.tools, ToolResult(why, ok=False)
    refused = [
        _finished(run, call, tools.get(call.name), result, unfinished=unfinished)
        for call in calls
        if call.id not in past
    ]
    return _record(run, _in_order(calls, past, refused))


def _recorded(run: Run, calls: Sequence[Call]) -> Mapping[str, Done]:
    """The calls of a resumed turn that have a recorded result, by id."""
    found: dict[str, Done] = {}
    for call in calls:
        record = run.recorded(call.id)
        message, entry = (record.message, record.log) if record is not None else (None, None)
        if message is not None and entry is not None:
            found[call.id] = (message, entry, key_of(call, message))
    return found


def _in_order(calls: Sequence[Call], past: Mapping[str, Done], new: Sequence[Done]) -> list[Done]:
    rest = iter(new)
    return [past[call.id] if call.id in past else next(rest) for call in calls]


def _record(run: Run, done: Sequence[Done]) -> str:
    """Add the results to the conversation and look for repeated calls."""
    looping = ""
    run.circles.add(key for _, _, key in done)
    for message, entry, key in done:
        run.log.append(entry)
        run.talk.add(message)
        if run.circles.times(key) >= STOP_AT:
            looping = message.name
    if run.replay is not None:
        run.replay.pending.clear()
    return looping


def _unfinished(run: Run, call: Call) -> Done:
    tool = run.kit.tools.get(call.name)
    return _finished(run, call, tool, ToolResult(NOT_FINISHED, ok=False), unfinished=True)


async def _one(run: Run, call: Call) -> Done:
    """Give the call its result. Raises nothing."""
    clock, unfinished = run.node.tree.clock, False
    began = clock()
    tool = run.kit.tools.get(call.name)
    try:
        result = await _result(run, call, tool, run.recorded(call.id))
    except Stopped:
        result, unfinished = ToolResult(NOT_FINISHED, ok=False), True
    except RecursionError:
        result = ToolResult(f"The arguments of {call.name} are nested too deeply.", ok=False)
    except Exception as bug:
        log.exception("a call of %s failed inside remit", call.name)
        result = ToolResult(f"remit itself failed on this call: {describe_error(bug)}", ok=False)
    if not result.ok and run.node.life.phase.stopped:
        run.failed_tool = call.name
        # A delegation that was stopped before it began is resumed too.
        unfinished = unfinished or (tool is not None and tool.delegates)
    if run.node.life.phase.stopped and call.id in run.turn.delegated and not _known(cast(Tool, tool)).asks:
        # Its children were stopped with it. After a resume, the call runs again and finds them.
        unfinished = True
    took = round((clock() - began) * 1000)
    return _finished(run, call, tool, result, duration_ms=took, unfinished=unfinished)


def key_of(call: Call, result: ToolResult | ToolMessage | CallEnded) -> int:
    """Identifies a call with its result, to detect repetition; valid in this process only.

    A hash, because arguments and results may be long and every run remembers many.
    """
    return hash((call.name, _encode(call.args), result.content))


async def _result(run: Run, call: Call, tool: Tool | None, past: CallRecord | None) -> ToolResult:
    """Check, judge, count, record and run one call. Raises Stopped."""
    if past is not None and (refused := _not_again(run, call, past)) is not None:
        return refused
    if tool is None or isinstance(call.args, str):
        return _unusable(run, call, tool)
    if past is not None and past.changed is not None:
        call = msgspec.structs.replace(call, args=past.changed)
    if run.node.bounds.on_call:
        seen = await before_call(run, call, past)
        if isinstance(seen, ToolResult):
            return seen
        call = seen
    if _is_judged(run, tool):
        # A copy: code that reads events has the original, and must not change what a person approved.
        call = msgspec.structs.replace(call, args=copy.deepcopy(call.args))
        allowed = await may_run(run, call, tool, past)
    else:
        allowed = call
    if isinstance(allowed, ToolResult):
        return allowed
    result = await _made(run, allowed, tool, past)
    if allowed is not call or (past is not None and past.answer is not None and past.answer.args is not None):
        result = _with_note(result, CORRECTED.format(args=shorten(text_of(allowed.args), 2000, 1997)))
    return result


async def _made(run: Run, call: Call, tool: Tool, past: CallRecord | None) -> ToolResult:
    """Make a call that may run. Raises Stopped."""
    again, args = past is not None and past.started, cast(JsonObject, call.args)
    if isinstance(tool, DelegateTool):
        return await _delegated(run, call, tool, args, again)
    if tool.gate is None:
        return await _worked(run, call, tool, args, again)
    async with tool.gate.place(run.node.life.phase):
        return await _worked(run, call, tool, args, again)


async def _delegated(run: Run, call: Call, tool: DelegateTool, args: JsonObject, again: bool) -> ToolResult:
    """A call that starts a child. The call is charged when the child is admitted."""
    run.node.life.phase.check()
    _emit_started(run, call, tool, args, again)
    plan = tool.plan(run, call.id, args)
    if isinstance(plan, ToolResult):
        return plan
    node = run.node
    done = await run.engine.delegate(Delegation(run, plan, call.id, node.life.phase))
    if isinstance(done, Rejection):
        node.emit(DelegationRejected(*node.stamp(), call=call.id, rejection=done))
    result = tool.report(run, plan, done)
    return await _after(run, call, tool, result) if node.bounds.on_result else result


async def _worked(run: Run, call: Call, tool: Tool, args: JsonObject, again: bool) -> ToolResult:
    """A call that does not delegate: check its arguments, count it, record it, run it. Raises Stopped."""
    try:
        kwargs = {} if isinstance(tool, RuntimeTool) else await check(run, tool, args)
    except BadArguments as problem:
        return _refused(run, str(problem))
    run.node.life.phase.check()
    # On a resume, the call was charged when it first began.
    if not again and (refused := run.charge_call()) is not None:
        return refused
    record = functools.partial(_emit_started, run, call, tool, args, again)
    if isinstance(tool, RuntimeTool):
        record()
        result = await tool.act(run, call.id, args)
        return await _after(run, call, tool, result) if run.node.bounds.on_result else result
    if not _known(tool).asks:
        return await _after(run, call, tool, await execute(run, call, tool, kwargs, record))
    # A call that changes things runs only after its start is stored.
    record()
    if trouble := await run.node.tree.journal.before_change(run.node.life.phase):
        return ToolResult(f"Not run: a call that changes things must be recorded first. {trouble}", ok=False)
    return await _after(run, call, tool, await execute(run, call, tool, kwargs))


async def _after(run: Run, call: Call, tool: Tool, result: ToolResult) -> ToolResult:
    """The result as the model reads it. Hooks see the whole of it, before a long one is stored. Raises Stopped."""
    if run.node.bounds.on_result:
        result = await after_call(run, call, result)
    return await inline(run, tool, result)


def _known(tool: Tool) -> WorkedOut:
    return tool.worked_out or tool.work_out()


def _is_judged(run: Run, tool: Tool) -> bool:
    """Whether a policy or a person decides about calls of the tool."""
    return _known(tool).asks or run.node.bounds.has_rules


def _refused(run: Run, why: str) -> ToolResult:
    """The result of a call that is not run, shortened so that all results of a turn fit."""
    most = run.turn.inline_chars
    return ToolResult(shorten(why, most, max(0, most - 3)), ok=False)


def may_have_happened(past: CallRecord) -> bool:
    """Whether a call without a recorded end may have changed something."""
    return past.started and past.tier == Tier.CONFIRM and not past.delegates


def _not_again(run: Run, call: Call, past: CallRecord) -> ToolResult | None:
    """The result of a call that a resumed run does not repeat: it may have happened, or its arguments are not stored."""
    if may_have_happened(past):
        children = [f"- {one.run_id} {one.agent}: {_head(one)}" for one in run.engine.give_up(run, call.id)]
        listed = "\n".join(["\nThe call had started these runs:", *children]) if children else ""
        return ToolResult(shorten(UNKNOWN + listed, run.turn.inline_chars, run.turn.inline_chars), ok=False)
    # A child that had begun has the task in its own conversation.
    args = call.args if past.changed is None else past.changed
    if not past.child and REDACTED.encode() in msgspec.json.encode(args):
        return ToolResult(WITHHELD.format(what=NOT_ENDED if past.started else NOT_MADE), ok=False)
    return None


def _head(outcome: Outcome) -> str:
    """A child's status and the beginning of its answer, on one line."""
    text = one_line(outcome.text or outcome.partial or outcome.reason)
    return f"{outcome.status}. {shorten(text, 500, 497)}"


def _unusable(run: Run, call: Call, tool: Tool | None) -> ToolResult:
    args = call.args
    if isinstance(args, str) and args.startswith(LEFT_OUT):
        return _refused(run, f"Not run: {args.removeprefix(LEFT_OUT)}")
    if tool is None:
        return _refused(run, _unknown(run, call.name))
    return _refused(run, f"The arguments of {call.name} are not a JSON object: {str(args)[:200]}")


def _unknown(run: Run, name: str) -> str:
    import difflib  # noqa: PLC0415 - only for unknown names

    offered = [s.name for s in run.kit.specs]
    near = difflib.get_close_matches(name, offered, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    listed = ", ".join(offered) if offered else "none"
    return f"No tool is named {clean(name)[:100]!r}.{hint} Your tools: {listed}."


def _emit_started(run: Run, call: Call, tool: Tool, args: JsonObject, again: bool) -> None:
    node, known, context = run.node, _known(tool), ""
    if not again:
        run.tally.calls += 1
    if known.describer is not None:
        context = run.turn.contexts[call.id] = known.describer(args)
    node.emit(
        CallStarted(
            *node.stamp(),
            call=call.id,
            tool=call.name,
            display_name=known.display_name,
            context=context,
            tier=known.tier_name,
            delegates=known.delegates,
            turn=run.tally.replies,
            count=run.tally.calls,
            tokens=node.means.tokens,
        )
    )


def _finished(
    run: Run, call: Call, tool: Tool | None, result: ToolResult, *, duration_ms: int = 0, unfinished: bool
) -> Done:
    """Record a call's result."""
    key = key_of(call, result)
    times = run.circles.times(key) + 1
    if NUDGE_AT <= times < STOP_AT:
        # Before the event, so that the journal has the text that the model reads.
        result = _nudged(result, times)
    display, context, summary = _words(run, call, tool, result)
    node = run.node
    node.emit(
        CallEnded(
            *node.stamp(),
            call=call.id,
            tool=call.name,
            success=result.ok,
            content=result.content,
            note=result.note,
            details=result.details,
            display_name=display,
            context=context,
            summary=summary,
            duration_ms=duration_ms,
            turn=run.tally.replies,
            count=run.tally.calls,
            tokens=node.means.tokens,
            unfinished=unfinished,
            parts=result.parts,
        )
    )
    message = ToolMessage(call.id, call.name, result.content, result.ok, result.note, result.parts)
    return message, ToolCallLog(call.name, display, context, summary, result.ok, duration_ms), key


def _words(run: Run, call: Call, tool: Tool | None, result: ToolResult) -> tuple[str, str, str]:
    """The texts for people: the tool's name, what the call is about, and its result."""
    name = call.name
    if tool is None:
        return name, call_context(name, call.args), result_summary(name, result.content, result.ok)
    known = _known(tool)
    context = run.turn.contexts.pop(call.id, None)
    if context is None and known.describer is not None:
        # The call never began.
        context = known.describer(call.args if isinstance(call.args, dict) else {})
    words = known.summariser
    summary = told(tool.summarise, result) if words is None else words(result.content, result.ok)
    return known.display_name, context or "", summary


def _nudged(result: ToolResult, times: int) -> ToolResult:
    nudge = (
        f"[remit] You have made this same call {times} times with the same result. Do something else, or answer"
        f" with what you have. At {STOP_AT} times the run is stopped."
    )
    return _with_note(result, nudge)


def _with_note(result: ToolResult, note: str) -> ToolResult:
    return msgspec.structs.replace(result, note=f"{result.note}\n{note}" if result.note else note)
