"""Laws of `remit.tools.tool`: functions as tools, their arguments, their words, their results."""

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
    """The spec comes from signature and docstring, changing is assumed, and the tool is still callable."""
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


def test_options_win_over_what_the_function_says() -> None:
    """Name, description, tier, timeout and words can be given."""

    @tool(name="wc-2", description="Words.", tier="observe", timeout_s=30, display_name="Count")
    def other(path: str) -> str:
        """Not this."""
        return path

    assert (other.name, other.spec.name, other.display_name) == ("wc-2", "wc-2", "Count")
    assert (other.description, other.tier, other.timeout_s) == ("Words.", Tier.OBSERVE, 30.0)


def test_arguments_arrive_as_the_annotated_types() -> None:
    """Dataclasses, models, enums, literals, typed dicts and containers are built; what is left out stays out."""

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
    """`x: str = None` takes null, as its default tells the model it may."""

    @tool
    def find(where: str = None) -> None: ...  # noqa: RUF013 - common in users' code # pyright: ignore[reportArgumentType]

    assert find.check({"where": None}) == {"where": None}
    assert find.check({}) == {}


def test_wrong_arguments_are_told_all_at_once() -> None:
    """A model is told each field, what is wrong, what is allowed, and the valid names."""

    @tool
    def paint(colour: Colour, size: Annotated[int, Field(ge=1, description="in cm")], at: Point) -> None: ...

    told = complaint(paint, {"colour": "pink", "size": 0, "att": 1})
    assert told.splitlines() == [
        "Wrong arguments for paint:",
        "- colour: must be 'red' or 'blue', not \"pink\"",
        "- size: must be greater than or equal to 1, not 0",
        "- at: required, but missing",
        "- att: not a known name; the names are: colour, size, at",
    ]
    assert properties(paint)["size"]["description"] == "in cm"
    assert complaint(paint, []) == "Wrong arguments for paint: they must be a JSON object."  # pyright: ignore[reportArgumentType]


def test_a_tool_without_parameters_takes_none() -> None:
    """An empty signature has an empty object as schema and refuses names."""

    @tool
    def now() -> str:
        return "now"

    assert now.spec.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert now.check({}) == {}
    assert "x: not a known name" in complaint(now, {"x": 1})


def test_a_tool_that_changes_its_arguments_does_not_change_the_call() -> None:
    """What a tool is given shares nothing with what the model wrote."""

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
    """A lone surrogate in an argument does not fail the call."""
    assert count.check({"path": "a\ud800"}) == {"path": "a�"}


def test_the_context_is_injected_and_hidden() -> None:
    """A ToolContext parameter is filled by the runtime, and no model sees or sets it."""
    said: list[str] = []

    @tool
    def report(text: str, ctx: ToolContext) -> tuple[object, ...]:
        ctx.emit(text)
        return ctx.run_id, ctx.path, ctx.depth, ctx.workspace, ctx.deps, ctx.cancelled

    assert list(properties(report)) == ["text"]
    got = report.invoke(report.check({"text": "half\udfff"}), context(said))
    assert got == ("r1", ("lead", "scout"), 1, Path("w"), {"db": 1}, True)
    assert said == ["half�"]
    assert "ctx: not a known name" in complaint(report, {"text": "", "ctx": {}})


def test_a_context_is_found_however_it_is_annotated() -> None:
    """Optional annotations of a ToolContext count, and ones whose import only type checkers see."""

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
    """An async tool is known as such, and invoking it returns what is to be awaited."""

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
    """Bound methods, partials and simple callable objects make tools like functions do."""
    bound = tool(Desk().write)
    assert (bound.name, bound.description) == ("write", "Write it down.")
    assert bound.invoke({"text": "hi"}, context()) == "Desk: hi"
    assert tool(Desk()).name == "Desk"
    assert tool(Desk(), name="desk").invoke({"text": "hi"}, context()) == "hi"


def test_what_a_partial_fixes_is_out_of_the_models_reach() -> None:
    """Arguments bound by a partial are neither shown nor accepted."""

    def read(root: str, path: str, mode: str = "r") -> str:
        """Read a file."""
        return f"{root}/{path} {mode}"

    fixed = tool(functools.partial(read, root="safe", mode="rb"))
    assert (fixed.name, fixed.description) == ("read", "Read a file.")
    assert list(properties(fixed)) == ["path"]
    assert "root: not a known name" in complaint(fixed, {"path": "a", "root": "/"})
    assert fixed.invoke(fixed.check({"path": "a"}), context()) == "safe/a rb"


def test_types_may_be_local_or_defined_later() -> None:
    """Text annotations are resolved where the tool is made, and names defined after it by the time of the schema."""

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
        (double_star, {}, r"give parameters="),
        (positional, {}, "positional-only"),
        (two_contexts, {}, "a and b are both a ToolContext"),
        (field_default, {}, "Annotated"),
        (values, {}, "returns one value"),
        (async_values, {}, "returns one value"),
        (Desk.write, {}, r"tool\(thing.write\)"),
        (3, {}, "made of a function"),
        (count, {}, "a tool already"),
        (lambda: 0, {}, "name="),
        (fine, {"name": 5}, "name is 1 to 64"),
        (fine, {"name": "a\n"}, "name is 1 to 64"),
        (fine, {"name": "x" * 65}, "name is 1 to 64"),
        (fine, {"name": "task"}, "belongs to remit"),
        (fine, {"name": "subagent_me"}, "belongs to remit"),
        (fine, {"tier": "write"}, "observe"),
        (fine, {"display_name": 5}, "display_name must be a string"),
        (fine, {"timeout_s": 0}, "above 0"),
        (fine, {"timeout_s": float("nan")}, "above 0"),
        (fine, {"timeout_s": True}, "above 0"),
        (fine, {"parameters": []}, "JSON schema"),
        (fine, {"parameters": {"type": "array"}}, "schema of an object"),
        (fine, {"parameters": {"properties": {"a": {}}}}, "does not take"),
        (positional, {"parameters": {"properties": {"path": {}}}}, "positional-only"),
    ],
)
def test_mistakes_are_told_when_the_tool_is_made(
    fn: Callable[..., object], options: dict[str, object], words: str
) -> None:
    """What is wrong with a function or an option is a UsageError at once, saying what to do."""
    with pytest.raises(UsageError, match=words):
        tool(fn, **options)  # pyright: ignore[reportArgumentType]


