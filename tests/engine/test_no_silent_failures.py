"""Mistakes that would otherwise show in nothing but the result: each is an error before the run, or a warning."""

from __future__ import annotations

import asyncio
import logging
import re
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from remit import (
    Agent,
    ApprovalRequest,
    Event,
    Limits,
    ModelError,
    Outcome,
    UsageError,
    allow,
    run,
    start,
    tool,
)
from remit.events import ReplyReceived
from remit.testing import ScriptedModel, call, say
from remit.tools.policy import Decision

ran: list[str] = []


@tool
async def remove(path: str) -> str:
    """Remove a file."""
    ran.append(path)
    return "removed"


CLERK = Agent("clerk", tools=[remove])


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def script() -> ScriptedModel:
    return ScriptedModel({"clerk": [call("remove", path="x"), say("done")]})


async def test_a_rule_about_a_tool_that_does_not_exist_is_an_error() -> None:
    """A misspelt denial is a UsageError with a suggestion, and nothing runs."""
    with pytest.raises(UsageError, match=r"no tool is named 'remov'\. Did you mean 'remove'\?"):
        await run(CLERK, "go", model=script(), policy=["allow *", "deny remov"])
    assert ran == []


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        ({"max_turns": 3}, "limits=Limits(turns=3)"),
        ({"max_depth": 2}, "limits=Limits(depth=2)"),
        ({"timeout": 30}, "limits=Limits(seconds=30)"),
        ({"budget": 0.5}, "limits=Limits(usd=0.5)"),
        ({"system_prompt": "Be brief."}, "Agent(..., instructions=...)"),
        ({"tools": []}, "Agent(..., tools=...)"),
        ({"messages": []}, "Write history=..."),
        ({"limit": None}, "Did you mean 'limits'?"),
    ],
)
@pytest.mark.parametrize("way_in", [run, start])
async def test_an_option_of_another_framework_is_an_error_that_says_what_to_write(
    options: dict[str, object], instead: str, way_in: Callable[..., object]
) -> None:
    """`run(max_turns=3)` names `limits=Limits(turns=3)`, and so do the other names that people try."""
    (name,) = options

    async def go() -> None:
        await way_in(CLERK, "go", model=script(), **options)  # pyright: ignore[reportGeneralTypeIssues] - `start` raises

    with pytest.raises(UsageError, match=re.escape(f"has no option {name!r}")) as told:
        await go()
    assert instead in str(told.value)


async def warned(caplog: pytest.LogCaptureFixture, **options: object) -> tuple[Outcome, list[str]]:
    with caplog.at_level(logging.WARNING, "remit"):
        outcome = await run(CLERK, "go", model=script(), **options)  # pyright: ignore[reportCallIssue, reportArgumentType]
    return outcome, [record.getMessage() for record in caplog.records if record.name == "remit"]


async def test_a_call_denied_for_want_of_an_approver_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Without `approver=`, a tool that needs approval is denied, and log and outcome say what to do."""
    outcome, logged = await warned(caplog)
    assert ran == []
    (text,) = outcome.warnings
    assert text.startswith("remove was denied: its tier is confirm, but run() has no approver=.")
    assert logged == [text]


async def test_an_approver_that_returns_no_decision_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """An approver that returns True denies the call, and log and outcome say what it must return."""

    async def yes(request: ApprovalRequest) -> bool:
        return True

    outcome, logged = await warned(caplog, approver=yes)
    assert ran == []
    assert outcome.warnings == ("remove was denied: the approver must return allow() or deny(), not True.",)
    assert logged == ["remove was denied: the approver must return allow() or deny(), not True"]


async def test_an_approver_that_raises_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """An approver that raises denies the call, and log and outcome say what it raised."""

    async def broken(request: ApprovalRequest) -> object:
        raise ValueError("no line")

    outcome, logged = await warned(caplog, approver=broken)
    assert outcome.warnings == ("remove was denied: the approver raised ValueError: no line.",)
    assert logged == ["remove was denied: the approver raised ValueError: no line"]


@pytest.mark.real_time
async def test_an_on_event_that_raises_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """A reader that raises does not stop the run; log and outcome say once what it raised."""

    def broken(event: Event) -> None:
        raise ValueError("no screen")

    outcome, logged = await warned(caplog, on_event=broken, policy=["allow *"])
    assert outcome.ok
    assert outcome.warnings == ("on_event raised ValueError: no screen.",)
    assert logged == [
        "on_event raised ValueError: no screen; the run continues, and on_event is called again"
    ]


@pytest.mark.real_time
def test_a_program_without_logging_sees_warnings_on_stderr() -> None:
    """The logger `remit` has no handler of its own, so its warnings reach stderr unless the program configures logging."""
    code = """
