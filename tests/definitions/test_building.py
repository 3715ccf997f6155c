"""Building agents from definitions: tools of other systems, subagents, servers, and limits on untrusted files."""

from __future__ import annotations

from pathlib import Path

import pytest

from remit import Agent, Limits, UsageError, run, tool
from remit.definitions import Loaded, Problem, Surroundings, Unusable, build, build_all, check, load
from remit.testing import ScriptedModel, call, say
from remit.tools.mcp import McpServer


def write(folder: Path, name: str, more: str = "", body: str = "Do it.") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(
        f"---\nname: {name}\ndescription: d\n{more}---\n{body}\n", encoding="utf-8"
    )


def made(folder: Path, name: str, *, trusted: bool = True, **around: object) -> tuple[Agent, list[Problem]]:
    loaded = load(folder, trusted=trusted)
    problems: list[Problem] = []
    agent = build(loaded.agents[name], loaded, surroundings=Surroundings(**around), problems=problems)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    return agent, problems


def names(agent: Agent) -> list[str]:
    return [one if isinstance(one, str) else one.name for one in agent.tools]


@tool
def terminal(command: str) -> str:
    """Run a command."""
    return f"ran {command}"


@tool(tier="observe")
def publish(path: str) -> str:
    """Publish."""
    return path


WITH_TERMINAL = {"terminal": terminal}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            "tools: Read, Write, Edit, MultiEdit, Glob, Grep, LS",
            ["read", "write", "edit", "glob", "grep", "ls"],
        ),
        (
            "tools: [read_file, write_file, replace, list_directory, search_file_content]",
            ["read", "write", "edit", "ls", "grep"],
        ),
        ("tools: Bash, run_shell_command, Shell", ["terminal"]),
        ("tools: []", []),
        ("tools: ''", []),
        ("tools: Read, Task", ["read"]),
        ("tools:\n  '*': false\n  read: true", ["read"]),
        ("tools: publish, Read", ["publish", "read"]),
    ],
)
def test_tool_names_of_other_systems(tmp_path: Path, written: str, expected: list[str]) -> None:
    """Other systems' tool names are recognised; each tool is added once, in file order."""
    write(tmp_path, "a", f"{written}\n")
    agent, problems = made(tmp_path, "a", tools={**WITH_TERMINAL, "publish": publish})
    assert names(agent) == expected
    assert problems == []


@pytest.mark.parametrize("written", ["", "tools: '*'\n", "tools: *\n", "tools: all\n"])
def test_without_tools_an_agent_has_every_built_in_tool(tmp_path: Path, written: str) -> None:
    """Without `tools`, or with a star, an agent has every built-in tool; `disallowedTools` removes tools."""
    write(tmp_path, "a", f"{written}disallowedTools: Write, Edit, NotebookEdit\n")
    agent, _ = made(tmp_path, "a")
    assert {"read", "grep", "glob", "ls"} <= set(names(agent))
    assert not {"write", "edit"} & set(names(agent))


def test_missing_tools_are_reported_and_left_out(tmp_path: Path) -> None:
    """A known tool that remit lacks is a warning; a misspelled tool is an error with a suggestion."""
    write(tmp_path, "a", "tools: Read, WebSearch, TodoWrite\n")
    agent, problems = made(tmp_path, "a")
    assert names(agent) == ["read"]
    assert [(p.level, p.line) for p in problems] == [("warning", 4), ("warning", 4)]
    write(tmp_path, "b", "tools:\n  - Read\n  - Grpe\n")
    with pytest.raises(UsageError, match=r"b\.md:6: No tool named 'Grpe'\. Did you mean 'grep'\?"):
        made(tmp_path, "b")


def test_an_unknown_tool_is_an_error_in_remits_own_files_only(tmp_path: Path) -> None:
    """An unknown tool is an error in a file for remit, and left out of a file for another program."""
    write(tmp_path / ".claude", "a", "tools: Read, TeleportQuickly\n")
    agent, problems = made(tmp_path / ".claude", "a")
    assert (names(agent), [p.level for p in problems]) == (["read"], ["warning"])
    write(tmp_path / ".remit", "a", "tools: Read, TeleportQuickly\n")
    with pytest.raises(UsageError, match="TeleportQuickly"):
        made(tmp_path / ".remit", "a")


