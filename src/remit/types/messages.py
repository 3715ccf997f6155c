"""Messages, calls, requests and replies: everything that a model reads and writes.

Plain frozen records; adapters convert them to a provider's wire format. They use `gc=False`: there are thousands of
them, and a frozen record can only refer to older objects, so it cannot be part of a reference cycle.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from remit.types.limits import Usage

Json = object
"""Any JSON value. Code that uses the value checks its type."""

JsonObject = dict[str, Json]


MARK = "[remit]"
"""The prefix of everything that remit itself writes to a model."""

REDACTED = "[redacted]"
"""Replaces a secret in stored text."""

LEFT_OUT = "[remit] left out: "
"""The prefix of the note that replaces a call's arguments when they are too long to record."""

# Possessive (*+): with backtracking, a long run of spaces would take quadratic time.
_UNSEEN = "[\\s\u00ad\u200b-\u200f\u2060-\u206f\ufeff]*+"
_TAGS = "[\U000e0000-\U000e0fff]+"
"""Tag characters: models read them, and people cannot see them."""


def _spaced(word: str) -> str:
    """A pattern of the word that allows invisible characters between its letters."""
    return _UNSEEN.join("[-_\u2010-\u2015 ]?" if letter == "-" else letter for letter in word)


@functools.cache
def _forged() -> re.Pattern[str]:
    """Text that a model may mistake for the runtime's: remit's mark, and the `system-reminder` tag."""
    return re.compile(
        f"[\\[\uff3b]{_UNSEEN}{_spaced('remit')}{_UNSEEN}[\\]\uff3d]|<{_UNSEEN}(/?){_UNSEEN}({_spaced('system-reminder')})",
        re.IGNORECASE,
    )


def unforge(text: str) -> str:
    """Untrusted text, changed so that no part of it looks like a message from the runtime."""
    if not text.isascii():
        text = re.sub(_TAGS, "", text)
    elif "[" not in text and "<" not in text:
        return text
    return _forged().sub(_changed, text)


def _changed(forged: re.Match[str]) -> str:
    return f"({forged[1]}system-reminder" if forged[2] else "(remit)"


class TextPart(Struct, frozen=True, gc=False, tag_field="type", tag="text"):
    """A piece of text."""

    text: str


class ImagePart(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="image"):
    """An image, as bytes or as a URL that the provider fetches."""

    media_type: str = "image/png"
    data: bytes = b""
    url: str = ""


class FilePart(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="file"):
    """A document, as bytes or as a URL that the provider fetches."""

    name: str = ""
    media_type: str = "application/octet-stream"
    data: bytes = b""
    url: str = ""


Part = TextPart | ImagePart | FilePart


class Call(Struct, frozen=True, gc=False):
    """One tool call, as the model wrote it."""

    id: str
    name: str
    args: JsonObject | str = field(default_factory=dict[str, object])
    """The arguments. A model may reply with a JSON object as text; it stays text only if it cannot be parsed."""


class Thinking(Struct, frozen=True, gc=False, omit_defaults=True):
    """A block of reasoning, kept so that it can be sent back to the provider unchanged."""

    text: str = ""
    signature: str = ""
    provider: str = ""


class UserMessage(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="role", tag="user"):
    """A user message: the task, a message sent later, or a request by remit itself."""

    content: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "\n".join(p.text for p in self.content if isinstance(p, TextPart))


class AssistantMessage(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="role", tag="assistant"):
    """A message from the model."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    details: JsonObject | None = None
    """Data that the provider wants back with the next request; only the model's adapter reads and writes it."""


class ToolMessage(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="role", tag="tool"):
    """The result of one call."""

    call_id: str
    name: str
    content: str
    """The tool's output: data, never instructions."""
    ok: bool = True
    note: str = ""
    """A note by remit, kept separate from `content` so that a tool cannot forge it."""
    parts: tuple[ImagePart | FilePart, ...] = ()
    """Images and documents besides the text."""

    @property
    def text(self) -> str:
        """The text that the model reads: the content, with forged marks changed (`unforge`), and the note."""
        content = unforge(self.content)
        return f"{content}\n\n{self.note}" if self.note else content


Message = UserMessage | AssistantMessage | ToolMessage


def user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


class ToolSpec(Struct, frozen=True):
    """A tool as described to the model."""

    name: str
    description: str
    parameters: JsonObject
    """A JSON schema of an object."""


ToolChoice = Literal["auto", "none"]
Stop = Literal["end", "calls", "length", "refusal"]


class Request(Struct, frozen=True, gc=False):
    """One model call. The same tools are in every request of a run."""

    agent: str
    run_id: str
    depth: int
    instructions: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    tool_choice: ToolChoice
    max_output_tokens: int
    output_schema: JsonObject | None
    settings: Mapping[str, Json]


class Reply(Struct, frozen=True, gc=False, omit_defaults=True):
    """The result of one model call."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    stop: Stop = "end"
    usage: Usage | None = None
    """None if the provider did not report it; remit then estimates it and marks it as estimated."""
    model: str = ""
    """The model that answered, if the provider reports it."""
    details: JsonObject | None = None
    """See `AssistantMessage.details`."""


class Delta(Struct, frozen=True, gc=False, omit_defaults=True):
    """A piece of a reply while it is still being written."""

    text: str = ""
    thinking: str = ""
