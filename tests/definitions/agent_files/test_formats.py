"""Agent files of other systems: Copilot, Cursor, Kiro, opencode.json and .roomodes; and files that are not agents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from remit import ApprovalRequest, allow, run_sync
from remit.agent import Agent
from remit.definitions import Definition, Loaded, Problem, Surroundings, build, check, load, load_agents
from remit.testing import ScriptedModel, call, say
from remit.tools.mcp import McpServer


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


def write(project: Path, path: str, text: str | dict[str, object]) -> None:
    file = project / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text if isinstance(text, str) else json.dumps(text, indent=2), encoding="utf-8")


def found(project: Path, **options: object) -> Loaded:
    return load_agents(project, home=project.parent / "home", environ={}, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def made(project: Path, name: str, **around: object) -> tuple[Agent, list[Problem]]:
    loaded = found(project, trusted=True)
    problems: list[Problem] = []
    surroundings = Surroundings(**around)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return build(loaded.agents[name], loaded, surroundings=surroundings, problems=problems), problems


def tools(agent: Agent) -> list[str]:
    return [one if isinstance(one, str) else one.name for one in agent.tools]


def rules(one: Definition) -> list[str]:
    return [rule.text for rule in one.rules]


# --- GitHub Copilot and VS Code -----------------------------------------------------------------------------


def test_copilot_agents_are_read(project: Path) -> None:
    """`.github/agents/*.agent.md`: the name is a title; without one the agent is named after its file."""
    write(
        project,
        ".github/agents/api.agent.md",
        "---\nname: API Architect\ndescription: 'Plans: all'\ntools: [search, edit]\n"
        "argument-hint: What?\nhandoffs:\n  - label: Go\n    agent: coder\n---\nPlan.\n",
    )
    write(project, ".github/agents/coder.agent.md", "---\ndescription: Codes.\n---\nCode.\n")
    loaded = found(project)
    assert sorted(loaded.agents) == ["api-architect", "coder"]
    api = loaded.agents["api-architect"]
    assert (api.nickname, api.description, api.instructions) == ("API Architect", "Plans: all", "Plan.")
    assert [problem.level for problem in loaded.problems] == ["note"]


def test_titles_that_differ_only_in_punctuation_are_two_agents(project: Path) -> None:
    """If a title as a name would lose more than spaces, the agent is named after its file; its title finds it too."""
    for file, title in (("CSharp", "C# Expert"), ("CPlusPlus", "C++ Expert")):
        write(project, f".github/agents/{file}.agent.md", f"---\nname: {title}\ndescription: d\n---\nDo.\n")
    loaded = found(project)
    assert sorted(loaded.agents) == ["CPlusPlus", "CSharp"]
    assert loaded.find("c# expert") is loaded.agents["CSharp"]
    assert loaded.problems == []


def test_tool_names_of_vs_code(project: Path) -> None:
    """Tool sets, tools of sets and servers are distinguished; tools that remit lacks are left out with a warning."""
    words = "['search', 'edit/editFiles', 'execute/runInTerminal', 'web/fetch', 'read/readFile', 'runTasks', 'vscode/runCommand', 'docs/*']"
    write(project, ".github/agents/a.agent.md", f"---\ndescription: d\ntools: {words}\n---\nDo.\n")
    agent, problems = made(project, "a", servers={"docs": McpServer("docs", command="x")})
    assert tools(agent) == ["grep", "glob", "ls", "edit", "write", "terminal", "fetch", "read", "docs"]
    assert [(problem.level, problem.text.split("'")[1]) for problem in problems] == [
        ("warning", "runTasks"),
        ("warning", "vscode/runCommand"),
    ]


@pytest.mark.parametrize(
    "word",
    ["web/fetch", "webFetcher", "terminals", "readFiles2", "azure_query_learn", "ms-x.y/readIt", "todo"],
)
def test_a_tool_of_another_system_is_never_an_error(project: Path, word: str) -> None:
    """No tool name in another system's file is an error, however close it is to one of remit's; the agent is built."""
    write(project, ".github/agents/a.agent.md", f"---\ndescription: d\ntools: [read, {word}]\n---\nDo.\n")
    write(project, ".claude/agents/b.md", f"---\nname: b\ndescription: d\ntools: Read, {word}\n---\nDo.\n")
    assert [problem for problem in check(found(project)) if problem.level == "error"] == []


def test_a_star_in_agents_means_all_agents(project: Path) -> None:
    """`agents: ["*"]` adds every other agent, a list of names only those agents, and an empty list none."""
    for name in ("one", "two"):
        write(project, f".github/agents/{name}.agent.md", "---\ndescription: d\ntools: []\n---\nDo.\n")
    page = "---\ndescription: d\ntools: [agent]\nagents: {}\n---\nDo.\n"
    write(project, ".github/agents/all.agent.md", page.format('["*"]'))
    write(
        project, ".github/agents/some.agent.md", page.format("[One, stranger]").replace("[agent]", "[read]")
    )
    write(project, ".github/agents/none.agent.md", page.format("[]"))
    assert [child.name for child in made(project, "all")[0].subagents] == ["none", "one", "some", "two"]
    write(project, ".github/agents/few.agent.md", page.format("['*o*', two]"))
    assert [child.name for child in made(project, "few")[0].subagents] == ["two", "none", "one", "some"]
    (project / ".github/agents/few.agent.md").unlink()
    some, problems = made(project, "some")
    assert [child.name for child in some.subagents] == ["one"]
    assert [(p.level, "stranger" in p.text) for p in problems] == [("warning", True)]
    none, _ = made(project, "none")
    assert (none.subagents, none.adhoc) == ((), False)


def test_a_copilot_agent_for_people_is_not_delegated_to(project: Path) -> None:
    """`disable-model-invocation` and `infer: false` exclude an agent from delegation."""
    write(
        project,
        ".github/agents/a.agent.md",
        "---\ndescription: d\ndisable-model-invocation: true\n---\nDo.\n",
    )
    write(project, ".github/agents/b.agent.md", "---\ndescription: d\ninfer: false\n---\nDo.\n")
    write(project, ".github/agents/c.agent.md", "---\ndescription: d\ninfer: true\n---\nDo.\n")
    assert {name: one.is_primary for name, one in found(project).agents.items()} == {
        "a": True,
        "b": True,
        "c": False,
    }


def test_a_list_of_tools_limits_the_servers_of_the_file(project: Path) -> None:
    """In Copilot's and Kiro's files an agent gets only the servers that its tools name; without a list, all servers."""
    server = "mcp-servers:\n  docs:\n    type: local\n    command: x\n    tools: ['*']\n"
    for name, listed, expected in (
        ("a", "tools: [read]\n", ["read"]),
        ("b", "tools: [read, docs/find]\n", ["read", "docs"]),
    ):
        write(project, f".github/agents/{name}.agent.md", f"---\ndescription: d\n{listed}{server}---\nDo.\n")
        assert tools(made(project, name)[0]) == expected
    write(project, ".github/agents/c.agent.md", f"---\ndescription: d\n{server}---\nDo.\n")
    assert "docs" in tools(made(project, "c")[0])


# --- Cursor -------------------------------------------------------------------------------------------------


def test_cursor_agents_are_read(project: Path) -> None:
    """`.cursor/agents/*.md`: `readonly` becomes a sandbox; `is_background` has no effect and is not an error."""
    write(
        project,
        ".cursor/agents/verifier.md",
        "---\nname: verifier\ndescription: d\nmodel: inherit\nreadonly: true\nis_background: true\n---\nVerify.\n",
    )
    loaded = found(project)
    verifier = loaded.agents["verifier"]
    assert (str(verifier.sandbox), verifier.models) == ("read-only+network", ())
    assert [problem.level for problem in loaded.problems] == ["note"]


# --- Kiro ---------------------------------------------------------------------------------------------------

KIRO: dict[str, object] = {
    "$schema": "https://example.com/agent.json",
    "name": "backend",
    "description": "Works on the backend.",
    "prompt": "Be careful.",
    "model": "claude-sonnet-4",
    "tools": ["fs_read", "write", "shell", "@git", "@docs/find", "knowledge"],
    "allowedTools": ["fs_*", "@git/git_status", "@docs", "knowledge"],
    "toolsSettings": {
        "shell": {"deniedCommands": ["git push.*", "rm *", "(a+)+"], "allowedCommands": ["make (test|lint)"]},
        "write": {"deniedPaths": ["secrets/**"]},
        "subagent": {"availableAgents": ["helper"]},
    },
    "resources": ["file://README.md"],
    "includeMcpJson": True,
    "welcomeMessage": "Hello",
}


def test_kiro_agents_are_read(project: Path) -> None:
    """A JSON file in `.kiro/agents` is an agent; `allowedTools` are tools that need no approval, not a list of tools."""
    write(project, ".kiro/agents/backend.json", KIRO)
    backend = found(project).agents["backend"]
    assert (backend.description, backend.instructions) == ("Works on the backend.", "Be careful.")
    assert [word.name for word in backend.tools or ()] == [
        *("read", "ls", "grep", "write", "edit", "terminal", "git", "docs", "knowledge")
    ]
    assert rules(backend) == [
        *("allow read", "allow ls", "allow grep", "allow write", "allow edit"),
        *("allow mcp__git__git_status", "allow mcp__docs__*"),
        *("deny terminal(git push*)", "deny terminal(rm *)", "ask terminal"),
        *("allow terminal(make test)", "allow terminal(make lint)"),
        *("deny write(secrets/**)", "deny edit(secrets/**)"),
    ]
    assert [said.text for said in backend.subagents] == ["helper"]
    assert backend.line("description") == 4
    assert [p.line for p in backend.warnings] == [backend.line("toolsSettings") + 5]


def test_a_kiro_agent_without_tools_has_none(project: Path) -> None:
    """In Kiro a missing list of tools is empty, and a star means every tool."""
    write(project, ".kiro/agents/a.json", {"description": "d", "prompt": "p"})
    write(project, ".kiro/agents/b.json", {"description": "d", "prompt": "p", "tools": ["*"]})
    agents = found(project).agents
    assert (agents["a"].tools, agents["b"].tools) == ((), None)


def test_kiro_agents_may_be_markdown(project: Path) -> None:
    """A tag means several tools; rules have a capability and an effect, and an unsupported rule only narrows."""
    write(
        project,
        ".kiro/agents/team/web.md",
        "---\ndescription: d\ntools: [read, web, '@mcp']\npermissions:\n"
        "  - capability: shell\n    effect: allow\n    match: ['npm *']\n"
        "  - capability: fs_write\n    effect: deny\n"
        "  - capability: fs_read\n    effect: deny\n    match: [.env]\n    exclude: [.env.example]\n"
        "  - capability: web\n    effect: allow\n    exclude: [x]\n"
        "  - capability: telepathy\n    effect: deny\n---\nBuild.\n",
    )
    web = found(project).agents["web"]
    assert [word.name for word in web.tools or ()] == ["read", "ls", "glob", "grep", "fetch", "*"]
    assert rules(web) == [
        "allow terminal(npm *)",
        *(f"deny {tool}(.env)" for tool in ("read", "ls", "glob", "grep")),
    ]
    assert [word.name for word in web.without] == ["write", "edit"]
    assert [(p.level, p.line) for p in web.problems] == [("warning", 10), ("note", 14), ("warning", 17)]


def test_a_kiro_prompt_is_not_an_agent(project: Path) -> None:
    """A Markdown file without front matter in `.kiro/agents` is a prompt that a JSON file names."""
    write(project, ".kiro/agents/dev.json", {"description": "d", "prompt": "file://./dev-prompt.md"})
    write(project, ".kiro/agents/dev-prompt.md", "# Dev\n\nDevelop.\n")
    loaded = found(project)
    assert {name: one.instructions for name, one in loaded.agents.items()} == {"dev": "# Dev\n\nDevelop."}
    assert [problem.level for problem in loaded.problems] == ["note"]
    write(project, ".kiro/agents/alone/api.md", "# API\n\nDesign.\n")
    assert sorted(found(project).agents) == ["api", "dev"]


def test_allowed_tools_in_other_systems(project: Path) -> None:
    """In other systems' files `allowedTools` is a list of tools and allows nothing."""
    write(project, ".claude/agents/a.md", "---\nname: a\ndescription: d\nallowedTools: Read\n---\nDo.\n")
    one = found(project).agents["a"]
    assert ([word.name for word in one.tools or ()], one.rules) == (["read"], ())


