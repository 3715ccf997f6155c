"""Malformed parts of a server's answer do not hide the rest."""

from __future__ import annotations

import mcp_types as types
import pytest
from mcp_types import methods

from remit.tools.mcp.malformed import Listing, sift_result, sift_tools
from remit.tools.mcp.results import to_result
from remit.types.messages import JsonObject

VERSIONS = ["2024-11-05", "2025-11-25", "2026-07-28"]
MORE: JsonObject = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
GOOD: JsonObject = {"name": "good", "inputSchema": {"type": "object"}}


def more(version: str) -> JsonObject:
    return dict(MORE) if version.startswith("2026") else {}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("bad", "name"),
    [
        ({"name": "bad"}, "bad"),
        ({"name": "bad", "inputSchema": None}, "bad"),
        ({"name": "bad", "inputSchema": {"type": "object"}, "description": 7}, "bad"),
        ({"inputSchema": {"type": "object"}}, "(without a name)"),
        ("bad", "(without a name)"),
    ],
)
def test_one_bad_tool_does_not_void_the_list(version: str, bad: object, name: str) -> None:
    """The remaining tools are valid by the protocol, and the removed ones are named."""
    listing = Listing()
    found = sift_tools({**more(version), "tools": [GOOD, bad, GOOD]}, version, listing)
    methods.validate_server_result("tools/list", version, found)
    assert found["tools"] == [GOOD, GOOD]
    assert list(listing.malformed) == [name]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            {"content": [{"type": "video", "uri": "x"}, {"type": "text", "text": "hi"}]},
            '{"type":"video","uri":"x"}\nhi',
        ),
        ({"content": "plain words"}, "plain words"),
        ({"content": [], "isError": "yes"}, "(The tool returned no output.)"),
        ({"content": [{"type": "text", "text": 5}]}, '{"type":"text","text":5}'),
        ({"structuredContent": {"a": 1}}, '{"a":1}'),
    ],
)
def test_malformed_parts_of_a_result_are_shown(version: str, answer: JsonObject, words: str) -> None:
    """The call was executed, so no part of its result is dropped for its form."""
    found = sift_result({**more(version), **answer}, version)
    methods.validate_server_result("tools/call", version, found)
    assert to_result(types.CallToolResult.model_validate(found)).content == words


@pytest.mark.parametrize("version", VERSIONS)
def test_structured_content_of_any_kind_is_shown(version: str) -> None:
    """If the protocol requires an object, a list is still shown."""
    found = sift_result({**more(version), "content": [], "structuredContent": [1, 2]}, version)
    assert to_result(types.CallToolResult.model_validate(found)).content == "[1,2]"


def test_valid_answers_are_unchanged() -> None:
    """A valid answer is unchanged."""
    answer: JsonObject = {"content": [{"type": "text", "text": "hi"}]}
    assert sift_result(answer, "2025-11-25") is answer
    asking: JsonObject = {"resultType": "input_required", "inputRequests": {}}
    assert sift_result(asking, "2026-07-28") is asking
