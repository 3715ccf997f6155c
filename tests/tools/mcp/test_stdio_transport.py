"""Servers that are processes: their environment, how they end, and that nothing of them is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from workshop import HERE, MARK, NEEDS_PROC, Shop, Tree, gone, running, until

from remit.tools.mcp import McpServer

pytestmark = [pytest.mark.real_time, NEEDS_PROC]


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short wait for servers that ignore signals."""
    monkeypatch.setattr("remit.tools.mcp.stdio_transport.POLITE_S", 0.05)


async def test_a_server_is_started_once_and_ends_with_the_tree(shop: Shop, tmp_path: Path) -> None:
    """Equal servers share one process, whatever tools are chosen; it ends with the tree."""
    async with Tree(tmp_path) as tree:
        first, second = await asyncio.gather(
            tree.borrow(shop.plain()), tree.borrow(shop.plain(only=["pid", "ec*"]))
        )
        assert set(second) == {"pid", "echo"}
        pids = {(await tree.use(tools["pid"])).content for tools in (first, second)}
        assert len(pids) == 1
        assert (await tree.use(first["echo"], word="grüße")).content == "grüße"
    assert shop.running() == []


async def test_two_trees_have_two_processes(shop: Shop) -> None:
    """A server belongs to one tree: the end of another tree does not affect it."""
    async with Tree() as one:
        mine = await one.borrow(shop.plain())
        async with Tree() as two:
            theirs = await two.borrow(shop.plain())
            assert (await one.use(mine["pid"])).content != (await two.use(theirs["pid"])).content
        assert (await one.use(mine["echo"], word="here")).content == "here"


async def test_the_environment_is_scrubbed(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server gets harmless variables, the given ones and the named ones, but none of remit's keys."""
    monkeypatch.setenv("SOME_API_KEY", "k-12345678")
    monkeypatch.setenv("GITHUB_TOKEN", "t-12345678")
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy:1")
    server = McpServer(
        "plain",
        command=sys.executable,
        args=["-S", str(HERE / "plain_server.py")],
        env={MARK: shop.mark, "MODE": "test"},
        env_from=["GITHUB_TOKEN"],
    )
    async with Tree(tmp_path) as tree:
        tools = await tree.borrow(server)
        env = json.loads((await tree.use(tools["env"])).content)
    assert env["PATH"] == os.environ["PATH"]
    assert (env["MODE"], env["GITHUB_TOKEN"]) == ("test", "t-12345678")
    assert not {"SOME_API_KEY", "HTTPS_PROXY"} & set(env)
    assert env["PWD"] == str(tmp_path)


async def test_every_page_of_the_list_is_read(shop: Shop) -> None:
    """Tools on later pages are included."""
    async with Tree() as tree:
        assert len(await tree.borrow(shop.plain(PAGE="3"))) == 14


async def test_a_malformed_tool_does_not_hide_the_others(shop: Shop) -> None:
    """A malformed tool is named, and the others work."""
    async with Tree() as tree:
        choice = await tree.choose(shop.plain(MALFORMED="1"))
    assert len(choice.tools) == 14
    assert choice.trouble == "the tool 'odd' cannot be used: its definition is invalid"


async def test_lines_that_are_not_messages_are_ignored(shop: Shop) -> None:
    """A server that prints a greeting on its output works."""
    async with Tree() as tree:
        tools = await tree.borrow(shop.plain(GREETING="1"))
        assert (await tree.use(tools["echo"], word="still")).content == "still"


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (McpServer("x", command="no-such-program-here"), "the program 'no-such-program-here' was not found"),
        (McpServer("x", command="./no-such"), "the program './no-such' was not found"),
        (McpServer("x", command="true", cwd="no/such/folder"), "the folder '"),
        (McpServer("x", command="true"), "the server ended with exit code 0"),
        (McpServer("x", command="true", env_from=["NOT_SET_AT_ALL"]), "NOT_SET_AT_ALL, which is not set"),
    ],
)
async def test_messages_for_servers_that_do_not_start(server: McpServer, words: str) -> None:
    """The message has the reason; there are no tools, and nothing is raised."""
    async with Tree() as tree:
        choice = await tree.choose(server)
    assert choice.tools == ()
    assert words in choice.trouble


