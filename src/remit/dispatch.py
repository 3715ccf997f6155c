"""One turn's calls: run in parallel, every one with exactly one result, in call order.

A call is prepared (found, checked, judged), executed, and finished (logged, told). Whatever goes wrong
in between is a result that the model reads.
"""

from __future__ import annotations

import asyncio
import difflib
import logging
from collections.abc import Sequence
from typing import cast

import msgspec

from remit.events import CallEnded, CallStarted
from remit.execution import Run, RuntimeTool
from remit.history import CallRecord
from remit.judging import may_run
from remit.messages import Call, JsonObject, ToolMessage
from remit.outcome import ToolCallLog
from remit.phase import Stopped, wake
from remit.redaction import REDACTED
from remit.result import ToolResult
from remit.text import call_context, clean, describe_error, result_summary
from remit.tool import BadArguments, Tier, Tool
from remit.trip import execute

log = logging.getLogger("remit")

NUDGE_AT = 3
STOP_AT = 6
NOT_FINISHED = "Not finished: the run was stopped before this call ended."
UNKNOWN = (
    "Unknown: it may or may not have happened. The run was interrupted while this call was running, and the call changes"
    " things, so it was not made again. Look at what is there before you repeat it."
)
WITHHELD = (
    "Not run: the run was interrupted before this call was made, and its arguments held what looks like a secret, which"
    " the journal does not keep. Make the call again if you still can."
)
CUT_OFF = "Not run: your reply was cut off at the output limit, so this call may be incomplete. Send it again, shorter."


async def run_calls(run: Run, calls: Sequence[Call]) -> str:
    """Run a turn's calls and put one result each in the conversation, in call order.

    Returns the name of a tool that goes in circles, or "". Raises Stopped once every call has ended;
    the results are in the conversation then too.
    """
    turn = _Turn(run, calls)
    delegating = [run.delegates(calls[i]) for i in turn.open]
    if delegating == [False]:
        await turn.one(turn.open[0])
    else:
        await turn.together(delegating)
    # Recorded before the slot is asked for again: a stop while waiting for it must not lose the results.
    looping = turn.record()
    run.scope.phase.check()
    if delegating == [False]:
        await run.scope.phase.breathe()
    if not turn.back:
        await run.scope.seat.enter(run.scope.phase)
    return looping


def refuse_calls(run: Run, calls: Sequence[Call], why: str, *, unfinished: bool = False) -> str:
    """Answer calls without running any of them: no conversation is left with an open call."""
    turn = _Turn(run, calls)
    for index in turn.open:
        turn.finish(index, ToolResult(why, ok=False), 0, unfinished=unfinished)
    return turn.record()


