"""Ctrl-C in `run_sync`. `make torture` runs the long versions (REMIT_INTERRUPTS, REMIT_INTERRUPT_LINES, REMIT_SEED)."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import remit
from remit.tasks.signals import run_interruptible

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send")

PROGRAM = Path(__file__).parent.parent / "builders" / "interrupted.py"
INTERRUPTS = int(os.environ.get("REMIT_INTERRUPTS", "12"))
LINES = int(os.environ.get("REMIT_INTERRUPT_LINES", "6"))
SEED = int(os.environ.get("REMIT_SEED", "1"))
KINDS = ["trees", "wait", "trees", "thread", "trees", "sleep", "trees", "swallow"]
AT_ONCE = 2
STOPPED_S = 4.0
"""Less than the 5 s that code may take to end after the first Ctrl-C."""
HANGS_S = 30.0


@contextmanager
def program(*args: object) -> Generator[subprocess.Popen[str]]:
    command = [sys.executable, str(PROGRAM), *map(str, args)]
    env = {"PYTHONPATH": str(Path(remit.__file__).parents[1])}
    started = subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


def line(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    return started.stdout.readline().strip()


def problem(started: subprocess.Popen[str]) -> str:
    """How the end of the program differs from a plain KeyboardInterrupt; empty if it does not."""
    try:
        out, err = started.communicate(timeout=HANGS_S)
    except subprocess.TimeoutExpired:
        return "it hangs"
    out = out.replace("ready\n", "")
    return "" if (out, err, started.returncode) == ("interrupted\n", "", 0) else f"{out!r} {err}"


def problems(attempts: int, attempt: Callable[[int], str]) -> list[str]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = pool.map(attempt, range(attempts))
        return [f"attempt {number}: {words}" for number, words in enumerate(found) if words]


@pytest.mark.parametrize("kind", ["wait", "thread", "sleep", "busy", "swallow", "swallow_all"])
def test_the_second_ctrl_c_stops_at_once(kind: str) -> None:
    """Law 4: the second Ctrl-C ends `run_sync`, whatever code the tree runs, and prints no error."""
    with program(kind) as started:
        assert (line(started), line(started)) == ("started", "ready")
        started.send_signal(signal.SIGINT)
        time.sleep(0.05)
        started.send_signal(signal.SIGINT)
        sent = time.monotonic()
        assert problem(started) == ""
        assert time.monotonic() - sent < STOPPED_S


@pytest.mark.parametrize("kind", ["wait", "swallow"])
def test_one_ctrl_c_stops_in_order(kind: str) -> None:
    """Law 4: after one Ctrl-C, `run_sync` raises KeyboardInterrupt once the tree has stopped."""
    with program(kind) as started:
        assert (line(started), line(started)) == ("started", "ready")
        started.send_signal(signal.SIGINT)
        assert problem(started) == ""


@pytest.mark.timeout(60 + INTERRUPTS * 5)
def test_two_ctrl_c_at_random_moments() -> None:
    """Law 4: two SIGINTs at any moments give the caller KeyboardInterrupt, and the process never hangs."""

    def attempt(number: int) -> str:
        chance = random.Random(SEED * 1_000_000 + number)
        kind = KINDS[number % len(KINDS)]
        first, second = chance.uniform(0, 0.5), chance.choice([0.0, 0.001, 0.01, 0.1]) * chance.random()
        if kind == "sleep":
            # The kernel merges two signals that arrive together, and one signal does not end code that blocks the loop.
            second += 0.5
        with program(kind) as started:
            assert line(started) == "started"
            for delay in (first, second):
                time.sleep(delay)
                started.send_signal(signal.SIGINT)
            found = problem(started)
        return found and f"{kind}, {first:.4f} s and {second:.4f} s: {found}"

    assert problems(INTERRUPTS, attempt) == []


@pytest.mark.timeout(60 + LINES * 5)
def test_two_ctrl_c_at_chosen_lines() -> None:
    """Law 4: the same, with each SIGINT at a line of the engine. The second SIGINTs are spread over a whole run."""
    with program("lines") as started:
        last = int(started.communicate(timeout=HANGS_S)[0])

    def attempt(number: int) -> str:
        chance = random.Random(SEED * 1_000_000 + number)
        second = 1 + number * last // LINES
        first = chance.randint(max(1, second - chance.choice([0, 10, 100, last])), second)
        with program("trees", first, second) as started:
            assert line(started) == "started"
            found = problem(started)
        return found and f"lines {first} and {second} of {last}: {found}"

    assert problems(LINES, attempt) == []


def test_another_sigint_handler_is_kept() -> None:
    """A program with its own SIGINT handler keeps it while `run_sync` runs."""
    seen: list[int] = []

    async def look() -> object:
        signal.raise_signal(signal.SIGINT)
        return signal.getsignal(signal.SIGINT)

    def own(number: int, frame: object) -> None:
        seen.append(number)

    before = signal.signal(signal.SIGINT, own)
    try:
        assert run_interruptible(look) is own
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_outside_the_main_thread_signals_are_not_handled() -> None:
    """Only the main thread can handle signals; in other threads the coroutine still runs."""

    async def look() -> object:
        return signal.getsignal(signal.SIGINT)

    found: list[object] = []
    other = threading.Thread(target=lambda: found.append(run_interruptible(look)))
    other.start()
    other.join()
    assert found == [signal.getsignal(signal.SIGINT)]


def test_a_result_does_not_hide_an_interrupt() -> None:
    """A SIGINT that arrives while the coroutine returns its result is not lost."""

    async def work() -> str:
        signal.raise_signal(signal.SIGINT)
        return "done"

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_interruptible(work)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
