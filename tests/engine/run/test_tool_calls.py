"""One turn's calls: whatever a tool does or is given, each call has one result, in call order."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import enum
import uuid
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from pydantic import BaseModel

from remit import Agent, Outcome, ToolMessage, ToolResult, run, tool
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.testing.scripted import Answer
from remit.tools.tool import Tool
from remit.types.events import CallEnded, CallStarted, Event


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


async def events_of(store: MemoryStore, outcome: Outcome) -> list[Event]:
    return [event async for event in store.read(outcome.run_id)]


async def one(made: Tool, asked: Answer) -> ToolMessage:
    """The result of one call of one tool, in a run that completes after it."""
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[made]), "go", model=model)
    assert outcome.text == "ok"
    assert len(outcome.calls) == 1
    return results(outcome)[0]


# --- Tools that fail -----------------------------------------------------------------------------


class BrokenWords(Exception):
    """Cannot even be told."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


RAISED = [
    pytest.param(ValueError("bad value"), "ValueError: bad value", id="exception"),
    pytest.param(KeyError("k"), "'k'", id="KeyError"),
    pytest.param(SystemExit(3), "SystemExit: 3", id="SystemExit"),
    pytest.param(GeneratorExit("gone"), "gone", id="GeneratorExit"),
    pytest.param(StopIteration("stop"), "StopIteration", id="StopIteration"),
    pytest.param(asyncio.CancelledError("me"), "ancelled", id="CancelledError"),
    pytest.param(TimeoutError(), "TimeoutError", id="without words"),
    pytest.param(BrokenWords(), "BrokenWords", id="broken words"),
    pytest.param(ExceptionGroup("several", [ValueError("one"), OSError("two")]), "one", id="group"),
    pytest.param(RecursionError("deep"), "deep", id="RecursionError"),
    pytest.param(
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad \ud800"), "UnicodeDecodeError", id="surrogate"
    ),
]


@pytest.mark.parametrize(("error", "words"), RAISED)
@pytest.mark.parametrize("style", ["async", "thread"])
async def test_what_a_tool_raises_is_a_result(error: BaseException, words: str, style: str) -> None:
    """Whatever a tool raises, SystemExit included, is a failed result in words, without a traceback (law 5)."""

    @tool(tier="observe")
    async def in_task() -> str:
        """Raises."""
        raise error

    @tool(tier="observe")
    def in_thread() -> str:
        """Raises."""
        raise error

    made = in_task if style == "async" else in_thread
    result = await one(made, call(made.name))
    assert not result.ok
    assert words in result.content
    assert "Traceback" not in result.text
    assert "File " not in result.text


async def test_a_failing_tool_leaves_the_other_calls_alone() -> None:
    """One call that fails changes nothing for the others of its turn."""

    @tool(tier="observe")
    async def divide(by: int) -> float:
        """Divides."""
        return 10 / by

    asked = calls(*(call("divide", by=n) for n in (5, 0, 2)))
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[divide]), "go", model=model)
    assert [(m.content, m.ok) for m in results(outcome) if m.ok] == [("2.0", True), ("5.0", True)]
    assert "ZeroDivisionError" in results(outcome)[1].content
    assert [c.success for c in outcome.calls] == [True, False, True]


async def test_a_result_that_says_it_failed() -> None:
    """`ToolResult(ok=False)` is a failed result; `details` is for people and programs, not for the model."""

    @tool(tier="observe")
    async def check() -> ToolResult:
        """Checks."""
        return ToolResult("2 tests fail", ok=False, details={"secret": 1})

    result = await one(check, call("check"))
    assert (result.text, result.ok) == ("2 tests fail", False)


# --- Calls that cannot run -----------------------------------------------------------------------

touched: list[object] = []


@tool(tier="observe")
async def measure(path: str, depth: int = 1, deep: bool = False) -> str:
    """Measures."""
    touched.append((path, depth, deep))
    return "measured"


BAD_ARGUMENTS = [
    pytest.param({}, ["path", "required"], id="missing"),
    pytest.param({"path": 3}, ["path", "must be a string"], id="wrong type"),
    pytest.param({"path": None}, ["path", "must be a string"], id="null"),
    pytest.param({"path": "a", "depth": "many"}, ["depth", "must be a whole number"], id="not a number"),
    pytest.param({"path": "a", "depth": 1.5}, ["depth", "must be a whole number"], id="a fraction"),
    pytest.param({"path": "a", "depth": [1]}, ["depth", "must be a whole number"], id="a list"),
    pytest.param({"path": "a", "deep": "perhaps"}, ["deep", "must be true or false"], id="not a boolean"),
    pytest.param({"path": "a", "pat": "b"}, ["pat", "path, depth, deep"], id="unknown name"),
    pytest.param({"file": "a"}, ["file", "path", "required"], id="two problems"),
    pytest.param({"path": {"a": {"b": []}}}, ["path", "must be a string"], id="an object"),
]


@pytest.mark.parametrize(("args", "words"), BAD_ARGUMENTS)
async def test_bad_arguments_are_told_in_words(args: dict[str, object], words: list[str]) -> None:
    """Arguments that do not fit name the field and what it must be; the tool does not run."""
    touched.clear()
    result = await one(measure, call("measure", args))
    assert not result.ok
    assert all(word in result.content for word in words)
    assert not any(
        word in result.content for word in ("NoneType", "pydantic", "ValidationError", "Traceback")
    )
    assert touched == []


