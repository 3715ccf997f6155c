"""Asking something of a tree that another process runs, through the store that both can reach.

    import remit.remote as remote
    await remote.cancel("sqlite", run_id, "changed my mind")

The process that runs the tree obeys within half a second. What is sent or answered while nobody runs it waits
for whoever resumes it; a cancel does not.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

import anyio

import remit.checks as checks
from remit.commands import Answer, AnyCommand, Cancel, Send
from remit.errors import UsageError
from remit.events import ApprovalRequested
from remit.history import Tree
from remit.policy import ApprovalRequest, Decision, deny
from remit.ports import Store, new_command_id
from remit.stores import open_store
from remit.tree import fold


async def cancel(store: Store | str, run: str, reason: str = "", *, by: str = "") -> None:
    """Stop a run and everything below it."""
    await _post(
        store, run, Cancel(id=new_command_id(), at=time.time(), by=by or _me(), run=run, reason=reason)
    )


async def send(store: Store | str, run: str, text: str, *, by: str = "") -> None:
    """Have a message join that run's next turn."""
    if not text.strip():
        raise UsageError("send() needs a non-empty text.")
    await _post(store, run, Send(id=new_command_id(), at=time.time(), by=by or _me(), run=run, text=text))


async def approve(
    store: Store | str, request: str, *, scope: Literal["once", "run", "tree"] = "once", by: str = ""
) -> None:
    """Say yes to an approval request, by its id: to this call, or to the tool for the rest of the run or tree."""
    await _answer(store, request, Decision(allowed=True, scope=scope), by)


async def refuse(store: Store | str, request: str, reason: str = "", *, by: str = "") -> None:
    """Say no to an approval request; the model reads the reason."""
    await _answer(store, request, deny(reason), by)


async def waiting(store: Store | str, run: str) -> list[ApprovalRequested]:
    """The approvals that a tree waits for, oldest first."""
    return list((await look(store, run)).requests.values())


async def look(store: Store | str, run: str) -> Tree:
    """What the store has of a tree, whoever runs it. Raises StoreError for an unknown one."""
    root = run.partition(".")[0]
    async with _opened(store) as found:
        tree = fold([event async for event in found.read(root)])
        if not tree.runs:
            # Begun this moment, or unknown: of an unknown one no store knows the commands, and says so.
            await found.commands(root, 0, wait=False)
    return tree


async def ask_elsewhere(request: ApprovalRequest) -> Decision:
    """An approver that leaves the answer to other processes: `run(..., approver=ask_elsewhere)`."""
    del request
    await anyio.sleep_forever()
    return deny()


async def _answer(store: Store | str, request: str, decision: Decision, by: str) -> None:
    if "/" not in request:
        raise UsageError(f"{request!r} is not the id of an approval request, such as 'abcdefghjk/approval1'.")
    answer = Answer(
        id=new_command_id(),
        at=time.time(),
        by=by or _me(),
        request=request,
        allowed=decision.allowed,
        scope=decision.scope,
        reason=decision.reason,
    )
    await _post(store, request.partition("/")[0], answer)


async def _post(store: Store | str, run: str, command: AnyCommand) -> None:
    async with _opened(store) as found:
        await found.post(run.partition(".")[0], command)


@asynccontextmanager
async def _opened(store: Store | str) -> AsyncGenerator[Store]:
    """The store; one that was opened here is closed here."""
    if not isinstance(store, str):
        yield checks.check_store(store)
        return
    found = open_store(store)
    try:
        yield found
    finally:
        await found.close()


def _me() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):
        return f"process {os.getpid()}"
