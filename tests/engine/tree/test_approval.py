"""Asking a person: who decides, what is asked, in what order, and what the others do meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal, cast

import pytest

from remit import (
    Agent,
    ApprovalRequest,
    Approver,
    Call,
    Limits,
    Outcome,
    Status,
    ToolMessage,
    UsageError,
    allow,
    deny,
    run,
    start,
    tool,
)
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.policy import Decision, Policy
from remit.types.events import ApprovalAnswered, ApprovalRequested, RunEnded

LONG = 10_000.0
Verdict = Literal["allow", "ask", "deny"]


@tool(tier="confirm")
async def publish(path: str = "a.txt") -> str:
    """Changes things."""
    return f"published {path}"


@tool(tier="observe")
async def look() -> str:
    """Reads."""
    return "seen"


class Person:
    """An approver that answers from a list, slowly, and remembers what it was asked."""

    def __init__(self, *answers: Decision, seconds: float = 0.0) -> None:
        self.answers = list(answers)
        self.seconds = seconds
        self.asked: list[ApprovalRequest] = []
        self.at_once = 0
        self.peak = 0

    async def __call__(self, request: ApprovalRequest) -> Decision:
        self.asked.append(request)
        self.at_once += 1
        self.peak = max(self.peak, self.at_once)
        await asyncio.sleep(self.seconds)
        self.at_once -= 1
        return self.answers.pop(0)


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


async def one_call(
    name: str = "publish",
    *,
    policy: Policy | None = None,
    own: Policy | None = None,
    approver: Approver | None = None,
) -> ToolMessage:
    """What the model reads of one call under these rules; whatever it is, the run completes."""
    model = ScriptedModel([call(name), say("went on")])
    lead = Agent("lead", tools=[publish, look], policy=own)
    outcome = await run(lead, "go", model=model, policy=policy, approver=approver)
    assert outcome.text == "went on"
    assert len(outcome.calls) == 1
    return results(outcome)[0]


# --- Rules ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "policy", "asked", "ok"),
    [
        ("publish", None, True, True),
        ("look", None, False, True),
        ("publish", ["allow publish"], False, True),
        ("look", ["ask look"], True, True),
        ("look", ["ask l*"], True, True),
        ("look", ["deny look"], False, False),
        ("look", ["allow look", "deny *"], False, False),
        ("publish", ["allow *", "ask publish"], True, True),
        ("publish", ["allow look"], True, True),
    ],
)
async def test_rules_say_who_is_asked(name: str, policy: list[str] | None, asked: bool, ok: bool) -> None:
    """Section 1: the strictest rule that names a tool decides; without one, only what changes things is asked about."""
    person = Person(allow())
    result = await one_call(name, policy=policy, approver=person)
    assert (len(person.asked) == 1, result.ok) == (asked, ok)


@pytest.mark.parametrize(("verdict", "asked", "ok"), [("allow", 0, 1), ("ask", 1, 1), ("deny", 0, 0)])
async def test_a_function_may_be_the_policy(verdict: Verdict, asked: int, ok: int) -> None:
    """Section 6: a policy function is given the call and decides for every tool."""
    person, seen = Person(allow()), list[Call]()

    def policy(one: Call, scope: object) -> Verdict:
        seen.append(one)
        return verdict

    result = await one_call(policy=policy, approver=person)
    assert (len(person.asked), int(result.ok)) == (asked, ok)
    assert {c.name for c in seen} == {"publish"}


@pytest.mark.parametrize("answer", ["yes", None, True, "raises"])
async def test_a_policy_that_fails_denies(answer: object) -> None:
    """Law 3: a policy that raises or answers nonsense never lets a call through, and nobody is asked."""

    def policy(one: Call, scope: object) -> Verdict:
        if answer == "raises":
            raise KeyError("no such rule")
        return cast(Verdict, answer)

    person = Person(allow())
    result = await one_call("look", policy=policy, approver=person)
    assert result.ok is False
    assert result.content.startswith("Denied")
    assert person.asked == []


@pytest.mark.parametrize("rule", ["publish", "perhaps publish", "ask", "ask publish now", 7])
def test_a_rule_that_cannot_be_read_is_a_mistake(rule: object) -> None:
    """Section 6: a rule nobody can read is the caller's error, said before anything runs."""
    with pytest.raises(UsageError, match="policy rule"):
        Agent("lead", policy=[rule])  # pyright: ignore[reportArgumentType]


