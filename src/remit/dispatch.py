"""One turn's calls: run in parallel, every one with exactly one result, in call order.

A call is prepared (found, checked, judged), executed, and finished (logged, told). Whatever goes wrong
in between is a result that the model reads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from remit.events import VERSION, CallEnded, CallStarted
from remit.execution import Run, RuntimeTool
from remit.history import CallRecord
from remit.judging import may_run
from remit.messages import Call, JsonObject, ToolMessage
from remit.outcome import ToolCallLog
from remit.phase import Stopped, wake
from remit.redaction import REDACTED
from remit.result import ToolResult
from remit.text import call_context, clean, describe_error, result_summary
from remit.tooling import BadArguments, Tier, Tool
from remit.trip import execute

log = logging.getLogger("remit")
_encoder = msgspec.json.Encoder(order="deterministic")

MOST_STACKED = 8
"""Runs in one task, each waiting for the one below it. Not more: every wait passes through all of them, and Python's
stack has an end."""

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
    turn, scope = _Turn(run, calls), run.scope
    lone = turn.left == 1 and not run.delegates(calls)
    if lone:
        await turn.one(turn.open[0])
    elif turn.left == 1 and scope.stacked < MOST_STACKED:
        await turn.inside()
    else:
        await turn.together()
    # Recorded before the slot is asked for again: a stop while waiting for it must not lose the results.
    looping = turn.record()
    if scope.phase.stopped:
        raise Stopped
    if lone and scope.phase.holds_loop():
        await scope.phase.breathe()
    if not turn.back:
        await scope.seat.enter(scope.phase)
    return looping


def refuse_calls(run: Run, calls: Sequence[Call], why: str, *, unfinished: bool = False) -> str:
    """Answer calls without running any of them: no conversation is left with an open call."""
    turn = _Turn(run, calls)
    for index in turn.open:
        tool = run.kit.tools.get(calls[index].name)
        turn.finish(index, tool, ToolResult(why, ok=False), 0, unfinished=unfinished)
    return turn.record()


class _Turn:
    """The calls of one turn and their results."""

    def __init__(self, run: Run, calls: Sequence[Call]) -> None:
        self.run = run
        self.calls = calls
        count = len(calls)
        self.results: list[ToolMessage | None] = [None] * count
        self.logs: list[ToolCallLog | None] = [None] * count
        self.keys: list[tuple[str, str, str] | None] = [None] * count
        self.open: Sequence[int] = range(count) if not run.pending else self._take_up(run.pending)
        """Calls whose result is not recorded: all of them, but for a resumed run's first turn."""
        self.left = len(self.open)
        self.back = self.left == 1
        """Whether the run works again by itself; a lone ordinary call never stops it."""
        self.all_done: asyncio.Future[None] | None = None

    def _take_up(self, pending: Mapping[str, CallRecord]) -> list[int]:
        """What the journal has of these calls; which of them are still open."""
        past = [pending.get(call.id) for call in self.calls]
        self.results = [p.message if p else None for p in past]
        self.logs = [p.log if p else None for p in past]
        return [i for i, result in enumerate(self.results) if result is None]

    async def inside(self) -> None:
        """A lone delegating call, in the run's own task: the child is all that the run waits for."""
        run = self.run
        self.back = False
        run.scope.seat.leave()
        run.lends_task = True
        try:
            await self.one(self.open[0])
        except asyncio.CancelledError:
            run.scope.phase.on_cancelled()
        finally:
            run.lends_task = False
        self._finish_rest()

    async def together(self) -> None:
        """Every call in a task of its own; the run works only while an ordinary one is in flight."""
        scope, names = self.run.scope, self.run.kit.delegating
        loop, seat = scope.tree.loop, scope.seat
        delegating = [self.calls[index].name in names for index in self.open]
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
        self._finish_rest()

    def _finish_rest(self) -> None:
        for index, result in enumerate(self.results):
            if result is None:
                tool = self.run.kit.tools.get(self.calls[index].name)
                self.finish(index, tool, ToolResult(NOT_FINISHED, ok=False), 0, unfinished=True)

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
        clock = run.scope.tree.clock
        began = clock()
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
        self.finish(index, tool, result, round((clock() - began) * 1000), unfinished=unfinished)

    def finish(
        self, index: int, tool: Tool | None, result: ToolResult, duration_ms: int, *, unfinished: bool = False
    ) -> None:
        call, run = self.calls[index], self.run
        # Nudged before it is told, so that the journal has what the model reads.
        key = self.keys[index] = key_of(call, result)
        times = run.circles.times(key) + 1
        if NUDGE_AT <= times < STOP_AT:
            result = _nudged(result, times)
        self.results[index] = ToolMessage(
            call.id, call.name, result.content, result.ok, result.note, result.parts
        )
        self.logs[index] = _tell(run, call, tool, result, duration_ms, unfinished=unfinished)

    def record(self) -> str:
        """Put the results in the conversation and look for circles."""
        run, looping = self.run, ""
        keys: list[tuple[str, str, str]] = []
        for index, message in enumerate(self.results):
            entry = self.logs[index]
            assert message is not None
            assert entry is not None
            run.log.append(entry)
            run.add(message)
            keys.append(self.keys[index] or key_of(self.calls[index], message))
        run.circles.add(keys)
        for key in keys:
            if run.circles.times(key) >= STOP_AT:
                looping = key[0]
        if run.pending:
            run.pending.clear()
        return looping


