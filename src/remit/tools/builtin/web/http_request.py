"""One HTTP request to checked addresses, with bounds on the whole response.

It uses httpcore, the layer below httpx: no redirects, proxies, cookies, credentials or environment to turn off.
"""

from __future__ import annotations

import functools
import ssl
import zlib
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import NamedTuple, cast

import anyio
import anyio.lowlevel
import httpcore2

from remit.tools.builtin.web.urls import Address, Target
from remit.tools.words import Refused, show

CONNECT_S = 5
"""Seconds to connect to one address if there is another to try."""
MOST_PIECE = 1_000_000
"""The most bytes that are decompressed at once."""
_ROUND = 200
"""Pieces of a body between two checkpoints: tiny pieces that arrive together would block the event loop."""

_WINDOW_BITS = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class HttpResponse(NamedTuple):
    """A server's response. Header names are lower case; if a name repeats, the first counts."""

    status: int
    headers: Mapping[str, str]
    body: AsyncGenerator[bytes, None]


async def connect(address: Address, port: int) -> httpcore2.AsyncNetworkStream:
    """Connect to exactly this address."""
    return await cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend()).connect_tcp(str(address), port)


class _Dialer(httpcore2.AsyncNetworkBackend):
    """Connects to the checked addresses, without looking up the host's name again."""

    def __init__(self, addresses: Sequence[Address], port: int) -> None:
        self._addresses = addresses
        self._port = port
        self._made: list[httpcore2.AsyncNetworkStream] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's signature
        local_address: str | None = None,
        socket_options: Iterable[object] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        del host, port, timeout, local_address, socket_options
        *others, last = self._addresses
        for address in others:
            try:
                with anyio.fail_after(CONNECT_S):
                    return await self._connect(address)
            except (httpcore2.ConnectError, TimeoutError):
                continue
        return await self._connect(last)

    async def _connect(self, address: Address) -> httpcore2.AsyncNetworkStream:
        stream = await connect(address, self._port)
        self._made.append(stream)
        return stream

    async def close(self) -> None:
        for stream in self._made:
            await stream.aclose()


@functools.cache
def _tls() -> ssl.SSLContext:
    """The system's certificates, or those of SSL_CERT_FILE. Cached: reading them is slow."""
    return httpcore2.default_ssl_context()


@asynccontextmanager
async def ask(
    target: Target, addresses: Sequence[Address], headers: Mapping[str, str]
) -> AsyncGenerator[HttpResponse, None]:
    """GET a page from one of these addresses. Raises Refused for every failure, also while the body is read."""
    sent = {"Host": target.authority, **headers, "Accept-Encoding": "gzip, deflate", "Connection": "close"}
    url = httpcore2.URL(
        scheme=target.scheme.encode(),
        host=target.host.encode(),
        port=target.port,
        target=target.path.encode(),
    )
    dialer = _Dialer(addresses, target.port)
    context = _tls() if target.scheme == "https" else None
    pool = httpcore2.AsyncConnectionPool(ssl_context=context, network_backend=dialer)
    try:
        async with pool, pool.stream("GET", url, headers=list(sent.items())) as response:
            got = _read_headers(response.headers)
            yield HttpResponse(response.status, got, _unpacked(response, got.get("content-encoding", "")))
    except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
        raise Refused(_message(error, target)) from None
    finally:
        # The pool does not close a connection that is cancelled during the TLS handshake.
        with anyio.CancelScope(shield=True):
            await dialer.close()


async def read_body(body: AsyncGenerator[bytes, None], most: int) -> tuple[bytes, bool]:
    """The first `most` bytes of a body, and whether that is all of it."""
    data = bytearray()
    async with aclosing(body) as pieces:
        async for piece in pieces:
            data += piece
            if len(data) > most:
                return bytes(data[:most]), False
    return bytes(data), True


def _read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in raw:
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = value.decode("latin-1")
        found.setdefault(name.decode("latin-1").lower(), text.strip())
    return found


async def _unpacked(response: httpcore2.Response, encoding: str) -> AsyncGenerator[bytes, None]:
    encoding = encoding.lower()
    if encoding not in ("", "identity", *_WINDOW_BITS):
        raise Refused(f"The server used an unsupported content encoding: {show(encoding[:40])}.")
    unpacker = _Unpacker(_WINDOW_BITS[encoding]) if encoding in _WINDOW_BITS else None
    number = 0
    async with aclosing(response.aiter_stream()) as pieces:
        async for piece in pieces:
            for part in (piece,) if unpacker is None else unpacker.unpack(piece):
                number += 1
                if number % _ROUND == 0 or len(part) == MOST_PIECE:
                    await anyio.lowlevel.checkpoint()
                yield part


class _Unpacker:
    """Decompresses gzip and deflate in pieces of bounded size, whatever the compression ratio."""

    def __init__(self, bits: int) -> None:
        self._bits = bits
        self._stream = zlib.decompressobj(bits)
        self._begun = False

    def unpack(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream.eof:
                # gzip data may be several streams in sequence; anything else after a stream is padding.
                if self._bits != 31 or not data.startswith(b"\x1f"):
                    return
                self._stream = zlib.decompressobj(self._bits)
            try:
                part = self._stream.decompress(data, MOST_PIECE) if self._begun else self._first(data)
            except zlib.error:
                raise Refused(
                    "The server's answer is damaged: its compressed data cannot be decompressed."
                ) from None
            self._begun = True
            yield part
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail

    def _first(self, data: bytes) -> bytes:
        try:
            return self._stream.decompress(data, MOST_PIECE)
        except zlib.error:
            if self._bits != 15:
                raise
            # Some servers send deflate without the zlib header.
            self._bits = -15
            self._stream = zlib.decompressobj(self._bits)
            return self._stream.decompress(data, MOST_PIECE)


def _message(error: Exception, target: Target) -> str:
    causes = list(_causes(error))
    at = f"{target.host}" if target.authority == target.host else target.authority
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = show(cause.verify_message or "it could not be verified").rstrip(".")
            return f"The certificate of {at} is not valid: {why}. Nothing was fetched."
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return f"The TLS connection to {at} failed. Is it an https server?"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return f"{at} refused the connection on port {target.port}."
    if isinstance(error, httpcore2.ConnectError | httpcore2.ConnectTimeout):
        return f"{at} could not be reached."
    if isinstance(error, httpcore2.ProtocolError):
        return f"{at} sent an invalid HTTP response: {show(str(error)[:200])}."
    return f"The connection to {at} was lost before the answer was complete."


def _causes(error: BaseException) -> Iterator[BaseException]:
    left: list[BaseException | None] = [error]
    for _ in range(50):
        if not left:
            return
        cause = left.pop()
        if cause is None:
            continue
        yield cause
        left += [cause.__cause__, cause.__context__]
        if isinstance(cause, BaseExceptionGroup):
            left += cast(BaseExceptionGroup[BaseException], cause).exceptions
