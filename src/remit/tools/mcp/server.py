"""The settings of an MCP server, and the choice of its tools for an agent."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

from remit.errors import UsageError
from remit.tools.source import Choice, Opening
from remit.tools.tool import Tool
from remit.types.text import shorten

if TYPE_CHECKING:
    from remit.tools.mcp.server_tools import McpTool

Pairs = tuple[tuple[str, str], ...]

CLOSING_S = 5.0
"""Seconds after `start_s` to stop a server that did not start."""

MOST_TOLD = 5
"""The most unusable tools that are named; the rest are counted."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
_VARIABLE = re.compile(r"[^=\0]+")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


@dataclass(frozen=True, init=False, repr=False)
class McpServer:
    """An MCP server: a command to start (stdio) or an address to connect to (streamable HTTP).

    Servers that differ only in `only` and `without` share one connection in a tree. Values of `env`, `env_from`,
    `headers`, `headers_from` and `secrets` are never shown. Raises UsageError for invalid values.
    """

    name: str
    command: str | None
    args: tuple[str, ...]
    env: Pairs
    """Variables for the process, in addition to a few harmless ones of our own environment."""
    env_from: tuple[str, ...]
    """Names of environment variables to pass on. Keys and tokens are passed only if listed here."""
    cwd: str | None
    """The folder to start it in, relative to the workspace; defaults to the workspace."""
    url: str | None
    headers: Pairs
    headers_from: Pairs
    """Headers from the environment: the name of a variable (`GITHUB_AUTH`), or a text with variables (`Bearer ${TOKEN}`)."""
    timeout_s: float | None
    """Seconds one call may take; None means the run's `call_seconds`, as for any tool."""
    start_s: float
    """The timeout, in seconds, for starting it and listing its tools."""
    only: tuple[str, ...] | None
    """Names or patterns of the server's own tool names that the agent gets; None for all."""
    without: tuple[str, ...]
    """Names or patterns of tools that the agent does not get."""
    roots: bool
    """Whether to tell the server the workspace folder. Many servers then work there instead of in their own folder."""
    trusted: bool
    """Whether tools that the server declares read-only get the tier `observe`."""
    secrets: tuple[str, ...] = field(compare=False)
    """More values that are never shown, such as a key in `args`."""

    def __init__(
        self,
        name: str,
        *,
        command: str | None = None,
        args: Iterable[str] = (),
        env: Mapping[str, str] | None = None,
        env_from: Iterable[str] = (),
        cwd: str | Path | None = None,
        url: str | None = None,
        headers: Mapping[str, str] | None = None,
        headers_from: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        start_s: float = 30,
        only: Iterable[str] | None = None,
        without: Iterable[str] = (),
        roots: bool = False,
        trusted: bool = False,
        secrets: Iterable[str] = (),
    ) -> None:
        if not isinstance(cast(object, name), str) or not _NAME.fullmatch(name):
            raise UsageError(f"Invalid MCP server name {name!r}: a name has 1 to 48 letters, digits, _ or -.")
        where = f"MCP server {name}"
        _check_way(where, command, url)
        stdio = {"args": args, "env": env, "env_from": env_from, "cwd": cwd}
        web = {"headers": headers, "headers_from": headers_from}
        for key, value in (web if command is not None else stdio).items():
            if value:
                kind = "a command" if command is not None else "a url"
                raise UsageError(f"{where}: {key} has no effect for a server with {kind}.")
        found: dict[str, object] = {
            "name": name,
            "command": command,
            "args": _texts(where, "args", args),
            "env": _pairs(where, "env", env, _VARIABLE),
            "env_from": _texts(where, "env_from", env_from),
            "cwd": None if cwd is None else str(cwd),
            "url": url,
            "headers": _pairs(where, "headers", headers, _HEADER),
            "headers_from": _pairs(where, "headers_from", headers_from, _HEADER),
            "timeout_s": None if timeout_s is None else _seconds(where, "timeout_s", timeout_s),
            "start_s": _seconds(where, "start_s", start_s),
            "only": None if only is None else _texts(where, "only", only),
            "without": _texts(where, "without", without),
            "roots": _flag(where, "roots", roots),
            "trusted": _flag(where, "trusted", trusted),
            "secrets": _texts(where, "secrets", secrets),
        }
        for key, value in found.items():
            object.__setattr__(self, key, value)

    def __repr__(self) -> str:
        return f"<MCP server {self.name}: {self.place}>"

    @property
    def place(self) -> str:
        """The program or the address, without secrets."""
        if self.url is None:
            return Path(self.command or "").name
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
        # Without the path: some services put the secret key there.
        return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}"

    @property
    def key(self) -> Hashable:
        return self if self.only is None and not self.without else self.with_tools(only=None, without=())

    @property
    def open_seconds(self) -> float:
        # Longer than the server's own timeout, whose message includes the server's output.
        return self.start_s + CLOSING_S

    @property
    def observes(self) -> bool:
        # A server's declaration about its tools counts only if the user trusts it: see `_tier` in server_tools.py.
        return self.trusted

    def with_tools(self, *, only: Iterable[str] | None, without: Iterable[str] = ()) -> McpServer:
        """The same server with another choice of tools."""
        kept = {known.name: cast(object, getattr(self, known.name)) for known in fields(self)}
        made = object.__new__(McpServer)
        where = f"MCP server {self.name}"
        kept["only"] = None if only is None else _texts(where, "only", only)
        kept["without"] = _texts(where, "without", without)
        for key, value in kept.items():
            object.__setattr__(made, key, value)
        return made

    async def open(self, workspace: Path | None) -> Opening:
        """Start it and list its tools. Raises ServerFailed; when cancelled, all resources are released."""
        from remit.tools.mcp.open_server import ServerOpening  # noqa: PLC0415 - needed once a server is opened

        return await ServerOpening.open(self, workspace)

    def choose(self, tools: Sequence[Tool]) -> Choice:
        from remit.tools.mcp.server_tools import Offered, plain_name  # noqa: PLC0415 - as above

        offered = tools if isinstance(tools, Offered) else Offered(cast("Sequence[McpTool]", tools), {})
        chosen = [tool for tool in offered if self._takes(tool.own_name)]
        names = [tool.own_name for tool in offered] + list(offered.left_out)
        useless = [(own, why) for own, why in offered.left_out.items() if self._takes(own)]
        trouble = [f"the tool {own!r} cannot be used: {why}" for own, why in useless[:MOST_TOLD]]
        if len(useless) > MOST_TOLD:
            trouble.append(f"{len(useless) - MOST_TOLD:,} more tools cannot be used")
        missing = [p for p in self.only or () if not any(fnmatch.fnmatchcase(n, p) for n in names)]
        if missing:
            has = shorten(", ".join(sorted(map(plain_name, names))[:20]), 400, 397) or "none"
            trouble.append(f"no tool matches {', '.join(map(repr, missing))} (the server has: {has})")
        if not names and self.only is None:
            trouble.append("the server has no tools")
        return Choice(tuple(chosen), "; ".join(trouble))

    def _takes(self, own: str) -> bool:
        wanted = self.only is None or any(fnmatch.fnmatchcase(own, p) for p in self.only)
        return wanted and not any(fnmatch.fnmatchcase(own, p) for p in self.without)


