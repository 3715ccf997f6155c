"""Tool sources: opened once per tree, shared by its runs, closed with it; missing tools are reported by name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

import remit.tools.source as sources
from remit import Agent, Limits, Outcome, Status, Tool, ToolMessage, UsageError, run, start, tool
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.source import Choice
from remit.types.events import ToolsOpened


class Server:
    """A source that counts its openings and closings."""

    def __init__(
        self, name: str = "files", *, seconds: float = 0.0, fails: str = "", only: tuple[str, ...] = ()
    ) -> None:
        self.name = name
        self.key = name
        self.open_seconds = 10.0
        self.observes = True
        self.seconds = seconds
        self.fails = fails
        self.only = only
        self.opened = 0
        self.live = 0
        self.stuck = False
        self.changes = False

    async def open(self, workspace: Path | None) -> Opened:
        self.opened += 1
        await asyncio.sleep(self.seconds)
        if self.fails:
            raise RuntimeError(self.fails)
        return Opened(self)

    def choose(self, tools: Sequence[Tool]) -> Choice:
        if not self.only:
            return Choice(tools)
        chosen = [t for t in tools if t.name.rpartition("__")[2] in self.only]
        lost = sorted(set(self.only) - {t.name.rpartition("__")[2] for t in chosen})
        return Choice(chosen, f"it has no tool called {', '.join(lost)}" if lost else "")


class Opened:
    def __init__(self, server: Server) -> None:
        server.live += 1
        self.server = server

        @tool(name=f"mcp__{server.name}__look", tier="observe")
        async def look() -> str:
            """Looks."""
            assert server.live == 1
            return f"{server.name} looked"

        @tool(name=f"mcp__{server.name}__change")
        async def change() -> str:
            """Changes something."""
            return "changed"

        self.tools = (look, change) if server.changes else (look,)

    async def close(self) -> None:
        await asyncio.sleep(0.01)
        self.server.live -= 1


def user(server: Server, name: str = "user") -> Agent:
    return Agent(name, description="Uses it.", tools=[server])


LOOK = "mcp__files__look"


def results(outcome: Outcome) -> list[str]:
    return [m.content for m in outcome.messages if isinstance(m, ToolMessage)]


async def test_a_run_has_the_tools_of_its_sources() -> None:
    """The tools of a source are offered and called like other tools, and the source is closed at the end."""
    server = Server()
    model = ScriptedModel([call(LOOK), say("done")])
    outcome = await run(user(server), "go", model=model)
    assert results(outcome) == ["files looked"]
    assert [s.name for s in model.requests[0].tools] == [LOOK]
    assert (server.opened, server.live) == (1, 0)


@pytest.mark.parametrize("concurrency", [1, 20])
async def test_twenty_children_share_one_opening(concurrency: int) -> None:
    """A source is opened once per tree, however many runs use it."""
    server = Server(seconds=1)
    lead = Agent("lead", subagents=[user(server)])
    asked = calls(*[call("task", agent="user", prompt=str(n)) for n in range(20)])
    model = ScriptedModel({"lead": [asked, say("done")], "user": [call(LOOK), say("found")]})
    outcome = await run(lead, "go", model=model, limits=Limits(concurrency=concurrency))
    assert [c.text for c in outcome.children] == ["found"] * 20
    assert (server.opened, server.live) == (1, 0)


async def test_a_source_that_fails_to_open_is_reported_and_the_rest_works() -> None:
    """A broken source removes only its own tools; the model and the outcome's warnings name it."""
    good, bad = Server(), Server("mail", fails="no such program: maild")
    lead = Agent("lead", tools=[bad, good])
    model = ScriptedModel([call(LOOK), say("done")])
    outcome = await run(lead, "go", model=model)
    assert outcome.ok
    assert results(outcome) == ["files looked"]
    assert any("mail" in w and "no such program: maild" in w for w in outcome.warnings)
    told = model.requests[0].messages[-1].text
    assert "mail" in told
    assert "no such program: maild" in told


async def test_a_tool_that_a_source_lacks_is_reported_by_name() -> None:
    """A tool in the allowlist that the source lacks is reported, and the other tools work."""
    model = ScriptedModel([call(LOOK), say("done")])
    outcome = await run(user(Server(only=("look", "dance"))), "go", model=model)
    assert results(outcome) == ["files looked"]
    assert any("dance" in w for w in outcome.warnings)


async def test_opening_has_a_timeout() -> None:
    """A source that never answers times out, and the run continues without it."""
    outcome = await run(user(Server(seconds=1000)), "go", model=ScriptedModel([say("without")]))
    assert outcome.text == "without"
    assert any("not ready within 10 s" in w for w in outcome.warnings)


