"""Built-in tools: what an agent can do in a folder, and cannot do outside it.

An agent may name them, `Agent(tools=["read", "grep"])`, or carry them, `Agent(tools=remit.tools.read_only())`. They work
in the run's `workspace`; without one, in the current directory at the start of each call.
"""

from __future__ import annotations

from collections.abc import Mapping

from remit.tool import Tier, Tool


def built_in() -> Mapping[str, Tool]:
    """Every built-in tool by its name."""
    # Here, so that naming the package costs nothing until a tool is wanted.
    from remit.tools.files import edit, read, write  # noqa: PLC0415 - see above
    from remit.tools.listing import glob, ls  # noqa: PLC0415 - see above
    from remit.tools.searching import grep  # noqa: PLC0415 - see above

    tools: tuple[Tool, ...] = (read, ls, glob, grep, write, edit)
    return {tool.name: tool for tool in tools}


def read_only() -> list[Tool]:
    """The tools that only look: read, ls, glob, grep."""
    return [tool for tool in built_in().values() if tool.tier is Tier.OBSERVE]


def all() -> list[Tool]:  # noqa: A001 - it is written remit.tools.all()
    """Every built-in tool; those that change things ask first."""
    return list(built_in().values())