def _check_way(where: str, command: object, url: object) -> None:
    if (command is None) == (url is None):
        raise UsageError(f"{where}: set a command to start it, or the url of a running server, but not both.")
    if command is not None and (not isinstance(command, str) or not command.strip() or "\0" in command):
        raise UsageError(
            f"{where}: command must be the name or path of a program; its arguments belong in args."
        )
    if url is None:
        return
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        good = parts is not None and parts.scheme in ("http", "https") and parts.hostname and (parts.port, 1)
    except ValueError:
        good = False
    if not good:
        raise UsageError(f"{where}: url must be an http or https address.")


def _texts(where: str, key: str, values: object) -> tuple[str, ...]:
    # The values may be secret, so no message shows them.
    items = (
        None
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable)
        else tuple(cast("Iterable[object]", values))
    )
    if items is None or not all(isinstance(item, str) and "\0" not in item for item in items):
        raise UsageError(f"{where}: {key} must be a list of strings.")
    return cast("tuple[str, ...]", items)


def _pairs(where: str, key: str, values: object, names: re.Pattern[str]) -> Pairs:
    if values is None:
        return ()
    items = dict(cast("Mapping[object, object]", values)) if isinstance(values, Mapping) else None
    if items is None or not all(isinstance(v, str) for pair in items.items() for v in pair):
        raise UsageError(f"{where}: {key} must be a table of names and strings.")
    pairs = cast("dict[str, str]", items)
    for name, value in pairs.items():
        if not names.fullmatch(name):
            raise UsageError(f"{where}: {name!r} in {key} is not a valid name.")
        if any(c in value for c in ("\0" if names is _VARIABLE else "\0\r\n")):
            raise UsageError(
                f"{where}: the value of {name} in {key} contains characters that are not allowed."
            )
    return tuple(sorted(pairs.items()))


def _seconds(where: str, key: str, value: object) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or value <= 0
    ):
        raise UsageError(f"{where}: {key} must be a number of seconds above 0, not {value!r}.")
    return float(value)


def _flag(where: str, key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{where}: {key} must be true or false, not {value!r}.")
    return value
