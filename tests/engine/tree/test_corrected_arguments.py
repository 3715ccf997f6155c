"""`allow(args=...)`: an approver corrects the arguments of a call, and the model reads about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest
from stories import a, by_turn, died, folded, journal

from remit import (
    Agent,
    ApprovalRequest,
    Outcome,
    ToolContext,
    ToolMessage,
    UsageError,
    allow,
    resume,
    run,
    tool,
)
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, say
from remit.tools.policy import Decision
from remit.types.events import ApprovalAnswered, ApprovalRequested
from remit.types.messages import JsonObject

RAN: list[str] = []
NOTE = '[remit] The person who approved this call changed its arguments. It ran with: {"path":"b.txt"}'


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@tool
async def write(path: str) -> str:
    """Writes."""
    RAN.append(path)
    return f"wrote {path}"


def answering(*answers: Decision) -> tuple[Callable[[ApprovalRequest], Decision], list[JsonObject]]:
    asked: list[JsonObject] = []

    def person(request: ApprovalRequest) -> Decision:
        asked.append(request.args)
        return answers[len(asked) - 1]

    return person, asked


def model(*more: str) -> ScriptedModel:
    steps = [call("write", path=path) for path in ("a.txt", *more)]
    return ScriptedModel({"lead": by_turn(*steps, say("done"))})


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


LEAD = Agent("lead", tools=[write])


async def test_a_call_runs_with_the_corrected_arguments_and_the_model_is_told() -> None:
    """The tool gets the approver's arguments; a note beside the result says so; the journal has them."""
    person, asked = answering(allow(args={"path": "b.txt"}))
    store = MemoryStore()
    outcome = await run(LEAD, "go", model=model(), approver=person, store=store)
    assert (RAN, asked) == (["b.txt"], [{"path": "a.txt"}])
    result = results(outcome)[0]
    assert (result.content, result.ok, result.note) == ("wrote b.txt", True, NOTE)
    assert outcome.calls[0].context == "b.txt"
    assert (await folded(store)).runs["r1"].calls[0].args == {"path": "b.txt"}


async def test_the_same_arguments_are_no_correction() -> None:
    """`allow(args=...)` with the model's own arguments is a plain approval."""
    person, _ = answering(allow(args={"path": "a.txt"}))
    outcome = await run(LEAD, "go", model=model(), approver=person)
    assert (RAN, results(outcome)[0].note) == (["a.txt"], "")


async def test_corrected_arguments_are_validated_and_judged() -> None:
    """Arguments that do not fit, or that a rule denies, do not run, although a person wrote them."""
    person, _ = answering(allow(args={"pth": 1}))
    outcome = await run(LEAD, "go", model=model(), approver=person)
    assert results(outcome)[0].content.startswith(
        "Not run: the approver changed the arguments to invalid ones."
    )
    person, _ = answering(allow(args={"path": "secret.txt"}))
    ruled = tool(write.__wrapped__, name="write", paths=["path"])
    outcome = await run(
        Agent("lead", tools=[ruled]),
        "go",
        model=model(),
        approver=person,
        policy=["ask write", "deny write(secret*)"],
    )
    assert results(outcome)[0].content.startswith("Denied: the policy does not allow write")
    assert RAN == []


async def test_a_correction_is_for_one_call() -> None:
    """With `scope="run"`, later calls of the tool are allowed with their own arguments."""
    person, asked = answering(allow("run", args={"path": "b.txt"}))
    outcome = await run(LEAD, "go", model=model("c.txt"), approver=person)
    assert (RAN, len(asked)) == (["b.txt", "c.txt"], 1)
    assert [bool(one.note) for one in results(outcome)] == [True, False]


async def test_a_change_that_the_person_has_not_seen_is_asked_about() -> None:
    """If the corrected call would do what only a person may approve, the person is asked about the corrected call."""
    approved: list[str] = []

    async def save(path: str, ctx: ToolContext) -> str:
        """Saves."""
        approved.append(ctx.approved)
        return path

    def settings(path: str, ctx: ToolContext) -> str:
        return f"changes {path}" if path == "b.txt" else ""

    made = tool(save, name="write", must_ask=settings)
    person, asked = answering(allow(args={"path": "b.txt"}), allow())
    await run(Agent("lead", tools=[made]), "go", model=model(), approver=person)
    assert asked == [{"path": "a.txt"}, {"path": "b.txt"}]
    assert approved == ["changes b.txt"]
    # An approver that never stops correcting is denied.
    asked.clear()
    person, asked = answering(*(allow(args={"path": path}) for path in ("b.txt", "b.txt ", "b.txt")))
    made = tool(save, name="write", must_ask=lambda path, ctx: f"changes {path!r}")
    outcome = await run(Agent("lead", tools=[made]), "go", model=model(), approver=person)
    assert len(asked) == 3
    assert results(outcome)[0].content == "Denied: the approver changed the arguments 3 times."


async def test_a_resumed_call_keeps_the_correction() -> None:
    """A process that died after the answer runs the corrected call once it is resumed, and tells the model."""
    person, _ = answering(allow(args={"path": "b.txt"}))
    store = MemoryStore()
    await run(LEAD, "go", model=model(), approver=person, store=store)
    RAN.clear()
    dead = await died(store, a(ApprovalAnswered))
    outcome = await resume(dead, "r1", agent=LEAD, model=model())
    assert RAN == ["b.txt"]
    assert results(outcome)[0].note == NOTE
    assert sum(isinstance(e, ApprovalRequested) for e in await journal(dead)) == 1


async def test_arguments_must_be_json() -> None:
    """`allow(args=...)` raises at once for anything but a dictionary of JSON values."""
    for wrong in ([1], "x", {"x": object()}):
        with pytest.raises(UsageError, match=r"allow\(args=\.\.\.\) must be a dictionary of JSON values"):
            allow(args=cast(JsonObject, wrong))
    person, _ = answering(Decision(allowed=True, args=cast(JsonObject, {"x": object()})))
    outcome = await run(LEAD, "go", model=model(), approver=person)
    assert "the approver must return allow() or deny()" in results(outcome)[0].content
    assert RAN == []
