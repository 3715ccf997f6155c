"""The keywords of JSON schemas that have patterns, checked in linear time.

A model chooses the text that a pattern is matched with, and Python's `re` takes hours for some texts. pydantic's engine does
not backtrack. Only patterns that it does not support (look-around, back-references) are left to `re`.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, cast

from remit.types.messages import Json, JsonObject

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator


class _Validator(Protocol):
    """The method used of jsonschema's validators."""

    def descend(
        self, instance: Json, schema: Json, path: str, schema_path: str | None = None
    ) -> Iterable[Exception]: ...


def uncovered_names(instance: JsonObject, schema: JsonObject) -> list[str]:
    """The names of an object that neither `properties` nor `patternProperties` covers."""
    patterns = list(cast(JsonObject, schema.get("patternProperties", {})))
    known = cast(JsonObject, schema.get("properties", {}))
    return [name for name in instance if name not in known and not any(_matches(p, name) for p in patterns)]


def _pattern(_: _Validator, pattern: str, instance: Json, __: JsonObject) -> Iterator[Exception]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield _mismatch(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: _Validator, patterns: JsonObject, instance: Json, _: JsonObject
) -> Iterator[Exception]:
    if not isinstance(instance, dict):
        return
    named = cast(JsonObject, instance)
    for pattern, inner in patterns.items():
        for name in (name for name in named if _matches(pattern, name)):
            yield from validator.descend(named[name], inner, path=name, schema_path=pattern)


def _additional_properties(
    validator: _Validator, others: Json, instance: Json, schema: JsonObject
) -> Iterator[Exception]:
    if not isinstance(instance, dict):
        return
    named = cast(JsonObject, instance)
    names = uncovered_names(named, schema)
    if isinstance(others, dict):
        for name in names:
            yield from validator.descend(named[name], cast(JsonObject, others), path=name)
    elif not others and names:
        yield _mismatch(f"unknown names: {names}")


PATTERN_KEYWORDS = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
}
"""For `jsonschema.validators.extend`."""


def _mismatch(text: str) -> Exception:
    return cast(Exception, importlib.import_module("jsonschema").ValidationError(text))


def _matches(pattern: str, text: str) -> bool:
    linear = _linear(pattern)
    if linear is None:
        return re.search(pattern, text) is not None
    try:
        linear.validate_python(text)
    except ValueError:
        return False
    return True


@functools.lru_cache(256)
def _linear(pattern: str) -> SchemaValidator | None:
    from pydantic_core import SchemaError, SchemaValidator, core_schema  # noqa: PLC0415 - imported on first use

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError:
        return None
