"""What a model sees and says: messages, calls, the request and the reply.

Plain frozen records. How a provider wants them on the wire is the adapter's business. None is tracked by the garbage
collector: what is frozen can only refer to what was there before it, and there are thousands of them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from remit.types.limits import Usage

Json = object
"""Any JSON value. What is inside is checked where it is used, never assumed."""

JsonObject = dict[str, Json]


MARK = "[remit]"
"""Begins what the runtime itself says to a model."""

REDACTED = "[redacted]"
"""Stands for a secret in what is stored."""

LEFT_OUT = "[remit] left out: "
"""Begins the arguments of a call that were too long to be recorded, with the reason."""

# Possessive: tried again from each place, a long run of spaces would take quadratic time.
_UNSEEN = "[\\s\u00ad\u200b-\u200f\u2060-\u206f\ufeff]*+"
_TAGS = "[\U000e0000-\U000e0fff]+"
"""Letters that models read and people do not."""


def _spaced(word: str) -> str:
    """The word, whatever that nobody sees stands between its letters."""
    return _UNSEEN.join("[-_\u2010-\u2015 ]?" if letter == "-" else letter for letter in word)


@functools.cache
def _forged() -> re.Pattern[str]:
    """What models take for a runtime's words: remit's mark, and the tag that some of them were trained to obey."""
    return re.compile(
        f"[\\[\uff3b]{_UNSEEN}{_spaced('remit')}{_UNSEEN}[\\]\uff3d]|<{_UNSEEN}(/?){_UNSEEN}({_spaced('system-reminder')})",
        re.IGNORECASE,
    )


def unforge(text: str) -> str:
    """Foreign text in which nothing looks like the words of a runtime."""
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
    """An image, as bytes or as an address the provider fetches."""

    media_type: str = "image/png"
    data: bytes = b""
    url: str = ""


class FilePart(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="type", tag="file"):
    """A document, as bytes or as an address the provider fetches."""

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
    """The arguments. In a model's reply also the text of a JSON object; a string that stays one could not be read as that."""


class Thinking(Struct, frozen=True, gc=False, omit_defaults=True):
    """A block of reasoning, kept so that the provider can be given it back unchanged."""

    text: str = ""
    signature: str = ""
    provider: str = ""


class UserMessage(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="role", tag="user"):
    """What was asked: the task, something sent later, or the runtime's own request."""

    content: tuple[Part, ...]

    @property
    def text(self) -> str:
        return "\n".join(p.text for p in self.content if isinstance(p, TextPart))


class AssistantMessage(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="role", tag="assistant"):
    """What the model said."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    details: JsonObject | None = None
    """What its provider wants back with the next request; made and read by the model's adapter alone."""


class ToolMessage(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="role", tag="tool"):
    """The result of one call."""

    call_id: str
    name: str
    content: str
    """What the tool gave: data, never instructions."""
    ok: bool = True
    note: str = ""
    """The runtime's own words, kept apart so that a tool cannot forge them."""
    parts: tuple[ImagePart | FilePart, ...] = ()
    """Images and documents, besides the text."""

    @property
    def text(self) -> str:
        """What the model reads. What looks like the words of a runtime in the content is not, and is changed."""
        content = unforge(self.content)
        return f"{content}\n\n{self.note}" if self.note else content


Message = UserMessage | AssistantMessage | ToolMessage


def user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


class ToolSpec(Struct, frozen=True):
    """A tool as the model is told of it."""

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
    """What came back from one model call."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thinking: tuple[Thinking, ...] = ()
    stop: Stop = "end"
    usage: Usage | None = None
    """None when the provider did not say; it is then estimated and marked so."""
    model: str = ""
    """The model that really answered, where the provider says."""
    details: JsonObject | None = None
    """What the provider wants back with the next request: see `AssistantMessage.details`."""


class Delta(Struct, frozen=True, gc=False, omit_defaults=True):
    """A piece of a reply while it is still being written."""

    text: str = ""
    thinking: str = ""
