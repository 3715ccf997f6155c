"""Attempts to leave the workspace by swapping names while a tool works: nothing outside is read or written."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from workbench import Bench

from remit.tools import built_in
from remit.tools.result import ToolResult

pytestmark = pytest.mark.real_time

TOOLS = built_in()
SECONDS = 0.4
"""How long each race runs: thousands of swaps, hundreds of calls."""


@contextmanager
def swapping(place: Path, other: Path) -> Iterator[Callable[[], int]]:
    """Swap two names again and again, by renames alone; returns a function that gives the number of swaps."""
    done = threading.Event()
    times = 0
    spare = place.with_name("spare")

    def swap() -> None:
        nonlocal times
        while not done.is_set():
            place.rename(spare)
            other.rename(place)
            spare.rename(other)
            times += 1

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield lambda: times
    finally:
        done.set()
        thread.join()


def _race(bench: Bench, call: Callable[[], ToolResult]) -> list[ToolResult]:
    results: list[ToolResult] = []
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        results.append(call())
    bench.assert_contained(*results)
    return results


@pytest.mark.parametrize("tool", ["read", "write", "ls", "glob", "grep"])
def test_a_folder_swapped_for_a_symlink(bench: Bench, tool: str) -> None:
    """A folder in the path that is swapped for a symlink to the outside, and back, gives no access outside."""
    bench.file("a/d/secret.txt", "inside\n")
    (bench.root / "a" / "link").symlink_to(bench.outside)
    args: dict[str, dict[str, object]] = {
        "read": {"path": "a/d/secret.txt"},
        "write": {"path": "a/d/new.txt", "content": "x"},
        "ls": {"path": "a", "depth": 3},
        "glob": {"pattern": "**/*.txt"},
        "grep": {"pattern": "s3cret|inside"},
    }
    with swapping(bench.root / "a" / "d", bench.root / "a" / "link") as times:
        if tool == "write":
            results = _race(bench, lambda: _write_new(bench, args["write"]))
        else:
            results = _race(bench, lambda: bench.use(TOOLS[tool], **args[tool]))
        assert times() > 20
    assert any(result.ok for result in results), "the race must be winnable by the honest side"
    if tool in ("read", "write"):
        assert any(not result.ok for result in results), "and by the swap"


def _write_new(bench: Bench, args: dict[str, object]) -> ToolResult:
    result = bench.use(TOOLS["write"], **args)
    for name in ("d", "link"):
        # Through an open folder, so that the test never removes a file that the tool wrote outside.
        with suppress(OSError):
            fd = os.open(bench.root / "a" / name, os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                os.unlink("new.txt", dir_fd=fd)
            finally:
                os.close(fd)
    return result


def test_a_file_swapped_for_a_symlink_while_it_is_read(bench: Bench) -> None:
    """A file that is swapped for a symlink to the outside, and back, is never read through the symlink."""
    bench.file("f", "inside\n")
    (bench.root / "g").symlink_to(bench.outside / "secret.txt")
    with swapping(bench.root / "f", bench.root / "g"):
        results = _race(bench, lambda: bench.use(TOOLS["read"], path="f"))
    assert any(result.ok for result in results)
    assert any(not result.ok for result in results)


def test_a_file_swapped_for_a_symlink_while_it_is_written(bench: Bench) -> None:
    """A write replaces the name itself, never the target of a symlink with that name."""
    bench.file("f", "inside\n")
    (bench.root / "g").symlink_to(bench.outside / "secret.txt")

    flips = iter(range(10**9))

    def flip() -> ToolResult:
        bench.use(TOOLS["read"], path="f")
        bench.use(TOOLS["read"], path="g")
        text = f"inside {next(flips)}\n"
        return bench.use(TOOLS["write"], path="f", content=text)

    with swapping(bench.root / "f", bench.root / "g"):
        results = _race(bench, flip)
    assert any(result.ok for result in results)


def test_a_file_swapped_for_a_fifo(bench: Bench) -> None:
    """A file that becomes a FIFO between the check and the opening does not block the call."""
    bench.file("f", "inside\n")
    os.mkfifo(bench.root / "g")
    with swapping(bench.root / "f", bench.root / "g"):
        results = _race(bench, lambda: bench.use(TOOLS["read"], path="f"))
        _race(bench, lambda: bench.use(TOOLS["grep"], pattern="inside"))
    assert {result.content for result in results if result.ok} == {"     1\tinside"}
    assert any(not result.ok for result in results)


def test_a_symlink_retargeted_while_it_is_followed(bench: Bench) -> None:
    """A symlink that points inside and outside by turns is followed only inside."""
    bench.file("in/secret.txt", "inside\n")
    (bench.root / "l").symlink_to("in")
    (bench.root / "m").symlink_to(bench.outside)
    with swapping(bench.root / "l", bench.root / "m"):
        results = _race(bench, lambda: bench.use(TOOLS["read"], path="l/secret.txt"))
        _race(bench, lambda: bench.use(TOOLS["write"], path="l/new.txt", content="x"))
    assert any(result.ok for result in results)
    assert any("outside the workspace" in result.content for result in results)
