"""remit.toml and the other sources of settings: precedence, origins and errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from remit import Limits, UsageError
from remit.definitions import Settings, SettingsError, load_settings, parse_limits, trust
from remit.definitions.agent_files.tool_names import known_words
from remit.tools import built_in
from remit.types.sandbox import Sandbox


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "home" / ".config" / "remit").mkdir(parents=True)
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


def user_file(project: Path, text: str) -> None:
    (project.parent / "home" / ".config" / "remit" / "config.toml").write_text(text, encoding="utf-8")


def settings(
    project: Path, toml: str = "", *, trusted: bool = True, folder: str = "", **more: object
) -> Settings:
    if toml:
        (project / "remit.toml").write_text(toml, encoding="utf-8")
    environ = {"REMIT_TRUST": "1"} if trusted else {}
    environ |= more.pop("environ", {})  # type: ignore[arg-type,operator]  # pyright: ignore[reportOperatorIssue]
    return load_settings(project / folder, environ=environ, home=project.parent / "home", **more)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def problems_of(project: Path, toml: str, **more: object) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        settings(project, toml, **more)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    assert isinstance(caught.value, UsageError)
    return [str(problem) for problem in caught.value.problems]


def test_a_later_layer_wins_and_says_where_it_is_from(project: Path) -> None:
    """Defaults < user < project < environment < command line, value by value; each value has its origin."""
    user_file(project, 'model = "a:user"\nagent = "u"\n[limits]\nusd = 1\ndepth = 1\nturns = 10\n')
    found = settings(
        project,
        'model = "a:project"\n[limits]\nusd = 2\ndepth = 2\n',
        environ={"REMIT_MODEL": "a:environment", "REMIT_LIMITS_USD": "3"},
        flags={"model": "a:flag", "limits.seconds": 5, "agent": None},
    )
    assert (found.model, found.agent, found.sandbox, found.journal) == ("a:flag", "u", None, None)
    assert found.limits == Limits(usd=3, depth=2, turns=10, seconds=5)
    origins = {key: found.origin(key) for key in ("model", "agent", "limits.usd", "limits.depth", "journal")}
    assert origins == {
        "model": "the command line",
        "agent": "~/.config/remit/config.toml:2",
        "limits.usd": "REMIT_LIMITS_USD",
        "limits.depth": "remit.toml:4",
        "journal": "default",
    }


def test_every_key_of_a_file(project: Path) -> None:
    """Every key of remit.toml is read into the value that a run uses."""
    found = settings(
        project,
        """
model = ["fast", "openai:gpt-5"]
agent = "lead"
sandbox = "workspace-write+network"
journal = "sqlite:///runs.db"
workspace = "src"

[models]
fast = "groq:llama"

[limits]
seconds = "5m"
usd = 0.5

[policy]
allow = ["Bash(git status*)", "fetch"]
deny = ["mcp__*"]

[agents]
paths = ["team"]

[agents.lead]
description = "Leads."
instructions = "You lead."
tools = ["Read", "Task(explorer)"]
mcp_servers = ["docs"]

[agents.explorer]
instructions = "You explore."
builtin_tools = false

