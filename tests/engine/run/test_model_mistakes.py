"""What people get wrong in a model of their own: words that name the slip, and a run that ends with them."""

from __future__ import annotations

import asyncio
import functools
import pickle
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from remit import (
    Agent,
    AssistantMessage,
    Call,
    ModelError,
    Outcome,
    Reply,
    Request,
    Status,
    Usage,
    UsageError,
    resume,
    run,
    start,
    tool,
)
from remit.stores.memory import MemoryStore
from remit.testing import fail
from remit.types.event_json import decode, encode
from remit.types.events import ReplyReceived

# Without a type checker's eye, as most people write.
E: Any = ModelError


class Own:
    """A model that answers with what a function of the request gives; an exception is raised."""

    name = "own"

    def __init__(self, function: Callable[[Request], object]) -> None:
        self.function = function
        self.asked = 0

    async def reply(self, request: Request, emit: object) -> Any:
        self.asked += 1
        said = self.function(request)
        if isinstance(said, BaseException):
            raise said
        return said


# --- Failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "meant"),
    [("ratelimit", "'rate_limit'"), ("Server", "'server'"), ("context_length", "'context'")],
)
def test_a_kind_of_failure_that_is_none(kind: str, meant: str) -> None:
    """A kind that does not exist is refused where the error is made, with the kinds and the near one."""
    with pytest.raises(UsageError) as caught:
        E("slow down", kind=kind)
    assert f"{kind!r}" in str(caught.value)
    assert f"Did you mean {meant}?" in str(caught.value)
    assert "rate_limit, overloaded, server" in str(caught.value)


@pytest.mark.parametrize("kind", [None, 3, [], "", "x" * 10_000], ids=lambda v: repr(v)[:20])
def test_a_kind_that_is_like_no_other(kind: object) -> None:
    """What is near to no kind is refused in few words too."""
    with pytest.raises(UsageError, match="kind must be one of rate_limit") as caught:
        E("slow down", kind=kind)
    assert len(str(caught.value)) < 400


def test_a_step_that_fails_with_no_kind() -> None:
    """A script's `fail` says it when it is written, not when it is played."""
    with pytest.raises(UsageError, match="Did you mean 'rate_limit'"):
        fail("slow down", "ratelimit")  # pyright: ignore[reportArgumentType]


def test_a_failure_can_be_sent_to_another_process() -> None:
    """A copy has everything that was said."""
    copied = pickle.loads(pickle.dumps(ModelError("no", kind="auth", retry_after=3)))
    assert (str(copied), copied.kind, copied.retryable, copied.retry_after) == ("no", "auth", False, 3)


async def test_a_misspelt_kind_is_in_the_outcome() -> None:
    """In a run it is a failed outcome with that sentence; the runs beside it go on."""
    model = Own(lambda _: E("slow down", kind="ratelimit"))
    outcome = await run(Agent("lead"), "go", model=model)
    assert outcome.status is Status.FAILED
    assert "Did you mean 'rate_limit'?" in outcome.reason
    assert "own" in outcome.reason
    assert model.asked == 1


def _set_later(request: Request) -> Exception:
    del request
    error = ModelError("slow down")
    error.kind = "ratelimit"  # pyright: ignore[reportAttributeAccessIssue]
    return error


async def test_a_kind_that_was_set_later_is_tried_again_and_told() -> None:
    """An unknown kind that nobody could refuse counts as `server`: it is tried again, and the outcome says why."""
    model = Own(_set_later)
    outcome = await run(Agent("lead"), "go", model=model)
    assert model.asked == 6
    assert outcome.status is Status.FAILED
    assert "slow down" in outcome.reason
    assert "'ratelimit'" in outcome.reason
    assert "Did you mean 'rate_limit'?" in outcome.reason


class Bare(ModelError):
    """One that never made itself whole."""

    def __init__(self) -> None:
        Exception.__init__(self, "slow down")