from remit import Agent, run_sync, tool
from remit.testing import ScriptedModel, call, say
from remit.tools.policy import Decision
@tool
def remove(path: str) -> str: "Remove."
run_sync(Agent("clerk", tools=[remove]), "go", model=ScriptedModel([call("remove", path="x"), say("done")]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "remove was denied" in done.stderr
    assert done.stdout == ""


async def test_a_scripted_call_passes_text_on_to_the_tool() -> None:
    """`call(..., text=...)` is an argument of the tool, not something that the model says besides."""
    seen: list[str] = []

    @tool(tier="observe")
    async def count_words(text: str) -> int:
        """Count."""
        seen.append(text)
        return len(text.split())

    model = ScriptedModel([call("count_words", text="a b c", said="Let me count."), say("3")])
    outcome = await run(Agent("one", tools=[count_words]), "go", model=model)
    assert seen == ["a b c"]
    assert outcome.messages[1].text == "Let me count."


@pytest.mark.real_time
async def test_a_sync_tool_that_cannot_hear_a_stop_is_abandoned_at_its_timeout() -> None:
    """A sync tool without a ToolContext cannot be asked to stop, so nobody waits for it after its timeout."""

    @tool(tier="observe", timeout_s=0.2)
    def deaf() -> str:
        """Sleep."""
        time.sleep(1.5)
        return "late"

    began = time.monotonic()
    outcome = await run(Agent("one", tools=[deaf]), "go", model=ScriptedModel([call("deaf"), say("done")]))
    assert time.monotonic() - began < 1.2
    assert outcome.ok
    assert outcome.warnings == ("tool deaf could not be stopped and was abandoned; its result is dropped.",)
    await asyncio.sleep(1.5)


async def test_a_chain_that_runs_out_of_time_names_readable_numbers() -> None:
    """However short the rest of the time is, no message has it in powers of ten."""
    agent = Agent("leaf")
    for depth in range(12):
        agent = Agent(f"a{depth}", subagents=[agent])
    scripts = {
        f"a{d}": [call("task", agent=f"a{d - 1}" if d else "leaf", prompt="x"), say("k")] for d in range(12)
    }
    model = ScriptedModel({**scripts, "leaf": [say("k", delay=9)]})
    outcome = await run(agent, "go", model=model, limits=Limits(seconds=0.0001, depth=None))
    said = [outcome.reason]
    while outcome.children:
        outcome = outcome.children[0]
        said.append(outcome.reason)
    assert "the time limit of under 0.01 s is reached" in said
    assert not re.search(r"\de-\d", " ".join(said))


def test_a_model_error_needs_no_message() -> None:
    """`ModelError(kind="server")` says what kind of failure it is."""
    assert str(ModelError(kind="server")) == "the model failed (server)"
    assert ModelError(kind="rate_limit").retryable


async def test_an_on_event_that_exits_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """`sys.exit()` in on_event is reported like any other exception."""

    def leave(_: Event) -> None:
        sys.exit(3)

    outcome = await run(Agent("lead"), "go", model=ScriptedModel([say("Done.")]), on_event=leave)
    assert outcome.ok
    assert any("on_event raised SystemExit" in text for text in outcome.warnings)
    assert "on_event raised SystemExit" in caplog.text


async def test_a_reader_of_events_cannot_change_an_approved_call() -> None:
    """The arguments that a person approved are the arguments that run, even if a reader of events edits its copy."""
    ran: list[int] = []

    @tool
    def change(number: int) -> str:
        ran.append(number)
        return "changed"

    async def approve(request: ApprovalRequest) -> Decision:
        for one in replies:
            for made in one.reply.calls:
                assert isinstance(made.args, dict)
                made.args["number"] = 666
        return allow()

    replies: list[ReplyReceived] = []
    model = ScriptedModel([call("change", number=1), say("Done.")])
    async with start(Agent("lead", tools=[change]), "go", model=model, approver=approve) as running:
        async for event in running.events():
            replies += [event] if isinstance(event, ReplyReceived) else []
    assert (len(replies), ran) == (2, [1])
