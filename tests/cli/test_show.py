"""`remit show`: one run, or chosen parts of it."""

from __future__ import annotations

import json
from pathlib import Path

# All tests of this file share one bench.
import commandbench
import pytest
from commandbench import LEAD, Bench, make_bench, remit, two_scouts

from remit import Agent, Limits
from remit.testing import ScriptedModel, call, calls, refuse, say
from remit.types.event_json import decode
from remit.types.events import ApprovalRequested, TurnStarted

pytestmark = pytest.mark.real_time


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return make_bench(tmp_path, monkeypatch)


def test_the_page_has_task_tree_and_answer(bench: Bench) -> None:
    """Without options, the page has the task, the tree, and the answer last."""
    bench.run(two_scouts("All is well.\n\nNothing to do."), "Look around\nand tell me")
    code, out, err = remit("show", "abc")
    parts = out.split("\n\n")
    assert (code, err) == (0, "")
    assert parts[0].startswith(
        "abcde  lead  completed\nTask    Look around\n        and tell me\nModel   scripted\n"
    )
    assert "├ ✓ scout  Look at docs" in parts[1]
    assert "└ ✓ scout  Look at src" in parts[1]
    assert parts[2] == "Answer\nAll is well."
    assert out.endswith("\n\nNothing to do.\n")


def test_the_default_is_the_last_run(bench: Bench) -> None:
    """`remit show` alone shows the newest run."""
    bench.run(ScriptedModel([say("first")]))
    bench.run(ScriptedModel([say("second")]))
    assert "second" in remit("show").out
    assert remit("show").out == remit("show", "last").out


def test_a_child_has_its_own_page(bench: Bench) -> None:
    """A child's id shows that child: its path, task and answer, without its siblings."""
    bench.run(two_scouts())
    out = remit("show", "abcde.2").out
    assert out.startswith("abcde.2  lead › scout  completed\nTask    Look at src\n")
    assert "docs" not in out
    assert out.endswith("Answer\nFine.\n")


def test_an_incomplete_run_has_reason_and_resume_hint(bench: Bench) -> None:
    """A run that did not complete is shown with its reason, its partial answer and how to resume it."""
    bench.run(ScriptedModel([call("look", path="x")]), limits=Limits(requests=1))
    out = remit("show").out
    assert "abcde  lead  over budget" in out
    assert "Reason\n" in out
    # A program started it, so only that program can resume it.
    assert out.endswith(
        "Resume: in its own program, remit.resume(store, 'abcdefghjk', agent=..., model=...)\n"
    )
    bench.run(ScriptedModel([refuse("I would rather not.")]))
    refused = remit("show").out
    assert "Partial answer\nI would rather not." in refused
    assert "remit resume" not in refused


def test_an_interrupted_tree_has_no_running_runs(bench: Bench) -> None:
    """In a tree whose process died, every open run is shown as interrupted, not as running."""
    bench.interrupted()
    out = remit("show").out
    assert out.startswith("abcde  lead  interrupted")
    assert "●" not in out
    assert out.count("interrupted") >= 2
    assert "remit.resume(store, 'abcdefghjk', agent=..., model=...)" in out


def test_a_running_tree_shows_its_open_requests(bench: Bench) -> None:
    """A live run is shown as running, with its open requests and the commands that answer, watch and cancel."""
    with bench.running(ScriptedModel([call("publish", page="news"), say("Done.")])) as tree:
        tree.wait_for(bench, ApprovalRequested)
        out = remit("show").out
    assert out.startswith("abcde  lead  running (pid ")
    assert "Approval needed: lead: publish" in out
    assert "remit approve abcde/1" in out
    assert "remit watch abcde" in out


def test_messages_are_the_conversation(bench: Bench) -> None:
    """--messages prints the messages, the calls with their arguments, and the results, in order."""
    bench.run(
        ScriptedModel([calls(call("look", path="a"), call("look", path="b")), say("Both seen.")]), "See both"
    )
    out = remit("show", "--messages").out
    places = [
        out.index(said)
        for said in ("See both", "→ look path=a", "→ look path=b", "a:\n", "b:\n", "Both seen.")
    ]
    assert places == sorted(places)
    assert "── look: result ──" in out


def test_calls_include_those_of_children(bench: Bench) -> None:
    """--calls lists every call with its arguments and its result, those of children too."""
    bench.run(two_scouts())
    lines = [line.split() for line in remit("show", "--calls").out.splitlines()]
    assert [(line[0], line[2]) for line in lines[1:]] == [
        ("abcde", "task"),
        ("abcde", "task"),
        ("abcde.1", "look"),
        ("abcde.2", "look"),
    ]
    assert remit("show", "abcde.1", "--calls").out.count("look") == 1


def test_open_calls_show_their_arguments(bench: Bench) -> None:
    """--calls describes a call of an interrupted tree in the same words as one that has ended."""
    bench.interrupted()
    first, second = remit("show", "--calls").out.splitlines()[1:3]
    assert "scout: Look at docs" in first
    assert "not finished" in first
    assert "scout: Look at src" in second


