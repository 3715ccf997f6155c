"""Schemas of servers: which are invalid, and which arguments are checked before the call."""

from __future__ import annotations

import pytest

from remit.errors import UsageError
from remit.tools.mcp.schemas import MOST_STEPS, ServerShape
from remit.tools.schema import ShapeError
from remit.types.messages import Json, JsonObject

OLD = "http://json-schema.org/draft-07/schema#"


def shape(**properties: Json) -> ServerShape:
    return ServerShape({"type": "object", "properties": properties})


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"properties": {"a": 7}}, "'properties/a' must be a schema"),
        ({"properties": [1]}, "'properties' must be a table of schemas"),
        ({"properties": {"a": {"type": "text"}}}, "must be a JSON type"),
        ({"properties": {"a": {"type": []}}}, "must be a JSON type"),
        ({"properties": {"a": {"minLength": -1}}}, "must be a whole number"),
        ({"properties": {"a": {"minimum": "1"}}}, "must be a number"),
        ({"properties": {"a": {"exclusiveMinimum": True}}}, "must be a number"),
        ({"properties": {"a": {"enum": {"b": 1}}}}, "must be a list"),
        ({"properties": {"a": {"anyOf": []}}}, "must be a list of schemas"),
        ({"properties": {"a": {"items": [{"type": "string"}]}}}, "must be a schema"),
        ({"properties": {"a": {"maximum": float("inf")}}}, "must be a number"),
        ({"required": "a"}, "must be a list of strings"),
        ({"$defs": {"a": {"type": 1}}}, "'$defs/a/type'"),
        ({"properties": {"a": {"$ref": "#/none"}}}, "refers to '#/none', which does not exist"),
        ({"properties": {"a": {"$ref": "#none"}}}, "which does not exist"),
        ({"properties": {"a": {"$ref": "#/x/0"}}, "x": ["text"]}, "which does not exist"),
        ({"properties": {"a": {"$ref": "other.json"}}}, "does not fetch other schemas"),
        ({"properties": {"a": {"$ref": "#/x"}}, "x": {"type": 5}}, "'#/x/type' must be"),
        ({"description": "x" * 70_000}, "the limit is 64,000"),
    ],
)
def test_invalid_schemas_are_refused(schema: JsonObject, words: str) -> None:
    """A provider would refuse the whole request, so an invalid schema is refused here, with the place."""
    with pytest.raises(UsageError) as caught:
        ServerShape(schema)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": OLD, "properties": {"a": {"items": [{"type": "string"}], "exclusiveMinimum": True}}},
        {"properties": {"a": {"$ref": "#/$defs/a~1b%20c"}}, "$defs": {"a/b c": {"type": "string"}}},
        {"properties": {"a": {"$ref": "#here"}}, "$defs": {"x": {"$anchor": "here", "type": "string"}}},
        {"properties": {"a": {"$ref": "#"}}},
        {"$id": "https://h/s", "properties": {"a": {"$ref": "https://h/s#/$defs/x"}}, "$defs": {"x": True}},
        {"properties": {"a": {"$ref": "#/oneOf/0"}}, "oneOf": [{"type": "object"}]},
        {"properties": {"a": True, "type": {"type": "string"}, "$ref": {"type": "integer"}}},
        {"properties": {}, "x-vendor": {"type": 5}},
    ],
)
def test_valid_schemas_are_accepted(schema: JsonObject) -> None:
    """Older drafts, internal references, names that are also keywords, and unknown keywords are accepted."""
    assert ServerShape(schema).schema == {"type": "object", **schema}


@pytest.mark.parametrize(
    ("schema", "value", "words"),
    [
        ({"type": "string"}, 1, "a: must be of type string, not 1"),
        ({"type": ["integer", "null"]}, 1.5, "must be of type integer or null"),
        ({"type": "integer"}, True, "must be of type integer"),
        ({"enum": ["x", 1]}, "y", 'must be one of "x", 1, not "y"'),
        ({"enum": [1]}, True, "must be one of 1"),
        ({"const": "x"}, "y", 'must be "x"'),
        ({"minimum": 1, "exclusiveMaximum": 5}, 0, "must be at least 1"),
        ({"minimum": 1, "exclusiveMaximum": 5}, 5, "must be less than 5"),
        ({"minLength": 2}, "x", "at least 2 characters"),
        ({"maxItems": 1}, [1, 2], "at most 1 items"),
        ({"items": {"type": "string"}}, ["x", 2], "a[1]: must be of type string"),
        ({"prefixItems": [True], "items": {"type": "string"}}, [1, 2], "a[1]: must be of type string"),
        ({"required": ["b"]}, {}, "a.b: required, but missing"),
        ({"properties": {"b": {}}, "additionalProperties": False}, {"c": 1}, "a.c: unknown name"),
        ({"additionalProperties": {"type": "string"}}, {"c": 1}, "a.c: must be of type string"),
        ({"$ref": "#/properties/b"}, "x", "a: must be of type number"),
    ],
)
def test_simple_constraints_are_checked(schema: JsonObject, value: Json, words: str) -> None:
    """The model reads at once what is wrong, and where."""
    made = shape(a=schema, b={"type": "number"})
    with pytest.raises(ShapeError) as caught:
        made.read({"a": value})
    assert words in caught.value.listing


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, 2.0),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 5),
        ({"not": {}}, 5),
        ({"pattern": "^b"}, "a"),
        ({"patternProperties": {"^b": {}}, "additionalProperties": False}, {"a": 1}),
        ({"minimum": 5}, "text"),
        ({"required": ["b"]}, "text"),
    ],
)
def test_the_rest_is_left_to_the_server(schema: JsonObject, value: Json) -> None:
    """Combinations and patterns are shown to the model, and not checked here."""
    made = shape(a=schema)
    assert made.read({"a": value}) == {"a": value}


def test_checking_takes_bounded_steps() -> None:
    """Beyond a number of steps the server checks the arguments, whatever schema and arguments are."""
    values = list(range(1000))
    made = shape(a={"items": {"enum": values}})
    good: JsonObject = {"a": [1] * (2 * MOST_STEPS) + ["bad"]}
    assert made.read(good) is good
    node: JsonObject = {"$ref": "#/$defs/n0", "properties": {"p": {"$ref": "#/$defs/n0"}}}
    chain = {f"n{i}": {**node, "$ref": f"#/$defs/n{(i + 1) % 30}"} for i in range(30)}
    deep: Json = {}
    for _ in range(40):
        deep = {"p": deep}
    ServerShape({"type": "object", **node, "$defs": chain}).read(deep)
