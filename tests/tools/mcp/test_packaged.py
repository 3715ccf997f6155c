"""A server with the newest protocol, over both transports."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from packaged_server import make
from workshop import HERE, Shop, Tree, until

from remit.tools.mcp import McpServer
from remit.tools.tool import BadArguments

pytestmark = pytest.mark.real_time


@pytest.fixture
def address() -> Iterator[str]:
    config = uvicorn.Config(make().streamable_http_app(), host="127.0.0.1", port=0, log_level="critical")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        threading.Event().wait(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/mcp"
    server.should_exit = True
    thread.join(5)


@pytest.fixture(params=["stdio", "http"])
def server(request: pytest.FixtureRequest, shop: Shop) -> McpServer:
    if request.param == "http":
        return McpServer("packaged", url=request.getfixturevalue("address"))
    return shop.command("packaged", sys.executable, str(HERE / "packaged_server.py"))


async def test_a_server_of_the_newest_protocol(server: McpServer, tmp_path: Path) -> None:
    """Schemas, progress, structured content and cancelling work; the server gets no roots and cannot ask a person."""
    async with Tree(tmp_path) as tree:
        tools = await tree.borrow(server)
        assert tools["dig"].description == "Dig."
        with pytest.raises(BadArguments, match="depth"):
            tools["dig"].check({"depth": "deep"})
        dug = await tree.use(tools["dig"], depth=3)
        assert (dug.ok, dug.details) == (True, {"depth": 3})
        assert tree.said == ["digging (1 of 2)"]

        before = int((await tree.use(tools["count"])).content)
        resting = asyncio.create_task(tree.use(tools["rest"]))
        await asyncio.sleep(0.05)
        resting.cancel()
        await asyncio.wait({resting})

        async def is_stopped() -> bool:
            return int((await tree.use(tools["count"])).content) > before

        await until(is_stopped)
        where = await tree.use(tools["where"])
        assert not where.ok
        assert "roots = true" in where.content
        asked = await tree.use(tools["who"])
        assert not asked.ok
        assert "asked for a person or a model" in asked.content


async def test_a_server_with_roots_gets_them_in_a_second_round(shop: Shop, tmp_path: Path) -> None:
    """A server that asks for roots before it answers gets the workspace if it is configured with `roots`."""
    given = shop.command("packaged", sys.executable, str(HERE / "packaged_server.py"))
    server = McpServer("packaged", command=sys.executable, args=given.args, env=dict(given.env), roots=True)
    async with Tree(tmp_path) as tree:
        tools = await tree.borrow(server)
        assert (await tree.use(tools["where"])).content == f"second: {tmp_path.as_uri()}"
