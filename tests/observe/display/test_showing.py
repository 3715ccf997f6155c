"""`show=True`: plain lines without a terminal, and displays that are slow or broken never change a run."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

import remit.observe.display.showing as showing
from remit import Agent, Limits, Outcome, Status, UsageError, reopen, resume, run, run_sync, start, tool
from remit.observe.display.tree_view import TreeView
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, fixed_ids, say
from remit.types.events import Event

SCOUT = Agent("scout", description="Looks at one thing.")
LEAD = Agent("lead", subagents=[SCOUT])


def scripted() -> ScriptedModel:
    return ScriptedModel(
        {"lead": [call("task", agent="scout", prompt="Look"), say("Done.")], "scout": [say("Fine.", delay=3)]}
    )


class Broken:
    """A display that fails in one of its methods."""

    def __init__(self, fails: str) -> None:
        self.view = TreeView()
        self.fails = fails
        self.called: list[str] = []

    def _call(self, name: str) -> None:
        self.called.append(name)
        if name == self.fails:
            raise RuntimeError(f"{name} failed")

    def begin(self) -> None:
        self._call("begin")

    def feed(self, event: Event) -> None:
        self._call("feed")

    def paint(self) -> None:
        self._call("paint")

    @contextmanager
    def paused(self) -> Generator[None]:
        self._call("paused")
        yield

    def end(self, *, tree: bool = True) -> None:
        self._call("end" if tree else "close")


def use(monkeypatch: pytest.MonkeyPatch, display: object) -> None:
    monkeypatch.setattr(showing, "_open", lambda view, loop: display)


async def plain() -> Outcome:
    with fixed_ids():
        return await run(LEAD, "Go", model=scripted())


async def shown() -> Outcome:
    with fixed_ids():
        return await run(LEAD, "Go", model=scripted(), show=True)


async def test_lines_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal, `show=True` writes one line per event and the totals to standard error, nothing elsewhere."""
    outcome = await shown()
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert lines[0].endswith("lead: started: Go")
    assert any(line.strip().startswith("3s  lead › scout (1): completed") for line in lines)
    assert lines[-1].startswith("2 runs · 3s/10m")
    assert outcome == await plain()


async def test_nothing_is_shown_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    """Without `show`, a run writes nothing."""
    await plain()
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("fails", ["begin", "feed", "paint", "end"])
async def test_a_broken_display_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    """A display that raises is logged once and closed; the outcome is the same as without it."""
    display = Broken(fails)
    use(monkeypatch, display)
    with caplog.at_level(logging.WARNING, "remit"):
        outcome = await shown()
    assert outcome == await plain()
    assert [r.getMessage() for r in caplog.records] == ["the display failed; the run continues without it"]
    assert display.called.count(fails) == 1
    assert display.called[-1] == "close"