async def test_a_child_cannot_widen_its_parents_policy() -> None:
    """Law 3: a child whose own rules allow everything is still denied, or asked about, what its root said."""
    model = ScriptedModel(
        {
            "lead": [call("task", agent="kid", prompt="x"), say("done")],
            "kid": [calls(call("publish"), call("look")), say("kid is done")],
        }
    )
    kid = Agent("kid", tools=[publish, look], policy=["allow *"])
    person = Person(deny("no"))
    lead = Agent("lead", subagents=[kid])
    outcome = await run(lead, "go", model=model, policy=["deny look"], approver=person)
    assert [m.ok for m in results(outcome.children[0])] == [False, False]
    assert [r.tool for r in person.asked] == ["publish"]


async def test_a_child_can_narrow_its_parents_policy_for_all_below() -> None:
    """Law 3: what a child's own rules deny stays denied for its children, whatever theirs say."""
    model = ScriptedModel(
        {
            "lead": [calls(call("look"), call("task", agent="mid", prompt="x")), say("done")],
            "mid": [calls(call("look"), call("task", agent="leaf", prompt="y")), say("mid is done")],
            "leaf": [call("look"), say("leaf is done")],
        }
    )
    leaf = Agent("leaf", tools=[look], policy=["allow look"])
    mid = Agent("mid", tools=[look], subagents=[leaf], policy=["deny look"])
    outcome = await run(Agent("lead", tools=[look], subagents=[mid]), "go", model=model)
    below = outcome.children[0]
    assert [results(o)[0].ok for o in (outcome, below, below.children[0])] == [True, False, False]


async def test_delegating_is_asked_about_only_where_a_rule_says_so() -> None:
    """Section 5: `subagent_<name>` is allowed by default, and `ask subagent_*` turns asking on."""
    script = {"lead": [call("subagent_kid", task="x"), say("done")], "kid": [say("kid is done")]}
    lead = Agent("lead", subagents=[Agent("kid")], surface="subagent_<name>")
    quiet, strict = Person(), Person(deny("not that one"))
    assert (await run(lead, "go", model=ScriptedModel(script), approver=quiet)).children[
        0
    ].text == "kid is done"
    outcome = await run(lead, "go", model=ScriptedModel(script), approver=strict, policy=["ask subagent_*"])
    assert quiet.asked == []
    assert [r.tool for r in strict.asked] == ["subagent_kid"]
    assert outcome.children == ()
    assert "not that one" in results(outcome)[0].content


# --- Answers ---------------------------------------------------------------------------------------------


async def test_without_an_approver_the_call_is_denied() -> None:
    """Law 11: without an approver, a call that needs approval is denied: a result, not a crash."""
    result = await one_call()
    assert result.ok is False
    assert "no approver" in result.content


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (deny("not now"), "Denied: not now."),
        (deny("Not on a Friday."), "Denied: Not on a Friday."),
        (deny(), "Denied: the approver said no."),
    ],
)
async def test_the_model_reads_why_it_was_denied(answer: Decision, words: str) -> None:
    """Law 11: a person's reason reaches the model as one sentence."""
    assert (await one_call(approver=Person(answer))).content == words


async def test_the_approved_arguments_are_the_ones_that_run() -> None:
    """Law 3: an approver that edits the arguments it was shown does not change the call."""

    async def edits(request: ApprovalRequest) -> Decision:
        request.args["path"] = "edited"
        return allow()

    model = ScriptedModel([call("publish", path="x.md"), say("done")])
    outcome = await run(Agent("lead", tools=[publish]), "go", model=model, approver=edits)
    assert results(outcome)[0].content == "published x.md"


