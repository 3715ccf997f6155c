"""Time: deadlines at every level, the last word before them, silent models, slow calls, and time that does not count."""

from __future__ import annotations

import asyncio
import threading

import pytest
from grazing import grazing

from remit import (
    Agent,
    ApprovalRequest,
    Limits,
    Outcome,
    Reply,
    Request,
    Status,
    ToolContext,
    ToolMessage,
    UserMessage,
    allow,
    run,
    start,
    tool,
)
from remit.events import AnyEvent
from remit.testing import ScriptedModel, call, calls, fail, run_virtual, say, wait, wrapped
from remit.tools.policy import Decision
from remit.types.events import LimitMet, ModelCallFailed, RunEnded, TurnStarted
from remit.types.ports import Emit

LONG = 10_000.0


@tool(tier="observe")
async def slow() -> str:
    """Takes long."""
    await asyncio.sleep(LONG)
    return "at last"


@tool(tier="observe")
async def nap(seconds: float) -> str:
    """Takes as long as it is told to."""
    await asyncio.sleep(seconds)
    return "rested"


@tool(tier="confirm")
async def publish() -> str:
    """Changes things."""
    return "published"


async def played(
    agent: Agent, model: ScriptedModel, limits: Limits | None = None
) -> tuple[Outcome, list[AnyEvent]]:
    async with start(agent, "go", model=model, limits=limits) as running:
        events = [e async for e in running.events()]
        return await running.outcome(), events


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


# --- Deadlines -------------------------------------------------------------------------------------


async def test_a_soft_deadline_stops_a_call_and_the_wrap_up_is_the_partial() -> None:
    """Law 6: near its deadline a run's call in flight is stopped, and its last word is what it leaves."""
    with ScriptedModel([call("slow", said="first words"), wrapped("what I have")]) as model:
        outcome = await run(
            Agent("lead", tools=[slow]), "go", model=model, limits=Limits(seconds=60, call_seconds=None)
        )
    assert (outcome.status, outcome.text, outcome.partial) == (Status.TIMED_OUT, "", "what I have")
    (result,) = results(outcome)
    assert result.ok is False
    assert result.content.startswith("Not finished")
    assert outcome.failed_tool == "slow"


async def test_the_wrap_up_has_the_same_tools_and_may_call_none() -> None:
    """Section 4: the wrap-up asks with the same tools and `tool_choice="none"`, after every open call's answer."""
    model = ScriptedModel([calls(call("slow"), call("slow")), wrapped("what I have")])
    await run(Agent("lead", tools=[slow]), "go", model=model, limits=Limits(seconds=60, call_seconds=None))
    first, last = model.requests
    assert (first.tool_choice, last.tool_choice) == ("auto", "none")
    assert first.tools == last.tools
    assert [type(m) for m in last.messages[-3:]] == [ToolMessage, ToolMessage, UserMessage]


async def test_a_model_call_in_flight_is_stopped_for_the_wrap_up() -> None:
    """Section 4: the second model call that takes too long is stopped for the last word, and is paid for."""
    model = ScriptedModel([call("nap", seconds=1), say("late", delay=LONG), wrapped("what I have")])
    outcome, events = await played(Agent("lead", tools=[nap]), model, Limits(seconds=60))
    assert (outcome.status, outcome.partial) == (Status.TIMED_OUT, "what I have")
    assert outcome.usage.requests == 3
    assert [e.limit for e in events if isinstance(e, LimitMet)] == ["deadline"]


async def test_a_run_that_never_got_a_reply_has_no_wrap_up() -> None:
    """Section 4: without a reply there is nothing to wrap up; the run times out with one request made."""
    model = ScriptedModel([say("late", delay=LONG)])
    outcome = await run(Agent("lead"), "go", model=model, limits=Limits(seconds=60))
    assert (outcome.status, outcome.partial) == (Status.TIMED_OUT, "")
    assert model.calls_made == 1
    assert "60" in outcome.reason


