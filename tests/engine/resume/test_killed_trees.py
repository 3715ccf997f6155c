"""Resuming trees whose process died: what is taken from the journal, what is done again, what is only said to be unknown."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from stories import DAY_S, a, by_turn, change, died, folded, journal, look, stare, timeless

from remit import (
    Agent,
    Limits,
    TextPart,
    Usage,
    allow,
    deny,
    resume,
    run,
    start,
    tool,
)
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallEnded,
    CallStarted,
    MessageJoined,
    ModelCallFailed,
    ReplyReceived,
    RunStarted,
    TurnStarted,
)
from remit.types.messages import FilePart, ToolMessage
from remit.types.ports import Price

WORKER = Agent("worker", tools=[look, stare, change])


async def test_time_that_nobody_ran_is_not_charged_and_time_that_was_used_is() -> None:
    """A run of 100 seconds that used 60 before it died has 40 left, however much later it is resumed."""

    def model(last: float) -> ScriptedModel:
        return ScriptedModel(by_turn(call("stare", seconds=60), call("stare", seconds=last), say("done")))

    whole = MemoryStore()
    await run(WORKER, "go", model=model(20), store=whole, limits=Limits(seconds=100))
    for last, status in ((25.0, "completed"), (50.0, "timed_out")):
        store = await died(whole, a(CallEnded))
        await asyncio.sleep(DAY_S)
        outcome = await resume(store, "r1", agent=WORKER, model=model(last))
        assert outcome.status == status
        assert outcome.duration_s == pytest.approx(60 + min(last, 30))
        assert (await folded(store)).runs["r1"].clock.worked_s == pytest.approx(outcome.duration_s)


async def test_a_childs_deadline_goes_on_too() -> None:
    """A child's own seconds count what it used in its first life."""
    child = Agent("child", tools=[stare], limits=Limits(seconds=50))
    lead = Agent("lead", subagents=[child])

    def model() -> ScriptedModel:
        return ScriptedModel(
            {
                "lead": by_turn(call("task", agent="child", prompt="x"), say("done")),
                "child": by_turn(
                    call("stare", seconds=30), call("stare", seconds=30), say("ok"), wrap="half"
                ),
            }
        )

    whole = MemoryStore()
    await run(lead, "go", model=model(), store=whole)
    store = await died(whole, a(CallEnded, run="r1.1"))
    await asyncio.sleep(DAY_S)
    outcome = await resume(store, "r1", agent=lead, model=model())
    assert (outcome.status, outcome.children[0].status) == ("completed", "timed_out")
    assert outcome.children[0].duration_s == pytest.approx(45)


def wrapping() -> ScriptedModel:
    return ScriptedModel(by_turn(call("look", what="a"), say("never"), wrap="what there is"))


@pytest.mark.parametrize("agent", [WORKER, Agent("worker", tools=[look], summary="always")])
async def test_a_recorded_aside_is_not_asked_for_again(agent: Agent) -> None:
    """A wrap-up or summary that was given before the process died is used; one that was lost is asked for again, and counted."""
    turns = 1 if agent.summary == "never" else 5
    purpose = "wrap_up" if agent.summary == "never" else "summary"
    whole = MemoryStore()
    first = await run(agent, "go", model=wrapping(), store=whole, limits=Limits(turns=turns))
    store, again = await died(whole, a(ReplyReceived, purpose=purpose)), wrapping()
    outcome = await resume(store, "r1", agent=agent, model=again)
    assert again.calls_made == 0
    assert timeless(outcome) == timeless(first)
    store, again = await died(whole, a(TurnStarted, purpose=purpose)), wrapping()
    outcome = await resume(store, "r1", agent=agent, model=again)
    assert again.calls_made == 1
    assert outcome.usage.requests == first.usage.requests + 1
    assert (outcome.status, outcome.text, outcome.partial) == (first.status, first.text, first.partial)
    assert outcome.messages == first.messages
    lost = [e for e in await journal(store) if isinstance(e, ModelCallFailed)]
    assert [(e.error_kind, e.usage.requests, e.usage.estimated) for e in lost] == [("lost", 1, True)]


async def test_a_lost_request_is_counted_with_its_price() -> None:
    """What was sent when the process died may have been paid for: one request, its input, estimated, at the model's price."""

    def model() -> ScriptedModel:
        return ScriptedModel(by_turn(say("done", usage=Usage(1, 10, 5, usd=0.5))), price=Price(1.0, 1.0))

    whole = MemoryStore()
    await run(WORKER, "go", model=model(), store=whole, limits=Limits(usd=1.0))
    store = await died(whole, a(TurnStarted))
    outcome = await resume(store, "r1", agent=WORKER, model=model())
    assert (outcome.usage.requests, outcome.usage.estimated) == (2, True)
    assert outcome.usage.input_tokens > 10
    assert outcome.usage.usd is not None
    assert outcome.usage.usd == pytest.approx(0.5 + (outcome.usage.input_tokens - 10) / 1_000_000)
    assert (await folded(store)).spending()["r1"].micros == round(outcome.usage.usd * 1_000_000)


