"""Where agent files are found, which of two agents takes precedence, and how hostile folders are handled."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from remit.definitions import Given, Loaded, load, load_agents
from remit.errors import UsageError


def write(path: Path, name: str, description: str = "d", more: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\ndescription: {description}\n{more}---\nDo it.\n", encoding="utf-8")
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


def found(project: Path, folder: str = "", **options: object) -> Loaded:
    home = project.parent / "home"
    return load_agents(project / folder, home=home, environ={}, **options)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "place",
    [
        ".remit/agents",
        ".claude/agents",
        ".agents/agents",
        ".opencode/agents",
        ".opencode/agent",
        ".qwen/agents",
    ],
)
def test_every_systems_folder_is_read(project: Path, place: str) -> None:
    """Agents are read where people have them, subfolders included."""
    write(project / place / "one.md", "one")
    write(project / place / "deep" / "er" / "two.md", "two")
    (project / place / "notes.txt").write_text("no agent")
    assert sorted(found(project).agents) == ["one", "two"]


def test_codex_agents_are_toml(project: Path) -> None:
    """A .codex agent is TOML with Codex's own keys, and its keys have line numbers."""
    path = project / ".codex" / "agents" / "audit.toml"
    path.parent.mkdir(parents=True)
    path.write_text(
        'name = "audit"\ndescription = "Audits: all"\nmodel = "gpt-5"\nmodel_reasoning_effort = "high"\n'
        'sandbox_mode = "read-only"\nnickname_candidates = ["Ada", "Bob"]\nmcp_servers = ["docs"]\n'
        'developer_instructions = """\nname = "not this"\n"""\n'
    )
    audit = found(project).agents["audit"]
    assert (audit.description, audit.instructions, audit.models) == (
        "Audits: all",
        'name = "not this"',
        ("gpt-5",),
    )
    assert (str(audit.sandbox), audit.settings, audit.nickname) == ("read-only", {"thinking": "high"}, "Ada")
    assert (audit.line("mcpServers"), audit.line("instructions")) == (7, 8)


def test_the_nearest_agent_takes_precedence(project: Path) -> None:
    """The project takes precedence over the user, the nearer folder over the farther, .remit over other systems."""
    home = project.parent / "home"
    write(home / ".remit/agents/a.md", "a", "user")
    write(project / ".claude/agents/a.md", "a", "root claude")
    write(project / ".remit/agents/a.md", "a", "root remit")
    write(project / "pkg/.claude/agents/a.md", "a", "pkg claude")
    assert found(project, "pkg").agents["a"].description == "pkg claude"
    assert found(project).agents["a"].description == "root remit"
    assert [d.description for d in found(project).hidden] == ["root claude", "user"]
    assert load_agents(project.parent, home=home, environ={}).agents["a"].description == "user"


def test_nothing_above_the_repository_is_read(project: Path) -> None:
    """Folders above the repository's root are not searched; without a repository, only the folder itself is."""
    write(project.parent / ".claude/agents/a.md", "a")
    (project / "pkg").mkdir()
    assert found(project, "pkg").agents == {}
    (project / ".git").rmdir()
    write(project / ".claude/agents/b.md", "b")
    assert found(project, "pkg").agents == {}
    assert list(found(project).agents) == ["b"]


def test_the_users_folders_are_trusted_the_projects_are_not(project: Path) -> None:
    """The user's files and files that the caller names may widen; the project's only if it is trusted."""
    home = project.parent / "home"
    write(home / ".config/opencode/agents/mine.md", "mine")
    write(project / ".claude/agents/theirs.md", "theirs")
    extra = write(project.parent / "extra.md", "extra")
    loaded = found(project, extra=[extra])
    assert {name: one.trusted for name, one in loaded.agents.items()} == {
        "extra": True,
        "theirs": False,
        "mine": True,
    }
    assert found(project, trusted=True).agents["theirs"].trusted


def test_duplicate_names_in_a_folder_are_reported(project: Path) -> None:
    """If two files of one folder have the same name, the first is used and the second is reported."""
    write(project / ".claude/agents/a.md", "same", "first")
    write(project / ".claude/agents/b.md", "same", "second")
    loaded = found(project)
    assert loaded.agents["same"].description == "first"
    (warning,) = [p for p in loaded.problems if p.level == "warning"]
    assert warning.file == project / ".claude/agents/b.md"
    assert "Rename one of them" in warning.text


def test_documents_beside_agents_are_not_agents(project: Path) -> None:
    """A README without front matter is not read as an agent."""
    (project / ".claude/agents").mkdir(parents=True)
    (project / ".claude/agents/README.md").write_text("# Our agents\n")
    loaded = found(project)
    assert loaded.agents == {}
    assert [p.level for p in loaded.problems] == ["note"]


def test_a_disabled_agent_is_left_out(project: Path) -> None:
    """`disable: true` removes an agent without a problem being reported."""
    write(project / ".opencode/agents/a.md", "a", more="disable: true\n")
    loaded = found(project)
    assert (loaded.agents, loaded.errors) == ({}, [])


def test_agents_are_found_in_any_case(project: Path) -> None:
    """An agent is found by its name in another case, with spaces, and by its nickname."""
    write(project / ".claude/agents/a.md", "Code Reviewer")
    loaded = found(project)
    for name in ("code-reviewer", "Code Reviewer", "CODE_REVIEWER"):
        assert loaded.find(name) is loaded.agents["code-reviewer"]
    assert loaded.find("reviewer") is None
    assert "'code-reviewer'" in loaded.suggest("code-reviewr")


