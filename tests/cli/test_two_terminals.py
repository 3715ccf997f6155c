"""Two terminals: `remit run` in one, `watch`, `send`, `cancel`, `approve` and the rest from the other."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commandbench import Bench, two_scouts
from terminals import Terminal, check_screen, environment, remit_in

from remit import Limits
from remit.testing import ScriptedModel, call

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal"),
]

WAITS = """
import anyio
from pathlib import Path
from remit import Call, Reply

class Patient:
    name = "scripted"

    async def reply(self, request, emit):
        if request.depth == 0 and len(request.messages) == 1:
            parts = [Call(f"c{n}", "subagent", {"label": what, "task_prompt": f"Look at {what}."}) for n, what in enumerate(("docs", "src"))]
            return Reply(calls=tuple(parts))
        if request.depth and request.run_id.endswith(".2"):
            while not Path("go").exists():
                await anyio.sleep(0.02)
        said = [m.text for m in request.messages if type(m).__name__ == "UserMessage"]
        return Reply("Fine." if request.depth else f"Told: {said[-1]}")

model = Patient()
"""

WRITES = """
model = ScriptedModel({"lead": [call("write", path="notes.txt", content="hello"), say("Written.")]})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def _remit(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """`remit ARGS` in a process of its own, without a terminal."""
    program = "import sys; from remit.cli.main import main; sys.exit(main(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, *args],
        cwd=folder,
        env=environment(folder.parent),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def _waiting(folder: Path) -> Terminal:
    """A run in a terminal, one of whose children does not end before there is a file `go`."""
    return remit_in(folder, "run", "Look around", "--model", "scripted", script=WAITS)


def test_watched_and_told_from_another_terminal(folder: Path) -> None:
    """A run is listed, watched live and sent a message from a second terminal; both see the same end."""
    with _waiting(folder) as first:
        first.wait_for("2 open")
        listed = _remit(folder, "runs").stdout
        assert f"running (pid {first.child.pid})" in listed
        with remit_in(folder, "watch", columns=100, rows=30) as second:
            second.wait_for("3 runs, 2 open")
            assert _remit(folder, "send", "last", "be", "brief").stderr.startswith(
                "Sent: it joins the next turn"
            )
            # Commands are obeyed in order: when the process has heard this one, it has heard that one.
            assert _remit(folder, "cancel", "last.2", "not needed").returncode == 0
            assert second.end() == 0
            seen = second.look()
        assert first.end() == 0
        assert "Told: be brief" in first.look()
    assert "Told: be brief" in seen
    assert "cancelled" in seen
    assert "completed" in _remit(folder, "runs").stdout


def test_cancelled_from_another_terminal(folder: Path) -> None:
    """A run that is cancelled elsewhere ends as cancelled in its own terminal, and says who did it and why."""
    with _waiting(folder) as first:
        first.wait_for("2 open")
        done = _remit(folder, "cancel", "last", "changed my mind")
        assert done.returncode == 0, done.stderr
        assert "was cancelled" in done.stderr
        assert first.end() == 130
    shown = _remit(folder, "show").stdout
    assert "changed my mind" in shown
    assert "remit resume" in shown
    assert _remit(folder, "watch").returncode == 130


def test_approved_from_another_terminal(folder: Path) -> None:
    """What the first terminal asks can be answered from a second one; the prompt goes away and the work goes on."""
    with remit_in(folder, "run", "Write a note", "--model", "scripted", script=WRITES) as first:
        first.wait_for("Allow?")
        listed = _remit(folder, "approve")
        assert "lead › write asks:" in listed.stdout
        done = _remit(folder, "approve", "last")
        assert done.returncode == 0
        assert done.stderr.endswith("/1: allowed.\n")
        assert first.end() == 0
        assert "Written." in first.look()
    assert (folder / "notes.txt").read_text() == "hello"


def test_denied_where_nobody_looks_on(folder: Path) -> None:
    """A run without a terminal whose questions wait elsewhere is denied from the second one, with the reason."""
    with remit_in(
        folder, "run", "Write a note", "--model", "scripted", "--ask-elsewhere", script=WRITES
    ) as first:
        first.wait_for("asks")
        done = _remit(folder, "deny", "last", "not", "today")
        assert done.returncode == 0, done.stderr
        assert first.end() == 0
    assert not (folder / "notes.txt").exists()
    assert "not today" in _remit(folder, "show", "--messages").stdout


def test_ctrl_c_ends_the_watching_and_not_the_run(folder: Path) -> None:
    """Whoever stops watching stops nothing else; the terminal is left in order."""
    with _waiting(folder) as first:
        first.wait_for("2 open")
        with remit_in(folder, "watch") as second:
            second.wait_for("2 open")
            second.type("\x03")
            assert second.end() == 130
            # By its id: meanwhile another run may be the last one.
            assert re.search(
                r"The run goes on. To stop it: remit cancel [a-z2-9]{5}$", second.look(), re.MULTILINE
            )
            assert "\x1b[?25h" in second.raw
        (folder / "go").touch()
        assert first.end() == 0


def test_a_killed_run_is_told_to_whoever_watches(folder: Path) -> None:
    """When the process that runs a tree is killed, the watching ends with exit code 7 and how to go on."""
    with _waiting(folder) as first:
        first.wait_for("2 open")
        with remit_in(folder, "watch", "--plain") as second:
            second.wait_for("started: Look at src")
            first.child.kill(signal.SIGKILL)
            assert second.end() == 7
            assert "To go on with it: remit resume" in second.look()
    assert "interrupted" in _remit(folder, "runs").stdout


def test_what_is_dead_does_not_count_on(folder: Path) -> None:
    """A run whose process died an hour ago is drawn as it was then, with nobody at work and all clocks standing."""
    state = folder.parent / "state"
    state.mkdir()
    bench = Bench(state)
    bench.age(bench.interrupted(called=True), 1 / 24)
    with remit_in(folder, "watch", columns=120) as terminal:
        assert terminal.end() == 7
        seen = terminal.look()
        assert not re.search(r"\b1h|\b60m", terminal.raw), "not for a moment"
    assert not re.search(r"thinking|at work|open", seen)
    assert "3 runs · 0s" in seen
    assert seen.count("■") == 3, seen
    assert "No process runs abcde any more." in seen


def test_whoever_watches_sees_a_killed_run_end(folder: Path) -> None:
    """When the process is killed the tree that is left standing has nobody at work in it."""
    with _waiting(folder) as first:
        first.wait_for("2 open")
        with remit_in(folder, "watch", columns=120) as second:
            second.wait_for("2 open")
            first.child.kill(signal.SIGKILL)
            assert second.end() == 7
            assert "interrupted: the process ended before the run finished" in second.look()
            assert "thinking" not in second.look()


# --- One terminal, and a journal that has something in it -----------------------------------------


@pytest.fixture
def kept(folder: Path) -> Path:
    """The folder, with two trees in the journal of whoever lives there."""
    state = folder.parent / "state"
    state.mkdir()
    bench = Bench(state)
    bench.run(two_scouts("# Report\n\nAll is well."), "Look at docs and src, and report what is in them")
    bench.run(
        ScriptedModel([call("look", path="x")]),
        "A task that is longer than a line: " + "x" * 80,
        limits=Limits(requests=1),
    )
    # Long enough ago that it is said in the same words for an hour.
    bench.age("abcdefghjk", 3.01)
    bench.age("mnpqrstuvw", 2.01)
    return folder


@pytest.mark.parametrize(("columns", "rows"), [(40, 24), (80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("args", [("runs",), ("show", "abc"), ("show", "abc", "--events")])
def test_screens(kept: Path, args: tuple[str, ...], columns: int, rows: int) -> None:
    """Lists and pages fit the window that they are shown in; with NO_COLOR nothing but text is written."""
    with remit_in(kept, *args, columns=columns, rows=rows, NO_COLOR="1") as terminal:
        assert terminal.end() == 0
        seen = terminal.look()
        assert "\x1b" not in terminal.raw
    written = [line.rstrip("\r") for line in terminal.raw.split("\n")]
    assert [line for line in written if len(line) > columns] == []
    name = "_".join(part.strip("-") for part in args if part != "abc")
    check_screen(f"{name}_{columns}x{rows}", _without_times(seen))


def _without_times(text: str) -> str:
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "2026-01-01 00:00:00", text)
    text = re.sub(r"\b\d+s\b", "0s", text)
    text = re.sub(r"(?m)^ *\d+  \d\d:\d\d:\d\d\.\d{3}", "  #  00:00:00.000", text)
    # Two scouts are at work at once, and either may be faster. What is indented belongs to the line above it.
    rows = re.split(r"\n(?!  [^\s#])", re.sub(r"\(\d+ ms\)", "(# ms)", text))
    return "\n".join(row for row in rows if not re.search(r"abcde\.[12]", row))


def test_doctor_in_a_window(kept: Path) -> None:
    """What the doctor says is wrapped beside its first columns, between words."""
    with remit_in(kept, "doctor", NO_COLOR="1") as terminal:
        assert terminal.end() == 0
    lines = terminal.raw.replace("\r", "").splitlines()
    assert [line for line in lines if len(line) > 80 and " " in line[19:].strip()] == []
    assert any(line.startswith("note     key       no key") for line in lines)


def test_colours_where_they_are_wanted(kept: Path) -> None:
    """A terminal is shown how runs ended in colours."""
    with remit_in(kept, "runs", columns=200, rows=60) as terminal:
        assert terminal.end() == 0
    assert "\x1b[32mcompleted" in terminal.raw


@pytest.mark.parametrize("answer", ["n", "", "maybe"])
def test_rm_asks_at_a_terminal(kept: Path, answer: str) -> None:
    """Runs, one that is named too, are listed and asked about before they are deleted; all but a yes deletes nothing."""
    with remit_in(kept, "rm", "abcde") as terminal:
        terminal.wait_for("Delete 1 run (0.0 MB)? [y/N]")
        assert re.search(r"abcde  lead   Look at docs and src, and .*  3d ago", terminal.look())
        terminal.type(f"{answer}\r")
        assert terminal.end() == 0
        assert "Nothing was deleted." in terminal.look()
    assert len(_remit(kept, "runs", "--json").stdout.splitlines()) == 2


def test_rm_deletes_after_a_yes(kept: Path) -> None:
    """A yes deletes what was listed; Ctrl-C deletes nothing."""
    with remit_in(kept, "rm", "--keep", "0") as terminal:
        terminal.wait_for("Delete 2 runs")
        terminal.type("\x03")
        assert terminal.end() == 130
    with remit_in(kept, "rm", "--keep", "0") as terminal:
        terminal.wait_for("Delete 2 runs")
        terminal.type("y\r")
        assert terminal.end() == 0
    assert "No runs are kept" in _remit(kept, "runs").stderr


def test_rm_without_a_terminal_needs_yes(kept: Path) -> None:
    """In a script nothing is deleted without --yes, and what to write is said."""
    said = _remit(kept, "rm", "abcde")
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == (
        "Nothing was deleted: without a terminal to ask at, `remit rm` needs --yes. It would delete 1 run: abcde.\n"
    )
    assert _remit(kept, "rm", "abcde", "--yes").stderr == "Deleted 1 run.\n"
