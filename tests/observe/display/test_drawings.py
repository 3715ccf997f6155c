"""Outcomes and trees that display themselves: as text, with rich, and as HTML that cannot do harm."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import remit.observe.display.html as html
from remit import Agent, AssistantMessage, Call, Outcome, Status, ToolMessage, UsageError, run, start, tool
from remit.observe.display.html import COLOURS
from remit.testing import ScriptedModel, call, calls, fail, fixed_ids, say
from remit.types.limits import Usage
from remit.types.messages import Thinking, user
from remit.types.outcome import ToolCallLog

SRC = Path(__file__).parents[3] / "src"
TAGS = {"div", "span", "pre", "details", "summary", "table", "tr", "td"}


@tool(tier="observe")
async def look(path: str) -> str:
    """Look at a place."""
    return f"{path}: fine"


SCOUT = Agent("scout", description="Looks at one thing.", tools=[look])
LEAD = Agent("lead", subagents=[SCOUT])


async def mixed() -> Outcome:
    """A tree with a child that completed and a child that failed."""
    two = calls(
        call("task", agent="scout", prompt="Look at a", description="a"),
        call("task", agent="scout", prompt="Look at b", description="b"),
    )
    model = ScriptedModel(
        {
            "lead": [two, say("a is fine.")],
            "scout": lambda r: (
                fail("the key is wrong", kind="auth") if r.run_id.endswith(".2") else say("Fine.", delay=2)
            ),
        }
    )
    with fixed_ids("abcdefghjk"):
        return await run(LEAD, "Look around", model=model)


class Parsed(HTMLParser):
    """Every tag, attribute and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[tuple[str, str | None]] = set()
        self.text = ""
        self.open = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= set(attrs)
        self.open += 1

    def handle_endtag(self, tag: str) -> None:
        self.open -= 1

    def handle_data(self, data: str) -> None:
        self.text += data


def printed(shown: object, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(shown)
    return out.getvalue()


async def test_a_tree_prints() -> None:
    """`print(outcome.tree())` shows every run on a line, and the totals."""
    text = str((await mixed()).tree())
    assert [line.split("  ")[0].strip() for line in text.splitlines()[1:4]] == [
        "✓ lead",
        "├ ✓ scout",
        "└ ✗ scout",
    ]
    assert "b · failed: " in text
    assert "3 runs" in text.splitlines()[-1]


async def test_the_tree_of_an_outcome_is_that_of_the_command_line() -> None:
    """An outcome and the events of its tree give the same lines, except for limits, which an outcome lacks."""
    from remit.observe.display.tree_view import TreeView, shown, whole

    model = ScriptedModel(
        {"lead": [call("task", agent="scout", prompt="Look"), say("Done.")], "scout": [say("Fine.")]}
    )
    view = TreeView()
    async with start(LEAD, "Look around", model=model) as running:
        async for event in running.events():
            view.feed(event)
        outcome = await running.outcome()
    lines = shown(whole(view, width=110, now=view.tree.at), colour=False).splitlines()
    drawn = str(outcome.tree()).splitlines()
    assert drawn[:-1] == lines[:-1]
    assert drawn[-1] == lines[-1].replace("/10m", "").replace("1/64 delegations", "1 delegation")


async def test_rich_shows_status_tree_answer_and_trouble() -> None:
    """rich prints the status, the tree, the answer and each run that did not complete."""
    text = printed(await mixed())
    assert text.startswith("✓ completed  lead")
    assert "└ ✗ scout" in text
    assert "Answer\na is fine.\n" in text
    assert "What went wrong\n✗ lead › scout (b): failed: " in text
    assert all(len(line) <= 80 for line in text.splitlines())


async def test_text_is_not_rich_markup() -> None:
    """Brackets in an answer are printed as they are, and control characters are escaped."""
    outcome = Outcome(Status.COMPLETED, "a", "r", text="[bold]x[/bold] \x1b[31mred")
    assert "[bold]x[/bold] \\x1b[31mred" in printed(outcome)


async def test_a_failure_says_what_went_wrong() -> None:
    """The HTML of a failed run has its status, its reason and the partial answer."""
    outcome = Outcome(
        Status.FAILED, "lead", "r", reason="the provider is down", partial="Half.", warnings=("Hm.",)
    )
    text = Parsed(outcome._repr_html_()).text
    for part in ("✗ failed", "What went wrong", "lead: failed: the provider is down", "Half.", "Hm."):
        assert part in text


async def test_html_has_usage_and_folded_conversations() -> None:
    """Conversations and the usage of each run are in closed parts that open without a script."""
    page = (await mixed())._repr_html_()
    parsed = Parsed(page)
    assert parsed.tags.count("details") == parsed.tags.count("summary") == 4
    assert " open" not in page.split("<details", 1)[1].split(">", 1)[0]
    assert "lead › scout (a): 2 messages" in parsed.text
    assert "→ task" in parsed.text
    assert "whole tree" in parsed.text


HOSTILE = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "<script>alert(1)</script>",
            "</pre><img src=x onerror=alert(1)>",
            "\"'><svg/onload=alert(1)>",
            "<!-- -->",
            "&lt;b&gt;",
            "]]><a href='javascript:alert(1)'>",
            "\x1b[31m\x00\u202e",
            "\ud800",
        ]
    ),
)


