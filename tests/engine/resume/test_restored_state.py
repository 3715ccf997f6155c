"""Resuming, in detail: what is easily forgotten when a run is put back where it was."""

from __future__ import annotations

import asyncio

import pytest
from stories import a, by_turn, change, died, journal, look, stare

from remit import Agent, Limits, Outcome, Usage, allow, resume, run, start, tool
from remit.engine.run.tool_calls import NOT_FINISHED, UNKNOWN
from remit.history.fold import fold
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say, wrapped
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.events import (
    ApprovalAnswered,
    CallEnded,
    CallStarted,
    CancelRequested,
    Event,
    MessageJoined,
    RunEnded,
    RunResumed,
    RunStarted,
    TurnStarted,
    Warned,
)
from remit.types.messages import REDACTED, ToolMessage

WORKER = Agent("worker", tools=[look, stare, change])


def results(outcome: Outcome) -> list[str]:
    return [m.content for m in outcome.messages if isinstance(m, ToolMessage)]


async def test_results_that_were_cut_for_the_wrap_up_are_whole_again() -> None:
    """A run over budget reads short results for its last word; with more budget it reads them as they were."""
    long, much = "word " * 4000, Usage(1, 1000, 1500)

    @tool(tier="observe")
    async def recite() -> str:
        """Says a lot."""
        return long

    lead = Agent("lead", tools=[recite], subagents=[Agent("child", tools=[look])])

    def model() -> ScriptedModel:
        both = calls(call("recite"), call("task", agent="child", prompt="x"))
        child = by_turn(call("look", what="a", usage=much), say("ok", usage=much))
        return ScriptedModel({"lead": by_turn(both, say("done")), "child": child})

    store = MemoryStore()
    first = await run(lead, "go", model=model(), store=store, limits=Limits(tokens=10_000))
    assert (first.status, first.partial) == ("over_budget", "in short")
    assert results(first)[0].endswith("[cut]")
    outcome = await resume(store, "r1", agent=lead, model=model(), limits=Limits(tokens=900_000))
    assert (outcome.text, results(outcome)[0]) == ("done", long)


async def test_a_message_that_joined_the_wrap_up_joins_after_the_results_again() -> None:
    """What was sent while a call ran that was then stopped is there once, behind the results of that turn."""

    def model() -> ScriptedModel:
        return ScriptedModel(by_turn(call("stare", seconds=60), say("done")))

    store = MemoryStore()
    async with start(WORKER, "go", model=model(), store=store, limits=Limits(seconds=30)) as running:
        await asyncio.sleep(1)
        assert running.send("mind the gap")
        first = await running.outcome()
    assert first.status == "timed_out"
    assert [m.text for m in first.messages].count("mind the gap") == 1
    outcome = await resume(store, "r1", agent=WORKER, model=model(), limits=Limits(seconds=300))
    assert [m.text for m in outcome.messages] == ["go", "", "saw it all", "mind the gap", "done"]
    again = await died(store, a(MessageJoined, run="r1"), 3)
    assert (await resume(again, "r1", agent=WORKER, model=model())).messages == outcome.messages


async def test_a_dropped_wrap_up_does_not_count_as_input() -> None:
    """The estimate of the next request is of the conversation as it is, not as it was with the wrap-up."""
    much = wrapped("so far", usage=Usage(1, 50_000, 10))

    def model() -> ScriptedModel:
        return ScriptedModel(by_turn(call("look", what="a"), say("done"), wrap=much))

    store = MemoryStore()
    await run(WORKER, "go", model=model(), store=store, limits=Limits(turns=1))
    await resume(store, "r1", agent=WORKER, model=model(), limits=Limits(turns=2))
    last = [e for e in await journal(store) if isinstance(e, TurnStarted)][-1]
    assert 0 < last.input_tokens < 5_000


async def test_calls_are_numbered_on() -> None:
    """The count that each call's events carry goes on where it was; a call that runs again keeps its number."""
    whole = MemoryStore()

    def model() -> ScriptedModel:
        return ScriptedModel(by_turn(*[call("look", what=w) for w in "abc"], say("done")))

    await run(WORKER, "go", model=model(), store=whole)
    store = await died(whole, a(CallStarted, run="r1"), 2)
    await resume(store, "r1", agent=WORKER, model=model())
    assert [e.count for e in await journal(store) if isinstance(e, CallStarted)] == [1, 2, 2, 3]
    assert [e.count for e in await journal(store) if isinstance(e, CallEnded)] == [1, 2, 3]