async def test_a_display_that_cannot_be_opened(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error while a display is opened is logged, and the run continues without a display."""

    def fail(*_: object) -> None:
        raise RuntimeError("no screen")

    monkeypatch.setattr(showing, "_open", fail)
    with caplog.at_level(logging.WARNING, "remit"):
        outcome = await shown()
    assert outcome == await plain()
    assert caplog.messages == ["the display could not be opened: RuntimeError: no screen; the run continues"]


@pytest.mark.real_time
async def test_a_display_that_blocks_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A run whose terminal is stopped (Ctrl-S) goes on, and ends at most `LAST_LOOK_S` twice later."""
    free = threading.Event()

    class Stuck(Broken):
        def paint(self) -> None:
            free.wait(30)

    # A lock of its own: other tests must not wait for this thread.
    monkeypatch.setattr(showing, "_lock", threading.RLock())
    monkeypatch.setattr(showing, "LAST_LOOK_S", 0.2)
    monkeypatch.setattr("remit.engine.tree.stream.LAST_LOOK_S", 0.2)
    use(monkeypatch, Stuck(""))
    model = ScriptedModel([say("Done.", delay=0.3)])
    began = time.monotonic()
    try:
        with caplog.at_level(logging.CRITICAL, "remit"):
            outcome = await run(Agent("lead"), "Go", model=model, show=True)
        assert outcome.ok
        assert outcome.warnings == ()
        assert time.monotonic() - began < 10
    finally:
        free.set()


async def test_start_and_cancel(capsys: pytest.CaptureFixture[str]) -> None:
    """`start(show=True)` shows the tree too, and its end when it is cancelled."""
    async with start(LEAD, "Go", model=scripted(), show=True) as running:
        await running.cancel("enough")
    assert "lead: cancelled by the caller: enough" in capsys.readouterr().err


async def test_a_resumed_tree_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """`resume` and `reopen` show the recorded runs together with the new ones, also if nothing is left to do."""
    store = MemoryStore()
    model = ScriptedModel(
        {
            "lead": [call("task", agent="scout", prompt="Look"), say("Done.", delay=20)],
            "scout": [say("Fine.")],
        }
    )
    first = await run(LEAD, "Go", model=model, store=store, limits=Limits(seconds=5))
    assert first.status is Status.TIMED_OUT
    capsys.readouterr()
    again = ScriptedModel({"lead": [say("Done.")]})
    done = await resume(store, first.run_id, agent=LEAD, model=again, limits=Limits(seconds=60), show=True)
    assert done.ok
    assert capsys.readouterr().err.splitlines()[-1].startswith("2 runs")
    async with reopen(store, first.run_id, agent=LEAD, model=again, show=True) as running:
        assert await running.outcome() == done
    assert capsys.readouterr().err.splitlines()[-1].startswith("2 runs")


def test_run_sync_shows(capsys: pytest.CaptureFixture[str]) -> None:
    """`run_sync(show=True)` is the same without an event loop."""
    run_sync(Agent("lead"), "Go", model=ScriptedModel([say("Done.")]), show=True)
    assert "lead: completed" in capsys.readouterr().err


@pytest.mark.parametrize("value", [1, "yes", None])
async def test_show_is_true_or_false(value: object) -> None:
    """Anything but True and False is refused before the run starts."""
    with pytest.raises(UsageError, match="show must be True or False"):
        await run(LEAD, "Go", model=scripted(), show=value)  # pyright: ignore[reportArgumentType]


async def test_other_names_for_show() -> None:
    """`verbose=True`, as in other frameworks, is answered with the name of our option."""
    with pytest.raises(UsageError, match=r"has no option 'verbose'. Write show=\.\.\."):
        await run(LEAD, "Go", model=scripted(), verbose=True)  # pyright: ignore[reportCallIssue]


async def test_on_event_and_show_together(capsys: pytest.CaptureFixture[str]) -> None:
    """`on_event` and `show` both see every event; an error of `on_event` is still reported as such."""
    seen: list[str] = []

    def note(event: Event) -> None:
        seen.append(event.kind)
        raise ValueError("mine")

    outcome = await run(LEAD, "Go", model=scripted(), on_event=note, show=True)
    assert seen[-1] == "run_ended"
    assert outcome.warnings == ("on_event raised ValueError: mine.",)
    assert "lead: completed" in capsys.readouterr().err


@tool
async def publish(page: str) -> str:
    """Put a page on the web site."""
    return f"{page} is public"


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_the_tree_is_hidden_while_a_person_is_asked(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """On a terminal the display is paused before the approver is called, and continues after its answer."""
    from remit import allow
    from remit.tools.policy import ApprovalRequest, Decision

    steps: list[str] = []

    class Steps(Broken):
        @contextmanager
        def paused(self) -> Generator[None]:
            steps.append("hidden")
            yield
            steps.append("back")

    monkeypatch.setattr("remit.observe.words.is_terminal", lambda stream: True)
    use(monkeypatch, Steps(""))

    async def ask(request: ApprovalRequest) -> Decision:
        steps.append("asked")
        await asyncio.sleep(5)
        return allow()

    def ask_plainly(request: ApprovalRequest) -> Decision:
        steps.append("asked")
        return allow()

    model = ScriptedModel([call("publish", page="a"), say("Done.", delay=1)])
    approver = ask if kind == "async" else ask_plainly
    outcome = await run(Agent("lead", tools=[publish]), "Go", model=model, approver=approver, show=True)
    assert outcome.ok
    assert steps == ["hidden", "asked", "back"]


async def test_frames_stop_with_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    """A display is painted ten times a second while the tree runs, and not afterwards."""
    display = Broken("")
    use(monkeypatch, display)
    await shown()
    painted = display.called.count("paint")
    assert 20 <= painted <= 32
    assert display.called[0] == "begin"
    assert display.called[-1] == "end"
    await asyncio.sleep(5)
    assert display.called.count("paint") == painted
