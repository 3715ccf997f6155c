"""`remit agents`: the list of agents, and the problems in their files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commandbench import Bench, make_bench, remit

GOOD = "---\nname: {name}\ndescription: {text}\ntools: Read, Grep\nmodel: haiku\n---\nLook, and report.\n"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return make_bench(tmp_path, monkeypatch)


def _write(path: str, text: str) -> Path:
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_agents_are_listed_with_their_files(bench: Bench) -> None:
    """Every agent of the project and of the user is one line: name, model, tools, file, description."""
    _write(".remit/agents/explorer.md", GOOD.format(name="explorer", text="Finds things."))
    _write(f"{bench.folder}/home/.claude/agents/mine.md", GOOD.format(name="mine", text="Is mine."))
    code, out, err = remit("agents")
    head, first, second = out.splitlines()
    assert (code, err) == (0, "")
    assert head.split() == ["NAME", "MODEL", "TOOLS", "FILE", "DESCRIPTION"]
    assert first.split() == [
        "explorer",
        "haiku",
        "Read,",
        "Grep",
        ".remit/agents/explorer.md",
        "Finds",
        "things.",
    ]
    assert "~/.claude/agents/mine.md" in second


def test_no_agents_is_not_an_error(bench: Bench) -> None:
    """Without agents, the message says how to create one."""
    code, out, err = remit("agents")
    assert (code, out) == (0, "")
    assert ".remit/agents/NAME.md" in err


def test_a_bad_file_does_not_hide_the_others(bench: Bench) -> None:
    """Usable agents are listed, and a message points to the problems of the others."""
    _write(".remit/agents/good.md", GOOD.format(name="good", text="Good."))
    _write(".remit/agents/bad.md", GOOD.format(name="bad", text="Bad.").replace("Read, Grep", "Raed"))
    code, out, err = remit("agents")
    assert code == 0
    assert "good" in out
    why = "agents with errors cannot run"
    assert err == f"1 error, 0 warnings in agent files ({why}). Details: remit agents --check\n"


def test_check_prints_file_line_and_fix(bench: Bench) -> None:
    """--check prints every problem with file and line; an error makes the exit code 1, a warning does not."""
    _write(".remit/agents/bad.md", "---\nname: bad\ndescription: B.\ntools: Raed\n---\nWork.\n")
    code, out, err = remit("agents", "--check")
    assert code == 1
    assert ".remit/agents/bad.md:4: error: No tool named 'Raed'. Did you mean 'read'?" in out
    assert err == "1 agent: 1 error, 0 warnings.\n"
    _write(".remit/agents/bad.md", "---\nname: bad\ndescription: B.\ncolour: red\nmaxTruns: 3\n---\nWork.\n")
    code, out, err = remit("agents", "--check")
    assert code == 0
    assert ".remit/agents/bad.md:5: warning:" in out


def test_check_of_named_paths(bench: Bench) -> None:
    """Named files and folders are checked instead of the current folder, and each problem is printed once."""
    _write(".remit/agents/here.md", "---\nname: here\ntools: Raed\n---\n")
    folder = _write("team/one.md", GOOD.format(name="one", text="One.").replace("haiku", "offline")).parent
    other = _write("other.md", "---\nname: other\ntools: Raed\n---\nWork.\n")
    assert remit("agents", "--check", str(folder)) == (0, "", "1 agent: 0 errors, 0 warnings.\n")
    code, out, _ = remit("agents", "--check", str(folder), str(other))
    assert code == 1
    assert out.count("No tool named 'Raed'") == 1
    assert out.count("The agent has no description") == 1
    assert "here.md" not in out
    listed = remit("agents", str(folder)).out
    assert listed.splitlines()[1].split()[0] == "one"


def test_check_reports_unavailable_models(bench: Bench) -> None:
    """--check reports the unavailable models that a run warns about; they leave the exit code at 0."""
    file = _write(".remit/agents/one.md", GOOD.format(name="one", text="One."))
    code, out, err = remit("agents", "--check")
    assert (code, err) == (0, "1 agent: 0 errors, 1 warning.\n")
    assert (
        ".remit/agents/one.md:5: warning: The model 'anthropic:claude-haiku-4-5' is unavailable"
        " (ANTHROPIC_API_KEY is not set); using the parent's model." in out
    )
    assert remit("agents").err == ""
    file.write_text(GOOD.format(name="one", text="One.").replace("haiku", "ofline"))
    assert "Did you mean 'offline'?" in remit("agents", "--check").out


def test_check_prints_one_line_per_cause(bench: Bench) -> None:
    """A problem of many agents is one line with their number and counts once; a single problem has its file and line."""
    for number in range(7):
        text = GOOD.format(name=f"a{number}", text="Text.").replace("Grep", f"WebSearch, Tool{number}")
        _write(f".claude/agents/a{number}.md", text.replace("haiku", "haiku" if number else "openai:gpt-5"))
    code, out, err = remit("agents", "--check")
    lines = out.splitlines()
    assert (code, len(lines), err) == (0, 4, "7 agents: 0 errors, 4 warnings.\n")
    models = [line for line in lines if line.startswith("warning: 6 agents name models")]
    assert models[0].startswith("warning: 6 agents name models of Anthropic: set ANTHROPIC_API_KEY (")
    assert models[0].endswith("a1.md:5 and 5 more)")
    assert sum("a0.md:5: warning: The model 'openai:gpt-5'" in line for line in lines) == 1
    assert any("7 agents use tools that remit does not have: WebSearch (" in line for line in lines)
    assert any(
        "7 agents use tools that do not exist here: Tool0, Tool1, Tool2, Tool3, Tool4 and 2 more (" in line
        for line in lines
    )
    assert len(json.loads(remit("agents", "--check", "--json").out)["problems"]) == 21
    assert remit("agents").err == "0 errors, 2 warnings in agent files. Details: remit agents --check\n"


def test_check_suggests_a_name_for_each_unknown_key(bench: Bench) -> None:
    """Several unknown keys of one agent are one line, with a suggestion for each."""
    text = GOOD.format(name="a", text="Text.").replace(
        "description:", "modle: x\ntoolz: y\nqqq: z\ndescription:", 1
    )
    _write(".remit/agents/a.md", text)
    out = remit("agents", "--check").out
    assert "'modle' (did you mean 'model'?), 'toolz' (did you mean 'tools'?), 'qqq'\n" in out


def test_check_reads_hidden_folders(bench: Bench) -> None:
    """A named project is checked with all its agent folders, hidden ones too."""
    for place in (".claude/agents/a.md", ".github/agents/b.agent.md", "sub/.cursor/agents/c.md"):
        name = Path(place).name.partition(".")[0]
        _write(f"clone/{place}", GOOD.format(name=name, text="Text.").replace("haiku", "inherit"))
    assert remit("agents", "--check", "clone").err == "3 agents: 0 errors, 0 warnings.\n"


def test_check_fails_only_if_a_run_would_fail(bench: Bench) -> None:
    """An agent that cannot run, and an `agent` setting that names an unknown agent, make the exit code 1."""
    _write(".claude/agents/a.md", "---\nname: a\ntools: web/fetch, Task(b)\nmodel: opencode/x\nodd: 1\n---\n")
    _write(".claude/agents/b.md", GOOD.format(name="b", text="B."))
    _write(
        "opencode.json", '{"agent": {"build": {"model": "x/y"}, "c": {"description": "d", "prompt": "p"}}}'
    )
    assert remit("agents", "--check").code == 0
    _write("remit.toml", 'agent = "cc"\n')
    code, out, _ = remit("agents", "--check")
    assert code == 1
    assert "remit.toml:1: error: agent = 'cc': no usable agent has this name." in out
    assert remit("run", "Go", "--model", "offline").code == 2
    _write("remit.toml", "")
    _write(".claude/agents/d.md", GOOD.format(name="d", text="D.").replace("Grep", "Grpe"))
    assert remit("agents", "--check").code == 1


def test_check_reports_broken_settings(bench: Bench) -> None:
    """--check reports errors in remit.toml too; without --check they end the command."""
    _write("remit.toml", "modle = 'x'\n")
    code, out, _ = remit("agents", "--check")
    assert code == 1
    assert "remit.toml:1: error: Unknown setting 'modle'. Did you mean 'model'" in out
    code, out, err = remit("agents")
    assert (code, out) == (2, "")
    assert "remit.toml:1" in err


def test_json_output(bench: Bench) -> None:
    """--json prints the agents and the problems as objects."""
    _write(".remit/agents/one.md", GOOD.format(name="one", text="One."))
    _write(".remit/agents/two.md", "---\nname: two\ntools: Raed\n---\nWork.\n")
    page = json.loads(remit("agents", "--json").out)
    assert [agent["name"] for agent in page["agents"]] == ["one", "two"]
    assert page["agents"][0]["tools"] == ["Read", "Grep"]
    assert {problem["level"] for problem in page["problems"]} == {"error", "warning"}
    assert all(problem["file"].endswith("two.md") for problem in page["problems"])


def test_an_agent_file_cannot_control_the_terminal(bench: Bench) -> None:
    """Control characters in names and texts of agent files are escaped."""
    _write(".remit/agents/e\x1b[2J.md", GOOD.format(name="evil", text="Bad \u202e \x9b31m \x07 end."))
    for args in ((), ("--check",), ("--json",)):
        _, out, err = remit("agents", *args)
        assert [c for c in out + err if not c.isprintable() and c != "\n"] == []


def test_a_missing_path(bench: Bench) -> None:
    """A file or folder that does not exist is a usage error."""
    code, out, err = remit("agents", "nowhere.md")
    assert (code, out) == (2, "")
    assert "No file or folder 'nowhere.md'" in err
