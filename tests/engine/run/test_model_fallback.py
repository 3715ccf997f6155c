"""Models in order of preference: the next is asked when one fails for good."""

from __future__ import annotations

import pytest

from remit import Agent, Limits, ModelError, Price, Reply, Request, Usage, UsageError, run, start
from remit.errors import ModelErrorKind
from remit.testing import ScriptedModel, call, say
from remit.types.events import ModelCallFailed, ModelSwitched

USAGE = Usage(1, 10, 5)


class Failing:
    """Fails each time, in one way."""

    def __init__(self, kind: ModelErrorKind, name: str = "first") -> None:
        self.name = name
        self.kind: ModelErrorKind = kind
        self.asked = 0

    async def reply(self, request: Request, emit: object) -> Reply:
        self.asked += 1
        raise ModelError("no", kind=self.kind)


class Fine:
    name = "second"

    def __init__(self) -> None:
        self.asked = 0

    async def reply(self, request: Request, emit: object) -> Reply:
        self.asked += 1
        return Reply(f"hello {request.agent}", usage=USAGE, model="second-2026")


@pytest.mark.parametrize("kind", ["auth", "quota", "not_found", "context", "filter", "server", "overloaded"])
async def test_the_next_model_is_asked_when_one_fails_for_good(kind: ModelErrorKind) -> None:
    """Every failure that another model may mend; the outcome has the model that answered, and both are paid for."""
    first, second = Failing(kind), Fine()
    async with start(Agent("lead", model=[first, second]), "go") as running:
        seen = [event async for event in running.events()]
        outcome = await running.outcome()
    assert (outcome.text, outcome.model) == ("hello lead", "second-2026")
    assert outcome.total_usage.requests == first.asked + second.asked
    assert first.asked <= 2, "a model that fails is not waited for as long when there is another"
    (switched,) = [event for event in seen if isinstance(event, ModelSwitched)]
    assert (switched.before, switched.model) == ("first", "second")
    assert len([e for e in seen if isinstance(e, ModelCallFailed)]) == first.asked


@pytest.mark.parametrize("kind", ["invalid", "bug"])
async def test_what_another_model_would_not_mend_is_not_tried_on_it(kind: ModelErrorKind) -> None:
    """A wrong request is wrong everywhere."""
    second = Fine()
    outcome = await run(Agent("lead", model=[Failing(kind), second]), "go")
    assert (outcome.status, second.asked) == ("failed", 0)


async def test_the_run_stays_with_the_model_that_works() -> None:
    """The first one is not tried again every turn; a child inherits the order, from its beginning."""
    first = Failing("quota")
    second = ScriptedModel(
        {"lead": [call("task", agent="worker", prompt="x"), say("done")], "worker": [say("ok")]}
    )
    lead = Agent("lead", model=(first, second), subagents=[Agent("worker")])
    outcome = await run(lead, "go")
    assert outcome.ok
    assert first.asked == 2, "once by the lead, once by the worker"


async def test_the_last_one_failing_is_the_end() -> None:
    """With nobody left to ask, the last failure is the reason."""
    outcome = await run(Agent("lead", model=[Failing("quota"), Failing("auth", "last")]), "go")
    assert outcome.status == "failed"
    assert outcome.error is not None
    assert outcome.error.startswith("auth")


async def test_money_needs_the_price_of_each() -> None:
    """A `usd` limit with one model of unknown price in the order is said before the run."""
    priced = Fine()
    priced.price = Price(1.0, 1.0)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UsageError, match="price of its model 'first'"):
        start(Agent("lead", model=[priced, Failing("auth")]), "go", limits=Limits(usd=1.0))


async def test_names_are_looked_up_in_order() -> None:
    """`models` may map a name to another name, and those to a model; a circle is said so."""
    second = Fine()
    outcome = await run(Agent("lead", model="deep"), "go", models={"deep": "good", "good": second})
    assert outcome.text == "hello lead"
    with pytest.raises(UsageError, match="circular: a -> b -> a"):
        start(Agent("lead", model="a"), "go", models={"a": "b", "b": "a"})


@pytest.mark.parametrize("model", [[], [None], [["x:y"]], ["", "x:y"], [3]])
def test_a_list_that_is_none(model: object) -> None:
    """What is not a list of names or models is refused when the agent is made."""
    with pytest.raises(UsageError, match="model"):
        Agent("lead", model=model)  # pyright: ignore[reportArgumentType]