async def test_a_failure_without_a_kind_is_the_providers() -> None:
    """One that says nothing of its kind counts as `server`, and there is nothing to be told of."""
    said: list[object] = [Bare(), Reply("done")]
    model = Own(lambda _: said[min(model.asked, 2) - 1])
    outcome = await run(Agent("lead"), "go", model=model)
    assert outcome.text == "done"


# --- Replies -------------------------------------------------------------------------------------

given: list[int] = []


@tool(tier="observe")
def double(x: int) -> int:
    """Doubles a number."""
    given.append(x)
    return 2 * x


def once(*calls: object) -> Callable[[Request], object]:
    """Asks for these calls, and answers with the last result."""
    return lambda request: (
        Reply("", calls, stop="calls")  # pyright: ignore[reportArgumentType]
        if len(request.messages) == 1
        else Reply(request.messages[-1].text)
    )


def asked(outcome: Outcome) -> list[object]:
    return [c.args for m in outcome.messages if isinstance(m, AssistantMessage) for c in m.calls]


TEXTS = ['{"x": 2}', ' \n{"x":2}\n', '{"x": 2, "x": 2}']


@pytest.mark.parametrize("args", TEXTS)
@pytest.mark.parametrize("more", [0, 1])
async def test_arguments_as_the_text_of_an_object(args: str, more: int) -> None:
    """The text of a JSON object, as many providers hand it over, is taken as that object and recorded as it."""
    store = MemoryStore()
    calls = [Call(f"c{n}", "double", args) for n in range(1 + more)]
    outcome = await run(Agent("lead", tools=[double]), "go", model=Own(once(*calls)), store=store)
    assert outcome.text == "4"
    assert asked(outcome) == [{"x": 2}] * (1 + more)
    replies = [e.reply async for e in store.read(outcome.run_id) if isinstance(e, ReplyReceived)]
    assert [c.args for c in replies[0].calls] == [{"x": 2}] * (1 + more)


async def test_arguments_as_text_in_a_run_that_is_resumed() -> None:
    """What a resumed run makes again has the arguments that the first one had."""
    given.clear()
    begun, held, store = asyncio.Event(), asyncio.Event(), MemoryStore()

    @tool(tier="observe")
    async def hold(x: int) -> int:
        """Holds a number."""
        given.append(x)
        begun.set()
        if len(given) == 1:
            await held.wait()
        return x

    agent, model = Agent("lead", tools=[hold]), Own(once(Call("c", "hold", '{"x": 2}')))
    async with start(agent, "go", model=model, store=store) as running:
        await begun.wait()
        await running.cancel("enough")
        first = await running.outcome()
    outcome = await resume(store, first.run_id, agent=agent, model=model)
    assert outcome.text == "2"
    assert given == [2, 2]
    assert asked(outcome) == asked(first) == [{"x": 2}]


DEEP = '{"x":' * 100_000 + "1" + "}" * 100_000
NO_OBJECTS = [
    "",
    "{",
    '{"x": 2',
    "{'x': 2}",
    "[2]",
    "2",
    "null",
    '"{}"',
    '{"x": 2} and more',
    DEEP,
    "{\ud800}",
]


@pytest.mark.parametrize("args", NO_OBJECTS, ids=lambda v: repr(v)[:20])
async def test_arguments_as_text_that_is_no_object(args: str) -> None:
    """Any other text is told to the model as what it is, and the run goes on."""
    outcome = await run(Agent("lead", tools=[double]), "go", model=Own(once(Call("c", "double", args))))
    assert outcome.ok
    assert "The arguments of double are not a JSON object" in outcome.text
    assert isinstance(asked(outcome)[0], str)


@pytest.mark.parametrize("number", ["1" + "0" * 30, "1" * 5_000, "1e999", "-1e400"], ids=lambda v: v[:8])
async def test_numbers_that_no_journal_takes(number: str) -> None:
    """An object with a number that cannot be written down stays text, or is written down; nothing breaks."""
    store = MemoryStore()
    call = Call("c", "double", f'{{"x": {number}}}')
    outcome = await run(Agent("lead", tools=[double]), "go", model=Own(once(call)), store=store)
    assert outcome.ok
    events = [e async for e in store.read(outcome.run_id)]
    assert [decode(encode(e)) for e in events] == events


