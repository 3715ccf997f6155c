"""The result of a tool call, made from any value that a tool returned or raised."""

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
"""The most characters of an exception's message that a model reads."""


class ToolResult(Struct, frozen=True, gc=False, omit_defaults=True):
    """The result of a tool call."""

    content: str
    """The text for the model: data, never instructions."""
    ok: bool = True
    details: Json = None
    """More data for people and programs; models do not see it."""
    note: str = ""
    """remit's own note to the model, separate so that content cannot forge it."""
    parts: tuple[ImagePart | FilePart, ...] = ()
    """Images and documents for the model, in addition to the content."""


def render(value: object) -> ToolResult:
    """Turn a tool's return value into a result. Never raises.

    A string is kept. Other values become JSON; if that JSON is a string, the result is the string itself.
    """
    if type(value) is str:
        return ToolResult(value if value.isascii() else clean(value))
    if isinstance(value, ToolResult):
        return _checked_result(value)
    return _not_awaited(value) if inspect.iscoroutine(value) else ToolResult(text_of(value))


def _not_awaited(value: Coroutine[object, object, object]) -> ToolResult:
    """A failed result: the tool's author forgot an `await`."""
    with suppress(*FOREIGN):
        value.close()
    return ToolResult(
        f"TypeError: the tool returned a coroutine that was never awaited. Write `await {value.__name__}(...)`.",
        ok=False,
    )


def failure(error: BaseException) -> ToolResult:
    """Turn a tool's exception into a result: its type and message, without a traceback."""
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
        details = {"left_out": f"The details were omitted: more than {MOST_TEXT:,} characters."}
    parts = [p for p in cast("Iterable[object]", result.parts) if isinstance(p, ImagePart | FilePart)]
    small = [p for p in parts if weigh(p.data, MOST_MEDIA) <= MOST_MEDIA]
    if len(small) < len(parts):
        content = f"{content}\n(Images or documents over {MOST_MEDIA:,} bytes were omitted.)"
    return ToolResult(
        content=content,
        ok=bool(result.ok),
        details=None if details is None else to_json(details),
        note=text_of(result.note) if result.note else "",
        parts=tuple(p for p in small if _is_media(p)),
    )


def _is_media(part: ImagePart | FilePart) -> bool:
    """Whether the part can be encoded as JSON."""
    try:
        msgspec.json.encode(part)
    except (TypeError, ValueError):
        return False
    return True
