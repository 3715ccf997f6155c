"""The attributes of spans: set when they start, and when they end.

Functions that end a span run in the thread of `background.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

from msgspec import Struct, field
from opentelemetry.context import Context
from opentelemetry.trace import Span, Status, StatusCode
from opentelemetry.util.types import AttributeValue

import remit.observe.otel.names as names
from remit.observe.otel.content import Content
from remit.types.events import CallEnded, ModelCallFailed, ReplyReceived, RunEnded, RunStarted, TurnStarted
from remit.types.limits import Usage
from remit.types.messages import Call, Request, ToolSpec

Attributes: TypeAlias = "dict[str, AttributeValue]"


class ChatSpan(Struct, eq=False):
    """A model call in flight."""

    span: Span
    began: float
    labels: dict[str, str]
    """The labels of its metrics."""
    request: Request


class CallSpan(Struct, eq=False):
    """A tool call."""

    span: Span
    context: Context
    call: Call | None = None
    """The call as the model wrote it; known once it runs."""
    tier: str = ""
    """Empty until the call starts."""
    delegates: bool = False
    asked: float | None = None
    """When approval was requested; None after the answer."""
    approval_s: float | None = None
    error: str = ""
    """The `error.type` if the call fails and the reason is known."""


class RunSpan(Struct, eq=False):
    """A run."""

    start: RunStarted
    span: Span
    context: Context
    turn: TurnStarted | None = None
    chat: ChatSpan | None = None
    calls: dict[str, CallSpan] = field(default_factory=dict[str, CallSpan])
    queued: dict[tuple[str, str], float] = field(default_factory=dict[tuple[str, str], float])
    """When children began to wait for a slot, by call and key."""
    asked_for: tuple[Call, ...] = ()
    """The calls of its last reply."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools in the last request to its model; empty before the first model call."""

    def knows(self, tool: str) -> bool:
        return tool in self.start.tools or any(tool == spec.name for spec in self.tools)


# --- When a span starts --------------------------------------------------------------------------


def of_run(start: RunStarted, description: str) -> Attributes:
    where = start.where
    found: Attributes = {
        names.OPERATION: names.INVOKE_AGENT,
        names.AGENT_NAME: where.agent,
        names.AGENT_ID: "/".join(where.path),
        names.CONVERSATION: where.root,
        names.RUN_ID: where.run,
        names.DEPTH: where.depth,
        names.MODE: "program" if start.program else "loop",
    }
    if description:
        found[names.AGENT_DESCRIPTION] = description
    if start.model:
        found[names.PROVIDER], found[names.REQUEST_MODEL] = names.provider_and_model(start.model)
    return found


def of_model_call(run: RunSpan, turn: TurnStarted, request: Request) -> Attributes:
    where = run.start.where
    found: Attributes = {
        names.OPERATION: names.CHAT,
        names.AGENT_NAME: where.agent,
        names.CONVERSATION: where.root,
        names.RUN_ID: where.run,
        names.TURN: turn.turn,
        names.ATTEMPT: turn.attempt,
        names.PURPOSE: turn.purpose,
        names.MAX_TOKENS: request.max_output_tokens,
    }
    if request.output_schema is not None:
        found[names.OUTPUT_TYPE] = "json"
    for setting, value in request.settings.items():
        name = names.SETTINGS.get(setting)
        if name is not None and isinstance(value, (int, float)):
            found[name] = value
    return found


def of_call(run: RunSpan, call: str, tool: str) -> Attributes:
    where = run.start.where
    found: Attributes = {
        names.OPERATION: names.EXECUTE_TOOL,
        names.AGENT_NAME: where.agent,
        names.CONVERSATION: where.root,
        names.RUN_ID: where.run,
        names.TOOL_NAME: tool,
        names.TOOL_TYPE: names.FUNCTION,
        names.TOOL_CALL: call,
    }
    description = next((spec.description for spec in run.tools if spec.name == tool), "")
    if description:
        found[names.TOOL_DESCRIPTION] = description
    return found


# --- When a span ends ----------------------------------------------------------------------------


