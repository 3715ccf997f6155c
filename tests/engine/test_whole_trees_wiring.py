"""Whole trees as people wire them: conversations, messages from outside, models, deps, artifacts and money."""

from __future__ import annotations

import asyncio
import re

import pytest

import remit
from remit import (
    Agent,
    Limits,
    Outcome,
    Price,
    Request,
    Running,
    Status,
    ToolContext,
    ToolMessage,
    Usage,
    UsageError,
    run,
    run_sync,
    start,
    tool,
)
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say, wrapped
from remit.testing.scripted import Answer, Line
from remit.types.events import Event, MessageJoined, Overran, RunStarted


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


def texts(request: Request) -> list[str]:
    return [m.text for m in request.messages]


async def events_of(store: MemoryStore, outcome: Outcome) -> list[Event]:
    return [event async for event in store.read(outcome.run_id)]


def lead_of(*children: Agent) -> Agent:
    return Agent("lead", subagents=children)


def delegating(prompt: str = "go") -> Answer:
    return call("task", agent="w", prompt=prompt)


# --- Conversations -------------------------------------------------------------------------------


async def test_history_continues_a_conversation() -> None:
    """`history=outcome.messages` goes before the new task, tool results included."""
    with ScriptedModel({"lead": [delegating(), say("first answer")], "w": [say("found")]}) as model:
        first = await run(lead_of(Agent("w")), "first task", model=model)
    with ScriptedModel({"lead": [say("second answer")]}) as model:
        second = await run(lead_of(Agent("w")), "second task", model=model, history=first.messages)
    sent = model.requests[0].messages
    assert sent[:-1] == first.messages
    assert sent[-1].text == "second task"
    assert second.text == "second answer"
    assert second.messages[: len(first.messages)] == first.messages
    assert second.total_usage.requests == 1


async def test_a_child_sees_its_prompt_and_not_the_conversation() -> None:
    """A child sees its instructions and its prompt; its parent sees the answer, not how it came about (law 10)."""
    child = Agent("w", instructions="You are a worker.")
    scripts = {
        "lead": [delegating("the brief"), say("ok")],
        "w": [call("nothing", said="musing"), say("answer")],
    }
    with ScriptedModel(scripts) as model:
        outcome = await run(lead_of(child), "a secret task", model=model)
    seen = next(r for r in model.requests if r.agent == "w")
    assert texts(seen) == ["the brief"]
    assert seen.instructions == "You are a worker."
    assert not any("musing" in m.text for m in outcome.messages)


async def child_id(running: Running, agent: str) -> str:
    async for event in running.events():
        if isinstance(event, RunStarted) and event.agent == agent:
            return event.run
    raise AssertionError(f"{agent} never started")


async def test_send_joins_the_next_turn_of_a_child() -> None:
    """A message sent to a child by its id joins that child's next turn, and nobody else's."""

    @tool(tier="observe")
    async def slow() -> str:
        """Takes its time."""
        await asyncio.sleep(10)
        return "done"

    scripts = {"lead": [delegating(), say("ok")], "w": [call("slow"), say("as you wish")]}
    store = MemoryStore()
    with ScriptedModel(scripts) as model:
        async with start(lead_of(Agent("w", tools=[slow])), "go", model=model, store=store) as running:
            child = await child_id(running, "w")
            await asyncio.sleep(1)
            assert running.send("look at src/ first", run=child)
            outcome = await running.outcome()
            assert not running.send("too late", run=child)
    last = [r for r in model.requests if r.agent == "w"][-1]
    assert last.messages[-1].text == "look at src/ first"
    assert not any("look at src/" in t for r in model.requests if r.agent == "lead" for t in texts(r))
    joined = [e for e in await events_of(store, outcome) if isinstance(e, MessageJoined)]
    assert [(e.run, e.origin) for e in joined] == [(child, "sent")]


async def test_send_revives_a_run_that_was_about_to_answer() -> None:
    """A message that comes while the last reply is being written gets a turn of its own."""
    scripts = {"lead": [say("first answer", delay=10), say("second answer")]}
    with ScriptedModel(scripts) as model:
        async with start(Agent("lead"), "go", model=model) as running:
            await asyncio.sleep(1)
            assert running.send("and in French?")
            outcome = await running.outcome()
    assert outcome.text == "second answer"
    assert texts(model.requests[1]) == ["go", "first answer", "and in French?"]


