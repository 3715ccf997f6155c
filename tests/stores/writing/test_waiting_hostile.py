"""Hostile cases for waiting events: races between two steps of a thread, and endless streams of events."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import remit.stores.journal_store as journal_store
from remit.stores.sqlite import SqliteLink, SqliteStore
from remit.stores.writing.lines import Line, line_of
from remit.stores.writing.waiting import Claim
from remit.stores.writing.worker import Worker
from remit.stores.writing.writer import Writer
from remit.testing.samples import head, known, new_tree, read_events, replied, warned
from remit.types.events import Event, TurnStarted
from remit.types.limits import Usage

pytestmark = pytest.mark.real_time


def turn(root: str, seq: int) -> TurnStarted:
    return TurnStarted(turn=1, **head(root, seq))


class Moment:
    """A point at which the writer's thread is held."""

    def __init__(self) -> None:
        self.armed = False
        self._reached, self._left = threading.Event(), threading.Event()

    def pass_by(self) -> None:
        if self.armed:
            self.armed = False
            self._reached.set()
            self._left.wait(5.0)

    async def use(self, store: SqliteStore, then: Callable[[], object]) -> None:
        self.armed = True
        store._writer.worker.urge()
        assert await asyncio.to_thread(self._reached.wait, 5.0)
        then()
        # A few iterations of the loop.
        for _ in range(5):
            await asyncio.sleep(0)
        self._left.set()


async def give_up_waiting(store: SqliteStore, root: str) -> None:
    """Release a tree without waiting for the result."""
    release = asyncio.ensure_future(store.release(root))
    await asyncio.sleep(0)
    release.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await release


async def left_at(moment: Moment, path: Path, store: SqliteStore, root: str) -> list[int]:
    """The stored events of a tree that gets an event and is released at that moment."""
    tasks: list[asyncio.Task[None]] = []

    def leave() -> None:
        store.append(turn(root, 1))
        tasks.append(asyncio.create_task(give_up_waiting(store, root)))

    await moment.use(store, leave)
    await asyncio.gather(*tasks)
    await store.close()
    return [event.seq for event in await read_events(SqliteStore(path), root)]


async def test_a_tree_released_right_after_a_take_keeps_its_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event arrives after the writer found no lines and before it notices the release."""
    store = SqliteStore(tmp_path / "runs.db")
    root, moment, sound = await new_tree(store), Moment(), Claim.take

    def take(claim: Claim) -> list[Line]:
        taken = sound(claim)
        moment.pass_by()
        return taken

    monkeypatch.setattr(Claim, "take", take)
    assert await left_at(moment, tmp_path / "runs.db", store, root) == [1]


async def test_events_added_before_a_release_are_written_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both arrive after the writer has taken lines and before it runs jobs."""
    store = SqliteStore(tmp_path / "runs.db")
    root, moment, sound = await new_tree(store), Moment(), Writer._write

    def write(writer: Writer) -> None:
        sound(writer)
        moment.pass_by()

    monkeypatch.setattr(Writer, "_write", write)
    assert await left_at(moment, tmp_path / "runs.db", store, root) == [1]


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = SqliteLink.commit

    def commit(link: SqliteLink) -> None:
        time.sleep(0.02)
        sound(link)

    monkeypatch.setattr(SqliteLink, "commit", commit)


@pytest.mark.usefixtures("slow_disk")
async def test_an_endless_stream_of_events_does_not_block_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one batch is written, the next events already wait. Claims must still be made and renewed."""
    monkeypatch.setattr("remit.stores.writing.writer.HEARTBEAT_S", 0.1)
    store = SqliteStore(tmp_path / "runs.db")
    root, beats, sound = await new_tree(store), list[float](), Writer._beat

    def beat(writer: Writer) -> None:
        beats.append(time.monotonic())
        sound(writer)

    async def go_on() -> None:
        for seq in range(1, 1_000_000):
            store.append(turn(root, seq))
            await asyncio.sleep(0.001)

    monkeypatch.setattr(Writer, "_beat", beat)
    going = asyncio.create_task(go_on())
    await asyncio.sleep(1.0)
    async with asyncio.timeout(2.0):
        await new_tree(store)
    assert len(beats) >= 3
    going.cancel()
    await store.close()


@pytest.mark.usefixtures("slow_disk")
async def test_an_endless_stream_of_jobs_does_not_stop_the_renewal_of_claims(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("remit.stores.writing.writer.HEARTBEAT_S", 0.1)
    store = SqliteStore(tmp_path / "runs.db")
    root, beats, sound = await new_tree(store), list[float](), Writer._beat

    def beat(writer: Writer) -> None:
        beats.append(time.monotonic())
        sound(writer)

    async def save(name: str) -> None:
        while True:
            await store.save_artifact(root, name, "text")

    monkeypatch.setattr(Writer, "_beat", beat)
    saving = [asyncio.create_task(save(f"a{number}")) for number in range(3)]
    await asyncio.sleep(1.0)
    assert len(beats) >= 3
    for one in saving:
        one.cancel()
    await asyncio.gather(*saving, return_exceptions=True)
    await store.close()


async def test_an_event_overtaken_by_a_finalizer_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector runs while JSON is encoded and ends a run of the same tree. Refusing the first event would leave a gap."""
    store = SqliteStore(tmp_path / "runs.db")
    root = await new_tree(store)
    later = [turn(root, 2)]

    def collect(event: Event) -> Line:
        if later:
            store.append(later.pop())
        return line_of(event)

    monkeypatch.setattr(journal_store, "line_of", collect)
    store.append(warned(root, 1))
    store.append(warned(root, 3))
    assert [event.seq for event in await read_events(store, root)] == [2, 1, 3]
    assert store._writer.waiting_bytes() == 0
    await store.close()


async def test_a_flush_tolerates_trees_that_come_and_go(tmp_path: Path) -> None:
    """Other loops' threads add and remove claims, and the writer removes the claims of a closed loop."""
    store = SqliteStore(tmp_path / "runs.db")
    roots = [await new_tree(store) for _ in range(3)]

    class Leaving(Claim):
        @property
        def error(self) -> None:  # pyright: ignore[reportIncompatibleVariableOverride]
            store._claims.pop(roots[2], None)

    claim = Leaving.__new__(Leaving)
    claim.root = roots[0]
    store._claims[roots[0]] = claim
    await store.flush()
    await store.close()


async def test_a_huge_reported_cost_does_not_affect_other_trees(tmp_path: Path) -> None:
    """A model may report more than a database can count."""
    store = SqliteStore(tmp_path / "runs.db")
    dear, other = await new_tree(store), await new_tree(store)
    for seq in (1, 2):
        store.append(replied(dear, seq, Usage(1, 1, 1, usd=1e15)))
    store.append(warned(other, 1))
    await store.flush()
    assert [len(await read_events(store, root)) for root in (dear, other)] == [2, 1]
    assert (await known(store, dear)).tokens == 4
    await store.close()


def test_loops_that_start_at_once_share_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads would write the waiting events twice, or half of them each."""
    began: list[str] = []

    class Slow(threading.Thread):
        def __init__(self, target: Callable[[], None], name: str, daemon: bool) -> None:
            time.sleep(0.05)
            super().__init__(target=target, name=name, daemon=daemon)

        def start(self) -> None:
            began.append(self.name)
            super().start()

    worker = Worker("a writer", lambda: None, lambda: True, lambda: None)
    loops = [threading.Thread(target=worker.start) for _ in range(4)]
    monkeypatch.setattr("remit.stores.writing.worker.threading.Thread", Slow)
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    worker.stop()
    assert began == ["a writer"]
