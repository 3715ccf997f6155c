"""Commands that another process writes to the store for the process that runs a tree.

Each command is obeyed once: the event that records it carries the command's id.
"""

from __future__ import annotations

import functools
from typing import Literal

import msgspec
from msgspec import Struct


class Command(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The fields that every command has."""

    id: str
    """Unique within the tree; the sender creates it with `remit.types.ports.new_command_id`."""
    at: float
    """Seconds since the epoch."""
    by: str = ""
    """The sender, as shown to people."""


class Cancel(Command, frozen=True, kw_only=True, omit_defaults=True, tag="cancel"):
    """Stop a run and everything below it."""

    run: str
    reason: str = ""


class Send(Command, frozen=True, kw_only=True, omit_defaults=True, tag="send"):
    """Add a message to a run's next turn."""

    run: str
    text: str


class Answer(Command, frozen=True, kw_only=True, omit_defaults=True, tag="answer"):
    """Answer an approval request."""

    request: str
    allowed: bool
    scope: Literal["once", "run", "tree"] = "once"
    reason: str = ""


AnyCommand = Cancel | Send | Answer

_encoder = msgspec.json.Encoder()


@functools.cache
def _decoder() -> msgspec.json.Decoder[AnyCommand]:
    return msgspec.json.Decoder(AnyCommand)


def encode(command: AnyCommand) -> bytes:
    """One command as JSON."""
    return _encoder.encode(command)


def decode(data: bytes | str) -> AnyCommand:
    """The command that `encode` wrote. Raises msgspec.DecodeError for anything else."""
    return _decoder().decode(data)
