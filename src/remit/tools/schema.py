"""Shapes validate JSON and report problems in words that a model can act on.

A shape comes from Python types (pydantic) or from a JSON schema (jsonschema); both libraries are
imported on first use. Structured answers are at the end. `signature.py` turns a function's
signature into fields.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, NotRequired, Optional, Protocol, cast, get_type_hints

import msgspec
from msgspec import Struct

from remit.errors import UsageError
from remit.tools.schema_patterns import PATTERN_KEYWORDS, uncovered_names
from remit.types.messages import Json, JsonObject
from remit.types.text import clean, clean_json, quote, shorten, to_json

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails, ValidationError

MOST_PROBLEMS = 12
"""The most problems listed in one message; the rest are counted."""

MOST_LOOKED_FOR = 50
"""Checking stops after this many problems."""

_KEPT = 256
"""The size of the caches of output shapes."""

_MOST_NAMES = 100
_LIST_CHARS = 2_000


class ShapeError(Exception):
    """Raised when a value does not fit a shape; `problems` holds one line per problem."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(clean(p) for p in dict.fromkeys(problems))
        super().__init__(self.listing)

    @property
    def listing(self) -> str:
        """The problems as a list for a model to read."""
        lines = [f"- {p}" for p in self.problems[:MOST_PROBLEMS]]
        more = len(self.problems) - MOST_PROBLEMS
        count = f"at least {more}" if len(self.problems) >= MOST_LOOKED_FOR else f"{more}"
        return "\n".join([*lines, f"- and {count} more"] if more > 0 else lines)


class Shape(Protocol):
    """A JSON schema, and `read`, which validates a value and raises ShapeError."""

    schema: JsonObject

    def read(self, value: Json) -> object: ...


# --- From Python types ---------------------------------------------------------------------------


class TypeShape:
    """The shape of a type that pydantic supports; `read` returns an instance."""

    def __init__(self, kind: object, name: str) -> None:
        from pydantic import TypeAdapter  # noqa: PLC0415 - as the module says
        from pydantic.json_schema import GenerateJsonSchema  # noqa: PLC0415 - as above

        class Untitled(GenerateJsonSchema):
            def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - its signature
                return False

        try:
            adapter = TypeAdapter(cast(type[object], kind))
            schema = adapter.json_schema(schema_generator=Untitled)
        except Exception as error:
            raise UsageError(f"{name}: a type has no JSON schema. {_first_line(error)}") from error
        self.schema: JsonObject = cast(JsonObject, schema)
        # The compiled validator: the adapter's own method costs more than the validation.
        self._quick = cast("Callable[[object], object]", adapter.validator.validate_python)
        self._from_json = cast("Callable[[bytes], object]", adapter.validator.validate_json)

    def read(self, value: Json) -> object:
        try:
            return self._quick(value)
        except Exception:  # noqa: BLE001 - validators are user code; the slow path reports the error
            return self._read_slowly(value)

    def _read_slowly(self, value: Json) -> object:
        """Validate again in pydantic's JSON mode, which decides.

        JSON mode accepts values that strict types reject as Python objects, and its errors name JSON types.
        """
        from pydantic import ValidationError  # noqa: PLC0415 - as the module says

        try:
            return self._from_json(msgspec.json.encode(clean_json(value)))
        except ValidationError as error:
            raise ShapeError(_type_problems(error, value, self.schema)) from None
        except Exception as error:
            raise ShapeError([f"validation failed: {_first_line(error)}"]) from error


class Field(Struct, frozen=True):
    """One field of an object, from a function's parameter."""

    annotation: object
    default: object = inspect.Parameter.empty
    note: str = ""

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty


def fields_shape(fields: Mapping[str, Field], known: Mapping[str, object], name: str) -> TypeShape:
    """The shape of an object with exactly these fields; `read` omits absent optional fields.

    `known` is the namespace for names in annotations. Raises UsageError.
    """
    from pydantic import ConfigDict  # noqa: PLC0415 - as the module says
    from typing_extensions import TypedDict  # noqa: PLC0415 - comes with pydantic, not with us

    make = cast("Callable[[str, object], type[object]]", TypedDict)
    kind = make(name, {key: field_type(name, key, field, known) for key, field in fields.items()})
    kind.__pydantic_config__ = ConfigDict(extra="forbid")  # pyright: ignore[reportAttributeAccessIssue]
    shape = TypeShape(kind, name)
    shape.schema.pop("title", None)
    for key, part in cast(dict[str, JsonObject], shape.schema.setdefault("properties", {})).items():
        field = fields[key]
        if field.note:
            part.setdefault("description", clean(field.note))
        if not field.required and field.default is not None:
            part.setdefault("default", to_json(field.default))
    return shape


