"""Strict trees: a model request is sent only if the store has its intent and this process owns the tree."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from strict_worker import LEAD as WORKER

from remit import Agent, Limits, Reply, Request, StoreError, TreeOwned, UsageError, resume, run
from remit.stores import open_store
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, say
from remit.types.events import Event, TurnStarted

LEAD = Agent("lead")


class Stalling(MemoryStore):
    """Outlives the process, as far as a run can tell, and confirms only when told to."""

    volatile = False

    def __init__(self) -> None:
        super().__init__()
        self.open = asyncio.Event()

    async def confirm(self, root: str, *above: str) -> float:
        await self.open.wait()
        return time.monotonic() + 10


async def test_a_store_that_stalls_sends_nothing() -> None:
    """While the store does not confirm, no request is sent; the outcome says so, and counts at least what was sent."""
    model = ScriptedModel([say("done")])
    outcome = await run(LEAD, "go", model=model, store=Stalling(), strict=True)
    assert (outcome.status, model.requests) == ("failed", [])
    assert "the request was not sent, because the store did not confirm it" in outcome.reason


async def test_a_store_that_recovers_sends_the_request() -> None:
    """A request waits for its store and is sent once the store has confirmed it."""
    store, model = Stalling(), ScriptedModel([say("done")])
    asyncio.get_running_loop().call_later(5, store.open.set)
    outcome = await run(LEAD, "go", model=model, store=store, strict=True)
    assert (outcome.status, len(model.requests), outcome.duration_s >= 5) == ("completed", 1, True)


class Lost(Stalling):
    """Another process has the tree."""

    async def confirm(self, root: str, *above: str) -> float:
        raise TreeOwned(f"The run {root!r} was taken over.")


async def test_a_tree_that_was_taken_over_stops_without_a_request() -> None:
    """If the claim is lost, nothing is sent and the tree stops at once."""
    model = ScriptedModel([say("done")])
    outcome = await run(LEAD, "go", model=model, store=Lost(), strict=True)
    assert (outcome.status, model.requests, outcome.duration_s) == ("cancelled", [], 0.0)
    assert "was taken over" in outcome.reason


class Stale(Stalling):
    """Its first answer arrives after the time that it names, as after a freeze."""

    asked = 0

    async def confirm(self, root: str, *above: str) -> float:
        self.asked += 1
        return time.monotonic() + (10 if self.asked > 1 else -1)


async def test_a_late_confirmation_is_asked_for_again() -> None:
    """A confirmation that has expired when it is read does not count."""
    store = Stale()
    outcome = await run(LEAD, "go", model=ScriptedModel([say("done")]), store=store, strict=True)
    assert (outcome.status, store.asked) == ("completed", 2)


async def test_strict_needs_a_store_that_can_confirm() -> None:
    """`strict` without a store, or with a store that cannot confirm, is a UsageError."""

    class Plain(MemoryStore):
        volatile = False

    with pytest.raises(UsageError, match="strict=True needs a store that"):
        await run(LEAD, "go", model=ScriptedModel([say("x")]), strict=True)
    with pytest.raises(UsageError, match="needs a store with a method `confirm`, which Plain lacks"):
        await run(LEAD, "go", model=ScriptedModel([say("x")]), store=Plain(), strict=True)
    with pytest.raises(UsageError, match="strict must be True or False, not 'yes'"):
        await run(LEAD, "go", model=ScriptedModel([say("x")]), strict="yes")  # pyright: ignore[reportArgumentType] - the mistake


class Looking:
    """Reads the journal through another store while it is asked."""

    name = "looking"

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: list[Event] = []

    async def reply(self, request: Request, emit: object) -> Reply:
        other = open_store(self.url)
        self.seen += [event async for event in other.read(request.run_id)]
        await other.close()
        return Reply("done")


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.mark.real_time
async def test_the_intent_is_durable_before_the_request(url: str) -> None:
    """When the model is asked, every other process can already read that it is."""
    model = Looking(url)
    assert (await run(LEAD, "go", model=model, store=url, strict=True)).ok
    assert any(isinstance(event, TurnStarted) for event in model.seen)


def _lines(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def _start(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command)


def _wait_for(count: int, path: Path) -> None:
    until = time.monotonic() + 30
    while len(_lines(path)) < count:
        assert time.monotonic() < until, "the worker sends nothing"
        time.sleep(0.01)


@pytest.mark.real_time
async def test_a_frozen_process_that_wakes_sends_nothing(url: str, tmp_path: Path) -> None:
    """A process that is frozen, loses its tree to another process and wakes up sends no further request."""
    path = tmp_path / "requests"
    script = Path(__file__).parent / "strict_worker.py"
    worker = _start([sys.executable, str(script), url, str(path), "strict"])
    try:
        _wait_for(5, path)
        worker.send_signal(signal.SIGSTOP)
        before = len(_lines(path))
        model = ScriptedModel([say("mine now")])
        while True:
            try:
                outcome = await resume(url, "frozen", agent=WORKER, model=model, limits=Limits(turns=None))
                break
            except TreeOwned:
                await asyncio.sleep(0.1)
            except StoreError:
                # It was frozen inside a transaction, so that it blocks the store: freeze it at another moment.
                worker.send_signal(signal.SIGCONT)
                _wait_for(len(_lines(path)) + 1, path)
                worker.send_signal(signal.SIGSTOP)
                before = len(_lines(path))
        worker.send_signal(signal.SIGCONT)
        worker.wait(20)
    finally:
        worker.kill()
        worker.wait()
    assert outcome.text == "mine now"
    # At most the request that was under way when the process was frozen.
    sent = _lines(path)
    assert len(sent) <= before + 1
    assert outcome.total_usage.requests >= len(sent) + len(model.requests)


@pytest.mark.real_time
async def test_a_claim_lost_meanwhile_is_noticed_by_confirm(url: str) -> None:
    """`confirm` raises TreeOwned after another process took over the tree, or the tree above it."""
    store = open_store(url)
    await store.claim("a", new=True)
    await store.claim("b", new=True)
    assert await store.confirm("a", "b") > time.monotonic()  # pyright: ignore[reportAttributeAccessIssue] - optional in the protocol
    with pytest.raises(StoreError, match="'c' is not claimed"):
        await store.confirm("a", "c")  # pyright: ignore[reportAttributeAccessIssue] - as above
    await store.close()
