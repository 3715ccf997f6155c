"""Which tools a declared agent's runs have. Made once per agent, whatever tree it runs in."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from remit.agent import Agent, PerAgent
from remit.engine.delegation.delegate_tools import AdhocTool, NamedTool, TaskTool, make_kit
from remit.engine.run.state import DelegateTool, Kit
from remit.errors import UsageError
from remit.tools.tool import Tool


class _Shelf:
    """Tools that agents may name instead of carrying them. Made when the first one is named."""

    def __init__(self) -> None:
        self.source: Callable[[], Mapping[str, Tool]] = dict
        """Says which there are; set where adapters are wired."""
        self._tools: Mapping[str, Tool] | None = None

    def tools(self) -> Mapping[str, Tool]:
        if not self._tools:
            self._tools = self.source()
        return self._tools


built_in = _Shelf()

_whole, _narrow = PerAgent[Kit](), PerAgent[Kit]()
"""Of runs that may delegate, and of those that may not."""


def kit_for(agent: Agent, may_delegate: bool) -> Kit:
    """The kit of an agent. Raises UsageError for a tool that cannot be had."""
    made = _whole if may_delegate else _narrow
    kit = made.found.get(id(agent))
    return made.keep(agent, wider_kit(agent, (), may_delegate=may_delegate)) if kit is None else kit


def wider_kit(agent: Agent, opened: Sequence[Tool], *, may_delegate: bool) -> Kit:
    """The kit of an agent with the tools that its sources turned out to have."""
    own = [resolve(agent, t) for t in agent.tools if isinstance(t, (Tool, str))]
    return make_kit(agent, list(_delegates(agent)), [*own, *opened], may_delegate=may_delegate)


def resolve(agent: Agent, tool: Tool | str) -> Tool:
    """The tool itself. Raises UsageError for a name that nothing has."""
    if isinstance(tool, Tool):
        return tool
    tools = built_in.tools()
    if tool in tools:
        return tools[tool]
    from remit.types.spelling import suggest  # noqa: PLC0415 - only for those who mistype

    known = ", ".join(sorted(tools)) or "none"
    raise UsageError(
        f"Agent {agent.name!r}: there is no tool called {tool!r}.{suggest(tool, tools)} Built-in tools: {known}; your own are functions"
        " decorated with @remit.tool."
    )


def _delegates(agent: Agent) -> Iterable[DelegateTool]:
    if agent.subagents and agent.surface == "task":
        yield TaskTool(agent.subagents)
    elif agent.subagents:
        yield from (NamedTool(child) for child in agent.subagents)
    if agent.adhoc:
        yield AdhocTool()
