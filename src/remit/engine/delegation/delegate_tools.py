"""The three tools with which a model delegates: `task`, `subagent`, `subagent_<name>`.

Each tool checks its input, makes a plan, and formats the result (`report.py`). The child itself is started in `spawn.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias
from weakref import WeakKeyDictionary

import msgspec

import remit.engine.delegation.report as report
import remit.tools.arguments as fields
from remit.agent import Agent
from remit.engine.run.artifacts import READ_ARTIFACT
from remit.engine.run.runtime_tool import DelegateTool, Plan, RuntimeTool
from remit.engine.run.state import Run
from remit.engine.run.tokens import text_tokens
from remit.engine.tree.bounds import Kit
from remit.errors import UsageError
from remit.tools.arguments import MOST_LABEL, Bad, Field
from remit.tools.result import ToolResult
from remit.tools.tool import Tier, Tool
from remit.types.events import DelegationRejected
from remit.types.messages import Json, JsonObject, ToolSpec, user
from remit.types.outcome import Outcome, Rejection

ADHOC_TURNS = 10
MOST_ADHOC_TURNS = 50
ADHOC_BYTES = 4096
MOST_SHARES = 64
"""How many different tool sets for ad hoc children are cached."""

NO_PROFILES = "(none declared)"
NO_DESCRIPTION = "(no description provided)"

WORKER = (
    "You are a worker with one task from another agent. You see only the task, not the conversation it came from. Do the"
    " task with the tools you have, then answer with what you found. You cannot ask questions: say what is unclear and"
    " what you assumed."
)


class TaskTool(DelegateTool):
    """`task`: one tool for all declared agents."""

    FIELDS = (
        Field("agent", ("subagent_type", "agent_type", "agent_name", "agentId", "agent_id")),
        Field("prompt", ("task", "instructions", "message", "task_prompt")),
        Field("description", ("label",)),
    )

    def __init__(self, agents: Sequence[Agent]) -> None:
        self.agents = {a.name: a for a in agents}
        super().__init__("task", display_name="Task", tier=Tier.OBSERVE, spec=self._spec())

    def plan(self, run: Run, call_id: str, args: JsonObject) -> Plan | ToolResult:
        try:
            return self._plan(args)
        except Bad as bad:
            return report.rejected(run, _reject(run, self.name, call_id, bad))

    def report(self, run: Run, plan: Plan, done: Outcome | Rejection) -> ToolResult:
        del plan
        return report.task(run, done)

    def _plan(self, args: JsonObject) -> Plan:
        """The plan that the arguments ask for. Raises Bad."""
        values = fields.gather(args, self.FIELDS)
        name = fields.text(values, "agent", MOST_LABEL)
        prompt = fields.text(values, "prompt")
        label = fields.optional_text(values, "description", MOST_LABEL)
        agent = self.agents.get(name)
        if agent is None:
            raise Bad(f"agent {name!r} is not declared.{self._known_agents(name)}", "unknown_agent")
        return _plan_for(agent, prompt, label)

    def _known_agents(self, name: str) -> str:
        from remit.types.spelling import suggest  # noqa: PLC0415 - only for unknown names

        return (
            f"{suggest(name, self.agents)} Known agents: {', '.join(map(repr, self.agents)) or NO_PROFILES}."
        )

    def _spec(self) -> ToolSpec:
        lines = [f'- "{a.name}": {a.description.strip() or NO_DESCRIPTION}' for a in self.agents.values()]
        description = (
            "Delegate a task to a subagent. It works alone, with a fresh context and its own tools, and returns one final"
            " answer. Use it only if one of the declared agents suits the task. Several calls in one reply run at the same"
            " time.\n\nAgents:\n" + ("\n".join(lines) or NO_PROFILES)
        )
        agent = {"type": "string", "description": "The name of one of the declared agents."}
        prompt = {
            "type": "string",
            "description": "The task. The subagent sees only this text, not your history, so include all it needs to know.",
        }
        return ToolSpec("task", description, _schema({"agent": agent, "prompt": prompt}, ["agent", "prompt"]))


class NamedTool(DelegateTool):
    """`subagent_<name>`: one tool per configured child, with a rich result."""

    FIELDS = (
        Field("task", ("prompt", "instructions", "message", "task_prompt")),
        Field("description", ("label",)),
    )

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        description = (
            f"Delegate a task to the subagent {agent.nickname or agent.name}. It works independently and returns only its"
            f" final response. {agent.description.strip()}"
        ).strip()
        task = {"type": "string", "description": "The task. The subagent sees only this text."}
        spec = ToolSpec(f"subagent_{agent.name}", description, _schema({"task": task}, ["task"]))
        super().__init__(spec.name, display_name=f"Subagent: {agent.name}", tier=Tier.CONFIRM, spec=spec)

    def plan(self, run: Run, call_id: str, args: JsonObject) -> Plan | ToolResult:
        try:
            values = fields.gather(args, self.FIELDS)
            prompt = fields.text(values, "task")
            label = fields.optional_text(values, "description", MOST_LABEL)
        except Bad as bad:
            return report.rejected(run, _reject(run, self.name, call_id, bad))
        return _plan_for(self.agent, prompt, label)

    def report(self, run: Run, plan: Plan, done: Outcome | Rejection) -> ToolResult:
        return report.named(run, plan.agent, done)


class AdhocTool(DelegateTool):
    """`subagent`: a child that the model invents, with some of its parent's tools."""

    FIELDS = (
        Field("label", ("description", "name")),
        Field("task_prompt", ("prompt", "task", "instructions", "message")),
        Field("summary_prompt"),
        Field("allowed_tools", ("tools",)),
        Field("denied_tools", ("disallowed_tools",)),
        Field("max_turns"),
    )

    def __init__(self) -> None:
        super().__init__("subagent", display_name="Subagent", tier=Tier.OBSERVE, spec=_ADHOC_SPEC)

    def plan(self, run: Run, call_id: str, args: JsonObject) -> Plan | ToolResult:
        try:
            return self._plan(run, args)
        except Bad as bad:
            label = args.get("label")
            rejection = _reject(run, self.name, call_id, bad)
            return report.adhoc_rejected(run, label[:MOST_LABEL] if isinstance(label, str) else "", rejection)

    def report(self, run: Run, plan: Plan, done: Outcome | Rejection) -> ToolResult:
        return report.adhoc(run, plan, done)

    def _plan(self, run: Run, args: JsonObject) -> Plan:
        values = fields.gather(args, self.FIELDS)
        label = fields.text(values, "label", MOST_LABEL)
        prompt = fields.text(values, "task_prompt")
        summary = fields.optional_text(values, "summary_prompt")
        turns = fields.whole(values, "max_turns", 1, MOST_ADHOC_TURNS) or ADHOC_TURNS
        kit = _share(run, values)
        return Plan(
            agent=_ADHOC_AGENT,
            prompt=user(prompt),
            task=prompt,
            label=label,
            turns=turns,
            summary="always",
            summary_prompt=summary,
            kit=kit,
            inline_bytes=ADHOC_BYTES,
        )


