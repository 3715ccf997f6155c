"""The daemon threads that sync tools run in."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path

import pytest

import remit
import remit.tasks.threads as threads

pytestmark = pytest.mark.real_time

colour: ContextVar[str] = ContextVar("colour", default="none")


async def until(true: Callable[[], bool]) -> None:
    """Wait until `true()` holds: a thread needs a moment after its last visible action."""
    for _ in range(2000):
        if true():
            return
        await asyncio.sleep(0.001)
    pytest.fail("the condition never became true")


class Gate:
    """A function that blocks in its thread until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.thread: threading.Thread | None = None

    def __call__(self) -> str:
        self.thread = threading.current_thread()
        self.entered.set()
        self.opened.wait()
        return "opened"


async def test_a_job_returns_the_value_of_its_function() -> None:
    """The function runs in a daemon thread, and its value is returned on the loop."""
    job = threads.start(threading.current_thread, asyncio.get_running_loop())
    await job.wait()
    assert job.result() is not threading.current_thread()
    assert job.result().daemon


@pytest.mark.parametrize(
    "error", [ValueError("no"), StopIteration(), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()]
)
async def test_every_exception_of_a_function_becomes_the_jobs_error(error: BaseException) -> None:
    """No exception ends the worker or the loop or looks like a cancel: it becomes the job's error."""

    def raising() -> None:
        raise error

    job = threads.start(raising, asyncio.get_running_loop())
    await job.wait()
    assert job.error is error
    assert job.done_future.exception() is None
    with pytest.raises(type(error)):
        job.result()


async def test_a_result_before_the_end_raises() -> None:
    """`result()` raises before the function has ended."""
    gate = Gate()
    job = threads.start(gate, asyncio.get_running_loop())
    with pytest.raises(RuntimeError, match="has not ended"):
        job.result()
    gate.opened.set()
    await job.wait()
    assert job.result() == "opened"


async def test_a_job_has_a_copy_of_the_callers_context() -> None:
    """The function sees the caller's context variables, and the caller does not see the function's changes."""
    colour.set("red")

    def look() -> str:
        seen = colour.get()
        colour.set("blue")
        return seen

    job = threads.start(look, asyncio.get_running_loop())
    await job.wait()
    assert (job.result(), colour.get()) == ("red", "red")


async def test_an_idle_worker_is_used_again() -> None:
    """Jobs one after the other share a thread."""
    seen: set[int] = set()
    for _ in range(20):
        job = threads.start(threading.get_ident, asyncio.get_running_loop())
        await job.wait()
        seen.add(job.result())
    assert len(seen) == 1


async def test_the_number_of_idle_threads_is_limited() -> None:
    """More jobs than idle threads run at the same time; afterwards only a limited number of threads stays."""
    before = set(threading.enumerate())
    loop = asyncio.get_running_loop()
    gates = [Gate() for _ in range(threads.IDLE_KEPT + 20)]
    jobs = [threads.start(gate, loop) for gate in gates]
    await until(lambda: all(gate.entered.is_set() for gate in gates))
    assert threads.busy() == threads.busy(loop) == len(gates)
    for gate in gates:
        gate.opened.set()
    for job in jobs:
        await job.wait()
    await until(lambda: len(set(threading.enumerate()) - before) <= threads.IDLE_KEPT)
    await until(lambda: threads.busy() == 0)


async def test_a_cancelled_wait_does_not_affect_the_job() -> None:
    """A job can be waited for again after a cancelled wait: only `abandon` gives a job up."""
    gate = Gate()
    job = threads.start(gate, asyncio.get_running_loop())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(job.wait(), 0.001)
    gate.opened.set()
    await job.wait()
    assert job.result() == "opened"


async def test_an_abandoned_job_is_named_and_not_busy_and_its_thread_ends() -> None:
    """An abandoned job counts as abandoned until its function ends; its thread is not used again."""
    gate = Gate()
    loop = asyncio.get_running_loop()
    job = threads.start(gate, loop, name="slow_tool")
    await until(gate.entered.is_set)
    job.abandon()
    assert (threads.busy(loop), threads.abandoned()) == (0, ["slow_tool"])
    other = threads.start(threading.current_thread, loop)
    await other.wait()
    assert other.result() is not gate.thread
    gate.opened.set()
    await until(lambda: threads.abandoned() == [])
    await until(lambda: gate.thread is not None and not gate.thread.is_alive())
    assert not job.done_future.done()


async def test_abandoning_a_job_that_ended_changes_nothing() -> None:
    """The result stays, and the job does not count as abandoned."""
    job = threads.start(lambda: 1, asyncio.get_running_loop())
    await job.wait()
    job.abandon()
    await until(lambda: threads.abandoned() == [])
    assert job.result() == 1


def test_a_job_may_end_after_its_loop_is_closed() -> None:
    """A job that ends after its loop was closed raises nothing."""
    gate = Gate()

    async def leave() -> None:
        threads.start(gate, asyncio.get_running_loop())

    asyncio.run(leave())
    gate.opened.set()
    asyncio.run(until(lambda: threads.busy() == 0))


def test_the_process_exits_with_a_job_that_never_ends() -> None:
    """Neither an abandoned job nor a running one keeps the process alive."""
    program = (
        "import asyncio, threading\n"
        "import remit.tasks.threads as threads\n"
        "async def main():\n"
        "    loop = asyncio.get_running_loop()\n"
        "    threads.start(threading.Event().wait, loop).abandon()\n"
        "    threads.start(threading.Event().wait, loop)\n"
        "    print(threads.busy(), len(threads.abandoned()))\n"
        "asyncio.run(main())\n"
    )
    room = str(Path(remit.__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": room},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout.split(), ended.stderr) == (0, ["1", "1"], "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_starts_new_threads() -> None:
    """After a fork, jobs are not given to threads that exist only in the parent."""
    program = (
        "import asyncio, os\n"
        "import remit.tasks.threads as threads\n"
        "async def main():\n"
        "    job = threads.start(lambda: 7, asyncio.get_running_loop())\n"
        "    await job.wait()\n"
        "    return job.result()\n"
        "asyncio.run(main())\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(asyncio.run(main()))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    room = str(Path(remit.__file__).parents[1])
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": room},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["7"])


async def test_a_thread_that_waits_for_its_own_loop_is_not_busy() -> None:
    """Inside `waiting()` a thread is not busy for its loop, and is busy again as soon as the loop calls the function."""
    loop, begun, gate = asyncio.get_running_loop(), threading.Event(), threading.Event()
    told: list[Callable[[], None]] = []

    def work() -> None:
        with threads.waiting() as go_on:
            told.append(go_on)
            begun.set()
            gate.wait(10)

    job = threads.start(work, loop)
    await until(begun.is_set)
    assert (threads.busy(loop), threads.busy()) == (0, 1)
    told[0]()
    assert threads.busy(loop) == 1
    gate.set()
    await job.wait()
