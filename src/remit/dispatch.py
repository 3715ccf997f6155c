"""One turn's calls: run in parallel, every one with exactly one result, in call order.

A call is prepared (found, checked, judged), executed, and finished (logged, told). Whatever goes wrong
in between is a result that the model reads.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import cast

import msgspec

import remit.foreign as foreign
import remit.ledger as ledger
from remit.events import CallEnded, CallProgressed, CallStarted
from remit.execution import Run, RuntimeTool
from remit.messages import Call, JsonObject, ToolMessage
from remit.outcome import ToolCallLog
from remit.phase import Stopped, on_loop, wake
from remit.policy import judge
from remit.result import ToolResult, failure, render
from remit.text import FOREIGN, call_context, clean, describe_error, result_summary
from remit.tool import BadArguments, Tool, ToolContext

log = logging.getLogger("remit")

NUDGE_AT = 3
STOP_AT = 6
NOT_FINISHED = "Not finished: the run was stopped before this call ended."
CUT_OFF = "Not run: your reply was cut off at the output limit, so this call may be incomplete. Send it again, shorter."


async def run_calls(run: Run, calls: Sequence[Call]) -> str:
    """Run a turn's calls and put one result each in the conversation, in call order.

    Returns the name of a tool that goes in circles, or "". Raises Stopped once every call has ended;
    the results are in the conversation then too.
    """
    turn = _Turn(run, calls)
    delegating = [run.delegates(c) for c in calls]
    if len(calls) == 1 and not delegating[0]:
        await turn.one(0)
    else:
        await turn.together(delegating)
    # Recorded before the slot is asked for again: a stop while waiting for it must not lose the results.
    looping = turn.record()
    run.scope.phase.check()
    if not turn.back:
        await run.scope.seat.enter(run.scope.phase)
    return looping


def refuse_calls(run: Run, calls: Sequence[Call], why: str) -> str:
    """Answer calls without running any of them: no conversation is left with an open call."""
    turn = _Turn(run, calls)
    for index in range(len(calls)):
        turn.finish(index, ToolResult(why, ok=False), 0)
    return turn.record()


class _Turn:
    """The calls of one turn and their results."""

    def __init__(self, run: Run, calls: Sequence[Call]) -> None:
        self.run = run
        self.calls = calls
        self.results: list[ToolMessage | None] = [None] * len(calls)
        self.logs: list[ToolCallLog | None] = [None] * len(calls)
        self.left = len(calls)
        self.back = len(calls) == 1
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
        for index, delegates in enumerate(delegating):
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
                self.finish(index, ToolResult(NOT_FINISHED, ok=False), 0)

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
        try:
            result = await _result(run, call, tool)
        except Stopped:
            result = ToolResult(NOT_FINISHED, ok=False)
        except RecursionError:
            result = ToolResult(f"The arguments of {call.name} are nested too deeply.", ok=False)
        except Exception as bug:
            log.exception("a call of %s failed inside remit", call.name)
            result = ToolResult(f"remit itself failed on this call: {describe_error(bug)}", ok=False)
        if run.scope.phase.stopped and not result.ok:
            run.failed_tool = call.name
        self.finish(index, result, round((run.scope.tree.loop.time() - began) * 1000))

    def finish(self, index: int, result: ToolResult, duration_ms: int) -> None:
        call = self.calls[index]
        self.results[index] = ToolMessage(call.id, call.name, result.content, result.ok, result.note)
        self.logs[index] = _tell(self.run, call, self.run.kit.tools.get(call.name), result, duration_ms)

    def record(self) -> str:
        """Put the results in the conversation and look for circles."""
        looping, keys = "", [self._key(i) for i in range(len(self.calls))]
        self.run.circles.add(keys)
        for call, key, message, entry in zip(self.calls, keys, self.results, self.logs, strict=True):
            assert message is not None
            assert entry is not None
            self.run.log.append(entry)
            times = self.run.circles.times(key)
            if times >= STOP_AT:
                looping = call.name
            self.run.add(_nudged(message, times) if NUDGE_AT <= times < STOP_AT else message)
        return looping

    def _key(self, index: int) -> tuple[str, str, str]:
        call, message = self.calls[index], self.results[index]
        assert message is not None
        return call.name, msgspec.json.encode(call.args, order="deterministic").decode(), message.content


async def _result(run: Run, call: Call, tool: Tool | None) -> ToolResult:
    if tool is None:
        return ToolResult(_unknown(run, call.name), ok=False)
    if isinstance(call.args, str):
        return ToolResult(f"The arguments of {call.name} are not a JSON object: {call.args[:200]}", ok=False)
    denied = await _judge(run, call, tool, call.args)
    if denied is not None:
        return denied
    run.scope.phase.check()
    if isinstance(tool, RuntimeTool):
        _tell_started(run, call, tool)
        return await tool.act(run, call.id, call.args)
    try:
        kwargs = tool.check(call.args)
    except BadArguments as problem:
        return ToolResult(str(problem), ok=False)
    refused = run.charge_call()
    if refused is not None:
        return refused
    _tell_started(run, call, tool)
    return await _execute(run, call, tool, kwargs)


async def _judge(run: Run, call: Call, tool: Tool, args: JsonObject) -> ToolResult | None:
    """None when the call may run; otherwise the denial that the model reads."""
    try:
        answer = judge(call, tool, run.scope)
    except FOREIGN as error:
        log.warning("the policy failed on %s, so the call is denied", call.name, exc_info=True)
        return ToolResult(f"Denied: the policy failed ({describe_error(error)}).", ok=False)
    if answer == "allow":
        return None
    if answer == "deny":
        return ToolResult(f"Denied: the policy does not allow {call.name}.", ok=False)
    if not isinstance(tool, RuntimeTool):
        # Nobody is asked about a call that could not run anyway.
        try:
            tool.check(args)
        except BadArguments as problem:
            return ToolResult(str(problem), ok=False)
    if ledger.left(run.scope.account).calls == 0:
        return ToolResult("Not run: no tool calls are left. Answer with what you have.", ok=False)
    context = tool.describe(args)
    decision = await run.scope.tree.desk.ask(run.scope, call=call.id, tool=tool, context=context, args=args)
    if decision.allowed:
        return None
    reason = decision.reason.rstrip(".") or "the person who was asked said no"
    return ToolResult(f"Denied: {reason}.", ok=False)


async def _execute(run: Run, call: Call, tool: Tool, kwargs: dict[str, object]) -> ToolResult:
    scope = run.scope
    left = foreign.abandoned()
    if len(left) >= foreign.MOST_ABANDONED:
        return ToolResult(f"Not run: {len(left)} earlier calls could not be stopped and still run.", ok=False)
    seconds = tool.timeout_s if tool.timeout_s is not None else scope.limits.call_seconds
    limit = seconds if isinstance(seconds, (int, float)) else None
    if limit == 0 or scope.limits.call_seconds == 0:
        return ToolResult(f"Not run: {call.name} may take no time at all (call_seconds=0).", ok=False)
    trip = _Trip(run, call, tool, limit)
    try:
        ended = await trip.go(kwargs)
    except Stopped as stop:
        if stop.ended is None or stop.ended.how != "returned":
            raise
        ended = stop.ended
    finally:
        trip.over = True
    if ended.how == "timed_out":
        late = (
            ""
            if ended.value is None or ended.error is not None
            else f" After that it ended with: {render(ended.value).content}"
        )
        return ToolResult(f"Timed out: {call.name} did not end within {limit:g} s.{late}", ok=False)
    if ended.error is not None:
        log.info("the tool %s failed", call.name, exc_info=ended.error)
        return failure(ended.error)
    # Notes are the runtime's own words: a tool cannot have any.
    return msgspec.structs.replace(render(ended.value), note="")


class _Trip:
    """One call out to a tool, and what the tool sees of the run meanwhile."""

    def __init__(self, run: Run, call: Call, tool: Tool, limit: float | None) -> None:
        self.run = run
        self.call = call
        self.tool = tool
        self.limit = limit
        self.end: float | None = None
        self.over = False

    def begin(self) -> None:
        """The call's time counts from here: waiting for a thread is not the tool's."""
        self.end = None if self.limit is None else self.run.scope.tree.loop.time() + self.limit

    async def go(self, kwargs: dict[str, object]) -> foreign.Ended:
        scope, tool = self.run.scope, self.tool
        context = ToolContext(
            run_id=scope.run_id,
            path=scope.path,
            depth=scope.depth,
            workspace=scope.tree.workspace,
            deps=scope.tree.deps,
            emit=self.emit,
            cancelled=self.cancelled,
        )
        if tool.is_async:
            self.begin()
            return await self._await(_begin(tool, kwargs, context))
        ended = await foreign.run_in_thread(
            lambda: tool.invoke(kwargs, context),
            scope.phase,
            name=f"tool {tool.name}",
            expires=self.expires,
            on_begin=self.begin,
            on_abandoned=scope.left_behind,
        )
        if ended.how == "returned" and inspect.isawaitable(ended.value):
            return await self._await(ended.value)
        return ended

    async def _await(self, awaitable: Awaitable[object]) -> foreign.Ended:
        scope = self.run.scope
        return await foreign.run(
            awaitable,
            scope.phase,
            name=f"tool {self.tool.name}",
            expires=self.expires,
            on_abandoned=scope.left_behind,
        )

    def expires(self) -> float | None:
        if self.end is not None and self.run.scope.tree.loop.time() >= self.end:
            self.over = True
        return self.end

    def cancelled(self) -> bool:
        return self.over or self.run.scope.phase.stopped

    def emit(self, text: str) -> None:
        """May be called from the tool's thread; nothing comes through once the call has ended."""
        loop = self.run.scope.tree.loop
        if on_loop(loop):
            self._emit(text)
        else:
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._emit, text)

    def _emit(self, text: str) -> None:
        if not self.over:
            self.run.scope.emit(CallProgressed, call=self.call.id, tool=self.call.name, text=text)


