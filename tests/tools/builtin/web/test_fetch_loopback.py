"""`fetch` with real sockets on loopback: allowed private hosts, and no leftover connections."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.lowlevel
import pytest
from netbench import page, path_of, use

import remit.tools.builtin.web.addresses as addresses
from remit.tools.builtin.web.fetch import make_fetch
from remit.tools.builtin.web.http_request import read_body

pytestmark = pytest.mark.real_time
here = make_fetch(private=["127.0.0.1", "localhost"], seconds=20)


class Server:
    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[str] = []
        self.open = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"


@asynccontextmanager
async def serving(answers: dict[str, bytes], greeting: bytes = b"") -> AsyncIterator[Server]:
    """A server on loopback; a path without a prepared answer is never answered."""
    made: list[Server] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = made[0]
        server.open += 1
        try:
            writer.write(greeting)
            request = await reader.readuntil(b"\r\n\r\n")
            server.asked.append(path_of(request))
            if path_of(request) in answers:
                writer.write(answers[path_of(request)])
                await writer.drain()
                writer.write_eof()
            await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            server.open -= 1
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        made.append(Server(listening.sockets[0].getsockname()[1]))
        yield made[0]


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(5):
        while not condition():  # noqa: ASYNC110 - waits for the other side of a socket
            await anyio.sleep(0.005)


async def gone(server: Server) -> None:
    """Wait until no connection is open."""
    await until(lambda: not server.open)


async def test_a_page_over_a_real_socket() -> None:
    """A compressed and redirected page arrives as with the fake network."""
    answers = {
        "/": page("", status=302, Location="/next"),
        "/next": page(gzip.compress(b"<h1>Hi"), "text/html", Content_Encoding="gzip"),
    }
    async with serving(answers) as server:
        result = await use(server.url("/"), here)
        assert result.content.endswith("\n\n# Hi")
        assert server.asked == ["/", "/next"]
        await gone(server)


async def test_a_private_name_can_be_allowed() -> None:
    """localhost can be reached only if `private` lists it, through the system's own lookup."""
    async with serving({"/": page("hi")}) as server:
        url = f"http://localhost:{server.port}/"
        assert (await use(url, here)).content.endswith("\n\nhi")
        assert not (await use(url)).ok
        assert not (await use(server.url("/"))).ok
        assert server.asked == ["/"]
        await gone(server)


async def test_cancelling_and_time_close_the_socket() -> None:
    """A cancel and a timeout both close the connection to a server that never answers."""
    async with serving({}) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(use, server.url("/"), here)
            await until(lambda: bool(server.asked))
            group.cancel_scope.cancel()
        await gone(server)
        result = await use(server.url("/"), make_fetch(private=["127.0.0.1"], seconds=0.05))
        assert "timed out" in result.content
        await gone(server)


async def test_nobody_listens() -> None:
    """The result for a port without a server says that the connection was refused."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        result = await use(f"http://127.0.0.1:{port}/", here)
        assert result.content == f"127.0.0.1:{port} refused the connection on port {port}."


async def test_https_with_a_server_that_has_none() -> None:
    """A server without TLS gives a failed result with a message."""
    async with serving({"/": page("hi")}) as server:
        result = await use(
            f"https://127.0.0.1:{server.port}/", make_fetch(private=["127.0.0.1"], seconds=0.5)
        )
        assert not result.ok
        await gone(server)


async def test_a_body_of_tiny_chunks_does_not_block_the_loop() -> None:
    """Other tasks run while a body of many tiny chunks is read."""
    crumbs = b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 30_000 + b"0\r\n\r\n"
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await anyio.lowlevel.checkpoint()
            turns += 1

    async with serving({"/": crumbs}) as server, anyio.create_task_group() as group:
        group.start_soon(count)
        assert "30 KB" in (await use(server.url("/"), here)).content
        group.cancel_scope.cancel()
    assert turns > 100


async def test_a_lookup_that_hangs_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call whose lookup hangs times out, and nothing waits for the thread."""
    release = threading.Event()

    def stuck(*args: object, **kwargs: object) -> list[object]:
        release.wait(5)
        return []

    monkeypatch.setattr(addresses.socket, "getaddrinfo", stuck)
    try:
        result = await use("https://site.example.org/", make_fetch(seconds=0.05))
        assert "while looking up site.example.org" in result.content
    finally:
        release.set()


async def test_reading_stops_at_the_limit() -> None:
    """A body is closed as soon as the limit is reached."""
    closed: list[bool] = []

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x" * 10
        finally:
            closed.append(True)

    assert await read_body(endless(), 25) == (b"x" * 25, False)
    assert closed == [True]
