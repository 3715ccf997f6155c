"""Tools that an agent can call: a function with a schema, a tier, and functions that describe a call.

`engine/run/tool_calls.py` runs calls (threads, timeouts, approval); `schema.py` checks arguments.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    Literal,
    ParamSpec,
    Self,
    SupportsIndex,
    TypedDict,
    TypeVar,
    Unpack,
    cast,
    overload,
)

from msgspec import Struct

from remit.errors import RemitError, UsageError
from remit.tasks.semaphore import Gate
from remit.tools.contexts import ToolContext
from remit.tools.docstring import read_docstring
from remit.tools.policy_rules import Subject, place, texts
from remit.tools.result import ToolResult
from remit.tools.schema import SchemaShape, Shape, ShapeError, UnknownName, fields_shape, unknown_name
from remit.tools.signature import (
    Function,
    Signature,
    called,
    docstring_of,
    is_plain,
    name_of,
    read_signature,
    source_of,
    without_schema,
)
from remit.types.messages import Json, JsonObject, ToolSpec
from remit.types.text import (
    CONTEXT_CHARS,
    FOREIGN,
    Manner,
    clean,
    clean_json,
    manner_of,
    one_line,
    shorten,
)

if TYPE_CHECKING:
    from pathlib import Path
else:
    # Type hints can be read at run time, and importing pathlib is slow.
    from os import PathLike as Path

P = ParamSpec("P")
R = TypeVar("R")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

_RESERVED = frozenset({"task", "subagent", "read_artifact"})


class Tier(StrEnum):
    """What a tool may do."""

    OBSERVE = "observe"
    """It only reads."""
    CONFIRM = "confirm"
    """It changes things, so a call needs approval by default."""


class BadArguments(RemitError):
    """Raised when a model's arguments do not fit a tool; the message is for that model."""


def is_reserved(name: str) -> bool:
    """Whether a tool name belongs to the runtime's own tools."""
    return name in _RESERVED or name.startswith("subagent_")


# --- The tool ------------------------------------------------------------------------------------


class WorkedOut(Struct, frozen=True):
    """Facts about a tool that are the same for every call, computed at the first call."""

    display_name: str
    delegates: bool
    tier_name: str
    asks: bool
    """Whether its tier requires approval if no policy decides."""
    describer: Callable[[JsonObject], str] | None
    """Describes a call, as `describe` does; None if the description is always empty."""
    summariser: Callable[[str, bool], str] | None
    """Summarises a result from its content and `ok`; None if `summarise` must be called."""


