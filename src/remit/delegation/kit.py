"""Which tools a declared agent's runs have. Made once per agent, whatever tree it runs in."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from remit.agent import Agent
from remit.delegation.surfaces import AdhocTool, NamedTool, TaskTool, make_kit
from remit.errors import UsageError
from remit.execution import DelegateTool, Kit
from remit.tool import Tool

BUILT_IN: dict[str, Tool] = {}
"""Tools that agents may name instead of carrying them."""

_made: WeakKeyDictionary[Agent, dict[bool, Kit]] = WeakKeyDictionary()


def kit_for(agent: Agent, *, may_delegate: bool) -> Kit:
    """The kit of an agent. Raises UsageError for a tool that cannot be had."""
    kits = _made.setdefault(agent, {})
    if may_delegate not in kits:
        own = [resolve(agent, t) for t in agent.tools]
        kits[may_delegate] = make_kit(list(_delegates(agent)), own, may_delegate=may_delegate)
    return kits[may_delegate]


def resolve(agent: Agent, tool: Tool | str) -> Tool:
    """The tool itself. Raises UsageError for a name that nothing has."""
    if isinstance(tool, Tool):
        return tool
    if tool in BUILT_IN:
        return BUILT_IN[tool]
    known = ", ".join(sorted(BUILT_IN)) or "none yet: give it functions decorated with @remit.tool"
    raise UsageError(f"Agent {agent.name!r}: there is no tool called {tool!r}. Built-in tools: {known}.")


def _delegates(agent: Agent) -> Iterable[DelegateTool]:
    if agent.subagents and agent.surface == "task":
        yield TaskTool(agent.subagents)
    elif agent.subagents:
        yield from (NamedTool(child) for child in agent.subagents)
    if agent.adhoc:
        yield AdhocTool()
