"""A server that is open for a tree: its tools, its calls, and restarts after it ended."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote_plus, urlsplit

import anyio.lowlevel

from remit.tools.contexts import ToolContext
from remit.tools.mcp.connection import Connection
from remit.tools.mcp.failure import Refusal, ServerFailed, SessionLost, Veil
from remit.tools.mcp.http_transport import WebLink
from remit.tools.mcp.results import to_result
from remit.tools.mcp.server import McpServer
from remit.tools.mcp.server_tools import Offered, Offering, tool_names
from remit.tools.mcp.stdio_transport import ProcessLink, environment
from remit.tools.mcp.transport import Link
from remit.tools.result import ToolResult
from remit.types.messages import JsonObject
from remit.types.text import one_line, shorten

if TYPE_CHECKING:
    import mcp_types as types

MOST_RESTARTS = 3
"""How often a server that ended is restarted for one tree."""

PROGRESS_S = 0.1
PROGRESS_CHARS = 300

_REFERENCE = re.compile(r"\$\{([^}]*)\}")


class ServerOpening:
    """An open server. Contract: `close` returns when all its resources are released, and never raises."""

    def __init__(self, server: McpServer, workspace: Path | None) -> None:
        self._server = server
        self._workspace = workspace or Path.cwd()
        self._connection: Connection | None = None
        self._restarts = 0
        self._starting: asyncio.Task[None] | None = None
        self._closed = False
        self._listed: Sequence[types.Tool] | None = None
        self._tools = Offered((), {})
        self._offering = anyio.Lock()

    @classmethod
    async def open(cls, server: McpServer, workspace: Path | None) -> ServerOpening:
        """Start the server. Raises ServerFailed."""
        made = cls(server, workspace)
        await made._start()
        return made

    @property
    def tools(self) -> Offered:
        """The server's current tools. A run keeps the tools that it chose at its start."""
        return self._tools

    async def close(self) -> None:
        self._closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        if self._connection is not None:
            await self._connection.close()

    async def call(self, tool: str, arguments: JsonObject, ctx: ToolContext) -> ToolResult:
        """Call a tool by the server's name for it. Every failure of the server becomes a failed result."""
        report = _Reporter(ctx)
        try:
            return await self._call(tool, arguments, report)
        except Refusal as error:
            return self._failed("refused the call", error)
        except ServerFailed as error:
            return self._failed("cannot be used", error)
        finally:
            report.over = True

    async def _call(self, tool: str, arguments: JsonObject, report: _Reporter) -> ToolResult:
        for _ in range(2):
            connection = await self._live()
            if all(listed.name != tool for listed in connection.listed):
                return self._failed(f"no longer has the tool {tool!r}", None)
            try:
                return to_result(await connection.call(tool, arguments, report))
            except SessionLost:
                # The call was not executed: retry with a new session.
                continue
            except Refusal:
                raise
            except ServerFailed as error:
                return self._failed(
                    "failed during this call, which may have been executed in part or completely", error
                )
        raise ServerFailed("the server forgets each session immediately")

    def _failed(self, what: str, error: ServerFailed | None) -> ToolResult:
        why = "" if error is None else f": {error}"
        return ToolResult(f"The MCP server {self._server.name} {what}{why}".rstrip(".") + ".", ok=False)

    async def _live(self) -> Connection:
        """A working connection; one that ended is replaced, once for all waiting calls. Raises ServerFailed."""
        while True:
            connection = self._connection
            if connection is not None and not connection.ended:
                return connection
            if self._closed:
                raise ServerFailed("the server is closed")
            if self._starting is None:
                self._restarts += 1
                if self._restarts > MOST_RESTARTS:
                    last = connection.how() if connection is not None else "the last restart failed"
                    raise ServerFailed(
                        f"the server was restarted {MOST_RESTARTS} times and is not restarted again; {last}"
                    )
                self._starting = asyncio.get_running_loop().create_task(self._restart())
                # Read the exception here: the waiting calls may be cancelled before they do.
                self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())
            starting = self._starting
            await asyncio.wait({starting})
            error = None if starting.cancelled() else starting.exception()
            if error is not None:
                raise ServerFailed(str(error))

    async def _restart(self) -> None:
        try:
            if self._connection is not None:
                await self._connection.close()
            await self._start()
        finally:
            self._starting = None

    async def _start(self) -> None:
        link, veil = _link(self._server, self._workspace, os.environ)
        root = self._workspace if self._server.roots else None
        connection = Connection(self._server.name, link, veil, root)
        await connection.start(self._server.start_s)
        connection.on_listed = self._offer
        self._connection = connection
        try:
            await self._offer()
        except asyncio.CancelledError:
            await connection.close()
            raise

    async def _offer(self) -> None:
        # One at a time: the server may change its list meanwhile, and the newest must win.
        async with self._offering:
            connection = self._connection
            if connection is None or connection.listed == self._listed:
                return
            listed = connection.listed
            offering = Offering(self._server, self.call, connection.malformed)
            names = tool_names(self._server.name, [tool.name for tool in listed])
            for tool, name in zip(listed, names, strict=True):
                offering.add(tool, name)
                # Let other tasks run: a list may be long.
                await anyio.lowlevel.checkpoint()
            self._listed, self._tools = listed, offering.made()


class _Reporter:
    """Reports the progress of a call, at most every `PROGRESS_S`."""

    def __init__(self, ctx: ToolContext) -> None:
        self._ctx = ctx
        self._next = 0.0
        self.over = False

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        now = asyncio.get_running_loop().time()
        if self.over or now < self._next:
            return
        self._next = now + PROGRESS_S
        number = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        said = shorten(one_line(message or "").strip(), PROGRESS_CHARS, PROGRESS_CHARS - 3)
        self._ctx.emit(f"{said} ({number})" if said else number)


def _link(server: McpServer, workspace: Path, environ: Mapping[str, str]) -> tuple[Link, Veil]:
    """The link to a server, with the environment variables that it needs. Raises ServerFailed."""
    if server.url is not None:
        headers = dict(server.headers)
        headers |= {name: _filled(name, text, environ) for name, text in server.headers_from}
        parts = urlsplit(server.url)
        # Some services put the secret key into the path.
        hidden = [
            parts.username or "",
            parts.password or "",
            *re.split("[&=;]", parts.query),
            *parts.path.split("/"),
        ]
        veil = Veil([*headers.values(), *hidden, *map(unquote_plus, hidden), *server.secrets], environ)
        return WebLink(server.url, headers, veil), veil
    given = dict(server.env)
    for name in server.env_from:
        if name not in environ:
            raise ServerFailed(f"env_from needs the environment variable {name}, which is not set")
        given[name] = environ[name]
    veil = Veil([*given.values(), *server.secrets], environ)
    cwd = workspace if server.cwd is None else workspace / Path(server.cwd).expanduser()
    command = (server.command or "", *server.args)
    return ProcessLink(server.name, command, environment(given, environ), cwd, veil), veil


def _filled(header: str, text: str, environ: Mapping[str, str]) -> str:
    """A header's value: the value of the variable `text`, or `text` with each ${NAME} expanded."""
    names = _REFERENCE.findall(text) or [text]
    for name in names:
        if name not in environ:
            raise ServerFailed(f"the header {header} needs the environment variable {name}, which is not set")
    if "${" not in text:
        return environ[text].strip()
    return _REFERENCE.sub(lambda found: environ[found[1]].strip(), text)
