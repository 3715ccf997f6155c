"""Remove malformed parts from a server's answer, so that the rest can be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import msgspec

from remit.types.messages import JsonObject
from remit.types.text import shorten, text_of

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
    from mcp.shared.transport_context import TransportContext
    from mcp_types import RequestId

    from remit.tools.mcp.transport import Streams

MOST_TOOLS = 1_000
"""The most tools of a server; the rest are omitted and reported."""

LIST_BYTES = 2_000_000
"""The most bytes of a whole list of tools, counting only the used fields."""

TOOL_BYTES = 100_000
MOST_BLOCKS = 1_000
"""The most parts of a result; the rest are omitted and counted."""

_USED = ("name", "title", "description", "inputSchema", "annotations", "execution")
_FRAME = ("resultType", "ttlMs", "cacheScope")
_ODD_CHARS = 2_000
_NAME_CHARS = 500
_UNNAMED = "(without a name)"


class Listing:
    """The state of one listing of tools, over all its pages."""

    def __init__(self) -> None:
        self.malformed: dict[str, str] = {}
        """Entries that are not valid tools, or too large: name to reason."""
        self.is_full = False
        """Whether a limit was reached, so that no more is read."""
        self._count = 0
        self._bytes = 0

    def takes(self, tool: object, size: int) -> bool:
        """Whether this tool is accepted."""
        self._count += 1
        why = ""
        if size > TOOL_BYTES:
            why = f"its definition has {size:,} bytes; the limit is {TOOL_BYTES:,}"
        else:
            self._bytes += size
        if self._count > MOST_TOOLS:
            why = f"the server lists more than {MOST_TOOLS:,} tools; the rest are omitted"
        elif self._bytes > LIST_BYTES:
            why = f"the server's list has more than {LIST_BYTES:,} bytes; the rest is omitted"
        self.is_full = self._count > MOST_TOOLS or self._bytes > LIST_BYTES
        if why:
            self.malformed[_name(tool)] = why
        return not why


def dispatcher(
    streams: Streams, version: Callable[[], str], listing: Callable[[], Listing]
) -> JSONRPCDispatcher[TransportContext]:
    """A dispatcher for a session that filters answers. Invalid tools are recorded in the listing, by name."""
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher  # noqa: PLC0415 - imported by now

    class Sieve(JSONRPCDispatcher["TransportContext"]):
        async def send_raw_request(
            self,
            method: str,
            params: Mapping[str, Any] | None,
            opts: CallOptions | None = None,
            *,
            _related_request_id: RequestId | None = None,
        ) -> dict[str, Any]:
            answer = await super().send_raw_request(
                method, params, opts, _related_request_id=_related_request_id
            )
            if method == "tools/list":
                return sift_tools(answer, version(), listing())
            return sift_result(answer, version()) if method == "tools/call" else answer

    return Sieve(*streams)


def sift_tools(answer: JsonObject, version: str, listing: Listing) -> JsonObject:
    """A list of tools without invalid ones, and without unused fields."""
    tools = answer.get("tools")
    if not isinstance(tools, list):
        return answer
    kept: list[object] = []
    for tool in cast("list[object]", tools):
        used = _used(tool)
        if listing.takes(tool, _size(used)):
            kept.append(used)
        elif listing.is_full:
            break
    whole = {**answer, "tools": kept}
    if _fits("tools/list", version, whole):
        return whole
    # Only the required fields, since they are validated again with each tool.
    frame = _frame(answer)
    good = [tool for tool in kept if _fits("tools/list", version, {**frame, "tools": [tool]})]
    chosen = set(map(id, good))
    for tool in kept:
        if id(tool) not in chosen:
            listing.malformed[_name(tool)] = "its definition is invalid"
    cursor = answer.get("nextCursor")
    return {**frame, "tools": good, **({"nextCursor": cursor} if isinstance(cursor, str) else {})}


def _frame(answer: JsonObject) -> JsonObject:
    return {key: answer[key] for key in _FRAME if key in answer}


def _used(tool: object) -> object:
    if not isinstance(tool, dict):
        return tool
    return {key: cast(JsonObject, tool)[key] for key in _USED if key in tool}


def _name(tool: object) -> str:
    name = cast(JsonObject, tool).get("name") if isinstance(tool, dict) else None
    return name[:_NAME_CHARS] if isinstance(name, str) else _UNNAMED


def _size(value: object) -> int:
    try:
        return len(msgspec.json.encode(value))
    except (ValueError, RecursionError):
        # Invalid text: estimate its size.
        return len(text_of(value))


def sift_result(answer: JsonObject, version: str) -> JsonObject:
    """A result with malformed parts turned into text: the call was made, so its result must not be lost."""
    if answer.get("resultType", "complete") != "complete":
        return answer
    answer = _cut(answer)
    if _fits("tools/call", version, answer):
        return answer
    found: JsonObject = {**_frame(answer), "content": [], "isError": answer.get("isError") is True}
    structured = answer.get("structuredContent")
    blocks: object = answer.get("content") or ()
    listed = cast("list[object]", blocks) if isinstance(blocks, list | tuple) else [blocks]
    content = [
        block if _fits("tools/call", version, {**found, "content": [block]}) else _as_text(block)
        for block in listed
    ]
    if structured is not None:
        whole = {**found, "structuredContent": structured}
        if _fits("tools/call", version, whole):
            found = whole
        else:
            content.append(_as_text(structured))
    return {**found, "content": content}


def _cut(answer: JsonObject) -> JsonObject:
    blocks = answer.get("content")
    if not isinstance(blocks, list) or len(cast("list[object]", blocks)) <= MOST_BLOCKS:
        return answer
    listed = cast("list[object]", blocks)
    note = _as_text(f"({len(listed) - MOST_BLOCKS:,} further parts of the answer were omitted)")
    return {**answer, "content": [*listed[:MOST_BLOCKS], note]}


def _as_text(odd: object) -> JsonObject:
    return {"type": "text", "text": shorten(text_of(odd), _ODD_CHARS, _ODD_CHARS - 3)}


def _fits(method: str, version: str, answer: JsonObject) -> bool:
    """Whether a session accepts the answer: it validates by protocol version and by model."""
    import mcp_types as types  # noqa: PLC0415 - imported by now
    from mcp_types import methods  # noqa: PLC0415 - as above
    from pydantic import ValidationError  # noqa: PLC0415 - as above

    kind = types.ListToolsResult if method == "tools/list" else types.CallToolResult
    try:
        methods.validate_server_result(method, version, answer)
        kind.model_validate(answer, by_name=False)
    except ValidationError:
        return False
    return True
