"""Cancelling: from wherever a run is, one of many, by itself, twice, too late; and nothing is left alive."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import anyio
import pytest

from remit import (
    Agent,
    ApprovalRequest,
    Approver,
    Event,
    Limits,
    Outcome,
    Running,
    Status,
    ToolContext,
    ToolMessage,
    UsageError,
    run,
    start,
    tool,
)
from remit.testing import ScriptedModel, call, calls, fail, say, wait, wrapped
from remit.types.events import (
    ApprovalRequested,
    CallStarted,
    CancelRequested,
    ChildQueued,
    ModelCallFailed,
    RunEnded,
    RunStarted,
    TurnStarted,
)

LONG = 10_000.0
FREE = Limits(seconds=None, call_seconds=None, stall_seconds=None)


def alive() -> list[str]:
    """Names of the tasks of this loop, the test's own left out."""
    return [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]


async def until(running: Running, ready: Callable[[Event], bool]) -> Event:
    """The first event that is meant; a moment later, so that the run is in the middle of it."""
    async for event in running.events():
        if ready(event):
            await asyncio.sleep(0.5)
            return event
    raise AssertionError("the run ended before it came so far")


@tool(tier="observe")
async def slow() -> str:
    """Takes long."""
    await asyncio.sleep(LONG)
    return "at last"


@tool(tier="confirm")
async def publish() -> str:
    """Changes things."""
    return "published"


async def never_answers(request: ApprovalRequest) -> object:
    await asyncio.sleep(LONG)


class Story(NamedTuple):
    """A run that is in a certain place once `ready` is true of an event."""

    agent: Agent
    model: ScriptedModel
    ready: Callable[[Event], bool]
    limits: Limits = FREE
    approver: Approver | None = None
    sent: int = 1
    """Model calls that have been sent by then."""


def in_a_model_call() -> Story:
    return Story(
        Agent("lead"), ScriptedModel([say("late", delay=LONG)]), lambda e: isinstance(e, TurnStarted)
    )


def in_a_tool() -> Story:
    model = ScriptedModel([call("slow", said="had this")])
    return Story(Agent("lead", tools=[slow]), model, lambda e: isinstance(e, CallStarted))


def in_parallel_tools() -> Story:
    model = ScriptedModel([calls(call("slow"), call("slow"), said="had this")])
    return Story(Agent("lead", tools=[slow]), model, lambda e: isinstance(e, CallStarted) and e.count == 2)


def with_a_child_in_the_queue() -> Story:
    both = calls(call("task", agent="kid", prompt="1"), call("task", agent="kid", prompt="2"))
    model = ScriptedModel({"lead": [both], "kid": [say("late", delay=LONG)]})
    lead = Agent("lead", subagents=[Agent("kid")])
    limits = Limits(seconds=None, concurrency=1)
    return Story(lead, model, lambda e: isinstance(e, ChildQueued), limits, sent=2)


def waiting_for_head_room() -> Story:
    # Room for one child's worst case, not for two.
    both = calls(call("task", agent="kid", prompt="1"), call("task", agent="kid", prompt="2"))
    model = ScriptedModel({"lead": [both], "kid": [say("late", delay=LONG)]})
    lead = Agent("lead", subagents=[Agent("kid")])
    limits = Limits(seconds=None, tokens=7_500)
    return Story(lead, model, lambda e: isinstance(e, RunStarted) and e.run.endswith(".2"), limits, sent=2)


def in_an_approval() -> Story:
    model = ScriptedModel([call("publish", said="had this")])
    lead = Agent("lead", tools=[publish])
    return Story(lead, model, lambda e: isinstance(e, ApprovalRequested), FREE, never_answers)  # pyright: ignore[reportArgumentType]


def in_the_queue_for_the_approver() -> Story:
    model = ScriptedModel([calls(call("publish"), call("publish"), said="had this")])
    lead = Agent("lead", tools=[publish])

    def second(event: Event) -> bool:
        return isinstance(event, ApprovalRequested) and event.request.endswith("2")

    return Story(lead, model, second, FREE, never_answers)  # pyright: ignore[reportArgumentType]


def in_the_wrap_up() -> Story:
    model = ScriptedModel([call("slow", said="had this"), wrapped("late", delay=LONG)])
    limits = Limits(seconds=60, call_seconds=None)
    return Story(Agent("lead", tools=[slow]), model, is_wrap_up, limits, sent=2)


def is_wrap_up(event: Event) -> bool:
    return isinstance(event, TurnStarted) and event.purpose == "wrap_up"