# --- opencode.json ------------------------------------------------------------------------------------------

OPENCODE = """{
  // what holds for all
  "$schema": "https://opencode.ai/config.json",
  "permission": {"bash": "ask", "webfetch": "deny"},
  "agent": {
    "build": {"model": "anthropic/claude-sonnet-5"},
    "reviewer": {
      "description": "Reviews.",
      "mode": "subagent",
      "prompt": "{file:./prompts/review.txt}",
      "permission": {"edit": "deny", "webfetch": "allow"},
    },
    "off": {"description": "d", "prompt": "p", "disable": true},
    "odd": 3,
  },
}
"""


def test_agents_inside_opencode_json_are_read(project: Path) -> None:
    """Each entry is an agent with its line; settings for all agents are defaults for each entry."""
    write(project, "opencode.json", OPENCODE)
    write(project, "prompts/review.txt", "Look closely.\n")
    loaded = found(project)
    assert list(loaded.agents) == ["reviewer"]
    reviewer = loaded.agents["reviewer"]
    assert (reviewer.description, reviewer.instructions) == ("Reviews.", "Look closely.")
    assert [word.name for word in reviewer.without] == ["edit", "write"]
    assert rules(reviewer) == ["ask terminal", "allow fetch"]
    assert [reviewer.line(key) for key in ("name", "permission", "description")] == [7, 11, 8]
    told = [(problem.level, problem.line) for problem in loaded.problems]
    assert told == [("note", 6), ("error", 14)]