def unknown_type(a: Missing) -> None: ...
def no_schema(a: Callable[[int], int]) -> None: ...
def own_class(a: Desk) -> None: ...


@pytest.mark.parametrize("fn", [no_schema, own_class])
def test_a_type_without_a_schema_is_told_at_the_tool_line(fn: Callable[..., object]) -> None:
    """A type without a JSON form is a UsageError of one sentence that names the tool, the parameter and what to do."""
    with pytest.raises(UsageError) as told:
        tool(fn)
    assert str(told.value).startswith(f"tool {fn.__name__}: parameter 'a' has the type ")
    assert str(told.value).count(". ") == 0
    assert "dataclass" in str(told.value)


def test_a_type_that_is_not_defined_yet_is_told_when_the_schema_is_built() -> None:
    """A type may be defined further down in its module; one that never is makes a UsageError that names the tool."""
    made = tool(unknown_type)
    with pytest.raises(UsageError, match="unknown_type"):
        _ = made.spec


def test_reserved_names() -> None:
    """The runtime's own tool names are known, and the runtime itself may use them."""
    assert all(map(is_reserved, ["task", "subagent", "subagent_x", "read_artifact"]))
    assert not any(map(is_reserved, ["tasks", "subagents", "read"]))
    assert Tool(fine, name="task").name == "task"


RAW: JsonObject = {
    "type": "object",
    "properties": {"a-b": {"type": "integer"}, "c": {"type": "string"}},
    "required": ["a-b"],
}


def test_a_raw_schema_is_shown_as_it_is_and_enforced() -> None:
    """With `parameters` the model sees that schema, and arguments are checked by it."""
    made = tool(lambda **given: given, name="raw", parameters=RAW)
    assert made.spec.parameters == RAW
    assert made.invoke(made.check({"a-b": 1, "more": 2}), context()) == {"a-b": 1, "more": 2}
    told = complaint(made, {"a-b": "x", "c": 1})
    assert 'a-b: must be of type integer, not "x"' in told
    assert "c: must be of type string, not 1" in told
    assert "a-b: required, but missing" in complaint(made, {})


def test_a_raw_schema_and_the_function_agree() -> None:
    """Names the function does not take, and ones it needs, are checked even where the schema is silent."""

    def take(a: int, ctx: ToolContext, b: int = 0) -> int:
        return a + b

    made = tool(take, parameters={"properties": {"a": {}, "b": {}}})
    told = complaint(made, {"z": 1, "ctx": 2})
    assert told.count("not a known name; the names are: a, b") == 2
    assert told.count("a: required, but missing") == 1
    assert made.invoke(made.check({"a": 1}), context()) == 1
    with pytest.raises(UsageError, match="needs 'a'"):
        tool(take, parameters={"properties": {"b": {}}})
    with pytest.raises(UsageError, match="'ctx', which the function does not take"):
        tool(take, parameters={"properties": {"a": {}, "ctx": {}}})


def test_an_invalid_raw_schema_is_told_at_the_tool_line() -> None:
    """`parameters` that are not a JSON schema are a UsageError that names the tool."""
    with pytest.raises(UsageError, match="tool raw: not a valid JSON schema"):
        tool(lambda **given: given, name="raw", parameters={"properties": {"a": {"type": "nonsense"}}})


def raising(_: object) -> str:
    raise RuntimeError("no words")


def test_words_of_the_tools_own() -> None:
    """`describe` and `summarise` are used where given, on one line and cut short."""
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
def test_words_that_fail_are_replaced(words: Callable[..., str] | None) -> None:
    """A tool's own words that raise or are no text fall back to the usual ones."""
    made = Tool(fine, name="bash", describe=words, summarise=words)
    assert made.describe({"command": "ls"}) == "ls"
    assert made.describe("{broken") == ""
    assert made.summarise(ToolResult("a\nb")) == "2 lines"


def test_render_gives_a_result() -> None:
    """Text stays, nothing is said to be nothing, values become JSON, results are made clean."""
    assert render("t\ud800") == ToolResult("t�")
    assert render(None) == ToolResult("(no output)")
    assert render([Point(1)]) == ToolResult('[{"x":1,"y":0}]')
    given = ToolResult({"a": 1}, ok=0, details={Path("p"): {1}}, note="n")  # pyright: ignore[reportArgumentType]
    assert render(given) == ToolResult('{"a":1}', ok=False, details={"p": [1]}, note="n")


def test_failure_is_the_kind_and_the_message() -> None:
    """An exception becomes a failed result without a traceback, cut to 2000 characters."""
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
