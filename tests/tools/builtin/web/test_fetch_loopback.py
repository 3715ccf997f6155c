"""`fetch` with real sockets, on loopback: what it is opened for, and that nothing stays behind."""

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
    """A server on loopback; a path it has no answer for is never answered."""
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
        while not condition():  # noqa: ASYNC110 - what is waited for is the other side of a socket
            await anyio.sleep(0.005)


async def gone(server: Server) -> None:
    """Until no connection is open."""
    await until(lambda: not server.open)


async def test_a_page_over_a_real_socket() -> None:
    """A page, packed and redirected, arrives as it does from the fakes."""
    answers = {
        "/": page("", status=302, Location="/next"),
        "/next": page(gzip.compress(b"<h1>Hi"), "text/html", Content_Encoding="gzip"),
    }
    async with serving(answers) as server:
        result = await use(server.url("/"), here)
        assert result.content.endswith("\n\n# Hi")
        assert server.asked == ["/", "/next"]
        await gone(server)


async def test_a_private_name_can_be_opened() -> None:
    """localhost is reached where a caller opened it, through the system's own lookup, and nowhere else."""
    async with serving({"/": page("hi")}) as server:
        url = f"http://localhost:{server.port}/"
        assert (await use(url, here)).content.endswith("\n\nhi")
        assert not (await use(url)).ok
        assert not (await use(server.url("/"))).ok
        assert server.asked == ["/"]
        await gone(server)


async def test_cancelling_and_time_close_the_socket() -> None:
    """A server that never answers is left when the call is cancelled, and when its time is up."""
    async with serving({}) as server:
        async with anyio.create_task_group() as group:
            group.start_soon(use, server.url("/"), here)
            await until(lambda: bool(server.asked))
            group.cancel_scope.cancel()
        await gone(server)
        result = await use(server.url("/"), make_fetch(private=["127.0.0.1"], seconds=0.05))
        assert "took too long" in result.content
        await gone(server)


async def test_nobody_listens() -> None:
    """A port where nothing answers is said to be one."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        result = await use(f"http://127.0.0.1:{port}/", here)
        assert result.content == f"127.0.0.1:{port} refused the connection: nothing answers on port {port}."


async def test_https_with_a_server_that_has_none() -> None:
    """A server that does not speak TLS is a failure in words."""
    async with serving({"/": page("hi")}) as server:
        result = await use(
            f"https://127.0.0.1:{server.port}/", make_fetch(private=["127.0.0.1"], seconds=0.5)
        )
        assert not result.ok
        await gone(server)


async def test_a_body_in_crumbs_leaves_the_loop_free() -> None:
    """A body of very many tiny chunks does not keep others from their turn."""
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


async def test_a_lookup_that_hangs_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name whose lookup never returns costs the call its time, and nothing waits for the thread."""
    release = threading.Event()

    def stuck(*args: object, **kwargs: object) -> list[object]:
        release.wait(5)
        return []

    monkeypatch.setattr(addresses.socket, "getaddrinfo", stuck)
    try:
        result = await use("https://site.example.org/", make_fetch(seconds=0.05))
        assert "still looking up site.example.org" in result.content
    finally:
        release.set()


async def test_reading_stops_at_the_limit() -> None:
    """A body is closed as soon as there is enough of it."""
    closed: list[bool] = []

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b"x" * 10
        finally:
            closed.append(True)

    assert await read_body(endless(), 25) == (b"x" * 25, False)
    assert closed == [True]
