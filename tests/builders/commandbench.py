"""Fixtures for command tests: a home folder, a journal with trees, and `remit` as a function."""

from __future__ import annotations

import asyncio
import io
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

import remit.cli.options as options
import remit.remote as remote
from remit import Agent, Limits, Outcome, Reply, Request, start, tool
from remit.cli.main import main
from remit.cli.options import Options
from remit.stores import open_store
from remit.testing import ScriptedModel, call, calls, say
from remit.types.events import Event
from remit.types.ports import Emit, Model, Store, new_root_id

IDS = ("abcdefghjk", "mnpqrstuvw", "xyz2345678", "abcdxyz234", "qrstuvwxyz", "ghjkmnpqrs")


class Result(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str


ENCODING = "utf-8"
"""Standard output and standard error."""


class _Stream(io.StringIO):
    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] # a property will do
        return ENCODING


def remit(*args: str) -> Result:
    """`remit ARGS` in this process, without a terminal."""
    out, err = _Stream(), _Stream()
    with redirect_stdout(out), redirect_stderr(err):
        code = main(list(args))
    return Result(code, out.getvalue(), err.getvalue())


@tool
def publish(page: str) -> str:
    """Publish a page on the web site."""
    return f"{page} is public"


@tool(tier="observe")
def look(path: str) -> str:
    """Look at a place."""
    return f"{path}:\nall is well"


SCOUT = Agent("scout", description="Looks at one thing.", tools=[look])
LEAD = Agent("lead", subagents=[SCOUT], tools=[publish, look])


def two_scouts(answer: str = "All is well.") -> ScriptedModel:
    """A lead that starts two scouts and then answers."""
    both = calls(*(call("task", agent="scout", prompt=f"Look at {what}") for what in ("docs", "src")))
    return ScriptedModel({"lead": [both, say(answer)], "scout": [call("look", path="a/b.txt"), say("Fine.")]})


class Waiting:
    """A model that answers with the last user message, once it may."""

    name = "waiting"

    def __init__(self) -> None:
        self.go = threading.Event()

    async def reply(self, request: Request, emit: Emit) -> Reply:
        del emit
        while not self.go.is_set():  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(0.01)
        return Reply(f"Heard: {request.messages[-1].text}")


class Bench:
    """A journal in a temporary folder; its trees have the ids of `IDS`, in that order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'runs.db'}"
        self._ids = iter(IDS)

    def run(
        self,
        model: Model,
        task: str = "Look around",
        *,
        agent: Agent = LEAD,
        limits: Limits | None = None,
        id: str | None = None,  # noqa: A002 - it is one
        called: bool = False,
    ) -> Outcome:
        """Run a tree from start to end."""
        with self.running(model, task, agent=agent, limits=limits, id=id, called=called) as tree:
            return tree.outcome()

    @contextmanager
    def running(
        self,
        model: Model,
        task: str = "Look around",
        *,
        agent: Agent = LEAD,
        limits: Limits | None = None,
        id: str | None = None,  # noqa: A002 - as above
        called: bool = False,
    ) -> Iterator[Tree]:
        """Run a tree in a thread with its own store, as in another process. With `called` the store has a record of the
        command, as `remit run` writes it.
        """
        root = id or next(self._ids)

        async def work(tree: Tree) -> None:
            new_root_id.set(lambda: root)
            store = open_store(self.url)
            loop = asyncio.get_running_loop()
            ask = remote.ask_elsewhere
            async with start(agent, task, model=model, limits=limits, store=store, approver=ask) as running:
                await anext(aiter(running.events()))
                await store.flush(root)
                if called:
                    await options.keep(store, root, Options())
                tree.cancel = lambda: asyncio.run_coroutine_threadsafe(
                    running.cancel("the test is over"), loop
                )
                tree.begun.set()
                tree.ended = await running.outcome()
            await store.close()

        tree = Tree(root, work)
        tree.thread.start()
        try:
            assert tree.begun.wait(20)
            yield tree
        finally:
            if tree.cancel is not None and tree.ended is None:
                tree.cancel()
            tree.thread.join(20)

    def interrupted(self, model: Model | None = None, *, keep: int = 12, called: bool = False) -> str:
        """A tree whose process died after this many events; returns its id."""
        ended = self.run(model or two_scouts(), called=called)
        asyncio.run(self.cut(ended.run_id, keep))
        return ended.run_id

    async def cut(self, root: str, keep: int) -> None:
        await self._rewrite(root, lambda events: events[:keep])

    def age(self, root: str, days: float) -> None:
        """Move the tree's start this many days into the past."""

        def earlier(events: list[Event]) -> list[Event]:
            return [replace(event, at=event.at - days * 86_400) for event in events]

        asyncio.run(self._rewrite(root, earlier))

    async def _rewrite(self, root: str, change: Callable[[list[Event]], list[Event]]) -> None:
        store = open_store(self.url)
        events = [event async for event in store.read(root)]
        record = await options.recall(store, root)
        await store.delete(root)
        await store.claim(root, new=True)
        if record is not None:
            await options.keep(store, root, record)
        for event in change(events):
            store.append(event)
        await store.close()

    def events(self, root: str) -> list[Event]:
        async def read(store: Store) -> list[Event]:
            found = [event async for event in store.read(root)]
            await store.close()
            return found

        return asyncio.run(read(open_store(self.url)))


class Tree:
    """A tree that is running in a thread."""

    def __init__(self, root: str, work: Callable[[Tree], Coroutine[object, object, None]]) -> None:
        self.id = root
        self.begun = threading.Event()
        self.ended: Outcome | None = None
        self.cancel: Callable[[], object] | None = None
        """Stops the tree, from any thread."""
        self.thread = threading.Thread(target=lambda: asyncio.run(work(self)), daemon=True)

    def outcome(self) -> Outcome:
        """The outcome, once the tree has ended."""
        self.thread.join(20)
        assert self.ended is not None, "the tree has not ended"
        return self.ended

    def wait_for(self, bench: Bench, kind: type[Event], count: int = 1) -> None:
        """Wait until this many events of a kind are in the journal."""
        for _ in range(400):
            if sum(isinstance(event, kind) for event in bench.events(self.id)) >= count:
                return
            self.thread.join(0.02)
        raise AssertionError(f"there is no {kind.__name__}")


def make_bench(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Run in a folder and a home without configuration; the journal is at REMIT_JOURNAL."""
    for name in list(os.environ):
        if name.startswith(("REMIT_", "XDG_")) or name.endswith(("_API_KEY", "_BASE_URL")):
            monkeypatch.delenv(name)
    home, work = folder / "home", folder / "work"
    home.mkdir()
    work.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(work)
    bench = Bench(folder)
    monkeypatch.setenv("REMIT_JOURNAL", bench.url)
    return bench
