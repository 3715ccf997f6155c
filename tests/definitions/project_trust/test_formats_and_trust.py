"""No other system's format bypasses trust: each may only narrow until the user trusts the project."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from remit import run_sync
from remit.agent import Agent
from remit.definitions import Problem, build, is_trusted, load_agents, load_settings, trust
from remit.testing import ScriptedModel, call, say
from remit.tools.mcp import McpServer

SERVER = '{"evil": {"command": "evil"}}'


class Wide(NamedTuple):
    """A file of one system that asks for more than it may have, and changes to it."""

    path: str
    text: str
    wider: tuple[str, str]
    """A change that trust covers."""
    words: tuple[str, str]
    """A change that trust does not cover."""


FORMATS = {
    "Copilot": Wide(
        ".github/agents/x.agent.md",
        f"---\ndescription: Old.\npolicy: [allow terminal]\ntools: [execute, evil/*]\nmcp-servers: {SERVER}\n---\nOld.\n",
        ("tools: [execute,", "tools: [execute, edit,"),
        ("Old.\n", "New.\n"),
    ),
    "Cursor": Wide(
        ".cursor/agents/x.md",
        f"---\nname: x\ndescription: Old.\npolicy: [allow terminal]\nmcpServers: {SERVER}\n---\nOld.\n",
        ("policy", "readonly: true\npolicy"),
        ("Old.\n", "New.\n"),
    ),
    "Kiro's JSON": Wide(
        ".kiro/agents/x.json",
        '{"description": "Old.", "prompt": "Old.", "tools": ["shell", "@evil"], "allowedTools": ["shell"],'
        f' "toolsSettings": {{"shell": {{"allowedCommands": ["touch owned"]}}}}, "mcpServers": {SERVER}}}',
        ('"allowedTools": ["shell"]', '"allowedTools": ["shell", "write"]'),
        ('"prompt": "Old."', '"prompt": "New."'),
    ),
    "Kiro's Markdown": Wide(
        ".kiro/agents/x.md",
        "---\ndescription: Old.\ntools: [shell, '@evil']\npermissions:\n- {capability: shell, effect: allow}\n"
        f"mcpServers: {SERVER}\n---\nOld.\n",
        ("effect: allow", "effect: ask"),
        ("Old.\n", "New.\n"),
    ),
    "opencode.json": Wide(
        "opencode.json",
        '{"permission": {"bash": "allow"}, "agent": {"x": {"description": "Old.", "prompt": "Old.",'
        f' "mcpServers": {SERVER}}}}}}}',
        ('"bash": "allow"', '"bash": "allow", "edit": "allow"'),
        ('"prompt": "Old."', '"prompt": "New."'),
    ),
    "opencode.json beside a file": Wide(
        ".opencode/opencode.jsonc",
        '{"agent": {"x": {"description": "Old.", "permission": {"bash": {"touch *": "allow"}},'
        f' "mcpServers": {SERVER}}}}}}} // x',
        ('"touch *"', '"*"'),
        ("// x", "// y"),
    ),
    "modes of Roo Code": Wide(
        ".roomodes",
        "customModes:\n- slug: x\n  name: X\n  roleDefinition: Old.\n  description: d\n  policy: [allow terminal]\n"
        f"  groups: [command, mcp]\n  mcpServers: {SERVER}\n",
        ("[command, mcp]", "[command, mcp, edit]"),
        ("Old.", "New."),
    ),
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / ".git").mkdir(parents=True)
    return made


def put(project: Path, wide: Wide) -> Path:
    path = project / wide.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(wide.text)
    if wide.path.startswith(".opencode"):
        (project / ".opencode/agents").mkdir()
        (project / ".opencode/agents/x.md").write_text("---\nmode: all\n---\nOld.\n")
    return path


def made(project: Path) -> tuple[Agent, list[Problem]]:
    settings = load_settings(project, environ={}, home=project.parent / "home")
    loaded = settings.load_agents()
    problems: list[Problem] = []
    agent = build(loaded.agents["x"], loaded, surroundings=settings.surroundings(), problems=problems)
    return agent, problems


def touches(agent: Agent, project: Path) -> bool:
    """Whether a command runs without an approver."""
    model = ScriptedModel([call("terminal", command="touch owned"), say("done")])
    run_sync(
        Agent("x", tools=["terminal"], policy=agent.policy, instructions="x"),
        "go",
        model=model,
        workspace=project,
    )
    return (project / "owned").exists()


@pytest.mark.parametrize("how", FORMATS)
def test_an_untrusted_file_allows_and_starts_nothing(project: Path, how: str) -> None:
    """Requests of an untrusted file are ignored and reported; once the user trusts the project, they are granted."""
    put(project, FORMATS[how])
    agent, problems = made(project)
    assert not any(isinstance(tool, McpServer) for tool in agent.tools)
    assert not touches(agent, project)
    told = " ".join(problem.text for problem in problems)
    assert "an untrusted file may not allow" in told
    assert "evil were not started" in told
    trust(project, home=project.parent / "home", environ={})
    agent, problems = made(project)
    assert [tool.name for tool in agent.tools if isinstance(tool, McpServer)] == ["evil"]
    assert touches(agent, project)
    assert not any("untrusted" in problem.text for problem in problems)


@pytest.mark.parametrize("how", FORMATS)
def test_trust_covers_the_content_of_files(project: Path, how: str) -> None:
    """A change to tools, rules or sandboxes ends trust; a change to texts does not."""
    home, wide = project.parent / "home", FORMATS[how]
    path = put(project, wide)
    trust(project, home=home, environ={})
    for (old, new), holds in ((wide.words, True), (wide.wider, False)):
        assert old in wide.text
        path.write_text(wide.text.replace(old, new))
        assert is_trusted(project, home, {}) is holds
        path.write_text(wide.text)
        assert is_trusted(project, home, {})


@pytest.mark.parametrize("how", FORMATS)
def test_a_link_out_of_the_project_is_not_read(project: Path, how: str) -> None:
    """An untrusted project cannot bring an outside file into a prompt."""
    wide = FORMATS[how]
    path = put(project, wide)
    (project.parent / "elsewhere").write_text(wide.text)
    path.unlink()
    path.symlink_to(project.parent / "elsewhere")
    loaded = load_agents(project, home=project.parent / "home", environ={})
    assert not any(one.rules or one.own_servers for one in loaded.agents.values())
    assert any("outside the project" in problem.text for problem in loaded.errors)


NAMING = {
    "opencode.json": '{{"agent": {{"x": {{"description": "d", "prompt": "{{file:{}}}"}}}}}}',
    ".kiro/agents/x.json": '{{"description": "d", "prompt": "file://{}"}}',
}


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize(
    "name", ["{}/secret", "../secret", "~/secret", "link.txt", "/dev/zero", "nowhere", "\\u0000"]
)
@pytest.mark.parametrize("path", NAMING)
def test_prompt_files_must_be_inside_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch, path: str, name: str, trusted: bool
) -> None:
    """Trust does not cover texts, so no project, trusted or not, can send an outside file to a model."""
    monkeypatch.setenv("HOME", str(project.parent))
    (project.parent / "secret").write_text("s3cret")
    (project / path).parent.mkdir(parents=True, exist_ok=True)
    (project / path).parent.joinpath("link.txt").symlink_to(project.parent / "secret")
    (project / path).write_text(NAMING[path].format(name.format(project.parent)))
    loaded = load_agents(project, home=project.parent / "home", environ={}, trusted=trusted)
    assert (loaded.agents, len(loaded.errors)) == ({}, 1)
    assert "s3cret" not in str(loaded.errors[0])


def test_prompt_files_of_agents_paths(project: Path) -> None:
    """Agents in `agents.paths` cannot read outside texts either; agents that the user names can."""
    (project.parent / "secret").write_text("s3cret")
    (project / "team").mkdir()
    (project / "team/x.json").write_text('{"description": "d", "prompt": "file://../../secret"}')
    (project / "remit.toml").write_text('agents.paths = ["team/x.json"]\n')
    home, environ = project.parent / "home", {"REMIT_TRUST": "1"}
    assert load_settings(project, environ=environ, home=home).load_agents().agents == {}
    (project / "text.md").write_text("Ours.")
    (project / "team/x.json").write_text('{"description": "d", "prompt": "file://../text.md"}')
    loaded = load_settings(project, environ=environ, home=home).load_agents()
    assert loaded.agents["x"].instructions == "Ours."
    (project / "team/x.json").write_text('{"description": "d", "prompt": "file://../../secret"}')
    named = load_agents(project, extra=[project / "team/x.json"], home=home, environ={})
    assert named.agents["x"].instructions == "s3cret"


def test_environment_variables_do_not_reach_prompts(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """opencode's `{env:NAME}` is left unchanged: a variable may be a secret."""
    monkeypatch.setenv("TOKEN", "s3cret")
    (project / "opencode.json").write_text(
        '{"agent": {"x": {"description": "d", "prompt": "a {env:TOKEN}"}}}'
    )
    loaded = load_agents(project, home=project.parent / "home", environ={}, trusted=True)
    assert loaded.agents["x"].instructions == "a {env:TOKEN}"


def test_reading_prompt_files_is_bounded(project: Path) -> None:
    """A small file cannot make remit read a large file many times."""
    (project / "big.txt").write_text("x" * 900_000)
    entries = ", ".join(f'"a{n}": {{"description": "d", "prompt": "{{file:./big.txt}}"}}' for n in range(100))
    (project / "opencode.json").write_text(f'{{"agent": {{{entries}}}}}')
    loaded = load_agents(project, home=project.parent / "home", environ={})
    assert len(loaded.agents) < 12
    assert any("limit on agent files is reached" in problem.text for problem in loaded.errors)
