"""Laws of `remit.tools.schema`: shapes, their messages, structured answers."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator
from typing_extensions import TypedDict

import remit
from remit.errors import UsageError
from remit.tools.schema import MOST_PROBLEMS, SchemaShape, ShapeError, TypeShape, output_schema, parse_output
from remit.types.messages import Json, JsonObject


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float = Field(gt=0)


class Square(BaseModel):
    kind: Literal["square"]
    side: float


class Drawing(BaseModel):
    title: str
    shapes: list[Circle | Square] = []


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    corners: tuple[int, int]


class Even(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("number must be even")
        return number


class Crashing(BaseModel):
    number: int

    @field_validator("number")
    @classmethod
    def crash(cls, number: int) -> int:
        raise RuntimeError("a bug")


@dataclasses.dataclass
class Point:
    x: int


class Named(TypedDict):
    name: str


PERSON: JsonObject = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2},
        "age": {"type": "integer", "minimum": 0},
        "level": {"enum": ["low", "high", 3]},
        "home": {"$ref": "#/$defs/home"},
        "nick": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
    "$defs": {"home": {"type": "object", "required": ["city"]}},
}


def problems(kind: object, value: Json) -> list[str]:
    shape = SchemaShape(kind, "it") if isinstance(kind, dict) else TypeShape(kind, "it")
    with pytest.raises(ShapeError) as caught:
        shape.read(value)
    return list(caught.value.problems)


def test_every_problem_of_a_type_is_reported_at_once_with_its_path() -> None:
    """The message names each field, the problem and the value, in JSON terms."""
    value: JsonObject = {"shapes": [{"kind": "circle", "radius": "wide"}, 7]}
    found = problems(Drawing, value)
    assert found[0] == "title: required, but missing"
    assert any(p.startswith("shapes[0].radius: must be a number") and '"wide"' in p for p in found)
    assert "shapes[1]: must be an object, not 7" in found


def test_problems_do_not_mention_python() -> None:
    """Problems contain no class names, memory addresses or library links."""
    told = "\n".join(problems(Drawing, {"title": 3, "shapes": {"a": 1}}) + problems(Point, "x"))
    for word in ("Circle", "Drawing", "Point", "http", "pydantic", "dict", "class", "Input"):
        assert word not in told


def test_bounds_and_choices_are_reported() -> None:
    """The problem of an invalid value contains the allowed values."""
    assert problems(Circle, {"kind": "oval", "radius": 0}) == [
        "kind: must be 'circle', not \"oval\"",
        "radius: must be greater than 0, not 0",
    ]
    assert problems(Even, {"number": 3}) == ["number: number must be even, not 3"]


def test_a_validator_that_crashes_is_a_problem_not_a_crash() -> None:
    """A bug in a user's validator is reported as a problem of the value."""
    assert problems(Crashing, {"number": 1}) == ["validation failed: RuntimeError: a bug"]


def test_strict_types_accept_json() -> None:
    """A strict tuple accepts an array, since JSON has no tuples."""
    assert TypeShape(Strict, "it").read({"corners": [1, 2]}) == Strict(corners=(1, 2))


def test_a_long_list_of_problems_is_counted() -> None:
    """Only the first problems are listed; the rest are counted."""
    with pytest.raises(ShapeError) as caught:
        TypeShape(list[int], "it").read(["x"] * (MOST_PROBLEMS + 5))
    assert caught.value.listing.count("\n") == MOST_PROBLEMS
    assert caught.value.listing.endswith("- and 5 more")


def test_every_problem_of_a_json_schema_is_reported_at_once() -> None:
    """Problems with a JSON schema name the field, the allowed values and the known names."""
    value: JsonObject = {"name": "x", "level": "mid", "home": {}, "nick": 5, "nmae": 1}
    found = problems(PERSON, value)
    assert set(found) == {
        'name: must have at least 2 characters, not "x"',
        "age: required, but missing",
        'level: must be one of "low", "high", 3, not "mid"',
        "home.city: required, but missing",
        "nick: must be of type string or must be of type null, not 5",
        "nmae: unknown name; valid names: name, age, level, home, nick",
    }


def test_a_long_value_is_truncated_in_a_problem() -> None:
    """A problem is short however long the value is."""
    [told] = problems({"type": "integer"}, "x" * 10_000)
    assert len(told) < 200


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "http://localhost:9/remote.json"},
        {"properties": {"a": {"$ref": "#/$defs/gone"}}},
        {"items": {"$ref": "other.json"}},
        {"type": object()},
        {"pattern": "("},
    ],
)
def test_a_bad_json_schema_is_a_usage_error(schema: JsonObject) -> None:
    """An invalid schema, or a $ref to another schema, raises UsageError when the shape is built."""
    with pytest.raises(UsageError):
        output_schema(schema)