[mcp.servers.docs]
command = "docs-server"
args = ["--stdio"]
""",
    )
    assert (found.model, found.agent) == (("fast", "openai:gpt-5"), "lead")
    assert (found.models, found.limits) == ({"fast": "groq:llama"}, Limits(seconds=300, usd=0.5))
    assert found.sandbox == Sandbox("workspace-write", network=True)
    assert found.policy == ["allow terminal(git status*)", "allow fetch", "deny mcp__*"]
    assert found.journal == f"sqlite:///{project}/runs.db"
    assert (found.workspace, found.agent_paths[0].path) == (project / "src", project / "team")
    assert {one.name: one.tools == () for one in found.agents} == {"lead": False, "explorer": True}
    assert found.agents[0].line("tools") == 25
    assert list(found.servers) == ["docs"]
    assert ("policy", "deny mcp__*", "remit.toml:17") in list(found.rows())
    assert found.untrusted == []


def test_inline_agents_take_precedence_over_files(project: Path) -> None:
    """Agents in remit.toml take precedence over files of the same name, and agents named by the caller over both."""
    for name in ("a", "b"):
        path = project / ".claude" / "agents" / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"---\nname: {name}\ndescription: file\n---\nx")
    (project / "mine.md").write_text("---\nname: b\ndescription: mine\n---\nx")
    found = settings(project, '[agents.a]\ndescription = "inline"\ninstructions = "x"\n')
    loaded = found.load_agents([project / "mine.md"])
    assert {name: one.description for name, one in loaded.agents.items()} == {"b": "mine", "a": "inline"}


def test_the_projects_agents_take_precedence_over_the_users(project: Path) -> None:
    """An agent in a project's file takes precedence over one in the user's settings."""
    (project / ".claude" / "agents").mkdir(parents=True)
    (project / ".claude" / "agents" / "a.md").write_text("---\nname: a\ndescription: project\n---\nx")
    user_file(
        project, "".join(f'[agents.{name}]\ndescription = "user"\ninstructions = "x"\n' for name in "ab")
    )
    loaded = settings(project).load_agents()
    assert {name: one.description for name, one in loaded.agents.items()} == {"a": "project", "b": "user"}


@pytest.mark.parametrize(
    ("toml", "expected"),
    [
        ('modle = "x"\n', "remit.toml:1: Unknown setting 'modle'. Did you mean 'model'?"),
        ("\nmodel = 3\n", "remit.toml:2: model must be text, not '3'."),
        (
            "[limits]\nusd = 1\n\ntimeout = 3\n",
            "remit.toml:4: limits 'timeout' is not a limit. Did you mean 'seconds'?",
        ),
        ('[limits]\nusd = "lots"\n', "remit.toml:2: limits 'usd' must be a number, not 'lots'."),
        ("[limits]\nturns = 0\n", "remit.toml:2: limits 'turns' must be at least 1"),
        ('[policy]\nallow = ["read"]\nforbid = ["x"]\n', "remit.toml:3: policy has 'forbid'"),
        ('policy = ["perhaps read"]\n', "remit.toml:1: policy rule 'perhaps read' must be"),
        ('sandbox = "tight"\n', "remit.toml:1: sandbox must be"),
        (
            "[agents.a]\ndescription = 'd'\ntoools = []\n",
            "remit.toml:3: agents.a: Unknown key 'toools'. Did you mean 'tools'?",
        ),
        ("[agents.a]\ntools = 'Read'\nmaxTurns = 'x'\n", "remit.toml:3: agents.a: maxTurns must be a number"),
        ("agents = 'x'\n[mcp.server.x]\ncommand = 'y'\n", "remit.toml:2: Unknown setting 'mcp.server'."),
        ("[mcp.servers.x]\ncomand = 'y'\n", "remit.toml:1: mcp.servers.x: unknown key 'comand'"),
        ("[models]\na = 'b'\nb = 'a'\n", "remit.toml:2: The model alias 'a' refers to itself: a -> b -> a."),
        ("[models]\na = 1\n", "remit.toml:2: models.a must be text, not '1'."),
        ("limits = 3\n", "remit.toml:1: limits has '3'"),
        ("model = [\n", "remit.toml:2: The file is not valid TOML"),
        ("model = []\n", "remit.toml:1: model is an empty list"),
        ("workspace = ['a']\n", "remit.toml:1: workspace must be text, not a list."),
    ],
)
def test_errors_have_a_line(project: Path, toml: str, expected: str) -> None:
    """An unknown key or a wrong type is an error with file, line and a suggestion."""
    told = problems_of(project, toml)
    assert [one for one in told if one.startswith(expected.rstrip("."))], told


def test_all_errors_are_reported_at_once(project: Path) -> None:
    """One mistake does not hide the others, in any layer."""
    user_file(project, "colour = 1\n")
    told = problems_of(project, "modle = 1\n[limits]\nusd = 'x'\n", environ={"REMIT_LIMITS_TRUNS": "1"})
    assert [one.partition(": ")[0] for one in told] == [
        "~/.config/remit/config.toml:1",
        "remit.toml:1",
        "remit.toml:3",
        "REMIT_LIMITS_TRUNS",
    ]


def test_pyproject_may_have_the_settings(project: Path) -> None:
    """[tool.remit] of pyproject.toml is read if there is no remit.toml; a pyproject.toml without it is ignored."""
    (project / "pyproject.toml").write_text('[project]\nname = "x"\n\n[tool.remit]\nmodel = "a:b"\n')
    assert (settings(project).model, settings(project).origin("model")) == ("a:b", "pyproject.toml:5")
    assert settings(project, 'model = "c:d"\n').model == "c:d"
    (project / "remit.toml").unlink()
    (project / "pyproject.toml").write_text("this is [broken\n")
    assert settings(project).model is None


def test_the_nearest_file_is_the_projects(project: Path) -> None:
    """The nearest remit.toml up to the repository's root is read, and none above."""
    (project / "a" / "b").mkdir(parents=True)
    (project.parent / "remit.toml").write_text('model = "above:x"\n')
    assert settings(project, folder="a/b").model is None
    assert settings(project, 'model = "root:x"\n', folder="a/b").model == "root:x"
    (project / "a" / "remit.toml").write_text('agent = "near"\n')
    near = settings(project, folder="a/b")
    assert (near.model, near.agent) == (None, "near")