SHAPES: list[tuple[object, str]] = [
    ([{"name": "double"}], "dict"),
    (({"id": "c", "name": "double", "args": {}},), "dict"),
    (["double"], "str"),
    ((Call("c", "double", {"x": 2}), None), "NoneType"),
    (Call("c", "double", {"x": 2}), "Call"),
    ({"name": "double"}, "dict"),
    ("double", "str"),
    (3, "int"),
]


@pytest.mark.parametrize(("calls", "what"), SHAPES, ids=repr)
async def test_calls_that_are_none(calls: object, what: str) -> None:
    """Calls are a tuple of `Call` objects; anything else is told so, with what it was."""
    model = Own(lambda _: Reply("x", calls))  # pyright: ignore[reportArgumentType]
    outcome = await run(Agent("lead", tools=[double]), "go", model=model)
    assert outcome.status is Status.FAILED
    assert "calls must be a tuple of Call(id, name, args) objects" in outcome.reason
    assert what in outcome.reason
    assert "has no" not in outcome.reason


# --- The model itself ----------------------------------------------------------------------------


class NoEmit:
    name = "short"

    async def reply(self, request: Request) -> Reply:
        raise NotImplementedError


class NoSelf:
    name = "short"

    async def reply(request, emit) -> Reply:  # noqa: N805  # pyright: ignore[reportSelfClsParameterName]
        raise NotImplementedError


class Alone:
    name = "short"

    @staticmethod
    async def reply(request: Request) -> Reply:
        raise NotImplementedError


class More:
    name = "short"

    async def reply(self, request: Request, emit: object, more: object) -> Reply:
        raise NotImplementedError


class Only:
    name = "short"

    async def reply(self, request: Request, emit: object, *, more: object) -> Reply:
        raise NotImplementedError


class Named:
    name = "short"

    async def reply(self, *, request: Request, emit: object) -> Reply:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("model", "written"),
    [
        (NoEmit(), "reply(self, request)"),
        (NoSelf(), "reply(request, emit)"),
        (Alone(), "reply(request)"),
        (More(), "reply(self, request, emit, more)"),
        (Only(), "reply(self, request, emit, *, more)"),
        (Named(), "reply(self, *, request, emit)"),
    ],
    ids=lambda v: type(v).__name__,
)
async def test_a_reply_with_other_parameters(model: Any, written: str) -> None:
    """A `reply` that cannot take a request and a way to emit is refused before the run, with what it should be."""
    with pytest.raises(UsageError) as caught:
        await run(Agent("lead"), "go", model=model)
    assert f"The model 'short' has {written}" in str(caught.value)
    assert "async def reply(self, request, emit)" in str(caught.value)


class Raises:
    @property
    def name(self) -> str:
        raise KeyError("MODEL")


@pytest.mark.parametrize(
    ("model", "hint"),
    [
        (SimpleNamespace(reply=print), "It has no `name`."),
        (SimpleNamespace(reply=print, name=3), "Its `name` must be a string, not 3."),
        (SimpleNamespace(name="half"), "It has no `reply`."),
        (SimpleNamespace(name="half", reply="hello"), "Its `reply` must be a method, not 'hello'."),
        (Raises(), "Reading its `name` or `reply` raised KeyError."),
    ],
)
async def test_half_a_model(model: Any, hint: str) -> None:
    """What lacks a part of a model is refused with that part named, wherever it is given."""
    with pytest.raises(UsageError, match=re.escape(hint)):
        await run(Agent("lead"), "go", model=model)
    with pytest.raises(UsageError, match=re.escape(hint)):
        Agent("lead", model=model)
    with pytest.raises(UsageError, match=re.escape(hint)):
        await run(Agent("lead", model="mine"), "go", models={"mine": model})


