"""MCP servers from files: `[mcp.servers.x]` of remit.toml, and the `.mcp.json` that other programs write."""

from __future__ import annotations

import difflib
import json
import os
import re
import stat
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from remit.errors import UsageError
from remit.tools.mcp.server import McpServer
from remit.types.messages import JsonObject

KEYS = (
    *("command", "args", "env", "env_from", "cwd", "url", "headers", "headers_from"),
    *("timeout_s", "start_s", "roots", "trusted", "disabled"),
)

_JSON_KEYS = ("type", "command", "args", "env", "cwd", "url", "headers", "timeout", "roots", "disabled")
_IGNORED = ("description", "alwaysAllow", "autoApprove")
"""Keys of other programs that change nothing here; what they would allow, remit still asks for."""
_WAYS = {"stdio": "command", "http": "url", "streamable-http": "url", "streamableHttp": "url"}
_HARMLESS = ("HOME", "PWD", "USER", "LOGNAME", "PATH", "TMPDIR", "SHELL", "LANG", "TZ")
_MOST_BYTES = 1_000_000
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class Servers(NamedTuple):
    """The servers of a file, and in words what is wrong with the others."""

    servers: dict[str, McpServer]
    problems: tuple[str, ...] = ()
    written: Mapping[str, Mapping[str, object]] = {}
    """What the file says of each, before variables of the environment are put in."""


class _Bad(Exception):
    """Raised for one entry; the others are read on."""


def read_servers(mapping: Mapping[str, object], where: str) -> Servers:
    """The servers of a table such as `[mcp.servers]`; `where` names it in messages. A bad one does not hide the others."""
    if not isinstance(cast(object, mapping), Mapping):
        raise UsageError(f"{where}: it must be a table, with one table for each server.")
    return _each(mapping, where, _from_toml)


def read_mcp_json(path: str | Path, environ: Mapping[str, str] | None = None) -> Servers:
    """The servers of a `.mcp.json`: `${VAR}` and `${VAR:-default}` are replaced. Raises UsageError for the file itself."""
    known = os.environ if environ is None else environ
    entries = _load(Path(path)).get("mcpServers")
    if not isinstance(entries, Mapping):
        raise UsageError(f'{path}: it must have a table "mcpServers", with one table for each server.')
    table = cast("Mapping[str, object]", entries)
    return _each(table, f"{path}: mcpServers", lambda name, entry: _from_json(name, entry, known))


def _each(
    mapping: Mapping[str, object], where: str, read: Callable[[str, JsonObject], McpServer | None]
) -> Servers:
    found, problems, written = dict[str, McpServer](), list[str](), dict[str, Mapping[str, object]]()
    for name, entry in mapping.items():
        try:
            if not isinstance(entry, Mapping):
                raise _Bad("it must be a table")
            server = read(name, dict(cast("Mapping[str, object]", entry)))
        except _Bad as bad:
            problems.append(f"{where}.{name}: {bad}.")
        except UsageError as error:
            problems.append(f"{where}.{name}: {error}")
        else:
            if server is not None:
                found[name] = server
                written[name] = cast("Mapping[str, object]", entry)
    return Servers(found, tuple(problems), written)


def _from_toml(name: str, entry: JsonObject) -> McpServer | None:
    _check_keys(entry, KEYS)
    if _disabled(entry):
        return None
    return _server(name, entry)


def _from_json(name: str, entry: JsonObject, environ: Mapping[str, str]) -> McpServer | None:
    entry = {key: value for key, value in entry.items() if key not in _IGNORED}
    _check_keys(entry, _JSON_KEYS)
    if _disabled(entry):
        return None
    kind = entry.pop("type", None)
    if kind == "sse":
        raise _Bad(
            'servers of type "sse" are not supported; ask for its streamable HTTP address (type "http")'
        )
    if kind is not None and kind not in _WAYS:
        raise _Bad(f'type must be "stdio" or "http", not {kind!r}')
    if isinstance(kind, str) and _WAYS[kind] not in entry:
        raise _Bad(f'a server of type "{kind}" needs a {_WAYS[kind]}')
    timeout = entry.pop("timeout", None)
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise _Bad("timeout must be a number of milliseconds")
        entry["timeout_s"] = timeout / 1000
    expanded = _Expanded(environ)
    entry = {key: expanded.value(key, value) for key, value in entry.items()}
    return _server(name, {**entry, "secrets": expanded.filled})


def _server(name: str, entry: JsonObject) -> McpServer:
    # McpServer checks every value that it is given.
    return McpServer(name, **cast("dict[str, Any]", entry))


def _disabled(entry: JsonObject) -> bool:
    disabled = entry.pop("disabled", False)
    if not isinstance(disabled, bool):
        raise _Bad("disabled must be true or false")
    return disabled


def _check_keys(entry: JsonObject, keys: Collection[str]) -> None:
    for key in entry:
        if key not in keys:
            near = difflib.get_close_matches(key, keys, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it may have: {', '.join(keys)}"
            raise _Bad(f"there is no key {key!r}; {hint}".rstrip("."))


class _Expanded:
    """Puts values of the environment into an entry, and remembers which: most of them are keys."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.filled: list[str] = []

    def value(self, key: str, value: object) -> object:
        if isinstance(value, str):
            return _REFERENCE.sub(lambda found: self._filled(key, found), value)
        if isinstance(value, list):
            return [self.value(key, item) for item in cast("list[object]", value)]
        if isinstance(value, Mapping):
            table = cast("Mapping[str, object]", value)
            return {name: self.value(f"{key}.{name}", item) for name, item in table.items()}
        return value

    def _filled(self, key: str, found: re.Match[str]) -> str:
        name, default = found[1], cast("str | None", found[2])
        # As in a shell: a default stands in for what is empty, too.
        value = self._environ.get(name) or default
        if value is None and name not in self._environ:
            raise _Bad(
                f"{key} needs {name}, which is not set in the environment; a default is written ${{{name}:-...}}"
            )
        if name not in _HARMLESS:
            self.filled.append(value or "")
        return value or ""


def _load(path: Path) -> JsonObject:
    try:
        # Without waiting: a pipe of that name would never end.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path}: it is not a file.")
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: it cannot be read: {error.strerror}.") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path}: it has more than {_MOST_BYTES:,} bytes; that is no list of servers.")
    try:
        value = cast(object, json.loads(data.decode("utf-8-sig")))
    except (ValueError, RecursionError) as error:
        at = (
            f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        )
        raise UsageError(f"{path}: it is not JSON{at}.") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path}: it must be a JSON object.")
    return cast(JsonObject, value)
