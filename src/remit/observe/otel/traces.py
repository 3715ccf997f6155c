"""The spans of one tree: `invoke_agent` for a run, `chat` for a model call, `execute_tool` for a tool call.

A span starts on the event loop, because foreign code needs its context at once. It ends in the thread of `background.py`,
with the time at which the work ended. Times are from OpenTelemetry's clock, so that they can be compared with the spans
of tools and provider SDKs.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from contextvars import Token
from functools import partial
from types import TracebackType
from typing import TypeAlias, TypeVar, cast

from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    Span,
    SpanContext,
    SpanKind,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)

import remit.observe.otel.names as names
import remit.observe.otel.spans as spans
import remit.tasks.threads as threads
from remit.engine.tree.tracing import UNTRACED, Inside
from remit.observe.otel.background import FLUSH_S, background
from remit.observe.otel.outlet import Outlet
from remit.observe.otel.spans import Attributes, CallSpan, ChatSpan, RunSpan
from remit.types.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallEnded,
    CallStarted,
    ChildQueued,
    DelegationRejected,
    Event,
    ModelCallFailed,
    ReplyReceived,
    RunEnded,
    RunResumed,
    RunStarted,
    TurnStarted,
)
from remit.types.messages import Call, Request
from remit.types.text import FOREIGN

E = TypeVar("E", bound=Event)
_Seen: TypeAlias = "Callable[[RunSpan, Event], None]"

_TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class TreeTraces:
    """The traces of one tree: see `Tracing` in `engine/tree/tracing.py`."""

    def __init__(self, outlet: Outlet) -> None:
        self._tracer, self._meters, self._content = outlet.tracer, outlet.meters, outlet.content
        self._runs: dict[str, RunSpan] = {}
        self._seen: dict[type[Event], _Seen] = dict(
            [
                _on(TurnStarted, self._turn_started),
                _on(ReplyReceived, self._replied),
                _on(ModelCallFailed, self._model_failed),
                _on(CallStarted, self._call_started),
                _on(CallEnded, self._call_ended),
                _on(RunStarted, self._run_started),
                _on(RunResumed, self._run_started),
                _on(RunEnded, self._run_ended),
                _on(ChildQueued, self._child_queued),
                _on(DelegationRejected, self._rejected),
                _on(ApprovalRequested, self._asked),
                _on(ApprovalAnswered, self._answered),
            ]
        )

    # --- The port ---------------------------------------------------------------------------------

    def begin(self, start: RunStarted, description: str, *, resumed: bool) -> str:
        try:
            return self._begin(start, description, resumed=resumed)
        except FOREIGN as error:
            background.fail("the span of a run", error)
            return ""

    def see(self, event: Event) -> None:
        seen, run = self._seen.get(type(event)), self._runs.get(event.run)
        # Runs are unknown if they ended before the tree was resumed, or if their span failed.
        if seen is not None and run is not None:
            try:
                seen(run, event)
            except FOREIGN as error:
                background.fail(f"the trace of {event.kind}", error)

    def in_run(self, run: str) -> Inside:
        known = self._runs.get(run)
        return UNTRACED if known is None else _Entered(known.context)

    def in_model_call(self, run: str, model: str, request: Request) -> Inside:
        known = self._runs.get(run)
        if known is None or known.turn is None:
            return UNTRACED
        try:
            return _Entered(self._ask(known, known.turn, model, request))
        except FOREIGN as error:
            background.fail("the span of a model call", error)
            return UNTRACED

    def in_call(self, run: str, call: Call) -> Inside:
        known = self._runs.get(run)
        if known is None:
            return UNTRACED
        try:
            found = known.calls.get(call.id) or self._new_call(known, call.id, call.name)
        except FOREIGN as error:
            background.fail("the span of a tool call", error)
            return UNTRACED
        found.call = call
        return _Entered(found.context)

    async def finish(self) -> None:
        now = time.time_ns()
        for run in self._runs.values():
            open_spans = [call.span for call in run.calls.values()]
            open_spans += [run.span] if run.chat is None else [run.chat.span, run.span]
            for span in open_spans:
                background.put(partial(span.end, now))
            background.put(partial(self._meters.ended, run.start.agent, ""))
        self._runs.clear()
        # In a remit thread: an exporter that hangs must not block the event loop, and virtual time waits for threads.
        flush = partial(background.flush, FLUSH_S)
        await threads.start(flush, asyncio.get_running_loop(), name="traces", urgent=True).wait()

    # --- Runs -------------------------------------------------------------------------------------

    def _begin(self, start: RunStarted, description: str, *, resumed: bool) -> str:
        attributes, links = spans.of_run(start, description), ()
        if resumed:
            attributes[names.RESUMED], links = True, _links(start.trace)
        name = f"{names.INVOKE_AGENT} {start.agent}"
        span, context = self._start(name, self._above(start), attributes, links=links)
        self._runs[start.run] = RunSpan(start, span, context)
        if self._content is not None:
            background.put(partial(spans.add_task, span, start, self._content))
        return _traceparent(span) if start.parent is None else ""

    def _above(self, start: RunStarted) -> Context:
        """The context that a run starts in: the caller's for a root, otherwise the context of its parent's call or program."""
        here, parent = get_current(), self._parent(start)
        if parent is None:
            return here
        if start.key and _trace_of(here) == _trace_of(parent.context):
            # Code started the run, perhaps inside its own span.
            return here
        call = parent.calls.get(start.call)
        return parent.context if call is None else call.context

    def _parent(self, start: RunStarted) -> RunSpan | None:
        return None if start.parent is None else self._runs.get(start.parent)

    def _run_started(self, run: RunSpan, event: RunStarted | RunResumed) -> None:
        start, queue_s = run.start, None
        parent = self._parent(start)
        queued = None if parent is None else parent.queued.pop((start.call, start.key), None)
        if queued is not None:
            queue_s = event.at - queued
            run.span.set_attribute(names.QUEUE_S, queue_s)
        background.put(partial(self._meters.started, start.agent, queue_s))

    def _run_ended(self, run: RunSpan, event: RunEnded) -> None:
        del self._runs[event.run]
        start, outcome, parent = run.start, event.outcome, self._parent(run.start)
        call = None if parent is None else parent.calls.get(start.call)
        if call is not None and call.delegates and not outcome.ok:
            call.error = str(outcome.status)
        background.put(partial(self._meters.ended, start.agent, str(outcome.status)))
        background.put(partial(spans.end_run, run.span, time.time_ns(), event, self._content))

    def _child_queued(self, run: RunSpan, event: ChildQueued) -> None:
        run.queued[event.call, event.key] = event.at

    # --- Model calls ------------------------------------------------------------------------------

    def _turn_started(self, run: RunSpan, event: TurnStarted) -> None:
        run.turn = event

    def _ask(self, run: RunSpan, turn: TurnStarted, name: str, request: Request) -> Context:
        run.tools = request.tools
        provider, model = names.provider_and_model(name)
        labels = {names.OPERATION: names.CHAT, names.PROVIDER: provider, names.REQUEST_MODEL: model}
        attributes = spans.of_model_call(run, turn, request) | labels
        span, context = self._start(f"{names.CHAT} {model}", run.context, attributes, kind=SpanKind.CLIENT)
        run.chat = ChatSpan(span, turn.at, labels, request)
        return context

    def _replied(self, run: RunSpan, event: ReplyReceived) -> None:
        chat, run.chat = run.chat, None
        run.asked_for = event.reply.calls
        # A reply of a resumed run may come from the journal, without a request.
        if chat is None:
            return
        background.put(partial(spans.end_chat, chat, time.time_ns(), event, self._content))
        labels = chat.labels
        if event.reply.model:
            labels = labels | {names.RESPONSE_MODEL: names.provider_and_model(event.reply.model)[1]}
        background.put(partial(self._meters.model_call, event.at - chat.began, event.usage, labels))

    def _model_failed(self, run: RunSpan, event: ModelCallFailed) -> None:
        chat, run.chat = run.chat, None
        # This process did not send the request of a process that died.
        if chat is None:
            return
        background.put(partial(spans.fail_chat, chat, time.time_ns(), event, self._content))
        labels = chat.labels | {names.ERROR_TYPE: event.error_kind}
        background.put(partial(self._meters.model_call, event.at - chat.began, event.usage, labels))

    # --- Tool calls -------------------------------------------------------------------------------

    def _new_call(self, run: RunSpan, call: str, tool: str) -> CallSpan:
        attributes = spans.of_call(run, call, tool)
        span, context = self._start(f"{names.EXECUTE_TOOL} {tool}", run.context, attributes)
        made = run.calls[call] = CallSpan(span, context)
        return made

    def _call_started(self, run: RunSpan, event: CallStarted) -> None:
        call = run.calls.get(event.call) or self._new_call(run, event.call, event.tool)
        call.tier, call.delegates = event.tier, event.delegates

    def _asked(self, run: RunSpan, event: ApprovalRequested) -> None:
        # The span includes the wait: otherwise the trace would have an unexplained gap.
        call = run.calls.get(event.call) or self._new_call(run, event.call, event.tool)
        call.asked = event.at

    def _answered(self, run: RunSpan, event: ApprovalAnswered) -> None:
        call = run.calls.get(event.call)
        if call is None or call.asked is None:
            return
        call.approval_s = (call.approval_s or 0.0) + event.at - call.asked
        call.asked = None
        if not event.allowed:
            call.error = names.STOPPED if event.stopped else names.DENIED

    def _rejected(self, run: RunSpan, event: DelegationRejected) -> None:
        run.queued.pop((event.call, ""), None)
        call = run.calls.get(event.call)
        if call is not None and call.delegates:
            call.error = event.rejection.kind

    def _call_ended(self, run: RunSpan, event: CallEnded) -> None:
        call = run.calls.get(event.call)
        if call is None:
            # The call never ran; its tool may not exist.
            tool = event.tool if run.knows(event.tool) else names.UNKNOWN_TOOL
            call = self._new_call(run, event.call, tool)
        del run.calls[event.call]
        if call.call is None:
            call.call = next((one for one in run.asked_for if one.id == event.call), None)
        background.put(partial(spans.end_call, call, time.time_ns(), event, self._content))

    # --- Spans ------------------------------------------------------------------------------------

    def _start(
        self,
        name: str,
        base: Context,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        links: Sequence[Link] = (),
    ) -> tuple[Span, Context]:
        """Start a span; returns it with its context. If the tracer fails, the span records nothing."""
        try:
            span = self._tracer.start_span(name, base, kind, attributes, links)
            valid = span.get_span_context().is_valid
        except FOREIGN as error:
            background.fail("the tracer", error)
            return INVALID_SPAN, base
        return span, set_span_in_context(span, base) if valid else base


class _Entered:
    """Makes a context the current one."""

    __slots__ = ("_context", "_token")

    def __init__(self, context: Context) -> None:
        self._context = context
        self._token: Token[Context] | None = None

    def __enter__(self) -> None:
        self._token = attach(self._context)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Abandoned code is closed from another task, in which this context was never entered.
        if self._token is not None and kind is not GeneratorExit:
            detach(self._token)


def _on(kind: type[E], do: Callable[[RunSpan, E], None]) -> tuple[type[Event], _Seen]:
    return kind, cast(_Seen, do)


def _trace_of(context: Context) -> int:
    return get_current_span(context).get_span_context().trace_id


def _traceparent(span: Span) -> str:
    """The span as a W3C traceparent; empty if there is no trace."""
    found = span.get_span_context()
    if not found.is_valid:
        return ""
    return f"00-{found.trace_id:032x}-{found.span_id:016x}-{found.trace_flags:02x}"


def _links(trace: str) -> Sequence[Link]:
    """A link to the trace of the tree's first execution, if it is recorded."""
    found = _TRACEPARENT.fullmatch(trace)
    if found is None:
        return ()
    number, span, flags = (int(part, 16) for part in found.groups())
    return (Link(SpanContext(number, span, is_remote=True, trace_flags=TraceFlags(flags))),)
