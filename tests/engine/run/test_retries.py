"""Retries: which failures are tried again, when, at whose cost, and what others do meanwhile."""

from __future__ import annotations

import itertools

import pytest

from remit import (
    Agent,
    Limits,
    ModelError,
    Outcome,
    Price,
    Reply,
    Request,
    Status,
    Usage,
    run,
    start,
)
from remit.errors import RETRYABLE_KINDS, ModelErrorKind
from remit.events import AnyEvent
from remit.testing import ScriptedModel, call, calls, crash, fail, run_virtual, say
from remit.types.events import ModelCallFailed, ReplyReceived, RunEnded, TurnStarted
from remit.types.ports import Emit

LASTING: tuple[ModelErrorKind, ...] = ("auth", "quota", "not_found", "context", "filter", "invalid", "bug")


async def played(
    model: ScriptedModel, agent: Agent | None = None, limits: Limits | None = None
) -> tuple[Outcome, list[AnyEvent]]:
    async with start(agent or Agent("lead"), "go", model=model, limits=limits) as running:
        events = [e async for e in running.events()]
        return await running.outcome(), events


def failures(events: list[AnyEvent]) -> list[ModelCallFailed]:
    return [e for e in events if isinstance(e, ModelCallFailed)]


@pytest.mark.parametrize("kind", sorted(RETRYABLE_KINDS))
async def test_a_passing_failure_is_tried_again(kind: ModelErrorKind) -> None:
    """Section 4: a failure that may pass is retried by the loop, and the run completes."""
    with ScriptedModel([fail("hiccup", kind), say("done")]) as model:
        outcome, events = await played(model)
    assert outcome.text == "done"
    assert outcome.turns == 1
    assert outcome.error is None
    (failed,) = failures(events)
    assert (failed.error, failed.error_kind, failed.attempt) == ("hiccup", kind, 1)


@pytest.mark.parametrize("kind", LASTING)
async def test_a_lasting_failure_is_not_tried_again(kind: ModelErrorKind) -> None:
    """Section 4: a failure that would only repeat itself ends the run at once, and says what it was."""
    model = ScriptedModel([fail("no such key", kind)])
    outcome, events = await played(model)
    assert outcome.status is Status.FAILED
    assert "no such key" in outcome.reason
    assert model.calls_made == 1
    assert failures(events)[0].retry_in_s is None


async def test_the_model_may_overrule_its_kind() -> None:
    """Section 4: `retryable` on the error decides, whatever its kind usually means."""
    lasting = ScriptedModel([fail("gone for good", "server", retryable=False)])
    passing = ScriptedModel([fail("try me", "auth", retryable=True), say("done")])
    assert (await run(Agent("lead"), "go", model=lasting)).status is Status.FAILED
    assert (await run(Agent("lead"), "go", model=passing)).text == "done"


async def test_a_bug_in_a_model_is_not_tried_again() -> None:
    """Law 5: any other exception is the model's bug: it fails the run once, with the original words."""
    model = ScriptedModel([crash("list index out of range")])
    outcome, _ = await played(model)
    assert outcome.status is Status.FAILED
    assert "panicked" in outcome.reason
    assert "list index out of range" in outcome.reason
    assert model.calls_made == 1


async def test_six_server_errors_fail_the_run() -> None:
    """A3.11: after six server errors a run is failed, no tool is blamed, and the error says what happened."""
    model = ScriptedModel(lambda _: fail("server error 503"))
    outcome, events = await played(model)
    assert outcome.status is Status.FAILED
    assert outcome.failed_tool is None
    assert "server error" in (outcome.error or "")
    assert model.calls_made == outcome.usage.requests == 6
    assert [e.attempt for e in failures(events)] == [1, 2, 3, 4, 5, 6]
    assert failures(events)[-1].retry_in_s is None


async def test_failures_of_one_turn_do_not_count_against_the_next() -> None:
    """Section 4: each turn has its own retries; five failures in each of two turns are survived."""
    bad = [fail("busy", "overloaded")] * 5
    with ScriptedModel([*bad, call("missing"), *bad, say("done")]) as model:
        outcome, _ = await played(model)
    assert outcome.text == "done"


async def test_retries_are_not_turns() -> None:
    """Section 4: a retried call is one turn, so `turns=1` survives five failures."""
    with ScriptedModel([*[fail("busy")] * 5, say("done")]) as model:
        outcome, _ = await played(model, limits=Limits(turns=1))
    assert outcome.text == "done"


async def test_each_attempt_has_its_own_events() -> None:
    """Section 4: every attempt is a `turn_started` of its own with its own reservation, and ends in one event."""
    model = ScriptedModel([fail("busy"), fail("busy"), say("done")])
    _, events = await played(model)
    kinds = (TurnStarted, ModelCallFailed, ReplyReceived)
    story = [type(e) for e in events if isinstance(e, kinds)]
    assert story == [TurnStarted, ModelCallFailed, TurnStarted, ModelCallFailed, TurnStarted, ReplyReceived]
    started = [e for e in events if isinstance(e, TurnStarted)]
    assert [(e.turn, e.attempt) for e in started] == [(1, 1), (1, 2), (1, 3)]
    assert all(e.reserved > 0 for e in started)


