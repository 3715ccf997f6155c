"""Convert pydantic-ai's responses to remit's replies and back, so that a provider gets back exactly what it sent.

`Reply` has the text, the thinking and the calls. `details` has everything else that the next request must contain: the
order of the parts, ids, signatures of calls, encrypted reasoning, and the provider. The details refer to texts by position
and to thinking and calls by number. Details that no longer fit the message are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pydantic_core
from msgspec import Struct
from pydantic_ai.messages import ModelResponse, ModelResponsePart, TextPart, ThinkingPart, ToolCallPart

from remit.types.messages import AssistantMessage, Call, Json, JsonObject, Stop, Thinking
from remit.types.sizes import MOST_ARGS

GAP = "\n\n"
"""Separates two texts that have another part between them."""


class ReplyParts(Struct, frozen=True):
    """The parts of a response as remit's records."""

    text: str
    calls: tuple[Call, ...]
    thinking: tuple[Thinking, ...]
    details: JsonObject | None


def read_response(response: ModelResponse) -> ReplyParts:
    """The content of a response, and the details that its provider needs in the next request."""
    text, calls, thinking = "", list[Call](), list[Thinking]()
    order: list[JsonObject] = []
    before: ModelResponsePart | None = None
    for part in response.parts:
        if isinstance(part, TextPart):
            text += GAP if text and not isinstance(before, TextPart) else ""
            where: JsonObject = {"text": [len(text), len(text) + len(part.content)]}
            text += part.content
        elif isinstance(part, ThinkingPart):
            where = {"thinking": len(thinking)}
            thinking.append(Thinking(part.content, part.signature or "", part.provider_name or ""))
        elif isinstance(part, ToolCallPart):
            where = {"call": len(calls)}
            calls.append(Call(part.tool_call_id, part.tool_name, _args(part.args)))
        else:
            continue
        order.append(where | _extra(part))
        before = part
    details = None if _is_plain(order, thinking) else _origin(response) | {"parts": order}
    return ReplyParts(text, tuple(calls), tuple(thinking), details)


def stop_of(response: ModelResponse, said: ReplyParts) -> Stop:
    """Why the model stopped."""
    reason: object = (response.provider_details or {}).get("finish_reason")
    if response.finish_reason == "length" or reason == "model_context_window_exceeded":
        return "length"
    if response.finish_reason == "content_filter":
        return "refusal"
    return "calls" if said.calls else "end"


def refusal_of(response: ModelResponse) -> str:
    """The text of a refusal that the provider sends separately from the answer."""
    return str((response.provider_details or {}).get("refusal") or "")


def to_response(message: AssistantMessage) -> ModelResponse:
    """The message as a response; exactly as the model sent it if the details still fit."""
    if message.details is not None:
        made = _restore(message, message.details)
        if made is not None:
            return made
    parts: list[ModelResponsePart] = [_thinking(block) for block in message.thinking]
    if message.text:
        parts.append(TextPart(message.text))
    parts += map(_call, message.calls)
    provider = next((b.provider for b in message.thinking if b.provider), None)
    return ModelResponse(parts=parts, provider_name=provider)


def _args(said: object) -> JsonObject | str:
    """The arguments; a string that is not a JSON object is unchanged."""
    if isinstance(said, dict):
        return cast(JsonObject, said)
    if not isinstance(said, str) or not said:
        return {}
    if len(said) > MOST_ARGS:
        # The call will be rejected for its length, so parsing is not needed.
        return said
    try:
        read_args: object = pydantic_core.from_json(said)
    except ValueError:
        return said
    return cast(JsonObject, read_args) if isinstance(read_args, dict) else said


def _extra(part: TextPart | ThinkingPart | ToolCallPart) -> JsonObject:
    """The data of a part that remit's records do not hold."""
    extra: JsonObject = {"id": part.id, "details": pydantic_core.to_jsonable_python(part.provider_details)}
    extra = {key: value for key, value in extra.items() if value}
    # An id and details are valid only for their provider.
    if extra and part.provider_name:
        extra["provider"] = part.provider_name
    return extra


def _is_plain(order: Sequence[JsonObject], thinking: Sequence[Thinking]) -> bool:
    """Whether the response is only text followed by calls, so that no details are needed."""
    if thinking or any(len(part) > 1 for part in order):
        return False
    kinds = [next(iter(part)) for part in order]
    return kinds.count("text") <= 1 and kinds == sorted(kinds, reverse=True)


def _origin(response: ModelResponse) -> JsonObject:
    origin: JsonObject = {
        "provider": response.provider_name,
        "system": response.canonical_system,
        "url": response.provider_url,
        "model": response.model_name,
        "response": response.provider_response_id,
        "details": pydantic_core.to_jsonable_python(response.provider_details),
    }
    return {key: value for key, value in origin.items() if value}


def _restore(message: AssistantMessage, details: JsonObject) -> ModelResponse | None:
    """The response from message and details; None if the details no longer fit the message."""
    try:
        parts = [_part(message, cast(JsonObject, item)) for item in cast(list[Json], details["parts"])]
        ends = [p for p in parts if isinstance(p, TextPart)]
        whole = (len(ends) > 0) == bool(message.text) and _text_end(details) == len(message.text)
        counts = (_count(parts, ThinkingPart), _count(parts, ToolCallPart))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        return None
    if not whole or counts != (len(message.thinking), len(message.calls)):
        return None
    return ModelResponse(
        parts=parts,
        model_name=_string(details, "model"),
        provider_name=_string(details, "provider"),
        provider_url=_string(details, "url"),
        canonical_system=_string(details, "system"),
        provider_response_id=_string(details, "response"),
        provider_details=_object(details, "details"),
    )


def _part(message: AssistantMessage, item: JsonObject) -> ModelResponsePart:
    extra_id, extra = _string(item, "id"), _object(item, "details")
    provider = _string(item, "provider")
    if "text" in item:
        start, end = cast(list[int], item["text"])
        return TextPart(message.text[start:end], id=extra_id, provider_name=provider, provider_details=extra)
    if "thinking" in item:
        block = message.thinking[cast(int, item["thinking"])]
        return ThinkingPart(
            block.text,
            id=extra_id,
            signature=block.signature or None,
            provider_name=block.provider or None,
            provider_details=extra,
        )
    call = message.calls[cast(int, item["call"])]
    return ToolCallPart(
        call.name, call.args, call.id, id=extra_id, provider_name=provider, provider_details=extra
    )


def _text_end(details: JsonObject) -> int:
    items = cast(list[JsonObject], details["parts"])
    return max((cast(list[int], item["text"])[1] for item in items if "text" in item), default=0)


def _count(parts: Sequence[ModelResponsePart], kind: type[ModelResponsePart]) -> int:
    return sum(isinstance(part, kind) for part in parts)


def _string(item: JsonObject, key: str) -> str | None:
    value = item.get(key)
    return value if isinstance(value, str) else None


def _object(item: JsonObject, key: str) -> JsonObject | None:
    value = item.get(key)
    return cast(JsonObject, value) if isinstance(value, dict) else None


def _thinking(block: Thinking) -> ThinkingPart:
    return ThinkingPart(block.text, signature=block.signature or None, provider_name=block.provider or None)


def _call(call: Call) -> ToolCallPart:
    return ToolCallPart(call.name, call.args, call.id)