def test_opencode_json_narrows_agents_in_files_beside_it(project: Path) -> None:
    """Denials for an agent in opencode.json apply to its Markdown file; the file's own settings take precedence."""
    config = {
        "permission": {"webfetch": "deny"},
        "agent": {"a": {"description": "json", "permission": {"edit": "deny", "bash": "deny"}}},
    }
    write(project, "opencode.json", config)
    write(project, ".opencode/agents/a.md", "---\ndescription: md\npermission:\n  bash: ask\n---\nDo.\n")
    write(project, ".opencode/agents/b.md", "---\ndescription: b\n---\nDo.\n")
    loaded = found(project)
    a, b = loaded.agents["a"], loaded.agents["b"]
    assert (a.description, [word.name for word in a.without], rules(a)) == (
        "md",
        ["fetch", "edit", "write"],
        ["ask terminal"],
    )
    assert [word.name for word in b.without] == ["fetch"]
    assert (loaded.hidden, loaded.problems) == ([], [])


def test_a_permission_covers_one_tool_only(project: Path) -> None:
    """opencode's `codesearch` searches elsewhere, and `grep` is not `glob`: denying them denies no other tool."""
    text = "---\ndescription: d\npermission:\n  codesearch: deny\n  {}: deny\n---\nDo.\n"
    write(project, ".opencode/agents/a.md", text.format("lsp"))
    write(project, ".opencode/agents/b.md", text.format("grep"))
    assert {"grep", "glob"} <= set(tools(made(project, "a")[0]))
    assert "glob" in tools(made(project, "b")[0])
    assert "grep" not in tools(made(project, "b")[0])