class UnknownName(UsageError):
    """Raised when an annotation names a type that is not defined, or not yet."""


def field_type(name: str, key: str, field: Field, known: Mapping[str, object]) -> object:
    try:
        kind = _evaluate(field.annotation, known, {})
    except Exception as error:
        raise UnknownName(
            f"{name}: the annotation of {key}, {field.annotation!r}, cannot be resolved ({error}). "
            "Parameter types must be importable at run time, not only under TYPE_CHECKING."
        ) from error
    if field.default is None:
        # `x: str = None` is common, and a model that sees this default sends null.
        kind = cast(Mapping[object, object], Optional)[kind]
    return kind if field.required else NotRequired[kind]


def resolve(annotation: object, known: Mapping[str, object], local: Mapping[str, object]) -> object:
    """The annotation with forward references resolved, or unchanged if a name in it is not defined yet."""
    if annotation is inspect.Parameter.empty:
        return object
    try:
        return _evaluate(annotation, known, local)
    except Exception:  # noqa: BLE001 - evaluates user text; building the schema tries again and reports
        return annotation


def _evaluate(annotation: object, known: Mapping[str, object], local: Mapping[str, object]) -> object:
    holder = SimpleNamespace(__annotations__={"it": annotation})
    return cast(object, get_type_hints(holder, dict(known), dict(local), include_extras=True)["it"])


def _first_line(error: Exception) -> str:
    return shorten(f"{type(error).__name__}: {error}".splitlines()[0], 300, 297)


_TYPE_WORDS = {
    "string_type": "must be a string",
    "none_required": "must be null",
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    **dict.fromkeys(
        ("dict_type", "model_type", "dataclass_type", "model_attributes_type"), "must be an object"
    ),
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "must be an array"),
}
_MISSING = ("missing", "missing_argument", "missing_keyword_only_argument")
_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


def _type_problems(error: ValidationError, value: Json, schema: JsonObject) -> list[str]:
    # pydantic reports each member of a union under the same path: they are alternatives, so one problem.
    by_path: dict[str, list[str]] = {}
    got: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        kind = detail["type"]
        path = _real_path(detail["loc"], value, named=kind in _MISSING + _UNKNOWN)
        by_path.setdefault(path, []).append(_type_words(detail, schema))
        if kind not in _MISSING + _UNKNOWN:
            got[path] = f", not {quote(cast(Json, detail['input']))}"
    return [
        _problem(path, " or ".join(dict.fromkeys(words)) + got.get(path, ""))
        for path, words in by_path.items()
    ]


def _type_words(detail: ErrorDetails, schema: JsonObject) -> str:
    kind = detail["type"]
    if kind in _MISSING:
        return "required, but missing"
    if kind in _UNKNOWN:
        top = len(detail["loc"]) == 1
        return unknown_name(_object(schema.get("properties"))) if top else "unknown name"
    if kind in _TYPE_WORDS:
        return _TYPE_WORDS[kind]
    message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return message.replace("Input should", "must", 1) if message.startswith("Input should") else message


def _real_path(loc: Sequence[int | str], value: Json, *, named: bool) -> str:
    """The path in the value. pydantic's own path also contains names of union members."""
    parts: list[int | str] = []
    for index, part in enumerate(loc):
        if isinstance(value, dict) and part in value:
            value = cast(dict[object, Json], value)[part]
        elif isinstance(value, list) and isinstance(part, int) and part < len(cast(list[Json], value)):
            value = cast(list[Json], value)[part]
        elif not (named and index == len(loc) - 1):
            continue
        parts.append(part)
    return _dotted(parts)


# --- From a JSON schema --------------------------------------------------------------------------


class SchemaError(Protocol):
    """The attributes used of jsonschema's errors. Errors of other validators may provide them too."""

    validator: str
    validator_value: Json
    instance: Json
    schema: Json
    absolute_path: Iterable[int | str]
    context: Sequence[SchemaError]


