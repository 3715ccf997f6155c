"""A live tree in a browser, by keyboard only: it appears, asks, is answered, stopped, messaged, reloaded, and ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from commandbench import Bench, Waiting
from pagestory import LIMITS, aside, cast, serving, story

from remit import Agent, UsageError, start
from remit.engine.handle import Running
from remit.observe.page.hosting import AgentChoice, Hear, Wish
from remit.stores import open_store
from remit.testing import ScriptedModel, say
from remit.types.events import ApprovalRequested

if TYPE_CHECKING:
    from playwright.sync_api import Page

TASK = "Review the change in cli/x.py"

BLUE = """() => {
  const bar = document.querySelector('.time-row canvas');
  if (!bar || !bar.width) return false;
  const dots = bar.getContext('2d').getImageData(0, bar.height / 2, bar.width, 1).data;
  for (let n = 0; n < dots.length; n += 4) if (dots[n + 3] > 200 && dots[n + 2] > dots[n] + 60) return true;
  return false;
}"""
"""Whether the first bar has a piece in the colour of model calls."""


def expect(page: Page, condition: str, *values: Any) -> None:
    """Wait until an expression of JavaScript is true."""
    page.wait_for_function(condition, arg=list(values))


def text_of(page: Page, selector: str) -> str:
    return page.locator(selector).first.inner_text()


def rows(page: Page) -> list[list[str]]:
    """Agent and sign of each row of the tree."""
    return page.locator(".tree-row:not([hidden])").evaluate_all(
        "rows => rows.sort((a, b) => a.dataset.index - b.dataset.index)"
        ".map(row => [row.querySelector('.agent').textContent, row.querySelector('.mark').textContent])"
    )


def test_a_live_tree_by_keyboard(bench: Bench, open_page: Callable[..., Page]) -> None:
    """A tree appears in the list, is opened, asks, is answered with `y`, and finishes, without a mouse or a reload."""
    with serving(bench.url) as server:
        page = open_page(server.url)
        page.get_by_text("No runs yet").wait_for()
        with bench.running(story(0.3), TASK, agent=cast(), limits=LIMITS) as tree:
            page.locator(".row.runs-row").first.wait_for()
            expect(
                page,
                "() => document.querySelector('.runs-row .doing.ask')?.textContent.startsWith('asks: editing')",
            )
            assert "1 question waits" in text_of(page, ".summary")
            page.keyboard.press("a")
            page.keyboard.press("Enter")
            page.get_by_text("+- Fix the order.").wait_for()
            assert page.locator("#spoken").inner_text().endswith("asks: editing CHANGELOG.md")
            expect(page, "() => !document.querySelector('.answers button').disabled")
            page.wait_for_timeout(700)
            page.keyboard.press("y")
            page.get_by_text("Allowed.").wait_for()
            expect(page, "() => document.querySelector('.bar .status').textContent === 'completed'")
            assert tree.outcome().ok
        names = [name for name, _ in rows(page)]
        assert names == ["lead", "explorer", "explorer", "reviewer", "explorer", "scribe"]
        assert page.locator(".question").is_hidden()
        page.keyboard.press("Home")
        page.get_by_text("The change is sound").wait_for()


def test_a_denial_by_keyboard(bench: Bench, open_page: Callable[..., Page]) -> None:
    """`n`, a reason and Enter deny a call; the run goes on with the reason."""
    with serving(bench.url) as server, bench.running(story(), TASK, agent=cast(), limits=LIMITS) as tree:
        aside(lambda: tree.wait_for(bench, ApprovalRequested))
        page = open_page(f"{server.url}#/{tree.id}")
        expect(page, "() => document.querySelector('.answers button')?.disabled === false")
        page.wait_for_timeout(700)
        page.keyboard.press("n")
        page.keyboard.type("not this file")
        page.keyboard.press("Enter")
        page.get_by_text("Denied.").wait_for()
        assert tree.outcome().ok
        expect(page, "() => document.querySelector('.bar .status').textContent === 'completed'")


def test_two_tabs_and_a_reload_agree(bench: Bench, open_page: Callable[..., Page]) -> None:
    """A second tab, and a reload in the middle, show the same rows; an answer in one tab closes the question in both."""
    with serving(bench.url) as server, bench.running(story(0.1), TASK, agent=cast(), limits=LIMITS) as tree:
        first, second = open_page(f"{server.url}#/{tree.id}"), open_page(f"{server.url}#/{tree.id}")
        for page in (first, second):
            page.get_by_text("+- Fix the order.").wait_for()
            expect(page, "() => document.querySelectorAll('.tree-row:not([hidden])').length === 6")
        expect(
            first,
            "() => [...document.querySelectorAll('.tree-row .mark')].filter(one => '●○'.includes(one.textContent) && !one.closest('[hidden]')).length === 1",
        )
        expect(
            second,
            "() => [...document.querySelectorAll('.tree-row .mark')].filter(one => '●○'.includes(one.textContent) && !one.closest('[hidden]')).length === 1",
        )
        assert rows(first) == rows(second)
        before = rows(first)
        first.reload()
        first.get_by_text("+- Fix the order.").wait_for()
        assert rows(first) == before
        second.wait_for_timeout(700)
        second.keyboard.press("t")
        for page in (first, second):
            expect(page, "() => document.querySelector('.bar .status').textContent === 'completed'")
            assert page.locator(".question").is_hidden()
        assert rows(first) == rows(second)


def test_a_message_and_a_stop_by_keyboard(bench: Bench, open_page: Callable[..., Page]) -> None:
    """`s` sends a message that joins the conversation, and `x` stops the run with a reason."""
    model = Waiting()
    with serving(bench.url) as server, bench.running(model, "Wait for me") as tree:
        page = open_page(f"{server.url}#/{tree.id}")
        page.get_by_text("Wait for me").first.wait_for()
        page.keyboard.press("s")
        page.get_by_role("dialog").wait_for()
        page.keyboard.type("Please hurry.")
        page.keyboard.press("Control+Enter")
        page.get_by_text("Sent.").wait_for()
        page.keyboard.press("x")
        page.get_by_role("dialog").wait_for()
        page.keyboard.type("no longer needed")
        page.keyboard.press("Enter")
        page.get_by_text("Asked to stop.").wait_for()
        expect(page, "() => document.querySelector('.bar .status').textContent === 'cancelled'")
        assert str(tree.outcome().status) == "cancelled"
        page.get_by_text("no longer needed").first.wait_for()


def test_one_branch_is_stopped(bench: Bench, open_page: Callable[..., Page]) -> None:
    """Stopping a child stops that branch; the parent goes on."""
    with serving(bench.url) as server, bench.running(story(0.1), TASK, agent=cast(), limits=LIMITS) as tree:
        page = open_page(f"{server.url}#/{tree.id}.4")
        page.get_by_text("+- Fix the order.").wait_for()
        page.keyboard.press("x")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Enter")
        expect(page, "() => document.querySelector('.detail .status').textContent === 'cancelled'")
        assert tree.outcome().ok
        expect(page, "() => document.querySelector('.bar .status').textContent === 'completed'")


def test_views_and_links_by_keyboard(bench: Bench, open_page: Callable[..., Page]) -> None:
    """Keys switch views, fold, search, focus on a branch and open the help; links lead to a run and to an event."""
    with serving(bench.url) as server:
        root = ""

        def record() -> None:
            nonlocal root
            root = bench.run(story_without_questions(), TASK, agent=cast(scribe_edits=False)).run_id

        aside(record)
        page = open_page(f"{server.url}#/{root}.3")
        expect(page, "() => document.querySelector('.detail h2').textContent.startsWith('reviewer')")
        page.keyboard.press("ArrowLeft")
        expect(page, "() => document.querySelectorAll('.tree-row:not([hidden])').length === 5")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("f")
        expect(page, "() => document.querySelectorAll('.tree-row:not([hidden])').length === 2")
        page.keyboard.press("f")
        page.keyboard.press("/")
        page.keyboard.type("scribe")
        expect(page, "() => document.querySelectorAll('.tree-row:not([hidden])').length === 2")
        page.keyboard.press("Escape")
        for key, name in (("2", "Time"), ("3", "Spending"), ("4", "Events"), ("1", "Tree")):
            page.keyboard.press(key)
            assert page.get_by_role("tab", name=name, exact=True).get_attribute("aria-selected") == "true"
            if name == "Time":
                expect(page, BLUE)
        page.keyboard.press("?")
        page.get_by_role("dialog").wait_for()
        page.keyboard.press("Escape")
        page.goto(f"{server.url}#/{root}?e=3")
        page.locator(".entry.pointed").wait_for()
        page.goto(f"{server.url}#/{root}?view=events&e=9")
        page.get_by_text("Event 9").wait_for()
        page.keyboard.press("h")
        page.locator(".row.runs-row").first.wait_for()


def story_without_questions() -> Any:
    made = story()
    scripts: Any = made._scripts
    made._scripts = {**scripts, "scribe": ["Noted."]}
    return made


class OneAgent:
    """Starts runs of one agent, as the command line does for the agents of a project."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def agents(self) -> list[AgentChoice]:
        return [AgentChoice(name="lead", description="Leads.")]

    @asynccontextmanager
    async def start(self, wish: Wish, hear: Hear) -> AsyncIterator[Running]:
        slow = say("A long answer, word by word, that takes a while to write.", chunks=12, delay=2.5)
        model = ScriptedModel({"lead": [slow]}, streams=True)
        store = open_store(self.url)
        async with start(Agent("lead"), wish.prompt, model=model, store=store, on_event=hear) as running:
            await anext(aiter(running.events()))
            await store.flush(running.run_id)
            yield running
        await store.close()

    def resume(self, root: str, hear: Hear) -> Any:
        raise UsageError("not here")


def test_a_run_is_started_and_its_text_appears(bench: Bench, open_page: Callable[..., Page]) -> None:
    """A run is started from the form by keyboard, and its text is shown while the model writes it."""
    with serving(bench.url, OneAgent(bench.url)) as server:
        page = open_page(server.url)
        page.get_by_role("link", name="Start a run").focus()
        page.keyboard.press("Enter")
        page.locator("#start-prompt").wait_for()
        page.locator("#start-prompt:focus").wait_for()
        page.keyboard.type("Write something")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.locator(".writing:visible").wait_for()
        assert "A l" in page.locator(".writing").inner_text()
        assert "in this server" in text_of(page, ".bar .facts")
        expect(page, "() => document.querySelector('.bar .status').textContent === 'completed'")
        page.get_by_text("that takes a while to write.").first.wait_for()
        assert page.locator(".writing").is_hidden()