async def test_a_changing_call_that_was_open_is_unknown_and_an_observing_one_runs_again() -> None:
    """The model reads of the first that it may or may not have happened, and of the second what it gave."""

    @tool(name="change")
    async def slow_change(what: str) -> str:
        """Changes something, and takes a while."""
        await asyncio.sleep(1)
        return f"changed {what}"

    worker = Agent("worker", tools=[slow_change, stare])

    def model() -> ScriptedModel:
        both = calls(call("change", what="a"), call("stare", seconds=9))
        return ScriptedModel(by_turn(both, say("done")))

    whole = MemoryStore()
    await run(worker, "go", model=model(), store=whole, policy=["allow *"])
    store = await died(whole, a(CallStarted), 2)
    outcome = await resume(store, "r1", agent=worker, model=model(), policy=["allow *"])
    results = [m for m in outcome.messages if isinstance(m, ToolMessage)]
    assert results[0].content.startswith("Unknown: this call may or may not have happened")
    assert not results[0].ok
    assert [r.content for r in results[1:]] == ["saw it all"]
    assert [c.name for c in outcome.calls] == ["change", "stare"]
    assert (await folded(store)).spending()["r1"].calls == 2


async def test_a_changing_call_that_had_not_begun_is_made() -> None:
    """Of two changing calls, the one that was open is unknown, and the one that was still to begin is made."""

    def model() -> ScriptedModel:
        both = calls(call("change", what="a"), call("change", what="b"))
        return ScriptedModel(by_turn(both, say("done")))

    worker = Agent("worker", tools=[change])
    whole = MemoryStore()
    await run(worker, "go", model=model(), store=whole, policy=["allow *"])
    store = await died(whole, a(CallStarted), 1)
    outcome = await resume(store, "r1", agent=worker, model=model(), policy=["allow *"])
    results = [m.content for m in outcome.messages if isinstance(m, ToolMessage)]
    assert results[0].startswith("Unknown: this call may or may not have happened")
    assert results[1] == "changed b"


class Person:
    """An approver who keeps what was asked."""

    def __init__(self, answer: Decision, waits: float = 0.0) -> None:
        self.answer = answer
        self.waits = waits
        self.asked: list[str] = []

    async def __call__(self, request: ApprovalRequest) -> Decision:
        self.asked.append(request.id)
        await asyncio.sleep(self.waits)
        return self.answer


def changing() -> ScriptedModel:
    return ScriptedModel(by_turn(call("change", what="a"), call("change", what="b"), say("done")))


@pytest.mark.parametrize(
    ("answer", "asked"),
    [
        (allow(), ["r1/approval2"]),
        (allow(scope="run"), []),
        (allow(scope="tree"), []),
        (deny("no"), ["r1/approval2"]),
    ],
)
async def test_a_recorded_approval_is_not_asked_for_again(answer: Decision, asked: list[str]) -> None:
    """What a person answered before the process died stands, for that call, that run or the tree."""
    whole = MemoryStore()
    first = await run(WORKER, "go", model=changing(), store=whole, approver=Person(answer))
    store, person = await died(whole, a(ApprovalAnswered)), Person(answer)
    outcome = await resume(store, "r1", agent=WORKER, model=changing(), approver=person)
    assert person.asked == asked
    assert outcome.messages == first.messages
    assert outcome.status == "completed"


@pytest.mark.parametrize(("answer", "asked"), [(allow(), ["r1/approval2"]), (deny("no"), [])])
async def test_a_recorded_yes_to_a_change_of_settings_is_asked_for_again(
    tmp_path: Path, answer: Decision, asked: list[str]
) -> None:
    """The files may have changed while nobody ran: a yes is for the change that was shown; a no stands."""
    clerk, whole = Agent("clerk", tools=["write"]), MemoryStore()

    def model() -> ScriptedModel:
        return ScriptedModel(by_turn(call("write", path="remit.toml", content="# x\n"), say("done")))

    await run(clerk, "go", model=model(), store=whole, approver=Person(answer), workspace=tmp_path)
    (tmp_path / "remit.toml").unlink(missing_ok=True)
    store, person = await died(whole, a(ApprovalAnswered)), Person(answer)
    outcome = await resume(store, "r1", agent=clerk, model=model(), approver=person, workspace=tmp_path)
    assert (outcome.status, person.asked) == ("completed", asked)
    assert (tmp_path / "remit.toml").exists() is answer.allowed


