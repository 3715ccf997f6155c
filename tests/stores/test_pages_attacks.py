"""Attacks on pages: damage in the middle, what changes late, finalizers, tables that are looked at by people."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from remit.errors import StoreError
from remit.events import Event
from remit.stores.sqlite import SqliteStore
from remit.testing.specimens import new_tree, warned

pytestmark = pytest.mark.real_time


def change(path: Path, sql: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql, values).fetchall()


async def two_pages(path: Path) -> str:
    """A tree whose events 1 to 3 and 5 to 8 are in a page each."""
    store = SqliteStore(path)
    root = await new_tree(store)
    for seqs in (range(1, 4), range(5, 9)):
        for seq in seqs:
            store.append(warned(root, seq))
        await store.flush()
    await store.close()
    return root


async def read_some(path: Path, root: str, after: int = 0) -> tuple[list[int], str]:
    """The numbers of what can be read, and what is said of the rest."""
    store = SqliteStore(path)
    found: list[Event] = []
    said = ""
    try:
        async for event in store.read(root, after):
            found.append(event)  # noqa: PERF401 - what came before the error counts
    except StoreError as error:
        said = str(error)
    await store.close()
    return [event.seq for event in found], said


NEWER = '{"kind":"not_known_yet","seq":%s}'


@pytest.mark.parametrize(
    ("damage", "after", "left", "named"),
    [
        (lambda lines: [NEWER % 5, *lines[1:]], 0, [1, 2, 3], "5"),
        (lambda lines: ["garbage", *lines[1:]], 0, [1, 2, 3], "4"),
        (lambda lines: ["garbage", *lines[1:]], 3, [], "4"),
        (lambda lines: [",".join(lines)], 0, [1, 2, 3], "4"),
        (lambda lines: [*lines[:1], "{", *lines[2:]], 0, [1, 2, 3, 5], "6"),
        (lambda lines: lines[:2], 0, [1, 2, 3, 5, 6], "8"),
        (lambda _: [], 0, [1, 2, 3], "8"),
        # What nobody asked for is in nobody's way.
        (lambda lines: [NEWER % 5, *lines[1:]], 5, [6, 7, 8], ""),
        (lambda lines: ["garbage", *lines[1:]], 6, [7, 8], ""),
        (lambda lines: ["", *lines, ""], 0, [1, 2, 3, 5, 6, 7, 8], ""),
    ],
)
async def test_nothing_is_left_out_of_a_damaged_page_without_a_word(
    tmp_path: Path, damage: Callable[[list[str]], list[str]], after: int, left: list[int], named: str
) -> None:
    """A history with a hole in it would be taken for the truth, wherever in its page the damage is."""
    path = tmp_path / "runs.db"
    root = await two_pages(path)
    ((data,),) = change(path, "SELECT data FROM remit_pages WHERE last = 8")
    lines = "\n".join(damage(str(data).split("\n")))
    change(path, "UPDATE remit_pages SET data = ? WHERE last = 8", lines)
    found, said = await read_some(path, root, after)
    assert found == left
    assert (f"cannot be read: {named} of the run" in said) if named else not said