@pytest.mark.parametrize(
    "written",
    [
        "disallowedTools: Wriet",
        "disallowedTools: Read, Writ",
        "policy: [deny wriet]",
        "policy: [ask wirte(a/*)]",
    ],
)
def test_a_misspelled_denial_is_an_error(tmp_path: Path, written: str) -> None:
    """A misspelled denial would silently deny nothing; it is reported with its line, and other agents are built."""
    folder = tmp_path / ".remit"
    write(folder, "a", f"tools: Read, Write\n{written}\n")
    write(folder, "b")
    with pytest.raises(UsageError, match=r"a\.md:5: No tool named '\w+'\. Did you mean 'write'\?"):
        made(folder, "a")
    assert [agent.name for agent in build_all(load(folder))] == ["b"]
    assert [(p.level, p.line) for p in check(load(folder))] == [("error", 5)]


@pytest.mark.parametrize(("word", "level"), [("Wriet", "error"), ("WebRead", "warning"), ("Teleport", None)])
def test_a_denial_in_another_programs_file(tmp_path: Path, word: str, level: str | None) -> None:
    """Another program's tools may have names close to ours, so only a certain misspelling is an error."""
    write(tmp_path / ".claude", "a", f"tools: Read, Write\ndisallowedTools: {word}\n")
    assert [p.level for p in check(load(tmp_path / ".claude"))] == ([level] if level else [])


def test_an_unknown_denial_is_not_an_error(tmp_path: Path) -> None:
    """Other programs' tools may have any name, so an unknown denial is no error; in remit's own files it is a warning."""
    written = "tools: Read\ndisallowedTools: TeleportQuickly, WebSearch\npolicy: [deny mcp__x__y, deny task, ask *]\n"
    for folder, levels in ((".claude", []), (".remit", ["warning"])):
        write(tmp_path / folder, "a", written)
        _, problems = made(tmp_path / folder, "a")
        assert [p.level for p in problems] == levels


@pytest.mark.parametrize(
    "word", ["sql_read", "db_write", "new_task", "Batch", "terminalHistory", "Overwrite"]
)
@pytest.mark.parametrize("written", ["disallowedTools: {}", "policy: [ask {}]"])
def test_a_denial_that_contains_a_known_name_is_not_an_error(tmp_path: Path, written: str, word: str) -> None:
    """A name that contains one of ours may be a tool of an absent server or program, so it is no error."""
    write(tmp_path / ".remit", "a", f"{written.format(word)}\n")
    assert [p.level for p in made(tmp_path / ".remit", "a")[1]] == ["warning"]


def test_an_unreadable_rule_affects_one_agent_only(tmp_path: Path) -> None:
    """Other programs accept any text as a rule, so an unreadable rule affects only its own agent."""
    folder = tmp_path / ".opencode"
    write(folder, "a", 'permission:\n  "my tool": ask\n  bash:\n    "git )( *": allow\n    "": deny\n')
    write(folder, "b", 'disallowedTools: "my tool(", "(((", ")"\n')
    assert [agent.name for agent in build_all(load(folder))] == ["b"]
    assert [Path(p.file).name for p in check(load(folder)) if p.level == "error"] == ["a.md"]


def test_a_denial_of_a_callers_or_servers_tool(tmp_path: Path) -> None:
    write(tmp_path, "a", "tools: publish\ndisallowedTools: github_search\npolicy: [deny publish(x)]\n")
    server = McpServer("github", command="x")
    _, problems = made(tmp_path, "a", tools={"publish": publish}, servers={"github": server})
    assert problems == []


