"""Resuming every kind of child, answer and account: ad hoc, named, summarised, structured, kept, in circles, overrun."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from stories import by_turn, journal, timeless

from remit import Agent, Limits, Outcome, Request, Usage, resume, run, tool
from remit.history.fold import fold
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, fail, say
from remit.testing.scripted import Line
from remit.types.events import (
    ArtifactSaved,
    CallEnded,
    CallStarted,
    DelegationRejected,
    Event,
    Overran,
    ReplyReceived,
    RunEnded,
    RunStarted,
    TurnStarted,
)
from remit.types.messages import ToolMessage

DELEGATING = ("task", "subagent", "subagent_helper")


@tool(tier="observe")
async def look(what: str) -> str:
    """Looks for a while."""
    await asyncio.sleep(1)
    return f"saw {what}"


def unpaid(outcome: Outcome) -> Outcome:
    """Without what a lost request, or time, adds: usage, durations, and the numbers a parent is told of its child."""
    bare = msgspec.structs.replace(timeless(outcome), usage=Usage(), total_usage=Usage())
    logs = tuple(msgspec.structs.replace(log, duration_ms=0) for log in bare.calls)
    said = [
        msgspec.structs.replace(m, note="") if isinstance(m, ToolMessage) and m.name in DELEGATING else m
        for m in bare.messages
    ]
    below = tuple(unpaid(child) for child in outcome.children)
    return msgspec.structs.replace(bare, calls=logs, messages=tuple(said), children=below)


async def cut_off(store: MemoryStore, after: int) -> MemoryStore:
    """The store of a process that died after so many events."""
    dead = MemoryStore()
    await dead.claim("r1", new=True)
    for event in (await journal(store))[:after]:
        dead.append(event)
        if isinstance(event, ArtifactSaved):
            text = await store.load_artifact("r1", event.artifact.id, 0, 1_000_000)
            await dead.save_artifact("r1", event.artifact.id, text or "")
    await dead.release("r1")
    return dead


async def check_everywhere(
    agent: Agent, make: Callable[[], ScriptedModel], limits: Limits | None = None
) -> Outcome:
    """Wherever the process died, the resumed outcome is the one without a death, but for lost requests. Returns that."""
    store, model = MemoryStore(), make()
    whole = await run(agent, "go", model=model, store=store, limits=limits, policy=["allow *"])
    events = await journal(store)
    for cut in range(1, len(events)):
        dead, again = await cut_off(store, cut), make()
        await asyncio.sleep(1000)
        outcome = await resume(dead, "r1", agent=agent, model=again, policy=["allow *"])
        lost = sum(intent.kind == "model" for intent in fold(events[:cut]).intents())
        assert unpaid(outcome) == unpaid(whole), f"cut after {cut} {events[cut - 1].kind}"
        assert outcome.output == whole.output
        assert outcome.total_usage.requests == whole.total_usage.requests + lost
        assert again.calls_made == model.calls_made - recorded(events[:cut])
        assert timeless(fold(await journal(dead)).outcome()) == timeless(outcome)
    return whole


def recorded(events: list[Event]) -> int:
    return sum(isinstance(e, ReplyReceived) for e in events)


async def test_an_ad_hoc_child_and_its_ad_hoc_child_are_taken_up_again() -> None:
    """An ad hoc child keeps its tools, its label, its answer as an artifact and its summary, wherever it was cut off."""
    lead = Agent("lead", tools=[look], adhoc=True)
    below = call("subagent", label="deep", task_prompt="deeper", allowed_tools=["look"])

    def worker(request: Request) -> Line:
        if request.messages[0].text == "deeper":
            return by_turn(call("look", what="it"), say("deep answer"), wrap="deep summary")(request)
        return by_turn(below, say("wide answer"), wrap="wide summary")(request)

    def make() -> ScriptedModel:
        first = call("subagent", label="wide", task_prompt="wider")
        return ScriptedModel({"lead": by_turn(first, say("done")), "subagent": worker})

    whole = await check_everywhere(lead, make)
    child = whole.children[0]
    assert (child.label, child.text, child.artifacts[0].name) == ("wide", "wide summary", "answer")
    assert child.children[0].text == "deep summary"


async def test_named_and_summarised_children_are_taken_up_again() -> None:
    """`subagent_<name>` and `summary="always"` give the same results wherever they were cut off."""
    lead = Agent(
        "lead", subagents=[Agent("helper", tools=[look], summary="always")], surface="subagent_<name>"
    )

    def make() -> ScriptedModel:
        both = calls(call("subagent_helper", task="one"), call("subagent_helper", task="two"))
        return ScriptedModel(
            {"lead": by_turn(both, say("done")), "helper": by_turn(call("look", what="x"), say("long"))}
        )

    whole = await check_everywhere(lead, make)
    assert [c.text for c in whole.children] == ["in short", "in short"]


async def test_a_structured_answer_survives() -> None:
    """An answer that had to be asked for twice has the same value wherever the process died, in a child too."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    lead = Agent("lead", output=schema, subagents=[Agent("child", output=schema)])

    def make() -> ScriptedModel:
        return ScriptedModel(
            {
                "lead": by_turn(call("task", agent="child", prompt="x"), say("four"), say('{"n": 4}')),
                "child": by_turn(say("three"), say('{"n": 3}')),
            }
        )

    whole = await check_everywhere(lead, make)
    assert whole.output == {"n": 4}


