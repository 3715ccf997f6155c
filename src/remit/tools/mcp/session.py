"""The session with a server: importing the package, the handshake, listing tools, and requests from the server."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import remit.tasks.threads as threads
from remit.tools.mcp.failure import ServerFailed
from remit.tools.mcp.http_transport import LocalError, local_error
from remit.tools.mcp.malformed import Listing, dispatcher

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.client.session import ClientRequestContext, ClientSession
    from pydantic import TypeAdapter

    from remit.tools.mcp.transport import Streams

MOST_PAGES = 100


async def load() -> None:
    """Import the package in a thread: it takes a second, and other runs continue. Raises ServerFailed."""
    if "mcp.client.streamable_http" in sys.modules:
        return
    job = threads.start(_import, asyncio.get_running_loop(), name="import of mcp", urgent=True)
    await job.wait()
    if isinstance(job.error, ImportError):
        raise ServerFailed(
            f"MCP servers need the mcp package ({job.error}). Install it with: pip install 'remit[mcp]'"
        )
    job.result()


def _import() -> None:
    importlib.import_module("mcp.client.session")
    importlib.import_module("mcp.client.streamable_http")
    for name in ("mcp", "client"):
        # Without a handler, Python would print the package's warnings to the user's terminal.
        logging.getLogger(name).addHandler(logging.NullHandler())


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415 - slow, and rarely needed

    try:
        return version("remit")
    except PackageNotFoundError:
        return "0"


@functools.cache
def answers() -> TypeAdapter[types.CallToolResult | types.InputRequiredResult]:
    import mcp_types as types  # noqa: PLC0415 - imported by now
    from pydantic import TypeAdapter  # noqa: PLC0415 - as above

    return TypeAdapter(types.CallToolResult | types.InputRequiredResult)


async def handshake(session: ClientSession) -> None:
    """Begin the session with the newest protocol, or with the older handshake if the server does not know it."""
    import mcp_types as types  # noqa: PLC0415 - imported by now
    from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - as above

    try:
        await session.discover()
    except (MCPError, RuntimeError, ValueError) as first:
        if isinstance(first, MCPError) and local_error(first) is LocalError.UNREACHED:
            raise
        try:
            await session.initialize()
        except MCPError as error:
            # A server that was slow to start may have accepted the first request, and now expects the new protocol.
            if error.code != types.UNSUPPORTED_PROTOCOL_VERSION:
                raise
            await session.discover()


async def list_tools(session: ClientSession, listing: Listing) -> list[types.Tool]:
    """The tools of all pages, up to the limits of the listing. Raises ServerFailed."""
    import mcp_types as types  # noqa: PLC0415 - imported by now

    if session.server_capabilities is not None and session.server_capabilities.tools is None:
        return []
    found: list[types.Tool] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await session.list_tools(
            params=types.PaginatedRequestParams(cursor=cursor) if cursor else None
        )
        found += page.tools
        if not page.next_cursor or page.next_cursor == cursor or listing.is_full:
            return found
        cursor = page.next_cursor
    raise ServerFailed(f"the server's list of tools has more than {MOST_PAGES} pages")


def roots(folder: Path) -> types.ListRootsResult:
    import mcp_types as types  # noqa: PLC0415 - imported by now
    from pydantic import FileUrl  # noqa: PLC0415 - as above

    root = Path(os.path.abspath(folder))  # noqa: PTH100 - resolve() would follow links
    return types.ListRootsResult(roots=[types.Root(uri=FileUrl(root.as_uri()), name=root.name)])


def make(
    streams: Streams, root: Path | None, changed: Callable[[], None], listing: Callable[[], Listing]
) -> ClientSession:
    """Make a session before its handshake. `changed` is called when the server reports that its tools have changed.

    Without a `root`, the client declares that it has no roots.
    """
    import mcp_types as types  # noqa: PLC0415 - imported by now
    from mcp.client.session import ClientSession  # noqa: PLC0415 - as above

    async def give_roots(context: ClientRequestContext) -> types.ListRootsResult:
        del context
        assert root is not None
        return roots(root)

    async def hear(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed()

    def version() -> str:
        # This version applies until the handshake is done.
        return session.protocol_version or "2025-11-25"

    # No callbacks for sampling and elicitation, so that the client declares them as unsupported.
    session = ClientSession(
        dispatcher=dispatcher(streams, version, listing),
        list_roots_callback=None if root is None else give_roots,
        message_handler=hear,
        client_info=types.Implementation(name="remit", version=_version()),
    )
    return session
