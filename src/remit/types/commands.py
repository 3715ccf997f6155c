"""What another process can ask of a running tree. Written to the store; the process that runs it obeys.

A command is obeyed once: the event that records it carries its id.
"""

from __future__ import annotations

import functools
from typing import Literal

import msgspec
from msgspec import Struct


class Command(Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What every command has."""

    id: str
    """Unique within the tree; whoever writes it makes it up (`remit.types.ports.new_command_id`)."""
    at: float
    """Seconds since the epoch."""
    by: str = ""
    """Who asks, for people."""


class Cancel(Command, frozen=True, kw_only=True, omit_defaults=True, tag="cancel"):
    """Stop a run and everything below it."""

    run: str
    reason: str = ""


class Send(Command, frozen=True, kw_only=True, omit_defaults=True, tag="send"):
    """Have a message join a run's next turn."""

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