async def test_a_structured_answer_has_its_tries_over_all_lives() -> None:
    """An answer that never matches is asked for as often as without a death, not anew after each."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    whole = await check_everywhere(
        Agent("lead", output=schema), lambda: ScriptedModel(by_turn(*[say("no number")] * 9))
    )
    assert (whole.status, whole.turns) == ("failed", 3)


async def test_a_long_answer_is_kept_once_and_read_after_a_resume() -> None:
    """`read_artifact` reads after a resume what was kept before it, and the artifact is listed once."""
    lead = Agent("lead", subagents=[Agent("child", tools=[look])])
    long = "word " * 200

    def make() -> ScriptedModel:
        return ScriptedModel(
            {
                "lead": by_turn(
                    call("task", agent="child", prompt="x"),
                    call("read_artifact", artifact="r1.1/text", start=990),
                    say("done"),
                ),
                "child": by_turn(call("look", what="x"), say(long)),
            }
        )

    whole = await check_everywhere(lead, make, Limits(result_chars=100))
    read = [m for m in whole.messages if isinstance(m, ToolMessage)][-1]
    assert (read.content, [a.id for a in whole.children[0].artifacts]) == (long[990:], ["r1.1/text"])


async def test_circles_are_seen_over_all_lives() -> None:
    """The nudges and the stop for the same call with the same result come when they would have come."""
    agent = Agent("lead", tools=[look])
    whole = await check_everywhere(
        agent, lambda: ScriptedModel(by_turn(*[call("look", what="a")] * 9, wrap="circles"))
    )
    assert (whole.status, whole.reason, whole.turns) == ("incomplete", "repeating", 7)


async def test_unknown_malformed_denied_and_rejected_calls_stay_what_they_were() -> None:
    """Calls that never ran have the same results after a resume, and delegations that were rejected are not tried again."""
    lead = Agent("lead", tools=[look], subagents=[Agent("child")], policy=["deny chang?", "allow *"])

    def make() -> ScriptedModel:
        odd = calls(
            call("nothing", x=1),
            call("look", "not json"),
            call("look", wrong=1),
            call("change", what="a"),
            call("task", agent="nobody", prompt="x"),
            call("look", what="b"),
        )
        return ScriptedModel({"lead": by_turn(odd, say("done")), "child": by_turn(say("never"))})

    whole = await check_everywhere(lead, make, Limits(delegations=0))
    assert [c.success for c in whole.calls] == [False] * 5 + [True]


async def test_a_failed_child_is_not_tried_again() -> None:
    """A child that failed is a recorded result, also when the process died before its parent read it."""
    lead = Agent("lead", subagents=[Agent("child")])

    def make() -> ScriptedModel:
        return ScriptedModel(
            {
                "lead": by_turn(call("task", agent="child", prompt="x"), say("done")),
                "child": by_turn(fail("no key", "auth")),
            }
        )

    store = MemoryStore()
    whole = await run(lead, "go", model=make(), store=store)
    events = await journal(store)
    ended = next(n for n, e in enumerate(events) if isinstance(e, RunEnded) and e.run == "r1.1")
    dead, again = await cut_off(store, ended + 1), make()
    outcome = await resume(dead, "r1", agent=lead, model=again)
    assert unpaid(outcome) == unpaid(whole)
    assert [r.agent for r in again.requests] == ["lead"]


@pytest.mark.parametrize("last", [RunStarted, CallStarted, TurnStarted])
async def test_a_child_that_had_only_begun_is_begun_once(last: type[Event]) -> None:
    """A child whose start is recorded is not a second child after a resume, and is charged once."""
    lead = Agent("lead", subagents=[Agent("child", tools=[look])])

    def make() -> ScriptedModel:
        return ScriptedModel(
            {
                "lead": by_turn(call("task", agent="child", prompt="x"), say("done")),
                "child": by_turn(call("look", what="a"), say("ok")),
            }
        )

    store = MemoryStore()
    await run(lead, "go", model=make(), store=store, limits=Limits(delegations=1, calls=2))
    events = await journal(store)
    at = max(n for n, e in enumerate(events) if isinstance(e, last) and (e.run == "r1.1"))
    dead = await cut_off(store, at + 1)
    outcome = await resume(dead, "r1", agent=lead, model=make())
    assert [(c.run_id, c.status) for c in outcome.children] == [("r1.1", "completed")]
    spent = fold(await journal(dead)).spending()["r1"]
    assert (spent.calls, spent.delegations) == (2, 1)
    assert not [e for e in await journal(dead) if isinstance(e, DelegationRejected)]


def greedy() -> ScriptedModel:
    much = Usage(1, 50, 9000)
    return ScriptedModel(by_turn(call("look", what="a", usage=much), say("done"), wrap="enough"))


async def test_an_overrun_account_stays_closed_unless_its_limit_is_raised() -> None:
    """After a resume an account that a provider overran takes no reservation, until more tokens are allowed."""
    agent = Agent("lead", tools=[look])
    store = MemoryStore()
    first = await run(agent, "go", model=greedy(), store=store, limits=Limits(tokens=20_000))
    assert first.status == "over_budget"
    events = await journal(store)
    at = next(n for n, e in enumerate(events) if isinstance(e, CallEnded))
    assert any(isinstance(e, Overran) for e in events[:at])
    dead, again = await cut_off(store, at + 1), greedy()
    outcome = await resume(dead, "r1", agent=agent, model=again)
    assert (outcome.status, again.calls_made) == ("over_budget", 0)
    again = greedy()
    outcome = await resume(store, "r1", agent=agent, model=again, limits=Limits(tokens=40_000))
    assert (outcome.status, outcome.text, again.calls_made) == ("completed", "done", 1)