def test_no_ref_is_ever_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A $ref to an address opens no connection."""
    opened: list[object] = []

    def connect(*where: object) -> None:
        opened.append(where)
        raise OSError("no network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(UsageError, match="not a valid JSON schema"):
        output_schema({"properties": {"a": {"$ref": "http://localhost:9/x.json"}}})
    assert opened == []


def test_a_ref_as_data_is_not_a_reference() -> None:
    """A $ref inside data, such as an enum value, is not treated as a reference."""
    schema: JsonObject = {"const": {"$ref": "elsewhere.json"}}
    assert parse_output(schema, '{"$ref": "elsewhere.json"}') == ({"$ref": "elsewhere.json"}, "")


@pytest.mark.parametrize(
    "output", [Drawing, Point, Named, list[Point], int | None, Annotated[int, Field(ge=1)]]
)
def test_a_type_has_a_schema(output: object) -> None:
    """Models, dataclasses, typed dicts and other types all give a JSON schema."""
    assert isinstance(output_schema(output), dict)


def test_no_output_has_no_schema() -> None:
    """Without `output` there is no schema, and the answer is the text."""
    assert output_schema(None) is None
    assert parse_output(None, "plain \ud800") == ("plain �", "")
    assert parse_output(str, "plain") == ("plain", "")


@pytest.mark.parametrize("output", ["Drawing", 5, object(), socket.socket])
def test_an_invalid_output_is_a_usage_error(output: object) -> None:
    """An `output` that is neither a type nor a schema raises UsageError."""
    with pytest.raises(UsageError, match="output"):
        output_schema(output)


@pytest.mark.parametrize(
    "text",
    [
        '{"x": 1}',
        '  \n{"x": 1}\n ',
        'Here it is:\n```json\n{"x": 1}\n```\nDone.',
        'Here:\n```\n{"x": 1}\n```',
        '```json {"x": 1}```',
        'First try:\n```json\n{"x": "no"}\n```\nBetter:\n```JSON\n{"x": 1}\n```',
        'Good:\n```json\n{"x": 1}\n```\nunlike\n```json\n{"y": 1}\n```',
    ],
)
def test_the_answer_is_found_in_the_text(text: str) -> None:
    """The answer is the whole text or a fenced block; among several blocks, the last valid one."""
    assert parse_output(Point, text) == (Point(1), "")


def test_a_fence_inside_a_string_does_not_end_the_answer() -> None:
    """Backticks in a JSON string are data."""
    value, problem = parse_output(Named, '```json\n{"name": "```"}\n```')
    assert (value, problem) == ({"name": "```"}, "")


def test_an_answer_by_json_schema_stays_plain_json() -> None:
    """A dict schema validates and leaves the value as it is."""
    assert parse_output(PERSON, '{"name": "Ann", "age": 3}') == ({"name": "Ann", "age": 3}, "")
    value, problem = parse_output(PERSON, '{"name": "Ann"}')
    assert value is None
    assert problem == "The answer does not fit the schema:\n- age: required, but missing"


@pytest.mark.parametrize(
    "text", ["", "I could not find it.", '{"x": 1', "```python\n[1]\n```", "[" * 100_000]
)
def test_an_answer_that_is_not_json_is_reported(text: str) -> None:
    """For text without JSON, the problem asks for the JSON alone."""
    value, problem = parse_output(list[int], text)
    assert value is None
    assert problem.startswith("The answer is not JSON")


def test_an_invalid_block_is_reported_rather_than_the_prose_around_it() -> None:
    """If a block is JSON but invalid, its problems are reported, not that the whole text is not JSON."""
    _, problem = parse_output(Point, 'So:\n```json\n{"x": "one"}\n```')
    assert problem == 'The answer does not fit the schema:\n- x: must be a whole number, not "one"'


def test_an_unhashable_type_works_too() -> None:
    """Annotations that cannot be cached are built each time."""
    kind = Annotated[int, Field(json_schema_extra={"a": 1}), {"un": "hashable"}]
    assert parse_output(kind, "3") == (3, "")


def test_importing_tools_does_not_import_pydantic() -> None:
    """pydantic and jsonschema are imported with the first schema; plain JSON types do not need them."""
    code = """
import sys
from remit.tools.tool import tool
@tool
def f(a: int) -> int: return a
heavy = {"pydantic", "pydantic_core", "jsonschema", "referencing"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
f.spec
assert "pydantic" in sys.modules and "jsonschema" not in sys.modules
"""
    path = str(Path(remit.__file__).parent.parent)
    env = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"pattern": r"^([a-z.]+)+@x$"}, "a" * 60, "must match the pattern"),
        ({"patternProperties": {r"^(\w+\s?)*$": {"type": "integer"}}}, {"a" * 60 + "!": 1}, ""),
        (
            {"patternProperties": {r"^(\w+\s?)*$": {}}, "additionalProperties": False},
            {"a" * 60 + "!": 1},
            "unknown name",
        ),
        ({"patternProperties": {"^a": {"type": "integer"}}}, {"ab": "x"}, "ab: must be of type integer"),
        (
            {"properties": {"a": {}}, "additionalProperties": {"type": "integer"}},
            {"a": "", "b": ""},
            "b: must be",
        ),
        ({"pattern": r"(?=a)a"}, "b", "must match the pattern"),
    ],
)
def test_patterns_are_matched_in_linear_time(schema: JsonObject, value: Json, problem: str) -> None:
    """No text that a model chooses makes the check of a pattern slow; the keywords mean what they mean in JSON schema."""
    shape = SchemaShape(schema, "x")
    if not problem:
        assert shape.read(value) == value
        return
    with pytest.raises(ShapeError, match=problem):
        shape.read(value)
