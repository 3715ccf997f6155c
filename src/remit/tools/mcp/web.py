"""A server that runs somewhere else, reached by streamable HTTP. TLS is verified; redirects stay within its origin."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import msgspec

from remit.messages import JsonObject
from remit.tools.mcp.failure import Veil
from remit.tools.mcp.link import MOST_MESSAGE

if TYPE_CHECKING:
    import httpx2

    from remit.tools.mcp.link import Streams

CONNECT_S = 15.0
NOTIFY_S = 10.0
"""For messages that are not answered: the next one waits for them."""

_ERROR_BYTES = 64_000
_SESSION = "mcp-session-id"

UNREACHED = -32_010
"""Our own code, for a request that did not get through."""
FAILED = -32_011
"""Our own code, for one that was answered with no message."""
NO_ANSWER = (UNREACHED, FAILED)
LOST = -32_012
"""Our own code, for a session that the server no longer knows."""


class WebLink:
    """A connection to a server by HTTP, and what went wrong with it."""

    def __init__(self, url: str, headers: Mapping[str, str], veil: Veil) -> None:
        self._url = url
        self._headers = dict(headers)
        self._veil = veil

    @asynccontextmanager
    async def connected(self, lost: Callable[[], None]) -> AsyncGenerator[Streams]:
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - imported by now

        # A session that the server forgets is told by the call that meets it: others may still be answered.
        del lost
        async with (
            _client(self._headers, self._veil) as client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=MOST_MESSAGE) as streams,
        ):
            yield streams

    def ending(self) -> str:
        return ""


def _client(headers: Mapping[str, str], veil: Veil) -> httpx2.AsyncClient:
    import httpx2  # noqa: PLC0415 - imported by now

    class Client(httpx2.AsyncClient):
        """Answers in the server's place where no answer came, so that one failed request fails one call alone."""

        async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
            if _is_notification(request):
                times = cast(JsonObject, request.extensions.get("timeout", {}))
                request.extensions = {**request.extensions, "timeout": {**times, "read": NOTIFY_S}}
            try:
                response = await super().send(request, **options)
            except httpx2.HTTPError as error:
                return _instead(request, HTTPStatus.SERVICE_UNAVAILABLE, UNREACHED, _unreached(veil, error))
            if response.status_code < HTTPStatus.BAD_REQUEST or request.method != "POST":
                _bound(response)
                return response
            return await self._refused(request, response)

        async def _refused(self, request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
            body = await _head(response)
            said = _rpc_error(body)
            if request.headers.get(_SESSION) and _forgot(response.status_code, said):
                return _instead(request, response.status_code, LOST, "the session is lost")
            if said is not None:
                return _instead(request, response.status_code, cast(int, said["code"]), str(said["message"]))
            return _instead(request, response.status_code, FAILED, _status_words(response.status_code))

    time = httpx2.Timeout(CONNECT_S, read=None, pool=None)
    return Client(headers=dict(headers), timeout=time, follow_redirects=False)


def _is_notification(request: httpx2.Request) -> bool:
    if request.method != "POST" or len(request.content) > 4096:
        return False
    try:
        message: object = msgspec.json.decode(request.content)
    except msgspec.DecodeError:
        return False
    return isinstance(message, dict) and "id" not in message


def _instead(request: httpx2.Request, status: int, code: int, message: str) -> httpx2.Response:
    import httpx2  # noqa: PLC0415 - imported by now

    error = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
    return httpx2.Response(status, json=error, request=request)


def _unreached(veil: Veil, error: Exception) -> str:
    kind = type(error).__name__
    return f"it cannot be reached ({': '.join(filter(None, [kind, veil.quote(str(error), 200)]))})"


async def _head(response: httpx2.Response) -> bytes:
    """As much of the body as an error message needs; what fails while it is read says nothing more."""
    import httpx2  # noqa: PLC0415 - imported by now

    body = bytearray()
    try:
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _ERROR_BYTES:
                break
    except httpx2.HTTPError:
        pass
    finally:
        await response.aclose()
    return bytes(body)


def _rpc_error(body: bytes) -> JsonObject | None:
    """The error of a JSON-RPC answer, if that is what it is."""
    try:
        answer: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    error = cast(JsonObject, answer).get("error") if isinstance(answer, dict) else None
    if not isinstance(error, dict):
        return None
    found = cast(JsonObject, error)
    code, message = found.get("code"), found.get("message")
    return (
        found if isinstance(code, int) and not isinstance(code, bool) and isinstance(message, str) else None
    )


def _forgot(status: int, said: JsonObject | None) -> bool:
    if status == HTTPStatus.NOT_FOUND:
        return True
    # Some servers answer a session they do not know with a plain 400.
    return status == HTTPStatus.BAD_REQUEST and said is not None and "session" in str(said["message"]).lower()


def _status_words(status: int) -> str:
    try:
        name = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        name = f"HTTP {status}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"it answered {name}: give what it asks for with headers or headers_from"
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return (
            f"it answered {name}: there is no streamable HTTP server at this address. "
            "One that speaks only the older SSE way cannot be used"
        )
    return f"it answered {name}"


def _bound(response: httpx2.Response) -> None:
    """Have a plain JSON answer that is too long, or breaks off, fail the call it belongs to and nothing else."""
    import httpx2  # noqa: PLC0415 - imported by now

    if not response.headers.get("content-type", "").lower().startswith("application/json"):
        return
    source = cast(httpx2.AsyncByteStream, response.stream)

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            try:
                async for piece in source:
                    size += len(piece)
                    if size > MOST_MESSAGE:
                        raise httpx2.StreamError(f"it sent a message of more than {MOST_MESSAGE:,} bytes")
                    yield piece
            except httpx2.TransportError as error:
                raise httpx2.StreamError(f"its answer broke off ({type(error).__name__})") from error

        async def aclose(self) -> None:
            await source.aclose()

    response.stream = Bounded()
