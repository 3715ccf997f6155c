"""Validators: functions that check an answer, reject it with `Retry`, and are bounded like `output=`."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel
from stories import a, by_turn, died

from remit import Agent, Outcome, Retry, RunContext, UsageError, resume, run
from remit.agent import Validator
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, say
from remit.types.events import MessageJoined


class City(BaseModel):
    name: str
    people: int


async def long_enough(answer: object, ctx: RunContext) -> None:
    if len(str(answer)) < 5:
        raise Retry("Write at least 5 characters.")


async def told(*answers: str, agent: Agent) -> tuple[Outcome, list[str]]:
    """The outcome, and the messages of remit that the model read."""
    outcome = await run(agent, "go", model=ScriptedModel([say(one) for one in answers]))
    return outcome, [m.text for m in outcome.messages[1:] if type(m).__name__ == "UserMessage"]


async def test_a_rejected_answer_is_asked_for_again() -> None:
    """The model reads the reason of `Retry`, and its next answer is checked in the same way."""
    outcome, said = await told("no", "a long answer", agent=Agent("lead", validators=[long_enough]))
    assert (outcome.status, outcome.text) == ("completed", "a long answer")
    assert said == [
        "[remit] Your answer was not accepted. Write at least 5 characters.\n\nAnswer again.",
    ]


async def test_rejections_are_bounded_together_with_wrong_forms() -> None:
    """Three answers may fail, by form or by a validator; then the run has failed, with the last reason."""

    def not_bern(answer: object, ctx: RunContext) -> None:
        assert isinstance(answer, City)
        if answer.name == "Bern":
            raise Retry("Not Bern.")

    bern = '{"name": "Bern", "people": 1}'
    outcome, said = await told(bern, "{}", bern, agent=Agent("lead", output=City, validators=[not_bern]))
    assert outcome.status == "failed"
    assert outcome.reason == "3 answers failed validation. Not Bern."
    assert outcome.partial == bern
    assert len(said) == 2
    fine, _ = await told(
        bern, bern.replace("Bern", "Basel"), agent=Agent("x", output=City, validators=[not_bern])
    )
    assert fine.output == City(name="Basel", people=1)


async def test_every_validator_sees_the_answer_in_order_until_one_rejects_it() -> None:
    """Validators run in order, async or not, with the run's context; after a rejection the others are not called."""
    seen: list[str] = []

    def plain(answer: object, ctx: RunContext) -> None:
        seen.append(f"plain {answer} {ctx.task}")
        if answer == "first":
            raise Retry("again")

    async def later(answer: object, ctx: RunContext) -> object:
        seen.append(f"later {answer}")
        return answer

    outcome, _ = await told("first", "second", agent=Agent("lead", validators=[plain, later]))
    assert outcome.ok
    assert seen == ["plain first go", "plain second go", "later second"]


async def test_a_failing_validator_fails_the_run_by_name() -> None:
    """A validator that raises anything else, takes too long or returns another value is a bug: the run fails and names it."""

    def broken(answer: object, ctx: RunContext) -> None:
        raise KeyError("x")

    async def slow(answer: object, ctx: RunContext) -> None:
        await asyncio.sleep(3600)

    def changed(answer: object, ctx: RunContext) -> str:
        return "another"

    expected: dict[Validator, str] = {
        broken: "the validator 'broken' raised KeyError: 'x'",
        slow: "the validator 'slow' did not finish within 30 s",
        changed: "the validator 'changed' returned 'another'; it must return None: a validator cannot change the answer",
    }
    for check, reason in expected.items():
        outcome, _ = await told("an answer", agent=Agent("lead", validators=[check]))
        assert (outcome.status, outcome.reason, outcome.partial) == ("failed", reason, "an answer")


async def test_a_resumed_run_has_used_its_tries() -> None:
    """Rejections before a crash count after it."""
    agent = Agent("lead", validators=[long_enough])
    model = ScriptedModel(by_turn(say("1"), say("2"), say("3"), say("long enough")))
    store = MemoryStore()
    whole = await run(agent, "go", model=model, store=store)
    outcome = await resume(await died(store, a(MessageJoined), 2), "r1", agent=agent, model=model)
    assert whole.reason == outcome.reason == "3 answers failed validation. Write at least 5 characters."


def test_a_program_has_no_validators() -> None:
    """A program checks its own result: validators and hooks beside it are mistakes."""

    async def program(ctx: object) -> str:
        return "x"

    for field in ("validators", "on_call", "on_result"):
        with pytest.raises(UsageError, match=f"{field} cannot be set together with program="):
            Agent("lead", program=program, **{field: [long_enough]})  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(UsageError, match="validators must be a function or a list of functions"):
        Agent("lead", validators=["x"])  # pyright: ignore[reportArgumentType]
