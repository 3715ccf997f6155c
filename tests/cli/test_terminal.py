"""The command line on a real terminal, with a keyboard."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from terminals import PROGRAM, Terminal, check_screen, environment, remit_in, settle_on, stable

from remit import Agent, Status, start
from remit.cli.commands.demo import Paced
from remit.types.events import TurnStarted

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal"),
]

SCOUTS = """
parts = ("docs", "src", "tests")
model = ScriptedModel({
    "lead": [
        calls(*(call("subagent", label=part, task_prompt=f"Look at {part} and say what is in it.") for part in parts)),
        say("All three are in order."),
    ],
    "subagent": lambda request: say("In order.", delay=0.0 if request.run_id.endswith(".1") else 3600),
})
"""

SLOW = 'model = ScriptedModel({"lead": [call("ls", path=".", said="A first finding."), say("never", delay=3600), say("Done.")]})'

SAYS = 'model = ScriptedModel({"lead": lambda request: say(f"Read {request.messages[0].text!r}.")})'

WRITES = """
model = ScriptedModel({"lead": [call("write", path="notes.txt", content="hello\\n"), say("Written.")]})
"""


def is_asked(screen: str) -> bool:
    return "or say why not:" in " ".join(screen.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "src").mkdir(parents=True)
    (made / "docs").mkdir()
    (made / "src" / "app.py").write_text("print('hello')  # TODO: more\n", encoding="utf-8")
    (made / "docs" / "guide.md").write_text("# Guide\n", encoding="utf-8")
    (made / "README.md").write_text("# Project\n", encoding="utf-8")
    return made


def test_the_demo(folder: Path) -> None:
    """The demo shows a live tree with column labels, then a short one, the report, and where the run is stored."""
    with remit_in(folder, "demo") as terminal:
        live = terminal.wait_for("├ ● surveyor")
        assert "children running" in live
        assert terminal.end() == 0
        seen = terminal.look()
    assert "├ ✓ surveyor  docs · completed" in seen
    assert "# Survey of `.`" in seen
    assert "Details: remit show " in seen
    assert "The run is stored in" in seen
    assert "●" not in seen, "the live tree has gone"


async def test_a_stopped_demo_has_no_usage() -> None:
    """The offline rules use no tokens, so no usage is estimated for a stopped call."""
    async with start(Agent("lead"), "Look around", model=Paced(60.0)) as running:
        async for event in running.events():
            if isinstance(event, TurnStarted):
                await running.cancel("Ctrl-C")
        outcome = await running.outcome()
    assert outcome.status is Status.CANCELLED
    assert (outcome.usage.requests, outcome.usage.tokens, outcome.usage.usd) == (1, 0, 0.0)


def test_demo_without_a_terminal(folder: Path) -> None:
    """In a pipe, standard output has only the answer and standard error plain lines."""
    done = subprocess.run(
        [sys.executable, "-m", "remit", "demo"],
        cwd=folder, env=environment(folder.parent), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.startswith("# Survey of `.`")
    assert "survey › surveyor (docs): completed" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(("columns", "rows"), [(40, 24), (80, 24), (120, 40), (200, 60)])
def test_live_tree(folder: Path, columns: int, rows: int) -> None:
    """Each run is one line with its mark, name, task, action, turns, tokens and time; the last line has the totals."""
    with remit_in(
        folder, "run", "Look at the parts", "--model", "scripted", script=SCOUTS, columns=columns, rows=rows
    ) as terminal:
        terminal.wait_for(lambda text: "2 childr" in text and "✓" in text)
        settle_on(f"live_{columns}x{rows}", terminal, folder)


def test_no_colour(folder: Path) -> None:
    """With NO_COLOR the tree has no colours; the marks stay."""
    with remit_in(folder, "run", "Go", "--model", "scripted", script=SCOUTS, NO_COLOR="1") as terminal:
        terminal.wait_for(lambda text: "2 children running" in text and "✓" in text)
        colours = set(re.findall(r"\x1b\[([0-9;]*)m", terminal.raw))
    assert not any(re.search(r"(^|;)(3\d|4\d|9\d|38|48)(;|$)", code) for code in colours), colours


def test_a_dumb_terminal_gets_plain_lines(folder: Path) -> None:
    """A terminal that cannot move its cursor gets plain lines."""
    with remit_in(folder, "demo", "--fast", TERM="dumb") as terminal:
        assert terminal.end() == 0
        assert "\x1b" not in terminal.raw
        assert "survey › surveyor (docs): completed" in terminal.raw


def test_a_narrower_window_leaves_nothing_behind(folder: Path) -> None:
    """After a resize the tree is drawn once, in the new width."""
    with remit_in(
        folder, "run", "Look at the parts", "--model", "scripted", script=SCOUTS, columns=120, rows=30
    ) as terminal:
        terminal.wait_for("2 children running")
        terminal.resize(60, 20)
        terminal.wait_for(
            # The terminal cuts the old lines at the new width.
            lambda text: (
                text.count("running ·") == 1
                and "├" in text
                and all(len(line) < 60 for line in terminal.window().splitlines())
            )
        )


def test_ctrl_c_once(folder: Path) -> None:
    """Ctrl-C cancels the tree, prints the partial answer and how to resume, and restores the terminal.

    While the tree is drawn, typed keys are not echoed.
    """
    with remit_in(folder, "run", "Go", "--model", "scripted", script=SLOW) as terminal:
        terminal.wait_for("2/50")
        assert not terminal.child.getecho()
        terminal.type("zzzzz\r\x03")
        assert terminal.end() == 130
        seen = terminal.look()
    assert "zzzzz" not in seen
    assert terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l"), "the cursor is there again"
    assert "A first finding." in seen
    assert "Cancelled by the caller: Ctrl-C." in seen
    assert re.search(r"remit resume [a-z2-9]{10}", seen)
    check_screen("ctrl_c_once", stable(terminal.window(), folder))


STUCK = """
import asyncio