async def test_a_call_that_runs_again_is_charged_once() -> None:
    """The last call that the limit allows was counted when it began, so it may run again after a death."""
    whole = MemoryStore()

    def model() -> ScriptedModel:
        return ScriptedModel(by_turn(call("look", what="a"), call("look", what="b"), say("done")))

    await run(WORKER, "go", model=model(), store=whole, limits=Limits(calls=1))
    store = await died(whole, a(CallStarted, run="r1"))
    outcome = await resume(store, "r1", agent=WORKER, model=model())
    assert results(outcome)[0] == "saw a"
    assert results(outcome)[1].startswith("Not run: ")


async def test_a_person_is_told_of_everything_that_was_spent() -> None:
    """The usage in an approval request counts all lives, a lost request too."""
    seen: list[Usage] = []

    async def person(request: ApprovalRequest) -> Decision:
        seen.append(request.total_usage)
        return allow()

    def model() -> ScriptedModel:
        return ScriptedModel(by_turn(call("look", what="a"), call("change", what="b"), say("done")))

    whole = MemoryStore()
    await run(WORKER, "go", model=model(), store=whole, approver=person)
    store = await died(whole, a(TurnStarted, run="r1"), 2)
    await resume(store, "r1", agent=WORKER, model=model(), approver=person)
    assert [(u.requests, u.estimated) for u in seen] == [(2, False), (3, True)]


async def test_warnings_of_an_earlier_life_are_in_the_outcome_once() -> None:
    """What a person should know does not get lost with the process that knew it."""

    async def broken(request: ApprovalRequest) -> Decision:
        raise ValueError("no hands")

    def model() -> ScriptedModel:
        return ScriptedModel(by_turn(call("change", what="a"), say("done")))

    whole = MemoryStore()
    first = await run(WORKER, "go", model=model(), store=whole, approver=broken)
    assert len(first.warnings) == 1
    store = await died(whole, a(Warned, run="r1"))
    outcome = await resume(store, "r1", agent=WORKER, model=model(), approver=broken)
    assert outcome.warnings[0] == first.warnings[0]
    store = await died(whole, a(CallEnded, run="r1"))
    assert (await resume(store, "r1", agent=WORKER, model=model())).warnings == first.warnings


async def test_a_grant_for_the_tree_is_not_for_another_tool_of_that_name() -> None:
    """After a resume, too, an allowance is for the very tool that was asked about."""

    @tool(name="change")
    async def other(what: str) -> str:
        """Changes something else."""
        return f"broke {what}"

    lead = Agent("lead", subagents=[WORKER, Agent("other", tools=[other])])

    def model() -> ScriptedModel:
        tasks = [call("task", agent=name, prompt="x") for name in ("worker", "other", "worker")]
        step = by_turn(call("change", what="a"), say("ok"))
        return ScriptedModel({"lead": by_turn(*tasks, say("done")), "worker": step, "other": step})

    asked: list[tuple[str, ...]] = []

    async def person(request: ApprovalRequest) -> Decision:
        asked.append(request.path)
        return allow(scope="tree")

    whole = MemoryStore()
    await run(lead, "go", model=model(), store=whole, approver=person)
    assert asked == [("lead", "worker"), ("lead", "other")]
    asked.clear()
    store = await died(whole, a(ApprovalAnswered, run="r1.1"))
    await resume(store, "r1", agent=lead, model=model(), approver=person)
    assert asked == [("lead", "other")]


async def test_a_delegation_that_was_stopped_before_it_began_begins_after_the_resume() -> None:
    """A child that waited for a place when its tree was cancelled is started when the tree goes on."""
    lead = Agent("lead", subagents=[WORKER])

    def model() -> ScriptedModel:
        both = calls(*(call("task", agent="worker", prompt=p) for p in ("one", "two")))
        return ScriptedModel({"lead": by_turn(both, say("done")), "worker": by_turn(say("ok", delay=20))})

    store = MemoryStore()
    async with start(lead, "go", model=model(), store=store, limits=Limits(concurrency=1)) as running:
        await asyncio.sleep(10)
        await running.cancel()
    assert sum(isinstance(e, RunStarted) for e in await journal(store)) == 2
    outcome = await resume(store, "r1", agent=lead, model=model())
    assert [(c.run_id, c.text) for c in outcome.children] == [("r1.1", "ok"), ("r1.2", "ok")]