async def test_a_pattern_in_brackets_limits_a_tool(tmp_path: Path) -> None:
    """`Bash(git *)` allows calls that match the pattern and denies all others."""
    write(tmp_path, "a", "tools: Bash(git status:*, git log*), Bash(ls)\n")
    agent, _ = made(tmp_path, "a", tools=WITH_TERMINAL)
    commands = ["git status -s", "git log --all", "ls", "ls -a", "rm -rf /", "git push"]
    model = ScriptedModel({"a": [*(call("terminal", command=c) for c in commands), say("done")]})
    outcome = await run(agent, "go", model=model)
    assert [c.success for c in outcome.calls] == [True, True, True, False, False, False]


async def test_an_untrusted_pattern_narrows_and_allows_nothing(tmp_path: Path) -> None:
    """In an untrusted file a pattern still denies the rest, but calls that match it need approval."""
    write(tmp_path, "a", "tools: Bash(git *)\npolicy: [allow terminal]\n")
    agent, problems = made(tmp_path, "a", trusted=False, tools=WITH_TERMINAL)
    model = ScriptedModel(
        {"a": [call("terminal", command="git log"), call("terminal", command="rm x"), say("done")]}
    )
    asked: list[str] = []

    async def approver(request: object) -> object:
        asked.append(str(getattr(request, "args", "")))
        from remit import allow

        return allow()

    outcome = await run(agent, "go", model=model, approver=approver)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert [c.success for c in outcome.calls] == [True, False]
    assert len(asked) == 1
    assert "an untrusted file may not allow" in problems[0].text


async def test_opencode_permissions_become_rules(tmp_path: Path) -> None:
    """A verdict for a tool removes it or becomes a rule; after a denying star only allowed calls remain."""
    write(
        tmp_path,
        "a",
        'permission:\n  edit: deny\n  bash:\n    "*": deny\n    "git diff*": allow\n  webfetch: ask\n',
    )
    agent, _ = made(tmp_path, "a", tools=WITH_TERMINAL)
    assert not {"edit", "write"} & set(names(agent))
    model = ScriptedModel(
        {"a": [call("terminal", command="git diff x"), call("terminal", command="ls"), say("done")]}
    )
    outcome = await run(agent, "go", model=model)
    assert [c.success for c in outcome.calls] == [True, False]


def test_subagents_are_found_by_name(tmp_path: Path) -> None:
    """`subagents`, `agents`, `Task(a, b)` and `Agent(a)` all name agents; a shared subagent is built once."""
    write(tmp_path, "leaf")
    write(tmp_path, "left", "subagents: [leaf]\ntools: []\n")
    write(tmp_path, "right", "tools: Read, Agent(Leaf)\n")
    write(tmp_path, "lead", "agents: left\ntools: Task(right)\n")
    lead, _ = made(tmp_path, "lead")
    assert [child.name for child in lead.subagents] == ["left", "right"]
    left, right = lead.subagents
    assert left.subagents[0] is right.subagents[0]
    assert not lead.adhoc


def test_a_bare_task_allows_every_agent(tmp_path: Path) -> None:
    """An agent with a bare `Task` may delegate to all others, except primary agents and those that cannot be built."""
    write(tmp_path, "lead", "tools: Task\n")
    write(tmp_path, "one", "tools: Task\n")
    write(tmp_path, "boss", "mode: primary\n")
    write(tmp_path, "broken", "tools: Grpe\n")
    write(tmp_path, "back", "subagents: lead\n")
    lead, problems = made(tmp_path, "lead")
    assert [child.name for child in lead.subagents] == ["one"]
    assert lead.adhoc
    assert lead.subagents[0].subagents == ()
    assert {p.level for p in problems} == {"warning"}
    assert any("Grpe" in p.text for p in problems)


def test_disallowed_delegation(tmp_path: Path) -> None:
    """`disallowedTools: Task` forbids all delegation."""
    write(tmp_path, "leaf")
    write(tmp_path, "lead", "tools: Read, Task\nsubagents: leaf\ndisallowedTools: Task\n")
    lead, _ = made(tmp_path, "lead")
    assert (lead.subagents, lead.adhoc) == ((), False)