class Stuck:
    name = "stuck"

    async def reply(self, request, emit):
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                pass

model = Stuck()
"""


def test_ctrl_c_twice(folder: Path) -> None:
    """A second Ctrl-C exits immediately, even if a tool cannot be stopped."""
    with remit_in(folder, "run", "Go", "--model", "scripted", script=STUCK) as terminal:
        terminal.wait_for("thinking")
        terminal.type("\x03")
        terminal.wait_for("Ctrl-C again")
        terminal.type("\x03")
        assert terminal.end() == 130
        seen = terminal.look()
    assert "Stopped." in seen
    assert "remit resume" in seen


def test_stop_and_resume(folder: Path) -> None:
    """SIGTERM cancels the tree too; the printed command resumes it without repeating finished work."""
    with remit_in(folder, "run", "Go", "--model", "scripted", script=SLOW) as terminal:
        terminal.wait_for("2/50")
        terminal.child.kill(signal.SIGTERM)
        assert terminal.end() == 130
        assert "Cancelled by the caller: SIGTERM" in terminal.look()
        found = re.search(r"remit resume ([a-z2-9]{10})", terminal.look())
        assert found
    again = 'model = ScriptedModel({"lead": [say("And the rest.")]})'
    with remit_in(folder, "resume", found[1], script=again) as terminal:
        assert terminal.end() == 0
        seen = terminal.look()
    assert "And the rest." in seen
    assert "listing" not in seen


def test_an_approval_at_the_prompt(folder: Path) -> None:
    """A call that changes something asks in place; after the typed answer the tree continues."""
    with remit_in(folder, "run", "Write", "--model", "scripted", script=WRITES) as terminal:
        terminal.wait_for(is_asked)
        settle_on("approval", terminal, folder)
        assert not (folder / "notes.txt").exists()
        assert terminal.child.getecho(), "what is typed as an answer is seen"
        terminal.type("y\r")
        assert terminal.end() == 0
        assert "Written." in terminal.look()
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "hello\n"


def test_keys_typed_before_the_question_do_not_answer_it(folder: Path) -> None:
    """A key pressed before the question does not answer it."""
    script = WRITES.replace('content="hello\\n")', 'content="hello\\n", delay=0.6)')
    with remit_in(folder, "run", "Write", "--model", "scripted", script=script) as terminal:
        terminal.wait_for("thinking")
        terminal.type("y\r")
        terminal.wait_for(is_asked)
        terminal.type("n\r")
        assert terminal.end() == 0
    assert not (folder / "notes.txt").exists()


def test_answered_elsewhere(folder: Path) -> None:
    """An answer from another process removes the question."""
    with remit_in(folder, "run", "Write", "--model", "scripted", script=WRITES) as terminal:
        terminal.wait_for(is_asked)
        env = environment(folder.parent)
        done = subprocess.run(
            [sys.executable, "-m", "remit", "approve", "last"],
            cwd=folder, env=env, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert terminal.end() == 0
        assert "answered elsewhere" in terminal.look()
    assert (folder / "notes.txt").exists()


def test_a_hostile_model_does_not_control_the_terminal(folder: Path) -> None:
    """Escape sequences of a model are printed as text, in the tree and in the answer."""
    script = r"""
