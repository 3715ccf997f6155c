"""Converts the caller's task, a string or a list of parts, to a message. Everything here raises UsageError."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import msgspec

from remit.errors import UsageError
from remit.types.messages import FilePart, ImagePart, Part, TextPart, UserMessage
from remit.types.text import clean, describe_error

MOST_TASK = 5_000_000
"""Most characters of a task; a longer task is a mistake."""

Task = str | Sequence[Part]


def as_message(task: object) -> UserMessage:
    if isinstance(task, str):
        if len(task) > MOST_TASK or not task.isascii():
            _check_text(task)
        if not task.strip():
            raise UsageError(_EMPTY)
        return UserMessage((TextPart(clean(task)),))
    if not isinstance(task, Sequence):
        raise UsageError(f"task must be a string or a list of parts, not {task!r}.")
    checked: list[Part] = []
    for part in cast("Sequence[object]", task):
        if not isinstance(part, (TextPart, ImagePart, FilePart)):
            raise UsageError(f"task has {part!r}, which is not a TextPart, ImagePart or FilePart.")
        if isinstance(part, TextPart):
            _check_text(cast(object, part.text))
        checked.append(part)
    message = UserMessage(tuple(checked))
    check_message(message, "task")
    if not message.text.strip() and not any(not isinstance(p, TextPart) for p in checked):
        raise UsageError(_EMPTY)
    return message


_EMPTY = "task is empty. Describe what the agent should do."


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise UsageError(f"task must be text, not {text!r}.")
    if len(text) > MOST_TASK:
        raise UsageError(f"task has {len(text):,} characters; at most {MOST_TASK:,} are allowed.")
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"task has an unpaired surrogate at position {error.start}.") from None


def check_message(message: object, where: str) -> None:
    """Raises UsageError if a message cannot be recorded and read back."""
    try:
        msgspec.json.decode(msgspec.json.encode(message), type=type(message))
    except (msgspec.MsgspecError, UnicodeError, TypeError, RecursionError) as error:
        raise UsageError(f"{where} cannot be recorded: {describe_error(error)}") from None