async def test_the_hard_deadline_holds_during_the_wrap_up() -> None:
    """Law 1: a wrap-up that takes too long is stopped too; what was said before it is the partial."""
    model = ScriptedModel([call("slow", said="first words"), wrapped("late", delay=LONG)])
    clock = asyncio.get_running_loop()
    outcome = await run(
        Agent("lead", tools=[slow]), "go", model=model, limits=Limits(seconds=60, call_seconds=None)
    )
    assert (outcome.status, outcome.partial) == (Status.TIMED_OUT, "first words")
    assert clock.time() == 60


@pytest.mark.parametrize("seconds", [0.001, 1, 60, 5_000])
async def test_no_run_outlives_its_seconds(seconds: float) -> None:
    """Law 1: whatever the model does, a run that can be stopped has ended when its seconds are over."""
    model = ScriptedModel([call("slow"), wrapped("late", delay=10 * seconds)])
    clock = asyncio.get_running_loop()
    limits = Limits(seconds=seconds, call_seconds=None)
    outcome = await run(Agent("lead", tools=[slow]), "go", model=model, limits=limits)
    assert outcome.status is Status.TIMED_OUT
    assert clock.time() <= seconds * (1 + 1e-9)


async def test_seconds_zero_means_no_time_at_all() -> None:
    """Law 1: zero means zero: no request is made."""
    model = ScriptedModel([say("never")])
    outcome = await run(Agent("lead"), "go", model=model, limits=Limits(seconds=0))
    assert outcome.status is Status.TIMED_OUT
    assert model.calls_made == 0
    assert outcome.usage.requests == 0


async def test_a_child_with_no_seconds_times_out_and_its_parent_goes_on() -> None:
    """Laws 1 and 5: a child whose own seconds are zero makes no request; its parent reads that it timed out."""
    model = ScriptedModel({"lead": [call("task", agent="kid", prompt="x"), say("went on")]})
    lead = Agent("lead", subagents=[Agent("kid", limits=Limits(seconds=0))])
    outcome = await run(lead, "go", model=model)
    assert outcome.text == "went on"
    assert [(c.status, c.usage.requests) for c in outcome.children] == [(Status.TIMED_OUT, 0)]
    assert "timed out" in results(outcome)[0].content


def three_levels(**scripts: list[object]) -> tuple[Agent, ScriptedModel]:
    lead = Agent(
        "lead", subagents=[Agent("mid", subagents=[Agent("leaf", tools=[slow])], tools=[slow])], tools=[slow]
    )
    return lead, ScriptedModel(scripts)  # pyright: ignore[reportArgumentType]


async def test_a_leaf_wraps_up_in_time_for_everyone_above_it() -> None:
    """Section 4: under the root's deadline alone, a leaf that never ends wraps up, and those above still complete."""
    lead, model = three_levels(
        lead=[call("task", agent="mid", prompt="x"), say("lead is done")],
        mid=[call("task", agent="leaf", prompt="y"), say("mid is done")],
        leaf=[call("slow"), wrapped("leaf has this")],
    )
    outcome = await run(lead, "go", model=model, limits=Limits(seconds=100, call_seconds=None))
    (mid,) = outcome.children
    (leaf,) = mid.children
    assert (leaf.status, leaf.partial) == (Status.TIMED_OUT, "leaf has this")
    assert "leaf has this" in results(mid)[0].content
    assert (mid.status, outcome.status) == (Status.COMPLETED, Status.COMPLETED)


async def test_children_wrap_up_before_their_parents_at_every_level() -> None:
    """Section 4: when all three levels dawdle, the leaf ends before the middle, and the middle before the root."""
    lead, model = three_levels(
        lead=[call("task", agent="mid", prompt="x"), call("slow"), wrapped("lead has this")],
        mid=[call("task", agent="leaf", prompt="y"), call("slow"), wrapped("mid has this")],
        leaf=[call("slow"), wrapped("leaf has this")],
    )
    outcome, events = await played(lead, model, Limits(seconds=100, call_seconds=None))
    last_words = [e.agent for e in events if isinstance(e, TurnStarted) and e.purpose == "wrap_up"]
    assert last_words == ["leaf", "mid", "lead"]
    ended = [(e.agent, e.outcome.partial) for e in events if isinstance(e, RunEnded)]
    assert ended == [("leaf", "leaf has this"), ("mid", "mid has this"), ("lead", "lead has this")]
    assert outcome.status is Status.TIMED_OUT
    met = {e.agent: e.at for e in events if isinstance(e, LimitMet)}
    over = {e.agent: e.at for e in events if isinstance(e, RunEnded)}
    assert over["leaf"] < met["mid"] <= over["mid"] < met["lead"]