def test_usage_adds_up(bench: Bench) -> None:
    """--usage prints the usage of each run itself, and the total."""
    bench.run(two_scouts())
    lines = [line.split() for line in remit("show", "--usage").out.splitlines()]
    assert [line[3:6] for line in lines[1:4]] == [["2", "20", "10"]] * 3
    assert lines[4][:4] == ["total", "6", "60", "30"]


def test_events_in_order(bench: Bench) -> None:
    """--events prints a line per event; for a child only its own and its descendants' events."""
    bench.run(two_scouts())
    out = remit("show", "--events").out.splitlines()
    assert len(out) - 1 == len(bench.events("abcdefghjk"))
    assert "started: Look around" in out[1]
    assert "completed: All is well." in out[-1]
    assert all("abcde.1 " in line for line in remit("show", "abcde.1", "--events").out.splitlines()[1:])


def test_a_stopped_model_call_is_not_a_failure(bench: Bench) -> None:
    """--events shows a model call that ended with its run as stopped, not as failed."""
    with bench.running(commandbench.Waiting()) as tree:
        tree.wait_for(bench, TurnStarted)
    out = remit("show", "--events").out
    assert "model call stopped\n" in out
    assert "failed" not in out


def test_events_as_json_can_be_read_back(bench: Bench) -> None:
    """--events --json prints one event per line, exactly as recorded."""
    bench.run(two_scouts())
    lines = remit("show", "--events", "--json").out.splitlines()
    assert [decode(line) for line in lines] == bench.events("abcdefghjk")


def test_json_has_the_requested_sections(bench: Bench) -> None:
    """--json prints the run and its tree, and each named section under its name."""
    bench.run(two_scouts())
    page = json.loads(remit("show", "--json").out)
    assert (page["run"]["status"], page["run"]["text"]) == ("completed", "All is well.")
    assert [run["id"] for run in page["tree"]] == ["abcdefghjk", "abcdefghjk.1", "abcdefghjk.2"]
    own = [run["usage"]["requests"] for run in page["tree"]]
    assert [run["total_usage"]["requests"] for run in page["tree"]] == [sum(own), *own[1:]]
    assert (page["run"]["usage"], page["run"]["total_usage"]["requests"]) == (
        page["tree"][0]["usage"],
        sum(own),
    )
    assert own[0] == 2 < sum(own)
    page = json.loads(remit("show", "--json", "--messages", "--calls", "--usage").out)
    assert set(page) == {"run", "messages", "calls", "usage"}
    assert page["calls"][2]["args"] == {"path": "a/b.txt"}
    assert page["messages"][0]["role"] == "user"
    assert page["usage"][0]["usage"]["requests"] == 2


def test_several_sections(bench: Bench) -> None:
    """Several options print several sections, separated by an empty line."""
    bench.run(two_scouts())
    tree, usage = remit("show", "--tree").out, remit("show", "--usage").out
    assert remit("show", "--tree", "--usage").out == f"{tree}\n{usage}"


def test_an_artifact_can_be_read(bench: Bench) -> None:
    """A child's answer that was too long to be inline is named on the page, and --artifact prints it whole."""
    long = "\n".join(f"line {number}" for number in range(2000))
    model = ScriptedModel(
        {"lead": [call("task", agent="scout", prompt="Look"), say("Long.")], "scout": [say(long)]}
    )
    bench.run(model)
    page = remit("show").out
    name = page.rpartition("--artifact ")[2].strip()
    assert remit("show", "abcde", "--artifact", name) == (0, f"{long}\n", "")
    code, out, err = remit("show", "--artifact", "nothing")
    assert (code, out) == (2, "")
    assert f"Its artifacts: {name}." in err


EVIL = "\x1b]0;owned\x07\x1b[2J\u202egnp\u2066 \x9b31m\r\x7f"


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("--tree",),
        ("--messages",),
        ("--calls",),
        ("--usage",),
        ("--events",),
        ("--json",),
        ("--events", "--json"),
    ],
)
def test_a_journal_cannot_control_the_terminal(bench: Bench, args: tuple[str, ...]) -> None:
    """Texts of models, tools and tasks are printed without control or bidi characters."""
    model = ScriptedModel([call("look", path=EVIL), say(f"Look: {EVIL}\nend")])
    bench.run(model, f"Do {EVIL}", agent=Agent("lead", nickname=EVIL, tools=LEAD.tools))
    out = remit("show", *args).out
    assert out
    assert [c for c in out if not c.isprintable() and c not in "\n\t"] == []


@pytest.mark.parametrize("args", [(), ("--messages",), ("--events",), ("--json",)])
def test_ascii_output(bench: Bench, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """If the output supports only ASCII, our signs are replaced, and JSON has escapes."""
    bench.run(two_scouts("Grüße 漢字"))
    monkeypatch.setattr(commandbench, "ENCODING", "ascii")
    code, out, err = remit("show", *args)
    assert (code, err) == (0, "")
    assert out.isascii()
    if args == ("--json",):
        assert json.loads(out)["run"]["text"] == "Grüße 漢字"


def test_an_unknown_child_is_a_usage_error(bench: Bench) -> None:
    """An unknown child prints one sentence with the right command, exit code 2."""
    bench.run(two_scouts())
    code, out, err = remit("show", "abcde.7")
    assert (code, out) == (2, "")
    assert err == "No run 'abcde.7' in the tree of abcde. `remit show abcde --tree` lists its runs.\n"