class _Validator(Protocol):
    def iter_errors(self, instance: Json) -> Iterable[SchemaError]: ...


class SchemaShape:
    """The shape of a JSON schema; `read` returns the value itself. A $ref is never fetched."""

    def __init__(self, schema: Mapping[str, Json], name: str) -> None:
        try:
            self.schema = cast(JsonObject, msgspec.json.decode(msgspec.json.encode(schema)))
        except Exception as error:
            raise UsageError(f"{name}: the JSON schema is not JSON. {_first_line(error)}") from error
        self._validator = _validator(self.schema, name)

    def read(self, value: Json) -> object:
        problems: dict[str, None] = {}
        try:
            for error in self._validator.iter_errors(value):
                problems |= dict.fromkeys(itertools.islice(schema_problems(error), MOST_LOOKED_FOR))
                if len(problems) >= MOST_LOOKED_FOR:
                    # A schema may have thousands of properties, and jsonschema reports each missing one.
                    break
        except Exception as error:
            raise ShapeError([f"validation failed: {_first_line(error)}"]) from error
        if problems:
            raise ShapeError(problems)
        return value


def _validator(schema: JsonObject, name: str) -> _Validator:
    validators = importlib.import_module("jsonschema.validators")
    referencing = importlib.import_module("referencing")
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        kind.check_schema(schema)
        _check_refs(schema)
    except Exception as error:
        raise UsageError(f"{name}: not a valid JSON schema. {_first_line(error)}") from error
    kind = validators.extend(kind, PATTERN_KEYWORDS)
    # An explicit registry: jsonschema's default one fetches unknown references from the network.
    return cast(_Validator, kind(schema, registry=referencing.Registry()))


def _check_refs(schema: JsonObject) -> None:
    from referencing import Registry, Resource  # noqa: PLC0415 - as the module says
    from referencing.jsonschema import DRAFT202012  # noqa: PLC0415 - as above

    root: Resource[Json] = Resource.from_contents(schema, default_specification=DRAFT202012)
    registry: Registry[Json] = Registry()
    todo = [(root, registry.with_resource("", root).resolver())]
    while todo:
        resource, outer = todo.pop()
        resolver = outer.in_subresource(resource)
        ref = cast(JsonObject, resource.contents).get("$ref") if isinstance(resource.contents, dict) else None
        if isinstance(ref, str):
            resolver.lookup(ref)
        todo += [(inner, resolver) for inner in resource.subresources()]


_KEYWORDS = {
    "enum": "must be one of {}",
    "const": "must be {}",
    "minimum": "must be at least {}",
    "maximum": "must be at most {}",
    "exclusiveMinimum": "must be more than {}",
    "exclusiveMaximum": "must be less than {}",
    "multipleOf": "must be a multiple of {}",
    "minLength": "must have at least {} characters",
    "maxLength": "must have at most {} characters",
    "minItems": "must have at least {} items",
    "maxItems": "must have at most {} items",
    "pattern": "must match the pattern {}",
    "format": "must have the format {}",
}


def schema_problems(error: SchemaError) -> Iterable[str]:
    """One line per problem of an error."""
    path = list(error.absolute_path)
    schema, instance = _object(error.schema), _object(error.instance)
    if error.validator == "required":
        for key in cast(list[str], error.validator_value):
            if key not in instance:
                yield _problem(_dotted([*path, key]), "required, but missing")
    elif error.validator == "additionalProperties" and error.validator_value is False:
        for key in uncovered_names(instance, schema):
            yield _problem(_dotted([*path, key]), unknown_name(_object(schema.get("properties"))))
    else:
        yield _problem(_dotted(path), f"{_keyword_words(error)}, not {quote(error.instance)}")


def _object(value: Json) -> JsonObject:
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def _keyword_words(error: SchemaError) -> str:
    keyword, value = error.validator, error.validator_value
    if keyword == "type":
        kinds = cast(list[str], value) if isinstance(value, list) else [cast(str, value)]
        return "must be of type " + " or ".join(kinds)
    if keyword in ("anyOf", "oneOf"):
        words = dict.fromkeys(_alternative(sub) for sub in error.context)
        return " or ".join(words) if words else "must fit exactly one of the allowed forms"
    if keyword == "enum":
        values = cast(list[Json], value)[:_MOST_NAMES]
        return "must be one of " + shorten(", ".join(map(quote, values)), _LIST_CHARS, _LIST_CHARS - 3)
    if keyword in _KEYWORDS:
        return _KEYWORDS[keyword].format(quote(value))
    return f"does not fit the schema's {keyword} {quote(value)}"


