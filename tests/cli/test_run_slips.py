"""Slips that must not pass for success: rules that name nothing, tasks that nobody can do, runs that are somebody else's."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# The bench is shared by the tests of this folder.
sys.path.insert(0, str(Path(__file__).parent))

from runbench import project, remit, run

import remit.cli.exits as exits
from remit import Agent, Limits, Status, run_sync, tool
from remit.testing import ScriptedModel, call, say

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return project(tmp_path, monkeypatch)


@pytest.mark.parametrize("flag", ["--allow", "--ask", "--deny"])
@pytest.mark.parametrize("rule", ["wrlte", "wrlte(notes*)"])
def test_a_rule_for_no_tool_is_said_before_anything_runs(flag: str, rule: str) -> None:
    """A denial that denies nothing is worse than none."""
    said = run("Go", flag, rule, model=ScriptedModel([say("never")]))
    assert (said.code, said.out) == (exits.WRONG_USE, "")
    assert "Did you mean 'write'?" in said.err


@pytest.mark.parametrize("rule", ["write", "Bash(git *)", "mcp__x__*", "*", "task", "subagent_x"])
def test_rules_for_what_there_is_are_fine(rule: str) -> None:
    """Names of other programs, servers and patterns are no slips."""
    assert run("Go", "--deny", rule, model=ScriptedModel([say("Done.")])).code == 0


def test_what_nobody_can_do_is_not_a_success() -> None:
    """Without a model a task that is no survey is not begun, and the exit code says so."""
    said = remit("run", "What is the meaning of life?")
    assert (said.code, said.out) == (exits.WRONG_USE, "")
    assert "Survey this folder" in said.err


def test_agents_that_are_not_there_are_said() -> None:
    """A folder of agents that does not exist is a slip, whatever would be run."""
    said = run("Go", "--agents", "nowhere", model=ScriptedModel([say("never")]))
    assert said.code == exits.WRONG_USE
    assert "nowhere" in said.err


def test_an_agent_that_is_left_out_is_said(folder: Path) -> None:
    """A run that goes on without it would look as if nobody had written it."""
    agents = folder / ".remit" / "agents"
    agents.mkdir(parents=True)
    (agents / "helper.md").write_text("---\nname: helper\ndescription: Helps.\ntools: Grpe\n---\nHelp.\n")
    said = run("Go", model=ScriptedModel([say("Done.")]))
    assert said.code == 0
    assert "helper.md:4: There is no tool 'Grpe'. Did you mean 'grep'?" in said.err
    assert "An agent whose file has an error is left out." in said.err


def test_calls_that_failed_are_counted_where_people_look() -> None:
    """A denied call is in the last line, whatever the model says of it."""
    model = ScriptedModel([call("write", path="a.txt", content="x"), say("Written.")])
    said = run("Go", "--yes", "--deny", "write", model=model)
    assert "1 call failed or denied" in said.err


def test_a_run_of_another_program_gets_no_other_agent(folder: Path) -> None:
    """A conversation that was not begun here does not go on with tools that its agent never had."""

    @tool(tier="observe")
    async def peek() -> str:
        """Looks."""
        return "seen"

    store = f"sqlite:///{folder / 'own.db'}"
    lead = Agent("lead", tools=[peek], policy=["deny write"])
    outcome = run_sync(lead, "Go", model=ScriptedModel([say("Done.")]), store=store)
    model = ScriptedModel([call("write", path="a.txt", content="x"), say("Written.")])
    said = remit(
        "resume", outcome.run_id, "write it", "--journal", store, "--yes", "--model", "scripted", model=model
    )
    assert said.code == exits.WRONG_USE
    assert "was not started by `remit run`" in said.err
    assert not (folder / "a.txt").exists()


def test_a_run_of_a_program_says_where_it_goes_on(folder: Path) -> None:
    """Whoever resumes a run whose agent and model only its program has is told so, not only that a name means nothing."""
    store = f"sqlite:///{folder / 'own.db'}"
    model = ScriptedModel([call("ls"), say("Stopped.")])
    outcome = run_sync(Agent("mine", tools=["ls"]), "Go", model=model, store=store, limits=Limits(turns=1))
    said = remit("resume", outcome.run_id, "--journal", store)
    assert said.code == exits.WRONG_USE
    assert f"{outcome.run_id} was not started by `remit run`" in said.err
    assert f"remit.resume(store, '{outcome.run_id}', agent=..., model=...)" in said.err


def test_going_on_does_not_lead_in_a_circle() -> None:
    """Where a limit ended a run, the command to go on with raises it."""
    model = ScriptedModel([call("ls"), call("ls", path="."), say("never")])
    said = run("Go", "--max-turns", "1", model=model)
    assert said.code == exits.BY_STATUS[Status.INCOMPLETE]
    assert "--max-turns 100" in said.err


def test_a_broken_file_keeps_nobody_from_looking(folder: Path) -> None:
    """Runs are listed, and can be stopped, while remit.toml is being mended; starting one says what is wrong."""
    (folder / "remit.toml").write_text("model = \n")
    listed = remit("runs")
    assert listed.code == 0
    assert "remit.toml:1" in listed.err
    assert run("Go", model=ScriptedModel([say("never")])).code == exits.WRONG_USE