evil = "\x1b]0;owned\x07\x1b[2Jred\u202e"
model = ScriptedModel({
    "lead": [call("subagent", label=evil, task_prompt=evil), say("answer " + evil)],
    "subagent": [say(evil), wrapped(evil)],
})
"""
    with remit_in(folder, "run", "Go", "--model", "scripted", script=script) as terminal:
        assert terminal.end() == 0
        assert "answer \\x1b]0;owned\\x07\\x1b[2Jred\\u202e" in terminal.look()
    assert "\x1b]0;" not in terminal.raw
    assert "\x1b[2J" not in terminal.raw
    assert "\u202e" not in terminal.raw


EVIL_ANSWER = r"""
model = ScriptedModel({"lead": [say("a\x9b2J\x85\u202eb\u2066 \x1b]0;owned\x07 \xe9")]})
"""


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_json_does_not_control_the_terminal(folder: Path, form: str) -> None:
    """On a terminal, C1 and bidi characters of a model's text are escapes in JSON with the same value."""
    args = ("run", "Go", "--model", "scripted", "--output-format", form, "--quiet")
    with remit_in(folder, *args, script=EVIL_ANSWER) as terminal:
        assert terminal.end() == 0
    assert not set(terminal.raw) & set("\x9b\x85\u202e\u2066\x1b\x07")
    assert "\xe9" in terminal.raw
    result = json.loads(terminal.raw.splitlines()[-1])
    assert result["text"] == "a\x9b2J\x85\u202eb\u2066 \x1b]0;owned\x07 \xe9"


def test_json_in_a_pipe_is_exact(folder: Path) -> None:
    """In a pipe the JSON has the answer's characters unchanged."""
    argv = [sys.executable, "-c", PROGRAM.format(script=EVIL_ANSWER), "run", "Go", "--model", "scripted"]
    done = subprocess.run(
        [*argv, "--output-format", "json"],
        cwd=folder, env=environment(folder.parent), capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert '"text":"a\x9b2J\x85\u202eb\u2066 \\u001b]0;owned\\u0007 \xe9"'.encode() in done.stdout


def test_prompt_from_a_pipe_and_answers_from_the_terminal(folder: Path) -> None:
    """With the prompt on standard input, questions are still asked at the terminal."""
    argv = 'printf "Write it" | exec "$0" -c "$1" run --model scripted -'
    env = environment(folder.parent)
    shell = [
        "-c",
        f"import os; os.execvp('sh', ['sh', '-c', {argv!r}, {sys.executable!r}, {PROGRAM.format(script=WRITES)!r}])",
    ]
    with Terminal(shell, folder, env=env) as terminal:
        terminal.wait_for(is_asked)
        terminal.type("y\r")
        assert terminal.end() == 0
    assert (folder / "notes.txt").exists()


def test_stream_json_in_a_pipe(folder: Path) -> None:
    """Each line is an event, and the last one is the result."""
    program = 'from remit.testing import *\nimport sys\nfrom remit.cli.main import main\nsys.exit(main(sys.argv[1:], models={"scripted": ScriptedModel([say("Hi.")])}))'
    done = subprocess.run(
        [sys.executable, "-c", program, "run", "Go", "--model", "scripted", "--output-format", "stream-json"],
        cwd=folder, env=environment(folder.parent), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[0]["kind"] == "run_started"
    assert lines[-2]["kind"] == "run_ended"
    assert (lines[-1]["kind"], lines[-1]["text"]) == ("result", "Hi.")


def test_a_task_from_the_keyboard(folder: Path) -> None:
    """`remit run -` in a terminal says that it reads, and Ctrl-D ends the task."""
    with remit_in(folder, "run", "-", "--model", "scripted", script=SAYS) as terminal:
        terminal.wait_for("Reading the task from standard input (end with Ctrl-D).")
        terminal.type("Say it\n\x04")
        terminal.wait_for("Read 'Say it'.")
        assert terminal.end() == 0


@pytest.mark.parametrize("args", [("run", "-"), ("resume", "last", "-")])
def test_ctrl_c_ends_a_command_that_reads_the_task(folder: Path, args: tuple[str, ...]) -> None:
    """The first Ctrl-C ends a command that waits for its task, with exit code 130."""
    with remit_in(folder, *args, "--model", "scripted", script=SAYS) as terminal:
        terminal.wait_for("Reading the task from standard input")
        terminal.type("Some words\n\x03")
        assert terminal.end() == 130
