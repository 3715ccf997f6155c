"""`Agent`: a frozen description of an agent. It runs nothing by itself."""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal, ParamSpec, cast, get_type_hints
from weakref import WeakKeyDictionary

import remit.agent_data as agent_data
from remit.errors import UsageError
from remit.tasks.guest import is_async
from remit.tools.contexts import ProgramContext
from remit.tools.policy import Policy, PolicyFunction, compile_policy
from remit.tools.schema import output_schema
from remit.tools.source import ToolSource
from remit.tools.tool import Tool, is_reserved
from remit.types.limits import Limits
from remit.types.messages import Json, JsonObject
from remit.types.ports import EMPTY_MODEL, Model, ModelChoice, is_model, model_hint
from remit.types.sandbox import Sandbox, SandboxChoice, read_sandbox
from remit.types.text import clean

NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
MOST_TEXT = 1_000_000
"""Most characters of instructions or description; a longer text is a mistake."""

MOST_TWINS = 64
"""Narrowed agents that are kept of one agent."""

Program = Callable[[ProgramContext], Awaitable[object]]
Summary = Literal["never", "auto", "always"]

OTHER_NAMES = {
    "system_prompt": "instructions",
    "system": "instructions",
    "prompt": "instructions",
    "llm": "model",
    "functions": "tools",
    "agents": "subagents",
    "children": "subagents",
    "handoffs": "subagents",
    "model_settings": "settings",
    "output_type": "output",
    "response_format": "output",
    "response_model": "output",
    "max_turns": "limits",
    "timeout": "limits",
}
"""Names that other systems use for these fields. They appear in suggestions only: each field has one name."""

P = ParamSpec("P")


def _explain_unknown_names(init: Callable[P, None]) -> Callable[P, None]:
    """Make `__init__` raise UsageError with suggestions for an unknown argument name."""

    @functools.wraps(init)
    def made(*unnamed: P.args, **named: P.kwargs) -> None:
        try:
            init(*unnamed, **named)
        except TypeError:
            _check_names(init, unnamed[1:], named)
            raise

    return made


def _check_names(init: Callable[..., None], unnamed: Sequence[object], named: Mapping[str, object]) -> None:
    from inspect import signature  # noqa: PLC0415 - needed only for this error

    from remit.types.spelling import wrong_names  # noqa: PLC0415 - as above

    name = unnamed[0] if unnamed else named.get("name")
    known, example = list(signature(init).parameters)[1:], "Agent(name, instructions=...)"
    where = "Agent" if name is None else f"Agent {name!r}"
    wrong = wrong_names(where, unnamed[1:], named, known=known, others=OTHER_NAMES, example=example)
    if wrong:
        raise UsageError(wrong) from None