async def test_a_child_cannot_have_more_time_than_its_parent() -> None:
    """Law 3: a child's larger number of seconds does not widen its parent's; it ends in time for its parent."""
    model = ScriptedModel(
        {
            "lead": [call("task", agent="kid", prompt="x"), say("went on")],
            "kid": [call("slow"), wrapped("kid has this")],
        }
    )
    kid = Agent("kid", tools=[slow], limits=Limits(seconds=LONG, call_seconds=None))
    clock = asyncio.get_running_loop()
    outcome = await run(Agent("lead", subagents=[kid]), "go", model=model, limits=Limits(seconds=60))
    assert outcome.text == "went on"
    assert outcome.children[0].partial == "kid has this"
    assert clock.time() < 60


async def test_no_child_is_started_when_the_time_is_nearly_up() -> None:
    """Law 1: a delegation that comes when only the time for the last word is left never starts a child."""
    model = ScriptedModel({"lead": [call("task", agent="kid", prompt="x", delay=55), wrapped("what I have")]})
    lead = Agent("lead", subagents=[Agent("kid")])
    _, events = await played(lead, model, Limits(seconds=60))
    assert {e.agent for e in events} == {"lead"}


# --- Calls -----------------------------------------------------------------------------------------


async def test_a_child_may_take_longer_than_a_call_may() -> None:
    """Section 4: `call_seconds` is for ordinary calls; a delegating call takes as long as its child."""
    model = ScriptedModel(
        {"lead": [call("task", agent="kid", prompt="x"), say("done")], "kid": [say("took long", delay=300)]}
    )
    outcome = await run(
        Agent("lead", subagents=[Agent("kid")]), "go", model=model, limits=Limits(call_seconds=5)
    )
    assert outcome.children[0].text == "took long"


@pytest.mark.parametrize(
    ("own", "limits", "fine"),
    [
        (None, Limits(call_seconds=10), False),
        (None, Limits(call_seconds=30), True),
        (None, Limits(call_seconds=None), True),
        (None, None, True),
        (10.0, Limits(call_seconds=None), False),
        (30.0, Limits(call_seconds=10), True),
    ],
)
async def test_a_call_has_its_tools_seconds_or_its_runs(
    own: float | None, limits: Limits | None, fine: bool
) -> None:
    """Section 4: a call may take its tool's `timeout_s`, else its run's `call_seconds`; then the model reads so."""

    @tool(tier="observe", timeout_s=own)
    async def twenty() -> str:
        """Takes 20 s."""
        await asyncio.sleep(20)
        return "rested"

    model = ScriptedModel([call("twenty"), say("went on")])
    outcome = await run(Agent("lead", tools=[twenty]), "go", model=model, limits=limits)
    (result,) = results(outcome)
    assert outcome.text == "went on"
    assert result.ok is fine
    assert result.content == ("rested" if fine else "Timed out: twenty did not finish within 10 s.")


async def test_one_call_that_times_out_leaves_the_others_of_its_turn() -> None:
    """Law 5: of three calls at once, only the slow one times out; results stay in call order."""
    model = ScriptedModel(
        [calls(call("nap", seconds=1), call("nap", seconds=50), call("nap", seconds=2)), say("done")]
    )
    outcome = await run(Agent("lead", tools=[nap]), "go", model=model, limits=Limits(call_seconds=10))
    assert [m.ok for m in results(outcome)] == [True, False, True]


async def test_a_thread_that_times_out_learns_of_it() -> None:
    """Section 6: in a call whose own time is up `ctx.cancelled` is true, though the run goes on."""
    left = threading.Event()

    @tool(tier="observe", timeout_s=5)
    def patient(ctx: ToolContext) -> str:
        """Waits until it is told to stop."""
        while not ctx.cancelled:
            left.wait(0.005)
        left.set()
        return "late"

    model = ScriptedModel([call("patient"), say("went on")])
    outcome = await run(Agent("lead", tools=[patient]), "go", model=model)
    assert left.is_set()
    assert outcome.text == "went on"
    assert results(outcome)[0].content.startswith("Timed out")
    assert outcome.warnings == ()


