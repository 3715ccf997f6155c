"""Drivers that are killed or frozen: every row has one outcome, and no more requests are sent than are counted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import remit.remote as remote
from remit.stores import open_store

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(180)]

SCRIPT = Path(__file__).parent / "batch_driver.py"
ROWS = 40
TURNS = 3
SEEDS = [int(seed) for seed in os.environ.get("REMIT_BATCH_SEEDS", "1 2").split()]


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/runs.db"


def drive(url: str, folder: Path, total: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(SCRIPT), url, str(folder), str(ROWS), str(total)])


def sent(folder: Path) -> Counter[str]:
    path = folder / "requests"
    return Counter(line.split()[0] for line in path.read_text().splitlines()) if path.exists() else Counter()


def wait_for(folder: Path, count: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while sent(folder).total() < count and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)


async def counted(url: str) -> Counter[str]:
    store = open_store(url)
    try:
        names = [f"killed-{n}{retry}" for n in range(1, ROWS + 1) for retry in ("", "r1", "r2")]
        return Counter({info.root: info.requests for info in await remote.infos(store, names)})
    finally:
        await store.close()


def rows_of(folder: Path, process: subprocess.Popen[bytes]) -> list[list[str]]:
    return [line.split() for line in (folder / f"rows-{process.pid}").read_text().splitlines()]


@pytest.mark.parametrize("seed", SEEDS)
async def test_killed_drivers(url: str, tmp_path: Path, seed: int) -> None:
    """A batch whose drivers are killed at random moments ends with one outcome per row; lost calls are topped up."""
    chance, total = random.Random(seed), ROWS * TURNS + 60
    for _ in range(2):
        process = drive(url, tmp_path, total)
        try:
            wait_for(tmp_path, sent(tmp_path).total() + chance.randrange(5, 45), process)
        finally:
            process.kill()
            process.wait()
    last = drive(url, tmp_path, total)
    try:
        assert last.wait(90) == 0
    finally:
        last.kill()
        last.wait()
    rows = rows_of(tmp_path, last)
    assert sorted(int(number) for number, _ in rows) == list(range(1, ROWS + 1)), f"seed {seed}"
    assert {ok for _, ok in rows} == {"True"}, f"seed {seed}"
    requests, known = sent(tmp_path), await counted(url)
    assert all(requests[tree] <= known[tree] for tree in requests), f"seed {seed}"
    assert ROWS * TURNS <= requests.total() <= known.total() <= total, f"seed {seed}"


async def test_a_frozen_driver_that_wakes_sends_nothing(url: str, tmp_path: Path) -> None:
    """A driver that is frozen and replaced sends nothing after it wakes, and the total holds for both together."""
    total = ROWS * TURNS + 30
    frozen = drive(url, tmp_path, total)
    other: subprocess.Popen[bytes] | None = None
    try:
        while True:
            wait_for(tmp_path, sent(tmp_path).total() + 10, frozen)
            frozen.send_signal(signal.SIGSTOP)
            before = _pids(tmp_path)[frozen.pid]
            # Longer than the lease.
            time.sleep(2.5)  # noqa: ASYNC251 - as above
            other = drive(url, tmp_path, total)
            wait_for(tmp_path, sent(tmp_path).total() + 1, other)
            if other.poll() is None:
                break
            # It was frozen inside a transaction and blocks the store: freeze it at another moment.
            frozen.send_signal(signal.SIGCONT)
        frozen.send_signal(signal.SIGCONT)
        frozen.wait(60)
        assert other.wait(90) == 0
    finally:
        for process in (frozen, other):
            if process is not None:
                process.kill()
                process.wait()
    assert other is not None
    # Up to eight requests were past their check when the driver was frozen.
    assert _pids(tmp_path)[frozen.pid] <= before + 8
    rows = rows_of(tmp_path, other)
    assert sorted(int(number) for number, _ in rows) == list(range(1, ROWS + 1))
    requests, known = sent(tmp_path), await counted(url)
    assert all(requests[tree] <= known[tree] for tree in requests)
    assert requests.total() <= known.total() <= total


def _pids(folder: Path) -> Counter[int]:
    return Counter(int(line.split()[1]) for line in (folder / "requests").read_text().splitlines())