async def test_messages_join_in_the_order_they_were_sent() -> None:
    """Several messages join one turn, in order, each as a message of its own."""
    scripts = {"lead": [say("first answer", delay=10), say("second answer")]}
    with ScriptedModel(scripts) as model:
        async with start(Agent("lead"), "go", model=model) as running:
            await asyncio.sleep(1)
            for text in ("one", "two", "three"):
                assert running.send(text)
            await running.outcome()
    assert texts(model.requests[1])[-3:] == ["one", "two", "three"]


@pytest.mark.parametrize("text", ["", "  \n", None, 3])
async def test_send_needs_text(text: object) -> None:
    """An empty message, or none, is the caller's error, said at once."""
    async with start(Agent("lead"), "go", model=ScriptedModel([say("ok")])) as running:
        with pytest.raises(UsageError, match="non-empty"):
            running.send(text)  # pyright: ignore[reportArgumentType]
        assert (await running.outcome()).ok


async def test_send_to_a_run_of_another_tree() -> None:
    """An id that is not of this tree is the caller's error."""
    async with start(Agent("lead"), "go", model=ScriptedModel([say("ok")])) as running:
        with pytest.raises(UsageError, match="elsewhere"):
            running.send("hello", run="elsewhere.1")
        assert (await running.outcome()).ok


# --- Models and deps -----------------------------------------------------------------------------


async def test_each_agent_may_have_its_own_model() -> None:
    """An agent's own model really answers; who has none inherits from its parent, not from the root."""
    top = ScriptedModel({"lead": [call("task", agent="mid", prompt="go"), say("ok")]}, name="big")
    low = ScriptedModel(
        {"mid": [call("task", agent="leaf", prompt="go"), say("mid ok")], "leaf": [say("leaf ok")]},
        name="small",
    )
    mid = Agent("mid", subagents=[Agent("leaf")], model="provider:small")
    with top, low:
        outcome = await run(lead_of(mid), "go", model=top, models={"provider:small": low})
    middle = outcome.children[0]
    assert (outcome.model, middle.model, middle.children[0].model) == ("big", "small", "small")
    assert (top.calls_made, low.calls_made) == (2, 3)


async def test_an_ad_hoc_child_has_its_parents_model() -> None:
    """An ad hoc child uses the model of whoever invented it."""
    top = ScriptedModel({"lead": [call("task", agent="mid", prompt="go"), say("ok")]}, name="big")
    inner = [call("subagent", label="part", task_prompt="go"), say("mid ok")]
    low = ScriptedModel({"mid": inner, "subagent": [say("long"), wrapped("short")]}, name="small")
    with top, low:
        outcome = await run(lead_of(Agent("mid", adhoc=True, model=low)), "go", model=top)
    assert outcome.children[0].children[0].model == "small"


@pytest.mark.parametrize("source", [{}, {"provider:other": ScriptedModel([])}, None, lambda name: None])
async def test_a_model_that_cannot_be_found_is_said_before_anything_runs(source: object) -> None:
    """A string nobody can resolve, anywhere in the tree, is the caller's error before the first request."""
    model = ScriptedModel([say("ok")])
    deep = lead_of(Agent("mid", subagents=[Agent("leaf", model="provider:nowhere")]))
    with pytest.raises(UsageError, match="provider:nowhere"):
        await run(deep, "go", model=model, models=source)  # pyright: ignore[reportArgumentType]
    assert model.calls_made == 0


