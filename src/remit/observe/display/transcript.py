"""Prints a conversation: messages, tool calls and their results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import remit.observe.words as words
from remit.types.messages import (
    AssistantMessage,
    Call,
    FilePart,
    ImagePart,
    Message,
    TextPart,
    ToolMessage,
    UserMessage,
)
from remit.types.text import text_of


def transcript(
    messages: Sequence[Message], agent: str, *, window: int | None = None, colour: bool
) -> Iterator[str]:
    """One escaped text per message, its prose wrapped to the window."""
    for message in messages:
        head, body, look = piece(message, agent)
        if window is not None and not isinstance(message, ToolMessage):
            body = words.wrap_prose(body, window)
        title = words.looked(f"── {head} ──", look, colour=colour)
        yield f"{title}\n{body}" if body else title


def piece(message: Message, agent: str) -> tuple[str, str, words.Look]:
    """A message as its heading, its text and the look of the heading; both texts are escaped for terminals."""
    if isinstance(message, UserMessage):
        return "user", _parts(message), "strong"
    if isinstance(message, AssistantMessage):
        thinking = [block.text for block in message.thinking if block.text.strip()]
        parts = [*(f"(thinking) {words.lines(text)}" for text in thinking)]
        parts += [words.lines(message.text)] if message.text.strip() else []
        parts += [_call(call) for call in message.calls]
        return words.line(agent), "\n".join(parts), "busy"
    return _result(message)


def _parts(message: UserMessage) -> str:
    return "\n".join(
        words.lines(part.text) if isinstance(part, TextPart) else _file(part) for part in message.content
    )


def _file(part: ImagePart | FilePart) -> str:
    name = part.name if isinstance(part, FilePart) else "image"
    where = words.line(part.url) if part.url else f"{len(part.data):,} bytes"
    return f"[{words.line(name or 'file')}: {words.line(part.media_type)}, {where}]"


def _call(call: Call) -> str:
    if isinstance(call.args, str):
        return f"→ {words.line(call.name)} (arguments are not JSON)\n{_indented(call.args)}"
    short: list[str] = []
    long: list[str] = []
    for name, value in call.args.items():
        text = text_of(value)
        if "\n" in text or len(text) > 80:
            long.append(f"  {words.line(name)}:\n{_indented(text, 4)}")
        else:
            short.append(f"{words.line(name)}={words.line(text)}")
    return "\n".join([" ".join(["→", words.line(call.name), *short]), *long])


def _result(message: ToolMessage) -> tuple[str, str, words.Look]:
    parts = [_indented(message.content)] if message.content.strip() else []
    parts += [f"  {_file(part)}" for part in message.parts]
    parts += [_indented(message.note)] if message.note else []
    how = "result" if message.ok else "failed"
    return f"{words.line(message.name)}: {how}", "\n".join(parts), "dim" if message.ok else "bad"


def _indented(text: str, blanks: int = 2) -> str:
    return "\n".join(" " * blanks + row for row in words.lines(text).split("\n"))