def two_runs_of_two() -> tuple[Agent, ScriptedModel]:
    """Two children, one after the other, that each publish twice."""
    model = ScriptedModel(
        {
            "lead": [
                call("task", agent="kid", prompt="x"),
                call("task", agent="kid", prompt="y"),
                say("done"),
            ],
            "kid": [call("publish", path="1"), call("publish", path="2"), say("kid is done")],
        }
    )
    return Agent("lead", subagents=[Agent("kid", tools=[publish])]), model


@pytest.mark.parametrize(("scope", "questions"), [("once", 4), ("run", 2), ("tree", 1)])
async def test_a_yes_holds_as_long_as_it_says(scope: Literal["once", "run", "tree"], questions: int) -> None:
    """Section 6: `allow()` holds for one call, `scope="run"` for that tool in that run, `"tree"` in all of them."""
    person = Person(*[allow(scope)] * 4)
    lead, model = two_runs_of_two()
    outcome = await run(lead, "go", model=model, approver=person)
    assert len(person.asked) == questions
    assert [c.success for kid in outcome.children for c in kid.calls] == [True] * 4


async def test_a_yes_to_one_tool_is_not_a_yes_to_another() -> None:
    """Section 6: a tool allowed for the whole tree says nothing about other tools."""
    person = Person(allow("tree"), deny("not this"))
    model = ScriptedModel([call("publish"), call("look"), say("done")])
    outcome = await run(
        Agent("lead", tools=[publish, look]), "go", model=model, approver=person, policy=["ask look"]
    )
    assert [m.ok for m in results(outcome)] == [True, False]


async def test_a_yes_for_the_tree_does_not_lift_a_denial() -> None:
    """Law 3: a person's yes cannot widen a policy that denies."""
    person = Person(allow("tree"))
    model = ScriptedModel(
        {
            "lead": [call("publish"), call("task", agent="kid", prompt="x"), say("done")],
            "kid": [call("publish"), say("kid is done")],
        }
    )
    kid = Agent("kid", tools=[publish], policy=["deny publish"])
    outcome = await run(Agent("lead", tools=[publish], subagents=[kid]), "go", model=model, approver=person)
    assert results(outcome)[0].ok is True
    assert results(outcome.children[0])[0].ok is False


def test_allow_for_an_unknown_scope_is_a_mistake() -> None:
    """Section 6: a scope that does not exist is the caller's error, not a wider yes."""
    with pytest.raises(UsageError, match="tree"):
        allow(scope="forever")  # pyright: ignore[reportArgumentType]


async def raises(request: ApprovalRequest) -> object:
    raise ConnectionError("chat is down")


async def cancels_itself(request: ApprovalRequest) -> object:
    raise asyncio.CancelledError


async def says_true(request: ApprovalRequest) -> object:
    return True


async def says_nothing(request: ApprovalRequest) -> object:
    return None


@pytest.mark.parametrize("approver", [raises, cancels_itself, says_true, says_nothing])
async def test_an_approver_that_fails_denies(
    approver: Callable[[ApprovalRequest], Awaitable[object]],
) -> None:
    """Law 5: an approver that raises or does not return a decision denies the call; the run continues."""
    result = await one_call(approver=approver)  # pyright: ignore[reportArgumentType]
    assert result.ok is False
    assert result.content.startswith(
        ("Denied: the approver raised ", "Denied: the approver must return allow() or deny()")
    )


async def test_an_approver_that_failed_is_asked_again() -> None:
    """Law 5: one failure of the approver does not close the desk."""
    answers = iter([ConnectionError("chat is down"), allow()])

    async def flaky(request: ApprovalRequest) -> Decision:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    model = ScriptedModel([call("publish"), call("publish"), say("done")])
    outcome = await run(Agent("lead", tools=[publish]), "go", model=model, approver=flaky)
    assert [m.ok for m in results(outcome)] == [False, True]