@pytest.mark.parametrize(
    "args", ["", "{", '{"path": ', "[1, 2]", "null", '"text"', "path=a", "\ud800", "x" * 10_000]
)
async def test_arguments_that_are_not_an_object(args: str) -> None:
    """Arguments that are no JSON object are a result that says so and shows no more than their start."""
    touched.clear()
    result = await one(measure, call("measure", args))
    assert not result.ok
    assert "measure" in result.content
    assert "not a JSON object" in result.content
    assert len(result.content) < 400
    assert touched == []


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mesure", True),
        ("measures", True),
        ("Measure", True),
        ("delete_everything", False),
        ("", False),
        ("a" * 999, False),
    ],
)
async def test_an_unknown_tool_is_told_what_there_is(name: str, hint: bool) -> None:
    """A call of a tool that is not there names the tools that are, and the one that may be meant."""
    result = await one(measure, call(name, {"path": "a"}))
    assert not result.ok
    assert "Your tools: measure" in result.content
    assert ("Did you mean measure?" in result.content) == hint
    assert len(result.content) < 300


async def test_a_call_that_did_not_run_has_no_start() -> None:
    """Unknown, malformed and denied calls end without having started, and each is in the log."""

    @tool
    async def publish() -> str:
        """Changes things."""
        return "published"

    asked = calls(
        call("nothing"), call("measure", "{"), call("measure"), call("publish"), call("measure", path="a")
    )
    store = MemoryStore()
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[measure, publish]), "go", model=model, store=store)
    events = await events_of(store, outcome)
    assert [e.call for e in events if isinstance(e, CallStarted)] == ["c5"]
    ended = {e.call: e.success for e in events if isinstance(e, CallEnded)}
    assert ended == {"c1": False, "c2": False, "c3": False, "c4": False, "c5": True}
    assert [c.success for c in outcome.calls] == [False, False, False, False, True]


# --- Results -------------------------------------------------------------------------------------


class Colour(enum.Enum):
    """A colour."""

    RED = "red"


class Place(BaseModel):
    """A place."""

    name: str
    line: int


@dataclass
class Point:
    """A point."""

    x: int


class Record(msgspec.Struct):
    """A record."""

    y: int


class Odd:
    """Nothing JSON knows."""

    def __str__(self) -> str:
        return "odd thing"


class Silent:
    """Cannot be told in words."""

    def __str__(self) -> str:
        raise ValueError("no")


def loop_of_lists() -> list[object]:
    inside: list[object] = []
    inside.append(inside)
    return inside


VALUES = [
    pytest.param("text", "text", id="str"),
    pytest.param("", "", id="empty str"),
    pytest.param(None, "(no output)", id="None"),
    pytest.param(True, "true", id="bool"),
    pytest.param(7, "7", id="int"),
    pytest.param(10**30, "1" + "0" * 30, id="huge int"),
    pytest.param(1.5, "1.5", id="float"),
    pytest.param([1, "a", None], '[1,"a",null]', id="list"),
    pytest.param((1, 2), "[1,2]", id="tuple"),
    pytest.param({"a": 1}, '{"a":1}', id="dict"),
    pytest.param({3, 1, 2}, "[1,2,3]", id="set"),
    pytest.param(b"bytes", "bytes", id="bytes"),
    pytest.param(Path("a/b"), "a/b", id="path"),
    pytest.param(dt.date(2026, 1, 2), "2026-01-02", id="date"),
    pytest.param(decimal.Decimal("1.10"), "1.10", id="decimal"),
    pytest.param(uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001", id="uuid"),
    pytest.param(Colour.RED, "red", id="enum"),
    pytest.param(Place(name="a", line=1), '{"name":"a","line":1}', id="pydantic"),
    pytest.param([Place(name="a", line=1)], '[{"name":"a","line":1}]', id="list of pydantic"),
    pytest.param(Point(1), '{"x":1}', id="dataclass"),
    pytest.param(Record(1), '{"y":1}', id="struct"),
    pytest.param(Odd(), "odd thing", id="any object"),
    pytest.param(Silent(), "Silent", id="an object without words"),
    pytest.param(ValueError("returned"), "returned", id="an exception"),
    pytest.param("half \ud800 a pair", "half \ufffd a pair", id="lone surrogate"),
    pytest.param({"k\ud800": "v"}, '{"k\ufffd": "v"}', id="lone surrogate in a key"),
    pytest.param(loop_of_lists(), "[[...]]", id="a list in itself"),
]


@pytest.mark.parametrize(("value", "shown"), VALUES)
@pytest.mark.parametrize("style", ["async", "thread"])
async def test_a_result_of_any_type_is_text(value: object, shown: str, style: str) -> None:
    """A tool may return anything: text as it is, everything else as JSON where there is any."""

    @tool(tier="observe")
    async def in_task():
        """Returns."""
        return value

    @tool(tier="observe")
    def in_thread():
        """Returns."""
        return value

    made = in_task if style == "async" else in_thread
    result = await one(made, call(made.name))
    assert (result.content, result.ok) == (shown, True)


async def test_an_awaitable_from_a_plain_function_is_awaited() -> None:
    """A plain function that returns a coroutine gives that coroutine's result."""

    async def later() -> str:
        await asyncio.sleep(1)
        return "later"

    @tool(tier="observe")
    def outer():
        """Returns a coroutine."""
        return later()

    assert (await one(outer, call("outer"))).content == "later"


async def test_a_missing_await_is_told() -> None:
    """A coroutine that an async tool returns is a failed result that names what to await: nobody ran it."""

    async def fetched(url: str) -> str:
        return f"the text of {url}"

    @tool(tier="observe")
    async def fetch_it(url: str) -> object:
        """Fetch it."""
        return fetched(url)

    result = await one(fetch_it, call("fetch_it", url="a"))
    assert not result.ok
    assert result.content.endswith(" Write `await fetched(...)`.")
