"""Content as attributes: messages, instructions, arguments and results, redacted like the journal and bounded in size.

Runs in the thread of `background.py`: searching for secrets takes too long for the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import msgspec

import remit.observe.otel.names as names
from remit.history.redaction import Redactor
from remit.types.messages import (
    AssistantMessage,
    Call,
    FilePart,
    ImagePart,
    Json,
    Message,
    Reply,
    Request,
    TextPart,
    UserMessage,
)

MOST_TEXT = 20_000
"""The most characters of one text. Truncated after redaction: half of a secret would not be recognised."""

MOST_MESSAGES = 200_000
"""The most characters of all messages of one request. The newest messages are kept."""

Part: TypeAlias = "dict[str, Json]"


class Content:
    """Makes attributes from content."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor

    def text(self, text: str) -> str:
        said = self._redactor.redact_text(text)
        if len(said) <= MOST_TEXT:
            return said
        return f"{said[:MOST_TEXT]} [... {len(said) - MOST_TEXT:,} more characters]"

    def arguments(self, call: Call) -> str:
        """The arguments of a tool call: as JSON, or as truncated text if they are too long."""
        data = self._redactor.redact(msgspec.json.encode(call.args))
        said = data.decode("utf-8", "replace")
        return said if len(said) <= MOST_TEXT else f"{said[:MOST_TEXT]} [... truncated]"

    def task(self, instructions: str, task: UserMessage) -> dict[str, str]:
        """The instructions and the task of a run."""
        return self._with_instructions(instructions, [_message("user", self._parts(task.content))])

    def answer(self, text: str) -> dict[str, str]:
        """The answer of a run."""
        return {names.OUTPUT_MESSAGES: _text([_message("assistant", [self._said(text)])])} if text else {}

    def request(self, request: Request) -> dict[str, str]:
        """The request of a model call."""
        return self._with_instructions(request.instructions, self._messages(request.messages))

    def reply(self, reply: Reply) -> dict[str, str]:
        """The reply of a model call."""
        said = AssistantMessage(reply.text, reply.calls, reply.thinking)
        message = _message("assistant", self._assistant(said)) | {
            "finish_reason": names.FINISH.get(reply.stop, reply.stop)
        }
        return {names.OUTPUT_MESSAGES: _text([message])}

    def call(self, call: Call | None, result: str) -> dict[str, str]:
        """The arguments and the result of a tool call; `call` is None if the arguments are unknown."""
        found = {names.TOOL_RESULT: self.text(result)}
        if call is not None:
            found[names.TOOL_ARGUMENTS] = self.arguments(call)
        return found

    def _with_instructions(self, instructions: str, messages: list[Part]) -> dict[str, str]:
        found = {names.INPUT_MESSAGES: _text(messages)}
        if instructions:
            found[names.INSTRUCTIONS] = _text([self._said(instructions)])
        return found

    def _messages(self, messages: Sequence[Message]) -> list[Part]:
        kept: list[Part] = []
        room = MOST_MESSAGES
        for number in range(len(messages) - 1, -1, -1):
            message = self._of(messages[number])
            room -= len(_text([message]))
            if room < 0 and kept:
                left_out = f"[{number + 1} earlier messages omitted]"
                kept.append(_message("user", [{"type": "text", "content": left_out}]))
                break
            kept.append(message)
        kept.reverse()
        return kept

    def _of(self, message: Message) -> Part:
        if isinstance(message, UserMessage):
            return _message("user", self._parts(message.content))
        if isinstance(message, AssistantMessage):
            return _message("assistant", self._assistant(message))
        response: Part = {
            "type": "tool_call_response",
            "id": message.call_id,
            "response": self.text(message.text),
        }
        return _message("tool", [response, *self._parts(message.parts)])

    def _assistant(self, message: AssistantMessage) -> list[Part]:
        thoughts: list[Part] = [
            {"type": "reasoning", "content": self.text(thought.text)}
            for thought in message.thinking
            if thought.text
        ]
        said = [self._said(message.text)] if message.text else []
        return [*thoughts, *said, *map(self._call, message.calls)]

    def _call(self, call: Call) -> Part:
        said = self.arguments(call)
        whole = len(said) <= MOST_TEXT
        return {
            "type": "tool_call",
            "id": call.id,
            "name": call.name,
            "arguments": msgspec.Raw(said.encode()) if whole else said,
        }

    def _parts(self, parts: Sequence[TextPart | ImagePart | FilePart]) -> list[Part]:
        return [self._said(part.text) if isinstance(part, TextPart) else _attachment(part) for part in parts]

    def _said(self, text: str) -> Part:
        return {"type": "text", "content": self.text(text)}


def _attachment(part: ImagePart | FilePart) -> Part:
    """A description, not the data: an image can be larger than the trace."""
    where = "by URL" if part.url else f"{len(part.data):,} bytes"
    return {"type": "text", "content": f"[{part.media_type}, {where}]"}


def _message(role: str, parts: list[Part]) -> Part:
    return {"role": role, "parts": parts}


def _text(value: Json) -> str:
    return msgspec.json.encode(value).decode()