class _Turn:
    """The calls of one turn and their results."""

    def __init__(self, run: Run, calls: Sequence[Call]) -> None:
        self.run = run
        self.calls = calls
        past = [run.pending.get(call.id) for call in calls] if run.pending else [None] * len(calls)
        self.results: list[ToolMessage | None] = [p.message if p else None for p in past]
        self.logs: list[ToolCallLog | None] = [p.log if p else None for p in past]
        self.keys: list[tuple[str, str, str] | None] = [None] * len(calls)
        self.open = [i for i, result in enumerate(self.results) if result is None]
        """Calls whose result is not recorded: all of them, but for a resumed run's first turn."""
        self.left = len(self.open)
        self.back = self.left == 1
        """Whether the run works again by itself; a lone ordinary call never stops it."""
        self.all_done: asyncio.Future[None] | None = None

    async def together(self, delegating: list[bool]) -> None:
        """Every call in a task of its own; the run works only while an ordinary one is in flight."""
        scope = self.run.scope
        loop, seat = scope.tree.loop, scope.seat
        self.all_done = loop.create_future()
        self.back = False
        seat.work += delegating.count(False)
        seat.leave()
        if not self.open:
            wake(self.all_done)
        for index, delegates in zip(self.open, delegating, strict=True):
            task = loop.create_task(self.one(index))
            # A callback of the task, not the end of its code: a task cancelled before it began never runs that.
            task.add_done_callback(self._ended_call if delegates else self._ended_work)
        while not self.all_done.done():
            try:
                await asyncio.shield(self.all_done)
            except asyncio.CancelledError:
                scope.phase.on_cancelled()
        for index, result in enumerate(self.results):
            if result is None:
                self.finish(index, ToolResult(NOT_FINISHED, ok=False), 0, unfinished=True)

    def _ended_work(self, task: asyncio.Task[None]) -> None:
        seat = self.run.scope.seat
        # The last call to end hands the slot to the loop instead of giving it away in between.
        if self.left == 1 and seat.held:
            seat.work += 1
            self.back = True
        seat.leave()
        self._ended_call(task)

    def _ended_call(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()
        self.left -= 1
        if self.left == 0 and self.all_done is not None:
            wake(self.all_done)

    async def one(self, index: int) -> None:
        """Give the call its result. Raises nothing."""
        call, run = self.calls[index], self.run
        began = run.scope.tree.loop.time()
        tool = run.kit.tools.get(call.name)
        unfinished = False
        try:
            result = await _result(run, call, tool)
        except Stopped:
            result, unfinished = ToolResult(NOT_FINISHED, ok=False), True
        except RecursionError:
            result = ToolResult(f"The arguments of {call.name} are nested too deeply.", ok=False)
        except Exception as bug:
            log.exception("a call of %s failed inside remit", call.name)
            result = ToolResult(f"remit itself failed on this call: {describe_error(bug)}", ok=False)
        if run.scope.phase.stopped and not result.ok:
            run.failed_tool = call.name
            # A delegation that was stopped before it began is to be taken up again too.
            unfinished = unfinished or (tool is not None and tool.delegates)
        ms = round((run.scope.tree.loop.time() - began) * 1000)
        self.finish(index, result, ms, unfinished=unfinished)

    def finish(self, index: int, result: ToolResult, duration_ms: int, *, unfinished: bool = False) -> None:
        call, run = self.calls[index], self.run
        # Nudged before it is told, so that the journal has what the model reads.
        key = self.keys[index] = key_of(call, result)
        times = run.circles.times(key) + 1
        if NUDGE_AT <= times < STOP_AT:
            result = _nudged(result, times)
        self.results[index] = ToolMessage(
            call.id, call.name, result.content, result.ok, result.note, result.parts
        )
        tool = run.kit.tools.get(call.name)
        self.logs[index] = _tell(run, call, tool, result, duration_ms, unfinished=unfinished)

    def record(self) -> str:
        """Put the results in the conversation and look for circles."""
        looping, keys = "", list[tuple[str, str, str]]()
        for call, message, entry, key in zip(self.calls, self.results, self.logs, self.keys, strict=True):
            assert message is not None
            assert entry is not None
            self.run.log.append(entry)
            self.run.add(message)
            keys.append(key or key_of(call, message))
        self.run.circles.add(keys)
        for call, key in zip(self.calls, keys, strict=True):
            if self.run.circles.times(key) >= STOP_AT:
                looping = call.name
        self.run.pending.clear()
        return looping


def key_of(call: Call, result: ToolResult | ToolMessage | CallEnded) -> tuple[str, str, str]:
    """What makes two calls the same to somebody who looks for circles."""
    return call.name, msgspec.json.encode(call.args, order="deterministic").decode(), result.content


async def _result(run: Run, call: Call, tool: Tool | None) -> ToolResult:
    past = run.pending.get(call.id)
    if past is not None and past.started and past.tier == Tier.CONFIRM and not past.delegates:
        return ToolResult(UNKNOWN, ok=False)
    if past is not None and REDACTED.encode() in msgspec.json.encode(call.args):
        return ToolResult(WITHHELD, ok=False)
    if tool is None:
        return ToolResult(_unknown(run, call.name), ok=False)
    if isinstance(call.args, str):
        return ToolResult(f"The arguments of {call.name} are not a JSON object: {call.args[:200]}", ok=False)
    denied = await may_run(run, call, tool, call.args, past)
    if denied is not None:
        return denied
    run.scope.phase.check()
    if tool.delegates:
        _tell_started(run, call, tool, past)
        return await cast("RuntimeTool", tool).act(run, call.id, call.args)
    return await _charged(run, call, tool, call.args, past)


async def _charged(run: Run, call: Call, tool: Tool, args: JsonObject, past: CallRecord | None) -> ToolResult:
    """Run a tool that may run: check, count, tell, and for what changes things have that on disk first."""
    try:
        kwargs = {} if isinstance(tool, RuntimeTool) else tool.check(args)
    except BadArguments as problem:
        return ToolResult(str(problem), ok=False)
    # What a resumed run does again was counted when it was begun.
    refused = None if past is not None and past.started else run.charge_call()
    if refused is not None:
        return refused
    _tell_started(run, call, tool, past)
    if isinstance(tool, RuntimeTool):
        return await tool.act(run, call.id, args)
    if tool.tier is Tier.CONFIRM:
        trouble = await run.scope.tree.journal.flush(run.scope.phase)
        if trouble:
            return ToolResult(f"Not run: what changes things must be recorded first. {trouble}", ok=False)
    return await execute(run, call, tool, kwargs)


def _unknown(run: Run, name: str) -> str:
    offered = [s.name for s in run.kit.specs]
    near = difflib.get_close_matches(name, offered, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    listed = ", ".join(offered) if offered else "none"
    return f"There is no tool called {clean(name)[:100]!r}.{hint} Your tools: {listed}."


def _tell_started(run: Run, call: Call, tool: Tool, past: CallRecord | None) -> None:
    run.calls_begun += 0 if past is not None and past.started else 1
    context = run.contexts[call.id] = tool.describe(cast(JsonObject, call.args))
    run.scope.emit(
        CallStarted,
        call=call.id,
        tool=call.name,
        display_name=tool.display_name,
        context=context,
        tier=str(tool.tier),
        delegates=tool.delegates,
        turn=run.replies,
        count=run.calls_begun,
        tokens=run.scope.tokens,
    )


def _tell(
    run: Run, call: Call, tool: Tool | None, result: ToolResult, duration_ms: int, *, unfinished: bool
) -> ToolCallLog:
    args = call.args if isinstance(call.args, dict) else {}
    context = run.contexts.pop(call.id, None)
    if context is None:
        context = tool.describe(args) if tool else call_context(call.name, args)
    summary = tool.summarise(result) if tool else result_summary(call.name, result.content, result.ok)
    display = tool.display_name if tool else call.name
    run.scope.emit(
        CallEnded,
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
        turn=run.replies,
        count=run.calls_begun,
        tokens=run.scope.tokens,
        unfinished=unfinished,
        parts=result.parts,
    )
    return ToolCallLog(call.name, display, context, summary, result.ok, duration_ms)


def _nudged(result: ToolResult, times: int) -> ToolResult:
    nudge = (
        f"[remit] You have made this same call {times} times with the same result. Do something else, or answer"
        f" with what you have; at {STOP_AT} times you are stopped."
    )
    note = f"{result.note}\n{nudge}" if result.note else nudge
    return msgspec.structs.replace(result, note=note)
