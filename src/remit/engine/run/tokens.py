"""Token estimates, on the high side, so that a reservation covers the request."""

from __future__ import annotations

from remit.types.messages import Message, TextPart, ToolMessage, UserMessage

IMAGE_TOKENS = 1600


def message_tokens(message: Message) -> int:
    if isinstance(message, UserMessage):
        tokens = 4
        for part in message.content:
            tokens += text_tokens(part.text) if isinstance(part, TextPart) else _media_tokens(part.data)
    elif isinstance(message, ToolMessage):
        tokens = text_tokens(message.content) + 12
        if message.note:
            tokens += text_tokens(message.note)
        for part in message.parts:
            tokens += _media_tokens(part.data)
    else:
        tokens = text_tokens(message.text) + 4
        for call in message.calls:
            tokens += text_tokens(str(call.args)) + 12
        for thought in message.thinking:
            tokens += text_tokens(thought.text)
    return tokens


def text_tokens(text: str) -> int:
    """UTF-8 bytes divided by three: slightly more than tokenizers count for prose and code."""
    return ((len(text) if text.isascii() else len(text.encode("utf-8", "replace"))) + 2) // 3


def _media_tokens(data: bytes) -> int:
    return max(IMAGE_TOKENS, len(data) // 100)
