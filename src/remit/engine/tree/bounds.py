"""What a run may do: its limits, policies, sandbox, models and tools, narrowed once and shared by siblings."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from msgspec import Struct, field

from remit.agent import Agent
from remit.engine.budget.model_choice import Chain
from remit.tools.hooks import OnCall, OnResult
from remit.tools.policy import PolicyFunction
from remit.tools.tool import Tool
from remit.types.limits import Limits
from remit.types.messages import Json, JsonObject, ToolSpec
from remit.types.sandbox import Sandbox


class Kit(Struct, frozen=True, eq=False):
    """The tools of a run, and what follows from them. Made once per agent; never changes between turns."""

    tools: Mapping[str, Tool]
    """By name. Includes delegate tools that are not offered, so that a call of one gets a proper answer."""
    specs: tuple[ToolSpec, ...]
    """The tools that the model is offered."""
    tokens: int
    """Estimated tokens that every request has: the instructions and the specs."""
    delegates: bool = False
    """Whether the model is offered a way to delegate."""
    delegating: frozenset[str] = frozenset()
    """Names of the tools that start children, including those that are not offered."""
    names: tuple[str, ...] = ()
    """Names of the tools that the model is offered."""
    subagents: tuple[str, ...] = ()
    """Names of the agents below, including those that cannot be delegated to."""
    shares: dict[object, Kit] = field(default_factory=dict[object, "Kit"])
    """Kits of ad hoc children that were made from this one."""


class Bounds(Struct, frozen=True, eq=False):
    """What runs of one agent at one place in the tree may do.

    Computed for the first of several siblings and shared by all of them: they are often many.
    """

    limits: Limits
    """The run's own. At the root every field is a number or None; below it, shared limits may be unset."""
    depth_left: int | None
    """Levels below it that it may still delegate to; None is unlimited."""
    policies: tuple[PolicyFunction | None, ...]
    """The policies of the caller, the root agent, and each agent below it down to this run."""
    has_rules: bool
    """Whether any policy has rules. Otherwise the tools' tiers decide."""
    on_call: tuple[OnCall[Any], ...]
    """Hooks of the agent, then of the caller; an ad hoc child has its parent's, since it has its parent's tools."""
    on_result: tuple[OnResult[Any], ...]
    sandbox: Sandbox
    settings: Mapping[str, Json]
    models: Chain
    """In order of preference."""
    kit: Kit
    output_schema: JsonObject | None
    below: dict[tuple[Agent, Kit | None, int | None], Bounds]
    """The bounds of children, by agent, kit and turns."""

    @property
    def most_turns(self) -> float:
        """`inf` is unlimited."""
        turns = self.limits.turns
        return turns if isinstance(turns, int) else inf

    @property
    def may_delegate(self) -> bool:
        return self.depth_left is None or self.depth_left > 0
