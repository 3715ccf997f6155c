"""`Agent`: a frozen description of an agent. It runs nothing by itself."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, Unpack, cast, overload
from weakref import WeakKeyDictionary

import remit.agent_data as agent_data
from remit.agent_checks import (
    check_instructions,
    check_model,
    check_output,
    check_output_tokens,
    check_program,
    check_subagents,
    check_text,
    check_tools,
    choose,
)
from remit.errors import UsageError
from remit.tools.contexts import ProgramContext, RunContext
from remit.tools.hooks import (
    Instructions,
    OnCall,
    OnResult,
    Validator,
    functions,
    hooks_on_call,
    hooks_on_result,
)
from remit.tools.policy import Policy, PolicyFunction, compile_policy
from remit.tools.source import ToolSource
from remit.tools.tool import Tool
from remit.types.limits import Limits
from remit.types.messages import Json, JsonObject
from remit.types.ports import Model, ModelChoice
from remit.types.sandbox import Sandbox, SandboxChoice, read_sandbox
from remit.types.text import clean
from remit.types.type_variables import Deps, DepsIn, Output, OutputOut

NAME = re.compile(r"[A-Za-z0-9_-]{1,48}")
MOST_TWINS = 64
"""Narrowed agents that are kept of one agent."""

Program = Callable[[ProgramContext[Any]], Awaitable[object]]
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
    """Make the constructor raise UsageError with suggestions for an unknown argument name."""
    init.__name__, init.__qualname__ = "__init__", "Agent.__init__"

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


class AgentOptions(TypedDict, Generic[Deps], total=False):
    """The arguments of `Agent` whose types do not depend on its output; for type checkers."""

    nickname: str | None
    description: str
    instructions: str | Instructions[Deps]
    model: ModelChoice | None
    settings: Mapping[str, Json] | None
    tools: Sequence[Tool | str | ToolSource]
    subagents: Sequence[Agent[Deps, Any]]
    limits: Limits | None
    surface: Literal["task", "subagent_<name>", "subagent"]
    adhoc: bool
    summary: Summary
    policy: Policy | None
    sandbox: SandboxChoice | None
    on_call: OnCall[Deps] | Sequence[OnCall[Deps]] | None
    on_result: OnResult[Deps] | Sequence[OnResult[Deps]] | None


@dataclass(frozen=True, slots=True, eq=False, init=False, weakref_slot=True)
class Agent(Generic[DepsIn, OutputOut]):
    """Name, instructions, model, tools, subagents and limits of an agent.

    For type checkers, `Agent[Deps, Output]` needs `run(deps=...)` of the type `Deps`, and `outcome.output` is an `Output`.

    An omitted `model`, `settings` or `limits` is inherited from the parent run; `instructions`, `tools` and
    `subagents` are never inherited. Raises UsageError for an invalid argument.
    """

    name: str
    nickname: str | None
    """Shown to people instead of the name."""
    description: str
    """Read by a delegating model when it chooses a subagent."""
    instructions: str | Instructions[Any]
    """A text, or a function of the run's context that writes the text once, when the run starts."""
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
    validators: tuple[Validator[Any], ...]
    """Check each answer, after `output`; one that raises `Retry` makes the model answer again."""
    on_call: tuple[OnCall[Any], ...]
    """Hooks that see each call of the agent's runs before policy and approver; they may change or refuse it."""
    on_result: tuple[OnResult[Any], ...]
    """Hooks that see each result before the model does; they may replace or withhold it."""

    if TYPE_CHECKING:
        # `__new__`, because the result of `__init__` cannot have a type variable that no argument decides.
        # `...` as a default, because pyright would infer unknown types from `()`.

        @overload
        def __new__(
            cls,
            name: str,
            *,
            output: None = None,
            program: None = None,
            validators: Sequence[Callable[[str, RunContext[Deps]], object]] = ...,
            **options: Unpack[AgentOptions[Deps]],
        ) -> Agent[Deps, None]: ...

        @overload
        def __new__(
            cls,
            name: str,
            *,
            output: None = None,
            program: Callable[[ProgramContext[Deps]], Awaitable[str | None]],
            **options: Unpack[AgentOptions[Deps]],
        ) -> Agent[Deps, None]: ...

        @overload
        def __new__(
            cls,
            name: str,
            *,
            output: None = None,
            program: Callable[[ProgramContext[Deps]], Awaitable[Output]],
            **options: Unpack[AgentOptions[Deps]],
        ) -> Agent[Deps, Output]: ...

        @overload
        def __new__(
            cls,
            name: str,
            *,
            output: type[Output],
            program: Callable[[ProgramContext[Deps]], Awaitable[object]] | None = None,
            validators: Sequence[Callable[[Output, RunContext[Deps]], object]] = ...,
            **options: Unpack[AgentOptions[Deps]],
        ) -> Agent[Deps, Output]: ...

        @overload
        def __new__(
            cls,
            name: str,
            *,
            output: object,
            program: Callable[[ProgramContext[Deps]], Awaitable[object]] | None = None,
            validators: Sequence[Callable[[Any, RunContext[Deps]], object]] = ...,
            **options: Unpack[AgentOptions[Deps]],
        ) -> Agent[Deps, Any]: ...

        def __new__(cls, name: str, **options: Any) -> Any: ...

    def _describe(
        self,
        name: str,
        *,
        nickname: str | None = None,
        description: str = "",
        instructions: str | Instructions[Any] = "",
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
        validators: Sequence[Validator[Any]] = (),
        on_call: OnCall[Any] | Sequence[OnCall[Any]] | None = None,
        on_result: OnResult[Any] | Sequence[OnResult[Any]] | None = None,
    ) -> None:
        where = f"Agent {name!r}"
        if not isinstance(cast(object, name), str) or not NAME.fullmatch(name):
            raise UsageError(f"Agent name {name!r} must be 1 to 48 letters, digits, hyphens or underscores.")
        check_text(where, "nickname", nickname, optional=True)
        check_text(where, "description", description)
        check_model(where, model)
        if settings is not None and not isinstance(cast(object, settings), Mapping):
            raise UsageError(f"{where}: settings must be a mapping, not {type(settings).__name__}.")
        check_output_tokens(where, settings)
        if limits is not None and not isinstance(cast(object, limits), Limits):
            raise UsageError(f"{where}: limits must be a Limits(...), not {type(limits).__name__}.")
        choose(where, "surface", surface, ("task", "subagent_<name>", "subagent"))
        choose(where, "summary", summary, ("never", "auto", "always"))
        if not isinstance(cast(object, adhoc), bool):
            raise UsageError(f"{where}: adhoc must be True or False, not {adhoc!r}.")
        if program is not None:
            not_used = {
                "instructions": instructions,
                "tools": tools,
                "adhoc": adhoc,
                "summary": summary != "never",
                "validators": validators,
                "on_call": on_call,
                "on_result": on_result,
            }
            output = check_program(where, program, not_used, output)
        if output is not None:
            check_output(where, output)
        values: dict[str, object] = {
            "name": clean(name),
            "nickname": nickname and clean(nickname),
            "description": clean(description),
            "instructions": check_instructions(where, instructions),
            "model": tuple(model) if isinstance(model, list) else model,
            "settings": settings,
            "tools": (checked := check_tools(where, tools)),
            "sources": tuple(t for t in checked if not isinstance(t, (Tool, str))),
            "subagents": check_subagents(where, subagents, Agent),
            "limits": limits,
            "surface": "subagent_<name>" if surface == "subagent" else surface,
            "adhoc": adhoc,
            "summary": summary,
            "output": output,
            "policy": compile_policy(policy, where),
            "sandbox": read_sandbox(sandbox, where),
            "program": program,
            "validators": functions(where, "validators", validators, "[check]"),
            "on_call": hooks_on_call(where, on_call),
            "on_result": hooks_on_result(where, on_result),
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)

    if not TYPE_CHECKING:
        __init__ = _explain_unknown_names(_describe)

        def __class_getitem__(cls, _: object) -> type[Agent]:
            """`Agent[Deps, Output](...)` is `Agent(...)`: typing would set an attribute on the frozen agent."""
            return cls

    def __repr__(self) -> str:
        return f"Agent({self.name!r})"

    def narrowed(self, limits: Limits | None, model: ModelChoice | None) -> Agent[DepsIn, OutputOut]:
        """A copy with tighter limits or another model. Equal arguments return the same copy."""
        check_model(f"Agent {self.name!r}", model)
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

        Fields with default values are omitted; `output` becomes a JSON schema. Raises UsageError for functions: a program, a
        policy function, instructions, validators and hooks.
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