def test_cycles_are_reported_with_their_path(tmp_path: Path) -> None:
    """A cycle of agents is an error that shows its path."""
    write(tmp_path, "a", "subagents: b\n")
    write(tmp_path, "b", "subagents:\n  - c\n")
    write(tmp_path, "c", "tools: Task(a)\n")
    write(tmp_path, "self", "subagents: self\n")
    with pytest.raises(UsageError, match=r"c\.md:4: Subagents form a cycle: a -> b -> c -> a\."):
        made(tmp_path, "a")
    with pytest.raises(UsageError, match="self -> self"):
        made(tmp_path, "self")


def test_a_long_chain_is_an_error(tmp_path: Path) -> None:
    """Agents nested without end are an error, not a crash."""
    for n in range(400):
        write(tmp_path, f"a{n}", f"subagents: a{n + 1}\n")
    write(tmp_path, "a400")
    with pytest.raises(UsageError, match="Agents are nested more than 50 levels"):
        made(tmp_path, "a0")


def test_an_unknown_subagent_is_an_error_with_a_suggestion(tmp_path: Path) -> None:
    """An unknown subagent is an error with file, line and a suggestion."""
    write(tmp_path, "explorer")
    write(tmp_path, "lead", "subagents:\n  - explorer\n  - explorr\n")
    with pytest.raises(UsageError, match=r"lead\.md:6: No agent named 'explorr'\. Did you mean 'explorer'\?"):
        made(tmp_path, "lead")


def test_servers_with_their_named_tools(tmp_path: Path) -> None:
    """`mcp__server__tool` adds that tool, `mcp__server` and `mcpServers` add all tools; disallowed tools are left out."""
    github, docs = McpServer("github", command="x"), McpServer("docs", url="http://localhost/mcp")
    servers = {"github": github, "docs": docs}
    write(
        tmp_path,
        "a",
        "tools: mcp__github__search, mcp__github__get_file, mcp__docs\ndisallowedTools: mcp__docs__drop\n",
    )
    agent, _ = made(tmp_path, "a", servers=servers)
    found = {s.name: s for s in agent.tools if isinstance(s, McpServer)}
    assert found["github"].only == ("search", "get_file")
    assert (found["docs"].only, found["docs"].without) == (None, ("drop",))
    write(tmp_path, "b", "tools: Read\nmcpServers: [github]\n")
    agent, _ = made(tmp_path, "b", servers=servers)
    assert names(agent) == ["read", "github"]


def test_both_lists_limit_a_servers_tools(tmp_path: Path) -> None:
    """An agent gets the tools that both the server's `tools` and the agent list; both may have patterns."""
    docs = McpServer("docs", command="x", only=["find", "get_*"], without=["get_key"])
    write(tmp_path, "a", "tools: mcp__docs__get_page, mcp__docs__drop\ndisallowedTools: mcp__docs__x\n")
    write(tmp_path, "b", "tools: mcp__docs__f*\n")
    write(tmp_path, "c", "tools: mcp__docs\n")
    for name, only, without in (
        ("a", ("get_page",), ("get_key", "x")),
        ("b", ("find",), ("get_key",)),
        ("c", ("find", "get_*"), ("get_key",)),
    ):
        (server,) = made(tmp_path, name, servers={"docs": docs})[0].tools
        assert isinstance(server, McpServer)
        assert (server.only, server.without) == (only, without)


def test_an_unknown_server_is_reported(tmp_path: Path) -> None:
    """A server in `mcpServers` must exist; an unknown or withheld server in `tools` is left out."""
    write(tmp_path, "a", "tools: Read, mcp__gihub__search\n")
    agent, problems = made(tmp_path, "a", servers={"github": McpServer("github", command="x")})
    assert names(agent) == ["read"]
    assert "Did you mean 'github'?" in problems[0].text
    write(tmp_path, "b", "mcpServers: gihub\n")
    with pytest.raises(UsageError, match=r"b\.md:4: No MCP server named 'gihub'"):
        made(tmp_path, "b")
    _, problems = made(tmp_path, "b", withheld={"gihub": "it was set aside"})
    assert [p.level for p in problems] == ["warning"]


