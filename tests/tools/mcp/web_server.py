"""An HTTP server in the test's own process, with sessions that it can drop and scripted answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

Answer = tuple[int, dict[str, str], bytes]


class WebServer:
    """Uses the older protocol, with one session at a time. `told` answers instead, if it is set."""

    def __init__(self) -> None:
        self.url = ""
        self.told: Callable[[str], Answer | None] = lambda method: None
        """Gets the method of a message, or of the request if it is not a message."""
        self.heard: list[tuple[str, dict[str, str]]] = []
        """Methods, with the headers of their requests."""
        self.session = 0
        self.alive: str | None = None
        self.tools: list[dict[str, object]] = [
            {"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "hang")
        ]
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[WebServer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        try:
            yield self
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._talk(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._exchange(reader, writer)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *lines = head.decode().strip().split("\r\n")
                headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                answer = await self._answer(first.split()[0], headers, body)
                if answer is None:
                    break
                status, more, content = answer
                more = {"content-type": "application/json", "content-length": str(len(content)), **more}
                fields = "".join(f"{k}: {v}\r\n" for k, v in more.items())
                writer.write(f"HTTP/1.1 {status} x\r\n{fields}\r\n".encode() + content)

    async def _answer(self, verb: str, headers: dict[str, str], body: bytes) -> Answer | None:
        message = json.loads(body) if body else {}
        method = message.get("method", verb)
        self.heard.append((method, headers))
        if (told := self.told(method)) is not None:
            return None if told[0] == 0 else told
        if verb != "POST":
            return (405 if verb == "GET" else 200), {}, b""
        if method == "initialize":
            self.session += 1
            self.alive = f"session-{self.session}"
        elif method != "server/discover" and headers.get("mcp-session-id") != self.alive:
            return 404, {}, b""
        if "id" not in message:
            return 202, {}, b""
        if method == "tools/call" and message["params"]["name"] == "hang":
            await asyncio.sleep(60)
        said = {"jsonrpc": "2.0", "id": message["id"], **self._say(method, message.get("params") or {})}
        return 200, {"mcp-session-id": self.alive or ""}, json.dumps(said).encode()

    def _say(self, method: str, params: dict[str, dict[str, object]]) -> dict[str, object]:
        if method == "initialize":
            about = {"name": "web", "version": "1"}
            return {
                "result": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {"tools": {}},
                    "serverInfo": about,
                }
            }
        if method == "tools/list":
            return {"result": {"tools": self.tools}}
        if method == "tools/call":
            return {"result": {"content": [{"type": "text", "text": str(params["arguments"].get("word"))}]}}
        return {"error": {"code": -32601, "message": "no such method"}}
