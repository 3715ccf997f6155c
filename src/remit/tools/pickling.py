"""How a tool is pickled: by the name of its module and function, without the module's globals, which may hold keys."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping
from typing import cast

from remit.errors import UsageError

NOT_SENT = ("_globals", "worked_out", "spec", "_shape", "_read")
"""Attributes of a tool that are computed again from the others."""


def reduced(tool: object, name: str, function: Callable[..., object]) -> tuple[object, ...]:
    """The value for `__reduce_ex__`. Raises UsageError, in one sentence that names the tool."""
    module, path = _place(function)
    if path and _find(module, path) is tool:
        return _load, (module, path)
    state = {key: value for key, value in vars(tool).items() if key not in NOT_SENT}
    try:
        pickle.dumps(state)
    except Exception as error:  # noqa: BLE001 - an object of the user's may raise anything
        raise UsageError(
            f"The tool {name!r} cannot be sent to another process, {_why(path, state, error)}"
        ) from None
    return _rebuild, (type(tool), state)


def _place(function: Callable[..., object]) -> tuple[str, str]:
    """The module of a function, and its name there; empty if it has none."""
    return str(getattr(function, "__module__", "")), str(getattr(function, "__qualname__", ""))


def _find(module: str, path: str) -> object:
    found: object = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _why(path: str, state: Mapping[str, object], error: Exception) -> str:
    owner = getattr(state.get("_fn"), "__self__", None)
    if owner is not None:
        said = str(error).partition("\n")[0]
        return f"because its object of type {type(owner).__name__} cannot be pickled ({said})."
    if "<lambda>" in path:
        return "because it is a lambda: write a function at the top level of a module."
    if "<locals>" in path:
        return f"because {path.partition('.<locals>')[0]!r} defines it: move it to the top level of a module."
    said = str(error).partition("\n")[0]
    return f"because one of its values cannot be pickled ({said})."


def _load(module: str, path: str) -> object:
    """Find a tool by name in the receiving process. Raises UsageError if it is not there."""
    __import__(module)
    found = _find(module, path)
    if found is None:
        raise UsageError(
            f"The module {module!r} has no tool {path!r} here: install the same version of the code."
        )
    return found


def _rebuild(kind: type[object], state: Mapping[str, object]) -> object:
    made = kind.__new__(kind)
    vars(made).update(state)
    restore = cast("Callable[[], None]", getattr(made, "restore_globals"))  # noqa: B009 - not a method of object
    restore()
    return made