async def test_a_grant_for_a_run_is_not_its_siblings() -> None:
    """After a resume, too, `allow(scope="run")` holds for that run alone."""
    lead = Agent("lead", subagents=[Agent("worker", tools=[change])])

    def model() -> ScriptedModel:
        tasks = [call("task", agent="worker", prompt=p) for p in ("one", "two")]
        worker = by_turn(call("change", what="a"), call("change", what="b"), say("done"))
        return ScriptedModel({"lead": by_turn(*tasks, say("done")), "worker": worker})

    whole = MemoryStore()
    await run(lead, "go", model=model(), store=whole, approver=Person(allow(scope="run")))
    store, person = await died(whole, a(ApprovalAnswered)), Person(allow(scope="run"))
    await resume(store, "r1", agent=lead, model=model(), approver=person)
    assert person.asked == ["r1/approval2"]


async def test_an_approval_that_waited_is_asked_again_under_its_id() -> None:
    """A request that nobody had answered when the process died, or when the run was stopped, is asked again; waiting is not charged."""
    whole = MemoryStore()
    async with start(WORKER, "go", model=changing(), store=whole, approver=Person(allow(), 500.0)) as running:
        await asyncio.sleep(100)
        await running.cancel()
    for store in (await died(whole, a(ApprovalRequested)), whole):
        person = Person(allow(), 300.0)
        outcome = await resume(store, "r1", agent=WORKER, model=changing(), approver=person)
        assert person.asked == ["r1/approval1", "r1/approval2"]
        assert outcome.status == "completed"
        assert (await folded(store)).runs["r1"].clock.worked_s == pytest.approx(0.0)
        assert outcome.duration_s >= 0.0


async def test_waiting_for_a_person_is_not_charged_after_a_resume() -> None:
    """Seconds used before and after the death count, those in which somebody was asked do not, in any life."""

    def model() -> ScriptedModel:
        steps = (call("stare", seconds=30), call("change", what="a"), call("stare", seconds=30), say("done"))
        return ScriptedModel(by_turn(*steps))

    whole, limits = MemoryStore(), Limits(seconds=80)
    await run(WORKER, "go", model=model(), store=whole, limits=limits, approver=Person(allow(), 1000.0))
    store = await died(whole, a(ApprovalRequested))
    await asyncio.sleep(DAY_S)
    outcome = await resume(store, "r1", agent=WORKER, model=model(), approver=Person(allow(), 1000.0))
    assert outcome.status == "completed"
    assert (await folded(store)).runs["r1"].clock.worked_s == pytest.approx(60.0)


async def test_messages_sent_before_the_death_are_there_once() -> None:
    """What was sent and joined a turn is in the conversation exactly once, wherever the process died afterwards."""

    def model() -> ScriptedModel:
        return ScriptedModel(
            by_turn(call("stare", seconds=9), call("stare", seconds=9), call("stare", seconds=9), say("ok"))
        )

    whole = MemoryStore()
    async with start(WORKER, "go", model=model(), store=whole) as running:
        await asyncio.sleep(1)
        assert running.send("and mind the gap")
        await asyncio.sleep(15)
        await running.cancel()
    events = await journal(whole)
    first = next(n for n, e in enumerate(events) if isinstance(e, MessageJoined))
    for cut in range(first + 1, len(events) + 1):
        store = await died(whole, lambda e, cut=cut: e is events[cut - 1])
        outcome = await resume(store, "r1", agent=WORKER, model=model())
        assert outcome.status == "completed"
        assert [m.text for m in outcome.messages].count("and mind the gap") == 1
        assert outcome.messages[3].text == "and mind the gap"


async def test_history_and_a_task_of_several_parts_survive() -> None:
    """A resumed run's requests are what they would have been: earlier messages, every part of the task."""
    past = (await run(WORKER, "before", model=ScriptedModel([say("earlier")]))).messages
    task = [TextPart("read this"), FilePart("a.pdf", "application/pdf", b"%PDF")]

    def model() -> ScriptedModel:
        return ScriptedModel(by_turn(say("not played"), call("look", what="a"), say("done")))

    whole, first = MemoryStore(), model()
    await run(WORKER, task, model=first, store=whole, history=past)
    for last in (a(RunStarted), a(CallEnded)):
        store = MemoryStore()
        await store.claim("r2", new=True)
        for event in await journal(whole, "r2"):
            store.append(event)
            if last(event):
                break
        await store.release("r2")
        again = model()
        await resume(store, "r2", agent=WORKER, model=again)
        assert again.requests[-1].messages == first.requests[-1].messages
