"""Fixtures for MCP tests: servers, a tree that uses them, and a check of running processes."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import pytest

from remit.errors import RemitError
from remit.tools.mcp import McpServer
from remit.tools.result import ToolResult, render
from remit.tools.source import Choice, Opening
from remit.tools.tool import Tool, ToolContext

HERE = Path(__file__).parent
MARK = "REMIT_MCP_TEST"
NEEDS_PROC = pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")


def running(mark: str) -> list[int]:
    """Processes that have the mark in their environment."""
    sign, found = f"{MARK}={mark}".encode(), list[int]()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if sign in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def gone(mark: str, seconds: float = 0.0) -> bool:
    """Whether no process with the mark is left after this time."""
    end = time.monotonic() + seconds
    while running(mark):
        if time.monotonic() >= end:
            return False
        time.sleep(0.02)
    return True


async def until(happened: Callable[[], bool | Awaitable[bool]]) -> None:
    """Poll until the condition holds."""
    while True:
        value = happened()
        if value if isinstance(value, bool) else await value:
            return
        await asyncio.sleep(0.01)


class Shop:
    """Servers with a mark that identifies their processes."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def plain(
        self,
        name: str = "plain",
        /,
        *,
        start_s: float = 20,
        only: list[str] | None = None,
        roots: bool = False,
        trusted: bool = False,
        **env: str,
    ) -> McpServer:
        """The server of `plain_server.py`."""
        return McpServer(
            name,
            command=sys.executable,
            args=["-S", str(HERE / "plain_server.py")],
            env={MARK: self.mark, **env},
            start_s=start_s,
            only=only,
            roots=roots,
            trusted=trusted,
        )

    def command(self, name: str, command: str, *args: str) -> McpServer:
        return McpServer(name, command=command, args=args, env={MARK: self.mark})

    def running(self) -> list[int]:
        return running(self.mark)


class Tree:
    """Servers that are opened once each, and calls of the tools chosen from them."""

    def __init__(self, workspace: Path | None = None) -> None:
        self.workspace = workspace
        self.said: list[str] = []
        """Progress reports of calls."""
        self._open: dict[Hashable, asyncio.Task[Opening]] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for opening in self._open.values():
            if not opening.exception():
                await opening.result().close()

    async def choose(self, server: McpServer) -> Choice:
        if server.key not in self._open:
            self._open[server.key] = asyncio.create_task(server.open(self.workspace))
        try:
            opening = await self._open[server.key]
        except RemitError as error:
            return Choice((), str(error))
        return server.choose(opening.tools)

    async def borrow(self, server: McpServer) -> dict[str, Tool]:
        """The tools of a server that opens, by the tool's part of the name."""
        choice = await self.choose(server)
        assert not choice.trouble, choice.trouble
        return {tool.name.split("__", 2)[2]: tool for tool in choice.tools}

    async def use(self, tool: Tool, /, **args: object) -> ToolResult:
        """The result of a call."""
        ctx = ToolContext(
            run_id="r",
            path=("lead",),
            depth=0,
            workspace=self.workspace,
            deps=None,
            emit=self.said.append,
            cancelled=lambda: False,
        )
        return render(await cast("Awaitable[object]", tool.invoke(tool.check(dict(args)), ctx)))