async def test_a_run_that_is_cancelled_while_it_opens_leaves_nothing() -> None:
    """Cancelling does not wait for a source, and a late opening is closed."""
    server = Server(seconds=5)
    async with start(user(server), "go", model=ScriptedModel([say("never")])) as running:
        await asyncio.sleep(1)
        await running.cancel("enough")
        outcome = await running.outcome()
    assert outcome.status is Status.CANCELLED
    assert server.live == 0


async def test_one_borrower_that_is_cancelled_does_not_hurt_the_others() -> None:
    """If the run that opened a source is cancelled, the other runs keep it."""
    server = Server(seconds=2)
    lead = Agent("lead", subagents=[user(server)])
    asked = calls(*[call("task", agent="user", prompt=str(n)) for n in range(2)])
    model = ScriptedModel({"lead": [asked, say("done")], "user": [call(LOOK), say("found")]})
    async with start(lead, "go", model=model) as running:
        await asyncio.sleep(1)
        await running.cancel("not this one", run=f"{running.run_id}.1")
        outcome = await running.outcome()
    assert [c.status for c in outcome.children] == [Status.CANCELLED, Status.COMPLETED]
    assert (server.opened, server.live) == (1, 0)


async def test_an_unused_source_is_closed_after_a_while() -> None:
    """A source that no run uses is closed after a while, and opened again for the next run."""
    server = Server()
    lead = Agent("lead", subagents=[user(server)])

    @tool(tier="observe")
    async def wait() -> str:
        await asyncio.sleep(sources.LINGER_S + 1)
        return f"live: {server.live}"

    one = call("task", agent="user", prompt="go")
    model = ScriptedModel({"lead": [one, call("wait"), one, say("done")], "user": [call(LOOK), say("found")]})
    lead = Agent("lead", subagents=[user(server)], tools=[wait])
    outcome = await run(lead, "go", model=model)
    assert "live: 0" in results(outcome)
    assert (server.opened, server.live) == (2, 0)


async def test_events_report_opened_sources() -> None:
    """Events contain which source gave which tools to a run."""
    lead = Agent("lead", tools=[Server(), Server("mail", fails="gone")])
    model = ScriptedModel([say("done")])
    async with start(lead, "go", model=model) as running:
        seen = [event async for event in running.events() if isinstance(event, ToolsOpened)]
    assert [(e.source, e.tools, bool(e.trouble)) for e in seen] == [
        ("files", (LOOK,), False),
        ("mail", (), True),
    ]


async def test_an_ad_hoc_child_may_inherit_tools_of_a_source() -> None:
    """A run can pass the tools of a source on to a child."""
    server = Server()
    model = ScriptedModel(
        {
            "lead": [call("subagent", label="x", task_prompt="look"), say("done")],
            "subagent": [call(LOOK), say("found"), say("sum")],
        }
    )
    outcome = await run(Agent("lead", tools=[server], adhoc=True), "go", model=model)
    assert results(outcome.children[0]) == ["files looked"]
    assert (server.opened, server.live) == (1, 0)


def test_the_same_source_twice_is_an_error() -> None:
    """Two sources with the same name in one agent raise UsageError when the agent is made."""
    with pytest.raises(UsageError, match="files"):
        Agent("lead", tools=[Server(), Server()])


async def test_a_read_only_sandbox_withholds_tools_of_sources_that_change_things() -> None:
    """A source's tools run outside the sandbox, so a run in a read-only sandbox gets only observing tools."""
    server = Server()
    server.changes = True
    change = "mcp__files__change"
    strict = Agent("strict", description="Reads.", tools=[server], sandbox="read-only")
    lead = Agent("lead", tools=[server], subagents=[strict])
    model = ScriptedModel(
        {
            "lead": [calls(call(change), call("task", agent="strict", prompt="x")), say("done")],
            "strict": [calls(call(change), call(LOOK)), say("looked")],
        }
    )
    outcome = await run(lead, "go", model=model, policy=["allow *"])
    assert results(outcome)[0] == "changed"
    (child,) = outcome.children
    assert [log.success for log in child.calls] == [False, True]
    assert "read-only" in " ".join(child.warnings)
    assert change in " ".join(child.warnings)
    offered = {spec.name for spec in model.requests[-2].tools}
    assert offered & {LOOK, change} == {LOOK}


async def test_a_source_without_tools_that_observe_is_not_opened_in_a_read_only_sandbox() -> None:
    """A source runs outside the sandbox, so it is not opened if the run may use none of its tools."""
    server = Server()
    server.observes = False
    model = ScriptedModel({"user": [say("done")]})
    outcome = await run(user(server), "go", model=model, sandbox="read-only")
    assert server.opened == 0
    assert "files: not opened" in " ".join(outcome.warnings)
