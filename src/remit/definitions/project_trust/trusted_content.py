"""The facts in a project's files that trust covers, one per line, for comparing and showing.

They include every setting, and every part of an agent except the texts that only models read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, cast

import msgspec

from remit.definitions.agent_files.definition import Definition, Draft, WrittenWord
from remit.definitions.agent_files.tool_names import ToolWord
from remit.definitions.syntax.nodes import Node, to_json
from remit.types.messages import Json
from remit.types.sandbox import Sandbox

if TYPE_CHECKING:
    from remit.definitions.agent_files.loading import Loaded
    from remit.definitions.settings_layer import Layer, Setting

_TEXTS = {"description", "instructions", "nickname"}
_PROVENANCE = {"name", "file", "format", "place", "trusted", "lines", "problems"}
_COUNTED = tuple(f.name for f in fields(Definition) if f.name not in _TEXTS | _PROVENANCE)
_SILENT = Draft(Path("agent.md")).finish("agent", "project", trusted=True)
"""An agent with default values."""

_SECRET = ("env", "environment", "headers", "http_headers")
"""Tables of a server whose values are never shown."""
_REPLACED = "replaces your own agent"


def setting_lines(layer: Layer, below: Mapping[str, Setting]) -> Iterator[str]:
    """The facts of a project's settings, except agents. `below` are the settings that the project's settings override."""
    for key, setting in layer.values.items():
        own = below.get(key)
        if not isinstance(setting.value, Definition):
            yield f"{_word(key)} = {_dumped(_plain(layer.written.get(key, setting.value)))}"
        elif own is not None and isinstance(own.value, Definition):
            yield f"{_word(key)} {_REPLACED}"
    for rule, _ in layer.rules:
        yield f"policy = {_dumped(rule)}"


def agent_lines(loaded: Loaded) -> Iterator[str]:
    """The facts of a project's agents. Of several agents with one name, only the first counts."""
    firsts = dict[str, Definition]()
    everyone = (*loaded.agents.values(), *loaded.hidden)
    for one in everyone:
        if one.place == "project":
            firsts.setdefault(one.name, one)
    for one in everyone:
        if one.place == "user" and one.name in firsts:
            yield f"agents.{one.name} {_REPLACED}"
    for name, one in firsts.items():
        for field in _COUNTED:
            value = cast(object, getattr(one, field))
            if value != getattr(_SILENT, field):
                yield f"agents.{name}.{field} = {_dumped(_plain(value))}"


def tidy(lines: Iterable[str]) -> tuple[str, ...]:
    """Sorted facts without duplicates: the order in the files does not matter."""
    return tuple(sorted(set(lines)))


def server_as_written(table: Mapping[str, object]) -> dict[str, object]:
    """A server's entries as the file has them. Secrets are replaced by short hashes, which show only whether they
    changed.
    """
    return {
        key: {name: _veiled(each) for name, each in cast("Mapping[str, object]", value).items()}
        if key in _SECRET and isinstance(value, Mapping)
        else value
        for key, value in table.items()
    }


def _veiled(value: object) -> object:
    # A reference shows which variable a server gets, so it stays readable.
    if not isinstance(value, str) or "${" in value:
        return value
    return f"(hidden, {hashlib.sha256(value.encode('utf-8', 'replace')).hexdigest()[:8]})"


def _plain(value: object) -> object:
    """The value as JSON, without lines and other irrelevant parts."""
    if isinstance(value, Path):
        # Resolved, so that a retargeted symlink counts as a change.
        return str(value.resolve())
    if isinstance(value, Sandbox):
        return str(value)
    if isinstance(value, WrittenWord):
        return value.text
    if isinstance(value, ToolWord):
        return _tool(value)
    if isinstance(value, Node):
        return _server(to_json(value))
    if isinstance(value, msgspec.Struct):
        return cast(object, msgspec.to_builtins(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in cast("Iterable[object]", value)]
    return value


def _server(table: Json) -> object:
    return server_as_written(cast("dict[str, object]", table)) if isinstance(table, dict) else table


def _tool(word: ToolWord) -> str:
    kind = "" if word.kind == "tool" else f"{word.kind}:"
    kind = f"ask {kind}" if word.asks else kind
    return (
        f"{kind}{word.name}{f'.{word.tool}' if word.tool else ''}{f'({word.within})' if word.within else ''}"
    )


def _dumped(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)
    # File names may not be UTF-8.
    return text.encode("utf-8", "backslashreplace").decode()


def _word(key: str) -> str:
    return key if key.isprintable() else _dumped(key)