@dataclass(frozen=True, slots=True, eq=False, init=False, weakref_slot=True)
class Agent:
    """Name, instructions, model, tools, subagents and limits of an agent.

    An omitted `model`, `settings` or `limits` is inherited from the parent run; `instructions`, `tools` and
    `subagents` are never inherited. Raises UsageError for an invalid argument.
    """

    name: str
    nickname: str | None
    """Shown to people instead of the name."""
    description: str
    """Read by a delegating model when it chooses a subagent."""
    instructions: str
    model: ModelChoice | None
    """A name, a model, or several in order of preference: when one fails permanently, the next is used."""
    settings: Mapping[str, Json] | None
    """Passed to the model unchanged; `max_output_tokens` also sets the worst case to reserve."""
    tools: tuple[Tool | str | ToolSource, ...]
    """Tools, names of built-in tools, and sources of tools such as MCP servers."""
    sources: tuple[ToolSource, ...]
    """The entries of `tools` whose tools are known only when a run starts."""
    subagents: tuple[Agent, ...]
    limits: Limits | None
    surface: Literal["task", "subagent_<name>"]
    """How a model calls its subagents: one `task` tool for all, or one `subagent_<name>` tool for each."""
    adhoc: bool
    """Whether it may create undeclared children through the `subagent` tool."""
    summary: Summary
    """Whether a summary replaces the answer; `auto`: if the answer is longer than `result_chars`."""
    output: object
    """A pydantic type or a JSON schema that the answer must match."""
    policy: PolicyFunction | None
    sandbox: Sandbox | None
    """Files and hosts that its tools may reach, within the parent's sandbox. None: the parent's sandbox."""
    program: Program | None
    """An async function that runs instead of model turns; descendants inherit `model`, `settings` and `limits`."""

    @_explain_unknown_names
    def __init__(
        self,
        name: str,
        *,
        nickname: str | None = None,
        description: str = "",
        instructions: str = "",
        model: ModelChoice | None = None,
        settings: Mapping[str, Json] | None = None,
        tools: Sequence[Tool | str | ToolSource] = (),
        subagents: Sequence[Agent] = (),
        limits: Limits | None = None,
        surface: Literal["task", "subagent_<name>", "subagent"] = "task",
        adhoc: bool = False,
        summary: Summary = "never",
        output: object = None,
        policy: Policy | None = None,
        sandbox: SandboxChoice | None = None,
        program: Program | None = None,
    ) -> None:
        where = f"Agent {name!r}"
        if not isinstance(cast(object, name), str) or not NAME.fullmatch(name):
            raise UsageError(f"Agent name {name!r} must be 1 to 48 letters, digits, hyphens or underscores.")
        _check_text(where, "nickname", nickname, optional=True)
        _check_text(where, "description", description)
        _check_text(where, "instructions", instructions)
        _check_model(where, model)
        if settings is not None and not isinstance(cast(object, settings), Mapping):
            raise UsageError(f"{where}: settings must be a mapping, not {type(settings).__name__}.")
        _check_output_tokens(where, settings)
        if limits is not None and not isinstance(cast(object, limits), Limits):
            raise UsageError(f"{where}: limits must be a Limits(...), not {type(limits).__name__}.")
        _choose(where, "surface", surface, ("task", "subagent_<name>", "subagent"))
        _choose(where, "summary", summary, ("never", "auto", "always"))
        if not isinstance(cast(object, adhoc), bool):
            raise UsageError(f"{where}: adhoc must be True or False, not {adhoc!r}.")
        if program is not None:
            not_used = {
                "instructions": instructions,
                "tools": tools,
                "adhoc": adhoc,
                "summary": summary != "never",
            }
            output = _check_program(where, program, not_used, output)
        if output is not None:
            _check_output(where, output)
        values: dict[str, object] = {
            "name": clean(name),
            "nickname": nickname and clean(nickname),
            "description": clean(description),
            "instructions": clean(instructions),
            "model": tuple(model) if isinstance(model, list) else model,
            "settings": settings,
            "tools": (checked := _check_tools(where, tools)),
            "sources": tuple(t for t in checked if not isinstance(t, (Tool, str))),
            "subagents": _check_subagents(where, subagents),
            "limits": limits,
            "surface": "subagent_<name>" if surface == "subagent" else surface,
            "adhoc": adhoc,
            "summary": summary,
            "output": output,
            "policy": compile_policy(policy, where),
            "sandbox": read_sandbox(sandbox, where),
            "program": program,
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"

    def narrowed(self, limits: Limits | None, model: ModelChoice | None) -> Agent:
        """A copy with tighter limits or another model. Equal arguments return the same copy."""
        _check_model(f"Agent {self.name!r}", model)
        chosen = tuple(model) if isinstance(model, list) else model
        twins = _twins.setdefault(self, {})
        twin = twins.get((limits, chosen)) if isinstance(chosen, Hashable) else None
        if twin is None:
            twin = copy.copy(self)
            if limits is not None:
                object.__setattr__(twin, "limits", limits.tighter(self.limits))
            if chosen is not None:
                object.__setattr__(twin, "model", chosen)
            if isinstance(chosen, Hashable):
                if len(twins) >= MOST_TWINS:
                    # Code may give each child limits of its own.
                    twins.clear()
                twins[limits, chosen] = twin
        return twin

    def to_dict(self) -> JsonObject:
        """The agent and its subagents as JSON data; tools, tool sources and models become names.

        Fields with default values are omitted; `output` becomes a JSON schema. Raises UsageError for a program or a
        policy function.
        """
        return agent_data.to_dict(self)

    @classmethod
    def from_dict(
        cls,
        data: Mapping[str, Json],
        *,
        tools: agent_data.Given = (),
        models: Mapping[str, Model] | None = None,
    ) -> Agent:
        """Build the agent that `to_dict` described; `tools` and `models` map names to objects.

        Other names are resolved when the agent runs: built-in tools, provider models, `run(models=...)`. Raises
        UsageError, naming the field.
        """
        return agent_data.from_dict(cls, data, tools=tools, models=models)

    @staticmethod
    def json_schema() -> JsonObject:
        """The JSON schema of `to_dict()` dictionaries."""
        return agent_data.json_schema()


_twins: WeakKeyDictionary[Agent, dict[tuple[Limits | None, object], Agent]] = WeakKeyDictionary()
"""Copies made by `narrowed`, so that siblings share one copy and its cached data."""


def _check_text(where: str, field: str, value: object, *, optional: bool = False) -> None:
    if value is None and optional:
        return
    if not isinstance(value, str):
        raise UsageError(f"{where}: {field} must be a string, not {type(value).__name__}.")
    if len(value) > MOST_TEXT:
        raise UsageError(
            f"{where}: {field} has {len(value):,} characters; at most {MOST_TEXT:,} are allowed."
        )
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{where}: {field} has an unpaired surrogate at position {error.start}."
            ) from None


