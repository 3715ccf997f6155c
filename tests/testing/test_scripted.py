"""The scripted model: its steps and its errors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

import anyio
import pytest

from remit import Agent, Limits, run
from remit.errors import ModelError
from remit.testing import (
    ScriptedModel,
    ScriptError,
    call,
    calls,
    crash,
    fail,
    refuse,
    run_virtual,
    say,
    wait,
    wrapped,
)
from remit.types.limits import Usage
from remit.types.messages import AssistantMessage, Call, Delta, Message, Reply, Request, ToolChoice, user
from remit.types.ports import Model, Price


def ask(
    agent: str = "lead",
    run_id: str = "r1",
    *,
    tool_choice: ToolChoice = "auto",
    messages: Sequence[Message] = (),
) -> Request:
    return Request(
        agent=agent,
        run_id=run_id,
        depth=0,
        instructions="",
        messages=tuple(messages) or (user("go"),),
        tools=(),
        tool_choice=tool_choice,
        max_output_tokens=100,
        output_schema=None,
        settings={},
    )


def ignore(piece: str | Delta) -> None:
    pass


def now() -> float:
    return asyncio.get_running_loop().time()


async def texts(model: ScriptedModel, *requests: Request) -> list[str]:
    return [(await model.reply(request, ignore)).text for request in requests]


def test_a_scripted_model_is_a_model() -> None:
    """It implements `Model`, with the optional attributes."""
    model = ScriptedModel([], name="m", price=Price(1, 2), streams=True)
    assert isinstance(model, Model)
    assert (model.name, model.price, model.streams) == ("m", Price(1, 2), True)


async def test_steps_are_played_in_order() -> None:
    """Each request plays one step, and each step costs the same."""
    with ScriptedModel(
        [call("look", where="here", said="hm"), refuse("no"), say("end", stop="length")]
    ) as model:
        first, second, third = [await model.reply(ask(), ignore) for _ in range(3)]
    assert first.calls == (Call("c1", "look", {"where": "here"}),)
    assert (first.text, first.stop, first.usage) == ("hm", "calls", Usage(1, 10, 5))
    assert (second.text, second.stop) == ("no", "refusal")
    assert (third.text, third.stop) == ("end", "length")
    assert (model.calls_made, model.requests) == (3, [ask()] * 3)


async def test_each_run_plays_its_script_from_the_start() -> None:
    """The script belongs to the agent, the position in it to the run."""
    model = ScriptedModel({"lead": [say("l1")], "explorer": [say("e1"), say("e2")]})
    runs = [ask("explorer", "r1.1"), ask("explorer", "r1.2"), ask("lead"), ask("explorer", "r1.1")]
    assert await texts(model, *runs) == ["e1", "e1", "l1", "e2"]
    with pytest.raises(ScriptError, match=r"'explorer' \(run r1\.2\) did not use step 2 of 2: 'e2'"):
        model.assert_finished()


async def test_arguments_may_have_any_name() -> None:
    """A dict passes arguments whose names `call` uses itself; a string passes raw text."""
    model = ScriptedModel([call("echo", {"text": "x", "id": 1}, more=2), call("echo", "{oops", id="mine")])
    first, second = [await model.reply(ask(), ignore) for _ in range(2)]
    assert first.calls == (Call("c1", "echo", {"text": "x", "id": 1, "more": 2}),)
    assert second.calls == (Call("mine", "echo", "{oops"),)
    with pytest.raises(TypeError, match="not both"):
        call("echo", "{oops", text_too=1)


async def test_call_ids_are_unique_in_a_run() -> None:
    """Numbering continues after the calls of the existing conversation."""
    model = ScriptedModel([calls(call("a"), call("b"), said="both"), call("c")])
    earlier = (user("go"), AssistantMessage(calls=(Call("c1", "z"),)))
    replies = [await model.reply(ask(messages=earlier), ignore) for _ in range(2)]
    assert [[one.id for one in reply.calls] for reply in replies] == [["c2", "c3"], ["c4"]]
    assert replies[0].text == "both"


def test_calls_takes_only_plain_calls() -> None:
    """Options that a reply of several calls would lose are refused."""
    for step in (say("x"), call("a", said="x"), call("a", delay=1), call("a", usage=Usage())):
        with pytest.raises(TypeError, match="to calls\\(\\), not to call\\(\\)"):
            calls(call("b"), step)


async def test_a_failure_is_a_model_error() -> None:
    """`fail` raises ModelError as a provider would; the next request plays the next step."""
    model = ScriptedModel(
        [fail("busy", "rate_limit", retry_after=7, delay=2), fail("x", retryable=False), "ok"]
    )
    with pytest.raises(ModelError, match="busy") as first:
        await model.reply(ask(), ignore)
    assert (first.value.kind, first.value.retryable, first.value.retry_after) == ("rate_limit", True, 7)
    assert now() == 2
    with pytest.raises(ModelError, match="x") as second:
        await model.reply(ask(), ignore)
    assert not second.value.retryable
    assert await texts(model, ask()) == ["ok"]


async def test_a_failure_is_a_new_exception_each_time() -> None:
    """Runs that share a script do not share the exception object."""
    model = ScriptedModel([fail("busy")])
    with pytest.raises(ModelError) as first:
        await model.reply(ask(), ignore)
    with pytest.raises(ModelError) as second:
        await model.reply(ask(run_id="r2"), ignore)
    assert first.value is not second.value


async def test_a_crash_is_a_bug() -> None:
    """`crash` raises an exception that is not a ModelError."""
    model = ScriptedModel([crash("oops"), crash(KeyError("k"))])
    with pytest.raises(RuntimeError, match="oops"):
        await model.reply(ask(), ignore)
    with pytest.raises(KeyError, match="k"):
        await model.reply(ask(), ignore)


async def test_wait_sleeps_and_plays_a_step() -> None:
    """`wait` sleeps, then plays its own step or the next one, in the same request."""
    with ScriptedModel([wait(5, say("then")), wait(10), wait(1), say("next", delay=4)]) as model:
        assert await texts(model, ask()) == ["then"]
        assert now() == 5
        assert await texts(model, ask()) == ["next"]
        assert now() == 20


async def test_chunks_are_spread_over_the_delay() -> None:
    """Text arrives in the given number of pieces, evenly in time, after the thinking."""
    seen: list[tuple[float, str | Delta]] = []
    model = ScriptedModel([say("abcdefg", chunks=3, delay=6, thinking="hm"), say("ab", chunks=5), say("x")])
    replies = [await model.reply(ask(), lambda piece: seen.append((now(), piece))) for _ in range(3)]
    assert seen[:4] == [(0, Delta(thinking="hm")), (2, "ab"), (4, "cd"), (6, "efg")]
    assert [piece for _, piece in seen[4:]] == ["a", "b"]
    assert [reply.text for reply in replies] == ["abcdefg", "ab", "x"]
    assert replies[0].thinking[0].text == "hm"


async def test_scripts_may_be_functions() -> None:
    """A function of the request can be a whole script or one step, and returns a step, a Reply or a str."""
    literal = Reply("as is", usage=None)
    model = ScriptedModel(
        {"lead": lambda r: f"{r.run_id} {r.agent}", "explorer": [lambda _: literal, literal]}
    )
    assert await texts(model, ask(), ask(), ask(run_id="r2")) == ["r1 lead", "r1 lead", "r2 lead"]
    assert [await model.reply(ask("explorer", "r1.1"), ignore) for _ in range(2)] == [literal, literal]
    model.assert_finished()
    assert await texts(ScriptedModel(lambda _: call("a", said="t")), ask("anyone")) == ["t"]


async def test_a_request_without_calls_skips_to_the_wrapped_step() -> None:
    """With `tool_choice="none"` the next wrapped step is played, and skipped steps count as used."""
    with ScriptedModel([call("a"), call("a"), call("a"), wrapped("so far")]) as model:
        assert await texts(model, ask(), ask(tool_choice="none")) == ["", "so far"]


async def test_a_request_without_calls_and_without_a_wrapped_step() -> None:
    """Without a later wrapped step, the next step is played."""
    with ScriptedModel([say("one"), say("two")]) as model:
        assert await texts(model, ask(tool_choice="none"), ask(tool_choice="none")) == ["one", "two"]


async def test_a_wrapped_step_is_skipped_by_other_requests() -> None:
    """An ordinary request skips wrapped steps, and they count as unused."""
    model = ScriptedModel([say("one"), wrapped("so far"), say("two")])
    assert await texts(model, ask(), ask()) == ["one", "two"]
    with pytest.raises(ScriptError, match="2 of 3: wrapped 'so far'"):
        model.assert_finished()


async def test_a_request_after_the_last_step_is_an_error() -> None:
    """The error has the agent, run, steps and last message, and is remembered even if the exception is caught."""
    model = ScriptedModel([say("only")])
    await texts(model, ask())
    with pytest.raises(ScriptError) as caught:
        await model.reply(ask(messages=(user("and now?"),)), ignore)
    for words in ("'lead'", "run r1", "1 step was played", "and now?"):
        assert words in str(caught.value)
    assert model.complaints == [str(caught.value)]
    with pytest.raises(ScriptError, match="and now"):
        model.assert_finished()


async def test_an_agent_without_a_script_is_an_error() -> None:
    """The error names the agent and the agents with a script."""
    model = ScriptedModel({"lead": [say("x")]})
    with pytest.raises(
        ScriptError, match=r"'stranger' \(run r9\) has no script \(agents with a script: lead\)"
    ):
        await model.reply(ask("stranger", "r9"), ignore)
    assert len(model.complaints) == 1


def test_an_agent_that_never_ran_is_an_error() -> None:
    """An unused script is an error, also a single script and a function."""
    with pytest.raises(ScriptError, match="'lead' has a script but never ran"):
        ScriptedModel({"lead": lambda _: "x"}).assert_finished()
    with pytest.raises(ScriptError, match="never started"), ScriptedModel([say("x")]):
        pass


def test_an_exception_in_the_block_is_not_hidden() -> None:
    """A block that raises keeps its exception instead of ScriptError."""
    with pytest.raises(ValueError, match="mine"), ScriptedModel([say("x")]):
        raise ValueError("mine")


async def test_replies_in_flight_are_counted() -> None:
    """`peak` is the highest number at once; a cancelled or failed reply is no longer in flight."""
    model = ScriptedModel({"lead": [say("x")], "slow": [say("x", delay=100)], "bad": [fail("x", delay=1)]})

    async def one(agent: str, run_id: str) -> None:
        with contextlib.suppress(ModelError):
            await model.reply(ask(agent, run_id), ignore)

    with anyio.move_on_after(10):
        async with anyio.create_task_group() as group:
            for i in range(5):
                group.start_soon(one, "lead", f"a{i}")
            group.start_soon(one, "slow", "b")
            group.start_soon(one, "bad", "c")
    assert (model.peak, model.in_flight) == (7, 0)


def test_a_scripted_run_is_the_same_twice() -> None:
    """The same scripts give the same replies, ids included."""

    async def play() -> list[Reply]:
        model = ScriptedModel([calls(call("a"), call("b")), say("end")])
        return [await model.reply(ask(), ignore) for _ in range(2)]

    assert run_virtual(play) == run_virtual(play)


def _function(request: Request) -> str:
    return request.agent


NO_SCRIPTS: list[tuple[object, str]] = [
    (say("x"), "a list of steps.*Answer.*Put it in a list"),
    (fail("x"), "a list of steps.*Failure.*Put it in a list"),
    ("x", "a list of steps.*str.*Put it in a list"),
    (Reply("x"), "a list of steps.*Reply.*Put it in a list"),
    (None, "a list of steps.*NoneType"),
    (3, "a list of steps.*int"),
    (iter([say("x")]), "a list of steps.*list_iterator"),
    ([3], "step 1 of the script is 3"),
    ([say("x"), None], "step 2 of the script is None"),
    ([[say("x")]], "step 1 of the script is "),
    ({"lead": say("x")}, "the script of 'lead' must be a list of steps"),
    ({"lead": ["ok"], "kid": [3]}, "step 1 of the script of 'kid' is 3"),
]


@pytest.mark.parametrize(("scripts", "words"), NO_SCRIPTS, ids=[words for _, words in NO_SCRIPTS])
def test_an_invalid_script_raises_in_the_constructor(scripts: object, words: str) -> None:
    """The TypeError names the script and the step."""
    with pytest.raises(TypeError, match=words):
        ScriptedModel(scripts)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "scripts", [[], {}, (), ["x"], [say("x"), _function, wait(1)], _function, {"a": _function, "b": ()}]
)
def test_valid_scripts(scripts: object) -> None:
    """Lists and tuples of steps, functions among them or alone, per agent or for all agents."""
    assert ScriptedModel(scripts).calls_made == 0  # pyright: ignore[reportArgumentType]


async def test_a_function_that_does_not_return_a_step() -> None:
    """The result of a function is checked when it is played."""
    model = ScriptedModel([lambda _: 3])  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="the result of step 1 of the script of 'lead' is 3"):
        await model.reply(ask(), ignore)


async def test_text_after_a_wait() -> None:
    """The step after a wait may be a text."""
    model = ScriptedModel([wait(0.01, "later")])
    assert (await model.reply(ask(), ignore)).text == "later"
    with pytest.raises(TypeError, match="wait"):
        wait(0.01, 3)  # pyright: ignore[reportArgumentType]


async def test_a_subclass_may_set_the_price() -> None:
    """A price passed to the constructor overrides it."""

    class Dear(ScriptedModel):
        price = Price(5.0, 5.0)

    assert ScriptedModel([say("a")]).price is None
    assert Dear([say("a")]).price == Price(5.0, 5.0)
    assert Dear([say("a")], price=Price(1.0, 1.0)).price == Price(1.0, 1.0)
    outcome = await run(Agent("a"), "go", model=Dear([say("a")]), limits=Limits(usd=1.0))
    assert outcome.ok
