"""Limits as written in files, in variables and on the command line: `depth=2, usd=0.5, seconds=5m`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from remit.definitions.syntax.nodes import Node, Wrong, kind, number, quoted, split_list, text, whole
from remit.errors import UsageError
from remit.types.limits import OTHER_NAMES, Limits
from remit.types.spelling import suggest

NAMES: tuple[str, ...] = Limits.__struct_fields__
_EXAMPLES = {
    "usd": "0.5",
    "when_full": "queue",
    **dict.fromkeys(("seconds", "call_seconds", "stall_seconds"), "5m"),
}
_TIMES = ("seconds", "call_seconds", "stall_seconds")
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|sec|m|min|mins|h|d)?", re.IGNORECASE)
_UNITS = {"ms": 0.001, "": 1, "s": 1, "sec": 1, "m": 60, "min": 60, "mins": 60, "h": 3600, "d": 86400}


def seconds(node: Node) -> float | None:
    """A number of seconds, or a duration such as `90s`, `5m`, `1h30m`. Raises Wrong."""
    value = node.value
    if not isinstance(value, str):
        return number(node)
    word = value.strip().replace(" ", "")
    parts = list(_PART.finditer(word))
    if parts and "".join(part[0] for part in parts) == word and len(word) < 40:
        return sum(float(part[1]) * _UNITS[(part[2] or "").lower()] for part in parts)
    try:
        return number(node)
    except Wrong:
        raise Wrong(
            f"must be a number of seconds, or a duration such as 90s or 5m, not {kind(node)}", node.line
        ) from None


def read_limit(name: str, node: Node) -> int | float | str | None:
    """The value of one limit. Raises Wrong for an unknown name or an invalid value."""
    if name not in NAMES:
        raise Wrong(
            f"is not a limit.{suggest(name, NAMES, OTHER_NAMES)} Limits: {', '.join(NAMES)}", node.line
        )
    value: int | float | str | None
    if name == "when_full":
        value = text(node).strip()
    elif name in _TIMES:
        value = seconds(node)
    else:
        value = number(node) if name == "usd" else whole(node)
    try:
        make_limits({name: value})
    except UsageError as error:
        # The error names Python's None; in a file the word is `unlimited`.
        said = str(error).removeprefix(f"Limits.{name} ").replace("None for unlimited", "unlimited")
        raise Wrong(said.rstrip("."), node.line) from None
    return value


def make_limits(values: Mapping[str, int | float | str | None]) -> Limits:
    """Raises UsageError."""
    return Limits(**values)  # pyright: ignore[reportArgumentType]  # it checks each of them itself


def parse_limits(written: str, where: str = "limits") -> Limits:
    """Limits on one line, `depth=2,usd=0.5`. Raises UsageError."""
    try:
        return make_limits(read_pairs(Node(written, 0, plain=True)))
    except Wrong as wrong:
        raise UsageError(f"{where}: {wrong.text}.") from None


def read_pairs(node: Node) -> dict[str, int | float | str | None]:
    """The limits of such a line, by name. Raises Wrong."""
    found = dict[str, int | float | str | None]()
    for part in split_list(text(node)):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not value and name in NAMES:
            raise Wrong(f"{quoted(name)} has no value. Write {name}={_EXAMPLES.get(name, '20')}", node.line)
        if not equals or not value:
            raise Wrong(f"has {quoted(part)}; write name=number, as in depth=2,usd=0.5", node.line)
        found[name] = read_named(name, Node(value, node.line, plain=True))
    return found


def read_named(name: str, node: Node) -> int | float | str | None:
    """Like `read_limit`, with the limit's name in the error."""
    try:
        return read_limit(name, node)
    except Wrong as wrong:
        raise Wrong(f"{quoted(name)} {wrong.text}", wrong.line) from None
