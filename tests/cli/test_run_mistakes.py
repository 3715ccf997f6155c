"""Mistakes that must not look like success: rules for unknown tools, impossible tasks, runs of other programs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from runbench import project, remit, run

import remit.cli.exits as exits
from remit import Agent, Limits, Reply, Request, Status, run_sync, tool
from remit.testing import ScriptedModel, call, say
from remit.types.ports import Emit

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return project(tmp_path, monkeypatch)


@pytest.mark.parametrize("flag", ["--allow", "--ask", "--deny"])
@pytest.mark.parametrize("rule", ["wrlte", "wrlte(notes*)"])
def test_a_rule_for_an_unknown_tool_is_rejected(flag: str, rule: str) -> None:
    """A deny rule with a typo would deny nothing, so it is an error before the run."""
    said = run("Go", flag, rule, model=ScriptedModel([say("never")]))
    assert (said.code, said.out) == (exits.WRONG_USE, "")
    assert "Did you mean 'write'?" in said.err


@pytest.mark.parametrize("rule", ["write", "Bash(git *)", "mcp__x__*", "*", "task", "subagent_x"])
def test_rules_for_known_names_are_accepted(rule: str) -> None:
    """Names from other programs, tools of servers and patterns are accepted."""
    assert run("Go", "--deny", rule, model=ScriptedModel([say("Done.")])).code == 0


def test_an_impossible_task_is_not_a_success() -> None:
    """Without a model, a task other than a survey is not started, with exit code 2."""
    said = remit("run", "What is the meaning of life?")
    assert (said.code, said.out) == (exits.WRONG_USE, "")
    assert "Survey this folder" in said.err
    assert said.err.count("Without a model, remit can only survey this folder.") == 1
    said = remit("run", "What is the meaning of life?", "--model", "offline")
    assert said.err.count("Without a model, remit can only survey this folder.") == 1


def test_missing_agent_paths_are_reported() -> None:
    """A folder of agents that does not exist is an error, whichever agent runs."""
    said = run("Go", "--agents", "nowhere", model=ScriptedModel([say("never")]))
    assert said.code == exits.WRONG_USE
    assert "nowhere" in said.err


def test_a_skipped_agent_is_reported(folder: Path) -> None:
    """A run without an agent whose file has an error prints a note about it."""
    agents = folder / ".remit" / "agents"
    agents.mkdir(parents=True)
    (agents / "helper.md").write_text("---\nname: helper\ndescription: Helps.\ntools: Grpe\n---\nHelp.\n")
    said = run("Go", model=ScriptedModel([say("Done.")]))
    assert said.code == 0
    assert "helper.md:4: No tool named 'Grpe'. Did you mean 'grep'?" in said.err
    assert "Agents with errors in their files are skipped." in said.err


def _agent(folder: Path, name: str, more: str = "") -> None:
    agents = folder / ".remit" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    (agents / f"{name}.md").write_text(f"---\nname: {name}\ndescription: D.\n{more}---\nWork.\n")


def test_a_named_agent_with_an_error_in_its_file(folder: Path) -> None:
    _agent(folder, "helper", "max_truns: 3\nlimits: nonsense\n")
    said = run("Go", "--agent", "helper", model=ScriptedModel([say("never")]))
    assert said.code == exits.WRONG_USE
    assert "The agent 'helper' cannot run because its file has an error." in said.err
    assert "helper.md:5" in said.err


def test_an_agent_with_an_error_in_its_file_is_suggested(folder: Path) -> None:
    """A misspelled name of an agent that cannot run is reported with the right name and the error."""
    _agent(folder, "explorer", "limits: nonsense\n")
    _agent(folder, "other", "limits: nonsense\n")
    said = run("Go", "--agent", "exploer", model=ScriptedModel([say("never")]))
    assert said.code == exits.WRONG_USE
    assert "No agent named 'exploer'. Did you mean 'explorer'? Its file has an error.\n" in said.err
    assert "explorer.md:4" in said.err
    assert "other.md" not in said.err


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ("", "The agent 'helper' names no model, and no API key is set."),
        ("model: haiku\n", "ANTHROPIC_API_KEY is not set"),
        ("model: ofline\n", "Did you mean 'offline'?"),
    ],
)
def test_a_named_agent_without_a_model(folder: Path, more: str, words: str) -> None:
    _agent(folder, "helper", more)
    said = remit("run", "Go", "--agent", "helper")
    assert (said.code, said.out) == (exits.WRONG_USE, "")
    assert words in said.err


def test_the_hint_of_warnings_lists_them(folder: Path) -> None:
    _agent(folder, "helper", "maxTruns: 3\n")
    file = str(folder / ".remit" / "agents" / "helper.md")
    said = run("Go", "--agents", file, model=ScriptedModel([say("Done.")]))
    assert f"`remit agents --check {file}` shows them." in said.err
    assert "maxTruns" in remit("agents", "--check", file).out


def test_warnings_of_this_folder_are_not_in_named_files(folder: Path) -> None:
    _agent(folder, "helper", "maxTruns: 3\n")
    (folder / "team").mkdir()
    (folder / "team" / "other.md").write_text("---\nname: other\ndescription: D.\n---\nWork.\n")
    said = run("Go", "--agents", "team", model=ScriptedModel([say("Done.")]))
    assert "`remit agents --check` shows them." in said.err
    assert "maxTruns" in remit("agents", "--check").out


def test_options_that_the_offline_rules_do_not_support() -> None:
    """An option that is silently ignored would look like success."""
    said = remit("run", "Survey src", "-m", "offline", "--json-schema", '{"type": "object"}')
    assert (said.code, said.out) == (exits.WRONG_USE, "")
    assert "--json-schema needs a language model" in said.err
    said = remit("run", "Survey src", "-m", "offline", "--agents", "nowhere")
    assert (said.code, said.out) == (exits.WRONG_USE, "")
    said = remit("run", "Survey src", "-m", "offline", "--agents", "src")
    assert said.code == 0
    assert "--agents is ignored" in said.err


def test_read_only_applies_to_every_agent(folder: Path) -> None:
    """Agents of files lose tools that change things too: otherwise a person would approve calls that then fail."""
    _agent(folder, "helper", "tools: Read, Write, Bash, mcp__files\n")
    offered: list[tuple[str, ...]] = []

    class Model(ScriptedModel):
        async def reply(self, request: Request, emit: Emit) -> Reply:
            offered.append(tuple(spec.name for spec in request.tools))
            return await super().reply(request, emit)

    Path("remit.toml").write_text('[mcp.servers.files]\ncommand = "never"\n')
    model = Model({"helper": [say("Done.")]})
    said = run("Go", "--read-only", "--trust", "--agent", "helper", model=model)
    assert said.code == 0
    assert offered == [("read",)]
    assert said.err.count("warning") == 1
    assert "files: not opened: its tools may change things, and the sandbox is read-only." in said.err


def test_an_agent_with_its_own_server_runs_with_read_only(folder: Path) -> None:
    """The read-only sandbox withholds the server, so the names of its tools in the file are not errors."""
    more = "tools: Read, files, files_search\ndisallowedTools: files_edit\nmcpServers:\n  files:\n    command: never\n"
    _agent(folder, "helper", more)
    model = ScriptedModel({"helper": [say("Done.")]})
    said = run("Go", "--read-only", "--trust", "--agent", "helper", model=model)
    assert said.code == 0
    assert [spec.name for spec in model.requests[0].tools] == ["read"]


@pytest.mark.parametrize("flag", [("--read-only",), ("--sandbox", "read-only")])
def test_read_only_withholds_tools_of_servers_in_the_command_line_as_in_python(
    folder: Path, flag: tuple[str, ...]
) -> None:
    """The command line and Python keep the same tools: those that a trusted server itself marks as read-only."""
    server = Path(__file__).parents[1] / "tools" / "mcp" / "plain_server.py"
    Path("remit.toml").write_text(
        f'[mcp.servers.files]\ncommand = "{sys.executable}"\nargs = ["-S", "{server}"]\ntrusted = true\n'
    )
    model = ScriptedModel([say("Done.")])
    assert run("Go", *flag, "--trust", model=model).code == 0
    names = [spec.name for spec in model.requests[0].tools if spec.name.startswith("mcp__")]
    assert names == ["mcp__files__heard", "mcp__files__die"]


def test_failed_calls_are_counted_in_the_summary() -> None:
    """A denied call is counted in the last line, whatever the model answers."""
    model = ScriptedModel([call("write", path="a.txt", content="x"), say("Written.")])
    said = run("Go", "--yes", "--deny", "write", model=model)
    assert "1 call failed or denied" in said.err


def test_a_run_of_another_program_needs_the_same_tools(folder: Path) -> None:
    """A conversation of another program is not continued by an agent with other tools."""

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


def test_a_run_of_a_program_says_where_to_resume_it(folder: Path) -> None:
    """Resuming a run whose agent and model only its program has prints that, not only an unknown name."""
    store = f"sqlite:///{folder / 'own.db'}"
    model = ScriptedModel([call("ls"), say("Stopped.")])
    outcome = run_sync(Agent("mine", tools=["ls"]), "Go", model=model, store=store, limits=Limits(turns=1))
    said = remit("resume", outcome.run_id, "--journal", store)
    assert said.code == exits.WRONG_USE
    assert f"{outcome.run_id} was not started by `remit run`" in said.err
    assert f"remit.resume(store, '{outcome.run_id}', agent=..., model=...)" in said.err


def test_a_resume_hint_raises_the_limit() -> None:
    """If a limit ended a run, the printed resume command raises that limit."""
    model = ScriptedModel([call("ls"), call("ls", path="."), say("never")])
    said = run("Go", "--max-turns", "1", model=model)
    assert said.code == exits.BY_STATUS[Status.INCOMPLETE]
    assert "--max-turns 100" in said.err


def test_a_broken_settings_file_does_not_hide_runs(folder: Path) -> None:
    """Runs are listed and can be cancelled while remit.toml is broken; starting a run reports the error."""
    (folder / "remit.toml").write_text("model = \n")
    listed = remit("runs")
    assert listed.code == 0
    assert "remit.toml:1" in listed.err
    assert run("Go", model=ScriptedModel([say("never")])).code == exits.WRONG_USE