def _share(run: Run, values: dict[str, Json]) -> Kit:
    """The tools of an ad hoc child: some of its parent's ordinary tools, and a new `subagent`. Raises Bad."""
    allowed = fields.names(values, "allowed_tools")
    denied = fields.names(values, "denied_tools") or []
    mine = [t.name for t in run.kit.tools.values() if not isinstance(t, RuntimeTool)]
    for name in allowed or ():
        _check_tool(run, "allowed_tools", name, mine)
    for name in denied:
        if name not in run.kit.tools:
            _check_tool(run, "denied_tools", name, mine)
    chosen = frozenset(name for name in (mine if allowed is None else allowed) if name not in denied)
    left = run.node.bounds.depth_left
    deep = left is None or left > 1
    may_delegate = deep and "subagent" not in denied
    key = (chosen, may_delegate)
    if key not in run.kit.shares:
        if len(run.kit.shares) >= MOST_SHARES:
            run.kit.shares.clear()
        own = [t for t in run.kit.tools.values() if t.name in chosen and not isinstance(t, RuntimeTool)]
        run.kit.shares[key] = make_kit(_ADHOC_AGENT, [AdhocTool()], own, may_delegate=may_delegate)
    return run.kit.shares[key]


def _check_tool(run: Run, field: str, name: str, mine: list[str]) -> None:
    tool = run.kit.tools.get(name)
    if tool is not None and (not isinstance(tool, RuntimeTool) or tool is READ_ARTIFACT):
        return
    known = ", ".join(mine) or "none"
    if name == "subagent" or tool is not None:
        raise Bad(
            f"{field} must not list {name[:60]!r}: delegate tools are not shared; a child gets its own 'subagent' while the"
            f" depth limit allows. Tools you can share: {known}."
        )
    raise Bad(f"{field}: {name[:60]!r} is not one of your tools. Your tools: {known}.", "unknown_tool")


