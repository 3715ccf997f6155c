"""Check servers' JSON schemas, and arguments against a part of them.

Not with a schema library: a hostile schema's references, combinations and patterns can make a library run forever. This
code visits each part once; the server checks the rest itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast
from urllib.parse import unquote

import msgspec

from remit.errors import UsageError
from remit.tools.schema import SchemaError, ShapeError, schema_problems
from remit.types.messages import Json, JsonObject, unforge
from remit.types.text import clean_json, one_line, shorten

SCHEMA_BYTES = 64_000

MOST_STEPS = 10_000
"""The most steps when checking arguments; the server checks the rest."""

MOST_PROBLEMS = 20
MOST_DEPTH = 50
_CHAIN = 20
_PLACE_CHARS = 100

_WORDS = frozenset({"title", "description", "$comment"})
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_OLD = ("draft-03", "draft-04", "draft-06", "draft-07", "2019-09")


def _is_text(value: Json) -> bool:
    return isinstance(value, str)


def _is_flag(value: Json) -> bool:
    return isinstance(value, bool)


def _is_list(value: Json) -> bool:
    return isinstance(value, list)


def _is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: Json) -> bool:
    return _is_number(value) and cast(float, value) >= 0 and cast(float, value) % 1 == 0


def _is_texts(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in cast(list[Json], value))


def _is_type(value: Json) -> bool:
    if isinstance(value, list):
        kinds = cast(list[Json], value)
        return bool(kinds) and all(isinstance(kind, str) and kind in _TYPES for kind in kinds)
    return isinstance(value, str) and value in _TYPES


class _Keyword(NamedTuple):
    fits: Callable[[Json], bool]
    words: str


_TEXT = _Keyword(_is_text, "a string")
_NUMBER = _Keyword(_is_number, "a number")
_COUNT = _Keyword(_is_count, "a whole number, 0 or more")

_KEYWORDS = {
    **dict.fromkeys(
        (*_WORDS, "$ref", "$dynamicRef", "$schema", "$id", "$anchor", "pattern", "format"), _TEXT
    ),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _COUNT),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), _COUNT),
    **dict.fromkeys(
        ("uniqueItems", "deprecated", "readOnly", "writeOnly"), _Keyword(_is_flag, "true or false")
    ),
    **dict.fromkeys(("enum", "examples"), _Keyword(_is_list, "a list")),
    "required": _Keyword(_is_texts, "a list of strings"),
    "type": _Keyword(_is_type, "a JSON type, or a list of JSON types"),
}
_SCHEMAS = frozenset(
    {
        *("items", "additionalItems", "unevaluatedItems", "contains", "contentSchema", "propertyNames"),
        *("additionalProperties", "unevaluatedProperties", "not", "if", "then", "else"),
    }
)
_LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_TABLES = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})


class ServerShape:
    """The shape of the arguments of a server's tool; `read` checks them in one pass.

    Raises UsageError for an invalid schema: a provider would refuse the whole request because of it.
    """

    def __init__(self, schema: JsonObject) -> None:
        found = cast(JsonObject, _reworded(clean_json(schema)))
        encoded = msgspec.json.encode(found)
        self.size = len(encoded)
        if self.size > SCHEMA_BYTES:
            raise UsageError(f"its schema has {self.size:,} bytes; the limit is {SCHEMA_BYTES:,}")
        text = encoded.decode()
        if unforge(text) != text:
            raise UsageError("its schema contains text that imitates remit's own notes")
        # Decode again, to find values that are not JSON, such as NaN, here instead of at the provider.
        found = cast(JsonObject, msgspec.json.decode(encoded))
        self.schema: JsonObject = {"type": "object", "properties": {}, **found}
        self._references = _Checker(self.schema).check()

    def read(self, value: Json) -> object:
        look = _Look(self._references)
        look.at(self.schema, value, ())
        if look.problems:
            raise ShapeError(look.problems)
        return value


def _reworded(value: Json) -> Json:
    """A schema whose titles and descriptions cannot imitate remit's notes."""
    if isinstance(value, dict):
        return {
            key: unforge(inner) if key in _WORDS and isinstance(inner, str) else _reworded(inner)
            for key, inner in cast(JsonObject, value).items()
        }
    return [_reworded(inner) for inner in cast(list[Json], value)] if isinstance(value, list) else value


