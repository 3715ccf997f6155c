"""What carries messages to a server and back, whichever way: a process or the web."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream
    from mcp.shared.message import SessionMessage

    Streams = tuple[ReadStream[SessionMessage | Exception], WriteStream[SessionMessage]]

MOST_MESSAGE = 32_000_000
"""Bytes of one message. A server that sends more is broken or means harm, and is left."""


LARGE_MESSAGE = 1_000_000
MOST_TEXTS = 200_000
MOST_OTHER = 2_000_000
"""Bytes of a large message that are not within texts. Images and pages are few long texts, which take no time to read."""

# A text that never ends is one too: to look for another inside of it would take quadratic time.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def too_dense(message: bytes | bytearray) -> bool:
    """Whether a message has so many parts that to read it would hold up everything else."""
    if len(message) <= LARGE_MESSAGE:
        return False
    other = len(message)
    for count, found in enumerate(_TEXT.finditer(message)):
        other -= found.end() - found.start()
        if count > MOST_TEXTS:
            return True
    return other > MOST_OTHER


class Link(Protocol):
    """A way to a server. Contract: leaving `connected` leaves nothing of it, also when it is cancelled."""

    def connected(self, lost: Callable[[], None]) -> AbstractAsyncContextManager[Streams]:
        """Entered and left by one task. `lost` is called when the other side is gone."""
        ...

    def ending(self) -> str:
        """How it ended, in words; empty while nothing is known."""
        ...