@st.composite
def outcomes(draw: st.DrawFn, depth: int = 2) -> Outcome:
    t = lambda: draw(HOSTILE)  # noqa: E731 - one letter, used twenty times
    messages = (
        user(t()),
        AssistantMessage(t(), (Call(t(), t(), {t(): t()}), Call(t(), t(), t())), (Thinking(t()),)),
        ToolMessage(t(), t(), t() * draw(st.integers(1, 3)) + "\n" * draw(st.integers(0, 20)), note=t()),
    )
    children = tuple(draw(outcomes(depth - 1)) for _ in range(draw(st.integers(0, 2)) if depth else 0))
    return Outcome(
        draw(st.sampled_from(Status)),
        t(),
        t(),
        text=t(),
        partial=t(),
        reason=t(),
        label=t(),
        model=t(),
        calls=(ToolCallLog(t(), t(), t(), t(), success=False),),
        children=children,
        messages=messages,
        error=t(),
        failed_tool=t(),
        warnings=(t(),),
    )


@given(outcomes())
def test_no_text_becomes_html(outcome: Outcome) -> None:
    """Whatever texts say, the page has only our tags, balanced, with no attribute but `style`, and only our styles."""
    usual = Parsed(SAMPLE._repr_html_()).attributes
    for page in (outcome._repr_html_(), outcome.tree()._repr_html_()):
        parsed = Parsed(page)
        assert set(parsed.tags) <= TAGS
        assert parsed.open == 0
        assert parsed.attributes <= usual
        page.encode()


SAMPLE = Outcome(
    Status.FAILED,
    "a",
    "r",
    warnings=("w",),
    partial="p",
    messages=(
        user("t"),
        AssistantMessage("a"),
        ToolMessage("c", "t", "x\n" * 30),
        ToolMessage("c", "t", "x", ok=False),
    ),
    children=tuple(Outcome(status, "b", f"r.{n}", text="t") for n, status in enumerate(Status)),
)
"""An outcome that uses every style."""


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.03928 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("colour", sorted(set(COLOURS.values())))
@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_colours_are_readable_on_light_and_dark_pages(colour: str, page: str) -> None:
    """The contrast of each colour is at least 4 on white and on nearly black; no other colour is set."""
    bright, dark = sorted((_luminance(colour), _luminance(page)), reverse=True)
    assert (bright + 0.05) / (dark + 0.05) >= 4
    styles = " ".join(value or "" for _, value in Parsed(SAMPLE._repr_html_()).attributes)
    assert "background:#" not in styles


def test_long_conversations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long message is cut, conversations end after `MOST_CHARS`, and the rest is counted."""
    monkeypatch.setattr(html, "MOST_CHARS", 20_000)
    talk = tuple(user("x" * 9_000) for _ in range(10))
    children = tuple(Outcome(Status.COMPLETED, "b", f"r.{n}", messages=talk) for n in range(3))
    page = Outcome(Status.COMPLETED, "a", "r", messages=talk, children=children)._repr_html_()
    assert len(page) < 50_000
    for part in ("1,000 more characters", "7 more messages not shown", "3 more conversations not shown"):
        assert part in page


def test_deep_wide_and_odd_trees_are_drawn() -> None:
    """Thousands of levels, hundreds of children and repeated ids are no problem."""
    deep = Outcome(Status.COMPLETED, "leaf", "r", text="x")
    for n in range(2000):
        deep = Outcome(Status.COMPLETED, "a", f"r{n}", text="x", children=(deep,))
    assert "2,001 runs" in str(deep.tree())
    assert Parsed(deep._repr_html_()).open == 0
    twins = tuple(Outcome(Status.FAILED, "b", "r", usage=Usage(1, 5, 5)) for _ in range(400))
    wide = Outcome(Status.COMPLETED, "a", "r", children=twins)
    assert str(wide.tree()).count("✗ b") == 400
    assert "… 380 more" in wide._repr_html_()


async def test_a_running_tree_displays_itself() -> None:
    """`Running` has the tree of the moment for print, rich and notebooks; before its start, a notebook shows its repr."""
    model = ScriptedModel(
        {
            "lead": [call("task", agent="scout", prompt="Look"), say("Done.")],
            "scout": [say("Fine.", delay=60)],
        }
    )
    handle = start(LEAD, "Look around", model=model)
    assert handle._repr_html_() is None
    with pytest.raises(UsageError, match="has not started"):
        handle.tree()
    async with handle as running:
        async for event in running.events():
            if event.kind == "turn_started" and event.agent == "scout":
                break
        for text in (str(running.tree()), printed(running, 100), Parsed(running._repr_html_() or "").text):
            assert "○ lead" in text
            assert "└ ● scout  Look · thinking" in text
            assert "2 runs, 2 running" in text
        await running.cancel()
        assert "■ lead" in str(running.tree())


def test_an_outcome_needs_no_rich() -> None:
    """rich is imported only by programs that print with it: not for outcomes, trees, HTML and files."""
    code = (
        "import sys; from remit import Outcome, Status; o = Outcome(Status.COMPLETED, 'a', 'r', text='x');"
        " print(o.tree()); o._repr_html_(); print([m for m in ('rich', 'IPython', 'marimo') if m in sys.modules])"
    )
    env = os.environ | {"PYTHONPATH": str(SRC), "PYTHONUTF8": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_tree_prints_in_ascii() -> None:
    """An output that cannot encode our signs gets a tree in ASCII instead of an error."""
    code = "from remit import Outcome, Status; print(Outcome(Status.COMPLETED, 'a', 'r', text='x').tree())"
    env = os.environ | {"PYTHONPATH": str(SRC), "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert "\n+ a" in done.stdout