async def test_calls_that_cannot_run_are_not_asked_about() -> None:
    """Law 11: bad arguments, unknown tools and denied tools are answered without asking a person."""
    person = Person()
    model = ScriptedModel([calls(call("publish", path=7), call("missing"), call("look")), say("done")])
    outcome = await run(
        Agent("lead", tools=[publish, look]), "go", model=model, approver=person, policy=["deny look"]
    )
    assert person.asked == []
    assert [m.ok for m in results(outcome)] == [False, False, False]


# --- What is asked, and when -----------------------------------------------------------------------------


async def test_the_request_says_who_asks_from_any_depth() -> None:
    """Law 11: from three levels down the root's approver sees the path, the task, the tool and its arguments."""
    model = ScriptedModel(
        {
            "lead": [call("task", agent="a", prompt="to a"), say("done")],
            "a": [call("task", agent="b", prompt="to b"), say("a is done")],
            "b": [call("task", agent="c", prompt="to c"), say("b is done")],
            "c": [call("publish", path="x.md"), say("c is done")],
        }
    )
    c = Agent("c", tools=[publish])
    lead = Agent("lead", subagents=[Agent("a", subagents=[Agent("b", subagents=[c])])])
    person = Person(allow())
    outcome = await run(lead, "go", model=model, approver=person)
    (asked,) = person.asked
    assert asked.path == ("lead", "a", "b", "c")
    assert (asked.agent, asked.task, asked.tool, asked.args) == ("c", "to c", "publish", {"path": "x.md"})
    assert asked.total_usage.requests == 4
    assert outcome.children[0].children[0].children[0].calls[0].success


async def test_the_events_say_what_was_asked_and_answered() -> None:
    """Law 9: each question and its answer are events with the same request id, which the approver sees too."""
    person = Person(deny("not now"))
    model = ScriptedModel([call("publish", path="x.md"), say("done")])
    async with start(Agent("lead", tools=[publish]), "go", model=model, approver=person) as running:
        events = [e async for e in running.events()]
    (asked,) = (e for e in events if isinstance(e, ApprovalRequested))
    (answered,) = (e for e in events if isinstance(e, ApprovalAnswered))
    assert asked.request == answered.request == person.asked[0].id
    assert (asked.tool, asked.call, answered.call) == ("publish", "c1", "c1")
    assert (answered.allowed, answered.reason) == (False, "not now")


async def test_a_person_is_asked_one_thing_at_a_time_in_order() -> None:
    """Law 11: questions that come together wait their turn, and are put in the order they came."""
    five = calls(*(call("task", agent="kid", prompt=f"{n}") for n in range(5)))
    model = ScriptedModel({"lead": [five, say("done")], "kid": [call("publish"), say("kid is done")]})
    person = Person(*[allow()] * 5, seconds=60)
    outcome = await run(
        Agent("lead", subagents=[Agent("kid", tools=[publish])]), "go", model=model, approver=person
    )
    assert person.peak == 1
    assert [r.task for r in person.asked] == ["0", "1", "2", "3", "4"]
    assert all(kid.calls[0].success for kid in outcome.children)


async def test_a_yes_for_the_tree_answers_those_who_wait() -> None:
    """Section 6: a yes for the whole tree also answers the same question of those already in the queue."""
    three = calls(*(call("task", agent="kid", prompt=f"{n}") for n in range(3)))
    model = ScriptedModel({"lead": [three, say("done")], "kid": [call("publish"), say("kid is done")]})
    person = Person(allow("tree"), seconds=60)
    lead = Agent("lead", subagents=[Agent("kid", tools=[publish])])
    outcome = await run(lead, "go", model=model, approver=person)
    assert len(person.asked) == 1
    assert all(kid.calls[0].success for kid in outcome.children)


