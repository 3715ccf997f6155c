"""Messages as JSON and back, to keep a conversation and continue it later with `run(history=...)`."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import msgspec

from remit.errors import UsageError
from remit.types.messages import AssistantMessage, Message, ToolMessage, UserMessage
from remit.types.text import describe_error, safe_repr

_KINDS = (UserMessage, AssistantMessage, ToolMessage)


@functools.cache
def _decoder() -> msgspec.json.Decoder[tuple[Message, ...]]:
    return msgspec.json.Decoder(tuple[Message, ...])


def messages_to_json(messages: Iterable[Message]) -> str:
    """A conversation as a JSON array; images and files are encoded in base64.

    Raises UsageError for an item that is not a message, and for a message that JSON cannot express.
    """
    kept: list[object] = list(messages)
    for place, one in enumerate(kept):
        if not isinstance(one, _KINDS):
            raise UsageError(f"messages_to_json: item {place} is not a message: {safe_repr(one)[:60]}.")
    try:
        return msgspec.json.encode(kept).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"messages_to_json: a message cannot be written as JSON: {describe_error(error)}."
        ) from None


def messages_from_json(data: str | bytes) -> tuple[Message, ...]:
    """The messages that `messages_to_json` wrote. Raises UsageError for any other text."""
    try:
        return _decoder().decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise UsageError(
            f"messages_from_json: the text is not a conversation that messages_to_json wrote: {error}"
        ) from None
