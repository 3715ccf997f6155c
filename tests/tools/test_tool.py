"""Laws of `remit.tools.tool`: functions as tools, their arguments, descriptions and results."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from remit.errors import UsageError
from remit.tools.result import ToolResult, failure, render
from remit.tools.tool import BadArguments, Tier, Tool, ToolContext, is_reserved, tool
from remit.types.messages import JsonObject

if TYPE_CHECKING:
    from remit.nowhere import Missing  # pyright: ignore[reportMissingImports]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Options(TypedDict, total=False):
    loud: bool


class Person(BaseModel):
    name: str


def context(said: list[str] | None = None) -> ToolContext:
    emit = (said if said is not None else []).append
    return ToolContext(
        run_id="r1",
        path=("lead", "scout"),
        depth=1,
        workspace=Path("w"),
        deps={"db": 1},
        emit=emit,
        cancelled=lambda: True,
    )


def properties(made: Tool) -> dict[str, JsonObject]:
    found = made.spec.parameters["properties"]
    assert isinstance(found, dict)
    return found


def complaint(made: Tool, args: JsonObject) -> str:
    with pytest.raises(BadArguments) as caught:
        made.check(args)
    return str(caught.value)


@tool
def count(path: str, limit: int = 10) -> int:
    """Count the words of a file.

    Args:
        path: where the file is
        limit: stop there
    """
    return min(len(path), limit)


def test_a_function_becomes_a_tool_and_stays_a_function() -> None:
    """The spec comes from signature and docstring, the tier defaults to confirm, and the tool is still callable."""
    assert count.name == count.display_name == "count"
    assert count.tier is Tier.CONFIRM
    assert count.timeout_s is None
    assert not count.is_async
    assert not count.delegates
    assert count.spec.description == "Count the words of a file."
    assert count.spec.parameters == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "where the file is"},
            "limit": {"type": "integer", "default": 10, "description": "stop there"},
        },
        "required": ["path"],
        "additionalProperties": False,
    }
    assert count("abc", limit=2) == 2
    assert count.spec is count.spec


def test_options_override_the_function() -> None:
    """Name, description, tier, timeout and display name can be set."""

    @tool(name="wc-2", description="Words.", tier="observe", timeout_s=30, display_name="Count")
    def other(path: str) -> str:
        """Not this."""
        return path

    assert (other.name, other.spec.name, other.display_name) == ("wc-2", "wc-2", "Count")
    assert (other.description, other.tier, other.timeout_s) == ("Words.", Tier.OBSERVE, 30.0)


def test_arguments_arrive_as_the_annotated_types() -> None:
    """Dataclasses, models, enums, literals, typed dicts and containers are built; absent arguments stay absent."""

    @tool
    def draw(
        at: Point,
        who: Person,
        *,
        colour: Colour = Colour.RED,
        mode: Literal["a", "b"] = "a",
        options: Options | None = None,
        tags: set[str] | None = None,
        out: Path = Path(),
        anything=None,
    ) -> None: ...

    args: JsonObject = {
        "at": {"x": 1},
        "who": {"name": "Ann"},
        "colour": "blue",
        "options": {"loud": True},
        "tags": ["t"],
        "out": "o.txt",
        "anything": [1, {"a": None}],
    }
    assert draw.check(args) == {
        "at": Point(1),
        "who": Person(name="Ann"),
        "colour": Colour.BLUE,
        "options": {"loud": True},
        "tags": {"t"},
        "out": Path("o.txt"),
        "anything": [1, {"a": None}],
    }
    assert properties(draw)["colour"]["default"] == "red"
    assert draw.spec.parameters["required"] == ["at", "who"]


def test_a_default_of_none_allows_null() -> None:
    """`x: str = None` accepts null, since the model sees null as its default."""

    @tool
    def find(where: str = None) -> None: ...  # noqa: RUF013 - common in users' code # pyright: ignore[reportArgumentType]

    assert find.check({"where": None}) == {"where": None}
    assert find.check({}) == {}


def test_wrong_arguments_are_reported_all_at_once() -> None:
    """The message names each field, its problem, the allowed values, and the valid names."""

    @tool
    def paint(colour: Colour, size: Annotated[int, Field(ge=1, description="in cm")], at: Point) -> None: ...

    told = complaint(paint, {"colour": "pink", "size": 0, "att": 1})
    assert told.splitlines() == [
        "Wrong arguments for paint:",
        "- colour: must be 'red' or 'blue', not \"pink\"",
        "- size: must be greater than or equal to 1, not 0",
        "- at: required, but missing",
        "- att: unknown name; valid names: colour, size, at",
    ]
    assert properties(paint)["size"]["description"] == "in cm"
    assert complaint(paint, []) == "Wrong arguments for paint: they must be a JSON object."  # pyright: ignore[reportArgumentType]


def test_a_tool_without_parameters_rejects_arguments() -> None:
    """The schema of an empty signature is an empty object, and every argument is an error."""

    @tool
    def now() -> str:
        return "now"

    assert now.spec.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert now.check({}) == {}
    assert "x: unknown name" in complaint(now, {"x": 1})


def test_a_tool_that_changes_its_arguments_does_not_change_the_call() -> None:
    """The arguments that a tool gets are a copy of the model's."""

    @tool
    def grow(items: object) -> None: ...

    raw = tool(lambda **_: None, name="raw", parameters={})
    for made in (grow, raw):
        args: JsonObject = {"items": [[1]]}
        items = made.check(args)["items"]
        assert isinstance(items, list)
        items[0].append(2)
        assert args == {"items": [[1]]}


