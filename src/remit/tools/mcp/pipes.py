"""The two ends of a server's pipes: its lines, bounded, and what it is told."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

from remit.tools.mcp.link import MOST_MESSAGE

HELD_BYTES = 4_000_000
"""When this much waits to be read, the server is made to wait."""


class Lines(asyncio.Protocol):
    """What a server writes, line by line. `lost` is called once, when no more will come."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.trouble = ""
        """Why it is not read on, where that is the server's own doing."""
        self._lost = lost
        self._lines: deque[bytes] = deque()
        self._held = 0
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._over = False
        self._paused = False
        self._waiter: asyncio.Future[None] | None = None
        self._pipe: asyncio.ReadTransport | None = None

    async def next(self) -> bytes | None:
        """The next line; None when there will be none."""
        while not self._lines:
            if self._over:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        line = self._lines.popleft()
        self._held -= len(line)
        if self._held < HELD_BYTES // 2:
            self._pause(paused=False)
        return line

    def leave(self, trouble: str) -> None:
        """Read no more of it, for that reason."""
        self.trouble = trouble
        self.finish()

    def finish(self) -> None:
        if not self._over:
            self._over = True
            self._lost()
        self._tell()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = cast(asyncio.ReadTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.finish()

    def data_received(self, data: bytes) -> None:
        if self._over:
            return
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = b"".join([*self._rest, line])
            self._rest, self._rest_bytes = [], 0
            if whole.strip():
                self._lines.append(whole)
                self._held += len(whole)
        if rest:
            self._rest.append(rest)
            self._rest_bytes += len(rest)
        if self._rest_bytes > MOST_MESSAGE:
            self._rest = []
            self.leave(f"it sent a message of more than {MOST_MESSAGE:,} bytes")
        elif self._held > HELD_BYTES:
            self._pause(paused=True)
        self._tell()

    def _pause(self, *, paused: bool) -> None:
        pipe = self._pipe
        if paused == self._paused or pipe is None or pipe.is_closing():
            return
        self._paused = paused
        if paused:
            pipe.pause_reading()
        else:
            pipe.resume_reading()

    def _tell(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


class Sink(asyncio.BaseProtocol):
    """What a server is told. A server that is gone reads nothing, and nobody minds."""

    def __init__(self) -> None:
        self._pipe: asyncio.WriteTransport | None = None
        self._room: asyncio.Future[None] | None = None

    async def write(self, data: bytes) -> None:
        """Returns when there is room for more."""
        if self._pipe is None or self._pipe.is_closing():
            return
        self._pipe.write(data)
        if self._room is not None:
            await asyncio.shield(self._room)

    def close(self) -> None:
        """The end of its input, after what was written."""
        if self._pipe is not None:
            self._pipe.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._pipe = cast(asyncio.WriteTransport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.resume_writing()

    def pause_writing(self) -> None:
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)
