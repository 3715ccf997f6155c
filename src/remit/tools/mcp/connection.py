"""One session with a server. One task opens and closes it; any task may make calls."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import anyio

from remit.tools.mcp.failure import Refusal, ServerFailed, SessionLost, Veil
from remit.tools.mcp.http_transport import LocalError, local_error
from remit.tools.mcp.malformed import Listing
from remit.tools.mcp.session import answers, handshake, list_tools, load, make, roots
from remit.types.messages import JsonObject
from remit.types.text import describe_error

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.client.session import ClientSession

    from remit.tools.mcp.transport import Link

log = logging.getLogger("remit.mcp")

LEAVE_S = 2.0
"""Seconds for telling an HTTP server that the session ends."""

SEE_S = 0.5
REFUSAL_CHARS = 2_000
RELIST_S = 2.0
"""The least seconds between two listings, however often the server reports that its tools have changed."""

MOST_ROUNDS = 5
"""How often a server may request more input before it answers a call."""

# Recognised by text: servers use the package's codes for their own errors too.
_CLOSED = "Connection closed"
_BROKEN = (_CLOSED, "SSE stream ", "Failed to parse ", "server answered a request with 202")


class Progress(Protocol):
    """Receives the progress of a call."""

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None: ...


class Connection:
    """A session, from the handshake to its end. `root` is a folder that is shown to the server."""

    def __init__(self, name: str, link: Link, veil: Veil, root: Path | None) -> None:
        self._name = name
        self._link = link
        self._veil = veil
        self._root = root
        self._session: ClientSession | None = None
        self._scope = anyio.CancelScope()
        self._wake = anyio.Event()
        self._leaving = False
        self._lost = False
        self._stale = False
        self._failure: BaseException | None = None
        self._owner: asyncio.Task[None] | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.listed: Sequence[types.Tool] = ()
        self._listing = Listing()
        self.malformed: Mapping[str, str] = {}
        """Listed entries that are not valid tools: name to reason."""
        self.on_listed: Callable[[], Awaitable[None]] | None = None
        """Called when the server has changed its tools."""

    @property
    def ended(self) -> bool:
        return self._lost or self._leaving or self._owner is None or self._owner.done()

    def how(self) -> str:
        """A message about how the session ended."""
        own = self._link.ending()
        if own or self._failure is None:
            return own or "the connection was closed"
        return _message(self._failure, self._veil)

    async def start(self, seconds: float) -> None:
        """Connect and list the tools. Raises ServerFailed; when cancelled, all resources are released."""
        await load()
        self._owner = asyncio.get_running_loop().create_task(self._own(), name=f"MCP server {self._name}")
        try:
            await asyncio.wait(
                {self._ready, self._owner}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if self._ready.done():
                return
            late = not self._owner.done()
        except asyncio.CancelledError:
            await self.close()
            raise
        await self.close()
        if late:
            words = [f"the server was not ready within {seconds:g} s", self._link.ending()]
            raise ServerFailed(". ".join(word for word in words if word))
        raise ServerFailed(self.how())

    async def close(self) -> None:
        """Close the session; returns when all resources are released."""
        self._leaving = True
        if self._owner is None:
            return
        if self._ready.done():
            self._wake.set()
            self._scope.deadline = min(self._scope.deadline, anyio.current_time() + LEAVE_S)
        else:
            self._scope.cancel()
        await asyncio.wait({self._owner})

    async def call(self, tool: str, arguments: JsonObject, progress: Progress) -> types.CallToolResult:
        """Call a tool. Raises ServerFailed, or SessionLost if the call was not executed.

        When cancelled, the server is notified, and other calls continue.
        """
        import mcp_types as types  # noqa: PLC0415 - imported by now

        responses: types.InputResponses | None = None
        state: str | None = None
        for _ in range(MOST_ROUNDS):
            params = types.CallToolRequestParams(
                name=tool, arguments=arguments, input_responses=responses, request_state=state
            )
            answer = await self._ask(params, progress)
            if isinstance(answer, types.CallToolResult):
                return answer
            responses, state = await self._input(answer), answer.request_state
        raise ServerFailed(f"the server asked for input {MOST_ROUNDS} times and gave no answer")

    async def _ask(
        self, params: types.CallToolRequestParams, progress: Progress
    ) -> types.CallToolResult | types.InputRequiredResult:
        import mcp_types as types  # noqa: PLC0415 - imported by now
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - as above
        from pydantic import ValidationError  # noqa: PLC0415 - as above

        if self._session is None:
            raise SessionLost(self.how())
        try:
            # Not `call_tool`: it discards an answer that does not match the server's own schema.
            return await self._session.send_request(
                types.CallToolRequest(params=params), answers(), progress_callback=progress
            )
        except MCPError as error:
            raise await self._read(error) from error
        except ValidationError as error:
            raise ServerFailed("the server's answer is not a valid tool result") from error

    async def _read(self, error: Exception) -> Exception:
        code, said = cast(int, getattr(error, "code", 0)), str(error)
        ours = local_error(error)
        if ours is LocalError.LOST:
            self._lost = True
            self._failure = SessionLost("the server no longer knows the session; it was probably restarted")
            return self._failure
        if said == _CLOSED and await self._is_put_away():
            return ServerFailed(self.how())
        words = self._veil.quote(said, REFUSAL_CHARS) or f"error {code}"
        no_answer = ours is not None or said.startswith(_BROKEN)
        return ServerFailed(words) if no_answer else Refusal(words)

    async def _is_put_away(self) -> bool:
        """Whether the session has ended and its owner task is done, so that `how` is complete."""
        if self._owner is None:
            return True
        # Over HTTP, one answer may be lost while the connection stays open.
        await asyncio.wait({self._owner}, timeout=None if self.ended else SEE_S)
        return self._owner.done()

    async def _input(self, asked: types.InputRequiredResult) -> types.InputResponses | None:
        import mcp_types as types  # noqa: PLC0415 - imported by now

        if not asked.input_requests:
            await anyio.sleep(0.1)
            return None
        if not all(isinstance(r, types.ListRootsRequest) for r in asked.input_requests.values()):
            raise Refusal("the server asked for a person or a model, which remit does not provide")
        if self._root is None:
            raise Refusal(
                "the server asked for the workspace folder; to send it, set roots = true for this server"
            )
        return dict.fromkeys(asked.input_requests, roots(self._root))

    # The owner task enters and leaves every context.

    async def _own(self) -> None:
        try:
            with self._scope:
                async with (
                    self._link.connected(self._on_lost) as streams,
                    make(streams, self._root, self._on_changed, lambda: self._listing) as session,
                ):
                    await handshake(session)
                    await self._list(session)
                    self._session = session
                    self._ready.set_result(None)
                    await self._attend(session)
        except (Exception, BaseExceptionGroup) as error:
            log.debug("the connection to the MCP server %s failed", self._name, exc_info=True)
            self._failure = error
        finally:
            self._session = None

    async def _list(self, session: ClientSession) -> None:
        self._listing = Listing()
        self.listed = await list_tools(session, self._listing)
        self.malformed = self._listing.malformed

    async def _attend(self, session: ClientSession) -> None:
        """Wait until the session closes or the server is gone; list the tools again when they change."""
        again = 0.0
        while not (self._leaving or self._lost):
            if self._stale and anyio.current_time() >= again:
                self._stale = False
                await self._list_again(session)
                again = anyio.current_time() + RELIST_S
                continue
            with anyio.CancelScope(deadline=again if self._stale else math.inf):
                await self._wake.wait()
            self._wake = anyio.Event()

    async def _list_again(self, session: ClientSession) -> None:
        from mcp.shared.exceptions import MCPError  # noqa: PLC0415 - imported by now

        with suppress(MCPError, ValueError, ServerFailed):
            await self._list(session)
            if self.on_listed is not None:
                await self.on_listed()

    def _on_lost(self) -> None:
        self._lost = True
        self._wake.set()

    def _on_changed(self) -> None:
        self._stale = True
        self._wake.set()


def _message(error: BaseException, veil: Veil) -> str:
    """The message of the first exception that is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    if isinstance(error, ServerFailed):
        return str(error)
    said = str(error) if type(error).__name__ == "MCPError" else describe_error(error)
    return veil.quote(said) or type(error).__name__