def test_broken_text_in_arguments_is_repaired() -> None:
    """A lone surrogate in an argument is replaced instead of failing the call."""
    assert count.check({"path": "a\ud800"}) == {"path": "a�"}


def test_the_context_is_injected_and_hidden() -> None:
    """remit fills a ToolContext parameter; models neither see nor set it."""
    said: list[str] = []

    @tool
    def report(text: str, ctx: ToolContext) -> tuple[object, ...]:
        ctx.emit(text)
        return ctx.run_id, ctx.path, ctx.depth, ctx.workspace, ctx.deps, ctx.cancelled

    assert list(properties(report)) == ["text"]
    got = report.invoke(report.check({"text": "half\udfff"}), context(said))
    assert got == ("r1", ("lead", "scout"), 1, Path("w"), {"db": 1}, True)
    assert said == ["half�"]
    assert "ctx: unknown name" in complaint(report, {"text": "", "ctx": {}})


def test_a_context_is_found_however_it_is_annotated() -> None:
    """Optional annotations of a ToolContext count, and annotations imported only for type checkers."""

    def optional(c: ToolContext | None = None) -> object:
        return c

    here = context()
    assert tool(optional).invoke({}, here) is here
    namespace: dict[str, object] = {}
    exec("def only_text(c: 'types.ToolContext') -> object: return c", namespace)
    only_text = namespace["only_text"]
    assert callable(only_text)
    assert tool(only_text).invoke({}, here) is here


async def test_async_functions_give_an_awaitable() -> None:
    """An async tool has `is_async`, and invoking it returns an awaitable."""

    @tool
    async def fetch_it(url: str) -> str:
        return url

    def plain(fn: Callable[..., object]) -> Callable[..., object]:
        @functools.wraps(fn)
        def wrapper(*args: object, **kwargs: object) -> object:
            return fn(*args, **kwargs)

        return wrapper

    for made in (fetch_it, tool(plain(fetch_it.__wrapped__)), tool(functools.partial(fetch_it.__wrapped__))):
        assert made.is_async
        assert await made.invoke({"url": "u"}, context()) == "u"  # pyright: ignore[reportGeneralTypeIssues]


class Desk:
    """A desk."""

    def write(self, text: str) -> str:
        """Write it down."""
        return f"{self.__class__.__name__}: {text}"

    def __call__(self, text: str) -> str:
        return text


def test_methods_partials_and_callable_objects() -> None:
    """Bound methods, partials and callable objects become tools like functions."""
    bound = tool(Desk().write)
    assert (bound.name, bound.description) == ("write", "Write it down.")
    assert bound.invoke({"text": "hi"}, context()) == "Desk: hi"
    assert tool(Desk()).name == "Desk"
    assert tool(Desk(), name="desk").invoke({"text": "hi"}, context()) == "hi"


def test_models_cannot_set_arguments_that_a_partial_fixes() -> None:
    """Arguments bound by a partial are not in the schema and are rejected."""

    def read(root: str, path: str, mode: str = "r") -> str:
        """Read a file."""
        return f"{root}/{path} {mode}"

    fixed = tool(functools.partial(read, root="safe", mode="rb"))
    assert (fixed.name, fixed.description) == ("read", "Read a file.")
    assert list(properties(fixed)) == ["path"]
    assert "root: unknown name" in complaint(fixed, {"path": "a", "root": "/"})
    assert fixed.invoke(fixed.check({"path": "a"}), context()) == "safe/a rb"