def _check_model(where: str, model: object) -> None:
    if isinstance(model, (list, tuple)):
        several = cast("Sequence[object]", model)
        if not several:
            raise UsageError(f"{where}: model is an empty list. Name at least one model, or omit model.")
        for one in several:
            _check_model(where, None if isinstance(one, (list, tuple)) else one)
            if one is None or isinstance(one, (list, tuple)):
                raise UsageError(f"{where}: model must be a list of names or models, not {model!r}.")
        return
    if model is None or (isinstance(model, str) and model.strip()):
        return
    if isinstance(model, str):
        raise UsageError(f"{where}: {EMPTY_MODEL}")
    if not is_model(model):
        raise UsageError(
            f"{where}: model must be a string such as 'anthropic:claude-haiku-4-5', or an object with `name` and"
            f" `async reply(request, emit)`, not {model!r}.{model_hint(model)}"
        )


def _check_program(where: str, program: object, not_used: Mapping[str, object], output: object) -> object:
    """The type of the program's result: `output`, else its return annotation. Raises UsageError."""
    if not callable(program) or not is_async(program):
        raise UsageError(
            f"{where}: program must be an async function that takes one ProgramContext, not {program!r}."
        )
    for field, value in not_used.items():
        if value:
            raise UsageError(
                f"{where}: {field} cannot be set together with program=: no model runs a program. Remove {field}."
            )
    if output is not None:
        return output
    try:
        hint = _return_type(program)
    except Exception as error:
        raise UsageError(f"{where}: cannot resolve the return annotation of program ({error}).") from error
    return None if hint in (None, str, object, Any, type(None)) else hint


def _return_type(function: object) -> object:
    """The type that a function says it returns, None if it does not say. Raises whatever evaluating its annotation raises."""
    while isinstance(function, functools.partial):
        function = cast("functools.partial[object]", function).func
    if not inspect.isroutine(function):
        function = type(function).__call__  # an object that can be called
    function = inspect.unwrap(function)
    annotation = getattr(function, "__annotations__", {}).get("return")
    holder = SimpleNamespace(__annotations__={"return": annotation})
    return cast(object, get_type_hints(holder, getattr(function, "__globals__", {}))["return"])


def _check_output(where: str, output: object) -> None:
    try:
        output_schema(output)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error.__cause__


def _check_output_tokens(where: str, settings: Mapping[str, Json] | None) -> None:
    most = (settings or {}).get("max_output_tokens")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise UsageError(
            f"{where}: settings['max_output_tokens'] must be a whole number of at least 1, not {most!r}."
        )


def _choose(where: str, field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{where}: {field} must be one of {', '.join(allowed)}, not {value!r}.")


def _check_tools(where: str, tools: object) -> tuple[Tool | str | ToolSource, ...]:
    if isinstance(tools, str) or not isinstance(tools, Sequence):
        hint = " Put it in a list." if isinstance(tools, (Tool, ToolSource)) else _tools_hint(tools)
        raise UsageError(
            f"{where}: tools must be a list of tools and tool names, not {type(tools).__name__}.{hint}"
        )
    seen: dict[str, None] = {}
    for item in cast("Sequence[object]", tools):
        if not isinstance(item, (Tool, str, ToolSource)):
            raise UsageError(
                f"{where}: tools contains {item!r}, which is neither a tool nor a tool's name.{_tools_hint(item)}"
            )
        name = item if isinstance(item, str) else item.name
        if not isinstance(item, (Tool, str)):
            # A source and a tool may share a name: the source's tools have their own names.
            name = f"source {name}"
        elif is_reserved(name):
            raise UsageError(
                f"{where}: the tool name {name!r} is reserved for remit's own tools. Choose another name."
            )
        if name in seen:
            raise UsageError(f"{where}: two tools are named {name!r}. Names must be unique.")
        seen[name] = None
    return tuple(cast("Sequence[Tool | str | ToolSource]", tools))


def _tools_hint(wrong: object) -> str:
    """How to fix a value that is not a tool or a list of tools."""
    if isinstance(wrong, (list, tuple)):
        return " It is a list inside the list: write * before it."
    if not callable(wrong):
        return ""
    module = str(getattr(wrong, "__module__", ""))
    if module == "remit.tools" or module.startswith("remit.tools.builtin."):
        return f" Call it: remit.tools.{getattr(wrong, '__name__', '')}()."
    return " Decorate it with @remit.tool."


def _check_subagents(where: str, subagents: object) -> tuple[Agent, ...]:
    if not isinstance(subagents, Sequence) or isinstance(subagents, str):
        raise UsageError(f"{where}: subagents must be a list of Agents, not {type(subagents).__name__}.")
    seen: dict[str, None] = {}
    for item in cast("Sequence[object]", subagents):
        if not isinstance(item, Agent):
            raise UsageError(f"{where}: subagents contains {item!r}, which is not an Agent.")
        if item.name in seen:
            raise UsageError(f"{where}: two subagents are named {item.name!r}. Names must be unique.")
        seen[item.name] = None
    return tuple(cast("Sequence[Agent]", subagents))
