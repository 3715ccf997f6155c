"""What carries messages to a server and back, whichever way: a process or the web."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream
    from mcp.shared.message import SessionMessage

    Streams = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]

MOST_MESSAGE = 32_000_000
"""Bytes of one message. A server that sends more is broken or means harm, and is left."""


class Link(Protocol):
    """A way to a server. Contract: leaving `connected` leaves nothing of it, also when it is cancelled."""

    def connected(self, lost: Callable[[], None]) -> AbstractAsyncContextManager[Streams]:
        """Entered and left by one task. `lost` is called when the other side is gone."""
        ...

    def ending(self) -> str:
        """How it ended, in words; empty while nothing is known."""
        ...
