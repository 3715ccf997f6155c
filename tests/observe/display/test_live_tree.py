"""The tree as lines: which runs are shown, which are folded, what fits a window."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from terminals import check_screen

import remit.observe.words as words
import remit.types.events as events
from remit import Agent, Limits, start, tool
from remit.history.fold import fold
from remit.observe.display.line_display import LineDisplay
from remit.observe.display.live_display import LiveDisplay
from remit.observe.display.tree_view import LEAST_LABELLED, TreeView, frame, shown, summary, whole
from remit.remote import ask_elsewhere
from remit.testing import ScriptedModel, call, calls, fail, fixed_ids, say
from remit.types.events import Event


@tool(tier="observe")
async def look(path: str) -> str:
    """Look at a place."""
    return f"{path}: fine"


@tool
async def publish(page: str) -> str:
    """Put a page on the web site."""
    return f"{page} is public"


SCOUT = Agent("scout", description="Looks at one thing.", tools=[look])
LEAD = Agent("lead", subagents=[SCOUT], tools=[publish, look])


async def recorded(model: ScriptedModel, *, limits: Limits | None = None, agent: Agent = LEAD) -> list[Event]:
    """Every event of a run."""
    with fixed_ids("abcdefghjk"):
        async with start(
            agent, "Look around", model=model, limits=limits, policy=["allow publish*"]
        ) as running:
            return [event async for event in running.events()]


def drawn(view: TreeView, *, width: int = 80, height: int = 24, now: float | None = None) -> str:
    at = view.tree.at if now is None else now
    return shown(frame(view, width=width, height=height, now=at), colour=False)


def up_to(history: list[Event], kind: type[Event], count: int = 1) -> TreeView:
    """The lines after so many events of a kind."""
    view, seen = TreeView(), 0
    for event in history:
        view.feed(event)
        seen += isinstance(event, kind)
        if seen == count:
            break
    return view


async def test_three_hundred_runs_fit_a_small_window() -> None:
    """At 80x24 every line fits, and the runs that are not shown are counted."""
    many = calls(*(call("task", agent="scout", prompt=f"Look at place {n}") for n in range(300)))
    model = ScriptedModel(
        {
            "lead": [many, say("Done.")],
            "scout": lambda r: say("Fine.", delay=float(r.run_id.rpartition(".")[2])),
        }
    )
    history = await recorded(model, limits=Limits(delegations=300, concurrency=300))
    view = up_to(history, events.RunEnded, 41)
    lines = drawn(view).splitlines()
    assert len(lines) <= 24
    assert all(words.width(line) <= 80 for line in lines)
    running, completed = 259, 41
    visible = [line for line in lines if line.startswith(("├", "└"))]
    counted = next(line for line in lines if "…" in line and "more running" in line)
    assert counted == f"  … {running - len(visible)} more running, {completed} completed"
    assert lines[1].startswith("○ lead")
    assert lines[-2].startswith("301 runs, 260 running")
    check_screen("three_hundred_runs", "\n".join(lines))


async def test_thousands_have_separators() -> None:
    """The numbers of all runs and of running ones have the same format."""
    many = calls(*(call("task", agent="scout", prompt=f"Look at place {n}") for n in range(1100)))
    model = ScriptedModel({"lead": [many, say("Done.")], "scout": [say("Fine.", delay=1)]})
    history = await recorded(model, limits=Limits(delegations=1100, concurrency=1100))
    lines = drawn(up_to(history, events.RunStarted, 1101)).splitlines()
    assert lines[-2].startswith("1,101 runs, 1,101 running")


async def test_lines_do_not_move() -> None:
    """Among running runs the oldest are shown, however active the others are."""
    many = calls(*(call("task", agent="scout", prompt=f"Look at place {n}") for n in range(60)))
    model = ScriptedModel(
        {"lead": [many, say("Done.")], "scout": [call("look", path="a"), say("Fine.", delay=5)]}
    )
    history = await recorded(model, limits=Limits(concurrency=100))
    names = [
        [
            line.split("·")[0].split("  ")[1]
            for line in drawn(up_to(history, events.CallEnded, n)).splitlines()[2:11]
        ]
        for n in (1, 20, 55)
    ]
    assert names[0] == names[1] == names[2]


async def test_an_ended_branch_is_one_line() -> None:
    """Descendants of an ended run are folded into its line, with their number and their usage."""
    below = Agent("scout", description="Looks.", subagents=[Agent("helper", description="Helps.")])
    lead = Agent("lead", subagents=[below])
    two = calls(call("task", agent="helper", prompt="a"), call("task", agent="helper", prompt="b"))
    model = ScriptedModel(
        {
            "lead": [call("task", agent="scout", prompt="Look at docs"), say("Done.", delay=5)],
            "scout": [two, say("Fine.")],
            "helper": [say("Here.", delay=1)],
        }
    )
    history = await recorded(model, agent=lead)
    assert "  ├ ● helper" in drawn(up_to(history, events.RunStarted, 4))
    folded = drawn(up_to(history, events.RunEnded, 3), width=100).splitlines()
    assert len(folded) == 4, "labels, two runs, totals"
    assert "✓ scout  Look at docs · completed (+2 below)" in folded[2]
    assert " 60 " in folded[2], "four replies of 15 tokens"


async def test_runs_that_need_approval_come_first() -> None:
    """A run that needs approval is always shown."""
    many = [call("task", agent="scout", prompt=f"Look at place {n}") for n in range(60)]
    scout = Agent("scout", description="Looks at one thing.", tools=[publish])
    model = ScriptedModel(
        {
            "lead": [calls(*many), say("Done.")],
            "scout": lambda r: (
                call("publish", page="index") if r.run_id.endswith(".60") else say("Fine.", delay=9)
            ),
        }
    )
    lead = Agent("lead", subagents=[scout])
    with fixed_ids("abcdefghjk"):
        async with start(
            lead, "Go", model=model, limits=Limits(concurrency=99), approver=ask_elsewhere
        ) as running:
            view = TreeView()
            async for event in running.events():
                view.feed(event)
                if isinstance(event, events.ApprovalRequested):
                    break
    lines = drawn(view).splitlines()
    assert any("? scout  Look at p… · needs approval: publish" in line for line in lines)
    assert "1 approval needed" in lines[-2]


async def test_failures_are_on_the_line() -> None:
    """A run that did not complete shows its status and reason; a failed model call shows when the retry is."""
    model = ScriptedModel(
        {
            "lead": [call("task", agent="scout", prompt="Look at docs"), say("Done.", delay=1)],
            "scout": [fail("busy", kind="overloaded"), fail("no key", kind="auth")],
        }
    )
    history = await recorded(model)
    again = drawn(up_to(history, events.ModelCallFailed))
    assert "overloaded: retry in" in again
    ended = drawn(up_to(history, events.RunEnded))
    assert "✗ scout  Look at d… · failed: " in ended


async def test_journal_and_live_look_the_same() -> None:
    """A tree that is read from its events is drawn like one that was watched."""
    model = ScriptedModel(
        {"lead": [call("task", agent="scout", prompt="a"), say("Done.")], "scout": ["Fine."]}
    )
    history = await recorded(model)
    watched = TreeView()
    for event in history:
        watched.feed(event)
    read = TreeView(fold(history))
    assert shown(whole(read, width=80, now=0), colour=False) == shown(
        whole(watched, width=80, now=0), colour=False
    )


async def test_usage_is_shown_against_the_limits() -> None:
    """The last line shows the tree's usage and each limit."""
    limits = Limits(tokens=1000, requests=9, seconds=90)
    history = await recorded(ScriptedModel({"lead": [say("Done.")]}), limits=limits)
    view = TreeView(fold(history))
    line = shown(summary(view, 100, 0), colour=False)
    assert line == "1 run · 0s/90s · 15/1.0k tokens · cost unknown · 1/9 model calls"