class Tool:
    """A function an agent can call.

    Contract: call `check`, then `invoke`; `describe` and `summarise` never raise. The first `spec` or `check` builds the
    schema, and raises UsageError if a type has none. `names` is the namespace for types that are not global. `subjects`
    returns the texts that rules with a pattern are matched against; `paths` names the parameters that are paths in the
    workspace, for the same purpose. `preview` and `must_ask` take the function's arguments by name, and a `ctx`. `preview`
    returns what the call would do. `must_ask` returns what a person must approve whatever the rules allow, or ""; the
    function itself must check `ctx.approved`. `tool` rejects the names of remit's own tools, `Tool` accepts them.
    """

    __slots__ = ("__dict__", "__weakref__", "worked_out")
    worked_out: WorkedOut | None
    """None until computed, and after every change of the tool. A slot, since every call reads it."""
    delegates: bool = False
    """True for remit's own tools that start children."""
    gate: Gate | None = None
    """Limits how many of its calls run at once in this process, over all runs; None for no limit."""

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Set the slot here too: a copy is made without `__init__`."""
        made = super().__new__(cls)
        object.__setattr__(made, "worked_out", None)
        return made

    def __init__(
        self,
        fn: Function,
        *,
        name: str | None = None,
        description: str | None = None,
        tier: Tier | str = Tier.CONFIRM,
        timeout_s: float | None = None,
        display_name: str | None = None,
        describe: Callable[[JsonObject], str] | None = None,
        summarise: Callable[[ToolResult], str] | None = None,
        parameters: Mapping[str, Json] | None = None,
        names: Mapping[str, object] | None = None,
        subjects: Callable[[JsonObject], Iterable[str | Subject]] | None = None,
        paths: Sequence[str] = (),
        preview: Callable[..., str] | None = None,
        must_ask: Callable[..., str] | None = None,
        inline_chars: int | None = None,
    ) -> None:
        if isinstance(fn, Tool):
            raise UsageError(f"{fn!r} is already a tool.")
        source = source_of(fn)
        self.name = _checked_name(name if name is not None else name_of(fn))
        doc, notes = read_docstring(docstring_of(fn))
        self.description = _checked_text(
            self.name, "description", doc if description is None else description
        )
        self.tier = _checked_tier(self.name, tier)
        self.timeout_s = _checked_timeout(self.name, timeout_s)
        """Seconds one call may take; None means the run's `call_seconds`."""
        shown = self.name if display_name is None else display_name
        self.display_name = _checked_text(self.name, "display_name", shown)
        self.is_async = inspect.iscoroutinefunction(called(fn)) or inspect.iscoroutinefunction(source)
        self._fn = fn
        self.inline_chars = _checked_chars(self.name, inline_chars)
        """How many characters of a result the model reads inline; `read_artifact` has the rest. None: remit's own limit."""
        self._subjects = subjects
        self._paths = tuple(paths)
        self._preview = preview
        self._must_ask = must_ask
        self._describe = describe
        self._summarise = summarise
        self.restore_globals()
        spaces = (self._globals, names or {})
        signature = self._signature = read_signature(fn, self.name, spaces, notes, raw=parameters is not None)
        self.takes_context = signature.context is not None
        self._parameters = (
            None if parameters is None else _checked_parameters(self, parameters, self._signature)
        )

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[object, ...]:
        """Pickle the tool without its module's globals. Raises UsageError for a tool that cannot be pickled."""
        from remit.tools.pickling import reduced  # noqa: PLC0415 - only for other processes

        return reduced(self, self.name, self._fn)

    def __copy__(self) -> Self:
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """A shallow copy: a function is shared."""
        return self.__copy__()

    def restore_globals(self) -> None:
        """Find the globals of the function again, after pickling."""
        self._globals = cast(dict[str, object], getattr(source_of(self._fn), "__globals__", {}))

    def __setattr__(self, name: str, value: object) -> None:
        """Discard the computed facts after a change, so that a changed tier takes effect."""
        super().__setattr__(name, _checked_tier(self.name, cast(str, value)) if name == "tier" else value)
        super().__setattr__("worked_out", None)

    def work_out(self) -> WorkedOut:
        """Compute `worked_out`."""
        manner, asks = manner_of(self.name), self.tier is Tier.CONFIRM and not self.delegates
        describes = self._describe is not None or self._replaces("describe")
        summarises = self._summarise is not None or self._replaces("summarise")
        made = WorkedOut(
            self.display_name,
            self.delegates,
            str(self.tier),
            asks,
            functools.partial(told, self.describe) if describes else manner.context,
            None if summarises else manner.summary,
        )
        super().__setattr__("worked_out", made)
        return made

    def _replaces(self, method: str) -> bool:
        """Whether a subclass or the instance replaces a method."""
        return getattr(type(self), method) is not getattr(Tool, method) or method in self.__dict__

    @functools.cached_property
    def spec(self) -> ToolSpec:
        """The tool's description for a model."""
        return ToolSpec(self.name, self.description, self._shape.schema)

    def check_schema(self) -> None:
        """Raise UsageError if a parameter has a type without a JSON schema, or `parameters` is not a JSON schema.

        A type that is not defined yet is looked up again when the tool is first used.
        """
        fields = self._signature.parameters
        if self._parameters is None and all(is_plain(field.annotation) for field in fields.values()):
            return
        try:
            _ = self._shape
        except UnknownName:
            pass
        except UsageError as error:
            told = without_schema(f"tool {self.name}", fields, self._globals)
            raise UsageError(told or str(error)) from None

    @functools.cached_property
    def _shape(self) -> Shape:
        if self._parameters is not None:
            return SchemaShape(self._parameters, f"tool {self.name}")
        return fields_shape(self._signature.parameters, self._globals, f"tool {self.name}")

    @functools.cached_property
    def _read(self) -> Callable[[JsonObject], dict[str, object]]:
        """The function that checks arguments."""
        if self._parameters is not None:
            return self._check_raw
        return cast("Callable[[JsonObject], dict[str, object]]", self._shape.read)

    @property
    def _manner(self) -> Manner:
        return manner_of(self.name)

    def check(self, args: JsonObject) -> dict[str, object]:
        """The keyword arguments for `invoke`: valid Unicode, and no mutable value shared with `args`.

        Raises BadArguments with every problem at once.
        """
        if args.__class__ is not dict:
            raise BadArguments(f"Wrong arguments for {self.name}: they must be a JSON object.")
        for value in args.values():
            # Copy only mutable values and text that may be invalid Unicode; most arguments are neither.
            if not value.isascii() if isinstance(value, str) else isinstance(value, (dict, list)):
                args = cast(JsonObject, clean_json(args))
                break
        try:
            return self._read(args)
        except ShapeError as error:
            raise BadArguments(f"Wrong arguments for {self.name}:\n{error.listing}") from None

    def _check_raw(self, args: JsonObject) -> dict[str, object]:
        signature, problems = self._signature, list[str]()
        known = signature.parameters or cast(JsonObject, self._shape.schema["properties"])
        for key in args:
            if key == signature.context or not (signature.is_open or key in signature.parameters):
                problems.append(f"{key}: {unknown_name(known)}")
        for key, parameter in signature.parameters.items():
            if parameter.required and key not in args:
                problems.append(f"{key}: required, but missing")
        try:
            self._shape.read(args)
        except ShapeError as error:
            problems += error.problems
        if problems:
            raise ShapeError(problems)
        return dict(args)

    def invoke(self, kwargs: dict[str, object], ctx: ToolContext) -> object:
        """Call the function; returns an awaitable if `is_async`. Exceptions pass through."""
        if self._signature.context is None:
            return self._fn(**kwargs)
        return self._fn(**{**kwargs, self._signature.context: ctx})

    def describe(self, args: JsonObject | str) -> str:
        """Describe a call on one short line."""
        if self._describe is not None and (own := _own_words(self._describe, args)) is not None:
            return own
        context = self._manner.context
        return context(args) if context is not None and isinstance(args, dict) else ""

    def subjects(self, args: JsonObject, workspace: Path | None = None) -> tuple[Subject, ...]:
        """The texts that rules with a pattern are matched against: by default, every text among the arguments."""
        if self._paths:
            given = (args.get(key, ".") for key in self._paths)
            return tuple(place(value, workspace) for value in given if isinstance(value, str))
        if self._subjects is None:
            return texts(args)
        try:
            return tuple(s if isinstance(s, Subject) else Subject(s) for s in self._subjects(args))
        except FOREIGN:
            return (Subject("", clear=False),)

    @property
    def has_preview(self) -> bool:
        return self._preview is not None

    def preview(self, kwargs: dict[str, object], ctx: ToolContext) -> str:
        """What the call would do, for the person who approves; may read files. Exceptions pass through."""
        return "" if self._preview is None else self._preview(**kwargs, ctx=ctx)

    @property
    def may_have_to_ask(self) -> bool:
        return self._must_ask is not None

    def must_ask(self, kwargs: dict[str, object], ctx: ToolContext) -> str:
        """The part of a call that a person must approve, or ""; may read files. Exceptions pass through."""
        return "" if self._must_ask is None else self._must_ask(**kwargs, ctx=ctx)

    def summarise(self, result: ToolResult) -> str:
        """Summarise a result on one short line."""
        if self._summarise is None:
            return self._manner.summary(result.content, result.ok)
        own = _own_words(self._summarise, result)
        return self._manner.summary(result.content, result.ok) if own is None else own


