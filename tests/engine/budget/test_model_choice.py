"""What a tree knows of a model: read once, whatever the model is like, before anything runs."""

from __future__ import annotations

import functools
import gc
import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from remit import Agent, Limits, Price, Reply, Request, Usage, UsageError, run
from remit.engine.budget.model_choice import look_at
from remit.testing import ScriptedModel, say
from remit.types.ports import new_command_id

USED = Usage(1, 10, 5)


class Plain:
    name = "plain"

    async def reply(self, request: Request, emit: object) -> Reply:
        return Reply("yes", usage=USED)


class Late:
    """Its `reply` is a plain function that gives something to await."""

    name = "late"

    def reply(self, request: Request, emit: object) -> Awaitable[Reply]:
        return Plain().reply(request, emit)


def kept(function: Callable[..., Awaitable[Reply]]) -> Callable[..., Awaitable[Reply]]:
    @functools.wraps(function)
    async def inner(*args: object, **kwargs: object) -> Reply:
        return await function(*args, **kwargs)

    return inner


class Short:
    """Its `reply` takes less than it is given, which cannot be seen from outside."""

    name = "short"

    @kept
    async def reply(self, request: Request) -> Reply:
        return Reply("never")


class Bursting:
    """Its `reply` raises before there is anything to await."""

    name = "bursting"

    def reply(self, request: Request, emit: object) -> Awaitable[Reply]:
        raise OSError("burst")


class Wrapped:
    name = "wrapped"
    reply = kept(Plain.reply)


class Held:
    name = "held"

    def __init__(self) -> None:
        self.reply = functools.partial(Plain.reply, Plain())


class Loose:
    name = "loose"

    @staticmethod
    async def reply(request: Request, emit: object) -> Reply:
        return Reply("yes", usage=USED)


@pytest.mark.parametrize("kind", [Plain, Late, Wrapped, Held, Loose])
async def test_whatever_gives_a_reply_to_await_is_a_model(kind: type[Plain]) -> None:
    outcome = await run(Agent("a", model=kind()), "go")
    assert outcome.text == "yes"


@pytest.mark.parametrize(("kind", "words"), [(Short, "panicked: TypeError"), (Bursting, "burst")])
async def test_a_model_that_cannot_even_be_asked_has_failed(kind: type[Plain], words: str) -> None:
    """It is the model's failure, said with its name, and not one of remit's own."""
    outcome = await run(Agent("a", model=kind()), "go")
    assert not outcome.ok
    assert words in outcome.reason
    assert kind.name in outcome.reason
    assert "remit itself" not in outcome.reason


class Moody:
    """Every attribute that need not be there raises."""

    name = "moody"

    def __getattr__(self, name: str) -> object:
        raise RuntimeError(f"no {name} today")

    async def reply(self, request: Request, emit: object) -> Reply:
        return Reply("yes", usage=USED)


async def test_what_cannot_be_read_of_a_model_is_not_there() -> None:
    model = Moody()
    known = look_at(model)
    assert (known.name, known.price, known.streams, known.window) == ("moody", None, False, None)
    assert (known.lane, known.in_flight) == ("moody", None)
    assert (await run(Agent("a", model=model), "go")).ok


async def test_a_model_that_was_changed_between_two_runs_is_taken_as_it_is_now() -> None:
    model = ScriptedModel([say("one"), say("two")])
    agent = Agent("a", model=model)
    assert (await run(agent, "go")).model == model.name
    model.price = Price(1.0, 1.0)
    outcome = await run(agent, "go", limits=Limits(usd=1.0))
    assert outcome.ok
    assert outcome.usage.usd


def fails_at_once(self: object, request: Request, emit: object) -> Awaitable[Reply]:
    raise OSError("burst")


def takes_less(self: object, request: Request) -> Awaitable[Reply]:
    raise OSError("never")


# Since 3.13, where a coroutine becomes a plain function.
@pytest.mark.filterwarnings("ignore:Assigning a code object:DeprecationWarning")
async def test_a_reply_whose_code_was_replaced_is_looked_at_again() -> None:
    """Who edits a model in a notebook has new code put in the place of the old, in the same function."""

    class Edited:
        name = "edited"

        async def reply(self, request: Request, emit: object) -> Reply:
            return Reply("yes", usage=USED)

    agent = Agent("a", model=Edited())
    assert (await run(agent, "go")).text == "yes"
    Edited.reply.__code__ = fails_at_once.__code__
    assert (await run(agent, "go")).reason == "the model edited panicked: OSError: burst"
    Edited.reply.__code__ = takes_less.__code__
    with pytest.raises(UsageError, match="Write `async def reply"):
        await run(agent, "go")


async def test_what_a_model_knows_goes_with_it() -> None:
    """A model made for one run, and what it was made with, is freed after it."""

    class Data:
        pass

    def made_with(data: Data) -> Plain:
        class Reads(Plain):
            async def reply(self, request: Request, emit: object) -> Reply:
                return Reply(type(data).__name__, usage=USED)

        return Reads()

    data = Data()
    ref = weakref.ref(data)
    assert (await run(Agent("a", model=made_with(data)), "go")).text == "Data"
    del data
    gc.collect()
    assert ref() is None


async def test_a_price_that_is_none_is_said_before_anything_runs() -> None:
    model = ScriptedModel([say("one")])
    model.price = "cheap"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UsageError, match="must be a Price with two numbers"):
        await run(Agent("a", model=model), "go")
    assert model.calls_made == 0


async def test_an_agent_is_freed_after_its_run() -> None:
    """What is worked out once for an agent does not keep the agent alive."""
    agent = Agent("a", subagents=[Agent("b")], model=Plain())
    ref = weakref.ref(agent)
    await run(agent, "go")
    del agent
    gc.collect()
    assert ref() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_two_processes_give_out_different_ids() -> None:
    new_command_id()
    here, there = os.pipe()
    child = os.fork()
    if not child:
        os.write(there, " ".join(new_command_id() for _ in range(100)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        theirs = set(pipe.read().decode().split())
    ours = {new_command_id() for _ in range(100)}
    assert len(ours) == len(theirs) == 100
    assert not ours & theirs


class Sync:
    """Its `reply` is no async function."""

    name = "sync"

    def reply(self, request: Request, emit: object) -> Reply:
        return Reply("at once")


async def test_a_reply_that_is_not_async_is_told_what_to_write() -> None:
    outcome = await run(Agent("a", model=Sync()), "go")  # pyright: ignore[reportArgumentType]
    assert (
        "`reply` must be an async function, but it returned Reply. Write `async def reply(self, request, emit)`"
        in outcome.reason
    )


class Yielding:
    """Its `reply` is an async generator, as streaming is written elsewhere."""

    name = "yielding"

    async def reply(self, request: Request, emit: object) -> AsyncIterator[str]:
        yield "piece"


async def test_a_reply_that_yields_is_told_how_to_stream() -> None:
    outcome = await run(Agent("a", model=Yielding()), "go")  # pyright: ignore[reportArgumentType]
    assert "pass pieces to `emit(text)` instead, and return one `Reply`" in outcome.reason


class OnObjects:
    """A descriptor that the class itself cannot be asked for."""

    def __get__(self, model: Described | None, kind: type) -> object:
        if model is None:
            raise TypeError("only on objects")
        return model.answer


class Described:
    name = "described"
    reply = OnObjects()

    async def answer(self, request: Request, emit: object) -> Reply:
        return Reply("yes", usage=USED)


async def test_a_reply_that_its_class_does_not_show_is_called() -> None:
    assert (await run(Agent("a", model=Described()), "go")).text == "yes"  # pyright: ignore[reportArgumentType]
