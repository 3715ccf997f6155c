"""What came of a call, made from whatever a tool returned or raised. Never fails over either."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import cast

import msgspec
from msgspec import Struct

from remit.types.messages import FilePart, ImagePart, Json
from remit.types.sizes import MOST_MEDIA, MOST_TEXT, weigh
from remit.types.text import FOREIGN, clean, safe_str, text_of, to_json

FAILURE_CHARS = 2000
"""How much of an exception's message a model reads."""


class ToolResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """What came of a call."""

    content: str
    """What the model reads: data, never instructions."""
    ok: bool = True
    details: Json = None
    """More, for people and programs; no model reads it."""
    note: str = ""
    """The runtime's own words, kept apart so that content cannot forge them."""
    parts: tuple[ImagePart | FilePart, ...] = ()
    """Images and documents that the model sees besides the content."""


def render(value: object) -> ToolResult:
    """What a tool returned, as a result; it never fails.

    Text stays as it is; everything else is JSON, and a value whose JSON is a string is that string.
    """
    if type(value) is str:
        return ToolResult(value if value.isascii() else clean(value))
    if isinstance(value, ToolResult):
        return _checked_result(value)
    return _not_awaited(value) if inspect.iscoroutine(value) else ToolResult(text_of(value))


def _not_awaited(value: Coroutine[object, object, object]) -> ToolResult:
    """For a model it would be an answer that says nothing, for who wrote the tool a slip that is hard to see."""
    with suppress(*FOREIGN):
        value.close()
    return ToolResult(
        f"TypeError: the tool returned a coroutine, which was not run. Write `await {value.__name__}(...)`.",
        ok=False,
    )


def failure(error: BaseException) -> ToolResult:
    """What a tool raised, as a result: the kind and the message, without a traceback."""
    return ToolResult(clean(_error_text(error)[:FAILURE_CHARS]), ok=False)


def _error_text(error: BaseException) -> str:
    kind, message = type(error).__name__, safe_str(error)
    text = f"{kind}: {message}" if message else kind
    if isinstance(error, BaseExceptionGroup):
        group = cast(BaseExceptionGroup[BaseException], error)
        return "; ".join([text, *map(_error_text, group.exceptions)])
    return text


def _checked_result(result: ToolResult) -> ToolResult:
    content, details = text_of(cast(object, result.content)), result.details
    if weigh(details, MOST_TEXT) > MOST_TEXT:
        details = {"left_out": f"The details have more than {MOST_TEXT:,} characters."}
    parts = [p for p in cast("Iterable[object]", result.parts) if isinstance(p, ImagePart | FilePart)]
    small = [p for p in parts if weigh(p.data, MOST_MEDIA) <= MOST_MEDIA]
    if len(small) < len(parts):
        content = f"{content}\n(Images or documents of more than {MOST_MEDIA:,} bytes were left out.)"
    return ToolResult(
        content=content,
        ok=bool(result.ok),
        details=None if details is None else to_json(details),
        note=text_of(result.note) if result.note else "",
        parts=tuple(p for p in small if _is_media(p)),
    )


def _is_media(part: ImagePart | FilePart) -> bool:
    """Whether it can be shown to a model and written down."""
    try:
        msgspec.json.encode(part)
    except (TypeError, ValueError):
        return False
    return True