ROOT = events.Where("abcdefghjk", None, "abcdefghjk", 0, ("lead",), "lead")
HOSTILE = st.text(st.characters(codec="utf-8"), max_size=60)


@given(label=HOSTILE, width=st.integers(20, 200), height=st.integers(3, 40))
@settings(max_examples=60, deadline=None)
def test_no_text_breaks_a_line(label: str, width: int, height: int) -> None:
    """A run is exactly one line that fits the window and has no control characters, whatever its name and task are."""
    started = events.RunStarted(1, 0.0, ROOT, events.VERSION, task=_task(label), label=label, nickname=label)
    view = TreeView()
    view.feed(started)
    lines = frame(view, width=width, height=height, now=1.0)
    for line in lines:
        text = "".join(piece for piece, _ in line)
        assert text.isprintable()
        assert words.width(text) <= max(width, 44)
    totals = summary(view, width, now=1.0)[: max(1, height // 4)]
    assert len(lines) == (height >= LEAST_LABELLED) + 1 + len(totals)


@pytest.mark.parametrize(
    ("width", "labels"),
    [
        (40, ["AGENT", "TASK", "·", "STATUS", "TOKENS"]),
        (60, ["AGENT", "TASK", "·", "STATUS", "TURNS", "TOKENS", "TIME"]),
        (80, ["AGENT", "TASK", "·", "STATUS", "TURNS", "TOKENS", "COST", "TIME"]),
    ],
)
async def test_columns_have_labels(width: int, labels: list[str]) -> None:
    """The first line labels the columns, each label above the last character of its numbers; small windows have none."""
    view = up_to(await recorded(ScriptedModel({"lead": [say("Done.")]})), events.RunEnded, 1)
    first, run, *_ = drawn(view, width=width).splitlines()
    assert first.split() == labels
    tokens = first.index("TOKENS") + len("TOKENS")
    assert run[:tokens].endswith(" 15")
    assert len(first) == len(run)
    assert "TOKENS" not in drawn(view, width=width, height=LEAST_LABELLED - 1)


def _task(text: str) -> events.UserMessage:
    from remit.types.messages import user

    return user(text)


class _Log(io.StringIO):
    encoding = "utf-8"


class _Pretend(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


async def test_painting_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """The display writes only if something changed or the clock advanced."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    history = await recorded(ScriptedModel({"lead": [say("Done.")]}))
    now = [history[0].at]
    clock = SimpleNamespace(monotonic=lambda: now[0], time=lambda: now[0])
    monkeypatch.setattr("remit.observe.display.live_display.time", clock)
    stream = _Pretend()
    display = LiveDisplay(TreeView(), stream)
    display.begin()
    display.feed(history[0])
    display.paint()
    once = len(stream.getvalue())
    display.paint()
    assert len(stream.getvalue()) == once
    now[0] += 1
    display.paint()
    assert len(stream.getvalue()) > once
    display.end(tree=False)


def test_a_question_before_the_tree_is_drawn() -> None:
    """If a tree asks before it is drawn, it is drawn after the answer, not over the question."""
    stream = _Pretend()
    display = LiveDisplay(TreeView(), stream)
    with display.paused():
        display.begin()
        display.paint()
        assert stream.getvalue() == ""
    assert "starting" in stream.getvalue()
    with display.paused():
        display.end(tree=False)
    written = stream.getvalue()
    display.paint()
    assert stream.getvalue() == written, "what has ended is not drawn again"


async def test_a_narrower_window_is_erased_completely(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a redraw, all rows of the lines that a narrower window has wrapped are erased."""
    monkeypatch.setenv("LINES", "24")
    monkeypatch.setenv("COLUMNS", "100")
    stream = _Pretend()
    display = LiveDisplay(TreeView(), stream)
    display.begin()
    display.feed((await recorded(ScriptedModel({"lead": [say("Done.")]})))[0])
    display.paint()
    display._console.width = 50
    before = len(stream.getvalue())
    display.paint()
    # Two lines of 80 cells and a line of less than 50: five rows, with the cursor in the last.
    assert stream.getvalue()[before:].startswith("\r\x1b[4A\x1b[J\n\n")
    display.end(tree=False)


async def test_a_terminal_that_goes_away_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of the terminal end only the drawing."""
    history = await recorded(ScriptedModel({"lead": [say("Done.")]}))
    stream = _Pretend()
    display = LiveDisplay(TreeView(), stream)
    display.begin()

    def gone(_: str) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(stream, "write", gone)
    for event in history:
        display.feed(event)
        display.paint()
    display.end()


async def test_plain_lines_for_logs() -> None:
    """Without a terminal each important event is one line that names its run."""
    model = ScriptedModel(
        {
            "lead": [call("task", agent="scout", prompt="Look at docs", description="docs"), say("Done.")],
            "scout": [call("look", path="a/b.txt"), call("peek", path="c"), say("Fine.")],
        }
    )
    stream = _Log()
    display = LineDisplay(TreeView(), stream)
    for event in await recorded(model):
        display.feed(event)
    display.end()
    check_screen("plain_lines", stream.getvalue().rstrip())


async def test_a_child_that_fails_has_one_line() -> None:
    """A failed delegation is reported by the child's end, and not again by the parent's call."""
    delegation = call("task", agent="scout", prompt="Look at docs")
    model = ScriptedModel({"lead": [delegation, say("Done.")], "scout": [fail("no key", "auth")]})
    stream = _Pretend()
    display = LineDisplay(TreeView(), stream)
    for event in await recorded(model):
        display.feed(event)
    lines = [line for line in stream.getvalue().splitlines() if "failed" in line]
    assert len(lines) == 2, "the model's failure, and the run's"
    assert all("lead › scout" in line for line in lines)


async def test_lines_wait_for_an_open_question() -> None:
    """Events during a question are written after the answer."""
    history = await recorded(ScriptedModel({"lead": [say("Done.")]}))
    stream = _Pretend()
    display = LineDisplay(TreeView(), stream)
    with display.paused():
        for event in history:
            display.feed(event)
        assert stream.getvalue() == ""
    assert "lead: started: Look around" in stream.getvalue()


@pytest.mark.parametrize(
    ("said", "shown_as"),
    [
        (words.duration(4.9), "4s"),
        (words.duration(65), "1m05s"),
        (words.duration(7380), "2h03m"),
        (words.duration(100_000), "1d03h"),
        (words.allowed_time(600), "10m"),
        (words.allowed_time(90), "90s"),
        (words.allowed_time(0.5), "0.5s"),
        (words.number(950), "950"),
        (words.number(999_600), "1.0M"),
        (words.number(1234), "1.2k"),
        (words.number(34_400), "34k"),
        (words.money(None), "?"),
        (words.money(0.0042), "$0.0042"),
        (words.money(12.5), "$12.50"),
        (words.ago(0, 5), "just now"),
        (words.ago(0, 7300), "2h ago"),
        (words.doing("mcp__github__search_issues", "bug"), "github: search issues bug"),
        (words.doing("terminal", "make test"), "running make test"),
        (words.line("a\x1b[2J\n  b\u202e"), "a [2J b\\u202e"),
        (words.cut("日本語のテキスト", 7), "日本語…"),
        (words.pad("日本", 6, right=True), "  日本"),
        (words.ascii_only("✓ lead › ü"), "+ lead > ?"),
    ],
)
def test_numbers_and_times_in_words(said: str, shown_as: str) -> None:
    """Numbers and times are short and unambiguous."""
    assert said == shown_as


async def test_singular_and_plural() -> None:
    """The last line says `1 model call` and `1 delegation`; a number with a limit is always plural."""
    limits = Limits(requests=None, delegations=None)
    model = ScriptedModel(
        {"lead": [call("task", agent="scout", prompt="Look"), say("Done.")], "scout": [say("Fine.")]}
    )
    history = await recorded(model, limits=limits)

    def said(view: TreeView) -> str:
        return shown(summary(view, 200, view.tree.at), colour=False)

    assert "1 model call" in said(up_to(history, events.ReplyReceived))
    assert "1 model calls" not in said(up_to(history, events.ReplyReceived))
    assert said(up_to(history, events.RunEnded, 2)).endswith("3 model calls · 1 delegation")
    view = up_to(history, events.ReplyReceived)
    view.tree.runs[view.tree.root].limits = Limits()
    assert said(view).endswith("1 model call")
    view.tree.runs[view.tree.root].limits = Limits(requests=1)
    assert said(view).endswith("1/1 model calls")
