"""Two terminals: `remit run` in one, and `watch`, `send`, `cancel`, `approve` and others in the second."""

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
    """`remit ARGS` in another process, without a terminal."""
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
    """A run in a terminal with a child that runs until a file `go` exists."""
    return remit_in(folder, "run", "Look around", "--model", "scripted", script=WAITS)


def test_watch_and_send_from_another_terminal(folder: Path) -> None:
    """A run is listed, watched live and sent a message from a second terminal; both show the same end."""
    with _waiting(folder) as first:
        first.wait_for("2 running")
        listed = _remit(folder, "runs").stdout
        assert f"running (pid {first.child.pid})" in listed
        with remit_in(folder, "watch", columns=100, rows=30) as second:
            second.wait_for("3 runs, 2 running")
            assert _remit(folder, "send", "last", "be", "brief").stderr.startswith("Sent to ")
            # Commands are handled in order: once the process has read this one, it has read the first.
            assert _remit(folder, "cancel", "last.2", "not needed").returncode == 0
            assert second.end() == 0
            seen = second.look()
        assert first.end() == 0
        assert "Told: be brief" in first.look()
    assert "Told: be brief" in seen
    assert "cancelled" in seen
    assert "completed" in _remit(folder, "runs").stdout


def test_cancel_from_another_terminal(folder: Path) -> None:
    """A run that is cancelled from a second terminal ends as cancelled in its own, with who cancelled it and why."""
    with _waiting(folder) as first:
        first.wait_for("2 running")
        done = _remit(folder, "cancel", "last", "changed my mind")
        assert done.returncode == 0, done.stderr
        assert "was cancelled" in done.stderr
        assert first.end() == 130
    shown = _remit(folder, "show").stdout
    assert "changed my mind" in shown
    assert "remit resume" in shown
    assert _remit(folder, "watch").returncode == 130


def test_approve_from_another_terminal(folder: Path) -> None:
    """A question of the first terminal can be answered from a second one; the prompt disappears and the run continues."""
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


def test_deny_for_a_run_without_a_terminal(folder: Path) -> None:
    """A request of a run with --ask-elsewhere is denied from a second terminal, with the reason."""
    with remit_in(
        folder, "run", "Write a note", "--model", "scripted", "--ask-elsewhere", script=WRITES
    ) as first:
        first.wait_for("needs approval")
        done = _remit(folder, "deny", "last", "not", "today")
        assert done.returncode == 0, done.stderr
        assert first.end() == 0
    assert not (folder / "notes.txt").exists()
    assert "not today" in _remit(folder, "show", "--messages").stdout


def test_ctrl_c_ends_watch_but_not_the_run(folder: Path) -> None:
    """Ctrl-C in `watch` leaves the run running and restores the terminal."""
    with _waiting(folder) as first:
        first.wait_for("2 running")
        with remit_in(folder, "watch") as second:
            second.wait_for("2 running")
            second.type("\x03")
            assert second.end() == 130
            # The hint names the id: another run may be the last one by then.
            assert re.search(
                r"The run continues. To cancel it: remit cancel [a-z2-9]{5}$", second.look(), re.MULTILINE
            )
            assert "\x1b[?25h" in second.raw
        (folder / "go").touch()
        assert first.end() == 0


def test_watch_ends_when_the_run_is_killed(folder: Path) -> None:
    """When the process of a run is killed, `watch` ends with exit code 7 and the resume hint."""
    with _waiting(folder) as first:
        first.wait_for("2 running")
        with remit_in(folder, "watch", "--plain") as second:
            second.wait_for("started: Look at src")
            first.child.kill(signal.SIGKILL)
            assert second.end() == 7
            assert "Resume: remit resume" in second.look()
    assert "interrupted" in _remit(folder, "runs").stdout


def test_times_of_a_dead_run_stop(folder: Path) -> None:
    """A run whose process died an hour ago is drawn without running children, with the times of its last event."""
    state = folder.parent / "state"
    state.mkdir()
    bench = Bench(state)
    bench.age(bench.interrupted(called=True), 1 / 24)
    with remit_in(folder, "watch", columns=120) as terminal:
        assert terminal.end() == 7
        seen = terminal.look()
        assert not re.search(r"\b1h|\b60m", terminal.raw), "not for a moment"
    assert not re.search(r"thinking|running", seen)
    assert "3 runs · 0s" in seen
    assert seen.count("■") == 3, seen
    assert "No process runs abcde any more." in seen


