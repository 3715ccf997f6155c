"""Servers over HTTP: their requests, their failures, and that a failure affects one call only."""

from __future__ import annotations

import asyncio
import socket

import pytest
from web_server import Answer, WebServer
from workshop import Tree, until

from remit.tools.mcp import McpServer

pytestmark = pytest.mark.real_time

SECRET = "tok-0123456789"


async def test_headers_go_with_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Given headers and headers from the environment are sent with every request; closing notifies the server."""
    monkeypatch.setenv("WEB_TOKEN", SECRET)
    monkeypatch.setenv("WEB_KEY", "k-1")
    async with WebServer().serving() as web:
        server = McpServer(
            "web",
            url=web.url,
            headers={"X-Given": "yes"},
            headers_from={"Authorization": "Bearer ${WEB_TOKEN}", "X-Key": "WEB_KEY"},
        )
        async with Tree() as tree:
            tools = await tree.borrow(server)
            assert (await tree.use(tools["echo"], word="hi")).content == "hi"
        sent = [(h.get("x-given"), h.get("authorization"), h.get("x-key")) for _, h in web.heard]
        assert set(sent) == {("yes", f"Bearer {SECRET}", "k-1")}
        assert web.heard[-1][0] == "DELETE"


async def test_a_header_with_an_unset_variable() -> None:
    """The message names the variable, and nothing is sent."""
    server = McpServer(
        "web", url="http://127.0.0.1:9/mcp", headers_from={"Authorization": "Bearer ${NOT_SET_HERE}"}
    )
    async with Tree() as tree:
        assert (
            "Authorization needs the environment variable NOT_SET_HERE" in (await tree.choose(server)).trouble
        )


def refuse(status: int) -> Answer:
    return status, {"content-type": "text/html"}, b"<h1>no</h1>"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refuse(401), "HTTP 401 Unauthorized: pass credentials with headers"),
        (refuse(404), "Servers with only the older SSE transport are unsupported"),
        (refuse(405), "Servers with only the older SSE transport are unsupported"),
        (refuse(500), "HTTP 500 Internal Server Error"),
        ((200, {"content-type": "text/html"}, b"<h1>hello</h1>"), "Unexpected content type: text/html"),
        (
            (302, {"location": "http://example.com/elsewhere"}, b""),
            "Redirect to http://example.com/elsewhere not followed",
        ),
        ((0, {}, b""), "the server cannot be reached (RemoteProtocolError"),
    ],
)
async def test_messages_for_unusable_servers(answer: Answer, words: str) -> None:
    """Opening fails with a message for the status; a secret in the address is not in it."""
    async with WebServer().serving() as web:
        web.told = lambda method: answer
        async with Tree() as tree:
            choice = await tree.choose(McpServer("web", url=f"{web.url}?key={SECRET}"))
    assert words in choice.trouble
    assert SECRET not in choice.trouble


async def test_an_unreachable_server_is_tried_once() -> None:
    """A second kind of handshake would wait for the same timeout again."""
    async with WebServer().serving() as web, Tree() as tree:
        web.told = lambda method: (0, {}, b"")
        await tree.choose(McpServer("web", url=web.url))
    assert [method for method, _ in web.heard] == ["server/discover"]


async def test_a_refused_connection() -> None:
    """A refused connection is reported as such."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/mcp"
        async with Tree() as tree:
            choice = await tree.choose(McpServer("web", url=url))
    assert choice.trouble.startswith("the server cannot be reached (ConnectError")


async def test_a_request_that_breaks_off_fails_one_call() -> None:
    """A concurrent call continues, and the next one works, in the same session."""
    async with WebServer().serving() as web, Tree() as tree:
        tools = await tree.borrow(McpServer("web", url=web.url))
        hanging = asyncio.create_task(tree.use(tools["hang"]))
        await until(lambda: web.heard[-1][0] == "tools/call")
        web.told = lambda method: (0, {}, b"") if method == "tools/call" else None
        broken = await tree.use(tools["echo"], word="x")
        assert not broken.ok
        assert (
            "failed during this call, which may have been executed in part or completely: the server cannot be reached"
            in broken.content
        )
        web.told = lambda method: None
        assert (await tree.use(tools["echo"], word="y")).content == "y"
        assert not hanging.done()
        assert web.session == 1
        hanging.cancel()
        await asyncio.wait({hanging})


async def test_an_unknown_session_is_started_again() -> None:
    """The call was not executed, so it is sent again in a new session; the model does not notice."""
    async with WebServer().serving() as web, Tree() as tree:
        tools = await tree.borrow(McpServer("web", url=web.url))
        web.alive = None
        assert (await tree.use(tools["echo"], word="again")).content == "again"
        assert web.session == 2


async def test_the_server_is_notified_of_a_cancelled_call() -> None:
    """The notification is sent, and the next call is answered."""
    async with WebServer().serving() as web, Tree() as tree:
        tools = await tree.borrow(McpServer("web", url=web.url))
        hanging = asyncio.create_task(tree.use(tools["hang"]))
        await until(lambda: web.heard[-1][0] == "tools/call")
        hanging.cancel()
        await asyncio.wait({hanging})
        assert (await tree.use(tools["echo"], word="next")).content == "next"
        assert "notifications/cancelled" in [method for method, _ in web.heard]


async def test_an_answer_without_end_fails_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message beyond the bound is not kept in memory, and is reported."""
    monkeypatch.setattr("remit.tools.mcp.http_transport.MOST_MESSAGE", 10_000)
    async with WebServer().serving() as web, Tree() as tree:
        tools = await tree.borrow(McpServer("web", url=web.url))
        long = await tree.use(tools["echo"], word="x" * 20_000)
        assert not long.ok
        assert "more than 10,000 bytes" in long.content
        assert (await tree.use(tools["echo"], word="short")).content == "short"