def test_types_may_be_local_or_defined_later() -> None:
    """Text annotations may name local types of the calling function, and types defined after the tool."""

    @dataclasses.dataclass
    class Local:
        a: int

    @tool(tier="observe")
    def use(it: Local, later: Later) -> None: ...

    assert use.check({"it": {"a": 1}, "later": {"b": 2}}) == {"it": Local(1), "later": Later(2)}


@dataclasses.dataclass
class Later:
    b: int


def star(*paths: str) -> None: ...
def double_star(**paths: str) -> None: ...
def positional(path: str, /) -> None: ...
def two_contexts(a: ToolContext, b: ToolContext) -> None: ...
def field_default(a: int = Field(1)) -> None: ...
def values() -> Iterator[int]:
    yield 1


async def async_values() -> AsyncIterator[int]:
    yield 1


def fine() -> None: ...


@pytest.mark.parametrize(
    ("fn", "options", "words"),
    [
        (star, {}, r"\*paths"),
        (double_star, {}, r"pass parameters="),
        (positional, {}, "positional-only"),
        (two_contexts, {}, "only one parameter may be a ToolContext, not a and b"),
        (field_default, {}, "Annotated"),
        (values, {}, "must return one value"),
        (async_values, {}, "must return one value"),
        (Desk.write, {}, r"tool\(instance.write\)"),
        (3, {}, "made from a function"),
        (count, {}, "already a tool"),
        (lambda: 0, {}, "name="),
        (fine, {"name": 5}, "name has 1 to 64"),
        (fine, {"name": "a\n"}, "name has 1 to 64"),
        (fine, {"name": "x" * 65}, "name has 1 to 64"),
        (fine, {"name": "task"}, "reserved for remit"),
        (fine, {"name": "subagent_me"}, "reserved for remit"),
        (fine, {"tier": "write"}, "observe"),
        (fine, {"display_name": 5}, "display_name must be a string"),
        (fine, {"timeout": 3}, r"no option 'timeout'\. Did you mean 'timeout_s'\?"),
        (fine, {"timeout_s": 0}, "above 0"),
        (fine, {"timeout_s": float("nan")}, "above 0"),
        (fine, {"timeout_s": True}, "above 0"),
        (fine, {"parameters": []}, "JSON schema"),
        (fine, {"parameters": {"type": "array"}}, "schema of an object"),
        (fine, {"parameters": {"properties": {"a": {}}}}, "does not accept"),
        (positional, {"parameters": {"properties": {"path": {}}}}, "positional-only"),
    ],
)
def test_mistakes_are_reported_when_the_tool_is_made(
    fn: Callable[..., object], options: dict[str, object], words: str
) -> None:
    """An invalid function or option raises UsageError at once, with a message about what to do."""
    with pytest.raises(UsageError, match=words):
        tool(fn, **options)  # pyright: ignore[reportArgumentType]


def unknown_type(a: Missing) -> None: ...
def no_schema(a: Callable[[int], int]) -> None: ...
def own_class(a: Desk) -> None: ...


@pytest.mark.parametrize("fn", [no_schema, own_class])
def test_a_type_without_a_schema_is_reported_when_the_tool_is_made(fn: Callable[..., object]) -> None:
    """A type without a JSON schema raises UsageError with the tool, the parameter and what to do."""
    with pytest.raises(UsageError) as told:
        tool(fn)
    assert str(told.value).startswith(f"tool {fn.__name__}: parameter 'a' has the type ")
    assert str(told.value).count(". ") == 0
    assert "dataclass" in str(told.value)


def test_an_undefined_type_is_reported_when_the_schema_is_built() -> None:
    """A type may be defined later in its module; if it never is, the UsageError names the tool."""
    made = tool(unknown_type)
    with pytest.raises(UsageError, match="unknown_type"):
        _ = made.spec


def test_reserved_names() -> None:
    """The names of remit's own tools are reserved; `Tool` itself accepts them."""
    assert all(map(is_reserved, ["task", "subagent", "subagent_x", "read_artifact"]))
    assert not any(map(is_reserved, ["tasks", "subagents", "read"]))
    assert Tool(fine, name="task").name == "task"


