"""Read MCP servers from files: `[mcp.servers.x]` of remit.toml, agent files, and the `.mcp.json` of other programs.

One reader for all of them, which also accepts the keys of other programs.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from remit.errors import UsageError
from remit.tools.mcp.server import McpServer
from remit.types.messages import JsonObject
from remit.types.text import one_line, shorten

KEYS = (
    *("command", "args", "env", "env_from", "cwd", "url", "headers", "headers_from"),
    *("timeout_s", "start_s", "only", "without", "roots", "trusted", "disabled"),
)
"""remit's own keys; the keys of other programs are translated to these."""

_OTHER_NAMES = {
    "environment": "env",
    "env_vars": "env_from",
    "httpUrl": "url",
    "serverUrl": "url",
    "http_headers": "headers",
    "env_http_headers": "headers_from",
    "tool_timeout_sec": "timeout_s",
    "startup_timeout_sec": "start_s",
    **dict.fromkeys(("includeTools", "enabled_tools"), "only"),
    **dict.fromkeys(("excludeTools", "disabled_tools", "disabledTools"), "without"),
}
_OTHERS = ("type", "tools", "timeout", "startup_timeout_ms", "bearer_token_env_var", "enabled")
"""Keys of other programs that remit uses, with a different meaning from its own keys."""
_SILENT = ("description", "name", "alwaysAllow", "autoApprove", "$schema", "required")
"""Keys that have no effect here; remit still asks for what they would allow."""
_NO_LOGIN = 'remit does not log in; pass a token: headers_from = {Authorization = "Bearer ${TOKEN}"}'
_UNUSED = {
    "trust": "remit asks before it uses a tool; allow the tools with a rule, such as `allow mcp__NAME__*`",
    **dict.fromkeys(("oauth", "auth", "authProviderType", "scopes"), _NO_LOGIN),
    "envFile": "remit does not read env files; list the variables in env_from",
}
_WAYS = {
    **dict.fromkeys(("stdio", "local"), "command"),
    **dict.fromkeys(("http", "streamable-http", "streamable_http", "streamableHttp", "remote"), "url"),
}
_HARMLESS = ("HOME", "PWD", "USER", "LOGNAME", "PATH", "TMPDIR", "SHELL", "LANG", "TZ")
_MOST_BYTES = 1_000_000
_REFERENCE = re.compile(
    r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\$\{\{\s*(?:secrets|vars|env)\.([A-Za-z_][A-Za-z0-9_]*)\s*\}\}"
)


