"""`show=True` in a real terminal: the live tree, other output, questions, several trees, and Ctrl-C."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from terminals import Terminal, environment

HEAD = """
import asyncio, sys, time
from remit import Agent, ask_in_terminal, run, run_sync, tool
from remit.testing import ScriptedModel, call, calls, say

@tool(tier="observe")
async def look(path: str) -> str:
    "Look at a place."
    print("looking at", path, flush=True)
    await asyncio.sleep(1)
    return "fine"

@tool
async def publish(page: str) -> str:
    "Put a page on the web site."
    return page + " is public"

scout = Agent("scout", description="Looks at one thing.", tools=[look])
lead = Agent("lead", subagents=[scout], tools=[publish])
model = ScriptedModel({
    "lead": [calls(call("task", agent="scout", prompt="Look at a"), call("task", agent="scout", prompt="Look at b")), say("Done.")],
    "scout": [call("look", path="x"), say("Fine.", delay=DELAY)],
})
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


def program(folder: Path, code: str, *, delay: float = 0.3, **env: str) -> Terminal:
    source = HEAD.replace("DELAY", str(delay)) + code
    return Terminal(["-c", source], folder, env=environment(folder.parent, **env))


RUN = """
outcome = run_sync(lead, "Look around", model=model, show=True)
print("answer:", outcome.text)
"""


def test_a_live_tree_then_the_last_one(folder: Path) -> None:
    """The tree is drawn in place while it runs; its last state stays, above what the program prints next."""
    with program(folder, RUN) as terminal:
        terminal.wait_for("· look")
        terminal.wait_for("3 runs, 3 running")
        assert terminal.end() == 0
        lines = terminal.look().splitlines()
    assert [line.split("  ")[0] for line in lines if "scout" in line] == ["├ ✓ scout", "└ ✓ scout"]
    assert lines[-1] == "answer: Done."
    assert lines.count("looking at x") == 2
    assert terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l")


def test_standard_output_is_not_redirected_to_the_terminal(folder: Path) -> None:
    """If standard output is a file, everything that the program prints is in the file."""
    redirect = "import os; os.dup2(os.open('out.txt', os.O_CREAT | os.O_WRONLY), 1)\n"
    with program(folder, redirect + RUN) as terminal:
        assert terminal.end() == 0
        assert "looking" not in terminal.look()
    assert (folder / "out.txt").read_text() == "looking at x\nlooking at x\nanswer: Done.\n"


def test_a_simple_terminal_gets_lines(folder: Path) -> None:
    """With TERM=dumb there are plain lines, without codes that move the cursor."""
    with program(folder, RUN, TERM="dumb") as terminal:
        assert terminal.end() == 0
        assert "lead: completed" in terminal.look()
    assert "\x1b" not in terminal.raw


ASK = """
model = ScriptedModel([call("publish", page="a"), say("Done.", delay=0.5)])
outcome = run_sync(lead, "Publish a", model=model, approver=ask_in_terminal, show=True)
print("answer:", outcome.text, [c.success for c in outcome.calls])
"""


def test_a_question_has_the_terminal_to_itself(folder: Path) -> None:
    """While `ask_in_terminal` waits for an answer, the tree is hidden, and the question stays readable."""
    with program(folder, ASK) as terminal:
        terminal.wait_for("or say why not:")
        before = terminal.look()
        # Several frames later nothing has changed.
        time.sleep(0.6)
        terminal._read()
        assert terminal.look() == before
        assert "lead › publish asks:" in before
        assert "needs approval" not in before
        terminal.type("y\r")
        terminal.wait_for("● lead")
        assert terminal.end() == 0
        assert "answer: Done. [True]" in terminal.look()


TWO = """
async def main():
    return await asyncio.gather(*(run(lead, "Task " + n, model=model, show=True) for n in "AB"))
print("answers:", [outcome.text for outcome in asyncio.run(main())])
"""


def test_two_trees_share_a_terminal(folder: Path) -> None:
    """Two trees at once: one is drawn live, and the last state of both stays on the terminal, whole."""
    with program(folder, TWO) as terminal:
        assert terminal.end() == 0
        text = terminal.look()
    for name in "AB":
        assert text.count(f"✓ lead  Task {name} · completed") == 1
    assert text.count("✓ scout") == 4
    assert "answers: ['Done.', 'Done.']" in text


def test_ctrl_c_leaves_the_terminal_in_order(folder: Path) -> None:
    """Ctrl-C stops the tree, leaves its last state, and shows the cursor again."""
    with program(folder, RUN, delay=60) as terminal:
        terminal.wait_for("thinking")
        terminal.type("\x03")
        terminal.end()
        text = terminal.look()
    assert "■ lead" in text
    assert "KeyboardInterrupt" in text
    assert terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l")


EXIT = """
@tool(tier="observe")
def leave() -> str:
    "Leave."
    import _thread, signal, os
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
    return ""

model = ScriptedModel([call("leave"), say("Done.")])
run_sync(Agent("lead", tools=[leave]), "Go", model=model, show=True)
"""


def test_a_program_that_stops_at_once_restores_the_cursor(folder: Path) -> None:
    """After the second Ctrl-C nothing waits for the display, and the cursor is visible."""
    with program(folder, EXIT) as terminal:
        terminal.end()
    assert "\x1b[?25l" in terminal.raw
    assert terminal.raw.rfind("\x1b[?25h") > terminal.raw.rfind("\x1b[?25l")