def make_kit(
    agent: Agent, delegates: Sequence[DelegateTool], own: Sequence[Tool], *, may_delegate: bool
) -> Kit:
    """Delegate tools take precedence over tools of the same name; only a run that may delegate is offered them."""
    long = any(t.inline_chars is not None for t in own)
    reading: list[Tool] = [READ_ARTIFACT] if delegates or long else []
    runtime: list[Tool] = [*delegates, *reading]
    everything = {t.name: t for t in reversed([*runtime, *own, _NOTHING_DECLARED])}
    offered = [*runtime, *own] if may_delegate else [*(reading if long else ()), *own]
    specs = tuple(t.spec for t in offered)
    tokens = text_tokens(msgspec.json.encode(specs).decode()) if specs else 0
    delegating = frozenset(name for name, tool in everything.items() if tool.delegates)
    return Kit(
        everything,
        specs,
        # A function's text is counted when it is written.
        tokens + text_tokens(agent.instructions if isinstance(agent.instructions, str) else "") + 8,
        delegates=bool(delegates) and may_delegate,
        delegating=delegating,
        names=tuple(spec.name for spec in specs),
        subagents=tuple(a.name for a in agent.subagents),
    )


def _plan_for(agent: Agent, prompt: str, label: str) -> Plan:
    return Plan(agent, user(prompt), prompt, label, summary=agent.summary)


def _reject(run: Run, tool: str, call_id: str, bad: Bad) -> report.Rejection:
    rejection = bad.rejection(tool)
    node = run.node
    node.emit(DelegationRejected(*node.stamp(), call=call_id, rejection=rejection))
    return rejection


def _schema(properties: JsonObject, required: list[Json]) -> JsonObject:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_NOTHING_DECLARED = TaskTool(())
"""Answers a call of `task` in a run without subagents."""

_ADHOC_AGENT = Agent("subagent", instructions=WORKER, adhoc=True, summary="always")

_ADHOC_SPEC = ToolSpec(
    "subagent",
    "Start a subagent for a task that you define. It works alone in a fresh conversation with your tools, or only those"
    " you allow, and returns a summary of its findings. Several calls in one reply run at the same time.",
    _schema(
        {
            "label": {"type": "string", "description": "The subagent's purpose, in a few words."},
            "task_prompt": {
                "type": "string",
                "description": "The task. The subagent sees only this text, not your history.",
            },
            "summary_prompt": {"type": "string", "description": "How to summarise at the end (optional)."},
            "allowed_tools": {
                "type": ["array", "null"],
                "items": {"type": "string"},
                "description": "Only these of your tools (default: all).",
            },
            "denied_tools": {
                "type": ["array", "null"],
                "items": {"type": "string"},
                "description": "All your tools except these.",
            },
            "max_turns": {
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_ADHOC_TURNS,
                "description": "Default 10.",
            },
        },
        ["label", "task_prompt"],
    ),
)


class _Shelf:
    """Tools that agents may refer to by name. Created when the first name is used."""

    def __init__(self) -> None:
        self.source: Callable[[], Mapping[str, Tool]] = dict
        """Returns the tools; set in `start.py`."""
        self._tools: Mapping[str, Tool] | None = None

    def tools(self) -> Mapping[str, Tool]:
        if not self._tools:
            self._tools = self.source()
        return self._tools


built_in = _Shelf()

_Kits: TypeAlias = "WeakKeyDictionary[Agent, Kit]"

_whole: _Kits = WeakKeyDictionary()
_narrow: _Kits = WeakKeyDictionary()
"""For runs that may delegate, and for runs that may not."""


def kit_for(agent: Agent, may_delegate: bool) -> Kit:
    """The tools of an agent. Raises UsageError for an unknown tool name."""
    made = _whole if may_delegate else _narrow
    if agent not in made:
        made[agent] = wider_kit(agent, (), may_delegate=may_delegate)
    return made[agent]


def wider_kit(agent: Agent, opened: Sequence[Tool], *, may_delegate: bool) -> Kit:
    """The tools of an agent, including those from its sources."""
    own = [resolve(agent, t) for t in agent.tools if isinstance(t, (Tool, str))]
    return make_kit(agent, list(_delegates(agent)), [*own, *opened], may_delegate=may_delegate)


def resolve(agent: Agent, tool: Tool | str) -> Tool:
    """The tool itself. Raises UsageError for an unknown name."""
    if isinstance(tool, Tool):
        return tool
    tools = built_in.tools()
    if tool in tools:
        return tools[tool]
    from remit.types.spelling import suggest  # noqa: PLC0415 - only for unknown names

    known = ", ".join(sorted(tools)) or "none"
    raise UsageError(
        f"Agent {agent.name!r}: no tool named {tool!r}.{suggest(tool, tools)} Built-in tools: {known}. For your own tools, pass"
        " functions decorated with @remit.tool."
    )


def _delegates(agent: Agent) -> Iterable[DelegateTool]:
    if agent.subagents and agent.surface == "task":
        yield TaskTool(agent.subagents)
    elif agent.subagents:
        yield from (NamedTool(child) for child in agent.subagents)
    if agent.adhoc:
        yield AdhocTool()