# --- Checking a schema ---------------------------------------------------------------------------


class _Checker:
    """Checks a schema, each part once."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._id = str(root.get("$id") or "").rstrip("#")
        self._is_old = any(draft in str(root.get("$schema", "")) for draft in _OLD)
        self._path: list[str] = []
        self._seen: set[int] = set()
        self._anchors: dict[str, Json] = {}
        self._wanted: list[str] = []

    def check(self) -> dict[str, Json]:
        """The target of each reference. Raises UsageError."""
        self._schema(self._root)
        found: dict[str, Json] = {}
        while self._wanted:
            ref = self._wanted.pop()
            if ref not in found:
                found[ref] = self._lookup(ref)
                self._path = [ref]
                self._schema(found[ref])
        return found

    def _schema(self, value: Json) -> None:
        if isinstance(value, bool) or id(value) in self._seen:
            return
        if not isinstance(value, dict):
            raise self._wrong("a schema")
        schema = cast(JsonObject, value)
        self._seen.add(id(schema))
        for key, inner in schema.items():
            self._path.append(key)
            self._keyword(key, inner)
            self._path.pop()
        for name in (schema.get("$anchor"), schema.get("$id")):
            if isinstance(name, str):
                self._anchors.setdefault(name.removeprefix("#"), schema)

    def _keyword(self, key: str, value: Json) -> None:
        if key in _TABLES:
            self._table(value)
        elif key in _LISTS or (key == "items" and self._is_old and isinstance(value, list)):
            self._list(cast(Json, value))
        elif key in _SCHEMAS:
            self._schema(value)
        elif key in _KEYWORDS:
            wanted = _KEYWORDS[key]
            if not wanted.fits(value) and not (
                self._is_old and key.startswith("exclusive") and _is_flag(value)
            ):
                raise self._wrong(wanted.words)
            if key == "$ref":
                self._wanted.append(cast(str, value))

    def _table(self, value: Json) -> None:
        if not isinstance(value, dict):
            raise self._wrong("a table of schemas")
        for name, inner in cast(JsonObject, value).items():
            self._path.append(name)
            self._schema(inner)
            self._path.pop()

    def _list(self, value: Json) -> None:
        if not isinstance(value, list) or not value:
            raise self._wrong("a list of schemas")
        for number, inner in enumerate(cast(list[Json], value)):
            self._path.append(str(number))
            self._schema(inner)
            self._path.pop()

    def _lookup(self, ref: str) -> Json:
        inside = ref.removeprefix(self._id) if self._id and ref.startswith(f"{self._id}#") else ref
        pointer = unquote(inside[1:])
        try:
            if inside == "#":
                return self._root
            if inside.startswith("#/"):
                return _at(
                    self._root,
                    [part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/")],
                )
            if inside.startswith("#"):
                return self._anchors[pointer]
        except (KeyError, IndexError, ValueError):
            raise UsageError(f"its schema refers to {_brief(ref)}, which does not exist") from None
        raise UsageError(f"its schema refers to {_brief(ref)}, and remit does not fetch other schemas")

    def _wrong(self, words: str) -> UsageError:
        return UsageError(f"its schema is invalid: {_brief('/'.join(self._path) or 'it')} must be {words}")


def _at(value: Json, path: Sequence[str]) -> Json:
    for part in path:
        value = (
            cast(list[Json], value)[int(part)] if isinstance(value, list) else cast(JsonObject, value)[part]
        )
        if not isinstance(value, dict | list | bool):
            raise KeyError(part)
    return cast(Json, value)


def _brief(text: str) -> str:
    return repr(shorten(one_line(text), _PLACE_CHARS, _PLACE_CHARS - 3))


# --- Checking arguments --------------------------------------------------------------------------


class _Misfit(NamedTuple):
    """A problem in the form that `schema_problems` reads."""

    validator: str
    validator_value: Json
    instance: Json
    schema: Json
    absolute_path: tuple[int | str, ...]
    context: Sequence[SchemaError] = ()


class _Look:
    """One pass over arguments. Combinations (`anyOf`, `if`, ...) and patterns are not checked."""

    def __init__(self, references: dict[str, Json]) -> None:
        self._references = references
        self._steps = MOST_STEPS
        self.problems: list[str] = []

    def at(self, schema: Json, value: Json, path: tuple[int | str, ...]) -> None:
        if len(path) > MOST_DEPTH:
            return
        for part in self._chain(schema):
            if not self._spend(1):
                return
            for key, wanted in self._misfits(part, cast(Json, value)):
                misfit = _Misfit(key, wanted, cast(Json, value), part, path)
                self.problems += schema_problems(cast(SchemaError, misfit))
            if isinstance(value, dict):
                self._inside(part, cast(JsonObject, value), path)
            elif isinstance(value, list):
                self._items(part, cast(list[Json], value), path)

    def _spend(self, steps: int) -> bool:
        self._steps -= steps
        return self._steps >= 0 and len(self.problems) < MOST_PROBLEMS

    def _chain(self, schema: Json) -> list[JsonObject]:
        """A schema and the schemas that it refers to."""
        found: list[JsonObject] = []
        while isinstance(schema, dict) and len(found) < _CHAIN:
            found.append(cast(JsonObject, schema))
            schema = self._references.get(cast(str, found[-1].get("$ref", "")))
        return found

    def _misfits(self, schema: JsonObject, value: Json) -> Iterator[tuple[str, Json]]:
        for key, wanted in schema.items():
            fits = _FITS.get(key)
            size = len(cast(list[Json], wanted)) if key in ("enum", "required") else 0
            if fits is not None and self._spend(size) and not fits(wanted, value):
                yield key, wanted

    def _inside(self, schema: JsonObject, value: JsonObject, path: tuple[int | str, ...]) -> None:
        known = cast(JsonObject, schema.get("properties", {}))
        more = schema.get("additionalProperties", True)
        # Only the patterns, which are not checked here, decide which further names are valid.
        more = True if "patternProperties" in schema else more
        for key, inner in value.items():
            if key in known:
                self.at(known[key], inner, (*path, key))
            elif isinstance(more, dict):
                self.at(cast(Json, more), inner, (*path, key))
        extra = [] if more is not False else [key for key in value if key not in known][:MOST_PROBLEMS]
        if extra:
            misfit = _Misfit("additionalProperties", False, dict.fromkeys(extra), schema, path)
            self.problems += schema_problems(cast(SchemaError, misfit))

    def _items(self, schema: JsonObject, value: list[Json], path: tuple[int | str, ...]) -> None:
        items = schema.get("items")
        first = len(cast(list[Json], schema.get("prefixItems", [])))
        if isinstance(items, dict):
            for number in range(first, len(value)):
                if self._steps < 0:
                    return
                self.at(cast(Json, items), value[number], (*path, number))


def _has_type(wanted: Json, value: Json) -> bool:
    kinds = cast(list[str], wanted) if isinstance(wanted, list) else [cast(str, wanted)]
    return any(_IS[kind](value) for kind in kinds)


_IS: dict[str, Callable[[Json], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "number": _is_number,
    "integer": lambda v: _is_number(v) and cast(float, v) % 1 == 0,
    "boolean": _is_flag,
    "null": lambda v: v is None,
}


def _same(one: Json, other: Json) -> bool:
    """Whether two values are equal in JSON, where true is not 1."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


_FITS: dict[str, Callable[[Json, Json], bool]] = {
    "type": _has_type,
    "const": _same,
    "enum": lambda values, v: any(_same(one, v) for one in cast(list[Json], values)),
    "required": lambda names, v: not isinstance(v, dict) or all(k in v for k in cast(list[str], names)),
    "minimum": lambda most, v: not _is_number(v) or cast(float, v) >= cast(float, most),
    "maximum": lambda most, v: not _is_number(v) or cast(float, v) <= cast(float, most),
    "exclusiveMinimum": lambda most, v: (
        _is_flag(most) or not _is_number(v) or cast(float, v) > cast(float, most)
    ),
    "exclusiveMaximum": lambda most, v: (
        _is_flag(most) or not _is_number(v) or cast(float, v) < cast(float, most)
    ),
    "minLength": lambda most, v: not isinstance(v, str) or len(v) >= cast(int, most),
    "maxLength": lambda most, v: not isinstance(v, str) or len(v) <= cast(int, most),
    "minItems": lambda most, v: not isinstance(v, list) or len(cast(list[Json], v)) >= cast(int, most),
    "maxItems": lambda most, v: not isinstance(v, list) or len(cast(list[Json], v)) <= cast(int, most),
}
