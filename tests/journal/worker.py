"""The program that is killed.

With a job as its argument, it does that job. Without one, it reads jobs from its input and forks a process for each, so
that modules are imported only once; the forking process runs no job itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import os
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Literal

import msgspec
from crashing import Crashing
from msgspec import Struct
from players import AGENTS, HttpModel, Life, pause, publish

import remit.stores.owner as owner
import remit.stores.writing.pages as pages
import remit.stores.writing.writer as writer
from remit import ApprovalRequest, Outcome, RemitError, Store, allow, resume, run
from remit.tools.policy import Decision
from remit.types.ports import new_root_id

ROOT = "tree"
"""Every story has its own store, so all trees can have the same id."""


class Job(Struct, kw_only=True):
    """One life of a story."""

    id: int
    resumes: bool
    folder: str
    agent: str
    port: int
    life: int
    point: str = ""
    """The point at which to kill the process; "none" only lists the points."""
    approver: Literal["allows", "never answers"] = "allows"
    lease_s: float = 0.0
    """A shorter lease, if a test waits for its end."""


class Result(Struct, kw_only=True):
    """The result of a job that was not killed."""

    outcome: Outcome | None = None
    error: str = ""
    message: str = ""
    places: list[str] = []


class Told(Struct):
    """A message of the forking process: a job's pid, then its exit status."""

    id: int
    pid: int
    status: int | None = None


async def perform(job: Job) -> Result:
    folder = Path(job.folder)
    path = folder / "runs.db"
    store: Store | str = f"sqlite:///{path}"
    if job.point:
        store = Crashing(path, job.point)
    try:
        outcome = await _go(job, store)
    except RemitError as error:
        return Result(error=type(error).__name__, message=str(error))
    if not isinstance(store, Crashing):
        return Result(outcome=outcome)
    await store.close()
    return Result(outcome=outcome, places=store.places)


async def _go(job: Job, store: Store | str) -> Outcome:
    agent, life = AGENTS[job.agent], Life(Path(job.folder), job.life)
    model = HttpModel(job.port, job.folder.strip("/"), job.life)
    approver = _allows if job.approver == "allows" else _never_answers
    policy = ["allow write"]
    if job.resumes:
        return await resume(
            store, ROOT, agent=agent, model=model, approver=approver, policy=policy, deps=life
        )
    new_root_id.set(lambda: ROOT)
    return await run(agent, "Begin.", model=model, store=store, approver=approver, policy=policy, deps=life)


async def _allows(_: ApprovalRequest) -> Decision:
    return allow()


async def _never_answers(_: ApprovalRequest) -> Decision:
    await asyncio.Event().wait()
    raise AssertionError


def do(job: Job) -> None:
    """Do a job in this process, and write its result to a file."""
    if job.lease_s:
        owner.LEASE_S = pages.LEASE_S = job.lease_s
        owner.HEARTBEAT_S = writer.HEARTBEAT_S = job.lease_s / 5
    result = asyncio.run(perform(job))
    file = Path(job.folder) / f"result{job.life}.json"
    part = file.with_suffix(".part")
    part.write_bytes(msgspec.json.encode(result))
    part.rename(file)


def fork(job: Job) -> int:
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        errors = os.open(Path(job.folder) / f"stderr{job.life}.txt", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(nothing, 0)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        do(job)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def serve() -> None:
    """Fork a process for each line of input, and report how it ended. The end of the input ends all processes."""
    _warm_up()
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    jobs: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([0, awake], [], [])
        if awake in ready:
            os.read(awake, 4096)
            _bury(jobs)
        if 0 in ready:
            line = sys.stdin.buffer.raw.readline()  # pyright: ignore[reportAttributeAccessIssue]
            if not line:
                break
            job = msgspec.json.decode(line, type=Job)
            pid = fork(job)
            jobs[pid] = job.id
            _tell(Told(job.id, pid))
    for pid in jobs:
        os.kill(pid, signal.SIGKILL)


def _warm_up() -> None:
    """Import modules that are otherwise imported on first use. Must not start a thread: the process forks."""
    for name in (
        "anyio._backends._asyncio",
        "jsonschema",
        "pydantic",
        "remit.stores.memory",
        "sqlite3",
        "encodings.ascii",
    ):
        importlib.import_module(name)
    publish.check({"what": "nothing"})
    pause.check({"step": 1})
    gc.freeze()


def _bury(jobs: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            _tell(Told(jobs.pop(pid), pid, os.waitstatus_to_exitcode(status)))


def _tell(told: Told) -> None:
    os.write(1, msgspec.json.encode(told) + b"\n")


if __name__ == "__main__":
    if sys.argv[1:]:
        do(msgspec.json.decode(sys.argv[1], type=Job))
    else:
        serve()
