"""Resuming trees that ended short of their answer, and those that did not: what goes on, from where, and what stays."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from stories import DAY_S, a, by_turn, died, folded, journal, look, stare, timeless

from remit import Agent, Limits, Outcome, Request, Usage, reopen, resume, run, start
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, fail, refuse, say, wait, wrapped
from remit.testing.scripted import Line
from remit.types.events import CancelRequested, Event, ReplyReceived, RunResumed, TurnStarted
from remit.types.messages import AssistantMessage, ToolMessage
from remit.types.ports import Price


def asked(model: ScriptedModel) -> list[tuple[str, int]]:
    """Who was asked, and at which of its turns."""
    return [(r.run_id, 1 + sum(isinstance(m, AssistantMessage) for m in r.messages)) for r in model.requests]


LEAF = Agent("leaf", tools=[look, stare])
MID = Agent("mid", subagents=[LEAF])
LEAD = Agent("lead", subagents=[MID], tools=[look])


def three_levels() -> ScriptedModel:
    return ScriptedModel(
        {
            "lead": by_turn(call("task", agent="mid", prompt="all of it"), say("all done")),
            "mid": by_turn(call("task", agent="leaf", prompt="a part"), say("mid done")),
            "leaf": by_turn(call("look", what="a"), call("stare", seconds=50), say("leaf done")),
        }
    )


async def test_a_cancelled_tree_goes_on_at_every_level_from_where_it_was() -> None:
    """Resuming a cancelled tree takes up each run where it was: the same runs, no turn asked for again."""
    store, model = MemoryStore(), three_levels()
    async with start(LEAD, "go", model=model, store=store) as running:
        await asyncio.sleep(10)
        await running.cancel("enough")
        stopped = await running.outcome()
    assert [stopped.status, stopped.children[0].status] == ["cancelled", "cancelled"]
    again = three_levels()
    outcome = await resume(store, "r1", agent=LEAD, model=again)
    assert (outcome.status, outcome.text) == ("completed", "all done")
    assert [c.status for c in (outcome.children[0], outcome.children[0].children[0])] == ["completed"] * 2
    assert asked(model) == [("r1", 1), ("r1.1", 1), ("r1.1.1", 1), ("r1.1.1", 2)]
    assert asked(again) == [("r1.1.1", 3), ("r1.1", 2), ("r1", 2)]
    assert outcome.total_usage.requests == 7
    assert timeless((await folded(store)).outcome()) == timeless(outcome)


async def test_a_child_that_a_person_cancelled_by_itself_stays_cancelled() -> None:
    """Whoever cancels one child means it: it does not go on when the tree does; its sibling does."""
    lead = Agent("lead", subagents=[LEAF])

    def model() -> ScriptedModel:
        both = calls(call("task", agent="leaf", prompt="one"), call("task", agent="leaf", prompt="two"))
        return ScriptedModel(
            {"lead": by_turn(both, say("done")), "leaf": by_turn(call("stare", seconds=50), say("seen"))}
        )

    store = MemoryStore()
    async with start(lead, "go", model=model(), store=store) as running:
        await asyncio.sleep(5)
        await running.cancel("not this one", run="r1.1")
        await asyncio.sleep(5)
        await running.cancel("nor the rest")
    again = model()
    outcome = await resume(store, "r1", agent=lead, model=again)
    assert [c.status for c in outcome.children] == ["cancelled", "completed"]
    assert asked(again) == [("r1.2", 2), ("r1", 2)]
    said = [m for m in outcome.messages if isinstance(m, ToolMessage)]
    assert "not this one" in said[0].text
    assert "seen" in said[1].text


async def test_what_goes_on_after_a_cancel_does_not_depend_on_when_the_process_died() -> None:
    """A child that had ended short is taken up again, also where the process died before the stopped ends were written."""
    lead = Agent("lead", subagents=[LEAF], tools=[stare])

    def model(said: str) -> ScriptedModel:
        both = calls(call("stare", seconds=50), call("task", agent="leaf", prompt="say something"))
        return ScriptedModel({"lead": by_turn(both, say("done")), "leaf": by_turn(say(""), say(said))})

    whole = MemoryStore()
    async with start(lead, "go", model=model(""), store=whole) as running:
        await asyncio.sleep(5)
        await running.cancel("enough")
    for store in (await died(whole, a(CancelRequested)), whole):
        outcome = await resume(store, "r1", agent=lead, model=model("something"))
        assert [outcome.status, outcome.children[0].status] == ["completed", "completed"]
        assert outcome.children[0].text == "something"


async def test_a_cancelled_tree_can_be_cancelled_and_resumed_again() -> None:
    """A second cancel and a second resume behave as the first."""
    store = MemoryStore()
    async with start(LEAD, "go", model=three_levels(), store=store) as running:
        await asyncio.sleep(0.5)
        await running.cancel()
    for _ in range(2):
        stopped = await resume_and_cancel(store, three_levels())
        assert stopped.status == "cancelled"
    outcome = await resume(store, "r1", agent=LEAD, model=three_levels())
    assert (outcome.status, outcome.total_usage.requests) == ("completed", 7)
    assert [r.id for r in (await folded(store)).runs.values()] == ["r1", "r1.1", "r1.1.1"]


async def resume_and_cancel(store: MemoryStore, model: ScriptedModel) -> Outcome:
    async with reopen(store, "r1", agent=LEAD, model=model) as running:
        await asyncio.sleep(20)
        await running.cancel("again")
        return await running.outcome()


def timed() -> ScriptedModel:
    return ScriptedModel(
        by_turn(call("look", what="a"), call("stare", seconds=200), say("done"), wrap="half of it")
    )


async def test_timed_out_and_not_raised_ends_the_same_without_a_request() -> None:
    """Without more time there is nothing to do: no request is made, and the recorded wrap-up is used again."""
    store = MemoryStore()
    first = await run(LEAF, "go", model=timed(), store=store, limits=Limits(seconds=100))
    assert (first.status, first.partial) == ("timed_out", "half of it")
    again = timed()
    await asyncio.sleep(DAY_S)
    outcome = await resume(store, "r1", agent=LEAF, model=again)
    assert again.calls_made == 0
    assert (outcome.status, outcome.partial, outcome.usage) == (first.status, first.partial, first.usage)
    roles = ["UserMessage", *["AssistantMessage", "ToolMessage"] * 2, "UserMessage", "AssistantMessage"]
    assert [type(m).__name__ for m in outcome.messages] == roles
    assert timeless((await folded(store)).outcome()) == timeless(outcome)


async def test_timed_out_and_raised_goes_on() -> None:
    """With more time the interrupted call runs again, and the wrap-up is no part of the conversation any more."""
    store = MemoryStore()
    await run(LEAF, "go", model=timed(), store=store, limits=Limits(seconds=100))
    again = timed()
    outcome = await resume(
        store, "r1", agent=LEAF, model=again, limits=Limits(seconds=1000, call_seconds=None)
    )
    assert (outcome.status, outcome.text) == ("completed", "done")
    assert asked(again) == [("r1", 3)]
    assert not any("You have to stop here" in m.text for m in outcome.messages)
    assert outcome.usage.requests == 4
    assert 300 - 10 <= outcome.duration_s <= 300


PRICED = Price(1.0, 1.0)


def paid(usage: Usage, price: Price | None = None) -> ScriptedModel:
    def play(request: Request) -> Line:
        if request.tool_choice == "none":
            return wrapped("so far", usage=usage)
        turn = sum(isinstance(m, AssistantMessage) for m in request.messages)
        return say("done", usage=usage) if turn == 4 else call("look", what=f"{turn}", usage=usage)

    return ScriptedModel(play, price=price)


CAPS = [
    pytest.param(Limits(requests=2), Limits(requests=9), id="requests"),
    pytest.param(Limits(tokens=9000), Limits(tokens=90_000), id="tokens"),
    pytest.param(Limits(usd=0.009), Limits(usd=1.0), id="usd"),
]


@pytest.mark.parametrize(("few", "more"), CAPS)
async def test_over_budget_and_not_raised_ends_the_same_without_a_request(few: Limits, more: Limits) -> None:
    """A budget that is used up stays used up when the tree is resumed."""
    usage, store = Usage(1, 2000, 1000, usd=0.003), MemoryStore()
    first = await run(LEAF, "go", model=paid(usage, PRICED), store=store, limits=few)
    assert first.status == "over_budget"
    again = paid(usage, PRICED)
    outcome = await resume(store, "r1", agent=LEAF, model=again)
    assert again.calls_made == 0
    assert timeless(outcome) == timeless(first)


@pytest.mark.parametrize(("few", "more"), CAPS)
async def test_over_budget_and_raised_goes_on(few: Limits, more: Limits) -> None:
    """A raised budget counts what was spent before, and the run goes on with the rest."""
    usage, store = Usage(1, 2000, 1000, usd=0.003), MemoryStore()
    first = await run(LEAF, "go", model=paid(usage, PRICED), store=store, limits=few)
    again = paid(usage, PRICED)
    outcome = await resume(store, "r1", agent=LEAF, model=again, limits=more)
    assert (outcome.status, outcome.text) == ("completed", "done")
    assert outcome.usage.requests == first.usage.requests + again.calls_made == 5
    assert timeless((await folded(store)).outcome()) == timeless(outcome)


async def test_a_raised_budget_is_exact_over_both_lives() -> None:
    """Raised to six requests, a tree that used two makes four more, and no seventh."""
    usage, store = Usage(1, 20, 10), MemoryStore()

    def forever() -> ScriptedModel:
        return ScriptedModel(lambda request: call("look", what=f"{len(request.messages)}", usage=usage))

    await run(LEAF, "go", model=forever(), store=store, limits=Limits(requests=2))
    again = forever()
    outcome = await resume(store, "r1", agent=LEAF, model=again, limits=Limits(requests=6))
    assert outcome.status == "over_budget"
    assert (again.calls_made, outcome.usage.requests) == (4, 6)


async def test_a_budget_that_is_lowered_below_what_was_spent_ends_the_run() -> None:
    """Limits given to `resume` replace those recorded also downwards: nothing is sent that does not fit."""
    store = MemoryStore()
    async with start(LEAD, "go", model=three_levels(), store=store) as running:
        await asyncio.sleep(10)
        await running.cancel()
    again = three_levels()
    outcome = await resume(store, "r1", agent=LEAD, model=again, limits=Limits(requests=3))
    assert (outcome.status, again.calls_made) == ("over_budget", 0)
    assert timeless((await folded(store)).outcome()) == timeless(outcome)


async def test_calls_and_delegations_are_exact_over_both_lives() -> None:
    """The cap on calls and on delegations counts what the first life did."""
    store = MemoryStore()
    lead = Agent("lead", subagents=[Agent("leaf", tools=[look])])

    def model() -> ScriptedModel:
        more = [call("task", agent="leaf", prompt=f"{n}") for n in range(6)]
        return ScriptedModel(
            {
                "lead": by_turn(*more, say("done")),
                "leaf": by_turn(call("look", what="a", delay=1), say("ok", delay=1)),
            }
        )

    async with start(
        lead, "go", model=model(), store=store, limits=Limits(calls=7, delegations=5)
    ) as running:
        await asyncio.sleep(3)
        await running.cancel()
    outcome = await resume(store, "r1", agent=lead, model=model())
    assert (outcome.status, len(outcome.children)) == ("completed", 4)
    spent = (await folded(store)).spending()["r1"]
    assert (spent.calls, spent.delegations) == (7, 4)
    assert sum(len(child.calls) for child in outcome.children) == 4


async def test_a_stalled_run_is_asked_again() -> None:
    """A run that stalled goes on by asking again; what the silence cost stays counted."""
    store = MemoryStore()
    limits = Limits(stall_seconds=10, seconds=None)
    silent = ScriptedModel([wait(10_000, say("never"))] * 9, streams=True)
    first = await run(LEAF, "go", model=silent, store=store, limits=limits)
    assert first.status == "stalled"
    outcome = await resume(store, "r1", agent=LEAF, model=ScriptedModel([say("at last")]))
    assert (outcome.status, outcome.text) == ("completed", "at last")
    assert outcome.usage.requests == silent.calls_made + 1


async def test_a_run_at_its_turn_limit_goes_on_only_with_more_turns() -> None:
    """`incomplete: turns` ends the same without a request, and goes on when `turns` is raised."""

    def model() -> ScriptedModel:
        return ScriptedModel(
            by_turn(call("look", what="a"), call("look", what="b"), say("done"), wrap="a and b")
        )

    store = MemoryStore()
    first = await run(LEAF, "go", model=model(), store=store, limits=Limits(turns=2))
    assert (first.status, first.reason, first.partial) == ("incomplete", "turns", "a and b")
    same = model()
    second = await resume(store, "r1", agent=LEAF, model=same)
    assert same.calls_made == 0
    assert timeless(second) == timeless(first)
    again = model()
    third = await resume(store, "r1", agent=LEAF, model=again, limits=Limits(turns=3))
    assert (third.status, third.text, third.turns) == ("completed", "done", 3)
    assert asked(again) == [("r1", 3)]
    assert third.usage.requests == 4


@pytest.mark.parametrize(
    ("stop", "text", "reason"), [("length", "half an ans", "length"), ("end", "", "empty")]
)
async def test_an_answer_that_was_cut_off_or_empty_is_gone_on_with(stop: str, text: str, reason: str) -> None:
    """A run that ended `incomplete: length` or `empty` is told to go on, and keeps what it had said."""
    store = MemoryStore()
    first = await run(
        LEAF,
        "go",
        model=ScriptedModel([say(text, stop="length" if stop == "length" else "end")]),
        store=store,
    )
    assert (first.status, first.reason) == ("incomplete", reason)
    again = ScriptedModel([say("the rest")])
    outcome = await resume(store, "r1", agent=LEAF, model=again)
    assert (outcome.status, outcome.text) == ("completed", "the rest")
    request = again.requests[0]
    assert [type(m).__name__ for m in request.messages] == ["UserMessage", "AssistantMessage", "UserMessage"]
    assert "Continue from there" in request.messages[-1].text
    assert timeless((await folded(store)).outcome()) == timeless(outcome)


async def test_a_run_that_went_in_circles_is_given_one_more_chance() -> None:
    """`incomplete: repeating` goes on; the circle is remembered, so the same call once more ends it again at once."""
    store = MemoryStore()
    first = await run(
        LEAF, "go", model=ScriptedModel([*[call("look", what="a")] * 6, wrapped("circles")]), store=store
    )
    assert (first.status, first.reason) == ("incomplete", "repeating")
    again = ScriptedModel([call("look", what="a"), wrapped("still circles")])
    second = await resume(store, "r1", agent=LEAF, model=again)
    assert (second.status, second.reason, second.partial) == ("incomplete", "repeating", "still circles")
    third = await resume(store, "r1", agent=LEAF, model=ScriptedModel([say("something else")]))
    assert (third.status, third.text) == ("completed", "something else")


ENDED = [
    pytest.param([say('{"n": 3}')], "completed", id="completed"),
    pytest.param([refuse("I will not")], "refused", id="refused"),
    pytest.param([fail("no key", "auth")], "failed", id="failed"),
]


@pytest.mark.parametrize(("script", "status"), ENDED)
async def test_what_completed_failed_or_was_refused_stays(script: list[Line], status: str) -> None:
    """The recorded outcome comes back equal, its structured answer too; nothing runs and nothing is written."""

    class Number(msgspec.Struct):
        n: int

    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    agent = Agent("lead", output=schema)
    store = MemoryStore()
    first = await run(agent, "go", model=ScriptedModel(script), store=store)
    assert first.status == status
    assert first.output == ({"n": 3} if first.ok else None)
    before = await journal(store)
    again = ScriptedModel([])
    events: list[Event] = []
    outcome = await resume(store, "r1", agent=agent, model=again, on_event=events.append)
    assert outcome == first
    assert again.calls_made == 0
    assert await journal(store) == before
    assert not events
    assert not (await store.trees())[0].live


async def test_children_of_a_run_that_ran_out_of_time_go_on_with_it() -> None:
    """A child that ended short in its parent's last turn goes on too, if its parent does; what had ended stays."""
    lead = Agent("lead", subagents=[LEAF], tools=[stare])

    def model() -> ScriptedModel:
        both = calls(
            call("task", agent="leaf", prompt="slow"),
            call("stare", seconds=100),
            call("task", agent="leaf", prompt="quick"),
        )

        def leaf(request: Request) -> Line:
            if request.messages[0].text == "quick":
                return say("quick one")
            return by_turn(call("look", what="a"), call("stare", seconds=50), say("slow one"))(request)

        return ScriptedModel({"lead": by_turn(both, say("all done")), "leaf": leaf})

    store = MemoryStore()
    first = await run(lead, "go", model=model(), store=store, limits=Limits(seconds=30))
    assert [first.status, *(c.status for c in first.children)] == ["timed_out", "timed_out", "completed"]
    again = model()
    outcome = await resume(store, "r1", agent=lead, model=again, limits=Limits(seconds=600))
    assert (outcome.status, outcome.text) == ("completed", "all done")
    assert [c.text for c in outcome.children] == ["slow one", "quick one"]
    assert asked(again) == [("r1.1", 3), ("r1", 2)]
    assert timeless((await folded(store)).outcome()) == timeless(outcome)


async def test_each_life_is_marked_in_the_journal() -> None:
    """A resumed run is told so by one event per run and life, and the wrap-up taken over is not paid twice."""
    store = MemoryStore()
    first = await run(LEAF, "go", model=timed(), store=store, limits=Limits(seconds=100))
    outcome = await resume(store, "r1", agent=LEAF, model=timed())
    events = await journal(store)
    assert sum(isinstance(e, RunResumed) for e in events) == 1
    again = [e for e in events if isinstance(e, ReplyReceived) and e.again]
    assert [(e.purpose, e.usage) for e in again] == [("wrap_up", Usage())]
    assert outcome.usage.requests == first.usage.requests == sum(isinstance(e, TurnStarted) for e in events)
