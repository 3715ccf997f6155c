"""What servers get wrong in an answer, taken out of it, so that the rest of the answer can be used."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from remit.messages import JsonObject
from remit.text import shorten, text_of

if TYPE_CHECKING:
    from mcp.shared.dispatcher import CallOptions
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
    from mcp.shared.transport_context import TransportContext
    from mcp_types import RequestId

    from remit.tools.mcp.link import Streams

_ODD_CHARS = 2_000
_UNNAMED = "(without a name)"


def dispatcher(
    streams: Streams, version: Callable[[], str], malformed: dict[str, str]
) -> JSONRPCDispatcher[TransportContext]:
    """What a session speaks through. Tools that are no tools are noted in `malformed`, by name."""
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
                return sift_tools(answer, version(), malformed)
            return sift_result(answer, version()) if method == "tools/call" else answer

    return Sieve(*streams)


def sift_tools(answer: JsonObject, version: str, malformed: dict[str, str]) -> JsonObject:
    """A list of tools without those that are none: one of them must not hide the others."""
    tools = answer.get("tools")
    if not isinstance(tools, list) or _fits("tools/list", version, answer):
        return answer
    kept: list[object] = []
    for tool in cast("list[object]", tools):
        if _fits("tools/list", version, {**answer, "tools": [tool]}):
            kept.append(tool)
        else:
            name = cast(JsonObject, tool).get("name") if isinstance(tool, dict) else None
            malformed[name if isinstance(name, str) else _UNNAMED] = "the server describes it in a wrong way"
    return {**answer, "tools": kept}


def sift_result(answer: JsonObject, version: str) -> JsonObject:
    """A result whose odd parts are told as text: the call was made, and what came of it is not lost."""
    if answer.get("resultType", "complete") != "complete" or _fits("tools/call", version, answer):
        return answer
    found: JsonObject = {**answer, "content": [], "isError": answer.get("isError") is True}
    structured = found.pop("structuredContent", None)
    blocks: object = answer.get("content") or ()
    content = [
        block if _fits("tools/call", version, {**found, "content": [block]}) else _told(block)
        for block in (cast("list[object]", blocks) if isinstance(blocks, list | tuple) else [blocks])
    ]
    if structured is not None:
        whole = {**found, "structuredContent": structured}
        if _fits("tools/call", version, whole):
            found = whole
        else:
            content.append(_told(structured))
    return {**found, "content": content}


def _told(odd: object) -> JsonObject:
    return {"type": "text", "text": shorten(text_of(odd), _ODD_CHARS, _ODD_CHARS - 3)}


def _fits(method: str, version: str, answer: JsonObject) -> bool:
    """Whether a session takes it: it looks twice, by the version and by what it makes of it."""
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
