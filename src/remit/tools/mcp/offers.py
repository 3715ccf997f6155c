"""What a server offers, as tools: names that providers take, schemas that can be checked, and what was left out."""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Self, cast

import msgspec

from remit.errors import UsageError
from remit.messages import Json, JsonObject, ToolSpec
from remit.result import ToolResult
from remit.signature import ToolContext
from remit.text import clean_json, one_line, shorten
from remit.tool import Tier, Tool
from remit.tools.mcp.failure import Veil
from remit.tools.mcp.server import McpServer

if TYPE_CHECKING:
    import mcp_types as types

DESCRIPTION_CHARS = 2_000
TITLE_CHARS = 80
SCHEMA_BYTES = 64_000
INLINE_CHARS = 40_000
MOST_TOOLS = 1_000
"""A server with more is taken to be broken: the rest is left out, and said."""

_NAME_CHARS = 64
_HASH_CHARS = 8
_REASON_CHARS = 200

Call = Callable[[str, JsonObject, ToolContext], Awaitable[ToolResult]]
"""Calls a tool of the server, by the server's own name for it."""


class McpTool(Tool):
    """A tool of a server.

    The model is told the whole schema. Checked here is what of it means the same everywhere: patterns are JavaScript's,
    and written by the server, so that a bad one could hold up everything; they are left to the server.
    """

    def __init__(self, server: McpServer, listed: types.Tool, name: str, call: Call) -> None:
        self.own_name = listed.name
        """What the server calls it."""
        schema = cast(JsonObject, clean_json(listed.input_schema))
        if listed.execution is not None and listed.execution.task_support == "required":
            raise UsageError("it can only be run as a task in the background, which is not done here")
        size = len(msgspec.json.encode(schema))
        if size > SCHEMA_BYTES:
            raise UsageError(f"its schema has {size:,} bytes; {SCHEMA_BYTES:,} is the most")

        async def ask(remit_tool_context: ToolContext, **arguments: Json) -> ToolResult:
            return await call(listed.name, arguments, remit_tool_context)

        super().__init__(
            ask,
            name=name,
            description=_description(server, listed),
            tier=_tier(server, listed),
            timeout_s=server.timeout_s,
            display_name=_title(server, listed),
            parameters=cast(JsonObject, _without_patterns(schema)),
            inline_chars=INLINE_CHARS,
        )
        self._whole = schema
        # Here, so that a schema which cannot be used leaves this tool out and nothing else.
        self.spec  # noqa: B018 - as above

    @functools.cached_property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, self.description, {**self._shape.schema, **self._whole})


class Offered(tuple[McpTool, ...]):  # noqa: SLOT001 - a tuple has no slots for more
    """A server's tools, and those that cannot be used: own name to reason."""

    left_out: Mapping[str, str]

    def __new__(cls, tools: Iterable[McpTool], left_out: Mapping[str, str]) -> Self:
        made = super().__new__(cls, tools)
        made.left_out = left_out
        return made


def offer(
    server: McpServer, listed: Sequence[types.Tool], call: Call, malformed: Mapping[str, str] | None = None
) -> Offered:
    """The tools of a listing. One that cannot be used, or is `malformed`, does not hide the others."""
    tools: list[McpTool] = []
    left_out = {plain_name(own): why for own, why in (malformed or {}).items()}
    names = _names(server.name, [tool.name for tool in listed])
    for tool, name in zip(listed, names, strict=True):
        own = plain_name(tool.name)
        if len(tools) >= MOST_TOOLS:
            left_out[own] = f"the server lists more than {MOST_TOOLS:,} tools"
            break
        if any(tool.name == known.own_name for known in tools):
            left_out[own] = "the server lists it more than once; the first is used"
            continue
        try:
            tools.append(McpTool(server, tool, name, call))
        except (UsageError, ValueError, RecursionError) as error:
            left_out[own] = Veil(()).quote(str(error), _REASON_CHARS).rstrip(".")
    return Offered(tools, left_out)


def plain_name(own: str) -> str:
    """A server's name for a tool, fit to stand in our own words: it could be a whole sentence."""
    return shorten(re.sub(r"[^A-Za-z0-9_./-]", "_", own), _NAME_CHARS, _NAME_CHARS - 3)


def _names(server: str, owns: Sequence[str]) -> list[str]:
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
    return shorten(text, DESCRIPTION_CHARS, DESCRIPTION_CHARS - 3)


def _title(server: McpServer, listed: types.Tool) -> str:
    title = listed.title or (listed.annotations.title if listed.annotations else None) or listed.name
    # With the server in front: a title is the server's own choice, and could be that of another tool.
    return f"{server.name}: {shorten(one_line(title).strip(), TITLE_CHARS, TITLE_CHARS - 3)}"


def _tier(server: McpServer, listed: types.Tool) -> Tier:
    reads = listed.annotations is not None and listed.annotations.read_only_hint is True
    return Tier.OBSERVE if server.trusted and reads else Tier.CONFIRM


_SCHEMAS = (
    *("items", "additionalItems", "unevaluatedItems", "contains", "contentSchema"),
    *("additionalProperties", "unevaluatedProperties", "propertyNames", "not", "if", "then", "else"),
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_TABLES = ("properties", "$defs", "definitions", "dependentSchemas")


def _without_patterns(schema: Json) -> Json:
    """A schema without `pattern`, wherever that is a keyword and not the name of a property."""
    if not isinstance(schema, dict):
        return schema
    found = dict(cast(JsonObject, schema))
    found.pop("pattern", None)
    if found.pop("patternProperties", None) is not None:
        # Nothing else tells which further names are right.
        found.pop("additionalProperties", None)
        found.pop("unevaluatedProperties", None)
    for key, value in found.items():
        if key in _LISTS and isinstance(value, list):
            found[key] = [_without_patterns(inner) for inner in cast(list[Json], value)]
        elif key in _TABLES and isinstance(value, dict):
            found[key] = {name: _without_patterns(inner) for name, inner in cast(JsonObject, value).items()}
        elif key in _SCHEMAS:
            found[key] = _without_patterns(value)
    return found
