"""Read a model's arguments for remit's own tools: known fields, aliases, and a clear message for bad input.

A model's output is untrusted: every value may be of any type. Reading arguments spends no budget.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import cast

from msgspec import Struct

from remit.types.messages import Json, JsonObject
from remit.types.outcome import Rejection, RejectionKind
from remit.types.text import text_of

MOST_PROMPT = 1_000_000
"""Characters of a prompt."""
MOST_LABEL = 200


class Field(Struct, frozen=True):
    """One field of a surface: its name, and other names that models use for it."""

    name: str
    aliases: tuple[str, ...] = ()


class Bad(Exception):
    """Raised for invalid input; `problem` is the message for the model."""

    def __init__(self, problem: str, kind: RejectionKind = "invalid_input") -> None:
        super().__init__(problem)
        self.problem = problem
        self.kind: RejectionKind = kind

    def rejection(self, tool: str) -> Rejection:
        return Rejection(self.kind, f"{tool}: {self.problem}")


def gather(args: JsonObject, fields: Sequence[Field]) -> dict[str, Json]:
    """The values by field name. Raises Bad for unknown keys, and for aliases of one field with different values."""
    owner = _owners(tuple(fields))
    unknown = [key for key in args if key not in owner]
    if unknown:
        shown = ", ".join(repr(str(k)[:60]) for k in unknown[:5])
        valid = ", ".join(f.name for f in fields)
        raise Bad(f"unknown field {shown}. Valid fields: {valid}.")
    found: dict[str, Json] = {}
    for key, value in args.items():
        name = owner[key]
        if name in found and found[name] != value:
            raise Bad(
                f"{name!r} was given twice with different values (also as {key!r}). Send it once, as {name!r}."
            )
        found[name] = value
    return found


@functools.cache
def _owners(fields: tuple[Field, ...]) -> dict[str, str]:
    return {alias: f.name for f in fields for alias in (f.name, *f.aliases)}


def text(values: Mapping[str, Json], name: str, most: int = MOST_PROMPT) -> str:
    """A required string that is not blank."""
    value = values.get(name)
    if name not in values:
        raise Bad(f"the field {name!r} is missing; it must be a non-empty string.")
    if not isinstance(value, str):
        raise Bad(f"the field {name!r} must be a string, not {_kind(value)}.")
    if not value.strip():
        raise Bad(f"the field {name!r} is empty; it must be a non-empty string.")
    return _sound(name, value, most)


def optional_text(values: Mapping[str, Json], name: str, most: int = MOST_PROMPT) -> str:
    """A string, or "" if the field is absent, null or blank."""
    value = values.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise Bad(f"the field {name!r} must be a string, not {_kind(value)}.")
    return _sound(name, value, most) if value.strip() else ""


def names(values: Mapping[str, Json], name: str) -> list[str] | None:
    """A list of strings, or None if the field is absent or null."""
    value = values.get(name)
    if value is None:
        return None
    items = cast("list[Json] | None", value if isinstance(value, list) else None)
    if items is None or not all(isinstance(item, str) for item in items):
        raise Bad(f"the field {name!r} must be a list of strings, or null, not {_shown(cast(Json, value))}.")
    return cast("list[str]", items)


def whole(values: Mapping[str, Json], name: str, least: int, most: int) -> int | None:
    """A whole number within bounds, or None if the field is absent or null."""
    value = values.get(name)
    if value is None:
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Bad(f"the field {name!r} must be a whole number from {least} to {most}, not {_shown(value)}.")
    return value


def _sound(name: str, value: str, most: int) -> str:
    if len(value) > most:
        raise Bad(f"the field {name!r} has {len(value):,} characters; at most {most:,} are allowed.")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Bad(f"the field {name!r} has an unpaired surrogate at position {error.start}.") from None
    return value


def _kind(value: Json) -> str:
    kinds = {
        "dict": "an object",
        "list": "a list",
        "bool": "a boolean",
        "int": "a number",
        "float": "a number",
    }
    name = type(value).__name__
    return "null" if value is None else kinds.get(name, name)


def _shown(value: Json) -> str:
    return text_of(value)[:60] if not isinstance(value, str) else f"the text {value[:60]!r}"
