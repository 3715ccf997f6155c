"""The calls of one turn together: their order, threads and tasks, and what a tool sees of the run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from remit import Agent, AssistantMessage, Limits, Outcome, ToolContext, ToolMessage, run, tool
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.tool import Tool
from remit.types.events import CallEnded, Event


@tool(tier="observe")
async def measure(path: str) -> str:
    """Measures."""
    return f"measured {path}"


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


async def events_of(store: MemoryStore, outcome: Outcome) -> list[Event]:
    return [event async for event in store.read(outcome.run_id)]


# --- Many at once --------------------------------------------------------------------------------


async def test_results_are_in_call_order_whatever_ends_first() -> None:
    """Results are in the order of the calls; events are in the order things happened."""

    @tool(tier="observe")
    async def sleep(seconds: int) -> str:
        """Sleeps."""
        await asyncio.sleep(seconds)
        return f"slept {seconds}"

    asked = calls(*(call("sleep", seconds=n) for n in (30, 10, 20)))
    store = MemoryStore()
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[sleep]), "go", model=model, store=store)
    assert [m.content for m in results(outcome)] == ["slept 30", "slept 10", "slept 20"]
    assert [m.call_id for m in results(outcome)] == ["c1", "c2", "c3"]
    ended = [e.call for e in await events_of(store, outcome) if isinstance(e, CallEnded)]
    assert ended == ["c2", "c3", "c1"]


async def test_calls_of_one_turn_run_at_the_same_time() -> None:
    """Async calls run together on the loop, plain functions together in threads: each waits for the other here."""
    both = threading.Barrier(2, timeout=60)
    met = asyncio.Event()

    @tool(tier="observe")
    def in_thread(who: int) -> str:
        """Waits for the other one."""
        both.wait()
        return threading.current_thread().name

    @tool(tier="observe")
    async def in_task(first: bool) -> str:
        """Waits for the other one."""
        if first:
            await met.wait()
        met.set()
        return threading.current_thread().name

    asked = calls(
        call("in_thread", who=1),
        call("in_thread", who=2),
        call("in_task", first=True),
        call("in_task", first=False),
    )
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[in_thread, in_task]), "go", model=model)
    names = [m.content for m in results(outcome)]
    assert all(m.ok for m in results(outcome))
    here = threading.current_thread().name
    assert here not in names[:2]
    assert names[0] != names[1]
    assert names[2:] == [here, here]


@pytest.mark.parametrize("style", ["async", "thread"])
async def test_five_hundred_calls_in_one_turn(style: str) -> None:
    """Five hundred calls in one reply each have their result, in order."""

    @tool(tier="observe")
    async def in_task(n: int) -> int:
        """Doubles."""
        await asyncio.sleep(0.01)
        return 2 * n

    @tool(tier="observe")
    def in_thread(n: int) -> int:
        """Doubles."""
        return 2 * n

    made: Tool = in_task if style == "async" else in_thread
    asked = calls(*(call(made.name, n=n) for n in range(500)))
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[made]), "go", model=model)
    assert [m.content for m in results(outcome)] == [str(2 * n) for n in range(500)]
    assert outcome.ok


async def test_the_same_call_many_times_in_one_reply() -> None:
    """Equal calls in one reply each run, and are not taken for a run that goes in circles."""
    with ScriptedModel([calls(*(call("measure", path="a") for _ in range(10))), say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[measure]), "go", model=model)
    assert outcome.text == "ok"
    assert [m.content for m in results(outcome)] == ["measured a"] * 10


async def test_calls_with_one_id_are_told_apart() -> None:
    """A model that gives two calls the same id still gets one result for each."""
    asked = calls(call("measure", path="a", id="x"), call("measure", path="b", id="x"))
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[measure]), "go", model=model)
    ids = [m.call_id for m in results(outcome)]
    assert len(set(ids)) == 2
    replied = next(m for m in outcome.messages if isinstance(m, AssistantMessage))
    assert [c.id for c in replied.calls] == ids


# --- What a tool sees ----------------------------------------------------------------------------

who: ContextVar[str] = ContextVar("who", default="nobody")


@pytest.mark.parametrize("style", ["async", "thread"])
async def test_context_variables_are_visible_in_tools(style: str) -> None:
    """What the caller set before run() is seen in tools, in threads too; what a tool sets stays in its call."""

    def read_and_set() -> str:
        found = who.get()
        who.set("a tool")
        return found

    @tool(tier="observe")
    async def in_task() -> str:
        """Reads."""
        return read_and_set()

    @tool(tier="observe")
    def in_thread() -> str:
        """Reads."""
        return read_and_set()

    made: Tool = in_task if style == "async" else in_thread
    token = who.set("the caller")
    try:
        with ScriptedModel([call(made.name), calls(call(made.name), call(made.name)), say("ok")]) as model:
            outcome = await run(Agent("lead", tools=[made]), "go", model=model)
    finally:
        who.reset(token)
    assert [m.content for m in results(outcome)] == ["the caller"] * 3


@pytest.mark.parametrize("raw", [False, True])
async def test_a_tool_that_changes_its_arguments(raw: bool) -> None:
    """What a tool does to its arguments changes neither the conversation nor the events."""

    def spoil(items: list[object], options: dict[str, object]) -> str:
        """Spoils its arguments."""
        items.clear()
        options["spoiled"] = True
        return "spoiled"

    schema: dict[str, object] = {"properties": {"items": {"type": "array"}, "options": {"type": "object"}}}
    made = tool(spoil, tier="observe", parameters=schema) if raw else tool(spoil, tier="observe")
    args: dict[str, object] = {"items": [1, [2]], "options": {"a": {"b": 1}}}
    with ScriptedModel([call("spoil", args), say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[made]), "go", model=model)
    assert results(outcome)[0].content == "spoiled"
    replied = next(m for m in outcome.messages if isinstance(m, AssistantMessage))
    assert replied.calls[0].args == {"items": [1, [2]], "options": {"a": {"b": 1}}}


@pytest.mark.real_time
async def test_a_plain_function_does_not_stop_the_loop() -> None:
    """A function that blocks runs in a thread, so that everything else of the tree goes on."""
    order: list[str] = []

    @tool(tier="observe")
    def block() -> str:
        """Blocks."""
        time.sleep(0.03)
        order.append("blocked")
        return "done"

    @tool(tier="observe")
    async def quick() -> str:
        """Does not."""
        order.append("quick")
        return "done"

    with ScriptedModel([calls(call("block"), call("quick")), say("ok")]) as model:
        await run(Agent("lead", tools=[block, quick]), "go", model=model)
    assert order == ["quick", "blocked"]


async def test_a_tools_own_timeout_is_its_limit() -> None:
    """`timeout_s` of a tool stands in the place of `call_seconds`, shorter or longer."""

    async def work(seconds: int) -> str:
        """Works."""
        await asyncio.sleep(seconds)
        return "done"

    made = [
        tool(work, name="short", timeout_s=1, tier="observe"),
        tool(work, name="long", timeout_s=99, tier="observe"),
    ]
    asked = calls(call("short", seconds=5), call("long", seconds=50))
    with ScriptedModel([asked, say("ok")]) as model:
        outcome = await run(Agent("lead", tools=made), "go", model=model, limits=Limits(call_seconds=10))
    assert [m.ok for m in results(outcome)] == [False, True]
    assert "short did not finish within 1 s" in results(outcome)[0].content


async def test_a_tools_words_about_its_progress() -> None:
    """`ctx.emit` reaches whoever watches while the tool runs, and never the model."""

    @tool(tier="observe")
    async def chatty(ctx: ToolContext) -> str:
        """Talks."""
        ctx.emit("half way")
        return "done"

    seen: list[Event] = []
    watch: Callable[[Event], object] = seen.append
    with ScriptedModel([call("chatty"), say("ok")]) as model:
        outcome = await run(Agent("lead", tools=[chatty]), "go", model=model, on_event=watch)
    kinds = [e.kind for e in seen]
    assert kinds.index("call_started") < kinds.index("call_progressed") < kinds.index("call_ended")
    assert "half way" not in results(outcome)[0].text