def test_only_trusted_files_start_servers(tmp_path: Path) -> None:
    """A file may describe its own servers; an untrusted file's servers are ignored and reported."""
    write(tmp_path, "a", "tools: []\nmcpServers:\n  - web:\n      command: npx\n      args: [-y, web]\n")
    agent, _ = made(tmp_path, "a")
    (server,) = agent.tools
    assert isinstance(server, McpServer)
    assert (server.command, server.args) == ("npx", ("-y", "web"))
    agent, problems = made(tmp_path, "a", trusted=False)
    assert agent.tools == ()
    assert "web" in problems[0].text


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("inherit", None),
        ("sonnet", "anthropic:claude-sonnet-5"),
        ("Opus", "anthropic:claude-opus-5"),
        ("haiku[1m]", "anthropic:claude-haiku-4-5"),
        ("claude-opus-4-8", "anthropic:claude-opus-4-8"),
        ("gpt-5.4-mini", "openai:gpt-5.4-mini"),
        ("openai/gpt-5", "openai:gpt-5"),
        ("openrouter/qwen/qwen3:free", "openrouter:qwen/qwen3:free"),
        ("ollama:llama3", "ollama:llama3"),
        ("fast", "groq:llama"),
        ("Best", "openai:gpt-5"),
        ("[fast, sonnet]", ("groq:llama", "anthropic:claude-sonnet-5")),
        ("http://localhost:8000/v1#m", "http://localhost:8000/v1#m"),
        ("Claude Sonnet 4.5", "anthropic:claude-sonnet-4-5"),
        ("Claude Opus 4.6 (Preview) (copilot)", "anthropic:claude-opus-4-6"),
        ("GPT-4.1 (copilot)", "openai:gpt-4.1"),
        ("GPT-4.1 | 'gpt-5'", ("openai:gpt-4.1", "openai:gpt-5")),
        ("Auto (copilot)", None),
    ],
)
def test_model_names(tmp_path: Path, written: str, expected: object) -> None:
    """The user's aliases take precedence over Claude Code's; other systems' names become `provider:name`."""
    write(tmp_path, "a", f"model: {written}\n")
    agent, problems = made(
        tmp_path, "a", aliases={"fast": "quick", "quick": "groq:llama", "Best": "openai:gpt-5"}
    )
    assert (agent.model, problems) == (expected, [])


def test_an_unusable_model_is_inherited(tmp_path: Path) -> None:
    """If a model cannot be used, the agent inherits its parent's, and the reason is reported."""

    def usable(name: str) -> Unusable | None:
        return Unusable("KEY is not set", "models of X: set KEY") if "anthropic" in name else None

    write(tmp_path, "a", "model: sonnet\n")
    agent, problems = made(tmp_path, "a", usable=usable)
    assert agent.model is None
    assert [(problem.level, problem.line, problem.text) for problem in problems] == [
        (
            "warning",
            4,
            "The model 'anthropic:claude-sonnet-5' is unavailable (KEY is not set); using the parent's model.",
        )
    ]
    write(tmp_path, "b", "model: [sonnet, openai:gpt-5]\n")
    agent, problems = made(tmp_path, "b", usable=usable)
    assert (agent.model, [problem.level for problem in problems]) == ("openai:gpt-5", ["note"])
    assert problems[0].text.endswith("using 'openai:gpt-5'.")


def test_an_untrusted_file_only_narrows(tmp_path: Path) -> None:
    """An untrusted file may not choose a model's address, raise shared limits or add to requests; a trusted one may."""
    write(
        tmp_path,
        "a",
        "model: http://evil.example/v1#m\nlimits: {seconds: 9000, usd: 1, depth: 1, turns: 90}\n"
        "settings:\n  temperature: 0.1\n  extra_body: {leak: 1}\n",
    )
    agent, problems = made(tmp_path, "a", trusted=False)
    assert (agent.model, agent.settings) == (None, {"temperature": 0.1})
    assert agent.limits == Limits(seconds=600.0, usd=1, depth=1, turns=50)
    assert [p.line for p in problems] == [4, 6, 5]
    agent, problems = made(tmp_path, "a")
    assert (agent.model, agent.limits, problems) == (
        "http://evil.example/v1#m",
        Limits(seconds=9000, usd=1, depth=1, turns=90),
        [],
    )


