"""`remit show`: one run, as much of it as is asked for."""

from __future__ import annotations

import json
from pathlib import Path

# The bench is shared by the tests of this folder.
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
    """Without options a run is shown with its task, every run below it, and its answer last."""
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


def test_the_last_run_is_meant_when_none_is_named(bench: Bench) -> None:
    """`remit show` alone shows the newest run."""
    bench.run(ScriptedModel([say("first")]))
    bench.run(ScriptedModel([say("second")]))
    assert "second" in remit("show").out
    assert remit("show").out == remit("show", "last").out


def test_a_child_has_a_page_of_its_own(bench: Bench) -> None:
    """A child's id shows that child: its path, its task, its answer, and nothing of its siblings."""
    bench.run(two_scouts())
    out = remit("show", "abcde.2").out
    assert out.startswith("abcde.2  lead › scout  completed\nTask    Look at src\n")
    assert "docs" not in out
    assert out.endswith("Answer\nFine.\n")


def test_how_a_run_ended_short_and_how_to_go_on(bench: Bench) -> None:
    """A run that did not complete is shown with why, with what it had, and with the command that goes on with it."""
    bench.run(ScriptedModel([call("look", path="x")]), limits=Limits(requests=1))
    out = remit("show").out
    assert "abcde  lead  over budget" in out
    assert "Why it ended\n" in out
    # A program started it, and only that can have it go on.
    assert out.endswith(
        "Go on with it: in its own program, remit.resume(store, 'abcdefghjk', agent=..., model=...)\n"
    )
    bench.run(ScriptedModel([refuse("I would rather not.")]))
    refused = remit("show").out
    assert "What it had\nI would rather not." in refused
    assert "remit resume" not in refused


def test_an_interrupted_tree_shows_nobody_at_work(bench: Bench) -> None:
    """Of a tree whose process died every open run is shown as interrupted, not as running."""
    bench.interrupted()
    out = remit("show").out
    assert out.startswith("abcde  lead  interrupted")
    assert "●" not in out
    assert out.count("interrupted") >= 2
    assert "remit.resume(store, 'abcdefghjk', agent=..., model=...)" in out


def test_a_running_tree_says_what_it_waits_for(bench: Bench) -> None:
    """A live run is shown as running, with what it asks and the commands that answer, follow and stop it."""
    with bench.running(ScriptedModel([call("publish", page="news"), say("Done.")])) as tree:
        tree.wait_for(bench, ApprovalRequested)
        out = remit("show").out
    assert out.startswith("abcde  lead  running (pid ")
    assert "Waits for you: lead asks: publish" in out
    assert "remit approve abcde/1" in out
    assert "remit watch abcde" in out


def test_messages_are_the_conversation(bench: Bench) -> None:
    """--messages has who said what, the calls with their arguments and the results, in order."""
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


def test_calls_of_the_run_and_below(bench: Bench) -> None:
    """--calls lists every call with what it was about and what came of it, those of children too."""
    bench.run(two_scouts())
    lines = [line.split() for line in remit("show", "--calls").out.splitlines()]
    assert [(line[0], line[2]) for line in lines[1:]] == [
        ("abcde", "task"),
        ("abcde", "task"),
        ("abcde.1", "look"),
        ("abcde.2", "look"),
    ]
    assert remit("show", "abcde.1", "--calls").out.count("look") == 1


def test_calls_that_have_not_ended_say_what_they_are_about(bench: Bench) -> None:
    """--calls has the same words for a call of a tree that was interrupted as for one that has ended."""
    bench.interrupted()
    first, second = remit("show", "--calls").out.splitlines()[1:3]
    assert "scout: Look at docs" in first
    assert "not finished" in first
    assert "scout: Look at src" in second


def test_usage_adds_up(bench: Bench) -> None:
    """--usage has what each run used itself, and the sum of all."""
    bench.run(two_scouts())
    lines = [line.split() for line in remit("show", "--usage").out.splitlines()]
    assert [line[3:6] for line in lines[1:4]] == [["2", "20", "10"]] * 3
    assert lines[4][:4] == ["all", "6", "60", "30"]


def test_events_in_order(bench: Bench) -> None:
    """--events has a line for everything that was recorded; of a child only what is its own or below it."""
    bench.run(two_scouts())
    out = remit("show", "--events").out.splitlines()
    assert len(out) - 1 == len(bench.events("abcdefghjk"))
    assert "started: Look around" in out[1]
    assert "completed: All is well." in out[-1]
    assert all("abcde.1 " in line for line in remit("show", "abcde.1", "--events").out.splitlines()[1:])


def test_a_model_call_that_was_stopped_has_not_failed(bench: Bench) -> None:
    """--events says of a model call that ended with its run that it was stopped, and nothing of a failure."""
    with bench.running(commandbench.Waiting()) as tree:
        tree.wait_for(bench, TurnStarted)
    out = remit("show", "--events").out
    assert "its model call was stopped\n" in out
    assert "failed" not in out


def test_events_as_json_can_be_read_back(bench: Bench) -> None:
    """--events --json is one event per line, exactly as the journal has it."""
    bench.run(two_scouts())
    lines = remit("show", "--events", "--json").out.splitlines()
    assert [decode(line) for line in lines] == bench.events("abcdefghjk")


def test_json_has_what_was_asked_for(bench: Bench) -> None:
    """--json has the run and its tree, and each section that is named, under its name."""
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


def test_several_sections_follow_each_other(bench: Bench) -> None:
    """Several options show several sections, set apart by an empty line."""
    bench.run(two_scouts())
    tree, usage = remit("show", "--tree").out, remit("show", "--usage").out
    assert remit("show", "--tree", "--usage").out == f"{tree}\n{usage}"


def test_a_long_text_that_was_kept_can_be_read(bench: Bench) -> None:
    """A child's answer that was too long to be read inline is named on the page, and shown whole by --artifact."""
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
    assert f"it has {name}." in err


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
def test_nothing_in_a_journal_drives_the_terminal(bench: Bench, args: tuple[str, ...]) -> None:
    """Whatever models, tools and tasks said, nothing that is shown has a control or reordering character in it."""
    model = ScriptedModel([call("look", path=EVIL), say(f"Look: {EVIL}\nend")])
    bench.run(model, f"Do {EVIL}", agent=Agent("lead", nickname=EVIL, tools=LEAD.tools))
    out = remit("show", *args).out
    assert out
    assert [c for c in out if not c.isprintable() and c not in "\n\t"] == []


@pytest.mark.parametrize("args", [(), ("--messages",), ("--events",), ("--json",)])
def test_an_output_that_has_only_ascii(
    bench: Bench, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the output has no other characters, our signs are letters, and JSON has everything as escapes."""
    bench.run(two_scouts("Grüße 漢字"))
    monkeypatch.setattr(commandbench, "ENCODING", "ascii")
    code, out, err = remit("show", *args)
    assert (code, err) == (0, "")
    assert out.isascii()
    if args == ("--json",):
        assert json.loads(out)["run"]["text"] == "Grüße 漢字"


def test_an_unknown_child_is_wrong_use(bench: Bench) -> None:
    """A child that the tree does not have: one sentence with the right command, exit code 2."""
    bench.run(two_scouts())
    code, out, err = remit("show", "abcde.7")
    assert (code, out) == (2, "")
    assert err == "There is no run 'abcde.7' in its tree. `remit show abcde --tree` lists them.\n"
