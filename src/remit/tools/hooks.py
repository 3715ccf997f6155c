"""Functions of the user that adapt an agent: instructions, validators, and hooks on calls and results.

Each may be async or a plain function, which runs in a thread. `engine/run/hooks.py` calls them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, cast

from remit.errors import UsageError
from remit.tools.contexts import RunContext
from remit.tools.policy import Decision
from remit.tools.result import ToolResult
from remit.tools.signature import name_of
from remit.types.messages import Call, JsonObject
from remit.types.type_variables import Deps

Instructions: TypeAlias = Callable[[RunContext[Deps]], str | Awaitable[str]]
"""Writes the instructions of a run; called once, when the run starts."""

Validator: TypeAlias = Callable[[Any, RunContext[Deps]], object]
"""Checks an answer: the value of `output=`, else the text. Raises `Retry` to reject it."""

OnCall: TypeAlias = Callable[
    [Call, RunContext[Deps]], Awaitable[JsonObject | Decision | None] | JsonObject | Decision | None
]
"""Sees a call before the policy does. Returns None, the new arguments, or `deny(reason)`."""

OnResult: TypeAlias = Callable[
    [Call, ToolResult, RunContext[Deps]],
    Awaitable[ToolResult | str | Decision | None] | ToolResult | str | Decision | None,
]
"""Sees the result of a call that ran. Returns None, a new result, or `deny(reason)`."""


def functions(where: str, option: str, given: object, example: str) -> tuple[Callable[..., object], ...]:
    """One function or several as a tuple. Raises UsageError."""
    if given is None:
        return ()
    several = list(cast("Sequence[object]", given)) if isinstance(given, (list, tuple)) else [given]
    for one in several:
        if not callable(one):
            raise UsageError(
                f"{where}: {option} must be a function or a list of functions such as {example}, not {one!r}."
            )
    return tuple(cast("list[Callable[..., object]]", several))


def hooks_on_call(where: str, given: OnCall[Any] | Sequence[OnCall[Any]] | None) -> tuple[OnCall[Any], ...]:
    found = functions(where, "on_call", given, "def on_call(call, ctx)")
    return cast("tuple[OnCall[Any], ...]", found)


def hooks_on_result(
    where: str, given: OnResult[Any] | Sequence[OnResult[Any]] | None
) -> tuple[OnResult[Any], ...]:
    found = functions(where, "on_result", given, "def on_result(call, result, ctx)")
    return cast("tuple[OnResult[Any], ...]", found)


def hook_name(function: Callable[..., object]) -> str:
    """The name under which people and models read about a function of the user."""
    return name_of(function)
