"""A client for the page's ASGI app, without a socket, and journals to show in it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

TOKEN = "a-token-that-only-the-tests-know"
HOST = "127.0.0.1:8378"


class Answer(NamedTuple):
    """What the app answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return self.json["error"]


class Patch(NamedTuple):
    """One message of a stream."""

    kind: str
    id: str
    data: Any


def scope(path: str, headers: Mapping[str, str], method: str = "GET", query: str = "") -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8378),
    }


class Client:
    """Asks an app. Its requests have the token, unless `headers` replace them."""

    def __init__(self, app: Any, *, headers: Mapping[str, str] | None = None) -> None:
        self.app = app
        self.headers = {"Host": HOST, "Authorization": f"Bearer {TOKEN}"} if headers is None else headers

    async def get(self, path: str, query: str = "", **headers: str) -> Answer:
        return await self.ask("GET", path, query, headers=headers)

    async def post(self, path: str, body: object, **headers: str) -> Answer:
        kind = {"Content-Type": "application/json"}
        return await self.ask("POST", path, body=[json.dumps(body).encode()], headers=kind | headers)

    async def ask(
        self,
        method: str,
        path: str,
        query: str = "",
        *,
        body: Sequence[bytes] = (b"",),
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        given = dict(self.headers) | {k.replace("_", "-"): v for k, v in (headers or {}).items()}
        pieces = [
            {"type": "http.request", "body": piece, "more_body": n + 1 < len(body)}
            for n, piece in enumerate(body)
        ]
        sent: list[Any] = []

        async def receive() -> Any:
            if pieces:
                return pieces.pop(0)
            await asyncio.sleep(60)
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope(path, given, method, query), receive, send)
        start = sent[0]
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], found, b"".join(one.get("body", b"") for one in sent[1:]))

    @asynccontextmanager
    async def stream(self, path: str, **headers: str) -> AsyncIterator[AsyncIterator[Patch]]:
        """The messages of a stream; the client goes away at the end of the block."""
        given = dict(self.headers) | {k.replace("_", "-"): v for k, v in headers.items()}
        heard: asyncio.Queue[bytes | None] = asyncio.Queue()
        gone = asyncio.Event()

        async def receive() -> Any:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert message["status"] == 200
            elif message.get("body"):
                heard.put_nowait(message["body"])
            if message["type"] == "http.response.body" and not message.get("more_body"):
                heard.put_nowait(None)

        task = asyncio.create_task(self.app(scope(path, given), receive, send))
        try:
            yield _messages(heard)
        finally:
            gone.set()
            await asyncio.wait_for(task, 5)


async def _messages(heard: asyncio.Queue[bytes | None]) -> AsyncIterator[Patch]:
    while (piece := await asyncio.wait_for(heard.get(), 10)) is not None:
        found = read_message(piece.decode())
        if found is not None:
            yield found


def read_message(text: str) -> Patch | None:
    """A server-sent event; None for a comment."""
    fields = dict(line.split(": ", 1) for line in text.strip().splitlines() if not line.startswith(":"))
    if "data" not in fields:
        return None
    return Patch(fields.get("event", ""), fields.get("id", ""), json.loads(fields["data"]))
