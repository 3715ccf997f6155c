"""Third-party servers: listing, calling, cancelling, crashing, sharing, and no processes left."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from workshop import NEEDS_PROC, Shop, Tree, until

from remit import Agent, ImagePart, Status, ToolMessage, start
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.mcp import McpServer
from remit.types.events import CallStarted

# The first test waits for npm.
pytestmark = [pytest.mark.real_time, NEEDS_PROC, pytest.mark.timeout(300)]

Others = dict[str, Path]


def nodes(shop: Shop) -> set[int]:
    """The node processes of a server, without their supervisor."""
    return {pid for pid in shop.running() if Path(f"/proc/{pid}/exe").readlink().name == "node"}


@pytest.fixture
def everything(shop: Shop, others: Others) -> McpServer:
    return shop.command("every", "node", str(others["everything"]))


@pytest.fixture
def files(shop: Shop, others: Others, tmp_path: Path) -> McpServer:
    (tmp_path / "a.txt").write_text("from the file\n")
    return shop.command("files", "node", str(others["filesystem"]), str(tmp_path))


async def test_everything_is_listed_and_called(everything: McpServer) -> None:
    """Text, structured content, images, resources and progress arrive with their types; unusable tools are named."""
    async with Tree() as tree:
        choice = await tree.choose(everything)
        tools = {tool.name.removeprefix("mcp__every__"): tool for tool in choice.tools}
        assert {"echo", "get-sum", "get-tiny-image", "get-structured-content"} <= set(tools)
        assert "the tool 'simulate-research-query' cannot be used" in choice.trouble
        assert (await tree.use(tools["get-sum"], a=2, b=3)).content == "The sum of 2 and 3 is 5."
        image = await tree.use(tools["get-tiny-image"])
        assert [type(part) for part in image.parts] == [ImagePart]
        assert image.parts[0].data.startswith(b"\x89PNG")
        weather = await tree.use(tools["get-structured-content"], location="Chicago")
        assert isinstance(weather.details, dict)
        assert "temperature" in weather.details
        assert "(link to " in (await tree.use(tools["get-resource-links"], count=1)).content
        bad = await tree.use(tools["get-resource-reference"], resourceType="Text", resourceId=-1)
        assert not bad.ok


async def test_files_of_a_folder(files: McpServer, tmp_path: Path) -> None:
    """The filesystem server reads its folder and refuses paths outside it."""
    async with Tree(tmp_path) as tree:
        tools = await tree.borrow(files)
        assert (
            await tree.use(tools["read_text_file"], path=str(tmp_path / "a.txt"))
        ).content == "from the file\n"
        outside = await tree.use(tools["read_text_file"], path="/etc/hostname")
        assert not outside.ok
        assert "outside" in outside.content


@pytest.mark.parametrize(("roots", "widened"), [(False, False), (True, True)])
async def test_a_filesystem_server_keeps_the_folder_it_was_given(
    shop: Shop, others: Others, tmp_path: Path, roots: bool, widened: bool
) -> None:
    """A server that asks for roots gets the workspace only if it is configured with `roots`."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "a.txt").write_text("inside")
    (tmp_path / "b.txt").write_text("outside")
    given = shop.command("files", "node", str(others["filesystem"]), str(own))
    server = McpServer("files", command="node", args=given.args, env=dict(given.env), roots=roots)
    async with Tree(tmp_path) as tree:
        tools = await tree.borrow(server)

        async def reads(path: Path) -> bool:
            return (await tree.use(tools["read_text_file"], path=str(path))).ok

        if roots:
            # The server asks for them after the session has begun.
            await until(lambda: reads(tmp_path / "b.txt"))
        assert await reads(tmp_path / "b.txt") is widened
        assert await reads(own / "a.txt")
        folders = (await tree.use(tools["list_allowed_directories"])).content
        assert (str(own) in folders.splitlines()) is not widened


async def test_calls_that_are_cancelled_and_a_server_that_is_killed(
    shop: Shop, everything: McpServer
) -> None:
    """A cancelled call does not affect others. After a kill the result names the server and its exit, and it is
    restarted.
    """
    async with Tree() as tree:
        tools = await tree.borrow(everything.with_tools(only=["trigger-long*", "echo"]))
        slow = tools["trigger-long-running-operation"]
        first, second, other = (
            asyncio.create_task(tree.use(slow, duration=seconds, steps=2)) for seconds in (30, 30, 0.2)
        )
        await asyncio.sleep(0.05)
        first.cancel()
        await asyncio.wait({first})
        assert (await tree.use(tools["echo"], message="hi")).content == "Echo: hi"
        assert (await other).ok
        assert tree.said[0] == "1 of 2"
        (node,) = nodes(shop)
        os.kill(node, signal.SIGKILL)
        died = await second
        assert not died.ok
        assert "The MCP server every failed during this call" in died.content
        assert "SIGKILL" in died.content
        assert (await tree.use(tools["echo"], message="back")).content == "Echo: back"


async def test_twenty_children_share_one_server(shop: Shop, files: McpServer, tmp_path: Path) -> None:
    """A lead and twenty children with the same server, some with a different choice of tools, share one process."""
    seen: set[int] = set()
    reader = Agent("reader", tools=[files.with_tools(only=["read_text_file"])])
    lister = Agent("lister", tools=[files.with_tools(only=["list_directory"])])
    lead = Agent("lead", tools=[files], subagents=[reader, lister])
    half = [call("task", agent=name, prompt="look") for name in ("reader", "lister") for _ in range(10)]
    model = ScriptedModel(
        {
            "lead": [calls(*half), say("done")],
            "reader": [call("mcp__files__read_text_file", path=str(tmp_path / "a.txt")), say("read")] * 10,
            "lister": [call("mcp__files__list_directory", path=str(tmp_path)), say("listed")] * 10,
        }
    )
    async with start(lead, "go", model=model, policy=["allow mcp__*"], workspace=tmp_path) as running:
        async for event in running.events():
            if isinstance(event, CallStarted):
                seen |= nodes(shop)
        outcome = await running.outcome()
    assert outcome.status is Status.COMPLETED
    assert len(outcome.children) == 20
    for child in outcome.children:
        assert [log.success for log in child.calls] == [True]
    assert len(seen) == 1
    assert shop.running() == []


async def test_a_run_sees_images_and_is_cancelled_during_a_call(shop: Shop, everything: McpServer) -> None:
    """An image is part of the model's next request. Cancelling the tree ends the call and the server."""
    slow = "mcp__every__trigger-long-running-operation"
    model = ScriptedModel({"lead": [call("mcp__every__get-tiny-image"), call(slow, duration=60, steps=1)]})
    lead = Agent("lead", tools=[everything.with_tools(only=["trigger-long*", "get-tiny-image"])])
    async with start(lead, "go", model=model, policy=["allow mcp__*"]) as running:
        async for event in running.events():
            if isinstance(event, CallStarted) and event.tool == slow:
                assert shop.running()
                await running.cancel("enough")
        outcome = await running.outcome()
    assert outcome.status is Status.CANCELLED
    assert shop.running() == []
    message = next(m for m in outcome.messages if isinstance(m, ToolMessage))
    assert isinstance(message.parts[0], ImagePart)
