"""Convert remit's messages to pydantic-ai's. Messages of a run's last request are not converted again."""

from __future__ import annotations

import mimetypes
from collections import OrderedDict
from collections.abc import Sequence
from operator import is_

from pydantic_ai.messages import (
    AudioUrl,
    BinaryContent,
    DocumentUrl,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
    VideoUrl,
)

from remit.models.replies import to_response
from remit.types.messages import (
    AssistantMessage,
    FilePart,
    Message,
    Part,
    TextPart,
    ToolMessage,
    UserMessage,
)

MOST_RUNS = 256
"""The most cached conversations; the least recently used is dropped first."""

UNTYPED = "application/octet-stream"


class Conversations:
    """Converts the messages of many runs."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, _Conversation] = OrderedDict()

    def convert(self, run_id: str, messages: Sequence[Message]) -> list[ModelMessage]:
        """The messages of one request. Only messages since the run's last request are converted."""
        conversation = self._runs.pop(run_id, None)
        if conversation is None or not conversation.begins(messages):
            conversation = _Conversation()
        conversation.extend(messages)
        self._runs[run_id] = conversation
        while len(self._runs) > MOST_RUNS:
            self._runs.popitem(last=False)
        return list(conversation.made)

    def forget(self, run_id: str) -> None:
        self._runs.pop(run_id, None)


class _Conversation:
    """The messages of a run so far, and the converted ones. A converted message is never changed, only replaced."""

    def __init__(self) -> None:
        self._seen: list[Message] = []
        self.made: list[ModelMessage] = []

    def begins(self, messages: Sequence[Message]) -> bool:
        """Whether `messages` start with the ones seen so far, compared by identity."""
        return len(self._seen) <= len(messages) and all(map(is_, self._seen, messages))

    def extend(self, messages: Sequence[Message]) -> None:
        parts: list[ModelRequestPart] = []
        for message in messages[len(self._seen) :]:
            self._seen.append(message)
            if not isinstance(message, AssistantMessage):
                parts.append(_part(message))
                continue
            self._ask(parts)
            parts = []
            response = to_response(message)
            if response.parts:
                self.made.append(response)
        self._ask(parts)

    def _ask(self, parts: list[ModelRequestPart]) -> None:
        """Add everything between two replies as one request: results must directly follow their calls."""
        if not parts:
            return
        last = self.made[-1] if self.made else None
        if isinstance(last, ModelRequest):
            self.made[-1] = ModelRequest(parts=[*last.parts, *parts])
        else:
            self.made.append(ModelRequest(parts=parts))


def _part(message: UserMessage | ToolMessage) -> ModelRequestPart:
    if isinstance(message, UserMessage):
        if len(message.content) == 1 and isinstance(message.content[0], TextPart):
            return UserPromptPart(message.content[0].text)
        return UserPromptPart([_content(part) for part in message.content])
    return ToolReturnPart(
        tool_name=message.name,
        content=[message.text, *map(_content, message.parts)] if message.parts else message.text,
        tool_call_id=message.call_id,
        outcome="success" if message.ok else "failed",
    )


def _content(part: Part) -> UserContent:
    if isinstance(part, TextPart):
        return part.text
    media_type = part.media_type
    if isinstance(part, FilePart) and media_type == UNTYPED:
        media_type = mimetypes.guess_type(part.name or part.url)[0] or UNTYPED
    if part.url and not part.data:
        return _at(part.url, media_type)
    return BinaryContent(data=part.data, media_type=media_type)


def _at(url: str, media_type: str) -> UserContent:
    kinds = {"image": ImageUrl, "audio": AudioUrl, "video": VideoUrl}
    kind = kinds.get(media_type.partition("/")[0], DocumentUrl)
    return kind(url, media_type=None if media_type == UNTYPED else media_type)
