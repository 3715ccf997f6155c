"""What a tool's function takes: the parameters that a model fills in, and the context that remit gives it."""

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
    """Whether it takes any keyword (**kwargs)."""


def called(fn: Function) -> Function:
    while isinstance(fn, functools.partial):
        fn = cast("functools.partial[object]", fn).func
    return fn if inspect.isroutine(fn) else cast(Function, getattr(fn, "__call__", fn))  # noqa: B004 - the bound method


def source_of(fn: Function) -> Function:
    if inspect.isclass(fn) or not callable(fn):
        raise UsageError(f"A tool is made of a function, not of {fn!r}.")
    source = inspect.unwrap(called(fn))
    if inspect.isasyncgenfunction(source) or inspect.isgeneratorfunction(source):
        raise UsageError(
            f"{name_of(fn)} yields: a tool returns one value. Collect the values and return them."
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
        raise UsageError(
            f"Tool {name}: Python does not know the signature of {fn!r}. Wrap it in a def."
        ) from error
    # What a partial fixes by keyword is the caller's decision: no model may see or change it.
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
        raise UsageError(f"Tool {name}: {' and '.join(contexts)} are both a ToolContext. One is enough.")
    is_open = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return Signature(found, contexts[0] if contexts else None, is_open)


def _check_parameter(name: str, key: str, parameter: inspect.Parameter) -> None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise UsageError(
            f"Tool {name}: {parameter} has no names a model could be told. "
            "Write the parameters out, or take **kwargs and give parameters= (a JSON schema)."
        )
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise UsageError(
            f"Tool {name}: {key} is positional-only, and tools are called by name. Remove the /."
        )
    if key == "ctx" and parameter.annotation is parameter.empty:
        raise UsageError(
            f"Tool {name}: annotate ctx as remit.ToolContext, or the model would have to give it."
        )
    if key in ("self", "cls") and parameter.annotation is parameter.empty:
        raise UsageError(
            f"Tool {name}: {key} is not bound. Make the tool from the object: tool(thing.{name})."
        )
    if type(parameter.default).__module__ == "pydantic.fields":
        raise UsageError(
            f"Tool {name}: write {key}: Annotated[<type>, Field(...)] instead of a Field as default."
        )


_CONTEXT_TEXT = r"(Optional\[)?([\w]+\.)*ToolContext(\])?(\s*\|\s*None)?"


def _is_context(annotation: object) -> bool:
    if isinstance(annotation, str):
        # Imported for type checkers only, so the text is all there is.
        return bool(re.fullmatch(_CONTEXT_TEXT, annotation.strip("'\" ")))
    wraps = typing.get_origin(annotation) in (Union, types.UnionType, typing.Annotated)
    return annotation is ToolContext or (wraps and ToolContext in typing.get_args(annotation))


def is_plain(annotation: object) -> bool:
    """Whether a type surely has a JSON schema, so that none need be built to know."""
    if annotation in (str, int, float, bool, None, type(None), object, inspect.Parameter.empty):
        return True
    if get_origin(annotation) is Literal:
        return True
    parts = get_args(annotation)
    container = get_origin(annotation) in (list, dict, Union, types.UnionType, Annotated)
    return container and all(is_plain(part) for part in parts)


def without_schema(name: str, fields: Mapping[str, Field], known: Mapping[str, object]) -> str:
    """The message about the first parameter whose type has no JSON schema; empty if each has one."""
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