def told(words: Callable[..., object], about: object) -> str:
    """Call a tool's `describe` or `summarise`: its text on one short line, or "" if it raises."""
    return _own_words(words, about) or ""


def _own_words(words: Callable[..., object], about: object) -> str | None:
    try:
        said = words(about)
    except FOREIGN:
        return None
    return one_line(clean(shorten(said, CONTEXT_CHARS, CONTEXT_CHARS - 3))) if isinstance(said, str) else None


# --- The decorator -------------------------------------------------------------------------------


class ToolOptions(TypedDict, total=False):
    """The options of `tool`; see the arguments of `Tool`."""

    name: str
    description: str
    tier: Tier | Literal["observe", "confirm"]
    timeout_s: float | None
    display_name: str
    describe: Callable[[JsonObject], str]
    summarise: Callable[[ToolResult], str]
    parameters: Mapping[str, Json]
    subjects: Callable[[JsonObject], Iterable[str | Subject]]
    paths: Sequence[str]
    preview: Callable[..., str]
    must_ask: Callable[..., str]
    inline_chars: int


class FunctionTool(Tool, Generic[P, R]):
    """A tool made by `@tool`; it can still be called like the function."""

    def __init__(
        self, fn: Callable[P, R], names: Mapping[str, object], **options: Unpack[ToolOptions]
    ) -> None:
        super().__init__(fn, names=names, **options)
        self.__wrapped__ = fn
        self.__name__ = self.name
        self.__doc__ = docstring_of(fn) or None

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.__wrapped__(*args, **kwargs)


