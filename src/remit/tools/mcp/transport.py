"""The common interface of the transports, a process or HTTP, and their limits."""

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
"""The most bytes of one message. A server that sends more is broken or hostile."""


LARGE_MESSAGE = 1_000_000
MOST_TEXTS = 200_000
MOST_OTHER = 2_000_000
"""The most bytes of a large message outside strings. Images and pages are few long strings, which are fast to read."""

# Also matches a string that never ends: searching inside it again would take quadratic time.
_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def too_dense(message: bytes | bytearray) -> bool:
    """Whether a message has so many parts that parsing it would block everything else."""
    if len(message) <= LARGE_MESSAGE:
        return False
    other = len(message)
    for count, found in enumerate(_TEXT.finditer(message)):
        other -= found.end() - found.start()
        if count > MOST_TEXTS:
            return True
    return other > MOST_OTHER


class Link(Protocol):
    """A connection to a server. Contract: leaving `connected` releases all resources, even when cancelled."""

    def connected(self, lost: Callable[[], None]) -> AbstractAsyncContextManager[Streams]:
        """Entered and left by one task. `lost` is called when the other side is gone."""
        ...

    def ending(self) -> str:
        """A message about how it ended; empty if unknown."""
        ...