async def _begin(tool: Tool, kwargs: dict[str, object], context: ToolContext) -> object:
    value = tool.invoke(kwargs, context)
    return await cast("Awaitable[object]", value) if inspect.isawaitable(value) else value


def _unknown(run: Run, name: str) -> str:
    offered = [s.name for s in run.kit.specs]
    near = difflib.get_close_matches(name, offered, 1)
    hint = f" Did you mean {near[0]}?" if near else ""
    listed = ", ".join(offered) if offered else "none"
    return f"There is no tool called {clean(name)[:100]!r}.{hint} Your tools: {listed}."


def _tell_started(run: Run, call: Call, tool: Tool) -> None:
    run.calls_begun += 1
    context = run.contexts[call.id] = tool.describe(cast(JsonObject, call.args))
    run.scope.emit(
        CallStarted,
        call=call.id,
        tool=call.name,
        display_name=tool.display_name,
        context=context,
        tier=str(tool.tier),
        turn=run.replies,
        count=run.calls_begun,
        tokens=run.scope.tokens,
    )


def _tell(run: Run, call: Call, tool: Tool | None, result: ToolResult, duration_ms: int) -> ToolCallLog:
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
    )
    return ToolCallLog(call.name, display, context, summary, result.ok, duration_ms)


def _nudged(message: ToolMessage, times: int) -> ToolMessage:
    nudge = (
        f"[remit] You have made this same call {times} times with the same result. Do something else, or answer"
        f" with what you have; at {STOP_AT} times you are stopped."
    )
    note = f"{message.note}\n{nudge}" if message.note else nudge
    return msgspec.structs.replace(message, note=note)
