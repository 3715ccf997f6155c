"""Long results and previews: the model reads the ends of a long result, the person sees what a call would do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from remit import (
    Agent,
    ApprovalRequest,
    Limits,
    Outcome,
    Request,
    Sandbox,
    ToolContext,
    ToolMessage,
    UsageError,
    allow,
    run,
    tool,
)
from remit.engine.run.gate import CHANGED
from remit.engine.run.tool_run import INLINE_CHARS
from remit.testing import ScriptedModel, call, calls, say
from remit.testing.scripted import Answer
from remit.tools.policy import Decision
from remit.types.events import ApprovalRequested

LONG = "".join(f"{n:09d}\n" for n in range(30_000))


@tool(tier="observe", inline_chars=1000)
async def noisy() -> str:
    """Says a lot."""
    return LONG


@tool(tier="observe")
async def plain() -> str:
    """Says a lot, without having said that it may."""
    return LONG


def result(outcome: Outcome, number: int = 0) -> ToolMessage:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)][number]


async def test_of_a_long_result_the_model_reads_both_ends() -> None:
    """A result is cut to what its tool allows, and its beginning and end are there."""
    outcome = await run(Agent("lead", tools=[noisy]), "go", model=ScriptedModel([call("noisy"), say("x")]))
    read = result(outcome)
    assert len(read.content) < 1100
    assert read.content.startswith(LONG[:600])
    assert read.content.endswith(LONG[-300:])
    assert "299,000 of 300,000 characters are omitted" in read.note


async def test_the_rest_of_a_long_result_can_be_read() -> None:
    """What was left out is kept whole, and the run that made it is offered a way to read it."""
    place = len(LONG) // 2

    def read_on(request: Request) -> Answer:
        told = request.messages[-1]
        assert isinstance(told, ToolMessage)
        named = told.note.split("'")[1]
        return call("read_artifact", artifact=named, start=place, length=100)

    model = ScriptedModel([call("noisy"), read_on, say("x")])
    outcome = await run(Agent("lead", tools=[noisy]), "go", model=model)
    assert "read_artifact" in {s.name for s in model.requests[0].tools}
    assert result(outcome, 1).content == LONG[place : place + 100]


async def test_long_results_of_one_turn_are_kept_apart() -> None:
    """Two results that are cut at the same time are two artifacts."""
    model = ScriptedModel([calls(call("noisy"), call("noisy")), say("x")])
    outcome = await run(Agent("lead", tools=[noisy]), "go", model=model)
    assert len({a.id for a in outcome.artifacts}) == 2


async def test_no_tool_gives_a_model_more_than_it_can_read() -> None:
    """A tool that says nothing about its results has remit's own limit, and what is cut is kept."""
    outcome = await run(Agent("lead", tools=[plain]), "go", model=ScriptedModel([call("plain"), say("x")]))
    assert INLINE_CHARS <= len(result(outcome).content) < INLINE_CHARS + 200
    assert outcome.artifacts[0].chars == len(LONG)


async def test_what_a_tool_says_too_late_is_cut_too() -> None:
    """What a timed-out tool returns while it is stopped is no way round the limit."""

    @tool(tier="observe", inline_chars=1000, timeout_s=1)
    async def slow() -> str:
        """Returns when it is cancelled."""
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return LONG
        return ""

    outcome = await run(Agent("lead", tools=[slow]), "go", model=ScriptedModel([call("slow"), say("x")]))
    assert result(outcome).content.startswith("Timed out: slow did not finish within 1 s.")
    assert len(result(outcome).content) < 1100


@pytest.mark.parametrize("chars", [0, 99, -1, True, 1.5, "1000"])
def test_how_much_is_read_must_be_a_number(chars: object) -> None:
    """What cannot be a number of characters is a mistake of whoever wrote the tool."""
    with pytest.raises(UsageError, match="inline_chars"):
        tool(lambda: "x", name="t", inline_chars=chars)  # pyright: ignore[reportArgumentType]


# --- Previews ------------------------------------------------------------------------------------------


class Person:
    def __init__(self) -> None:
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> Decision:
        self.asked.append(request)
        return allow()


def would(path: str, ctx: ToolContext) -> str:
    return f"{ctx.path[-1]} would change {path} in {ctx.workspace}"


@tool(preview=would)
async def change(path: str) -> str:
    """Changes."""
    return "changed"