async def test_a_child_that_is_not_taken_up_again_has_an_end_and_can_be_taken_up_later() -> None:
    """With no time left the open child is `interrupted`, in the journal too; with more time it goes on from where it was."""
    lead = Agent("lead", subagents=[WORKER])

    def model() -> ScriptedModel:
        return ScriptedModel(
            {
                "lead": by_turn(call("task", agent="worker", prompt="x"), say("done")),
                "worker": by_turn(call("look", what="a"), call("stare", seconds=50), say("ok")),
            }
        )

    whole = MemoryStore()
    await run(lead, "go", model=model(), store=whole)
    store = await died(whole, a(CallEnded, run="r1.1"), 2)
    idle = model()
    outcome = await resume(store, "r1", agent=lead, model=idle, limits=Limits(seconds=20))
    assert [outcome.status, outcome.children[0].status] == ["timed_out", "interrupted"]
    tree = fold(await journal(store))
    assert list(tree.intents()) == []
    assert tree.outcome().children == outcome.children
    ended = [e.run for e in await journal(store) if isinstance(e, RunEnded)]
    assert ended == ["r1.1", "r1"]
    again = model()
    outcome = await resume(store, "r1", agent=lead, model=again, limits=Limits(seconds=600))
    assert (outcome.text, outcome.children[0].text) == ("done", "ok")
    assert [r.run_id for r in again.requests] == ["r1.1", "r1"]
    assert outcome.children[0].usage.requests == 3


async def test_a_child_that_a_person_cancelled_as_the_process_died_stays_cancelled() -> None:
    """A cancel that is recorded holds, also when the process died before the child had stopped."""
    lead = Agent("lead", subagents=[WORKER])

    def model() -> ScriptedModel:
        both = calls(*(call("task", agent="worker", prompt=p) for p in ("one", "two")))
        worker = by_turn(call("stare", seconds=50), say("ok"))
        return ScriptedModel({"lead": by_turn(both, say("done")), "worker": worker})

    whole = MemoryStore()
    async with start(lead, "go", model=model(), store=whole) as running:
        await asyncio.sleep(10)
        await running.cancel("not this one", run="r1.1")
        await running.outcome()
    store, again = await died(whole, a(CancelRequested, run="r1.1")), model()
    outcome = await resume(store, "r1", agent=lead, model=again)
    assert [c.status for c in outcome.children] == ["cancelled", "completed"]
    assert "not this one" in outcome.children[0].reason
    assert [r.run_id for r in again.requests] == ["r1.2", "r1"]
    assert fold(await journal(store)).outcome().children == outcome.children


async def test_a_child_that_is_not_taken_up_again_has_no_open_call() -> None:
    """Law 5: each call that it had open has a result; of one that changes things nobody knows whether it happened."""

    @tool
    async def rebuild() -> str:
        """Changes something, slowly."""
        await asyncio.sleep(50)
        return "rebuilt"

    lead = Agent("lead", subagents=[Agent("worker", tools=[look, stare, rebuild])])

    def model() -> ScriptedModel:
        worker = by_turn(calls(call("look", what="a"), call("stare", seconds=50), call("rebuild")), say("ok"))
        return ScriptedModel(
            {"lead": by_turn(call("task", agent="worker", prompt="go"), say("done")), "worker": worker}
        )

    whole = MemoryStore()
    policy = ["allow rebuild"]
    async with start(lead, "go", model=model(), store=whole, policy=policy) as running:
        await asyncio.sleep(10)
        await running.cancel("enough", run="r1.1")
        await running.outcome()
    store = await died(whole, a(CancelRequested, run="r1.1"))
    outcome = await resume(store, "r1", agent=lead, model=model(), policy=policy)
    child = outcome.children[0]
    assert (outcome.text, child.status) == ("done", "cancelled")
    assert results(child) == ["saw a", NOT_FINISHED, UNKNOWN]
    assert [entry.name for entry in child.calls] == ["look", "stare", "rebuild"]
    assert fold(await journal(store)).outcome() == outcome


async def test_what_goes_on_is_decided_once() -> None:
    """A child that goes on with its parent does so too when the process dies before it was taken up."""
    lead = Agent("lead", subagents=[WORKER], tools=[stare])

    def model() -> ScriptedModel:
        both = calls(call("task", agent="worker", prompt="x"), call("stare", seconds=100))
        worker = by_turn(call("look", what="a"), call("stare", seconds=50), say("ok"))
        return ScriptedModel({"lead": by_turn(both, say("done")), "worker": worker})

    whole = MemoryStore()
    first = await run(lead, "go", model=model(), store=whole, limits=Limits(seconds=30))
    assert [first.status, first.children[0].status] == ["timed_out", "timed_out"]
    await resume(whole, "r1", agent=lead, model=model(), limits=Limits(seconds=600))
    store = await died(whole, a(RunResumed, run="r1"))
    outcome = await resume(store, "r1", agent=lead, model=model(), limits=Limits(seconds=600))
    assert (outcome.text, outcome.children[0].text) == ("done", "ok")