async def test_deps_reach_tools_at_every_depth() -> None:
    """`ctx.deps` is the caller's own object in every tool of the tree, in threads too, with who calls beside it."""
    seen: list[tuple[tuple[str, ...], int, object]] = []

    @tool(tier="observe")
    async def peek(ctx: ToolContext) -> str:
        """Looks at its context."""
        seen.append((ctx.path, ctx.depth, ctx.deps))
        return "ok"

    @tool(tier="observe")
    def peek_in_thread(ctx: ToolContext) -> str:
        """Looks at its context."""
        seen.append((ctx.path, ctx.depth, ctx.deps))
        return "ok"

    own = object()
    tools = [peek, peek_in_thread]
    mid = Agent("mid", tools=tools, adhoc=True)
    scripts = {
        "lead": [call("peek"), call("task", agent="mid", prompt="go"), say("ok")],
        "mid": [call("peek"), call("subagent", label="part", task_prompt="go"), say("ok")],
        "subagent": [call("peek_in_thread"), say("ok"), wrapped("ok")],
    }
    with ScriptedModel(scripts) as model:
        await run(Agent("lead", subagents=[mid], tools=tools), "go", model=model, deps=own)
    assert [(path, depth) for path, depth, _ in seen] == [
        (("lead",), 0),
        (("lead", "mid"), 1),
        (("lead", "mid", "subagent"), 2),
    ]
    assert all(deps is own for _, _, deps in seen)


# --- Artifacts -----------------------------------------------------------------------------------

WHOLE = "".join(f"line {i} é\n" for i in range(6_000))


def reading(request: Request) -> Line:
    """Delegates, then reads on as the notes say, until they say no more."""
    last = request.messages[-1]
    if not isinstance(last, ToolMessage):
        return delegating()
    more = re.search(r"start=(\d+)", last.note)
    return call("read_artifact", artifact="r1.1/text", start=int(more[1])) if more else say("read it all")


async def test_a_long_answer_is_cut_and_can_be_read_whole() -> None:
    """A long answer is kept whole: the parent sees the head, the size and how to read the rest (law 6)."""
    model = ScriptedModel({"lead": reading, "w": [say(WHOLE)]})
    outcome = await run(lead_of(Agent("w")), "go", model=model)
    head, *pages = results(outcome)
    assert outcome.text == "read it all"
    assert head.ok
    assert head.content == WHOLE[:8000]
    assert f"{len(WHOLE):,}" in head.note
    assert 'read_artifact(artifact="r1.1/text"' in head.note
    assert "".join(m.content for m in (head, *pages)) == WHOLE
    assert outcome.children[0].text == WHOLE


@pytest.mark.parametrize("chars", [0, 1, 100, None])
async def test_result_chars_is_how_much_the_parent_reads(chars: int | None) -> None:
    """`result_chars` says how much of a child's answer is inline; None is all of it."""
    with ScriptedModel({"lead": [delegating(), say("ok")], "w": [say(WHOLE)]}) as model:
        outcome = await run(lead_of(Agent("w")), "go", model=model, limits=Limits(result_chars=chars))
    result = results(outcome)[0]
    assert result.content == (WHOLE if chars is None else WHOLE[:chars])
    assert ("read_artifact" in result.note) == (chars is not None)


async def test_a_sibling_cannot_read_anothers_artifact() -> None:
    """A run reads what is its own or below it, and nothing beside or above it (law 10)."""
    asked: list[str] = []

    def snoop(request: Request) -> Line:
        if len(request.messages) > 1:
            asked.extend(m.text for m in request.messages if isinstance(m, ToolMessage))
            return say("snooped")
        ids = ("r1.1/text", "r1.1", "r1/text", "r1.2/../r1.1/text", "r1.1.1/text")
        return calls(*(call("read_artifact", artifact=i) for i in ids))

    scripts = {
        "lead": [call("task", agent="w", prompt="go"), call("task", agent="spy", prompt="go"), say("ok")],
        "w": [say(WHOLE)],
        "spy": snoop,
    }
    spy = Agent("spy", subagents=[Agent("nobody")])
    outcome = await run(lead_of(Agent("w"), spy), "go", model=ScriptedModel(scripts))
    assert outcome.children[0].artifacts[0].id == "r1.1/text"
    assert len(asked) == 5
    assert all("No artifact" in text for text in asked)
    assert not any("line 1" in text for text in asked)


# --- Money ---------------------------------------------------------------------------------------

PRICE = Price(input=1.0, output=10.0)