class Servers(NamedTuple):
    """The servers of a file, and messages about invalid entries."""

    servers: dict[str, McpServer]
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Ignored keys, and servers that need a variable that is not set: not errors in the file."""
    written: Mapping[str, Mapping[str, object]] = {}
    """The entry of each server in the file, before environment variables are expanded."""


class _Bad(Exception):
    """Raised for one invalid entry; the other entries are still read."""


class _Unset(_Bad):
    """Raised for an environment variable that is not set."""


def read_servers(
    mapping: Mapping[str, object], where: str, environ: Mapping[str, str] | None = None
) -> Servers:
    """The servers of a table such as `[mcp.servers]`; `where` names it in messages. An invalid entry does not affect others.

    With `environ`, `${VAR}` and `${VAR:-default}` are expanded.
    """
    if not isinstance(cast(object, mapping), Mapping):
        raise UsageError(f"{where}: must be a table, with one table for each server.")
    found, problems, warnings = dict[str, McpServer](), list[str](), list[str]()
    written = dict[str, Mapping[str, object]]()
    for name, entry in mapping.items():
        try:
            if not isinstance(entry, Mapping):
                raise _Bad("must be a table")
            table = dict(cast("Mapping[str, object]", entry))
            server = _Entry(name, table, environ, where, warnings).server()
        except _Unset as bad:
            warnings.append(f"{where}.{name}: {bad}.")
        except _Bad as bad:
            problems.append(f"{where}.{name}: {bad}.")
        except UsageError as error:
            problems.append(f"{where}.{name}: {error}")
        else:
            if server is not None:
                found[name] = server
                written[name] = cast("Mapping[str, object]", entry)
    return Servers(found, tuple(problems), tuple(warnings), written)


def read_mcp_json(path: str | Path, environ: Mapping[str, str] | None = None) -> Servers:
    """The servers of a `.mcp.json`, with environment variables expanded. Raises UsageError if the file is invalid."""
    entries = _load(Path(path)).get("mcpServers")
    if not isinstance(entries, Mapping):
        raise UsageError(f'{path}: must have a table "mcpServers", with one table for each server.')
    table = cast("Mapping[str, object]", entries)
    return read_servers(table, f"{path}: mcpServers", os.environ if environ is None else environ)


class _Entry:
    """One server's entry in a file, translated to remit's keys."""

    def __init__(
        self, name: str, table: JsonObject, environ: Mapping[str, str] | None, where: str, warnings: list[str]
    ) -> None:
        self._name = name
        self._table = table
        self._environ = environ
        self._where = where
        self._warnings = warnings

    def server(self) -> McpServer | None:
        """The server; None if it is disabled. Raises _Bad and UsageError."""
        table = self._table
        self._check_keys()
        if _flag(table, "disabled", False) or not _flag(table, "enabled", True):
            return None
        self._read_type()
        for other, ours in _OTHER_NAMES.items():
            if other in table:
                table.setdefault(ours, table.pop(other))
        self._read_command()
        self._read_times()
        self._read_tools()
        self._read_token()
        table = {key: value for key, value in table.items() if key in KEYS}
        expanded = None if self._environ is None else _Expanded(self._environ)
        if expanded is not None:
            # Variables in headers_from are read when the server is opened.
            for key in table.keys() - {"headers_from"}:
                table[key] = expanded.value(key, table[key])
        # McpServer checks every value.
        secrets = [] if expanded is None else expanded.filled
        return McpServer(self._name, **cast("dict[str, Any]", table), secrets=secrets)

    def _check_keys(self) -> None:
        known = (*KEYS, *_OTHERS, *_OTHER_NAMES, *_SILENT, *_UNUSED)
        for key in self._table:
            if key in _UNUSED and self._table[key] not in (False, None):
                self._warn(f"{key} is ignored: {_UNUSED[key]}")
            if key in known:
                continue
            near = difflib.get_close_matches(key, known, n=1)
            # Unknown keys are normal in the files of other programs, but an error in remit.toml.
            if not near and self._environ is not None:
                self._warn(f"unknown key {shorten(one_line(key), 60, 57)!r} ignored")
                continue
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(KEYS)}"
            raise _Bad(f"unknown key {key!r}; {hint}".rstrip("."))

    def _warn(self, text: str) -> None:
        self._warnings.append(f"{self._where}.{self._name}: {text}.")

    def _read_type(self) -> None:
        kind = self._table.get("type")
        if kind == "sse":
            raise _Bad(
                'servers of type "sse" are unsupported; use the server\'s streamable HTTP address (type "http")'
            )
        if kind is not None and kind not in _WAYS:
            raise _Bad(f'type must be "stdio" or "http", not {kind!r}')
        names = [key for key in self._table if key in ("command", "url") or _OTHER_NAMES.get(key) == "url"]
        ways = [_OTHER_NAMES.get(key, key) for key in names]
        if isinstance(kind, str) and _WAYS[kind] not in ways:
            raise _Bad(f'a server of type "{kind}" needs a {_WAYS[kind]}')

    def _read_command(self) -> None:
        """Split a command that is a list with its arguments."""
        command = self._table.get("command")
        if isinstance(command, list) and command:
            first, *rest = cast("list[object]", command)
            more = self._table.get("args")
            self._table["command"] = first
            self._table["args"] = rest + (cast("list[object]", more) if isinstance(more, list) else [])

    def _read_times(self) -> None:
        for key, ours in (("timeout", "timeout_s"), ("startup_timeout_ms", "start_s")):
            value = self._table.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _Bad(f"{key} must be a number of milliseconds")
            self._table.setdefault(ours, value / 1000)

    def _read_tools(self) -> None:
        """Read the list of tools that the agent gets; a star means all of them."""
        tools = self._table.get("tools")
        if tools is None or tools == "*" or (isinstance(tools, list) and "*" in tools):
            return
        self._table.setdefault("only", [tools] if isinstance(tools, str) else cast(object, tools))

    def _read_token(self) -> None:
        variable = self._table.get("bearer_token_env_var")
        if variable is None:
            return
        if not isinstance(variable, str) or not _VARIABLE.fullmatch(variable):
            raise _Bad("bearer_token_env_var must be the name of an environment variable")
        headers = self._table.get("headers_from")
        known = cast("dict[str, object]", headers) if isinstance(headers, dict) else {}
        self._table["headers_from"] = {"Authorization": f"Bearer ${{{variable}}}", **known}


_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _flag(table: JsonObject, key: str, default: bool) -> bool:
    value = table.pop(key, default)
    if not isinstance(value, bool):
        raise _Bad(f"{key} must be true or false")
    return value


class _Expanded:
    """Expands environment variables in an entry, and records their values: most of them are secrets."""

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
        name, default = found[1] or found[3], cast("str | None", found[2])
        # As in a shell, the default also replaces an empty value.
        value = self._environ.get(name) or default
        if value is None and name not in self._environ:
            raise _Unset(
                f"{key} needs the environment variable {name}, which is not set; to add a default, write ${{{name}:-...}}"
            )
        if name not in _HARMLESS:
            self.filled.append(value or "")
        return value or ""


def _load(path: Path) -> JsonObject:
    try:
        # O_NONBLOCK: opening a FIFO of that name would block forever.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UsageError(f"{path}: not a regular file.")
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}.") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path}: too large for a list of servers: more than {_MOST_BYTES:,} bytes.")
    try:
        value = cast(object, json.loads(data.decode("utf-8-sig")))
    except (ValueError, RecursionError) as error:
        at = (
            f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        )
        raise UsageError(f"{path}: not valid JSON{at}.") from None
    if not isinstance(value, dict):
        raise UsageError(f"{path}: must be a JSON object.")
    return cast(JsonObject, value)
