"""Servers used by agents: missing tools, approval, sharing, timeouts and the journal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from workshop import NEEDS_PROC, Shop, until

import remit
from remit import Agent, Limits, Status, ToolMessage, deny, run, start
from remit.testing import ScriptedModel, call, say
from remit.tools.mcp import McpServer
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.events import CallProgressed, ToolsOpened

pytestmark = [pytest.mark.real_time, NEEDS_PROC]

ALLOWED = ["allow mcp__*"]


async def test_a_servers_tool_needs_approval(shop: Shop) -> None:
    """A server's tools may change things, so a person is asked first and may deny."""
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request)
        return deny("not this")

    model = ScriptedModel({"lead": [call("mcp__plain__echo", word="hi"), say("done")]})
    outcome = await run(
        Agent("lead", tools=[shop.plain(only=["echo"])]), "go", model=model, approver=approver
    )
    assert [(request.tool, request.args) for request in asked] == [("mcp__plain__echo", {"word": "hi"})]
    assert [log.success for log in outcome.calls] == [False]


async def test_a_server_that_fails_is_named_and_the_rest_works(shop: Shop) -> None:
    """The model and the outcome name the missing server and the reason; the other server's tools work."""
    broken = shop.plain("broken", LATE="4", DATABASE="postgres://u:pw@db")
    model = ScriptedModel({"lead": [call("mcp__plain__echo", word="hi"), say("done")]})
    lead = Agent("lead", tools=[broken, shop.plain(only=["echo", "sing"])])
    async with start(lead, "go", model=model, policy=ALLOWED) as running:
        events = [event async for event in running.events() if isinstance(event, ToolsOpened)]
        outcome = await running.outcome()
    assert [log.success for log in outcome.calls] == [True]
    assert [(event.source, event.tools) for event in events] == [
        ("broken", ()),
        ("plain", ("mcp__plain__echo",)),
    ]
    said = " ".join(outcome.warnings)
    assert "exit code 4" in said
    assert "no tool matches 'sing'" in said
    assert "u:pw" not in f"{events} {outcome}"


async def test_a_call_that_takes_too_long_is_ended(shop: Shop) -> None:
    """`timeout_s` ends the call; the server is notified and keeps running."""
    server = McpServer(
        "plain", command=sys.executable, args=shop.plain().args, env=dict(shop.plain().env), timeout_s=0.2
    )
    script = [call("mcp__plain__hang"), call("mcp__plain__heard"), say("done")]
    outcome = await run(
        Agent("lead", tools=[server]), "go", model=ScriptedModel({"lead": script}), policy=ALLOWED
    )
    results = [m.content for m in outcome.messages if isinstance(m, ToolMessage)]
    assert "did not finish within 0.2 s" in results[0]
    assert results[1] == "1"


async def test_call_seconds_apply_to_servers_without_a_timeout(shop: Shop) -> None:
    """`Limits(call_seconds=...)` applies to calls of MCP servers as to any other tool."""
    script = [call("mcp__plain__hang"), call("mcp__plain__heard"), say("done")]
    lead = Agent("lead", tools=[shop.plain(only=["hang", "heard"])], limits=Limits(call_seconds=0.2))
    outcome = await run(lead, "go", model=ScriptedModel({"lead": script}), policy=ALLOWED)
    results = [m.content for m in outcome.messages if isinstance(m, ToolMessage)]
    assert "did not finish within 0.2 s" in results[0]
    assert results[1] == "1"


async def test_a_run_out_of_time_during_a_call_leaves_nothing(shop: Shop) -> None:
    """A run's deadline ends its calls, and the end of the tree ends its servers."""
    model = ScriptedModel({"lead": [call("mcp__plain__hang"), say("what I have")]})
    lead = Agent("lead", tools=[shop.plain(only=["hang"])], limits=Limits(seconds=1))
    outcome = await run(lead, "go", model=model, policy=ALLOWED)
    assert outcome.status is Status.TIMED_OUT
    assert shop.running() == []


@pytest.mark.parametrize("trusted", [False, True])
async def test_a_read_only_sandbox_withholds_tools_that_are_not_read_only(shop: Shop, trusted: bool) -> None:
    """A server's claim that a tool is read-only counts only if the user trusts the server; otherwise it is not started."""
    server = shop.plain(only=["heard", "echo"], trusted=trusted)
    model = ScriptedModel({"lead": [say("done")]})
    outcome = await run(Agent("lead", tools=[server]), "go", model=model, sandbox="read-only")
    offered = [spec.name for spec in model.requests[0].tools if spec.name.startswith("mcp__")]
    assert offered == (["mcp__plain__heard"] if trusted else [])
    said = " ".join(outcome.warnings)
    assert ("mcp__plain__echo" if trusted else "plain: not opened") in said


async def test_progress_is_an_event(shop: Shop) -> None:
    """Watchers of the run see the progress of the call; the model does not."""
    model = ScriptedModel({"lead": [call("mcp__plain__steps", count=1), say("done")]})
    async with start(Agent("lead", tools=[shop.plain()]), "go", model=model, policy=ALLOWED) as running:
        said = [event.text async for event in running.events() if isinstance(event, CallProgressed)]
        outcome = await running.outcome()
    assert said == ["digging (1 of 1)"]
    assert "digging" not in str(outcome.messages)


async def test_a_cancelled_opening_ends_with_its_run(shop: Shop) -> None:
    """A run that is cancelled while its server starts leaves no process."""
    lead = Agent("lead", tools=[shop.plain(MUTE="1")])
    async with start(lead, "go", model=ScriptedModel({}), policy=ALLOWED) as running:
        await until(lambda: bool(shop.running()))
        await running.cancel("no more")
        assert (await running.outcome()).status is Status.CANCELLED
    assert shop.running() == []


async def test_a_server_that_a_child_crashes_is_restarted(shop: Shop) -> None:
    """The first child reads how the server ended; for the second the server is restarted."""
    server = shop.plain(only=["die", "echo"])
    first = Agent("first", tools=[server])
    second = Agent("second", tools=[server])
    model = ScriptedModel(
        {
            "lead": [
                call("task", agent="first", prompt="x"),
                call("task", agent="second", prompt="y"),
                say("done"),
            ],
            "first": [call("mcp__plain__die", code=9), say("it died")],
            "second": [call("mcp__plain__echo", word="hi"), say("it lives")],
        }
    )
    outcome = await run(Agent("lead", subagents=[first, second]), "go", model=model, policy=ALLOWED)
    died, lives = outcome.children
    assert [(log.success, log.name) for log in died.calls] == [(False, "mcp__plain__die")]
    assert [log.success for log in lives.calls] == [True]


def test_naming_a_server_imports_nothing_heavy() -> None:
    """Describing a server does not import the package; only opening it does."""
    code = (
        "import sys; from remit.tools.mcp import McpServer; McpServer('a', command='x');"
        "print(*{'mcp', 'mcp_types', 'httpx2', 'pydantic', 'jsonschema'} & set(sys.modules))"
    )
    env = {"PYTHONPATH": str(Path(remit.__file__).parent.parent)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


async def test_the_message_about_a_missing_package(monkeypatch: pytest.MonkeyPatch, shop: Shop) -> None:
    """A missing package is an error of that server, with the extra to install."""
    for name in [name for name in sys.modules if name == "mcp" or name.startswith("mcp.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    model = ScriptedModel({"lead": [say("done")]})
    outcome = await run(Agent("lead", tools=[shop.plain()]), "go", model=model)
    assert "pip install 'remit[mcp]'" in " ".join(outcome.warnings)
