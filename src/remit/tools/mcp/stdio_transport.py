"""A server that is a process of ours: spoken to through its pipes, and ended with everything that it started.

Not the `mcp` package's own client: that one gives the server our terminal for its errors, has no bound on a message, does
not tell how the server ended, and leaves what a server has started when that ends by itself.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import anyio.lowlevel

from remit.tools.mcp.failure import WORDS_CHARS, ServerFailed, Veil
from remit.tools.mcp.transport import MOST_MESSAGE, too_dense

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

    from remit.tools.mcp.transport import Streams
    from remit.tools.processes.process import Ended, Process

log = logging.getLogger("remit.mcp")

TAIL_BYTES = 64_000
LAST_LINES = 5
"""How many of its last lines a message quotes."""

MOST_ODD_LINES = 10_000
"""Lines in a row that are no messages; a server that writes more never will write one."""

# Together less than half of the grace that a cancelled opening has.
POLITE_S = 0.8
STOP_S = 1.5
REST_S = 0.2

_KEPT = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "NO_PROXY", "no_proxy"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"),
)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")

# What watches over a process gives it no input, and one pipe for all that it says: messages have pipes of their own.
_SHELL = 'i=$1 o=$2; shift 2; exec "$@" <"/dev/fd/$i" >"/dev/fd/$o"'


def environment(given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """What a server gets of our environment: nothing that could be a key, unless it was `given`."""
    kept = {
        name: value
        for name, value in own.items()
        if name in _KEPT or name.startswith("LC_") or (name in _PROXIES and "@" not in value)
    }
    return {**kept, **given}


class ProcessLink:
    """A server's process, and the messages that go through its pipes."""

    def __init__(
        self, name: str, command: Sequence[str], env: Mapping[str, str], cwd: Path, veil: Veil
    ) -> None:
        self._name = name
        self._command = tuple(command)
        self._env = dict(env)
        self._cwd = cwd
        self._veil = veil
        self._tail = bytearray()
        self._ended: Ended | None = None
        self._trouble = ""

    @asynccontextmanager
    async def connected(self, lost: Callable[[], None]) -> AsyncGenerator[Streams]:
        """Raises ServerFailed when it cannot be started."""
        with ExitStack() as stack:
            lines, sink = LineReader(lost), Sink()
            process = await self._start(lines, sink, stack)
            to_session, inbox = anyio.create_memory_object_stream["SessionMessage | Exception"](0)
            outbox, from_session = anyio.create_memory_object_stream["SessionMessage"](0)
            for stream in (to_session, inbox, outbox, from_session):
                stack.callback(stream.close)
            async with anyio.create_task_group() as group:
                group.start_soon(self._read, lines, to_session)
                group.start_soon(_write, sink, from_session)
                group.start_soon(self._watch, process, lines)
                try:
                    yield inbox, outbox
                finally:
                    with anyio.CancelScope(shield=True):
                        await self._end(process, sink)
                    group.cancel_scope.cancel()

    def ending(self) -> str:
        words = [self._trouble or _how(self._ended)]
        if last := self._veil.quote(self._last_words()):
            words.append(f'It last said: "{last}"')
        return ". ".join(word.rstrip(".") for word in words if word)

    async def _start(self, lines: LineReader, sink: Sink, stack: ExitStack) -> Process:
        """Start it and take hold of its pipes; all that is taken is let go of with the stack."""
        try:
            from remit.tools.processes.process import Process, launch  # noqa: PLC0415 - cannot be imported on every system
        except ImportError:
            raise ServerFailed("servers that are commands cannot be started on this system") from None
        loop = asyncio.get_running_loop()
        argv = self._argv()
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        writing = stack.enter_context(os.fdopen(ours_in, "wb", 0))
        reading = stack.enter_context(os.fdopen(ours_out, "rb", 0))
        try:
            launched = launch(
                ["/bin/sh", "-c", _SHELL, "sh", str(theirs_in), str(theirs_out), *argv],
                cwd=str(self._cwd),
                env=self._env,
                pass_fds=(theirs_in, theirs_out),
            )
        except OSError as error:
            raise ServerFailed(f"it cannot be started: {error.strerror or type(error).__name__}") from None
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        process = Process(launched, self._hear)
        stack.callback(process.close)
        to_it, _ = await loop.connect_write_pipe(lambda: sink, writing)
        stack.callback(to_it.abort)
        from_it, _ = await loop.connect_read_pipe(lambda: lines, reading)
        stack.callback(from_it.close)
        return process

    def _argv(self) -> list[str]:
        command = self._command[0]
        if not self._cwd.is_dir():
            raise ServerFailed(f"it cannot be started: there is no folder {str(self._cwd)!r}")
        inside = str(self._cwd / command) if "/" in command else command
        found = shutil.which(inside, path=self._env.get("PATH", os.defpath))
        if found is None:
            raise ServerFailed(f"it cannot be started: there is no program {command!r}")
        return [str(Path(found).absolute()), *self._command[1:]]

    def _hear(self, said: bytes) -> None:
        self._tail += said
        del self._tail[: max(len(self._tail) - TAIL_BYTES, 0)]
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "MCP server %s: %s", self._name, self._veil.over(said.decode("utf-8", "replace")).rstrip()
            )

    def _last_words(self) -> str:
        lines = bytes(self._tail[-4 * WORDS_CHARS :]).decode("utf-8", "replace").split("\n")
        return " / ".join([line.strip() for line in lines if line.strip()][-LAST_LINES:])

    async def _read(
        self, lines: LineReader, to_session: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        from mcp.shared.message import SessionMessage  # noqa: PLC0415 - imported by now
        from mcp_types import jsonrpc_message_adapter  # noqa: PLC0415 - as above

        async with to_session:
            odd = 0
            while (line := await lines.next()) is not None:
                # There may be no end of lines, and others want their turn.
                await anyio.lowlevel.checkpoint()
                if too_dense(line):
                    lines.leave("it sent a message of too many parts")
                    break
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    # Many servers greet on this channel before they know better; it may tell why they end.
                    self._hear(line[-TAIL_BYTES:] + b"\n")
                    odd += 1
                    if odd > MOST_ODD_LINES:
                        lines.leave("what it writes are no messages")
                        break
                    continue
                odd = 0
                # A session that is gone takes no more; the pipe is read on, so that the server can end.
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await to_session.send(SessionMessage(message))
            self._trouble = lines.trouble

    async def _watch(self, process: Process, lines: LineReader) -> None:
        """The end of its process is the end of its messages, even where others hold the pipe."""
        self._ended = await process.wait()
        # What it wrote last is still in the pipe, and its end comes right after.
        await anyio.sleep(REST_S)
        lines.finish()

    async def _end(self, process: Process, sink: Sink) -> None:
        """Politely first: the end of its input, then signals, to everything that it started."""
        sink.close()
        if not await self._gone(process, POLITE_S):
            process.stop()
            if not await self._gone(process, STOP_S):
                process.kill()

    async def _gone(self, process: Process, seconds: float) -> bool:
        with anyio.move_on_after(seconds):
            self._ended = await process.wait()
        return self._ended is not None


async def _write(sink: Sink, from_session: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with from_session:
        async for item in from_session:
            await sink.write(item.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")


def _how(ended: Ended | None) -> str:
    if ended is None:
        return ""
    if ended.code is not None:
        return f"it ended with exit code {ended.code}"
    if ended.signal is not None:
        with suppress(ValueError):
            return f"it was ended by {signal.Signals(ended.signal).name}"
        return f"it was ended by signal {ended.signal}"
    return f"it ended: {ended.failed}" if ended.failed else "it was stopped"


HELD_BYTES = 4_000_000
"""When this much waits to be read, the server is made to wait."""


class LineReader(asyncio.Protocol):
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
