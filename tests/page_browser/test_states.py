"""Empty states, error states, hostile texts, narrow and dark windows, and accessibility, in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from commandbench import Bench, two_scouts
from pagestory import LIMITS, TOKEN, aside, cast, hostile, serving, story

from remit.types.events import ApprovalRequested

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Open = Callable[..., "Page"]


def test_no_token(bench: Bench, open_page: Open) -> None:
    """Without the token the page says how to get it; after the exchange the token is not in the address."""
    with serving(bench.url) as server:
        page = open_page(f"http://127.0.0.1:{server.port}/")
        page.get_by_text("This page needs its token").wait_for()
        page.goto(server.url)
        page.get_by_text("No runs yet").wait_for()
        assert TOKEN not in page.url
        assert TOKEN not in page.evaluate("() => document.cookie + JSON.stringify(localStorage)")


def test_empty_journal(bench: Bench, open_page: Open) -> None:
    """An empty journal shows the command of the demo to copy."""
    with serving(bench.url) as server:
        page = open_page(server.url)
        page.get_by_text("remit demo").wait_for()


def test_unreadable_journal(tmp_path: Path, open_page: Open) -> None:
    """A journal that cannot be read is named with its reason."""
    (tmp_path / "broken.db").write_bytes(b"not a database" * 100)
    with serving(f"sqlite:///{tmp_path / 'broken.db'}") as server:
        page = open_page(server.url)
        page.locator(".banner.bad:visible").wait_for()
        assert "broken.db" in page.locator(".banner.bad:visible").first.inner_text()


def test_interrupted_unknown_and_filtered(bench: Bench, open_page: Open) -> None:
    """An interrupted run has the command that resumes it; an unknown run and an empty filter are explained."""
    made: list[str] = []
    aside(lambda: made.append(bench.interrupted(called=True)))
    with serving(bench.url) as server:
        page = open_page(f"{server.url}#/{made[0]}")
        page.get_by_text(f"remit resume {made[0][:5]}").wait_for()
        page.get_by_text("not finished").first.wait_for()
        page.goto(f"{server.url}#/zzzzzzzzzz")
        page.get_by_text("The journal has no run 'zzzzzzzzzz'.").first.wait_for()
        page.keyboard.press("h")
        page.locator(".row.runs-row").first.wait_for()
        page.keyboard.press("/")
        page.keyboard.type("nothing has this")
        page.get_by_text("No run matches.").wait_for()


def test_a_lost_server_and_its_return(bench: Bench, open_page: Open) -> None:
    """When the server is gone, the page says since when it is behind, keeps its rows, and recovers by itself."""
    aside(lambda: bench.run(two_scouts()))
    with serving(bench.url) as server:
        port = server.port
        page = open_page(server.url)
        page.locator(".row.runs-row").first.wait_for()
    page.get_by_text("behind since").wait_for()
    assert page.locator(".row.runs-row:visible .mark").first.inner_text() == "✓"
    with serving(bench.url, port=port):
        page.wait_for_function("() => document.querySelector('.connection').textContent === ''")


def test_hostile_texts_stay_texts(bench: Bench, open_page: Open) -> None:
    """Markup and scripts of a model are shown as text, run nothing and load nothing."""
    made: list[str] = []

    def record() -> None:
        agent, model, task = hostile()
        made.append(bench.run(model, task, agent=agent).run_id)

    aside(record)
    with serving(bench.url) as server:
        page = open_page(f"{server.url}#/{made[0]}")
        page.get_by_text("image: pixel").first.wait_for()
        page.locator(".call").first.click()
        page.get_by_text("result", exact=True).wait_for()
        page.get_by_role("tab", name="Task and limits").click()
        page.get_by_text("Instructions").click()
        for key in "234":
            page.keyboard.press(key)
        page.locator(".event-row").first.click()
        page.get_by_text("Event 1").first.wait_for()
        assert page.evaluate("() => window.hacked") is None
        assert (
            page.locator("#app img, #app script, #app iframe, a[href^='javascript'], a[href^='data']").count()
            == 0
        )


def test_html_cannot_be_set(bench: Bench, browser: Browser) -> None:
    """The browser refuses to turn any string into elements or code: trusted types, without a policy."""
    with serving(bench.url) as server:
        page = browser.new_page()
        page.goto(server.url)
        page.get_by_text("No runs yet").wait_for()
        for act in (
            "document.body.innerHTML = '<b>x</b>'",
            "document.createElement('script').src = 'x.js'",
            "document.write('x')",
        ):
            with pytest.raises(Exception, match=r"Trusted|Content Security Policy"):
                page.evaluate(f"() => {{ {act}; }}")
        page.close()


def serious(page: Page, axe: str) -> list[str]:
    """What axe finds, if it is serious or critical."""
    page.evaluate(axe)
    found: Any = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {one['nodes'][0]['target']} {one['nodes'][0]['failureSummary']}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_accessibility(bench: Bench, open_page: Open, axe: str, *, dark: bool) -> None:
    """No view has a serious finding of axe (WCAG AA contrast among them), in light and dark, with a question open."""
    with serving(bench.url) as server, bench.running(story(), "Review", agent=cast(), limits=LIMITS) as tree:
        aside(lambda: tree.wait_for(bench, ApprovalRequested))
        page = open_page(server.url, dark=dark)
        page.locator(".row.runs-row").first.wait_for()
        assert serious(page, axe) == []
        page.goto(f"{server.url}#/{tree.id}")
        page.get_by_text("+- Fix the order.").wait_for()
        page.locator(".call").first.click()
        page.get_by_text("result", exact=True).first.wait_for()
        assert serious(page, axe) == []
        for key in "234":
            page.keyboard.press(key)
            page.locator(".row:visible").first.wait_for()
            page.wait_for_timeout(300)
            assert serious(page, axe) == []
        page.keyboard.press("1")
        page.get_by_role("tab", name="Task and limits").click()
        page.get_by_text("Terms", exact=True).wait_for()
        assert serious(page, axe) == []
        page.keyboard.press("?")
        page.get_by_role("dialog").wait_for()
        assert serious(page, axe) == []


def test_a_narrow_window(bench: Bench, open_page: Open) -> None:
    """In a window of 380 pixels nothing is wider than the window, in any view."""
    made: list[str] = []
    aside(lambda: made.append(bench.run(two_scouts()).run_id))
    with serving(bench.url) as server:
        page = open_page(server.url, size=(380, 700))
        page.locator(".row.runs-row").first.wait_for()
        wide = "() => document.documentElement.scrollWidth > innerWidth"
        assert page.evaluate(wide) is False
        page.keyboard.press("Enter")
        page.locator(".tree-row").first.wait_for()
        for key in "1234":
            page.keyboard.press(key)
            page.wait_for_timeout(150)
            assert page.evaluate(wide) is False, key
