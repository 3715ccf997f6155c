"""Control a tree that another process runs, through a store that both processes can open.

    import remit.remote as remote
    await remote.cancel("sqlite", run_id, "changed my mind")

The process that runs the tree obeys within half a second. If no process runs the tree, commands wait until a process
resumes the tree. A function returns False if the command would have no effect: the run has ended and cannot resume, or
the request was already answered. Every function raises StoreError for an unknown run.
"""

from __future__ import annotations

import getpass
import os
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Literal, cast

import anyio

import remit.engine.checks as checks
from remit.errors import StoreError, UsageError
from remit.history.fold import fold
from remit.history.records import REOPENED, Tree
from remit.stores import open_store
from remit.tools.policy import ApprovalRequest, Decision, allow, deny
from remit.types.commands import Answer, AnyCommand, Cancel, Send
from remit.types.ports import Store, TreeInfo, new_command_id


async def cancel(store: Store | str, run: str, reason: str = "", *, by: str = "") -> bool:
    """Stop a run and everything below it. If no process runs an unfinished tree, it stops when it is resumed."""
    why = _text("reason", reason)
    command = Cancel(id=new_command_id(), at=time.time(), by=_who(by), run=_text("run", run), reason=why)
    async with _opened(store) as found:
        if "." in run:
            return await _post(found, run, command, lambda tree: _is_open(tree, run))
        # The list knows whether a root has ended: the events, which may be many, need not be read.
        if any(info.status is not None for info in await infos(found, [run])):
            return False
        await found.post(run, command)
        return True


async def send(store: Store | str, run: str, text: str, *, by: str = "") -> bool:
    """Send a message to a run; it joins the run's next turn."""
    if not _text("text", text).strip():
        raise UsageError("send() needs a non-empty text.")
    command = Send(id=new_command_id(), at=time.time(), by=_who(by), run=run, text=text)
    return await _post(store, run, command, lambda tree: _has_next_turn(tree, run))


async def approve(
    store: Store | str, request: str, *, scope: Literal["once", "run", "tree"] = "once", by: str = ""
) -> bool:
    """Approve a request by its id: this call only, or the tool for the rest of the run or tree (`scope`)."""
    return await _answer(store, request, allow(scope), by)


async def refuse(store: Store | str, request: str, reason: str = "", *, by: str = "") -> bool:
    """Deny a request by its id; the model reads the reason."""
    return await _answer(store, request, deny(_text("reason", reason)), by)


async def waiting(store: Store | str, run: str) -> list[ApprovalRequest]:
    """The approval requests that a tree waits for, oldest first."""
    tree = await look(store, run)
    found: list[ApprovalRequest] = []
    for event in tree.requests.values():
        record = tree.runs[event.run]
        call = record.find(event.call)
        found.append(
            ApprovalRequest(
                id=event.request,
                path=event.path,
                agent=event.agent,
                task=record.task.text,
                tool=event.tool,
                args=call.args if call is not None and isinstance(call.args, dict) else {},
                total_usage=tree.usage(),
                preview=event.preview,
                rules=tuple(filter(None, event.reasons)),
            )
        )
    return found


async def look(store: Store | str, run: str) -> Tree:
    """The tree as the store has recorded it, whichever process runs it."""
    root = _text("run", run).partition(".")[0]
    async with _opened(store) as found:
        tree = fold([event async for event in found.read(root)])
        if not tree.runs:
            # The tree has only just been claimed, or it is unknown: commands() raises for an unknown tree.
            await found.commands(root, 0, wait=False)
    return tree


async def infos(store: Store, roots: Sequence[str]) -> list[TreeInfo]:
    """The summaries of these trees, in any order; unknown trees and trees without events are left out."""
    named = getattr(store, "trees_named", None)
    if callable(named):
        return await cast("Callable[[Sequence[str]], Awaitable[list[TreeInfo]]]", named)(roots)
    wanted = set(roots)
    return [info for info in await store.trees() if info.root in wanted]


async def ask_elsewhere(request: ApprovalRequest) -> Decision:
    """An approver that waits for an answer from another process: `run(..., approver=ask_elsewhere)`."""
    del request
    await anyio.sleep_forever()
    return deny()


async def _answer(store: Store | str, request: str, decision: Decision, by: str) -> bool:
    if "/" not in _text("request", request):
        raise UsageError(f"{request!r} is not the id of an approval request, such as 'abcdefghjk/approval1'.")
    answer = Answer(
        id=new_command_id(),
        at=time.time(),
        by=_who(by),
        request=request,
        allowed=decision.allowed,
        scope=decision.scope,
        reason=decision.reason,
    )
    return await _post(store, request.partition("/")[0], answer, lambda tree: request in tree.requests)


async def _post(
    store: Store | str, run: str, command: AnyCommand, has_effect: Callable[[Tree], bool]
) -> bool:
    async with _opened(store) as found:
        tree = await look(found, _text("run", run))
        # A tree without events has only just been claimed: the process that runs it will read the command.
        if tree.runs and not has_effect(tree):
            return False
        await found.post(run.partition(".")[0], command)
    return True


def _is_open(tree: Tree, run: str) -> bool:
    if run not in tree.runs:
        raise StoreError(f"No run {run!r} in the tree {tree.root!r}.")
    return tree.runs[run].outcome is None


def _has_next_turn(tree: Tree, run: str) -> bool:
    """Whether the run will have another turn, now or after a resume. A program has no turns."""
    if tree.runs[run].start.program:
        return False
    open_now = _is_open(tree, run)
    return open_now or (tree.status in REOPENED and tree.runs[run].status in REOPENED)


@asynccontextmanager
async def _opened(store: Store | str) -> AsyncGenerator[Store]:
    """The store; closed on exit if it was opened here."""
    if not isinstance(store, str):
        yield checks.check_store(store)
        return
    found = open_store(store)
    try:
        yield found
    finally:
        await found.close()


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} must be a string, not {value!r}.")
    return value


def _who(by: object) -> str:
    """Who sends the command; "the user" avoids confusion with an agent of the same name."""
    if _text("by", by):
        return str(by)
    try:
        return f"the user {getpass.getuser()}"
    except (OSError, KeyError, ImportError):
        return f"process {os.getpid()}"
