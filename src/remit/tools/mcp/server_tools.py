"""Turn a server's list into tools: names that providers accept, checked schemas, and the reasons for omitted tools."""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self

from remit.errors import UsageError
from remit.tools.contexts import ToolContext
from remit.tools.mcp.failure import Veil
from remit.tools.mcp.schemas import ServerShape
from remit.tools.mcp.server import McpServer
from remit.tools.result import ToolResult
from remit.tools.schema import Shape
from remit.tools.tool import Tier, Tool
from remit.types.messages import Json, JsonObject, unforge
from remit.types.text import one_line, shorten

if TYPE_CHECKING:
    import mcp_types as types

DESCRIPTION_CHARS = 2_000
TITLE_CHARS = 80
OWN_NAME_CHARS = 500
INLINE_CHARS = 40_000
OFFER_BYTES = 1_000_000
"""The most bytes that all tools of a server may add to a request."""

_NAME_CHARS = 64
_HASH_CHARS = 8
_REASON_CHARS = 200

Call = Callable[[str, JsonObject, ToolContext], Awaitable[ToolResult]]
"""Calls a tool of the server by the server's name for it."""


class McpTool(Tool):
    """A tool of a server. The model sees the whole schema; `schemas.py` checks a part of it."""

    def __init__(self, server: McpServer, listed: types.Tool, name: str, call: Call) -> None:
        self.own_name = listed.name
        """The server's name for the tool."""
        if len(listed.name) > OWN_NAME_CHARS:
            raise UsageError(f"its name has {len(listed.name):,} characters; the limit is {OWN_NAME_CHARS:,}")
        if listed.execution is not None and listed.execution.task_support == "required":
            raise UsageError("it only runs as a background task, which remit does not support")
        self._fit = ServerShape(listed.input_schema)

        async def ask(remit_tool_context: ToolContext, **arguments: Json) -> ToolResult:
            return await call(listed.name, arguments, remit_tool_context)

        super().__init__(
            ask,
            name=name,
            description=_description(server, listed),
            tier=_tier(server, listed),
            timeout_s=server.timeout_s,
            display_name=_title(server, listed),
            parameters=self._fit.schema,
            inline_chars=INLINE_CHARS,
        )
        self.size = self._fit.size + len(self.name) + len(self.description.encode())
        """About the number of bytes that it adds to a request."""

    @functools.cached_property
    def _shape(self) -> Shape:
        return self._fit


class Offered(tuple[McpTool, ...]):  # noqa: SLOT001 - a tuple cannot have slots
    """A server's tools; `left_out` has the unusable ones: own name to reason."""

    left_out: Mapping[str, str]

    def __new__(cls, tools: Iterable[McpTool], left_out: Mapping[str, str]) -> Self:
        made = super().__new__(cls, tools)
        made.left_out = left_out
        return made


class Offering:
    """Makes tools from a listing, one at a time. An unusable or malformed tool does not affect the others."""

    def __init__(self, server: McpServer, call: Call, malformed: Mapping[str, str]) -> None:
        self._server = server
        self._call = call
        self._tools: dict[str, McpTool] = {}
        self._owns: set[str] = set()
        self._size = 0
        self._left_out = {plain_name(own): why for own, why in malformed.items()}

    def add(self, tool: types.Tool, name: str) -> None:
        """Add a tool; `name` comes from `tool_names`."""
        try:
            self._add(tool, name)
        except (UsageError, ValueError, RecursionError) as error:
            self._left_out[plain_name(tool.name)] = Veil(()).quote(str(error), _REASON_CHARS).rstrip(".")

    def _add(self, tool: types.Tool, name: str) -> None:
        if tool.name in self._owns:
            raise UsageError("the server lists it more than once; the first is used")
        if name in self._tools:
            raise UsageError(
                f"another tool of the server already has the name that remit would give it, {name}"
            )
        made = McpTool(self._server, tool, name, self._call)
        if self._size + made.size > OFFER_BYTES:
            raise UsageError(
                f"the server's tools have more than {OFFER_BYTES:,} bytes of schemas and descriptions"
            )
        self._size += made.size
        self._owns.add(tool.name)
        self._tools[name] = made

    def made(self) -> Offered:
        return Offered(self._tools.values(), self._left_out)


def offer(
    server: McpServer, listed: Sequence[types.Tool], call: Call, malformed: Mapping[str, str] | None = None
) -> Offered:
    """Make the tools of a listing."""
    offering = Offering(server, call, malformed or {})
    for tool, name in zip(listed, tool_names(server.name, [tool.name for tool in listed]), strict=True):
        offering.add(tool, name)
    return offering.made()


def plain_name(own: str) -> str:
    """A server's name for a tool, made safe for our messages: it could be a whole sentence."""
    return shorten(re.sub(r"[^A-Za-z0-9_./-]", "_", own[: _NAME_CHARS + 1]), _NAME_CHARS, _NAME_CHARS - 3)


def tool_names(server: str, owns: Sequence[str]) -> list[str]:
    """`mcp__<server>__<tool>` for each tool; a hash distinguishes names that are too long or equal."""
    plain = {own: f"mcp__{server}__{re.sub(r'[^A-Za-z0-9_-]', '_', own)}" for own in owns}
    count = Counter(plain.values())
    found: list[str] = []
    for own in owns:
        name = plain[own]
        # A name that needed no change stays; a changed name that equals it gets a hash.
        clash = count[name] > 1 and not name.endswith(f"__{own}")
        found.append(_marked(name, own) if clash or len(name) > _NAME_CHARS or not own else name)
    return found


def _marked(name: str, own: str) -> str:
    mark = hashlib.sha256(own.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_CHARS]
    return f"{name[: _NAME_CHARS - _HASH_CHARS - 1]}_{mark}"


def _description(server: McpServer, listed: types.Tool) -> str:
    text = (listed.description or "").strip() or f"{listed.name} of the MCP server {server.name}."
    return shorten(unforge(text), DESCRIPTION_CHARS, DESCRIPTION_CHARS - 3)


def _title(server: McpServer, listed: types.Tool) -> str:
    title = listed.title or (listed.annotations.title if listed.annotations else None) or listed.name
    # With the server's name first: a server chooses its titles, and could use the title of another tool.
    return f"{server.name}: {shorten(unforge(one_line(title)).strip(), TITLE_CHARS, TITLE_CHARS - 3)}"


def _tier(server: McpServer, listed: types.Tool) -> Tier:
    reads = listed.annotations is not None and listed.annotations.read_only_hint is True
    return Tier.OBSERVE if server.trusted and reads else Tier.CONFIRM