def in_the_summary() -> Story:
    model = ScriptedModel([say("had this"), wrapped("late", delay=LONG)])
    lead = Agent("lead", summary="always")
    return Story(lead, model, lambda e: isinstance(e, TurnStarted) and e.purpose == "summary", sent=2)


def backing_off() -> Story:
    model = ScriptedModel([fail("busy", "overloaded", retry_after=LONG), say("late")])
    return Story(Agent("lead"), model, lambda e: isinstance(e, ModelCallFailed))


PLACES = [
    in_a_model_call,
    in_a_tool,
    in_parallel_tools,
    with_a_child_in_the_queue,
    waiting_for_head_room,
    in_an_approval,
    in_the_queue_for_the_approver,
    in_the_wrap_up,
    in_the_summary,
    backing_off,
]


@pytest.mark.parametrize("place", PLACES, ids=lambda p: p.__name__)
async def test_cancel_ends_a_run_wherever_it_is(place: Callable[[], Story]) -> None:
    """Law 4: a run can be stopped wherever it is; the outcome says who and why, and nothing of it is alive."""
    story = place()
    clock = asyncio.get_running_loop()
    async with start(
        story.agent, "go", model=story.model, limits=story.limits, approver=story.approver
    ) as running:
        await until(running, story.ready)
        assert story.model.calls_made == story.sent
        asked_at = clock.time()
        assert await running.cancel("enough") is True
        assert alive() == []
        assert story.model.in_flight == 0
        assert clock.time() == asked_at
        outcome = await running.outcome()
    assert (outcome.status, outcome.reason) == (Status.CANCELLED, "cancelled by the caller: enough")
    assert outcome.warnings == ()
    assert all(c.status is Status.CANCELLED for c in outcome.children)


@pytest.mark.parametrize(
    "place",
    [in_a_tool, in_parallel_tools, in_an_approval, in_the_wrap_up, in_the_summary],
    ids=lambda p: p.__name__,
)
async def test_a_cancelled_run_keeps_what_it_had(place: Callable[[], Story]) -> None:
    """Law 6: a cancelled run carries its last text, and every call it asked for has its one result."""
    story = place()
    async with start(
        story.agent, "go", model=story.model, limits=story.limits, approver=story.approver
    ) as running:
        await until(running, story.ready)
        await running.cancel("enough")
        outcome = await running.outcome()
    assert (outcome.text, outcome.partial) == ("", "had this")
    asked = [c.id for m in outcome.messages for c in getattr(m, "calls", ())]
    answered = [m.call_id for m in outcome.messages if isinstance(m, ToolMessage)]
    assert asked == answered
    assert len(outcome.calls) == len(asked)
    assert not any(entry.success for entry in outcome.calls)


async def test_a_cancelled_model_call_is_paid_for() -> None:
    """Law 8: a call that was cancelled on its way is recorded where it was made, and marked as an estimate."""
    story = in_a_model_call()
    async with start(story.agent, "go", model=story.model, limits=FREE) as running:
        await until(running, story.ready)
        await running.cancel()
        outcome = await running.outcome()
    assert outcome.usage.requests == outcome.total_usage.requests == 1
    assert outcome.usage.input_tokens > 0
    assert outcome.usage.estimated is True


def family() -> tuple[Agent, ScriptedModel]:
    """A lead with a child that works for 5 s, and one that delegates and would never end."""
    both = calls(call("task", agent="quick", prompt="a"), call("task", agent="boss", prompt="b"))
    model = ScriptedModel(
        {
            "lead": [both, say("done")],
            "quick": [say("quick is done", delay=5)],
            "boss": [call("task", agent="deep", prompt="c", said="asked deep")],
            "deep": [say("late", delay=LONG)],
        }
    )
    boss = Agent("boss", subagents=[Agent("deep")])
    return Agent("lead", subagents=[Agent("quick"), boss]), model


async def cancel_boss() -> tuple[Outcome, list[Event]]:
    lead, model = family()
    events: list[Event] = []
    async with start(lead, "go", model=model, limits=FREE) as running:
        boss = await until(running, lambda e: isinstance(e, RunStarted) and e.agent == "boss")
        assert await running.cancel("not needed", run=boss.run) is True
        ended = [e.agent async for e in _so_far(running) if isinstance(e, RunEnded)]
        assert ended == ["deep", "boss"]
        events = [e async for e in running.events()]
        return await running.outcome(), events


async def _so_far(running: Running) -> AsyncIterator[Event]:
    stream = running.events()
    while True:
        try:
            yield await asyncio.wait_for(anext(stream), 0.001)
        except (TimeoutError, StopAsyncIteration):
            return


