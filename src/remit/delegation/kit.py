"""Which tools a run has: its agent's own, or an ad hoc child's share, and the runtime's."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from remit.agent import Agent
from remit.artifacts import read_artifact_tool
from remit.delegation.plan import Delegate
from remit.delegation.surfaces import AdhocTool, NamedTool, TaskTool, ordinary
from remit.errors import UsageError
from remit.execution import DelegateTool, Kit, Run, text_tokens
from remit.messages import ToolSpec
from remit.scope import TreeContext
from remit.tool import Tool

BUILT_IN: dict[str, Tool] = {}
"""Tools that agents may name instead of carrying them."""


class Kits:
    """Makes the kits of one tree, each of them once."""

    def __init__(self, tree: TreeContext, delegate: Delegate) -> None:
        self._tree = tree
        self._delegate = delegate
        self._made: dict[object, Kit] = {}

    def declared(self, agent: Agent, *, may_delegate: bool) -> Kit:
        """The kit of a declared agent; the same object for every run of it."""
        key = (agent, may_delegate)
        if key not in self._made:
            own = [resolve(agent, t) for t in agent.tools]
            self._made[key] = self._make(list(self._delegates(agent)), own, may_delegate=may_delegate)
        return self._made[key]

    def adhoc(self, parent: Run, allowed: frozenset[str]) -> Kit:
        """The kit of an ad hoc child: some of its parent's ordinary tools, and a fresh `subagent`."""
        may_delegate = parent.scope.depth_left is None or parent.scope.depth_left > 1
        key = (id(parent.kit), allowed, may_delegate)
        if key not in self._made:
            own = [t for t in ordinary(parent.kit) if t.name in allowed]
            self._made[key] = self._make(
                [AdhocTool(self._delegate, self.adhoc)], own, may_delegate=may_delegate
            )
        return self._made[key]

    def _delegates(self, agent: Agent) -> Iterable[DelegateTool]:
        if agent.subagents and agent.surface == "task":
            yield TaskTool(agent.subagents, self._delegate)
        elif agent.subagents:
            yield from (NamedTool(child, self._delegate) for child in agent.subagents)
        if agent.adhoc:
            yield AdhocTool(self._delegate, self.adhoc)

    def _make(self, delegates: list[DelegateTool], own: list[Tool], *, may_delegate: bool) -> Kit:
        """Delegate tools come first and win every name; they are only offered to a run that can use them."""
        runtime = [read_artifact_tool(self._tree)] if delegates else []
        offered: list[Tool] = [*delegates, *runtime, *own] if may_delegate else list(own)
        everything = {t.name: t for t in reversed([*delegates, *runtime, *own])}
        specs = tuple(t.spec for t in offered)
        return Kit(everything, specs, _tokens(specs))


def resolve(agent: Agent, tool: Tool | str) -> Tool:
    """The tool itself. Raises UsageError for a name that nothing has."""
    if isinstance(tool, Tool):
        return tool
    if tool in BUILT_IN:
        return BUILT_IN[tool]
    known = ", ".join(sorted(BUILT_IN)) or "none yet: give it functions decorated with @remit.tool"
    raise UsageError(f"Agent {agent.name!r}: there is no tool called {tool!r}. Built-in tools: {known}.")


def _tokens(specs: tuple[ToolSpec, ...]) -> int:
    return text_tokens(msgspec.json.encode(specs).decode()) if specs else 0