@pytest.mark.parametrize("seed", range(40))
def test_a_call_that_is_stopped_for_its_time_sees_that_it_is_cancelled(seed: int) -> None:
    """Section 6: when a call is stopped for its time, `ctx.cancelled` is true, also if the time came between two reads."""
    seen: list[bool] = []

    @tool(tier="observe", timeout_s=5)
    async def patient(ctx: ToolContext) -> str:
        """Looks whether it is cancelled when it is stopped."""
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            seen.append(ctx.cancelled)
        return "late"

    model = ScriptedModel([call("patient"), say("went on")])
    with grazing(seed):
        run_virtual(lambda: run(Agent("lead", tools=[patient]), "go", model=model))
    assert seen == [True]


async def test_call_seconds_zero_means_no_time_at_all() -> None:
    """Law 1: zero means zero: with `call_seconds=0` no ordinary call does anything."""
    ran: list[str] = []

    @tool(tier="observe")
    async def touch() -> str:
        """Leaves a mark."""
        ran.append("touched")
        return "touched"

    model = ScriptedModel([call("touch"), say("went on")])
    outcome = await run(Agent("lead", tools=[touch]), "go", model=model, limits=Limits(call_seconds=0))
    assert outcome.text == "went on"
    assert results(outcome)[0].ok is False
    assert ran == []


# --- Silence ---------------------------------------------------------------------------------------


async def test_a_model_that_goes_silent_is_asked_again() -> None:
    """Section 4: silence in a streamed reply is retried like a dropped connection, and each attempt is paid for."""
    model = ScriptedModel([wait(LONG), say("here", chunks=2)], streams=True)
    outcome, events = await played(Agent("lead"), model, Limits(stall_seconds=30))
    assert outcome.text == "here"
    (failed,) = (e for e in events if isinstance(e, ModelCallFailed))
    assert failed.error_kind == "stalled"
    assert failed.retry_in_s is not None
    assert outcome.usage.requests == 2


async def test_a_model_that_stays_silent_is_stalled() -> None:
    """Law 7: a model that is silent at every attempt ends its run `stalled`, which is not a time-out."""
    model = ScriptedModel(lambda _: wait(LONG, say("late")), streams=True)
    outcome = await run(Agent("lead"), "go", model=model, limits=Limits(stall_seconds=30, seconds=None))
    assert outcome.status is Status.STALLED
    assert "said nothing for 30" in outcome.reason
    assert outcome.usage.requests == model.calls_made == 6


async def test_every_delta_starts_the_silence_anew() -> None:
    """Section 4: `stall_seconds` counts from the last delta, so a slow stream of words is no silence."""
    model = ScriptedModel([say("one two three four five", chunks=5, delay=100)], streams=True)
    outcome = await run(Agent("lead"), "go", model=model, limits=Limits(stall_seconds=30))
    assert outcome.ok
    assert model.calls_made == 1


async def test_a_model_that_stops_in_the_middle_stalls_without_saying_that_it_streams() -> None:
    """Section 4: once a model has begun to speak, silence counts, whatever it says about itself."""

    class Model(ScriptedModel):
        async def reply(self, request: Request, emit: Emit) -> Reply:
            if not self.requests:
                emit("begun and ")
            return await super().reply(request, emit)

    model = Model([wait(LONG), say("whole")])
    outcome = await run(Agent("lead"), "go", model=model, limits=Limits(stall_seconds=30))
    assert outcome.text == "whole"
    assert model.calls_made == 2


async def test_a_model_that_does_not_stream_has_only_its_deadline() -> None:
    """Section 4: silence does not count for a model that does not stream."""
    model = ScriptedModel([say("slow but sure", delay=500)])
    outcome = await run(Agent("lead"), "go", model=model, limits=Limits(stall_seconds=30))
    assert outcome.text == "slow but sure"
    assert model.calls_made == 1