def test_an_alias_of_the_user_may_be_an_address(tmp_path: Path) -> None:
    """An untrusted file may use the user's alias for an address."""
    write(tmp_path, "a", "model: mine\n")
    agent, problems = made(tmp_path, "a", trusted=False, aliases={"mine": "http://localhost:1/v1#m"})
    assert (agent.model, problems) == ("http://localhost:1/v1#m", [])


def test_everything_else_reaches_the_agent(tmp_path: Path) -> None:
    """Limits, surface, summary, schema, sandbox and the other keys reach the agent."""
    write(
        tmp_path,
        "a",
        "displayName: Ada\nmaxTurns: 5\ntimeout: 1m30s\nbudget: 0.5\nmax_depth: 1\neffort: high\nsurface: subagent\n"
        "adhoc: yes\nsummary: auto\npermissionMode: plan\n"
        "output_schema:\n  type: object\n  properties:\n    count: {type: integer}\n  required: [count]\n",
    )
    agent, _ = made(tmp_path, "a")
    assert (agent.nickname, agent.surface, agent.adhoc, agent.summary) == (
        "Ada",
        "subagent_<name>",
        True,
        "auto",
    )
    assert agent.limits == Limits(turns=5, seconds=90, usd=0.5, depth=1)
    assert (agent.settings, str(agent.sandbox)) == ({"thinking": "high"}, "read-only+network")
    assert agent.output == {
        "type": "object",
        "properties": {"count": {"type": "integer"}},
        "required": ["count"],
    }


def test_a_permission_mode_never_widens(tmp_path: Path) -> None:
    """`bypassPermissions` in a file allows nothing and is noted."""
    write(tmp_path, "a", "permissionMode: bypassPermissions\n")
    loaded = load(tmp_path)
    agent = build(loaded.agents["a"], loaded)
    assert agent.policy is None
    assert [p.level for p in loaded.problems] == ["note"]


def test_the_callers_model_replaces_the_roots(tmp_path: Path) -> None:
    """The caller's model replaces the root's model only."""
    write(tmp_path, "leaf", "model: opus\n")
    write(tmp_path, "lead", "model: sonnet\nsubagents: leaf\n")
    loaded = load(tmp_path)
    lead = build(loaded.agents["lead"], loaded, model="openai:gpt-5")
    assert (lead.model, lead.subagents[0].model) == ("openai:gpt-5", "anthropic:claude-opus-5")


def test_a_bad_agent_does_not_hide_others(tmp_path: Path) -> None:
    """One bad agent does not hide the others; `check` reports every problem."""
    write(tmp_path, "good")
    write(tmp_path, "boss", "mode: primary\n")
    write(tmp_path, "bad", "subagents: nobody\n")
    (tmp_path / "worse.md").write_text("---\nname: worse\nmaxTurns: x\n---\n")
    loaded = load(tmp_path)
    problems: list[Problem] = []
    assert [agent.name for agent in build_all(loaded, problems=problems)] == ["good"]
    told = {Path(p.file).name for p in check(loaded) if p.level == "error"}
    assert told == {"bad.md", "worse.md"}


async def test_a_tree_of_files_runs(tmp_path: Path) -> None:
    """Agents from files delegate like other agents."""
    write(tmp_path, "explorer", "tools: []\n", "You explore.")
    write(tmp_path, "lead", "tools: Task(explorer)\n", "You lead.")
    loaded: Loaded = load(tmp_path)
    model = ScriptedModel(
        {
            "lead": [call("task", agent="explorer", prompt="look"), say("all seen")],
            "explorer": [say("found it")],
        }
    )
    outcome = await run(build(loaded.agents["lead"], loaded), "go", model=model)
    assert (outcome.text, outcome.children[0].text) == ("all seen", "found it")