def test_back_off_grows_and_is_the_same_every_time() -> None:
    """Law 14: delays grow from attempt to attempt, and with the ids fixed the jitter is the same in every run."""

    def delays() -> list[float]:
        _, events = run_virtual(played(ScriptedModel(lambda _: fail("busy"))))
        return [e.retry_in_s for e in failures(events) if e.retry_in_s is not None]

    first = delays()
    assert len(first) == 5
    assert all(a < b for a, b in itertools.pairwise(first))
    assert delays() == first


async def test_back_off_is_really_waited() -> None:
    """Section 4: the next attempt is sent when the delay that was announced is over."""
    _, events = await played(ScriptedModel([fail("busy"), fail("busy"), say("done")]))
    starts = [e.at for e in events if isinstance(e, TurnStarted)]
    for failed, next_start in zip(failures(events), starts[1:], strict=True):
        assert failed.retry_in_s is not None
        assert next_start - failed.at == pytest.approx(failed.retry_in_s)


async def test_siblings_do_not_come_back_all_at_once() -> None:
    """Section 4: the jitter differs from run to run, so that siblings who failed together spread out."""
    ten = calls(*(call("task", agent="kid", prompt=str(n)) for n in range(10)))
    model = ScriptedModel({"lead": [ten, say("done")], "kid": [fail("busy", "rate_limit"), say("ok")]})
    _, events = await played(model, Agent("lead", subagents=[Agent("kid")]))
    assert len({e.retry_in_s for e in failures(events)}) == 10


async def test_retry_after_is_respected() -> None:
    """Section 4: when the provider says how long to wait, that long is waited."""
    model = ScriptedModel([fail("busy", "rate_limit", retry_after=77), say("done")])
    outcome, events = await played(model)
    assert outcome.text == "done"
    assert failures(events)[0].retry_in_s == 77
    assert outcome.duration_s == 77


@pytest.mark.parametrize("after", [-5.0, float("nan")])
async def test_a_senseless_retry_after_harms_nobody(after: float) -> None:
    """Law 5: a provider's nonsense about waiting is not a crash: the call is retried or the run failed."""
    model = ScriptedModel([fail("busy", "rate_limit", retry_after=after), say("done")])
    outcome, _ = await played(model)
    assert outcome.text == "done"


async def test_no_back_off_that_the_deadline_would_cut_short() -> None:
    """Law 1: when the provider asks for more time than there is, the run fails at once instead of waiting in vain."""
    model = ScriptedModel([fail("come back tomorrow", "rate_limit", retry_after=86_400)])
    outcome, events = await played(model, limits=Limits(seconds=60))
    assert outcome.status is Status.FAILED
    assert "come back tomorrow" in outcome.reason
    assert outcome.duration_s == 0
    assert failures(events)[0].retry_in_s is None


# --- At whose cost -----------------------------------------------------------------------------------


async def test_what_a_failed_attempt_used_is_recorded() -> None:
    """Law 8: usage that the provider reports with a failure is in the run's usage, in full."""
    used = Usage(requests=1, input_tokens=700, output_tokens=30)
    model = ScriptedModel([fail("cut off", usage=used), say("done", usage=Usage(1, 10, 5))])
    outcome, events = await played(model)
    assert (outcome.usage.requests, outcome.usage.input_tokens, outcome.usage.output_tokens) == (2, 710, 35)
    assert outcome.usage.estimated is False
    assert failures(events)[0].usage == used


@pytest.mark.parametrize(
    ("kind", "tokens"), [("connection", True), ("timeout", True), ("rate_limit", False), ("auth", False)]
)
async def test_a_failed_attempt_is_estimated_where_the_provider_may_have_worked(
    kind: ModelErrorKind, tokens: bool
) -> None:
    """Law 8: a request that may have been worked on is estimated and marked so; one turned away at the door is not."""
    model = ScriptedModel(lambda _: fail("no", kind, retryable=False))
    outcome, _ = await played(model)
    assert outcome.usage.requests == 1
    assert (outcome.usage.tokens > 0) is tokens
    assert outcome.usage.estimated is tokens


async def test_one_error_object_for_many_runs_mixes_nobodys_usage() -> None:
    """Law 8: a model that raises the same exception object each time does not carry one run's estimate to another."""
    error = ModelError("connection lost", kind="connection", retryable=False)

    class Model:
        name = "down"

        async def reply(self, request: Request, emit: Emit) -> Reply:
            raise error

    short = await run(Agent("lead"), "x", model=Model())
    long = await run(Agent("lead"), "x" * 30_000, model=Model())
    assert long.usage.input_tokens > short.usage.input_tokens + 5_000