def test_tools_allowed_after_a_denying_star(project: Path) -> None:
    """`"*": deny` denies every tool except those allowed after it; entries before it do not count."""
    text = (
        "---\ndescription: d\npermission:\n  edit: allow\n  '*': deny\n  read: allow\n  bash: ask\n---\nDo.\n"
    )
    write(project, ".opencode/agents/a.md", text)
    write(project, ".opencode/agents/b.md", "---\ndescription: d\npermission:\n  '*': deny\n---\nDo.\n")
    assert tools(made(project, "a")[0]) == ["read", "terminal"]
    assert tools(made(project, "b")[0]) == []


@pytest.mark.parametrize("text", ["[]", "{", "\x00", '{"agent": []}', '{"agent": {"a": ' + '{"x": ' * 100])
def test_a_broken_opencode_json_does_not_hide_other_agents(project: Path, text: str) -> None:
    """A broken opencode.json is at most one error; agents in other files are loaded."""
    write(project, "opencode.json", text)
    write(project, ".opencode/agents/a.md", "---\ndescription: d\n---\nDo.\n")
    loaded = found(project)
    assert list(loaded.agents) == ["a"]
    assert len(loaded.errors) == (text != '{"agent": []}')


# --- .roomodes ----------------------------------------------------------------------------------------------