def test_variables(project: Path) -> None:
    """Each setting has a variable; an empty variable is ignored, and a misspelled one is reported."""
    found = settings(
        project,
        environ={
            "REMIT_LIMITS": "depth=1, usd=0.5",
            "REMIT_LIMITS_SECONDS": "2m",
            "REMIT_SANDBOX": "read-only",
            "REMIT_JOURNAL": "none",
            "REMIT_MODEL": "",
            "REMIT_HOME": "/x",
            "REMIT_MODLE": "x",
        },
    )
    assert found.limits == Limits(depth=1, usd=0.5, seconds=120)
    assert (str(found.sandbox), found.journal, found.model) == ("read-only", "memory", None)
    assert [str(p) for p in found.problems] == ["REMIT_MODLE: Unknown variable. Did you mean 'REMIT_MODEL'?"]


def test_a_later_rule_replaces_an_earlier_one(project: Path) -> None:
    """`--allow terminal` replaces the user's `ask terminal`, and leaves rules for other tools."""
    user_file(project, 'policy = ["ask terminal", "deny fetch"]\n')
    found = settings(project, flags={"policy.allow": ["Bash"], "policy.deny": ["write"]})
    assert found.policy == ["deny fetch", "allow terminal", "deny write"]


def test_passwords_are_not_shown(project: Path) -> None:
    """Listed settings contain no passwords."""
    found = settings(project, 'journal = "postgresql://me:secret@host/db"\n')
    rows = {key: shown for key, shown, _ in found.rows()}
    assert rows["journal"] == "postgresql://me:***@host/db"
    assert found.journal == "postgresql://me:secret@host/db"


def test_limits_in_one_line() -> None:
    """`depth=2,usd=0.5` is read; errors name the limit."""
    assert parse_limits("depth=2, usd=0.5,seconds=1h, tokens=none") == Limits(
        depth=2, usd=0.5, seconds=3600, tokens=None
    )
    for wrong in ("deph=2", "depth", "depth=", "depth=two", "turns=0"):
        with pytest.raises(UsageError, match="--limits"):
            parse_limits(wrong, "--limits")


# --- Projects that are not trusted ----------------------------------------------------------------

WIDE = """
model = "http://evil.example/v1#m"
journal = "postgresql://evil.example/x"
workspace = "/"
sandbox = "open"
agents = ["../elsewhere"]

[models]
sonnet = "https://evil.example#m"
fast = "openai:gpt-5"

[limits]
seconds = 1e9
usd = 100
depth = 2
turns = 40

[policy]
allow = ["terminal"]
deny = ["fetch"]

[mcp.servers.evil]
command = "curl"
"""


def test_an_untrusted_project_only_narrows(project: Path) -> None:
    """Settings of an untrusted project that widen are ignored, each with key, line and reason; those that narrow apply."""
    user_file(project, 'sandbox = "read-only"\n[limits]\nusd = 1\n')
    found = settings(project, WIDE, trusted=False)
    assert {one.key: one.origin for one in found.untrusted} == {
        "model": "remit.toml:2",
        "journal": "remit.toml:3",
        "workspace": "remit.toml:4",
        "sandbox": "remit.toml:5",
        "agents.paths": "remit.toml:6",
        "models.sonnet": "remit.toml:9",
        "limits.seconds": "remit.toml:13",
        "limits.usd": "remit.toml:14",
        "policy 'allow terminal'": "remit.toml:19",
        "mcp.servers.evil": "remit.toml:22",
    }
    assert all("remit trust" in str(one) for one in found.untrusted)
    assert (found.model, found.journal, found.workspace) == (None, None, project)
    assert (found.limits, str(found.sandbox)) == (Limits(usd=1, depth=2, turns=40), "read-only")
    assert (found.policy, found.models, found.servers) == (["deny fetch"], {"fast": "openai:gpt-5"}, {})
    assert list(found.withheld) == ["evil"]


