"""What a server offers, as tools: names that providers take, schemas that can be checked, and what was left out."""

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
"""What all tools of a server may add to a request; no model reads more."""

_NAME_CHARS = 64
_HASH_CHARS = 8
_REASON_CHARS = 200

Call = Callable[[str, JsonObject, ToolContext], Awaitable[ToolResult]]
"""Calls a tool of the server, by the server's own name for it."""


class McpTool(Tool):
    """A tool of a server. The model is told the whole schema; what is checked here is in `schemas.py`."""

    def __init__(self, server: McpServer, listed: types.Tool, name: str, call: Call) -> None:
        self.own_name = listed.name
        """What the server calls it."""
        if len(listed.name) > OWN_NAME_CHARS:
            raise UsageError(f"its name has {len(listed.name):,} characters; {OWN_NAME_CHARS:,} is the most")
        if listed.execution is not None and listed.execution.task_support == "required":
            raise UsageError("it can only be run as a task in the background, which is not done here")
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
        """About how many bytes a request gets longer by it."""

    @functools.cached_property
    def _shape(self) -> Shape:
        return self._fit


class Offered(tuple[McpTool, ...]):  # noqa: SLOT001 - a tuple has no slots for more
    """A server's tools, and those that cannot be used: own name to reason."""

    left_out: Mapping[str, str]

    def __new__(cls, tools: Iterable[McpTool], left_out: Mapping[str, str]) -> Self:
        made = super().__new__(cls, tools)
        made.left_out = left_out
        return made


class Offering:
    """Makes tools of a listing, one at a time. One that cannot be used, or is malformed, does not hide the others."""

    def __init__(self, server: McpServer, call: Call, malformed: Mapping[str, str]) -> None:
        self._server = server
        self._call = call
        self._tools: dict[str, McpTool] = {}
        self._owns: set[str] = set()
        self._size = 0
        self._left_out = {plain_name(own): why for own, why in malformed.items()}

    def add(self, tool: types.Tool, name: str) -> None:
        """`name` is what `tool_names` gives it."""
        try:
            self._add(tool, name)
        except (UsageError, ValueError, RecursionError) as error:
            self._left_out[plain_name(tool.name)] = Veil(()).quote(str(error), _REASON_CHARS).rstrip(".")

    def _add(self, tool: types.Tool, name: str) -> None:
        if tool.name in self._owns:
            raise UsageError("the server lists it more than once; the first is used")
        if name in self._tools:
            raise UsageError("another tool of the server has the name it would get")
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
    """The tools of a listing."""
    offering = Offering(server, call, malformed or {})
    for tool, name in zip(listed, tool_names(server.name, [tool.name for tool in listed]), strict=True):
        offering.add(tool, name)
    return offering.made()


def plain_name(own: str) -> str:
    """A server's name for a tool, fit to stand in our own words: it could be a whole sentence."""
    return shorten(re.sub(r"[^A-Za-z0-9_./-]", "_", own[: _NAME_CHARS + 1]), _NAME_CHARS, _NAME_CHARS - 3)


def tool_names(server: str, owns: Sequence[str]) -> list[str]:
    """`mcp__<server>__<tool>` for each; what does not fit or would be the same is told apart by a hash."""
    plain = {own: f"mcp__{server}__{re.sub(r'[^A-Za-z0-9_-]', '_', own)}" for own in owns}
    count = Counter(plain.values())
    found: list[str] = []
    for own in owns:
        name = plain[own]
        # A name that did not have to be changed keeps it; what was changed into it is marked.
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
    # With the server in front: a title is the server's own choice, and could be that of another tool.
    return f"{server.name}: {shorten(unforge(one_line(title)).strip(), TITLE_CHARS, TITLE_CHARS - 3)}"


def _tier(server: McpServer, listed: types.Tool) -> Tier:
    reads = listed.annotations is not None and listed.annotations.read_only_hint is True
    return Tier.OBSERVE if server.trusted and reads else Tier.CONFIRM