async def test_a_cancelled_tree_whose_process_died_before_its_end_goes_on_all_the_same() -> None:
    """However much of the stopping was recorded, what was stopped goes on: no call is left as not finished."""
    lead = Agent("lead", subagents=[WORKER], tools=[stare])

    def model() -> ScriptedModel:
        both = calls(call("task", agent="worker", prompt="x"), call("stare", seconds=30))
        worker = by_turn(call("look", what="a"), call("stare", seconds=50), say("ok"))
        return ScriptedModel({"lead": by_turn(both, say("done")), "worker": worker})

    whole = MemoryStore()
    async with start(lead, "go", model=model(), store=whole) as running:
        await asyncio.sleep(10)
        await running.cancel("enough")
    events = await journal(whole)
    asked = next(n for n, e in enumerate(events) if isinstance(e, CancelRequested))
    for last in events[asked:]:
        store = await died(whole, a(type(last), seq=last.seq))
        outcome = await resume(store, "r1", agent=lead, model=model())
        assert (outcome.text, outcome.children[0].text) == ("done", "ok"), last.kind
        assert results(outcome)[1] == "saw it all"


async def test_interrupted_runs_with_open_children_go_on_at_every_level() -> None:
    """A whole branch that was left open, written down as `interrupted` and taken up later, still ends as it would have."""
    lead = Agent("lead", subagents=[Agent("mid", subagents=[WORKER])])

    def model() -> ScriptedModel:
        worker = by_turn(call("look", what="a"), call("stare", seconds=50), say("ok"))
        return ScriptedModel(
            {
                "lead": by_turn(call("task", agent="mid", prompt="x"), say("done")),
                "mid": by_turn(call("task", agent="worker", prompt="x"), say("half")),
                "worker": worker,
            }
        )

    whole = MemoryStore()
    await run(lead, "go", model=model(), store=whole)
    store = await died(whole, a(CallStarted, run="r1.1.1"), 2)
    short = await resume(store, "r1", agent=lead, model=model(), limits=Limits(seconds=0.0))
    assert [short.children[0].status, short.children[0].children[0].status] == ["interrupted"] * 2
    again = model()
    outcome = await resume(store, "r1", agent=lead, model=again, limits=Limits(seconds=600))
    assert (outcome.text, outcome.children[0].text, outcome.children[0].children[0].text) == (
        "done",
        "half",
        "ok",
    )
    assert [r.run_id for r in again.requests] == ["r1.1.1", "r1.1", "r1"]
    assert list(fold(await journal(store)).intents()) == []


async def test_what_was_sent_and_had_not_joined_when_the_process_died_joins_once() -> None:
    """`Running.send` is on record at once, so a message that waits for the next turn survives a kill."""
    store, lead = MemoryStore(), Agent("lead", tools=[stare])
    model = ScriptedModel({"lead": by_turn(call("stare", seconds=50), say("done"))})
    async with start(lead, "go", model=model, store=store) as running:
        await asyncio.sleep(1)
        assert running.send("and in French")
        await asyncio.sleep(1)
        dead = MemoryStore()
        await dead.claim("r1", new=True)
        for event in await journal(store):
            dead.append(event)
        await dead.release("r1")
        await running.cancel()
    outcome = await resume(dead, "r1", agent=lead, model=model)
    assert outcome.ok
    assert [m.text for m in outcome.messages].count("and in French") == 1


@pytest.mark.parametrize("last", [RunStarted, TurnStarted, CallStarted, CallEnded, RunEnded])
async def test_a_child_that_had_begun_goes_on_though_its_task_had_a_secret(last: type[Event]) -> None:
    """Only a call that would be made anew needs its arguments: a child has its conversation, without the secret."""
    lead = Agent("lead", subagents=[WORKER])

    def model() -> ScriptedModel:
        asked = call("task", agent="worker", prompt=f"Log in with sk-{REDACTED}")
        return ScriptedModel(
            {"lead": by_turn(asked, say("done")), "worker": by_turn(call("look", what="a"), say("in"))}
        )

    store = MemoryStore()
    whole = await run(lead, "go", model=model(), store=store)
    again = await died(store, a(last, run="r1.1"))
    outcome = await resume(again, "r1", agent=lead, model=model())
    assert [(child.run_id, child.status, child.text) for child in outcome.children] == [
        ("r1.1", "completed", "in")
    ]
    assert [m.text for m in outcome.messages][:2] == [m.text for m in whole.messages][:2]
    assert results(outcome) == results(whole) == ["in"]


async def test_a_call_that_had_begun_and_held_a_secret_is_said_to_have_begun() -> None:
    """It is not made again with what stands in its place; nobody is told that it was never made."""

    def model() -> ScriptedModel:
        return ScriptedModel(by_turn(call("look", what=REDACTED), say("done")))

    store = MemoryStore()
    await run(WORKER, "go", model=model(), store=store)
    again = await died(store, a(CallStarted))
    (told,) = results(await resume(again, "r1", agent=WORKER, model=model()))
    assert told.startswith("Not run again: the run was interrupted before this call finished")
