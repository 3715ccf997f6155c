"""A real browser for the page: Debian's chromium, driven by playwright. Skipped without it, unless REQUIRE_BROWSER=1."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from commandbench import Bench, make_bench
from pagestory import write_changelog

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = "axe-core@4.14.0"
CACHE = Path(__file__).parents[2] / ".venv" / "npm-axe"

Open = Callable[..., "Page"]


def missing(what: str) -> NoReturn:
    if os.environ.get("REQUIRE_BROWSER") == "1":
        pytest.fail(what)
    pytest.skip(what)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = make_bench(tmp_path, monkeypatch)
    write_changelog()
    return made


# One for each module: while it is open, its event loop runs in the thread of the tests.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        missing("the page is not tried in a browser: chromium is not installed")
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        missing("the page is not tried in a browser: playwright is not installed")
    with sync_playwright() as playwright:
        # Chromium's own sandbox does not work as root, as in most containers; the tests show it only our page.
        found = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Opens an address in a window of its own. An error in the page's script, or a blocked resource, fails the test."""
    contexts: list[Any] = []
    wrong: list[str] = []

    def opened(address: str, *, size: tuple[int, int] = (1280, 800), dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme="dark" if dark else "light"
        )
        context.set_default_timeout(15_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if _is_wrong(message) else None)
        page.on("request", lambda request: wrong.append(request.url) if _is_foreign(request.url) else None)
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not wrong


def _is_wrong(message: Any) -> bool:
    # Chromium itself reports answers that are not a success; the page shows them.
    return message.type == "error" and "Failed to load resource" not in message.text


def _is_foreign(address: str) -> bool:
    return not address.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:"))


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, which npm installs once."""
    npm = shutil.which("npm")
    if npm is None:
        missing("accessibility is not checked: npm is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    file = CACHE / "node_modules" / "axe-core" / "axe.min.js"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            flags = [
                "--prefix",
                str(CACHE),
                "--no-audit",
                "--no-fund",
                "--ignore-scripts",
                "--loglevel=error",
            ]
            try:
                subprocess.run(
                    [npm, "install", *flags, AXE], check=True, capture_output=True, timeout=120, cwd=CACHE
                )
            except (OSError, subprocess.SubprocessError) as error:
                missing(f"accessibility is not checked: {error}")
    return file.read_text(encoding="utf-8")