def key_of(call: Call, result: ToolResult | ToolMessage | CallEnded) -> tuple[str, str, str]:
    """What makes two calls the same to somebody who looks for circles."""
    return call.name, _encoder.encode(call.args).decode(), result.content


async def _result(run: Run, call: Call, tool: Tool | None) -> ToolResult:
    past = run.pending.get(call.id) if run.pending else None
    if past is not None and past.started and past.tier == Tier.CONFIRM and not past.delegates:
        return ToolResult(UNKNOWN, ok=False)
    if past is not None and REDACTED.encode() in msgspec.json.encode(call.args):
        return ToolResult(WITHHELD, ok=False)
    if tool is None:
        return ToolResult(_unknown(run, call.name), ok=False)
    if isinstance(call.args, str):
        return ToolResult(f"The arguments of {call.name} are not a JSON object: {call.args[:200]}", ok=False)
    denied = None if _is_free(run, tool) else await may_run(run, call, tool, call.args, past)
    if denied is not None:
        return denied
    if run.scope.phase.stopped:
        raise Stopped
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


def _is_free(run: Run, tool: Tool) -> bool:
    """Whether no policy has a say and the tool's tier asks for nothing."""
    return run.scope.unruled and (tool.tier is not Tier.CONFIRM or tool.delegates)


def _unknown(run: Run, name: str) -> str:
    import difflib  # noqa: PLC0415 - only models that make names up need it

    offered = [s.name for s in run.kit.specs]
    near = difflib.get_close_matches(name, offered, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    listed = ", ".join(offered) if offered else "none"
    return f"There is no tool called {clean(name)[:100]!r}.{hint} Your tools: {listed}."


def _tell_started(run: Run, call: Call, tool: Tool, past: CallRecord | None) -> None:
    scope, tree = run.scope, run.scope.tree
    run.calls_begun += 0 if past is not None and past.started else 1
    context = run.contexts[call.id] = tool.describe(call.args)
    seq, at = tree.stamp()
    tree.publish(
        CallStarted(
            seq=seq,
            at=at,
            run=scope.run_id,
            parent=scope.parent_id,
            root=tree.root,
            depth=scope.depth,
            path=scope.path,
            agent=scope.agent,
            v=VERSION,
            call=call.id,
            tool=call.name,
            display_name=tool.display_name,
            context=context,
            tier=str(tool.tier),
            delegates=tool.delegates,
            turn=run.replies,
            count=run.calls_begun,
            tokens=scope.tokens,
        )
    )


def _tell(
    run: Run, call: Call, tool: Tool | None, result: ToolResult, duration_ms: int, *, unfinished: bool
) -> ToolCallLog:
    scope, tree = run.scope, run.scope.tree
    context = run.contexts.pop(call.id, None)
    if context is None:
        args = call.args if isinstance(call.args, dict) else {}
        context = tool.describe(args) if tool else call_context(call.name, args)
    summary = tool.summarise(result) if tool else result_summary(call.name, result.content, result.ok)
    display = tool.display_name if tool else call.name
    seq, at = tree.stamp()
    tree.publish(
        CallEnded(
            seq=seq,
            at=at,
            run=scope.run_id,
            parent=scope.parent_id,
            root=tree.root,
            depth=scope.depth,
            path=scope.path,
            agent=scope.agent,
            v=VERSION,
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
            tokens=scope.tokens,
            unfinished=unfinished,
            parts=result.parts,
        )
    )
    return ToolCallLog(call.name, display, context, summary, result.ok, duration_ms)


def _nudged(result: ToolResult, times: int) -> ToolResult:
    nudge = (
        f"[remit] You have made this same call {times} times with the same result. Do something else, or answer"
        f" with what you have; at {STOP_AT} times you are stopped."
    )
    note = f"{result.note}\n{nudge}" if result.note else nudge
    return msgspec.structs.replace(result, note=note)
