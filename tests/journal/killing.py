"""Stories for the kill tests: a tree run by one process after another, until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from model_server import Asked, ModelServer
from players import OUTSIDE
from worker import ROOT, Job, Result, Told

from remit import Outcome
from remit.stores.sqlite import SqliteStore
from remit.types.commands import AnyCommand
from remit.types.events import AnyEvent, Event
from remit.types.ports import TreeInfo

E = TypeVar("E", bound=Event)

Say = Callable[[str], None]

PATIENCE_S = 60.0
"""Timeout for operations that take milliseconds, on a busy machine."""


PROGRAM = [sys.executable, str(Path(__file__).with_name("worker.py"))]


def environment() -> dict[str, str]:
    """Environment variables that make the program import the same remit as the tests."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def until(what: Callable[[], Any], words: str) -> Any:
    """The result of `what` as soon as it is true."""
    end = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < end, f"timed out waiting for {words}"
        time.sleep(0.003)
    return found


class Child:
    """A process that does a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.pid = 0
        self.status: int | None = None
        self.began = threading.Event()
        self.ended = threading.Event()

    def signal(self, number: signal.Signals) -> None:
        # The process may have just ended by itself.
        if not self.ended.is_set():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self) -> int:
        assert self.ended.wait(PATIENCE_S), f"process {self.pid} does not end"
        assert self.status is not None
        return self.status


class Workers:
    """The forking process and its children."""

    def __init__(self) -> None:
        self._children: dict[int, Child] = {}
        self._process = subprocess.Popen(
            PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()
        )
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def start(self, job: Job) -> Child:
        assert self._process.stdin is not None
        with self._lock:
            job.id = len(self._children)
            child = self._children[job.id] = Child(job)
            self._process.stdin.write(msgspec.json.encode(job) + b"\n")
            self._process.stdin.flush()
        assert child.began.wait(PATIENCE_S), "the forking process does not answer"
        return child

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            told = msgspec.json.decode(line, type=Told)
            child = self._children[told.id]
            child.pid, child.status = told.pid, told.status
            (child.began if told.status is None else child.ended).set()


class Stage:
    """Everything that all stories share."""

    def __init__(self, folder: Path) -> None:
        self.server = ModelServer()
        self.workers = Workers()
        self._folder = folder
        self._stories = 0
        self._lock = threading.Lock()

    def story(self, agent: str = "lead", *, pace_s: float = 0.0) -> Story:
        with self._lock:
            self._stories += 1
            folder = self._folder / f"story{self._stories}"
        folder.mkdir()
        story = Story(self, folder, agent)
        self.server.paces[story.name] = pace_s
        return story

    def close(self) -> None:
        self.workers.close()
        self.server.close()


class Story:
    """One tree in its own store. Each process that runs it is one of its lives."""

    def __init__(self, stage: Stage, folder: Path, agent: str) -> None:
        self.stage = stage
        self.folder = folder
        self.name = str(folder).strip("/")
        self.path = folder / "runs.db"
        self.agent = agent
        self.lives = 0
        self.left: list[list[AnyEvent]] = []
        """The journal after each kill."""

    def job(self, *, resumes: bool, **options: Any) -> Job:
        self.lives += 1
        return Job(
            id=0,
            resumes=resumes,
            folder=str(self.folder),
            agent=self.agent,
            port=self.stage.server.port,
            life=self.lives,
            **options,
        )

    def run(self, **options: Any) -> Child:
        return self.stage.workers.start(self.job(resumes=False, **options))

    def resume(self, **options: Any) -> Child:
        return self.stage.workers.start(self.job(resumes=True, **options))

    def run_alone(self, *, resumes: bool, **options: Any) -> int:
        """Run a life in a new interpreter; returns its exit status."""
        job = msgspec.json.encode(self.job(resumes=resumes, **options)).decode()
        return subprocess.run([*PROGRAM, job], env=environment(), check=False, timeout=PATIENCE_S).returncode

    def go_on(self, **options: Any) -> Child:
        """Resume the tree, or run it again if it was killed before anything was written."""
        return self.resume(**options) if self.left[-1] else self.run(**options)

    def killed(self, child: Child) -> None:
        """Wait for a process that is being killed, and keep its journal."""
        status = child.wait()
        assert status == -signal.SIGKILL, f"it ended with {status}: {self.errors(child)}"
        until(lambda: self.stage.server.is_quiet(self.name), "the server")
        self.left.append(self.events())

    def kill(self, child: Child) -> None:
        child.signal(signal.SIGKILL)
        self.killed(child)

    def result(self, child: Child) -> Result:
        """The result of a process that was not killed."""
        status = child.wait()
        assert status == 0, f"it ended with {status}: {self.errors(child)}"
        return self.read_result(child.job.life)

    def read_result(self, life: int) -> Result:
        data = (self.folder / f"result{life}.json").read_bytes()
        return msgspec.json.decode(data, type=Result)

    def outcome(self, child: Child) -> Outcome:
        result = self.result(child)
        assert result.outcome is not None, f"{result.error}: {result.message}"
        return result.outcome

    def errors(self, child: Child) -> str:
        return (self.folder / f"stderr{child.job.life}.txt").read_text("utf-8")

    def events(self) -> list[AnyEvent]:
        """The journal on disk."""

        async def read(store: SqliteStore) -> list[Event]:
            return [event async for event in store.read(ROOT)]

        return self._with(read) if self.path.exists() else []

    def wait_for(self, kind: type[E], count: int = 1) -> E:
        """The event number `count` of a kind, once it is on disk."""

        def look() -> list[E]:
            return [event for event in self.events() if isinstance(event, kind)][count - 1 :]

        return until(look, f"{kind.__name__} number {count}")[0]

    def wait_for_more(self, than: int) -> None:
        until(lambda: len(self.events()) > than, "more events")

    def post(self, command: AnyCommand) -> None:
        self._with(lambda store: store.post(ROOT, command))

    def info(self) -> TreeInfo:
        return self._with(lambda store: store.trees())[0]

    def asked(self) -> list[Asked]:
        return list(self.stage.server.logs[self.name])

    def outside(self) -> list[tuple[str, int]]:
        """The actions of the tools, each with the number of its life."""
        file = self.folder / OUTSIDE
        lines = file.read_text("utf-8").splitlines() if file.exists() else []
        return [(line.rpartition(" ")[0], int(line.rpartition(" ")[2])) for line in lines]

    def _with(self, use: Callable[[SqliteStore], Any]) -> Any:
        async def go() -> Any:
            store = SqliteStore(self.path)
            try:
                return await use(store)
            finally:
                await store.close()

        return asyncio.run(go())