async def test_cancelling_one_child_leaves_the_others_alone() -> None:
    """Law 4: cancelling a run stops its subtree and nothing else; its parent reads why, and goes on."""
    outcome, _ = await cancel_boss()
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "done")
    by_agent = {c.agent: c for c in outcome.children}
    assert by_agent["quick"].text == "quick is done"
    assert (by_agent["boss"].status, by_agent["boss"].reason) == (
        Status.CANCELLED,
        "cancelled by the caller: not needed",
    )
    quick, boss = (m for m in outcome.messages if isinstance(m, ToolMessage))
    assert quick.text.startswith("quick is done")
    assert "cancelled by the caller: not needed" in boss.text
    assert "asked deep" in boss.text


async def test_what_is_below_a_cancelled_run_says_why_it_ended() -> None:
    """Law 4: a run that ends because its parent was stopped names the parent and the first cause."""
    outcome, events = await cancel_boss()
    boss = next(c for c in outcome.children if c.agent == "boss")
    (deep,) = boss.children
    assert deep.status is Status.CANCELLED
    assert deep.reason == "stopped with boss: cancelled by the caller: not needed"
    (asked,) = (e for e in events if isinstance(e, CancelRequested))
    assert (asked.agent, asked.by, asked.reason) == ("boss", "the caller", "not needed")


async def test_cancel_from_inside_the_run_returns_at_once() -> None:
    """Section 4: `cancel` from inside the run it cancels, at any depth, does not wait for itself."""
    returned: list[bool] = []

    @tool(tier="observe")
    async def stop_all(ctx: ToolContext) -> str:
        """Cancels the whole tree."""
        assert isinstance(ctx.deps, list)
        returned.append(await ctx.deps[0].cancel("from below"))
        await asyncio.sleep(LONG)
        return "never"

    model = ScriptedModel({"lead": [call("task", agent="kid", prompt="x")], "kid": [call("stop_all")]})
    handle: list[Running] = []
    lead = Agent("lead", subagents=[Agent("kid", tools=[stop_all])])
    async with start(lead, "go", model=model, limits=FREE, deps=handle) as running:
        handle.append(running)
        outcome = await running.outcome()
    assert returned == [True]
    assert (outcome.status, outcome.reason) == (Status.CANCELLED, "cancelled by the caller: from below")


async def test_siblings_that_cancel_each_other_both_end() -> None:
    """Section 4: waiting for a run that waits for us to end cannot hang."""

    @tool(tier="observe")
    async def cancel_other(other: str, ctx: ToolContext) -> str:
        """Cancels another run."""
        assert isinstance(ctx.deps, list)
        await ctx.deps[0].cancel("you first", run=other)
        return "gone"

    both = calls(call("task", agent="kid", prompt="1.2"), call("task", agent="kid", prompt="1.1"))
    model = ScriptedModel(
        {
            "lead": [both, say("done")],
            "kid": [lambda r: call("cancel_other", other=f"r{r.messages[0].text}"), say("won")],
        }
    )
    handle: list[Running] = []
    lead = Agent("lead", subagents=[Agent("kid", tools=[cancel_other])])
    async with start(lead, "go", model=model, limits=FREE, deps=handle) as running:
        handle.append(running)
        outcome = await running.outcome()
    assert outcome.text == "done"
    assert Status.CANCELLED in {c.status for c in outcome.children}


async def test_the_first_cancel_stands() -> None:
    """Section 4: a second cancel is told that it came late, and changes neither who nor why."""
    story = in_a_tool()
    async with start(story.agent, "go", model=story.model, limits=FREE) as running:
        await until(running, story.ready)
        first = asyncio.create_task(running.cancel("first"))
        await asyncio.sleep(0)
        assert await running.cancel("second") is False
        assert await first is True
        assert alive() == []
        outcome = await running.outcome()
    assert outcome.reason == "cancelled by the caller: first"


async def test_cancelling_what_has_ended_changes_nothing() -> None:
    """Section 6: cancelling a run that has ended says False."""
    model = ScriptedModel([say("done")])
    async with start(Agent("lead"), "go", model=model) as running:
        outcome = await running.outcome()
        assert await running.cancel("too late") is False
        assert (await running.outcome()).status is outcome.status is Status.COMPLETED


async def test_cancelling_a_run_of_another_tree_is_a_mistake() -> None:
    """Section 6: an id that is not in this tree is the caller's error, and stops nothing."""
    model = ScriptedModel([say("done", delay=5)])
    async with start(Agent("lead"), "go", model=model) as running:
        for name in ("other", f"{running.run_id}.7"):
            with pytest.raises(UsageError, match=f"No run '{name}'"):
                await running.cancel(run=name)
        assert (await running.outcome()).ok


