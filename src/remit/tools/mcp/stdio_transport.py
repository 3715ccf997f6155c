"""Start a server as a child process, exchange messages through pipes, and end it with everything it started.

The `mcp` package's own client is not used: it passes our terminal to the server for errors, does not limit the size of a
message, does not report how the server ended, and leaves the server's child processes running when it ends by itself.
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
"""The number of the server's last lines that a message quotes."""

MOST_ODD_LINES = 10_000
"""The most consecutive lines that are not messages; after more, the server is abandoned."""

# Together less than half of the grace period of a cancelled opening.
POLITE_S = 0.8
STOP_S = 1.5
REST_S = 0.2

_KEPT = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TMP", "TEMP"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "NO_PROXY", "no_proxy"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"),
)
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")

# The supervisor gives a process no stdin, and one pipe for stdout and stderr, so messages use separate pipes.
_SHELL = 'i=$1 o=$2; shift 2; exec "$@" <"/dev/fd/$i" >"/dev/fd/$o"'


def environment(given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server: harmless variables of ours, and the `given` ones."""
    kept = {
        name: value
        for name, value in own.items()
        if name in _KEPT or name.startswith("LC_") or (name in _PROXIES and "@" not in value)
    }
    return {**kept, **given}


class ProcessLink:
    """A server's process, and the messages through its pipes."""

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
        """Start the server. Raises ServerFailed."""
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
            words.append(f'Its last output: "{last}"')
        return ". ".join(word.rstrip(".") for word in words if word)

    async def _start(self, lines: LineReader, sink: Sink, stack: ExitStack) -> Process:
        """Start it and connect its pipes; the stack releases everything."""
        try:
            from remit.tools.processes.process import Process, launch  # noqa: PLC0415 - not importable on every system
        except ImportError:
            raise ServerFailed("servers with a command are unsupported on this system") from None
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
            raise ServerFailed(
                f"the server could not be started: {error.strerror or type(error).__name__}"
            ) from None
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
            raise ServerFailed(
                f"the server could not be started: the folder {str(self._cwd)!r} does not exist"
            )
        inside = str(self._cwd / command) if "/" in command else command
        found = shutil.which(inside, path=self._env.get("PATH", os.defpath))
        if found is None:
            raise ServerFailed(f"the server could not be started: the program {command!r} was not found")
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
                # Let other tasks run: the lines may never end.
                await anyio.lowlevel.checkpoint()
                if too_dense(line):
                    lines.leave("the server sent a message with too many parts")
                    break
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError:
                    # Many servers print a greeting here; it may explain why they end.
                    self._hear(line[-TAIL_BYTES:] + b"\n")
                    odd += 1
                    if odd > MOST_ODD_LINES:
                        lines.leave("the server's output is not MCP messages")
                        break
                    continue
                odd = 0
                # The session may be closed; keep reading the pipe, so that the server can end.
                with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
                    await to_session.send(SessionMessage(message))
            self._trouble = lines.trouble

    async def _watch(self, process: Process, lines: LineReader) -> None:
        """End the reading when the process ends, even if another process holds the pipe open."""
        self._ended = await process.wait()
        # The last output may still be in the pipe.
        await anyio.sleep(REST_S)
        lines.finish()

    async def _end(self, process: Process, sink: Sink) -> None:
        """Close its stdin first, then signal it and everything it started."""
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
        return f"the server ended with exit code {ended.code}"
    if ended.signal is not None:
        with suppress(ValueError):
            return f"the server was ended by {signal.Signals(ended.signal).name}"
        return f"the server was ended by signal {ended.signal}"
    return f"the server ended: {ended.failed}" if ended.failed else "the server was stopped"


HELD_BYTES = 4_000_000
"""When this many bytes wait to be read, reading from the server pauses."""


class LineReader(asyncio.Protocol):
    """Reads a server's output line by line. `lost` is called once, at the end of the output."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.trouble = ""
        """Why reading stopped, if the server caused it."""
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
        """The next line; None at the end."""
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
        """Stop reading, for this reason."""
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
            self.leave(f"the server sent a message of more than {MOST_MESSAGE:,} bytes")
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
    """Writes to a server's stdin. Writing to a server that has ended does nothing."""

    def __init__(self) -> None:
        self._pipe: asyncio.WriteTransport | None = None
        self._room: asyncio.Future[None] | None = None

    async def write(self, data: bytes) -> None:
        """Write data; returns when there is room for more."""
        if self._pipe is None or self._pipe.is_closing():
            return
        self._pipe.write(data)
        if self._room is not None:
            await asyncio.shield(self._room)

    def close(self) -> None:
        """Close its stdin after the data written so far."""
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
