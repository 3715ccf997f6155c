"""Instructions that a function writes: called once per run, recorded, not called again on resume."""

from __future__ import annotations

import asyncio

import pytest
from stories import a, by_turn, died, journal, look

from remit import Agent, RunContext, UsageError, resume, run, start
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, say
from remit.types.events import InstructionsWritten, ReplyReceived, RunStarted, TurnStarted


class Writer:
    """Writes instructions, and counts how often."""

    def __init__(self) -> None:
        self.seen: list[RunContext] = []

    async def __call__(self, ctx: RunContext) -> str:
        self.seen.append(ctx)
        return f"Number {len(self.seen)}: {ctx.task} for {ctx.deps}."


async def test_a_function_writes_the_instructions_once_per_run() -> None:
    """Each run calls it once, when it starts; every request of the run has its text."""
    write = Writer()
    kid = Agent("kid", instructions=write, tools=[look])
    model = ScriptedModel(
        {
            "lead": [
                call("task", agent="kid", prompt="one"),
                call("task", agent="kid", prompt="two"),
                say("done"),
            ],
            "kid": by_turn(call("look", what="x"), say("ok")),
        }
    )
    assert (await run(Agent("lead", subagents=[kid]), "go", model=model, deps="Ann")).ok
    texts = [r.instructions for r in model.requests if r.agent == "kid"]
    assert texts == ["Number 1: one for Ann."] * 2 + ["Number 2: two for Ann."] * 2
    assert [(c.path, c.depth) for c in write.seen] == [(("lead", "kid"), 1)] * 2


async def test_the_text_is_recorded_and_kept_on_resume() -> None:
    """The journal has the text after the run's start. A resumed run uses it and does not call the function again."""
    write, store = Writer(), MemoryStore()
    agent = Agent("lead", instructions=write, tools=[look])
    model = ScriptedModel({"lead": by_turn(call("look", what="x"), say("done"))})
    await run(agent, "go", model=model, store=store)
    first, second = (await journal(store))[:2]
    assert isinstance(first, RunStarted)
    assert isinstance(second, InstructionsWritten)
    assert second.instructions == "Number 1: go for None."
    for last in (a(InstructionsWritten), a(ReplyReceived)):
        model.requests.clear()
        assert (await resume(await died(store, last), "r1", agent=agent, model=model)).ok
        assert {r.instructions for r in model.requests} == {"Number 1: go for None."}
    assert len(write.seen) == 1
    # The process died before the text was recorded: the function is called.
    await resume(await died(store, a(RunStarted)), "r1", agent=agent, model=model)
    assert len(write.seen) == 2


async def test_an_empty_text_is_recorded_too() -> None:
    """A function that returns "" has written its text: a resumed run does not call it again."""
    told: list[str] = []

    def nothing(ctx: RunContext) -> str:
        told.append(ctx.run_id)
        return ""

    agent, store = Agent("lead", instructions=nothing), MemoryStore()
    model = ScriptedModel({"lead": by_turn(say("done"))})
    await run(agent, "go", model=model, store=store)
    await resume(await died(store, a(InstructionsWritten)), "r1", agent=agent, model=model)
    assert told == ["r1"]


async def test_its_tokens_are_reserved() -> None:
    """A long text counts in the reservation of each request, also after a resume."""

    def long(ctx: RunContext) -> str:
        return "word " * 4000

    async def reserved(store: MemoryStore, root: str) -> list[int]:
        return [e.input_tokens for e in await journal(store, root) if isinstance(e, TurnStarted)]

    model = ScriptedModel({"lead": by_turn(say("done"))})
    written, plain = MemoryStore(), MemoryStore()
    agent = Agent("lead", instructions=long)
    await run(agent, "go", model=model, store=written)
    await run(Agent("lead", instructions="word " * 4000), "go", model=model, store=plain)
    expected = await reserved(plain, "r2")
    assert await reserved(written, "r1") == expected
    dead = await died(written, a(InstructionsWritten))
    await resume(dead, "r1", agent=agent, model=model)
    assert await reserved(dead, "r1") == expected


async def test_a_failing_function_fails_its_run_by_name() -> None:
    """The run fails before any model call, and its parent reads why."""

    def broken(ctx: RunContext) -> str:
        raise ValueError("no database")

    async def slow(ctx: RunContext) -> str:
        await asyncio.sleep(3600)
        return ""

    def number(ctx: RunContext) -> int:
        return 3

    reasons = {
        broken: "the function for instructions 'broken' raised ValueError: no database",
        slow: "the function for instructions 'slow' did not finish within 30 s",
        number: "the function for instructions 'number' returned 3; it must return a string of at most",
    }
    for write, reason in reasons.items():
        kid = Agent("kid", instructions=write)
        model = ScriptedModel({"lead": [call("task", agent="kid", prompt="x"), say("done")]})
        outcome = await run(Agent("lead", subagents=[kid]), "go", model=model)
        child = outcome.children[0]
        assert outcome.ok
        assert (child.status, child.turns) == ("failed", 0)
        assert child.reason.startswith(reason)


async def test_a_run_can_be_stopped_while_they_are_written() -> None:
    """Cancelling a run stops the function, and the run was cancelled."""
    began = asyncio.Event()

    async def slow(ctx: RunContext) -> str:
        began.set()
        await asyncio.sleep(3600)
        return ""

    async with start(Agent("lead", instructions=slow), "go", model=ScriptedModel([])) as running:
        await began.wait()
        await running.cancel("enough")
        outcome = await running.outcome()
    assert (outcome.status, outcome.turns) == ("cancelled", 0)


def test_functions_are_not_data() -> None:
    """`to_dict()` refuses an agent with functions, and names the field."""

    def write(ctx: RunContext) -> str:
        return ""

    def check(answer: object, ctx: RunContext) -> None: ...

    with pytest.raises(UsageError, match="function for instructions"):
        Agent("lead", instructions=write).to_dict()
    with pytest.raises(UsageError, match="cannot represent validators"):
        Agent("lead", validators=[check]).to_dict()
    with pytest.raises(UsageError, match="instructions must be a string"):
        Agent("lead", instructions=3)  # pyright: ignore[reportArgumentType]
