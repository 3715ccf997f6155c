"""Connect to a server over streamable HTTP. TLS is verified; redirects stay within its origin."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

import msgspec

from remit.tools.mcp.failure import Veil
from remit.tools.mcp.transport import LARGE_MESSAGE, MOST_MESSAGE, too_dense
from remit.types.messages import JsonObject

if TYPE_CHECKING:
    import httpx2

    from remit.tools.mcp.transport import Streams

CONNECT_S = 15.0
NOTIFY_S = 10.0
"""The read timeout for notifications, which get no answer: the next message waits for them."""

_ERROR_BYTES = 64_000
_SESSION = "mcp-session-id"
_EVENT_END = re.compile(rb"\r?\n\r?\n|\r\r")
_UNKNOWN = re.compile(
    r"(?:bad request\W+)?(?:"
    r"(?:no valid|invalid|unknown|missing|expired) session(?: id)?(?: provided)?"
    r"|session(?: id)? (?:is )?(?:not found|unknown|invalid|expired|terminated|missing|required)"
    r")\W*",
    re.IGNORECASE,
)

_OWN_CODE = -32_000
# Never sent, so that no server can forge these errors.
_OWN_MARK = secrets.token_hex(16)


class LocalError(StrEnum):
    """Why remit created an error response instead of the server."""

    UNREACHED = "unreached"
    """The request did not reach the server."""
    FAILED = "failed"
    """The response contains no message."""
    LOST = "lost"
    """The server no longer knows the session."""


def local_error(error: object) -> LocalError | None:
    """Why remit created this error; None for an error from the server itself, whatever its code."""
    data: object = getattr(error, "data", None)
    if not isinstance(data, dict) or cast(JsonObject, data).get("mark") != _OWN_MARK:
        return None
    return LocalError(str(cast(JsonObject, data)["why"]))


class WebLink:
    """A connection to a server over HTTP."""

    def __init__(self, url: str, headers: Mapping[str, str], veil: Veil) -> None:
        self._url = url
        self._headers = dict(headers)
        self._veil = veil

    @asynccontextmanager
    async def connected(self, lost: Callable[[], None]) -> AsyncGenerator[Streams]:
        from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415 - imported by now

        # The call that meets a forgotten session reports it; other calls may still be answered.
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
        """Creates an error response if none came, so that one failed request fails only one call."""

        async def send(
            self, request: httpx2.Request, *, stream: bool = False, **options: Any
        ) -> httpx2.Response:
            if _is_notification(request):
                times = cast(JsonObject, request.extensions.get("timeout", {}))
                request.extensions = {**request.extensions, "timeout": {**times, "read": NOTIFY_S}}
            try:
                response = await super().send(request, stream=True, **options)
            except httpx2.HTTPError as error:
                words = _unreached(veil, error)
                return _ours(request, HTTPStatus.SERVICE_UNAVAILABLE, LocalError.UNREACHED, words)
            # Without this header, httpx does not decompress the body.
            packing = response.headers.pop("content-encoding", "identity").strip().lower()
            if not stream:
                return httpx2.Response(response.status_code, content=await _head(response), request=request)
            return await _taken(request, response, veil.quote(packing, 40))

    time = httpx2.Timeout(CONNECT_S, read=None, pool=None)
    # No compression: a limit on compressed bytes would not limit the decompressed size.
    asked = {**headers, "accept-encoding": "identity"}
    return Client(headers=asked, timeout=time, follow_redirects=False)


async def _taken(request: httpx2.Request, response: httpx2.Response, packing: str) -> httpx2.Response:
    """The response if it can be used, otherwise an error response."""
    if request.method != "POST":
        _bound(response)
        return response
    if response.status_code >= HTTPStatus.BAD_REQUEST:
        return await _refused(request, response)
    if packing not in ("", "identity"):
        await response.aclose()
        words = f"the server sent a compressed answer ({packing}), although remit accepts none"
        return _ours(request, HTTPStatus.BAD_GATEWAY, LocalError.FAILED, words)
    _bound(response)
    return response


async def _refused(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    status = response.status_code
    said = _rpc_error(await _head(response))
    if request.headers.get(_SESSION) and _forgot(status, said):
        return _ours(request, status, LocalError.LOST, "the session is lost")
    if said is not None:
        return _answer(request, status, {"code": said["code"], "message": said["message"]})
    return _ours(request, status, LocalError.FAILED, _status_words(status))


def _is_notification(request: httpx2.Request) -> bool:
    if request.method != "POST" or len(request.content) > 4096:
        return False
    try:
        message: object = msgspec.json.decode(request.content)
    except msgspec.DecodeError:
        return False
    return isinstance(message, dict) and "id" not in message


def _ours(request: httpx2.Request, status: int, why: LocalError, message: str) -> httpx2.Response:
    error: JsonObject = {"code": _OWN_CODE, "message": message, "data": {"mark": _OWN_MARK, "why": why.value}}
    return _answer(request, status, error)


def _answer(request: httpx2.Request, status: int, error: JsonObject) -> httpx2.Response:
    import httpx2  # noqa: PLC0415 - imported by now

    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


def _unreached(veil: Veil, error: Exception) -> str:
    kind = type(error).__name__
    return f"the server cannot be reached ({': '.join(filter(None, [kind, veil.quote(str(error), 200)]))})"


async def _head(response: httpx2.Response) -> bytes:
    """The beginning of the body, for an error message; a failure while reading ends it."""
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
    """The error of a JSON-RPC response; None if the body is not one."""
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
    # Some servers answer an unknown session with status 400 and such a message.
    return (
        status == HTTPStatus.BAD_REQUEST
        and said is not None
        and bool(_UNKNOWN.fullmatch(str(said["message"])))
    )


def _status_words(status: int) -> str:
    try:
        name = f"HTTP {status} {HTTPStatus(status).phrase}"
    except ValueError:
        name = f"HTTP {status}"
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return f"the server answered {name}: pass credentials with headers or headers_from"
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED):
        return (
            f"the server answered {name}: there is no streamable HTTP server at this address. "
            "Servers with only the older SSE transport are unsupported"
        )
    return f"the server answered {name}"


def _bound(response: httpx2.Response) -> None:
    """Let an answer that is too long, too complex or incomplete fail only its own call."""
    import httpx2  # noqa: PLC0415 - imported by now

    source = cast(httpx2.AsyncByteStream, response.stream)
    kind = response.headers.get("content-type", "").lower()
    if not kind.startswith(("application/json", "text/event-stream")):
        return
    is_json = kind.startswith("application/json")
    # For these errors the package fails the call instead of waiting for more data.
    failed = httpx2.StreamError if is_json else httpx2.SSEError

    class Bounded(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            messages = _Messages(None if is_json else _EVENT_END)
            try:
                async for piece in source:
                    if ready := messages.add(piece):
                        yield ready
                yield messages.end()
            except httpx2.TransportError as error:
                raise failed(f"the server's answer was cut off ({type(error).__name__})") from error
            except _TooMuch as error:
                raise failed(str(error)) from None

        async def aclose(self) -> None:
            await source.aclose()

    response.stream = Bounded()


class _TooMuch(Exception):
    """Raised for a message that is too large or too complex to read."""


class _Messages:
    """Buffers received bytes until a message is complete and checked."""

    def __init__(self, end: re.Pattern[bytes] | None) -> None:
        self._end = end
        self._held = bytearray()

    def add(self, piece: bytes) -> bytes:
        """All messages that are now complete. Raises _TooMuch."""
        before = len(self._held)
        self._held += piece
        # Start a little earlier: the end of a message may arrive in two pieces.
        ends = (
            [] if self._end is None else [m.end() for m in self._end.finditer(self._held, max(before - 3, 0))]
        )
        start = 0
        for end in ends:
            self._check(start, end)
            start = end
        if len(self._held) - start > MOST_MESSAGE:
            raise _TooMuch(f"the server sent a message of more than {MOST_MESSAGE:,} bytes")
        ready = bytes(self._held[:start])
        del self._held[:start]
        return ready

    def end(self) -> bytes:
        """The rest. Raises _TooMuch."""
        self._check(0, len(self._held))
        return bytes(self._held)

    def _check(self, start: int, end: int) -> None:
        if end - start > LARGE_MESSAGE and too_dense(self._held[start:end]):
            raise _TooMuch("the server sent a message with too many parts")
