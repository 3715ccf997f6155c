"""One thread adds a tree's lines and another takes them, without a lock: none is lost, duplicated or out of order."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from remit.errors import StoreError
from remit.stores.sql.database import Trouble
from remit.stores.sqlite import SqliteLink, SqliteStore
from remit.stores.writing.lines import LINE_BYTES, line_of
from remit.stores.writing.waiting import Claim
from remit.testing.samples import head, new_tree, read_events, refused, started, warned
from remit.types.event_json import encode
from remit.types.events import Event, TurnStarted

pytestmark = pytest.mark.real_time


def turn(root: str, seq: int) -> TurnStarted:
    return TurnStarted(turn=1, **head(root, seq))


@pytest.fixture
def hasty() -> Iterator[None]:
    """Make threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
async def test_lines_added_during_a_take_are_taken_once_and_in_order() -> None:
    claim, found = Claim("r", 0), list[int]()
    lines = [line_of(turn("r", seq)) for seq in range(1, 50_001)]

    def add() -> None:
        for line in lines:
            claim.add(line)

    adding = threading.Thread(target=add)
    adding.start()
    while adding.is_alive() or claim.lines:
        found += [line.seq for line in claim.take()]
    adding.join()
    assert found == [line.seq for line in lines]
    assert claim.size == 0


@pytest.mark.parametrize("event", [warned("r", 2, "x" * 1_000), started("r", 2, task="é" * 1_000)])
async def test_waiting_lines_are_counted_until_they_are_taken(event: Event) -> None:
    claim = Claim("r", 0)
    given = [turn("r", 1), event]
    for one in given:
        claim.add(line_of(one))
    assert claim.size == 2 * LINE_BYTES + sum(len(encode(one)) for one in given)
    assert len(claim.take()) == 2
    assert claim.size == 0


@pytest.mark.parametrize(
    "text", ["words " * 4_000, "words " * 4_000 + "\N{EM DASH}", "é" * 9_000, "\N{GRINNING FACE}" * 5_000]
)
def test_the_size_of_a_long_event_is_accurate(text: str) -> None:
    """One non-ASCII character must not quadruple the counted size: a slow store would refuse the end of a tree."""
    assert line_of(started("r", 1, task=text)).size == pytest.approx(len(text.encode()), rel=0.1)


async def test_no_line_is_taken_after_giving_up() -> None:
    """Lines added before the error was noticed would follow a gap."""
    claim = Claim("r", 0)
    claim.add(line_of(turn("r", 1)))
    first = StoreError("The disk is gone.")
    claim.give_up(first)
    claim.add(line_of(turn("r", 2)))
    claim.give_up(StoreError("The network is gone."))
    assert claim.take() == []
    assert claim.error is first
    assert claim.size == 0


@pytest.mark.usefixtures("hasty")
async def test_trees_of_two_loops_in_one_store(tmp_path: Path) -> None:
    """Each tree has its own thread; a flush covers the events added before it, even if others add events meanwhile."""
    store = SqliteStore(tmp_path / "runs.db")
    found: dict[str, list[int]] = {}

    async def live() -> None:
        root = await new_tree(store)
        for seq in range(1, 2_001):
            store.append(turn(root, seq) if seq % 7 else warned(root, seq))
            if not seq % 500:
                await store.flush(root)
                assert [event.seq for event in await read_events(store, root)] == list(range(1, seq + 1))
        found[root] = [event.seq for event in await read_events(store, root)]
        await store.release(root)

    others = [threading.Thread(target=lambda: asyncio.run(live())) for _ in range(2)]
    for other in others:
        other.start()
    await live()
    for other in others:
        await asyncio.to_thread(other.join)
    await store.close()
    assert list(found.values()) == [list(range(1, 2_001))] * 3


async def test_a_tree_released_during_an_error_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its release reported that the events are late, not that they are lost."""
    monkeypatch.setattr("remit.stores.writing.writer.PATIENCE_S", 0.3)
    store = SqliteStore(tmp_path / "runs.db")
    root, other = await new_tree(store), await new_tree(store)
    sound, passed = SqliteLink.commit, threading.Event()

    def commit(link: SqliteLink) -> None:
        if not passed.is_set():
            raise Trouble("It is locked.", passing=True)
        sound(link)

    monkeypatch.setattr(SqliteLink, "commit", commit)
    store.append(turn(root, 1))
    await asyncio.sleep(0.05)
    # The first event was taken and could not be written; this one was not taken yet.
    store.append(turn(root, 2))
    assert "locked" in str(await refused(store.release(root)))
    passed.set()
    store.append(turn(other, 1))
    await store.flush(other)
    assert [event.seq for event in await read_events(store, root)] == [1, 2]
    await store.close()