def test_links_out_of_a_project_are_not_read(project: Path) -> None:
    """A symlink in an untrusted project cannot bring an outside file into a prompt; symlinks inside it are followed."""
    secret = write(project.parent / "secret.md", "secret")
    agents = project / ".claude" / "agents"
    write(agents / "good.md", "good")
    (agents / "leak.md").symlink_to(secret)
    (agents / "folder").symlink_to(project.parent)
    (project / ".qwen").mkdir()
    (project / ".qwen" / "agents").symlink_to(project.parent)
    write(project / "shared" / "in.md", "inside")
    (agents / "in.md").symlink_to(project / "shared" / "in.md")
    loaded = found(project)
    assert sorted(loaded.agents) == ["good", "inside"]
    told = {p.file for p in loaded.errors if "outside the project" in p.text}
    assert told == {agents / "leak.md", agents / "folder", project / ".qwen" / "agents"}
    untrusted = load_agents(
        project, home=project.parent / "home", environ={}, extra=[Given(agents, trusted=False)]
    )
    assert sorted(untrusted.agents) == ["good", "inside"]


def test_cyclic_links(project: Path) -> None:
    """Folders that contain themselves, and symlinks to themselves, are read once or reported."""
    agents = project / ".claude" / "agents"
    write(agents / "a.md", "a")
    (agents / "again").symlink_to(agents)
    (agents / "self.md").symlink_to(agents / "self.md")
    loaded = found(project)
    assert list(loaded.agents) == ["a"]
    assert [p.file for p in loaded.errors] == [agents / "self.md"]


@pytest.mark.skipif(os.name != "posix", reason="needs pipes with names")
def test_a_pipe_does_not_block(project: Path) -> None:
    """A file that is not a regular file is reported at once, and does not hide other files."""
    agents = project / ".claude" / "agents"
    write(agents / "a.md", "a")
    os.mkfifo(agents / "pipe.md")
    (agents / "gone.md").symlink_to(agents / "nowhere.md")
    (agents / "folder.md").mkdir()
    loaded = found(project)
    assert list(loaded.agents) == ["a"]
    assert {p.file.name: p.text for p in loaded.errors if isinstance(p.file, Path)} == {
        "gone.md": "The file cannot be read: no such file or directory.",
        "pipe.md": "The file is not a regular file.",
    }


def test_load_one_file_or_folder(project: Path) -> None:
    """`load` reads one file or one folder, and raises if the path does not exist."""
    path = write(project / "one.md", "one")
    assert list(load(path).agents) == list(load(project).agents) == ["one"]
    with pytest.raises(UsageError, match="No file or folder"):
        load(project / "two.md")


def test_control_characters_do_not_reach_a_terminal(project: Path) -> None:
    """Escape sequences are removed from descriptions and messages."""
    write(
        project / ".claude/agents/a.md",
        "a \x1b[1m",
        "\x1b]0;owned\x07 \u202enice",
        more="bad\x1b[31mkey: 1\n",
    )
    write(project / ".claude/agents/\x1b[2J.md", "b", more="colr: x\n")
    loaded = found(project)
    seen = [f"{one.name} {one.nickname} {one.description}" for one in loaded.agents.values()]
    assert not any(char in text for text in seen for char in "\x1b\x07\u202e")
    assert not any("\x1b" in str(p) for p in loaded.problems)


LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(LAUGHS, id="a billion laughs"),
        pytest.param("tools: " + "[" * 20_000, id="open brackets"),
        pytest.param("tools: " + "{a: " * 9_000, id="open braces"),
        pytest.param("".join(f"{' ' * n}a:\n" for n in range(400)), id="nested keys"),
        pytest.param("mcpServers:\n" + "".join(f"{' ' * n}- a:\n" for n in range(1, 300)), id="nested items"),
        pytest.param("a: [ ] x\n" * 9_000, id="brackets that end badly"),
        pytest.param('a: "" x\n' * 9_000, id="quotes that end badly"),
        pytest.param("description: x\n" + "\n" * 90_000, id="empty lines"),
        pytest.param("description: " + "<a" * 20_000 + "<b>" * 10_000, id="tags"),
        pytest.param("".join(f"description: <t{n}>\n" for n in range(4_000)), id="tags that never close"),
        pytest.param("tools: " + "Read," * 19_000, id="endless list"),
        pytest.param(f"description: {' ' * 90_000}x", id="blanks"),
        pytest.param(f"tools: {'(' * 90_000}", id="round brackets"),
        pytest.param("maxTurns: " + "9" * 90_000, id="digits"),
        pytest.param("-" * 90_000 + ":\n", id="dashes"),
    ],
)
@pytest.mark.timeout(20)
def test_hostile_headers_are_read_quickly(tmp_path: Path, header: str) -> None:
    """A header that is designed to be slow or to grow is read quickly."""
    (tmp_path / "a.md").write_text(f"---\nname: a\n{header}\n---\nx", encoding="utf-8")
    loaded = load(tmp_path)
    assert len(loaded.agents) + bool(loaded.errors) >= 1


def test_reading_files_imports_nothing_heavy(project: Path) -> None:
    """Reading settings and agent files imports no provider, web, MCP or schema package."""
    write(project / ".claude/agents/a.md", "a", more="tools: Read, mcp__x__y\n")
    (project / "remit.toml").write_text(
        'model = "openai:gpt-5"\n[agents.b]\ndescription = "d"\ninstructions = "x"\n'
    )
    heavy = ("pydantic", "pydantic_ai", "httpx", "mcp", "jsonschema", "sqlite3", "anyio.streams")
    code = (
        "import sys; from remit.definitions import load_settings\n"
        f"loaded = load_settings({str(project)!r}, environ={{}}, home={str(project.parent)!r}).load_agents()\n"
        f"print(len(loaded.agents), [name for name in {heavy!r} if name in sys.modules])"
    )
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3] / "src")}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("2 []", "")
