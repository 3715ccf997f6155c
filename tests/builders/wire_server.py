"""A web server on loopback that plays scripted answers and keeps the requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


@dataclass
class Seen:
    """One request as received."""

    path: str
    headers: dict[str, str]
    raw: bytes
    connection: int
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the client closed the connection before the answer was complete."""

    @property
    def body(self) -> dict[str, Any]:
        return json.loads(self.raw)


@dataclass
class Answer:
    """The answer: one body, or pieces of a stream."""

    body: bytes = b"{}"
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes] | None = None
    then: str = ""
    """After the pieces: "" ends normally, "cut" breaks the connection, "hang" sends nothing more. Without pieces:
    before.
    """


def failing(status: int, body: object, **headers: str) -> Answer:
    raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return Answer(raw, status, {name.replace("_", "-"): value for name, value in headers.items()})


Play = Callable[[Seen], Answer]


class Server:
    """Plays `answers` in order, or the answers of `play`. Answers wait until `together` of them are due."""

    def __init__(self, *answers: Answer, play: Play | None = None, together: int = 1) -> None:
        self._gate = asyncio.Barrier(together)
        self._answers = list(answers)
        self._play = play
        self.seen: list[Seen] = []
        self.connections = 0
        self.open = 0
        self.busy = 0
        self.idle = asyncio.Event()
        """Set while no connection is open."""
        self.idle.set()
        self.asked = asyncio.Event()
        """Set by every request."""
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()
        await self.idle.wait()

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [seen.body for seen in self.seen]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.idle.clear()
        self._writers.add(writer)
        number = self.connections
        try:
            while (seen := await _read(reader, number)) is not None:
                self.seen.append(seen)
                self.asked.set()
                self.busy += 1
                try:
                    async with self._gate:
                        pass
                    if not await _send(self._next(seen), seen, reader, writer):
                        break
                finally:
                    self.busy -= 1
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self.open -= 1
            if not self.open:
                self.idle.set()

    def _next(self, seen: Seen) -> Answer:
        if self._play is not None:
            return self._play(seen)
        if not self._answers:
            return failing(418, {"error": {"message": "the script has no more answers"}})
        return self._answers.pop(0)


async def _read(reader: asyncio.StreamReader, connection: int) -> Seen | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(first.split(" ")[1], headers, raw, connection)


async def _send(
    answer: Answer, seen: Seen, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> bool:
    """Returns False when the connection cannot be used any more."""
    if answer.pieces is None and answer.then:
        return await _after(answer.then, seen, reader)
    kind = "application/json" if answer.pieces is None else "text/event-stream"
    head = [f"HTTP/1.1 {answer.status} {REASONS.get(answer.status, 'Other')}", f"content-type: {kind}"]
    head += [f"{name}: {value}" for name, value in answer.headers.items()]
    if answer.pieces is None:
        head.append(f"content-length: {len(answer.body)}")
        writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + answer.body)
        await writer.drain()
        return True
    writer.write("\r\n".join([*head, "transfer-encoding: chunked"]).encode() + b"\r\n\r\n")
    for piece in answer.pieces:
        writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        await writer.drain()
    if answer.then:
        return await _after(answer.then, seen, reader)
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


async def _after(then: str, seen: Seen, reader: asyncio.StreamReader) -> bool:
    if then == "hang":
        # The client has sent everything, so an end of input here means that it closed the connection.
        with suppress(ConnectionError):
            await reader.read(1)
        seen.gone.set()
    else:
        await asyncio.sleep(0.01)
    return False
