"""`remit agents`: which agents there are, and what is wrong with their files."""

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
    """Every agent of the project and of the user is a line: name, model, tools, file, description."""
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


def test_no_agents_is_no_error(bench: Bench) -> None:
    """Where there are none, it says how to write one."""
    code, out, err = remit("agents")
    assert (code, out) == (0, "")
    assert ".remit/agents/NAME.md" in err


def test_a_bad_file_does_not_hide_the_others(bench: Bench) -> None:
    """Agents that can be used are listed, and it is said that there is more to know."""
    _write(".remit/agents/good.md", GOOD.format(name="good", text="Good."))
    _write(".remit/agents/bad.md", GOOD.format(name="bad", text="Bad.").replace("Read, Grep", "Raed"))
    code, out, err = remit("agents")
    assert code == 0
    assert "good" in out
    left_out = "an agent whose file has an error is left out"
    assert err == f"1 error, 0 warnings in these files ({left_out}): remit agents --check\n"


def test_check_tells_file_line_and_fix(bench: Bench) -> None:
    """--check has every problem with file and line; an error makes the exit code 1, a warning does not."""
    _write(".remit/agents/bad.md", "---\nname: bad\ndescription: B.\ntools: Raed\n---\nWork.\n")
    code, out, err = remit("agents", "--check")
    assert code == 1
    assert ".remit/agents/bad.md:4: error: There is no tool 'Raed'. Did you mean 'read'?" in out
    assert err == "1 agent: 1 error, 0 warnings.\n"
    _write(".remit/agents/bad.md", "---\nname: bad\ndescription: B.\ncolour: red\nmaxTruns: 3\n---\nWork.\n")
    code, out, err = remit("agents", "--check")
    assert code == 0
    assert ".remit/agents/bad.md:5: warning:" in out


def test_check_of_named_files(bench: Bench) -> None:
    """Files and folders that are named are looked at instead of those of this place, each problem told once."""
    _write(".remit/agents/here.md", "---\nname: here\ntools: Raed\n---\n")
    folder = _write("team/one.md", GOOD.format(name="one", text="One.").replace("haiku", "offline")).parent
    other = _write("other.md", "---\nname: other\ntools: Raed\n---\nWork.\n")
    assert remit("agents", "--check", str(folder)) == (0, "", "1 agent: 0 errors, 0 warnings.\n")
    code, out, _ = remit("agents", "--check", str(folder), str(other))
    assert code == 1
    assert out.count("There is no tool 'Raed'") == 1
    assert out.count("There is no description") == 1
    assert "here.md" not in out
    listed = remit("agents", str(folder)).out
    assert listed.splitlines()[1].split()[0] == "one"


def test_check_tells_of_models_that_cannot_be_used(bench: Bench) -> None:
    """What a run says there is to see with --check is to be seen there; it is no mistake in a file, so it costs nothing."""
    file = _write(".remit/agents/one.md", GOOD.format(name="one", text="One."))
    code, out, err = remit("agents", "--check")
    assert (code, err) == (0, "1 agent: 0 errors, 1 warning.\n")
    assert "is not used, but that of whoever delegates: its key is missing: set ANTHROPIC_API_KEY" in out
    assert remit("agents").err == ""
    file.write_text(GOOD.format(name="one", text="One.").replace("haiku", "ofline"))
    assert "Did you mean 'offline'?" in remit("agents", "--check").out


def test_settings_that_are_broken_are_told(bench: Bench) -> None:
    """--check tells what is wrong in remit.toml too; without it that is an error of its own."""
    _write("remit.toml", "modle = 'x'\n")
    code, out, _ = remit("agents", "--check")
    assert code == 1
    assert "remit.toml:1: error: There is no setting 'modle'. Did you mean 'model'" in out
    code, out, err = remit("agents")
    assert (code, out) == (2, "")
    assert "remit.toml:1" in err


def test_json_for_programs(bench: Bench) -> None:
    """--json has the agents and the problems as objects."""
    _write(".remit/agents/one.md", GOOD.format(name="one", text="One."))
    _write(".remit/agents/two.md", "---\nname: two\ntools: Raed\n---\nWork.\n")
    page = json.loads(remit("agents", "--json").out)
    assert [agent["name"] for agent in page["agents"]] == ["one", "two"]
    assert page["agents"][0]["tools"] == ["Read", "Grep"]
    assert {problem["level"] for problem in page["problems"]} == {"error", "warning"}
    assert all(problem["file"].endswith("two.md") for problem in page["problems"])


def test_a_file_cannot_drive_the_terminal(bench: Bench) -> None:
    """Names and texts of agent files are shown with every character visible."""
    _write(".remit/agents/e\x1b[2J.md", GOOD.format(name="evil", text="Bad \u202e \x9b31m \x07 end."))
    for args in ((), ("--check",), ("--json",)):
        _, out, err = remit("agents", *args)
        assert [c for c in out + err if not c.isprintable() and c != "\n"] == []


def test_a_path_that_is_not_there(bench: Bench) -> None:
    """A file or folder that does not exist is wrong use."""
    code, out, err = remit("agents", "nowhere.md")
    assert (code, out) == (2, "")
    assert "There is no file or folder 'nowhere.md'" in err
