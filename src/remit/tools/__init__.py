"""Built-in tools. They work inside the run's `workspace` and cannot leave it.

List them by name, `Agent(tools=["read", "grep"])`, or as objects, `Agent(tools=remit.tools.read_only())`. If the run has no
workspace, each call uses the current directory at its start. `remit.tools.mcp` has the tools of MCP servers. `make_terminal`
and `make_fetch` make these two tools with your own settings.
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

# Imported on first use, so that importing the package is cheap.
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
    # Imported here, so that importing the package is cheap.
    from remit.tools.builtin.files.read_write_edit import edit, read, write  # noqa: PLC0415 - see above
    from remit.tools.builtin.search.grep import grep  # noqa: PLC0415 - see above
    from remit.tools.builtin.search.ls_glob import glob, ls  # noqa: PLC0415 - see above
    from remit.tools.builtin.terminal.terminal import terminal  # noqa: PLC0415 - see above
    from remit.tools.builtin.web.fetch import fetch  # noqa: PLC0415 - see above

    tools: tuple[Tool, ...] = (read, ls, glob, grep, write, edit, terminal, fetch)
    return {tool.name: tool for tool in tools}


def read_only() -> list[Tool]:
    """The tools that only read: read, ls, glob, grep."""
    from remit.tools.tool import Tier  # noqa: PLC0415 - see above

    return [tool for tool in built_in().values() if tool.tier is Tier.OBSERVE]


def all() -> list[Tool]:  # noqa: A001 - it is written remit.tools.all()
    """Every built-in tool. Tools that change files, run commands or use the network need approval by default."""
    return list(built_in().values())