async def test_a_back_off_does_not_outlast_the_deadline() -> None:
    """Law 1: a run that backs off is stopped at its soft deadline and still has its last word."""
    model = ScriptedModel(
        [call("nap", seconds=1, said="first words"), fail("busy", retry_after=56), wrapped("what I have")]
    )
    outcome = await run(Agent("lead", tools=[nap]), "go", model=model, limits=Limits(seconds=60))
    assert (outcome.status, outcome.partial) == (Status.TIMED_OUT, "what I have")


# --- Time that does not count ------------------------------------------------------------------------


async def after_a_day(request: ApprovalRequest) -> Decision:
    await asyncio.sleep(86_400)
    return allow()


async def test_waiting_for_a_person_costs_no_time_of_the_asker_or_those_above() -> None:
    """Law 11: a day's wait for a person, two levels down, ends nobody's time."""
    model = ScriptedModel(
        {
            "lead": [call("task", agent="mid", prompt="x"), say("done")],
            "mid": [call("task", agent="leaf", prompt="y"), say("mid is done")],
            "leaf": [call("publish"), say("leaf is done")],
        }
    )
    mine = Limits(seconds=30, call_seconds=10)
    leaf = Agent("leaf", tools=[publish], limits=mine)
    lead = Agent("lead", subagents=[Agent("mid", subagents=[leaf], limits=mine)])
    outcome = await run(lead, "go", model=model, limits=Limits(seconds=60), approver=after_a_day)
    assert outcome.text == "done"
    assert outcome.children[0].children[0].calls[0].success


async def test_the_clock_goes_on_where_it_stood_when_the_person_answers() -> None:
    """Law 11: after the answer the time that was left before the question is left, not more."""
    model = ScriptedModel(
        [call("nap", seconds=20), call("publish"), call("nap", seconds=LONG), wrapped("what I have")]
    )
    clock = asyncio.get_running_loop()
    lead = Agent("lead", tools=[nap, publish])
    limits = Limits(seconds=60, call_seconds=None)
    outcome = await run(lead, "go", model=model, limits=limits, approver=after_a_day)
    assert (outcome.status, outcome.partial) == (Status.TIMED_OUT, "what I have")
    assert clock.time() == 86_400 + 54


async def test_waiting_for_a_person_costs_the_siblings_their_time() -> None:
    """Law 11: only the asker's branch stands still; a sibling's deadline comes while the person thinks."""
    model = ScriptedModel(
        {
            "lead": [
                calls(call("task", agent="asker", prompt="x"), call("task", agent="other", prompt="y")),
                say("done"),
            ],
            "asker": [call("publish"), say("asker is done")],
            "other": [call("slow"), wrapped("other has this")],
        }
    )
    other = Agent("other", tools=[slow], limits=Limits(call_seconds=None))
    lead = Agent("lead", subagents=[Agent("asker", tools=[publish]), other])
    outcome = await run(lead, "go", model=model, limits=Limits(seconds=60), approver=after_a_day)
    statuses = {c.agent: (c.status, c.text or c.partial) for c in outcome.children}
    assert statuses["asker"] == (Status.COMPLETED, "asker is done")
    assert statuses["other"] == (Status.TIMED_OUT, "other has this")
    assert outcome.text == "done"


async def test_two_people_waits_at_once_are_counted_once() -> None:
    """Law 11: when two children ask, their parent's clock stands still once, and it has its own time afterwards."""
    model = ScriptedModel(
        {
            "lead": [
                calls(call("task", agent="kid", prompt="x"), call("task", agent="kid", prompt="y")),
                call("nap", seconds=LONG),
                wrapped("what I have"),
            ],
            "kid": [call("publish"), say("kid is done")],
        }
    )
    clock = asyncio.get_running_loop()
    lead = Agent("lead", subagents=[Agent("kid", tools=[publish])], tools=[nap])
    limits = Limits(seconds=60, call_seconds=None)
    outcome = await run(lead, "go", model=model, limits=limits, approver=after_a_day)
    assert (outcome.status, outcome.partial) == (Status.TIMED_OUT, "what I have")
    assert clock.time() == 2 * 86_400 + 54