async def test_the_person_sees_what_the_call_would_do(tmp_path: Path) -> None:
    """A request carries its tool's own preview, made with the run's workspace, and so does the event."""
    person, events = Person(), list[ApprovalRequested]()
    model = ScriptedModel([call("change", path="a"), say("x")])
    lead = Agent("lead", tools=[change])

    def note(event: object) -> None:
        if isinstance(event, ApprovalRequested):
            events.append(event)

    await run(lead, "go", model=model, approver=person, workspace=tmp_path, on_event=note)
    assert person.asked[0].preview == f"lead would change a in {tmp_path}"
    assert [e.preview for e in events] == [person.asked[0].preview]


@pytest.mark.parametrize("wrong", ["raises", "number", "long"])
async def test_a_preview_that_fails_changes_nothing(wrong: str) -> None:
    """Without a preview the person is asked all the same, with the arguments."""

    def broken(path: str, ctx: ToolContext) -> str:
        if wrong == "raises":
            raise RuntimeError(path)
        return 7 if wrong == "number" else "x" * 1_000_000  # pyright: ignore[reportReturnType]

    person = Person()
    made = tool(lambda path="": "done", name="change", preview=broken)
    model = ScriptedModel([call("change", path="a"), say("x")])
    outcome = await run(Agent("lead", tools=[made]), "go", model=model, approver=person)
    assert result(outcome).ok
    assert len(person.asked[0].preview) <= 20_200
    assert ("Preview truncated" in person.asked[0].preview) is (wrong == "long")
    assert person.asked[0].args == {"path": "a"}


async def test_what_the_person_did_not_see_is_not_done() -> None:
    """A call whose preview has changed by the time of the answer is not run; the model is told to look again."""
    state = ["before"]

    @tool(preview=lambda ctx: f"would change {state[0]}")
    async def alter() -> str:
        """Changes."""
        return "changed"

    async def slow(request: ApprovalRequest) -> Decision:
        state[0] = "after"
        return allow()

    model = ScriptedModel([call("alter"), say("x")])
    outcome = await run(Agent("lead", tools=[alter]), "go", model=model, approver=slow)
    assert result(outcome).content == CHANGED


# --- Sandboxes -----------------------------------------------------------------------------------------


@tool(tier="observe")
async def box(ctx: ToolContext) -> str:
    """Says what it may touch."""
    return str(ctx.sandbox)


@pytest.mark.parametrize(
    ("caller", "lead", "child", "seen"),
    [
        (None, None, None, ["open", "open"]),
        ("read-only", None, None, ["read-only", "read-only"]),
        ("workspace-write", "read-only+network", "open", ["read-only", "read-only"]),
        (None, "workspace-write+network", "read-only", ["workspace-write+network", "read-only"]),
        (None, "read-only", "workspace-write+network", ["read-only", "read-only"]),
        ("workspace-write+network", None, None, ["workspace-write+network", "workspace-write+network"]),
        (Sandbox("open", network=False), None, "workspace-write+network", ["no network", "workspace-write"]),
    ],
)
async def test_a_childs_sandbox_is_never_wider_than_its_parents(
    caller: str, lead: str, child: str, seen: list[str]
) -> None:
    """What a run may touch is the narrowest of its own and of everybody's above it, in each respect."""
    below = Agent("child", tools=[box], sandbox=child)  # pyright: ignore[reportArgumentType]
    top = Agent("lead", tools=[box], subagents=[below], sandbox=lead)  # pyright: ignore[reportArgumentType]
    model = ScriptedModel(
        {
            "lead": [call("box"), call("task", agent="child", prompt="go"), say("x")],
            "child": [call("box"), say("x")],
        }
    )
    outcome = await run(top, "go", model=model, sandbox=caller, limits=Limits(depth=1))  # pyright: ignore[reportArgumentType]
    assert [result(outcome).content, result(outcome.children[0]).content] == seen


@pytest.mark.parametrize("wrong", ["readonly", "open + network", "", 7, True, ["read-only"]])
async def test_a_sandbox_that_does_not_exist_is_a_mistake(wrong: object) -> None:
    """A sandbox is never guessed at: what cannot be read is said before anything runs."""
    with pytest.raises(UsageError, match="sandbox"):
        Agent("lead", sandbox=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match="sandbox"):
        await run(Agent("lead"), "go", sandbox=wrong, model=ScriptedModel([say("x")]))  # pyright: ignore[reportArgumentType]
