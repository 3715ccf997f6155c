"""The keys by which recorded children are found: what they are made of, and what is done with those not asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from codebench import WORKER, lead_of, play, program_of, results, script, statuses, tool_of
from pydantic import BaseModel
from stories import a, died

from remit import Agent, Limits, Outcome, ProgramContext, Request, ToolContext, resume, run
from remit.stores.memory import MemoryStore
from remit.stores.sqlite import SqliteStore
from remit.testing import call, say
from remit.testing.scripted import Line
from remit.types.events import CallEnded, Event, ReplyReceived, RunEnded, RunStarted, TurnStarted


class Counted:
    """Answers with the prompt, and counts."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, request: Request) -> Line:
        self.asked.append(request.messages[0].text)
        return say(f"<{request.messages[0].text}>")


async def again(store: Any, agent: Agent, **options: Any) -> Outcome:
    return await resume(store, "r1", agent=agent, **options)


# --- Rule 21 ---------------------------------------------------------------------------------------------


async def test_a_key_says_that_code_asked_for_the_run() -> None:
    """Rule 21: a child of code has a key; `call` is the tool call's id, and empty under a program; a model's child has no key."""

    async def work(ctx: ToolContext) -> str:
        return (await ctx.delegate(program_of(below, name="below"), "go", key="mine")).text

    async def below(ctx: ProgramContext) -> str:
        return (await ctx.delegate(WORKER, "go")).text

    lead = [call("code", id="abc"), call("task", agent="worker", prompt="go", id="def"), say("done")]
    played = await play(lead_of(tool_of(work), subagents=[WORKER]), script(lead=lead))
    told = {event.run: (event.call, event.key.partition("#")[0]) for event in played.of(RunStarted)}
    assert told == {
        "r1": ("", ""),
        "r1.1": ("abc", "below/mine"),
        "r1.1.1": ("", "worker"),
        "r1.2": ("def", ""),
    }


# --- Rule 22 ---------------------------------------------------------------------------------------------


async def test_a_key_is_given_or_made_from_agent_prompt_and_number() -> None:
    """Rule 22: `agent/key`, else `agent#digest(prompt)#n`, counted by call in the order of the requests."""

    async def work(ctx: ToolContext) -> str:
        await ctx.delegate(WORKER, "same")
        await ctx.map(WORKER, ["same", "other"])
        await ctx.delegate(WORKER, "same", key="k")
        return ""

    played = await play(lead_of(tool_of(work)), script(lead=[call("code"), call("code"), say("done")]))
    keys = [event.key for event in played.started]
    agent, same, _ = keys[0].split("#")
    assert keys[0] == f"{agent}#{same}#1"
    assert keys[1] == f"{agent}#{same}#2"
    assert keys[2].endswith("#1")
    assert keys[3] == "worker/k"
    assert keys[:4] == keys[4:]


async def test_a_key_used_twice_is_rejected() -> None:
    """Rule 22: the same key for the same agent starts one child; another agent may have the same key."""

    async def work(ctx: ToolContext) -> str:
        found = await ctx.map(WORKER, ["a", "b"], keys=["k", "k"])
        other = await ctx.delegate(Agent("other"), "c", key="k")
        return " ".join(statuses([*found, other]))

    played = await play(lead_of(tool_of(work)), script(other=[say("ok")]))
    assert results(played.outcome) == ["completed invalid_input completed"]


async def test_a_given_key_finds_a_child_whose_prompt_has_changed() -> None:
    """Rule 22: a child is found by its key whatever its prompt is now; without a key, another prompt is another child."""
    prompts = ["first words"]

    async def work(ctx: ProgramContext) -> str:
        keyed = await ctx.delegate(WORKER, f"keyed {prompts[-1]}", key="k")
        plain = await ctx.delegate(WORKER, f"plain {prompts[-1]}")
        return f"{keyed.text} {plain.text}"

    whole, agent, model = MemoryStore(), program_of(work), Counted()
    await run(agent, "go", model=script(model), store=whole)
    store = await died(whole, a(RunEnded, agent="worker"), times=2)
    prompts.append("other words")
    outcome = await again(store, agent, model=script(model))
    assert outcome.text == "<keyed first words> <plain other words>"
    assert model.asked == ["keyed first words", "plain first words", "plain other words"]
    assert len(outcome.children) == 3