@pytest.mark.parametrize("where", ["call", "agent", "child"])
async def test_a_usd_limit_needs_a_price(where: str) -> None:
    """A usd limit with a model of unknown price is the caller's error, said before the run starts."""
    money = Limits(usd=1.0)
    child = Agent("w", limits=money if where == "child" else None)
    lead = Agent("lead", subagents=[child], limits=money if where == "agent" else None)
    model = ScriptedModel([say("ok")])
    with pytest.raises(UsageError, match=r"price.*scripted|scripted.*price"):
        await run(lead, "go", model=model, limits=money if where == "call" else None)
    assert model.calls_made == 0


async def test_a_usd_limit_is_never_passed() -> None:
    """Money is reserved before each call like everything else: the tree stays within it and the lead answers (law 2)."""
    asked = calls(*(call("task", agent="w", prompt=f"part {i}") for i in range(30)))
    spent = Usage(1, 100, 1_000)
    scripts = {"lead": [asked, say("what I have")], "w": [say("done", usage=spent)]}
    model = ScriptedModel(scripts, price=PRICE)
    lead = Agent("lead", subagents=[Agent("w")], settings={"max_output_tokens": 1_000})
    outcome = await run(lead, "go", model=model, limits=Limits(usd=0.15))
    assert outcome.text == "what I have"
    done = sum(c.ok for c in outcome.children)
    assert 1 <= done < 30
    assert outcome.total_usage.usd is not None
    assert outcome.total_usage.usd <= 0.15
    own = (2 * (10 + 50)) / 1_000_000
    assert outcome.total_usage.usd == pytest.approx(own + done * (100 + 10_000) / 1_000_000)


async def test_no_money_at_all() -> None:
    """Zero means zero: nothing is sent, and the outcome says why (law 1)."""
    model = ScriptedModel([say("ok")], price=PRICE)
    outcome = await run(Agent("lead"), "go", model=model, limits=Limits(usd=0))
    assert outcome.status is Status.OVER_BUDGET
    assert "usd" in outcome.reason
    assert model.calls_made == 0


async def test_an_overrun_is_recorded_in_full() -> None:
    """A provider that reports more than was reserved is recorded in full; nothing new is sent but last words (law 2)."""
    store = MemoryStore()
    asked = calls(delegating("greedy"), delegating("patient"))

    def worker(request: Request) -> Line:
        if request.messages[0].text == "greedy":
            return say("greedy done", usage=Usage(1, 50_000, 10_000), delay=1)
        return call("nothing", said="half way", delay=5)

    model = ScriptedModel({"lead": [asked, say("the last word")], "w": worker})
    limits = Limits(tokens=100_000)
    outcome = await run(lead_of(Agent("w")), "go", model=model, limits=limits, store=store)
    assert outcome.text == "the last word"
    assert outcome.total_usage.tokens == 60_000 + 3 * 15
    overran = [e for e in await events_of(store, outcome) if isinstance(e, Overran)]
    assert [(e.agent, e.resource, e.used) for e in overran] == [("w", "tokens", 60_000)]
    greedy, patient = results(outcome)
    assert (greedy.content, greedy.ok) == ("greedy done", True)
    assert not patient.ok
    assert "half way" in patient.content
    assert model.calls_made == 4


async def test_after_an_overrun_no_child_starts() -> None:
    """An account that was overrun takes no new reservations: a later delegation is rejected with the reason (law 2)."""
    scripts = {
        "lead": [delegating("greedy"), delegating("another")],
        "w": [say("done", usage=Usage(1, 50_000, 10_000))],
    }
    model = ScriptedModel(scripts)
    outcome = await run(lead_of(Agent("w")), "go", model=model, limits=Limits(tokens=100_000))
    assert model.calls_made == 3
    assert len(outcome.children) == 1
    rejected = results(outcome)[1]
    assert not rejected.ok
    assert "tokens" in rejected.content
    assert outcome.status is Status.OVER_BUDGET


def test_words_for_what_is_no_tool_name_what_helps() -> None:
    """A function that is not decorated, and a name that nothing has: what is said can be done as it is written."""

    def plain() -> str:
        return "x"

    assert hasattr(remit, "tool")
    with pytest.raises(UsageError, match=r"Decorate it with @remit\.tool\.$"):
        Agent("lead", tools=[plain])  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match=r"decorated with @remit\.tool\.$"):
        run_sync(Agent("lead", tools=["reed"]), "go", model=ScriptedModel([say("x")]))