def asker_and_other() -> tuple[Agent, ScriptedModel]:
    both = calls(call("task", agent="asker", prompt="x"), call("task", agent="other", prompt="y"))
    model = ScriptedModel(
        {
            "lead": [both, say("done")],
            "asker": [call("publish"), say("asker is done")],
            "other": [call("look"), call("look"), say("other is done", delay=5)],
        }
    )
    return Agent("lead", subagents=[Agent("asker", tools=[publish]), Agent("other", tools=[look])]), model


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_siblings_work_and_end_while_one_waits_for_a_person(concurrency: int) -> None:
    """Laws 11 and 12: a question suspends its branch only, and lends its slot: with room for one the sibling ends."""
    lead, model = asker_and_other()
    other_ended = asyncio.Event()

    async def after_other(request: ApprovalRequest) -> Decision:
        await other_ended.wait()
        return allow()

    limits = Limits(concurrency=concurrency)
    async with start(lead, "go", model=model, approver=after_other, limits=limits) as running:
        ends: list[str] = []
        async for event in running.events():
            if isinstance(event, RunEnded):
                ends.append(event.agent)
            if ends == ["other"]:
                other_ended.set()
        outcome = await running.outcome()
    assert ends == ["other", "asker", "lead"]
    assert outcome.text == "done"


async def test_other_calls_of_the_same_turn_do_not_wait_for_the_person() -> None:
    """Law 11: of two calls in one reply, the one that needs no answer runs while the other one waits."""
    looked = asyncio.Event()

    @tool(tier="observe")
    async def peek() -> str:
        """Reads."""
        looked.set()
        return "seen"

    async def after_peek(request: ApprovalRequest) -> Decision:
        await looked.wait()
        return allow()

    model = ScriptedModel([calls(call("publish"), call("peek")), say("done")])
    outcome = await run(Agent("lead", tools=[publish, peek]), "go", model=model, approver=after_peek)
    assert [(m.name, m.ok) for m in results(outcome)] == [("publish", True), ("peek", True)]


async def test_cancelling_the_asker_frees_the_person_for_the_next() -> None:
    """Law 4: a question whose run is cancelled is taken back, and the next in the queue is asked."""
    both = calls(call("task", agent="kid", prompt="first"), call("task", agent="kid", prompt="second"))
    model = ScriptedModel({"lead": [both, say("done")], "kid": [call("publish"), say("kid is done")]})
    withdrawn: list[str] = []

    async def hangs_on_the_first(request: ApprovalRequest) -> Decision:
        if request.task == "first":
            try:
                await asyncio.sleep(LONG)
            except asyncio.CancelledError:
                withdrawn.append(request.id)
                raise
        return allow()

    lead = Agent("lead", subagents=[Agent("kid", tools=[publish])])
    async with start(lead, "go", model=model, approver=hangs_on_the_first) as running:
        await asyncio.sleep(5)
        await running.cancel("too slow", run=f"{running.run_id}.1")
        outcome = await running.outcome()
    first, second = sorted(outcome.children, key=lambda c: c.run_id)
    assert len(withdrawn) == 1
    assert (first.status, first.reason) == (Status.CANCELLED, "cancelled by the caller: too slow")
    assert second.calls[0].success


async def test_cancelling_from_the_approver_stops_the_tree() -> None:
    """Section 4: a person may answer by stopping everything; the approver does not wait for itself."""
    handle = list[object]()

    async def stops(request: ApprovalRequest) -> Decision:
        await handle[0].cancel("this goes too far")  # pyright: ignore[reportAttributeAccessIssue]
        return deny()

    model = ScriptedModel([call("publish")])
    async with start(Agent("lead", tools=[publish]), "go", model=model, approver=stops) as running:
        handle.append(running)
        outcome = await running.outcome()
    assert (outcome.status, outcome.reason) == (
        Status.CANCELLED,
        "cancelled by the caller: this goes too far",
    )
