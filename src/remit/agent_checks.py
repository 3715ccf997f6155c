"""Checks of the arguments of `Agent`. Each raises UsageError that names the agent and the field."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol, TypeVar, cast, get_type_hints

from remit.errors import UsageError
from remit.tasks.guest import is_async
from remit.tools.schema import output_schema
from remit.tools.source import ToolSource
from remit.tools.tool import Tool, is_reserved
from remit.types.messages import Json
from remit.types.ports import EMPTY_MODEL, is_model, model_hint
from remit.types.text import clean

MOST_TEXT = 1_000_000
"""Most characters of instructions or description; a longer text is a mistake."""


class _Named(Protocol):
    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=_Named)


def check_instructions(where: str, instructions: object) -> object:
    """The text, cleaned, or the function that writes it."""
    if isinstance(instructions, str) or not callable(instructions):
        check_text(where, "instructions", instructions)
        return clean(cast(str, instructions))
    return instructions


def check_text(where: str, field: str, value: object, *, optional: bool = False) -> None:
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


def check_model(where: str, model: object) -> None:
    if isinstance(model, (list, tuple)):
        several = cast("Sequence[object]", model)
        if not several:
            raise UsageError(f"{where}: model is an empty list. Name at least one model, or omit model.")
        for one in several:
            check_model(where, None if isinstance(one, (list, tuple)) else one)
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


def check_program(where: str, program: object, not_used: Mapping[str, object], output: object) -> object:
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


def check_output(where: str, output: object) -> None:
    try:
        output_schema(output)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from error.__cause__


def check_output_tokens(where: str, settings: Mapping[str, Json] | None) -> None:
    most = (settings or {}).get("max_output_tokens")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise UsageError(
            f"{where}: settings['max_output_tokens'] must be a whole number of at least 1, not {most!r}."
        )


def choose(where: str, field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise UsageError(f"{where}: {field} must be one of {', '.join(allowed)}, not {value!r}.")


def check_tools(where: str, tools: object) -> tuple[Tool | str | ToolSource, ...]:
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


def check_subagents(where: str, subagents: object, kind: type[T]) -> tuple[T, ...]:
    if not isinstance(subagents, Sequence) or isinstance(subagents, str):
        raise UsageError(f"{where}: subagents must be a list of Agents, not {type(subagents).__name__}.")
    seen: dict[str, None] = {}
    for item in cast("Sequence[object]", subagents):
        if not isinstance(item, kind):
            raise UsageError(f"{where}: subagents contains {item!r}, which is not an Agent.")
        if item.name in seen:
            raise UsageError(f"{where}: two subagents are named {item.name!r}. Names must be unique.")
        seen[item.name] = None
    return tuple(cast("Sequence[T]", subagents))
