"""Answers that come twice, too late or not at all: each request is settled once, and nothing hangs on it."""

from __future__ import annotations

import asyncio

import remit.remote as remote
from remit import Agent, ApprovalRequest, Limits, Running, Status, ToolMessage, allow, deny, run, start, tool
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.policy import Decision
from remit.types.events import ApprovalAnswered, ApprovalRequested, Event

done: list[str] = []


@tool
async def publish(page: str) -> str:
    """Brings a page out."""
    done.append(page)
    return f"{page} is public"


@tool(tier="observe")
async def look(seconds: float) -> str:
    """Looks for a while."""
    await asyncio.sleep(seconds)
    return "seen"


REVIEWER = Agent("reviewer", description="Publishes.", tools=[publish])
EDITOR = Agent("editor", description="Edits.", subagents=[REVIEWER])
CHIEF = Agent("chief", description="Leads.", subagents=[EDITOR])
READER = Agent("reader", description="Reads.", tools=[look])
LEAD = Agent("lead", subagents=[CHIEF, READER])


def go(name: str):
    return call("task", agent=name, prompt="go")


def model() -> ScriptedModel:
    done.clear()
    return ScriptedModel(
        {
            "lead": [calls(go("chief"), go("reader"), go("reader")), say("done")],
            "chief": [go("editor"), say("ok")],
            "editor": [go("reviewer"), say("ok")],
            "reviewer": [call("publish", page="a"), say("ok")],
            "reader": [call("look", seconds=30), call("look", seconds=30), say("read")],
        }
    )


async def never(request: ApprovalRequest) -> Decision:
    """A person who has gone home."""
    await asyncio.sleep(1e9)
    return deny()


async def first_request(running: Running) -> str:
    """The id of the first thing that a person is asked."""
    async for event in running.events():
        if isinstance(event, ApprovalRequested):
            return event.request
    raise AssertionError("nobody was asked")


async def test_an_unanswered_request_at_depth_three_holds_up_nobody_else() -> None:
    """Two siblings do all of their work while a great-grandchild waits, and the answer finds it still there."""
    order: list[str] = []

    async def slow(request: ApprovalRequest) -> Decision:
        assert request.path == ("lead", "chief", "editor", "reviewer")
        await asyncio.sleep(3600)
        order.append("answered")
        return allow()

    def note(event: Event) -> None:
        if event.kind == "run_ended" and event.agent == "reader":
            order.append("reader ended")

    async with start(LEAD, "go", model=model(), approver=slow, limits=Limits(seconds=120)) as running:
        async for event in running.events():
            note(event)
        outcome = await running.outcome()
    assert order == ["reader ended", "reader ended", "answered"]
    # Waiting for a person is not the run's time: an hour passed under a limit of two minutes.
    assert (outcome.status, done) == (Status.COMPLETED, ["a"])


async def test_denied_at_depth_three_is_a_result_there_and_nowhere_else() -> None:
    """The one who asked reads the reason and goes on; nobody above it fails."""

    async def no(request: ApprovalRequest) -> Decision:
        return deny("not on a Friday")

    outcome = await run(LEAD, "go", model=model(), approver=no)
    reviewer = outcome.children[0].children[0].children[0]
    told = next(m for m in reviewer.messages if isinstance(m, ToolMessage))
    assert told.text == "Denied: not on a Friday."
    assert (outcome.status, reviewer.status, done) == (Status.COMPLETED, Status.COMPLETED, [])


async def test_answered_twice_the_first_answer_holds() -> None:
    """A second answer is told that it is in vain, and changes nothing."""
    store = MemoryStore()
    async with start(LEAD, "go", model=model(), approver=never, store=store) as running:
        asked = await first_request(running)
        first = await remote.approve(store, asked)
        await asyncio.sleep(5)
        second = await remote.refuse(store, asked, "too late")
        outcome = await running.outcome()
    answers = [e async for e in store.read(running.run_id) if isinstance(e, ApprovalAnswered)]
    assert (first, second) == (True, False)
    assert [(a.allowed, a.stopped) for a in answers] == [(True, False)]
    assert (outcome.status, done) == (Status.COMPLETED, ["a"])


async def test_answered_after_the_run_was_cancelled_nothing_runs() -> None:
    """A yes that comes after a cancel allows nothing."""
    store = MemoryStore()
    async with start(LEAD, "go", model=model(), approver=never, store=store) as running:
        asked = await first_request(running)
        await running.cancel("changed my mind")
        late = await remote.approve(store, asked)
        outcome = await running.outcome()
    assert (outcome.status, late, done) == (Status.CANCELLED, False, [])


async def test_an_approver_that_answers_while_its_run_is_cancelled_allows_nothing() -> None:
    """Whoever is asked at the moment of the cancel may say yes: the call is not made."""

    async def late(request: ApprovalRequest) -> Decision:
        await running.cancel("enough")
        return allow("tree")

    running = start(LEAD, "go", model=model(), approver=late)
    async with running:
        outcome = await running.outcome()
    assert (outcome.status, done) == (Status.CANCELLED, [])


async def test_with_no_approver_the_answer_is_no_at_once() -> None:
    """Nobody to ask is a result that says so, from any depth."""
    outcome = await run(LEAD, "go", model=model())
    reviewer = outcome.children[0].children[0].children[0]
    assert "no approver" in next(m.text for m in reviewer.messages if isinstance(m, ToolMessage))
    assert (outcome.status, done) == (Status.COMPLETED, [])


async def test_who_wrote_the_program_is_told_that_nobody_could_be_asked() -> None:
    """The model reads the denial, the caller does not: a warning says once of each tool what it needs, at the root too."""
    thrice = calls(call("publish", page="a"), call("publish", page="b"), call("look", seconds=1))
    child = Agent("child", tools=[publish, look])
    model = ScriptedModel(
        {"lead": [call("task", agent="child", prompt="x"), say("ok")], "child": [thrice, say("ok")]}
    )
    outcome = await run(Agent("lead", subagents=[child]), "go", model=model, policy=["ask look"])
    first, second = outcome.children[0].warnings
    assert first.startswith("publish was denied: its tier is confirm, but run() has no approver=.")
    assert "approver=..." in first
    assert "tier='observe'" in first
    assert second.startswith("look was denied: the rule 'ask look' asks for approval")
    assert outcome.warnings == (f"lead > child: {first}", f"lead > child: {second}")


async def test_what_an_approver_raised_is_told_in_one_sentence() -> None:
    async def nobody(request: ApprovalRequest) -> Decision:
        raise ValueError("Nobody is here.")

    model = ScriptedModel([call("publish", page="one"), say("on")])
    (warning,) = (await run(REVIEWER, "go", model=model, approver=nobody)).warnings
    assert warning.endswith("ValueError: Nobody is here.")