@pytest.mark.parametrize("cap", [1, 3, 5])
async def test_each_attempt_is_paid_from_the_budget(cap: int) -> None:
    """Law 2: each attempt reserves its own request, so a failing model under `requests=n` is asked exactly n times."""
    model = ScriptedModel(lambda _: fail("busy"))
    outcome, _ = await played(model, limits=Limits(requests=cap))
    assert model.calls_made == outcome.usage.requests == cap
    assert outcome.status is Status.OVER_BUDGET


async def test_failing_children_leave_their_parent_its_last_word() -> None:
    """Law 2: children whose retries eat the budget stop at it, and their parent can still answer."""
    three = calls(*(call("task", agent="kid", prompt=str(n)) for n in range(3)))
    model = ScriptedModel({"lead": [three, say("none of them could")], "kid": lambda _: fail("busy")})
    lead = Agent("lead", subagents=[Agent("kid")])
    outcome, _ = await played(model, lead, Limits(requests=8))
    assert model.calls_made == 8
    assert "none of them could" in (outcome.text or outcome.partial)


async def test_no_head_room_is_held_during_back_off() -> None:
    """Section 4: while one child backs off, its sibling can have the tokens that the call had reserved."""
    both = calls(call("task", agent="failing", prompt="x"), call("task", agent="other", prompt="y"))
    model = ScriptedModel(
        {
            "lead": [both, say("done")],
            "failing": [fail("busy", retry_after=100, delay=1), say("at last")],
            "other": [say("fine", delay=2)],
        }
    )
    lead = Agent("lead", subagents=[Agent("failing"), Agent("other")])
    outcome, events = await played(model, lead, Limits(tokens=7_500))
    starts = [(e.agent, e.attempt) for e in events if isinstance(e, TurnStarted)]
    assert starts[1:4] == [("failing", 1), ("other", 1), ("failing", 2)]
    assert outcome.text == "done"


async def test_the_cost_of_every_attempt_is_in_the_money() -> None:
    """Law 8: money is the sum over attempts, the failed ones included."""
    used = Usage(requests=1, input_tokens=1_000, output_tokens=0)
    model = ScriptedModel(
        [fail("busy", usage=used), say("done", usage=used)], price=Price(input=2, output=10)
    )
    outcome, _ = await played(model, limits=Limits(usd=1.0))
    assert outcome.total_usage.usd == pytest.approx(0.004)


# --- And the others ------------------------------------------------------------------------------------


async def test_who_backs_off_does_not_hold_a_slot() -> None:
    """Law 12: with room for one, the sibling of a child that backs off works and ends meanwhile."""
    both = calls(call("task", agent="failing", prompt="x"), call("task", agent="other", prompt="y"))
    model = ScriptedModel(
        {
            "lead": [both, say("done")],
            "failing": [fail("busy", retry_after=100), say("at last")],
            "other": [say("fine", delay=20)],
        }
    )
    lead = Agent("lead", subagents=[Agent("failing"), Agent("other")])
    outcome, events = await played(model, lead, Limits(concurrency=1))
    assert [e.agent for e in events if isinstance(e, RunEnded)] == ["other", "failing", "lead"]
    assert outcome.ok
    assert model.peak == 1


async def test_who_comes_back_waits_for_a_free_slot() -> None:
    """Law 12: at the end of a back-off a run takes its slot back before it asks again; never do two work at once."""
    both = calls(call("task", agent="failing", prompt="x"), call("task", agent="other", prompt="y"))
    model = ScriptedModel(
        {
            "lead": [both, say("done")],
            "failing": [fail("busy", retry_after=10), say("at last")],
            "other": [say("fine", delay=50)],
        }
    )
    lead = Agent("lead", subagents=[Agent("failing"), Agent("other")])
    outcome, events = await played(model, lead, Limits(concurrency=1))
    again = next(e for e in events if isinstance(e, TurnStarted) and e.attempt == 2)
    fine = next(e for e in events if isinstance(e, ReplyReceived) and e.agent == "other")
    assert again.seq > fine.seq
    assert model.peak == 1
    assert outcome.ok


async def test_a_child_that_fails_for_good_is_a_result_for_its_parent() -> None:
    """Law 5: a provider that is down for a child is a tool result that its parent's model reads."""
    model = ScriptedModel(
        {
            "lead": [call("task", agent="kid", prompt="x"), say("went on")],
            "kid": lambda _: fail("server error 503"),
        }
    )
    outcome, _ = await played(model, Agent("lead", subagents=[Agent("kid")]))
    assert outcome.text == "went on"
    assert [c.status for c in outcome.children] == [Status.FAILED]
    assert "server error 503" in model.requests[-1].messages[-1].text
