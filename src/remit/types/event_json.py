"""Events as JSON: the journal's form, and the flat form for programs that read a run's output."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import cast

import msgspec
from msgspec import Struct

from remit.errors import UsageError
from remit.types.events import AnyEvent, Event, Where
from remit.types.messages import JsonObject


@functools.cache
def words() -> frozenset[str]:
    """Every word of the event format itself: field names, kinds, and values from closed sets."""
    from msgspec import inspect  # noqa: PLC0415 - only stores with named secrets need it

    # Tiers are typed as str, so that events with tiers of later versions can be read.
    found: set[str] = {"observe", "confirm"}
    seen: set[type] = set()
    left: list[object] = [inspect.type_info(AnyEvent)]
    while left:
        one = left.pop()
        if isinstance(one, inspect.StructType):
            if one.cls not in seen:
                seen.add(one.cls)
                found |= {field.encode_name for field in one.fields}
                found |= {str(word) for word in (one.tag_field, one.tag) if word is not None}
                left += [field.type for field in one.fields]
        elif isinstance(one, inspect.LiteralType):
            found |= set(map(str, one.values))
        elif isinstance(one, inspect.EnumType):
            found |= {str(member.value) for member in one.cls}
        elif isinstance(one, inspect.UnionType):
            left += one.types
        elif isinstance(one, inspect.CollectionType | inspect.VarTupleType):
            left.append(one.item_type)
    return frozenset(found)


_encoder = msgspec.json.Encoder()


@functools.cache
def _decoder() -> msgspec.json.Decoder[AnyEvent]:
    # Created on first use: it takes as long as importing this file, and most programs only write events.
    return msgspec.json.Decoder(AnyEvent)


encode: Callable[[Event], bytes] = _encoder.encode
"""One event as JSON."""

encode_lines: Callable[[Sequence[object]], bytes] = _encoder.encode_lines
"""Many events, one JSON line each; `msgspec.Raw` values are written unchanged."""


def flat(event: Event) -> JsonObject:
    """An event as a dictionary with the header's fields beside the event's own: the form that programs read."""
    fields = cast(JsonObject, msgspec.to_builtins(event))
    where = cast(JsonObject, fields.pop("where"))
    first = {name: fields.pop(name) for name in ("kind", "seq", "at")}
    return {**first, **where, **fields}


def encode_flat(event: Event) -> bytes:
    """The flat form as JSON."""
    return _encoder.encode(flat(event))


def decode(data: bytes | str) -> AnyEvent:
    """The event that `encode` wrote, in this version or an older one.

    Raises msgspec.DecodeError, and nothing else, for any other data.
    """
    try:
        return _decode(data)
    except (UsageError, UnicodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


def _decode(data: bytes | str) -> AnyEvent:
    try:
        return _decoder().decode(data)
    except msgspec.ValidationError:
        fields: object = msgspec.json.decode(data)
        if not isinstance(fields, dict) or "where" in fields:
            raise
        return _decoder().decode(msgspec.json.encode(_with_header(cast(JsonObject, fields))))


def _with_header(fields: JsonObject) -> JsonObject:
    """Convert an event of version 1, which had the header's fields beside the event's own."""
    where = {name: fields[name] for name in Where.__struct_fields__ if name in fields}
    own = {name: value for name, value in fields.items() if name not in where}
    return {**own, "where": where}


class _Numbered(Struct):
    seq: int


def seq_of(data: bytes | str) -> int | None:
    """The `seq` of an event, even of a kind that `decode` does not know; None if the data is unreadable."""
    try:
        return msgspec.json.decode(data, type=_Numbered).seq
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def decode_lines(data: bytes | str) -> list[AnyEvent]:
    """Many events, one per line. Raises as `decode` does."""
    try:
        return _decoder().decode_lines(data)
    except msgspec.ValidationError:
        # Lines of version 1 need decode(), one by one.
        lines = data.split("\n") if isinstance(data, str) else data.split(b"\n")
        return [decode(line) for line in lines if line.strip()]
    except (UsageError, UnicodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None