ROO = """customModes:
  - slug: docs-writer
    name: "\u270d\ufe0f Docs Writer"
    roleDefinition: >-
      You write
      documents.
    whenToUse: When documents are needed.
    description: Writes documents.
    customInstructions: |-
      Be brief.
    groups:
      - read
      - - edit
        - fileRegex: \\.(md|mdx)$
          description: Markdown only
      - browser
      - mcp
    source: project
  - slug: odd
    name: Odd
    roleDefinition: Odd.
    description: d
    groups:
      - [edit, {fileRegex: '[a-z]+\\.py'}]
      - command
  - name: no slug
"""


def test_modes_of_roo_code_are_read(project: Path) -> None:
    """Each mode is an agent; a group for certain files limits its tools to those files, or is left out."""
    write(project, ".roomodes", ROO)
    loaded = found(project)
    assert list(loaded.agents) == ["docs-writer", "odd"]
    writer, odd = loaded.agents.values()
    assert (writer.nickname, writer.description) == (
        "\u270d\ufe0f Docs Writer",
        "Writes documents.\n\nWhen documents are needed.",
    )
    assert writer.instructions == "You write documents.\n\nBe brief."
    assert [(word.name, word.within) for word in writer.tools or () if word.kind == "tool"] == [
        *((name, "") for name in ("read", "ls", "glob", "grep")),
        *((name, "*.md, *.mdx") for name in ("write", "edit")),
    ]
    assert [word.name for word in odd.tools or () if word.kind == "tool"] == ["terminal"]
    assert [p.line for p in odd.warnings] == [24]
    assert [p.line for p in loaded.errors] == [26]
    assert writer.line("instructions") in (4, 9)


def test_a_group_for_certain_files_still_needs_approval(project: Path) -> None:
    """A `fileRegex` limits the files that a mode may change, and calls still need approval, even in a trusted file."""
    write(project, ".roomodes", ROO.replace("docs-writer", "w"))
    agent, _ = made(project, "w")
    steps = [call("write", path=path, content="x") for path in ("a.md", "a.py")]
    asked: list[str] = []

    async def approver(request: ApprovalRequest) -> object:
        asked.append(str(request.args["path"]))
        return allow()

    model = ScriptedModel([*steps, say("done")])
    outcome = run_sync(agent, "go", model=model, workspace=project, approver=approver)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert ([one.success for one in outcome.calls], asked) == ([True, False], ["a.md"])