def _alternative(error: SchemaError) -> str:
    if error.validator in ("required", "additionalProperties"):
        return "; ".join(schema_problems(error))
    return _keyword_words(error)


# --- Words ---------------------------------------------------------------------------------------


def _dotted(parts: Iterable[int | str]) -> str:
    return "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in parts).removeprefix(".")


def _problem(path: str, words: str) -> str:
    return f"{shorten(path, 200, 197)}: {words}" if path else words


def unknown_name(known: Iterable[str]) -> str:
    """The message about a name that is not in `known`."""
    names = shorten(", ".join(known), _LIST_CHARS, _LIST_CHARS - 3)
    return f"unknown name; valid names: {names}" if names else "unknown name; no names are valid here"


# --- Structured answers --------------------------------------------------------------------------


@functools.lru_cache(_KEPT)
def _kept_type(output: object) -> Shape:
    return TypeShape(output, "output")


@functools.lru_cache(_KEPT)
def _kept_schema(encoded: bytes) -> Shape:
    return SchemaShape(cast(JsonObject, msgspec.json.decode(encoded)), "output")


def _output_shape(output: object) -> Shape:
    if isinstance(output, Mapping):
        try:
            encoded = msgspec.json.encode(output)
        except Exception as error:
            raise UsageError(f"output: the JSON schema is not JSON. {_first_line(error)}") from error
        return _kept_schema(encoded)
    if isinstance(output, str):
        raise UsageError(f"output must be a type or a JSON schema, not the text {output!r}.")
    if isinstance(output, (int, float, bytes, list, tuple, set)):
        hint = " For a list of something write list[...]." if isinstance(output, list) else ""
        raise UsageError(
            f"output must be a type or a JSON schema, not {repr(cast(object, output))[:60]}.{hint}"
        )
    if inspect.isroutine(output):
        raise UsageError(f"output must be a type or a JSON schema, not the function {output!r}.")
    try:
        hash(output)
    except TypeError:
        return TypeShape(output, "output")
    return _kept_type(output)


MOST_CANDIDATES = 20
"""The most parts of an answer that are tried as JSON."""


def output_schema(output: object) -> JsonObject | None:
    """The JSON schema of an agent's `output`. Raises UsageError unless it is a type, a JSON schema or None."""
    return None if output is None else _output_shape(output).schema


def parse_output(output: object, text: str) -> tuple[object, str]:
    """The structured answer in a model's text, and the problem with it ("" if it is valid).

    The JSON is the whole text or a fenced block in it; among several blocks, the last valid one.
    """
    if output is None or output is str:
        return clean(text), ""
    shape = _output_shape(output)
    unfit = unread = ""
    for candidate in _candidates(clean(text)):
        try:
            return shape.read(msgspec.json.decode(candidate)), ""
        except ShapeError as error:
            unfit = unfit or f"The answer does not fit the schema:\n{error.listing}"
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            unread = unread or f"The answer is not JSON ({_plain(error)}). Answer with the JSON alone."
    return None, unfit or unread


def _candidates(text: str) -> list[str]:
    """The whole text, its fenced blocks from last to first, and the inside of a fence around the whole text."""
    text = text.strip()
    found = [text, *reversed(_blocks(text))]
    if text.startswith("```") and text.endswith("```") and len(text) > 6:
        inside = text[3:-3]
        found.append(inside[4:] if inside[:4].lower() == "json" else inside)
    return [candidate.strip() for candidate in found][:MOST_CANDIDATES]


def _blocks(text: str) -> list[str]:
    """The fenced blocks. Read line by line: a regex over the whole text takes quadratic time on hostile input."""
    blocks: list[str] = []
    begun: list[str] | None = None
    for line in text.splitlines():
        mark = line.strip().lower()
        if begun is not None and mark == "```":
            blocks.append("\n".join(begun))
            begun = None
        elif begun is not None:
            begun.append(line)
        elif mark == "```" or mark.startswith("```json"):
            begun = []
    return blocks


def _plain(error: Exception) -> str:
    return shorten(str(error) or type(error).__name__, 120, 117)
