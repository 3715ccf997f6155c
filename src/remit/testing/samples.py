"""Sample events, commands and helpers for the checks of stores."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from typing import TypedDict

import anyio

from remit.errors import StoreError
from remit.types.commands import Send
from remit.types.events import VERSION, Event, ReplyReceived, RunEnded, RunStarted, Warned, Where
from remit.types.limits import Usage
from remit.types.messages import Json, Reply, user
from remit.types.outcome import Outcome, Status
from remit.types.ports import Store, TreeInfo


class Head(TypedDict):
    """The fields that every event has."""

    seq: int
    at: float
    where: Where
    v: int


def head(root: str, seq: int, run: str = "") -> Head:
    """The header of an event of the root or of its child. Event 7 happens at 1007 seconds."""
    if run and run != root:
        where = Where(run, root, root, 1, ("lead", "worker"), "worker")
    else:
        where = Where(root, None, root, 0, ("lead",), "lead")
    return Head(seq=seq, at=1000.0 + seq, where=where, v=VERSION)


def started(root: str, seq: int, *, task: str = "a task") -> RunStarted:
    return RunStarted(task=user(task), **head(root, seq))


def warned(root: str, seq: int, text: str = "mind the gap") -> Warned:
    return Warned(text=text, **head(root, seq))


def replied(root: str, seq: int, usage: Usage) -> ReplyReceived:
    return ReplyReceived(turn=1, reply=Reply("yes", usage=usage), usage=usage, **head(root, seq))


def ended(
    root: str, seq: int, *, run: str = "", status: Status = Status.COMPLETED, output: Json = None
) -> RunEnded:
    return RunEnded(
        outcome=Outcome(status=status, agent="lead", run_id=run or root, output=output),
        **head(root, seq, run),
    )


def send(root: str, command: str) -> Send:
    return Send(id=command, at=1.0, run=root, text=f"text of {command}")


def new_id() -> str:
    return f"t{secrets.token_hex(6)}"


async def new_tree(store: Store) -> str:
    """A claimed tree without events."""
    root = new_id()
    await store.claim(root, new=True)
    return root


async def read_events(store: Store, root: str, after: int = 0) -> list[Event]:
    return [event async for event in store.read(root, after)]


async def info(store: Store, root: str) -> TreeInfo | None:
    return next((line for line in await store.trees() if line.root == root), None)


async def known(store: Store, root: str) -> TreeInfo:
    line = await info(store, root)
    assert line is not None, f"{root} is not listed"
    return line


async def refused(use: Awaitable[object], name: str = "", kind: type[StoreError] = StoreError) -> StoreError:
    """Await something that must raise, and return its StoreError."""
    try:
        await use
    except kind as error:
        speaks(error, name)
        return error
    raise AssertionError(f"the store did not raise {kind.__name__}")


def speaks(error: StoreError, name: str) -> None:
    """Check that an error's message is a sentence that names the tree."""
    assert name in str(error), f"the message does not name {name}: {error}"
    assert " " in str(error), f"the message is not a sentence: {error}"


async def stream(pieces: Iterable[str]) -> AsyncIterator[str]:
    for piece in pieces:
        yield piece


@asynccontextmanager
async def second(make: Callable[[], Awaitable[Store]]) -> AsyncGenerator[Store]:
    """Open the same location again."""
    store = await make()
    try:
        yield store
    finally:
        await store.close()


async def together(work: Iterable[Coroutine[object, object, None]]) -> None:
    """Run all coroutines concurrently until the last has ended."""

    async def one(part: Coroutine[object, object, None]) -> None:
        await part

    async with anyio.create_task_group() as group:
        for part in work:
            group.start_soon(one, part)