class Bills:
    name = "bills"

    def __init__(self, usage: Any) -> None:
        self.usage = usage

    async def reply(self, request: Request, emit: object) -> Reply:
        calls = (Call("1", "look", {}),) if len(request.messages) == 1 else ()
        return Reply("done", calls, stop="calls" if calls else "end", usage=self.usage)


@pytest.mark.parametrize(
    ("usage", "why"),
    [
        ({"input_tokens": 3}, "dict, not a remit.Usage."),
        (Usage(1, -3), "its counts must be whole numbers, 0 or more."),
    ],
)
async def test_a_usage_that_cannot_be_counted_is_told(usage: Any, why: str) -> None:
    """Tokens are estimated in its place, and the outcome says so and why, once for the run."""

    @tool(tier="observe")
    async def look() -> str:
        """Look."""
        return "seen"

    outcome = await run(Agent("lead", tools=[look]), "go", model=Bills(usage))
    assert outcome.usage.requests == 2
    assert outcome.usage.estimated
    (warning,) = outcome.warnings
    assert warning == f"The usage from the model bills is invalid, so it is estimated: {why}"


class RawReply(Reply, frozen=True):
    """With what the provider sent."""

    raw: object = None


class RawUsage(Usage, frozen=True):
    raw: object = None


@pytest.mark.parametrize("raw", ["password=hunter2x9", object()], ids=["a secret", "an object"])
@pytest.mark.parametrize("times", [1, 1000], ids=["short", "long"])
async def test_what_a_reply_has_besides_is_not_written_down(times: int, raw: object) -> None:
    """A record of the model's own kind is recorded as a reply and nothing else: no text of it is looked through."""

    def answer(_: Request) -> Reply:
        return RawReply("done" * times, usage=RawUsage(1, 2, 3, usd=0.5, raw=raw), raw=raw)

    async with start(Agent("lead"), "go", model=Own(answer)) as running:
        found = [event async for event in running.events() if isinstance(event, ReplyReceived)]
    (event,) = found
    assert decode(encode(event)) == event
    assert b"hunter2x9" not in encode(event)
    assert event.usage == Usage(1, 2, 3, usd=0.5)


class Loose:
    name = "loose"

    async def reply(self, *given: object) -> Reply:
        assert len(given) == 2
        return Reply("done")


class Spare:
    name = "spare"

    async def reply(self, request: Request, emit: object, more: int = 3, *, most: int = 4) -> Reply:
        return Reply("done")


class Static:
    name = "static"

    @staticmethod
    async def reply(request: Request, emit: object) -> Reply:
        return Reply("done")


class Wrapped:
    name = "wrapped"

    @staticmethod
    def without_emit(function: Any) -> Any:
        @functools.wraps(function)
        async def reply(self: object, request: Request, emit: object) -> Reply:
            return await function(self, request)

        return reply

    @without_emit
    async def reply(self, request: Request) -> Reply:
        return Reply("done")


@pytest.mark.parametrize("model", [Loose(), Spare(), Static(), Wrapped()], ids=lambda v: type(v).__name__)
async def test_a_reply_that_can_be_called(model: Any) -> None:
    """Whatever takes a request and a way to emit will do."""
    assert (await run(Agent("lead"), "go", model=model)).text == "done"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
async def test_numbers_that_json_does_not_have_are_null(number: float) -> None:
    """A tool gets the arguments that the journal records: a number that JSON does not have is null in both."""
    seen: list[float | None] = []

    @tool(tier="observe")
    async def take(value: float | None) -> str:
        """Takes it."""
        seen.append(value)
        return "taken"

    def answer(request: Request) -> Reply:
        asked = isinstance(request.messages[-1], AssistantMessage) or len(request.messages) == 1
        return Reply(calls=(Call("c", "take", {"value": number}),), stop="calls") if asked else Reply("done")

    outcome = await run(Agent("one", tools=[take]), "go", model=Own(answer))
    assert outcome.ok
    assert seen == [None]