def test_the_last_tree_of_a_killed_run(folder: Path) -> None:
    """When the process is killed, the tree that stays on the terminal has no running runs."""
    with _waiting(folder) as first:
        first.wait_for("2 running")
        with remit_in(folder, "watch", columns=120) as second:
            second.wait_for("2 running")
            first.child.kill(signal.SIGKILL)
            assert second.end() == 7
            assert "interrupted: the process ended before the run finished" in second.look()
            assert "thinking" not in second.look()


# --- One terminal, and a journal with runs --------------------------------------------------------


@pytest.fixture
def kept(folder: Path) -> Path:
    """The folder, with two trees in the user's journal."""
    state = folder.parent / "state"
    state.mkdir()
    bench = Bench(state)
    bench.run(two_scouts("# Report\n\nAll is well."), "Look at docs and src, and report what is in them")
    bench.run(
        ScriptedModel([call("look", path="x")]),
        "A task that is longer than a line: " + "x" * 80,
        limits=Limits(requests=1),
    )
    # Old enough that its age reads the same for an hour.
    bench.age("abcdefghjk", 3.01)
    bench.age("mnpqrstuvw", 2.01)
    return folder


@pytest.mark.parametrize(("columns", "rows"), [(40, 24), (80, 24), (120, 40), (200, 60)])
@pytest.mark.parametrize("args", [("runs",), ("show", "abc"), ("show", "abc", "--events")])
def test_screens(kept: Path, args: tuple[str, ...], columns: int, rows: int) -> None:
    """Lists and pages fit the window; with NO_COLOR they are plain text."""
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
    # Two scouts run at once, and either may be faster. Indented lines belong to the line above.
    rows = re.split(r"\n(?!  [^\s#])", re.sub(r"\(\d+ ms\)", "(# ms)", text))
    return "\n".join(row for row in rows if not re.search(r"abcde\.[12]", row))


def test_doctor_in_a_window(kept: Path) -> None:
    """Findings are wrapped at spaces, right of the first two columns."""
    with remit_in(kept, "doctor", NO_COLOR="1") as terminal:
        assert terminal.end() == 0
    lines = terminal.raw.replace("\r", "").splitlines()
    assert [line for line in lines if len(line) > 80 and " " in line[19:].strip()] == []
    assert any(line.startswith("note     key       no API key is set") for line in lines)


def test_colours_on_a_terminal(kept: Path) -> None:
    """On a terminal, statuses are coloured."""
    with remit_in(kept, "runs", columns=200, rows=60) as terminal:
        assert terminal.end() == 0
    assert "\x1b[32mcompleted" in terminal.raw


@pytest.mark.parametrize("answer", ["n", "", "maybe"])
def test_rm_asks_at_a_terminal(kept: Path, answer: str) -> None:
    """`rm` lists the runs and asks, for one named run too; any answer except yes deletes nothing."""
    with remit_in(kept, "rm", "abcde") as terminal:
        terminal.wait_for("Delete 1 run (0.0 MB)? [y/N]")
        assert re.search(r"abcde  lead   Look at docs and src, and .*  3d ago", terminal.look())
        terminal.type(f"{answer}\r")
        assert terminal.end() == 0
        assert "Nothing was deleted." in terminal.look()
    assert len(_remit(kept, "runs", "--json").stdout.splitlines()) == 2


def test_rm_deletes_after_a_yes(kept: Path) -> None:
    """A yes deletes the listed runs; Ctrl-C deletes nothing."""
    with remit_in(kept, "rm", "--keep", "0") as terminal:
        terminal.wait_for("Delete 2 runs")
        terminal.type("\x03")
        assert terminal.end() == 130
    with remit_in(kept, "rm", "--keep", "0") as terminal:
        terminal.wait_for("Delete 2 runs")
        terminal.type("y\r")
        assert terminal.end() == 0
    assert "No runs in " in _remit(kept, "runs").stderr


def test_rm_without_a_terminal_needs_yes(kept: Path) -> None:
    """Without a terminal nothing is deleted without --yes, and the message says so."""
    said = _remit(kept, "rm", "abcde")
    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr == (
        "Nothing was deleted: there is no terminal for the confirmation. Add --yes to delete 1 run: abcde.\n"
    )
    assert _remit(kept, "rm", "abcde", "--yes").stderr == "Deleted 1 run.\n"