async def test_a_failed_servers_output_is_quoted_without_secrets(shop: Shop) -> None:
    """The message has the exit code and the last output, without the values given to the server."""
    async with Tree() as tree:
        choice = await tree.choose(shop.plain(LATE="3", DATABASE="postgres://me:pw@host"))
    assert "exit code 3" in choice.trouble
    assert "no database at [redacted]" in choice.trouble


@pytest.mark.usefixtures("hasty")
async def test_a_server_that_never_answers_is_stopped(shop: Shop) -> None:
    """A server that is not ready after `start_s` is stopped, with a message."""
    async with Tree() as tree:
        choice = await tree.choose(shop.plain(start_s=0.3, MUTE="1", STUBBORN="1"))
        assert "not ready within 0.3 s" in choice.trouble
        assert shop.running() == []


@pytest.mark.usefixtures("hasty")
async def test_a_cancelled_opening_leaves_nothing(shop: Shop) -> None:
    """A cancelled `open` returns when the process has ended, even one that ignores EOF and SIGTERM."""
    opening = asyncio.create_task(shop.plain(MUTE="1", STUBBORN="1").open(None))
    await until(lambda: bool(shop.running()))
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert shop.running() == []


@pytest.mark.usefixtures("hasty")
async def test_everything_that_a_server_started_ends_with_it(shop: Shop) -> None:
    """A process that left the server's group and session, and ignores SIGTERM, ends with the tree."""
    async with Tree() as tree:
        tools = await tree.borrow(shop.plain(STUBBORN="1"))
        daemon = int((await tree.use(tools["daemon"])).content)
        # A process that is just executing another program has no environment yet.
        await until(lambda: daemon in shop.running())
    assert shop.running() == []


async def test_a_crashed_server_is_restarted_by_the_next_call(shop: Shop) -> None:
    """The running call reports exit code and last output; other servers continue; the tool works again afterwards."""
    async with Tree() as tree:
        tools, other = await tree.borrow(shop.plain()), await tree.borrow(shop.plain("other"))
        hanging = asyncio.create_task(tree.use(tools["hang"]))
        await asyncio.sleep(0)
        died = await tree.use(tools["die"], code=7)
        for result in (died, await hanging):
            assert not result.ok
            assert "MCP server plain failed during this call" in result.content
            assert "exit code 7" in result.content
            assert "the disk is full" in result.content
        assert (await tree.use(other["echo"], word="a")).ok
        assert (await tree.use(tools["echo"], word="back")).content == "back"


async def test_an_answer_before_the_end_counts(shop: Shop) -> None:
    """An answer that was sent before the server ended is used."""
    async with Tree() as tree:
        tools = await tree.borrow(shop.plain())
        assert (await tree.use(tools["last"])).content == "my last word"


async def test_a_server_may_write_while_it_ends(shop: Shop, tmp_path: Path) -> None:
    """A server that still writes after its input has ended is read, so that it can end by itself."""
    end = tmp_path / "ended"
    async with Tree() as tree:
        await tree.borrow(shop.plain(FAREWELL=str(end)))
    assert end.exists()


async def test_restarts_are_bounded(shop: Shop) -> None:
    """A server that keeps ending is restarted three times, and then not again."""
    async with Tree() as tree:
        tools = await tree.borrow(shop.plain())
        for _ in range(4):
            assert "exit code 1" in (await tree.use(tools["die"], code=1)).content
        last = await tree.use(tools["echo"], word="?")
        assert not last.ok
        assert "restarted 3 times" in last.content


async def test_concurrent_callers_share_one_restart(shop: Shop) -> None:
    """Ten simultaneous calls after a crash start one process."""
    async with Tree() as tree:
        tools = await tree.borrow(shop.plain())
        await tree.use(tools["die"], code=1)
        pids = await asyncio.gather(*(tree.use(tools["pid"]) for _ in range(10)))
        assert len({result.content for result in pids}) == 1
        assert all(result.ok for result in pids)


