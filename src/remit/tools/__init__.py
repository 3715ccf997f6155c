"""Built-in tools: what an agent can do in a folder, and cannot do outside it.

An agent may name them, `Agent(tools=["read", "grep"])`, or carry them, `Agent(tools=remit.tools.read_only())`. They work
in the run's `workspace`; without one, in the current directory at the start of each call. Tools of MCP servers are in
`remit.tools.mcp`; commands and pages with settings of one's own in `make_terminal` and `make_fetch`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from remit.tools.builtin.terminal.terminal import make_terminal
    from remit.tools.builtin.web.fetch import make_fetch
    from remit.tools.mcp import McpServer
    from remit.tools.tool import Tool

__all__ = ["McpServer", "all", "built_in", "make_fetch", "make_terminal", "read_only"]

# By name, so that naming the package costs nothing until one of them is wanted.
_LATER = {
    "McpServer": "mcp",
    "make_fetch": "builtin.web.fetch",
    "make_terminal": "builtin.terminal.terminal",
}


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - see above

    return getattr(importlib.import_module(f"{__name__}.{_LATER[name]}"), name)


def built_in() -> Mapping[str, Tool]:
    """Every built-in tool by its name."""
    # Here, so that naming the package costs nothing until a tool is wanted.
    from remit.tools.builtin.files.read_write_edit import edit, read, write  # noqa: PLC0415 - see above
    from remit.tools.builtin.search.grep import grep  # noqa: PLC0415 - see above
    from remit.tools.builtin.search.ls_glob import glob, ls  # noqa: PLC0415 - see above
    from remit.tools.builtin.terminal.terminal import terminal  # noqa: PLC0415 - see above
    from remit.tools.builtin.web.fetch import fetch  # noqa: PLC0415 - see above

    tools: tuple[Tool, ...] = (read, ls, glob, grep, write, edit, terminal, fetch)
    return {tool.name: tool for tool in tools}


def read_only() -> list[Tool]:
    """The tools that only look: read, ls, glob, grep."""
    from remit.tools.tool import Tier  # noqa: PLC0415 - see above

    return [tool for tool in built_in().values() if tool.tier is Tier.OBSERVE]


def all() -> list[Tool]:  # noqa: A001 - it is written remit.tools.all()
    """Every built-in tool; those that change things, run commands or use the network ask first."""
    return list(built_in().values())