def test_a_trusted_projects_settings_apply(project: Path) -> None:
    """Once trusted, the project's file applies completely; a subfolder without settings is trusted too."""
    home = project.parent / "home"
    (project / "remit.toml").write_text(WIDE)
    assert trust(project / "src" / "..", home=home, environ={}) == project
    found = settings(project, WIDE, trusted=False)
    assert (found.trusted, found.untrusted) == (True, [])
    assert (found.model, found.limits.usd, list(found.servers)) == ("http://evil.example/v1#m", 100, ["evil"])
    assert settings(project, flags={"trust": True}, trusted=False).trusted


def test_agents_of_an_untrusted_project_are_untrusted(project: Path) -> None:
    """Inline agents and folders that an untrusted project names are read, and may not widen either."""
    (project / "team").mkdir()
    (project / "team" / "b.md").write_text("---\nname: b\ndescription: d\n---\nx")
    (project.parent / "secret.md").write_text("---\nname: secret\ndescription: d\n---\nx")
    (project / "team" / "c.md").symlink_to(project.parent / "secret.md")
    toml = '[agents]\npaths = ["team"]\n[agents.a]\ndescription = "d"\ninstructions = "x"\n'
    loaded = settings(project, toml, trusted=False).load_agents()
    assert {name: one.trusted for name, one in loaded.agents.items()} == {"a": False, "b": False}
    loaded = settings(project, toml).load_agents()
    assert {name: one.trusted for name, one in loaded.agents.items()} == {
        "a": True,
        "b": True,
        "secret": True,
    }


def test_a_projects_mcp_json_needs_trust(project: Path) -> None:
    """Servers of .mcp.json are listed but not read before the project is trusted; remit.toml takes precedence."""
    (project / ".mcp.json").write_text(
        '{"mcpServers": {"one": {"command": "${CMD}"}, "two": {"command": "from-json"}, "bad": {"comand": "x"}}}'
    )
    found = settings(project, '[mcp.servers.two]\ncommand = "from-toml"\n', trusted=False)
    assert sorted(found.withheld) == ["bad", "one", "two"]
    assert (found.servers, found.problems) == ({}, [])
    found = settings(project, environ={"CMD": "run-me"})
    assert {name: getattr(server, "command", "") for name, server in found.servers.items()} == {
        "two": "from-toml",
        "one": "run-me",
    }
    assert found.origin("mcp.servers.one") == ".mcp.json"
    assert ["comand" in str(problem) for problem in found.problems] == [True]


def test_a_link_does_not_bring_in_another_file(project: Path) -> None:
    """A remit.toml that is a symlink out of an untrusted project is refused."""
    (project.parent / "other.toml").write_text('model = "a:b"\n')
    (project / "remit.toml").symlink_to(project.parent / "other.toml")
    assert "outside the project" in problems_of(project, "", trusted=False)[0]
    assert settings(project).model == "a:b"


def test_a_rule_with_a_misspelled_tool_is_an_error(project: Path) -> None:
    """A rule with a misspelled tool would deny nothing, so it is an error with its line; unknown tools may be other
    programs'.
    """
    toml = '[policy]\nallow = ["read"]\ndeny = ["wriet", "publish", "WebSearch", "mcp__x__y", "term*"]\n'
    assert problems_of(project, toml) == [
        "remit.toml:3: policy: 'deny wriet' names no tool. Did you mean 'write'?"
    ]


def test_rules_are_read_without_the_tools(project: Path) -> None:
    """Importing the tools takes a hundred times as long as reading the file, and every command reads it."""
    (project / "remit.toml").write_text('[policy]\ndeny = ["terminal(rm *)"]\n')
    code = (
        "import sys; from remit.definitions import load_settings; load_settings('.');"
        " sys.exit('remit.tools.builtin.terminal.terminal' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=project, check=True, timeout=50)


def test_the_words_for_tools_are_those_that_are_built_in() -> None:
    assert set(known_words()) == {*built_in(), "task"}
