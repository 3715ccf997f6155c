"""Read the signature of a tool's function: the parameters for the model, and the context that remit passes."""

from __future__ import annotations

import functools
import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Literal, Union, cast, get_args, get_origin

from msgspec import Struct

from remit.errors import UsageError
from remit.tools.contexts import ToolContext
from remit.tools.schema import Field, fields_shape, resolve

Function = Callable[..., object]


class Signature(Struct, frozen=True):
    parameters: dict[str, Field]
    context: str | None
    is_open: bool
    """Whether the function takes any keyword (**kwargs)."""


def called(fn: Function) -> Function:
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[object]", fn).func
    return fn if inspect.isroutine(fn) else cast(Function, getattr(fn, "__call__", fn))  # noqa: B004 - the bound method


def source_of(fn: Function) -> Function:
    if inspect.isclass(fn) or not callable(fn):
        raise UsageError(f"A tool is made from a function, not from {fn!r}.")
    source = inspect.unwrap(called(fn))
    if inspect.isasyncgenfunction(source) or inspect.isgeneratorfunction(source):
        raise UsageError(
            f"{name_of(fn)} is a generator, and a tool must return one value. Collect the values and return them."
        )
    return source


def name_of(fn: Function) -> str:
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[object]", fn).func
    return str(getattr(fn, "__name__", type(fn).__name__))


def docstring_of(fn: Function) -> str:
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[object]", fn).func
    return inspect.getdoc(called(fn)) or inspect.getdoc(fn) or ""


def read_signature(
    fn: Function,
    name: str,
    spaces: tuple[Mapping[str, object], Mapping[str, object]],
    notes: Mapping[str, str],
    *,
    raw: bool,
) -> Signature:
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError) as error:
        raise UsageError(f"Tool {name}: {fn!r} has no readable signature. Wrap it in a def.") from error
    # Keywords that a partial fixes are the caller's decision: models neither see nor change them.
    fixed = cast("functools.partial[object]", fn).keywords if isinstance(fn, functools.partial) else ()
    found: dict[str, Field] = {}
    contexts: list[str] = []
    for key, parameter in parameters.items():
        if key in fixed or (raw and parameter.kind is parameter.VAR_KEYWORD):
            continue
        _check_parameter(name, key, parameter)
        annotation = resolve(parameter.annotation, *spaces)
        if _is_context(annotation):
            contexts.append(key)
        else:
            found[key] = Field(annotation, parameter.default, notes.get(key, ""))
    if len(contexts) > 1:
        raise UsageError(
            f"Tool {name}: only one parameter may be a ToolContext, not {' and '.join(contexts)}."
        )
    is_open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return Signature(found, contexts[0] if contexts else None, is_open)


def _check_parameter(name: str, key: str, parameter: inspect.Parameter) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise UsageError(
            f"Tool {name}: {parameter} does not name its parameters, so the model cannot know them. "
            "Write them out, or take **kwargs and pass parameters= (a JSON schema)."
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise UsageError(
            f"Tool {name}: {key} is positional-only, but remit passes arguments by name. Remove the /."
        )
    if key == "ctx" and parameter.annotation is parameter.empty:
        raise UsageError(
            f"Tool {name}: ctx has no annotation. Annotate it as remit.ToolContext, so that remit passes it."
        )
    if key in ("self", "cls") and parameter.annotation is parameter.empty:
        raise UsageError(
            f"Tool {name}: {key} is not bound. Make the tool from an instance: tool(instance.{name})."
        )
    if type(parameter.default).__module__ == "pydantic.fields":
        raise UsageError(
            f"Tool {name}: a Field cannot be the default of {key}. Write {key}: Annotated[<type>, Field(...)]."
        )


_CONTEXT_TEXT = r"(Optional\[)?([\w]+\.)*ToolContext(\[.*\])?(\])?(\s*\|\s*None)?"


def _is_context(annotation: object) -> bool:
    if isinstance(annotation, str):
        # The type is imported for type checkers only, so only its text is available.
        return bool(re.fullmatch(_CONTEXT_TEXT, annotation.strip("'\" ")))
    origin = typing.get_origin(annotation)
    if origin in (Union, types.UnionType, typing.Annotated):
        return any(_is_context(one) for one in typing.get_args(annotation) if not isinstance(one, str))
    return annotation is ToolContext or origin is ToolContext


def is_plain(annotation: object) -> bool:
    """Whether a type is known to have a JSON schema, without building one."""
    if annotation in (str, int, float, bool, None, type(None), object, inspect.Parameter.empty):
        return True
    if get_origin(annotation) is Literal:
        return True
    parts = get_args(annotation)
    container = get_origin(annotation) in (list, dict, Union, types.UnionType, Annotated)
    return container and all(is_plain(part) for part in parts)


def without_schema(name: str, fields: Mapping[str, Field], known: Mapping[str, object]) -> str:
    """The message about the first parameter whose type has no JSON schema; empty if every type has one."""
    for key, field in fields.items():
        try:
            fields_shape({key: field}, known, name)
        except UsageError:
            kind = getattr(field.annotation, "__name__", None) or repr(field.annotation)
            return (
                f"{name}: parameter {key!r} has the type {kind}, which has no JSON schema; use a JSON type, a dataclass, a"
                " TypedDict or a pydantic model, or take the object from ctx.deps."
            )
    return ""