RAW: JsonObject = {
    "type": "object",
    "properties": {"a-b": {"type": "integer"}, "c": {"type": "string"}},
    "required": ["a-b"],
}


def test_a_raw_schema_is_shown_unchanged_and_enforced() -> None:
    """With `parameters`, the model sees that schema, and arguments are checked against it."""
    made = tool(lambda **given: given, name="raw", parameters=RAW)
    assert made.spec.parameters == RAW
    assert made.invoke(made.check({"a-b": 1, "more": 2}), context()) == {"a-b": 1, "more": 2}
    told = complaint(made, {"a-b": "x", "c": 1})
    assert 'a-b: must be of type integer, not "x"' in told
    assert "c: must be of type string, not 1" in told
    assert "a-b: required, but missing" in complaint(made, {})


def test_a_raw_schema_and_the_function_agree() -> None:
    """The function's parameters are checked even if the schema does not mention them."""

    def take(a: int, ctx: ToolContext, b: int = 0) -> int:
        return a + b

    made = tool(take, parameters={"properties": {"a": {}, "b": {}}})
    told = complaint(made, {"z": 1, "ctx": 2})
    assert told.count("unknown name; valid names: a, b") == 2
    assert told.count("a: required, but missing") == 1
    assert made.invoke(made.check({"a": 1}), context()) == 1
    with pytest.raises(UsageError, match="requires 'a'"):
        tool(take, parameters={"properties": {"b": {}}})
    with pytest.raises(UsageError, match="'ctx', but the function does not accept it"):
        tool(take, parameters={"properties": {"a": {}, "ctx": {}}})


def test_an_invalid_raw_schema_is_reported_when_the_tool_is_made() -> None:
    """`parameters` that are not a JSON schema raise UsageError with the tool's name."""
    with pytest.raises(UsageError, match="tool raw: not a valid JSON schema"):
        tool(lambda **given: given, name="raw", parameters={"properties": {"a": {"type": "nonsense"}}})


def raising(_: object) -> str:
    raise RuntimeError("no words")


def test_own_descriptions_and_summaries() -> None:
    """`describe` and `summarise` are used if given, on one line and shortened."""
    made = tool(
        fine,
        name="bash",
        describe=lambda args: f"runs\n{args['command']}",
        summarise=lambda result: "x" * 1000 if result.ok else "\ud800",
    )
    assert made.describe({"command": "ls"}) == "runs ls"
    assert made.summarise(ToolResult("a")) == "x" * 197 + "..."
    assert made.summarise(ToolResult("a", ok=False)) == "�"


@pytest.mark.parametrize("words", [None, raising, lambda _: 3, lambda: "too few"])
def test_failing_descriptions_are_replaced(words: Callable[..., str] | None) -> None:
    """If `describe` or `summarise` raises or does not return text, the default is used."""
    made = Tool(fine, name="bash", describe=words, summarise=words)
    assert made.describe({"command": "ls"}) == "ls"
    assert made.describe("{broken") == ""
    assert made.summarise(ToolResult("a\nb")) == "2 lines"


def test_render_gives_a_result() -> None:
    """Text is kept, None is reported as no output, values become JSON, results are cleaned."""
    assert render("t\ud800") == ToolResult("t�")
    assert render(None) == ToolResult("(no output)")
    assert render([Point(1)]) == ToolResult('[{"x":1,"y":0}]')
    given = ToolResult({"a": 1}, ok=0, details={Path("p"): {1}}, note="n")  # pyright: ignore[reportArgumentType]
    assert render(given) == ToolResult('{"a":1}', ok=False, details={"p": [1]}, note="n")


def test_a_failure_has_the_type_and_the_message() -> None:
    """An exception becomes a failed result without a traceback, truncated to 2000 characters."""
    assert failure(TypeError("bad \ud800")) == ToolResult("TypeError: bad �", ok=False)
    assert failure(ValueError()).content == "ValueError"
    assert len(failure(ValueError("x" * 5000)).content) == 2000
    group = ExceptionGroup("two", [ValueError("a"), ExceptionGroup("deep", [KeyError("b")])])
    assert failure(group).content.endswith(
        "ValueError: a; ExceptionGroup: deep (1 sub-exception); KeyError: 'b'"
    )

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert failure(Mute()).content == "Mute: Mute"