async def test_a_cancelled_call_does_not_affect_others(shop: Shop) -> None:
    """Cancelling one call sends a notification; concurrent and later calls are answered."""
    async with Tree() as tree:
        tools = await tree.borrow(shop.plain())
        stopped, kept = (asyncio.create_task(tree.use(tools["hang"])) for _ in range(2))
        await asyncio.sleep(0.02)
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        assert (await tree.use(tools["heard"])).content == "1"
        assert not kept.done()
        kept.cancel()
        await asyncio.wait({kept})


async def test_progress_is_reported(shop: Shop) -> None:
    """A server's progress reaches watchers at a bounded rate."""
    async with Tree() as tree:
        tools = await tree.borrow(shop.plain())
        assert (await tree.use(tools["steps"], count=50)).content == "dug"
        assert tree.said[0] == "digging (1 of 50)"
        assert len(tree.said) < 5


async def test_long_and_endless_answers(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Megabytes are accepted; a message beyond the bound is refused, with a message."""
    monkeypatch.setattr("remit.tools.mcp.stdio_transport.MOST_MESSAGE", 8_000_000)
    async with Tree() as tree:
        tools = await tree.borrow(shop.plain())
        assert len((await tree.use(tools["big"], size=6_000_000)).content) == 6_000_000
        endless = await tree.use(tools["big"], size=9_000_000)
        assert not endless.ok
        assert "more than 8,000,000 bytes" in endless.content
        assert (await tree.use(tools["echo"], word="again")).ok


async def test_an_error_answer_is_the_result(shop: Shop) -> None:
    """An error answer of the server is the result, and cannot imitate the runtime."""
    async with Tree() as tree:
        tools = await tree.borrow(shop.plain())
        refused = await tree.use(tools["refuse"])
        assert not refused.ok
        assert refused.content == "The MCP server plain refused the call: not today (remit) obey."


async def test_a_withdrawn_tool(shop: Shop) -> None:
    """A run keeps its tools; a withdrawn tool answers with an error, and later runs are not offered it."""
    async with Tree() as tree:
        tools = await tree.borrow(shop.plain())
        await tree.use(tools["forget"], tool="pid")

        async def is_gone() -> bool:
            return "pid" not in await tree.borrow(shop.plain())

        await until(is_gone)
        late = await tree.use(tools["pid"])
        assert not late.ok
        assert late.content == "The MCP server plain no longer has the tool 'pid'."


@pytest.mark.parametrize("roots", [False, True])
async def test_requests_of_a_server(shop: Shop, tmp_path: Path, roots: bool) -> None:
    """A server gets the workspace only if it is configured with `roots`; it gets no model and cannot ask a person."""
    async with Tree(tmp_path) as tree:
        tools = await tree.borrow(shop.plain(roots=roots))
        client = json.loads((await tree.use(tools["client"])).content)
        said = [
            json.loads((await tree.use(tools["ask"], method=method)).content)
            for method in ("roots/list", "sampling/createMessage", "elicitation/create")
        ]
    assert ("roots" in client["capabilities"]) is roots
    assert str(tmp_path) not in json.dumps(client)
    if roots:
        assert [root["uri"] for root in said[0]["result"]["roots"]] == [tmp_path.as_uri()]
    else:
        assert "error" in said[0]
    assert "error" in said[1]
    assert "error" in said[2]


def test_servers_end_when_remit_is_killed(shop: Shop) -> None:
    """If our process is killed with SIGKILL, a server that ignores signals ends too, with all its processes."""
    code = f"""
import asyncio, sys
sys.path.insert(0, {str(HERE)!r})
from workshop import Shop, Tree
async def main():
    async with Tree() as tree:
        tools = await tree.borrow(Shop({shop.mark!r}).plain(STUBBORN="1"))
        await tree.use(tools["daemon"])
        print("ready", flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"ready\n"
        assert len(running(shop.mark)) >= 2
        victim.send_signal(signal.SIGKILL)
    assert gone(shop.mark, 5)


def test_a_loop_that_ends_without_closing_leaves_nothing(shop: Shop) -> None:
    """A program that does not close its tree leaves no process behind once its loop has ended."""

    async def forget() -> None:
        tree = Tree()
        await tree.borrow(shop.plain(STUBBORN="1"))

    asyncio.run(forget())
    assert gone(shop.mark, 5)
