"""Large journals in a browser: a tree of 5,000 runs and a run of 20,000 events stay usable."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from commandbench import Bench, two_scouts
from pagestory import aside, enlarge, long_run, serving, wide_tree

from remit.testing import ScriptedModel, call, say

if TYPE_CHECKING:
    from playwright.sync_api import Page

SHOWN = "() => document.querySelectorAll('.row:not([hidden])').length"


def report(**figures: float) -> None:
    """Print figures for `pytest -s`, with PAGE_FIGURES=1."""
    if os.environ.get("PAGE_FIGURES"):
        sys.stdout.write(f"{ {name: round(value, 3) for name, value in figures.items()} }\n")


def timed(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def test_a_tree_of_5000_runs(bench: Bench, open_page: Callable[..., Page]) -> None:
    """5,000 runs load, unfold, scroll, filter and switch views; only the rows on the screen are elements."""
    made: list[str] = []

    def record() -> None:
        made.append(bench.run(two_scouts()).run_id)
        enlarge(bench, made[0], wide_tree(5000))

    aside(record)
    with serving(bench.url) as server:
        page = open_page(server.url)
        page.locator(".row.runs-row").first.wait_for()
        tree = f"{page.url.partition('#')[0]}#/{made[0]}"

        def load() -> None:
            page.goto(tree)
            page.get_by_text("part 1", exact=True).first.wait_for()

        loading = timed(load)
        assert "5,001 runs" in page.locator(".bar .facts").inner_text()
        assert page.evaluate(SHOWN) < 100
        # Frames while the list scrolls to its end.
        frames = page.evaluate(
            """async () => {
              const list = document.querySelector('.virtual[role=tree]');
              const times = [];
              for (let n = 0; n < 60; n++) {
                list.scrollTop += 900;
                const began = performance.now();
                await new Promise(requestAnimationFrame);
                times.push(performance.now() - began);
              }
              return times.sort((a, b) => a - b);
            }"""
        )
        assert page.evaluate(SHOWN) < 100

        def search() -> None:
            page.keyboard.press("/")
            page.keyboard.type("part 4321")
            page.wait_for_function("() => document.querySelectorAll('.tree-row:not([hidden])').length === 3")

        searching = timed(search)
        page.keyboard.press("Escape")
        page.locator(".search").first.fill("")

        def switch() -> None:
            page.locator("#tab-time").click()
            page.locator(".time-row").first.wait_for()

        switching = timed(switch)
        page.keyboard.press("Home")
        page.keyboard.press("End")
        assert page.evaluate(SHOWN) < 100
        page.locator("#tab-spending").click()
        page.locator(".spend-row.row").first.wait_for()
        report(
            load_s=loading,
            search_s=searching,
            time_view_s=switching,
            frame_ms_p50=frames[30],
            frame_ms_max=frames[-1],
        )
        assert loading < 10
        assert searching < 3
        assert frames[30] < 60


def test_a_run_of_20000_events(bench: Bench, open_page: Callable[..., Page]) -> None:
    """20,000 events are listed by pages, the last one is reached by a key, and the conversation is read by pages."""
    made: list[str] = []

    def record() -> None:
        model = ScriptedModel({"scout": [call("look", path="a"), say("Done.")]})
        from commandbench import SCOUT

        made.append(bench.run(model, agent=SCOUT).run_id)
        enlarge(bench, made[0], long_run(20_000))

    aside(record)
    with serving(bench.url) as server:
        page = open_page(server.url)
        page.locator(".row.runs-row").first.wait_for()
        start = page.url.partition("#")[0]

        def load() -> None:
            page.goto(f"{start}#/{made[0]}")
            page.get_by_text("Turn 1: I look again.").wait_for()

        loading = timed(load)
        assert page.locator(".entry").count() <= 40

        def to_end() -> None:
            page.keyboard.press("4")
            page.get_by_text("20,002 events").wait_for()
            page.locator(".virtual[aria-label=Events]").focus()
            page.keyboard.press("End")
            page.get_by_text("Event 20002", exact=True).wait_for()

        ending = timed(to_end)
        assert page.evaluate(SHOWN) < 100

        def link() -> None:
            page.goto(f"{start}#/{made[0]}?e=10000")
            page.locator(".entry.pointed").wait_for()

        linking = timed(link)
        report(load_s=loading, last_event_s=ending, deep_link_s=linking)
        assert loading < 10
        assert ending < 5
        assert linking < 5