def test_modes_may_be_json(project: Path) -> None:
    """The older JSON form has the same meaning."""
    mode = {
        "slug": "a",
        "name": "A",
        "roleDefinition": "Be.",
        "groups": ["read", ["edit", {"fileRegex": "\\.py$"}]],
    }
    write(project, ".roomodes", {"customModes": [mode]})
    one = found(project).agents["a"]
    assert [(word.name, word.within) for word in one.tools or () if word.name == "edit"] == [("edit", "*.py")]


@pytest.mark.parametrize("text", ["", "customModes: 3", "a: [", "- x", "{", "customModes:\n- 1"])
def test_a_broken_file_of_modes_is_reported(project: Path, text: str) -> None:
    """A broken file of modes is one error with the file."""
    write(project, ".roomodes", text)
    loaded = found(project)
    assert (loaded.agents, len(loaded.errors)) == ({}, 1)


# --- Files that are not agents ------------------------------------------------------------------------------


def test_skills_and_commands_are_ignored_with_a_note(project: Path) -> None:
    """A skill with all its files, a folder of commands, prompts and instructions are not agents."""
    page = "---\nname: x\ndescription: d\n---\nDo.\n"
    write(project, "clone/agents/real.md", page.replace("x", "real"))
    for path in (
        *("skills/pdf/SKILL.md", "skills/pdf/reference/forms.md", "commands/go.md"),
        *("a.prompt.md", "b.instructions.md", "node_modules/x/y.md"),
    ):
        write(project, f"clone/{path}", page)
    write(project, "clone/skills/pdf/agents/grader.md", page.replace("x", "grader"))
    write(project, "clone/flow.md", "---\non: [push]\ntools:\n  github: {}\n---\nDo.\n")
    write(project, "clone/Cargo.toml", '[package]\nname = "x"\n')
    loaded = load(project / "clone")
    assert sorted(loaded.agents) == ["grader", "real"]
    assert {problem.level for problem in loaded.problems} == {"note"}
    assert sorted(Path(problem.file).name for problem in loaded.problems) == [
        *("Cargo.toml", "SKILL.md", "a.prompt.md", "b.instructions.md", "commands", "flow.md")
    ]


def test_a_named_kiro_folder_includes_json_files(project: Path) -> None:
    """A Kiro folder is read in the same way whether remit finds it or the caller names it."""
    for name in ("a", "sub/b"):
        write(project, f".kiro/agents/{name}.json", {"description": "d", "prompt": "p"})
    assert sorted(load(project / ".kiro/agents").agents) == ["a", "b"]
    assert sorted(load(project / ".kiro/agents/sub").agents) == ["b"]
    assert sorted(load(project / ".kiro/agents/a.json").agents) == ["a"]


def test_a_named_folder_may_be_a_project(project: Path) -> None:
    """The agent folders and multi-agent files of a project are read, but none of its other hidden folders."""
    page = "---\nname: {0}\ndescription: d\n---\nDo.\n"
    for name, path in (
        *(("a", ".claude/agents/a.md"), ("b", "sub/.github/agents/b.agent.md"), ("c", ".kiro/agents/c.md")),
        ("issue", ".github/ISSUE_TEMPLATE/issue.md"),
    ):
        write(project, f"clone/{path}", page.format(name))
    write(project, "clone/.kiro/agents/d.json", {"name": "d", "description": "d", "prompt": "p"})
    write(project, "clone/sub/package.json", {"name": "package"})
    write(project, "clone/.opencode/opencode.json", {"agent": {"e": {"description": "d", "prompt": "p"}}})
    write(project, "clone/.roomodes", ROO)
    assert sorted(load(project / "clone").agents) == ["a", "b", "c", "d", "docs-writer", "e", "odd"]