@overload
def tool(fn: Callable[P, R], /, **options: Unpack[ToolOptions]) -> FunctionTool[P, R]: ...


@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(fn: Function | None = None, /, **options: Unpack[ToolOptions]) -> object:
    """Make a function a tool: `@tool`, `@tool(tier="observe", ...)` or `tool(fn, ...)`.

    The schema comes from the signature and the docstring, or from `parameters`, a JSON schema.
    Raises UsageError for an invalid function or option.
    """
    if unknown := sorted(set(options) - set(ToolOptions.__annotations__)):
        from remit.types.spelling import suggest  # noqa: PLC0415 - needed only for this error

        raise UsageError(
            f"tool() has no option {unknown[0]!r}.{suggest(unknown[0], ToolOptions.__annotations__)}"
            f" Options: {', '.join(ToolOptions.__annotations__)}."
        )
    # Annotations may be text that names types of the calling function's local scope.
    caller = cast(types.FrameType | None, getattr(inspect.currentframe(), "f_back", None))
    names: Mapping[str, object] = caller.f_locals if caller else {}

    def wrap(target: Function) -> FunctionTool[..., object]:
        made: FunctionTool[..., object] = FunctionTool(target, names, **options)
        if is_reserved(made.name):
            raise UsageError(
                f"The tool name {made.name!r} is reserved for remit's own tools. Choose another name."
            )
        made.check_schema()
        return made

    return wrap if fn is None else wrap(fn)


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"Invalid tool name {name!r}: a name has 1 to 64 letters, digits, _ or -. Set one with name=."
        )
    return clean(name)


def _checked_text(name: str, option: str, text: object) -> str:
    if not isinstance(text, str):
        raise UsageError(f"Tool {name}: {option} must be a string, not {text!r}.")
    return clean(text)


def _checked_tier(name: str, tier: str) -> Tier:
    try:
        return Tier(tier)
    except ValueError:
        raise UsageError(f'Tool {name}: tier must be "observe" or "confirm", not {tier!r}.') from None


def _checked_timeout(name: str, timeout_s: object) -> float | None:
    if timeout_s is None:
        return None
    number = timeout_s if isinstance(timeout_s, (int, float)) and not isinstance(timeout_s, bool) else 0
    if not math.isfinite(number) or number <= 0:
        raise UsageError(
            f"Tool {name}: timeout_s must be a number of seconds above 0, or None, not {timeout_s!r}."
        )
    return float(number)


def _checked_chars(name: str, chars: object) -> int | None:
    if chars is None or (isinstance(chars, int) and not isinstance(chars, bool) and chars >= 100):
        return chars
    what = "a whole number of at least 100, or None"
    raise UsageError(f"Tool {name}: inline_chars must be {what}, not {chars!r}.")


def _checked_parameters(made: Tool, parameters: object, signature: Signature) -> JsonObject:
    if not isinstance(parameters, Mapping):
        raise UsageError(f"Tool {made.name}: parameters must be a JSON schema (a dict), not {parameters!r}.")
    schema: JsonObject = {"type": "object", "properties": {}, **cast(Mapping[str, Json], parameters)}
    properties = schema["properties"]
    if schema["type"] != "object" or not isinstance(properties, Mapping):
        raise UsageError(f"Tool {made.name}: parameters must be the schema of an object with properties.")
    for key in cast(Mapping[str, Json], properties):
        if key == signature.context or not (signature.is_open or key in signature.parameters):
            raise UsageError(
                f"Tool {made.name}: the schema has {key!r}, but the function does not accept it."
            )
    for key, parameter in signature.parameters.items():
        if parameter.required and key not in properties:
            raise UsageError(
                f"Tool {made.name}: the function requires {key!r}, but the schema does not have it."
            )
    return schema