SECRET = "sk-ant-api03-" + "Ab3dEf6hIj9kLm2nOp5q" * 4


@pytest.mark.real_time
@pytest.mark.parametrize("own", [True, False], ids=["of the store's own", "by its shape"])
async def test_prompts_and_keys_with_secrets_are_found_again(tmp_path: Path, own: bool) -> None:
    """Rule 22: the digest is of the redacted prompt: a prompt made of what a recorded child said is found again."""
    secret, broken = "Jane Example" if own else SECRET, [True]

    async def work(ctx: ProgramContext) -> str:
        first = await ctx.delegate(WORKER, "find it", key=f"with {secret}")
        second = await ctx.delegate(WORKER, f"use {first.text}")
        if broken:
            raise ValueError("a bug")
        return second.text

    class Finds(Counted):
        def __call__(self, request: Request) -> Line:
            super().__call__(request)
            return say(f"it is {secret}" if len(self.asked) == 1 else "used")

    model, agent, file = Finds(), program_of(work), tmp_path / "runs.db"
    store = SqliteStore(file, secrets=["Jane Example"] if own else [])
    first = await run(agent, "go", model=script(model), store=store)
    assert first.status == "failed"
    broken.clear()
    outcome = await resume(store, first.run_id, agent=agent, model=script(model))
    await store.close()
    assert outcome.text == "used"
    assert len(model.asked) == 2
    assert not outcome.warnings
    assert secret not in file.read_bytes().decode("latin-1")


# --- Rule 23 ---------------------------------------------------------------------------------------------


class Found(BaseModel):
    name: str


async def test_recorded_outcomes_have_their_typed_output() -> None:
    """Rule 23: a resumed program reads the typed output of recorded children, of models and of programs."""
    finder = Agent("finder", output=Found)

    async def size(ctx: ProgramContext) -> int:
        return len(ctx.task)

    async def work(ctx: ProgramContext) -> str:
        one = await ctx.delegate(finder, "find")
        two = await ctx.delegate(program_of(size, name="size"), "four")
        assert isinstance(one, Outcome)
        assert isinstance(two, Outcome)
        assert isinstance(one.output, Found)
        return f"{one.output.name} {two.output}"

    whole, agent = MemoryStore(), program_of(work)
    model = script(finder=[say('{"name": "a"}')])
    assert (await run(agent, "go", model=model, store=whole)).text == "a 4"
    store = await died(whole, a(RunEnded, agent="size"))
    assert (await again(store, agent, model=script())).text == "a 4"


# --- Rule 26 ---------------------------------------------------------------------------------------------


async def test_recorded_children_that_are_not_asked_for_keep_their_outcome() -> None:
    """Rule 26: what a changed program does not ask for again stays in the tree, with one warning that names `key=`."""
    wanted = ["a", "b", "c"]

    async def work(ctx: ProgramContext) -> str:
        found = await ctx.map(WORKER, wanted)
        return " ".join(one.text for one in found)

    whole, agent, model = MemoryStore(), program_of(work), Counted()
    await run(agent, "go", model=script(model), store=whole, limits=Limits(concurrency=1))
    # Two have ended, the third has begun.
    store = await died(whole, a(TurnStarted, agent="worker"), times=3)
    wanted[:] = ["b", "d"]
    outcome = await again(store, agent, model=script(model))
    assert outcome.text == "<b> <d>"
    assert model.asked == ["a", "b", "c", "d"]
    assert [one.status for one in outcome.children] == ["completed", "completed", "interrupted", "completed"]
    (warning,) = outcome.warnings
    assert "did not ask again for 2 recorded children" in warning
    assert "key=" in warning