async def test_cancel_straight_after_start_stops_it() -> None:
    """Law 4: a tree can be stopped from the moment its block is entered; no request is made then."""
    model = ScriptedModel([say("late", delay=LONG)])
    async with start(Agent("lead"), "go", model=model, limits=FREE) as running:
        assert await running.cancel("never mind") is True
        outcome = await running.outcome()
    assert (outcome.status, outcome.reason) == (Status.CANCELLED, "cancelled by the caller: never mind")
    assert model.calls_made == 0


async def test_what_is_sent_at_once_is_heard() -> None:
    """Section 6: a message sent straight after start joins the first turn."""
    model = ScriptedModel([say("done")])
    async with start(Agent("lead"), "go", model=model) as running:
        assert running.send("look at src/ first") is True
        await running.outcome()
    assert [m.text for m in model.requests[0].messages] == ["go", "look at src/ first"]


def endless() -> tuple[Agent, ScriptedModel]:
    model = ScriptedModel({"lead": [call("task", agent="kid", prompt="x")], "kid": [wait(LONG)]})
    return Agent("lead", subagents=[Agent("kid")]), model


async def test_leaving_the_block_at_once_stops_the_tree() -> None:
    """Law 4: leaving `async with start(...)` stops what runs, also before its first step."""
    lead, model = endless()
    async with start(lead, "go", model=model, limits=FREE) as running:
        pass
    assert model.calls_made == 0
    assert (await running.outcome()).status is Status.CANCELLED


async def test_leaving_the_block_early_stops_the_tree() -> None:
    """Law 4: whoever leaves the block in the middle of a run gets a cancelled outcome that says so."""
    lead, model = endless()
    async with start(lead, "go", model=model, limits=FREE) as running:
        await asyncio.sleep(1)
    assert model.in_flight == 0
    assert alive() == []
    outcome = await running.outcome()
    assert outcome.status is Status.CANCELLED
    assert outcome.reason.startswith("cancelled by the end of the `async with` block")


async def test_an_error_in_the_block_stops_the_tree_and_passes() -> None:
    """Law 4: an exception of the caller's passes out of the block unchanged, after everything stopped."""
    lead, model = endless()

    async def fails() -> None:
        async with start(lead, "go", model=model, limits=FREE):
            await asyncio.sleep(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert model.in_flight == 0
    assert alive() == []


async def test_giving_up_on_the_outcome_does_not_stop_the_tree() -> None:
    """Section 6: waiting for the outcome may be given up and taken up again; only the block's end stops the tree."""
    model = ScriptedModel([say("done", delay=10)])
    async with start(Agent("lead"), "go", model=model, limits=FREE) as running:
        with anyio.move_on_after(1):
            await running.outcome()
        assert (await running.outcome()).text == "done"


async def test_a_task_that_is_cancelled_before_its_first_step_is_stopped_in_order() -> None:
    """Law 4: a tree whose task is cancelled at once leaves nothing running, and does not hang."""
    lead, model = endless()
    events: list[Event] = []
    caller = asyncio.create_task(run(lead, "go", model=model, limits=FREE, on_event=events.append))
    await asyncio.sleep(0)
    (task,) = [t for t in asyncio.all_tasks() if re.fullmatch(r"remit \w+", t.get_name())]
    task.cancel()
    outcome = await caller
    assert (outcome.status, model.in_flight) == (Status.CANCELLED, 0)
    assert outcome.reason == "cancelled by the event loop: the task that ran it was cancelled"
    assert isinstance(events[-1], RunEnded)
    assert alive() == []


async def test_a_thousand_live_children_are_stopped() -> None:
    """Law 4: when cancel returns, none of a thousand children is alive, and each has one outcome."""
    many = calls(*(call("task", agent="kid", prompt=str(n)) for n in range(1000)))
    model = ScriptedModel({"lead": [many], "kid": [wait(LONG)]})
    lead = Agent("lead", subagents=[Agent("kid")])
    limits = Limits(seconds=None, delegations=None, concurrency=None)
    async with start(lead, "go", model=model, limits=limits) as running:
        await asyncio.sleep(1)
        assert model.in_flight == 1000
        await running.cancel("enough")
        assert model.in_flight == 0
        assert alive() == []
        outcome = await running.outcome()
    assert len(outcome.children) == 1000
    assert {c.reason for c in outcome.children} == {"stopped with lead: cancelled by the caller: enough"}
    assert outcome.total_usage.requests == 1001
