"""Prices in the user's settings: with a price, a model of unknown price can have a limit in dollars."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from runbench import project, remit
from wire_formats import CHAT, Talk
from wire_server import Server

import remit.cli.exits as exits
import remit.cli.jobs.priced_models as priced_models
from remit.types.ports import Price

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return project(tmp_path, monkeypatch)


@contextmanager
def serving(*talks: Talk) -> Iterator[Server]:
    """A Chat Completions server on loopback, in its own thread."""
    ready, done = threading.Event(), threading.Event()
    made: list[Server] = []

    async def serve() -> None:
        async with Server(*(CHAT.answer(talk) for talk in talks)) as server:
            made.append(server)
            ready.set()
            while not done.is_set():  # noqa: ASYNC110 - an event of another thread
                await asyncio.sleep(0.01)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(20)
    try:
        yield made[0]
    finally:
        done.set()
        thread.join(20)


def user_settings(folder: Path, text: str) -> None:
    place = folder.parent / ".config" / "remit"
    place.mkdir(parents=True, exist_ok=True)
    (place / "config.toml").write_text(text, encoding="utf-8")


def priced(model: str, price: str = "{input = 2.0, output = 10.0}") -> str:
    return f'[models]\nmine = "{model}"\n[models."{model}"]\nprice = {price}\n'


def test_a_price_in_the_settings_allows_a_limit_in_dollars(folder: Path) -> None:
    """With a price, `--max-budget-usd` works for a model on a local server, and each reply is counted."""
    with serving(Talk("Done.", fresh=1000, output=200)) as server:
        model = f"{server.url}/v1#tiny"
        run = ("run", "Go", "--max-budget-usd", "1", "--output-format", "json")
        refused = remit(*run, "--model", model)
        assert refused.code == exits.WRONG_USE
        assert "the price of its model" in refused.err
        user_settings(folder, priced(model))
        said = remit(*run, "--model", "mine")
        assert (said.code, said.result["text"]) == (0, "Done.")
        assert said.result["cost_usd"] == pytest.approx((1000 * 2 + 200 * 10) / 1e6)
        assert len(server.seen) == 1


def test_the_limit_holds_with_that_price(folder: Path) -> None:
    """A call that could cost more than the remainder is not sent."""
    with serving(Talk("Done.")) as server:
        model = f"{server.url}/v1#tiny"
        user_settings(folder, priced(model, "{input = 1000.0, output = 10000.0}"))
        said = remit("run", "Go", "--model", "mine", "--max-budget-usd", "0.01")
        assert said.code == exits.OVER_BUDGET
        assert server.seen == []


def test_an_untrusted_project_cannot_set_a_price(folder: Path) -> None:
    """A price in the remit.toml of an untrusted project is ignored with a note; the run is rejected as without it."""
    with serving(Talk("Done.")) as server:
        model = f"{server.url}/v1#tiny"
        (folder / "remit.toml").write_text(priced(model, "{input = 0, output = 0}"), encoding="utf-8")
        said = remit("run", "Go", "--model", model, "--max-budget-usd", "1")
        assert said.code == exits.WRONG_USE
        assert "models." in said.err
        assert "it changes how your limit in dollars is counted" in said.err
        assert "the price of its model" in said.err
        assert server.seen == []


def test_a_known_price_wins(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A price in the settings of a model with a known price is ignored, with a note."""

    class Known:
        price = Price(3.0, 15.0)

    class Found:
        def find(self, name: str) -> Known:
            del name
            return Known()

    monkeypatch.setattr(priced_models, "Shelf", Found)
    models = priced_models.PricedModels({}, {"anthropic:claude-sonnet-5": Price(0, 0)})
    assert models["anthropic:claude-sonnet-5"].price == Price(3.0, 15.0)  # pyright: ignore[reportAttributeAccessIssue]
    assert capsys.readouterr().err == (
        "models.anthropic:claude-sonnet-5.price is ignored: remit knows the price of this model.\n"
    )