@pytest.mark.parametrize("asks", [0, 1])
async def test_a_tool_that_asks_for_fewer_children_when_it_is_run_again_says_so(asks: int) -> None:
    """Rule 26: the same for a tool, also if it does not delegate at all this time."""
    wanted = ["a", "b", "c"]

    async def work(ctx: ToolContext) -> str:
        found = await ctx.map(WORKER, wanted) if wanted else []
        return " ".join(one.text for one in found)

    whole, agent, model = MemoryStore(), lead_of(tool_of(work)), Counted()
    await run(agent, "go", model=script(model), store=whole)
    store = await died(whole, a(RunEnded, agent="worker"), times=3)
    wanted[:] = wanted[:asks]
    lead = [say("done")]
    outcome = await again(store, agent, model=script(model, lead))
    assert outcome.ok
    assert len(outcome.children) == 3
    (warning,) = outcome.warnings
    assert f"did not ask again for {3 - asks} recorded" in warning


async def test_a_resumed_run_that_is_stopped_does_not_blame_its_code() -> None:
    """Rule 26: children that a stopped program could not ask for again yet are no reason to warn, and are found the next time."""

    async def work(ctx: ProgramContext) -> str:
        await asyncio.sleep(10)
        found = await ctx.map(WORKER, ["a", "b"])
        return " ".join(one.text for one in found)

    whole, agent, model = MemoryStore(), program_of(work), Counted()
    await run(agent, "go", model=script(model), store=whole)
    store = await died(whole, a(ReplyReceived, agent="worker"), times=2)
    outcome = await again(store, agent, model=script(model), limits=Limits(seconds=15))
    assert outcome.status == "timed_out"
    assert not outcome.warnings
    outcome = await again(store, agent, model=script(model), limits=Limits(seconds=1_000))
    assert outcome.text == "<a> <b>"
    assert model.asked == ["a", "b"]
    assert not outcome.warnings


# --- Rule 27 ---------------------------------------------------------------------------------------------


async def test_children_of_code_need_not_be_declared() -> None:
    """Rule 27: a tree goes on although the agents of code's children, and those below them, are nowhere declared."""
    below = Agent("below")

    async def work(ctx: ToolContext) -> str:
        return (await ctx.delegate(Agent("hidden", subagents=[below]), "go")).text

    whole, agent = MemoryStore(), lead_of(tool_of(work))
    hidden = [call("task", agent="below", prompt="go"), say("hidden")]
    await run(agent, "go", model=script(hidden=hidden, below=[say("ok")]), store=whole)
    store = await died(whole, a(TurnStarted, agent="below"))
    model = script(lead=[say("done")], hidden=[say("hidden")], below=[say("ok")])
    outcome = await again(store, agent, model=model)
    assert results(outcome) == ["hidden"]
    assert [event_of(e) for e in await read(store)][-1] == "run_ended"


def event_of(event: Event) -> str:
    return event.kind


async def read(store: MemoryStore) -> list[Event]:
    return [event async for event in store.read("r1")]


async def test_calls_of_the_journal_end_once() -> None:
    """Rule 26: every call and every run of a resumed tree has one end in the journal."""

    async def work(ctx: ToolContext) -> str:
        return " ".join(statuses(await ctx.map(WORKER, ["a", "b", "c"])))

    whole, agent = MemoryStore(), lead_of(tool_of(work))
    await run(agent, "go", model=script(), store=whole)
    for at in range(1, len(await read(whole))):
        store = await died(whole, a(Event), times=at)
        lead = script(lead=lambda r: say("done") if len(r.messages) > 1 else call("code"))
        outcome = await again(store, agent, model=lead)
        assert outcome.ok, at
        events = await read(store)
        ends = [e.run for e in events if isinstance(e, RunEnded)]
        assert sorted(ends) == sorted(e.run for e in events if isinstance(e, RunStarted)), at
        assert len([e for e in events if isinstance(e, CallEnded)]) == 1