def end_run(span: Span, at: int, event: RunEnded, content: Content | None) -> None:
    outcome, used = event.outcome, event.outcome.total_usage
    found: Attributes = {
        names.STATUS: str(outcome.status),
        names.TURNS: outcome.turns,
        names.CALLS: len(outcome.calls),
        names.TOTAL_REQUESTS: used.requests,
        names.TOTAL_INPUT: used.input_tokens,
        names.TOTAL_OUTPUT: used.output_tokens,
        names.TOTAL_CACHE_READ: used.cache_read_tokens,
        names.TOTAL_CACHE_WRITE: used.cache_write_tokens,
    }
    if used.usd is not None:
        found[names.TOTAL_USD] = used.usd
    if used.estimated:
        found[names.TOTAL_ESTIMATED] = True
    said = _nothing if content is None else partial(content.answer, outcome.text or outcome.partial)
    error = None if outcome.ok else Failure(str(outcome.status), outcome.reason)
    _end(span, at, found, said=said, failure=error, content=content)


def add_task(span: Span, start: RunStarted, content: Content) -> None:
    """Add the task and the instructions of a run."""
    if not span.is_recording():
        return
    found: Attributes = {**content.task(start.instructions, start.task)}
    if start.label:
        found[names.LABEL] = content.text(start.label)
    span.set_attributes(found)


def end_chat(chat: ChatSpan, at: int, event: ReplyReceived, content: Content | None) -> None:
    reply, found = event.reply, _of_usage(event.usage)
    found[names.FINISH_REASONS] = (names.FINISH.get(reply.stop, reply.stop),)
    if reply.model:
        found[names.RESPONSE_MODEL] = names.provider_and_model(reply.model)[1]
    said = _nothing if content is None else lambda: content.request(chat.request) | content.reply(reply)
    _end(chat.span, at, found, said=said, failure=None, content=content)


def fail_chat(chat: ChatSpan, at: int, event: ModelCallFailed, content: Content | None) -> None:
    found = _of_usage(event.usage)
    if event.retry_in_s is not None:
        found[names.RETRY_S] = event.retry_in_s
    said = _nothing if content is None else partial(content.request, chat.request)
    error = Failure(event.error_kind, event.error)
    _end(chat.span, at, found, said=said, failure=error, content=content)


def end_call(call: CallSpan, at: int, event: CallEnded, content: Content | None) -> None:
    found: Attributes = {}
    if call.tier:
        found[names.TIER] = call.tier
    if call.approval_s is not None:
        found[names.APPROVAL_S] = call.approval_s
    said = _nothing if content is None else partial(content.call, call.call, event.content)
    error = None if event.success else Failure(call.error or _call_error(call, event), "")
    _end(call.span, at, found, said=said, failure=error, content=content)


def _call_error(call: CallSpan, event: CallEnded) -> str:
    if event.unfinished:
        return names.STOPPED
    return names.TOOL_ERROR if call.tier else names.NOT_RUN


def _of_usage(usage: Usage) -> Attributes:
    found: Attributes = {names.USAGE_INPUT: usage.input_tokens, names.USAGE_OUTPUT: usage.output_tokens}
    if usage.cache_read_tokens:
        found[names.USAGE_CACHE_READ] = usage.cache_read_tokens
    if usage.cache_write_tokens:
        found[names.USAGE_CACHE_WRITE] = usage.cache_write_tokens
    if usage.usd is not None:
        found[names.USAGE_COST] = found[names.OPERATION_COST] = usage.usd
    if usage.estimated:
        found[names.USAGE_ESTIMATED] = True
    return found


class Failure(Struct, frozen=True):
    """A failure. `why` may quote a prompt or a reply, so it is content."""

    kind: str
    why: str


def _end(
    span: Span,
    at: int,
    found: Attributes,
    *,
    said: Callable[[], Mapping[str, AttributeValue]],
    failure: Failure | None,
    content: Content | None,
) -> None:
    """Set the attributes and end the span, even if an attribute fails."""
    try:
        if not span.is_recording():
            return
        span.set_attributes(found)
        if failure is not None:
            why = content.text(failure.why) if content is not None and failure.why else None
            span.set_attribute(names.ERROR_TYPE, failure.kind)
            span.set_status(Status(StatusCode.ERROR, why))
        if content is not None:
            span.set_attributes(said())
    finally:
        span.end(at)


def _nothing() -> Mapping[str, AttributeValue]:
    return {}
