"""Answers approval requests of other processes: finds and shows them, and waits until the answer has arrived."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import anyio

import remit.cli.exits as exits
import remit.cli.run_lookup as run_lookup
import remit.cli.views.columns as columns
import remit.observe.words as words
import remit.remote as remote
from remit.cli.resume_hints import find_resume_hint
from remit.cli.run_lookup import NamedRun, short_request
from remit.cli.views.summary import subtree
from remit.engine.terminal_prompt import in_words
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.events import ApprovalAnswered
from remit.types.ports import Store

HEARD_S = 3.0
"""How long to wait until the process that runs the tree has received the answer."""


async def answer(written: str, decision: Decision, journal: str | None, *, every: bool, verb: str) -> None:
    """Answer the named request, or all requests of a run. `verb` is the command."""
    async with run_lookup.opened(journal, posts=True) as store:
        found, waiting, after = await _waiting(store, written)
        if len(waiting) > 1 and not every:
            exits.wrong_use("\n".join(_several(found, waiting, verb)))
        posted = [request for request in waiting if await _post(store, found, request, decision)]
        if posted:
            await _tell_heard(store, found, posted, decision, after)


async def _waiting(store: Store, written: str) -> tuple[NamedRun, list[ApprovalRequest], int]:
    """The run, its matching requests, and the number of its last event. Ends the command if none match."""
    name, request = run_lookup.split_request(written)
    found, tree = await run_lookup.look(store, name)
    asked = subtree(tree, found.run).requests
    waiting = [one for one in await remote.waiting(store, found.info.root) if one.id in asked]
    if request:
        waiting = [one for one in waiting if one.id == f"{found.info.root}/{request}"]
    if not waiting:
        what = short_request(request, found.short) if request else found.short
        if request:
            exits.fail(f"{what} is not open: it was answered, or never asked.")
        exits.fail(f"{what} has no open request. Details: {run_lookup.hint(f'show {found.short}')}")
    return found, waiting, tree.seq


def _several(found: NamedRun, waiting: Sequence[ApprovalRequest], verb: str) -> Iterable[str]:
    yield f"{found.short} has {len(waiting)} open requests. Name one of them, or add --all:"
    for request in waiting:
        yield ""
        yield run_lookup.hint(f"{verb} {short_request(request.id, found.short)}")
        yield from (f"  {line}" for line in in_words(request).split("\n"))


async def _post(store: Store, found: NamedRun, request: ApprovalRequest, decision: Decision) -> bool:
    """Print the request and answer it; False if it was answered before."""
    exits.tell(in_words(request, whole=True))
    if decision.allowed:
        done = await remote.approve(store, request.id, scope=decision.scope)
    else:
        done = await remote.refuse(store, request.id, decision.reason)
    if not done:
        exits.tell(f"{short_request(request.id, found.short)} was answered by someone else in the meantime.")
    return done


async def _tell_heard(
    store: Store, found: NamedRun, posted: Sequence[ApprovalRequest], decision: Decision, after: int
) -> None:
    open_requests = {request.id for request in posted}
    root = found.short.partition(".")[0]
    if not found.info.live:
        exits.tell(
            f"Stored: no process runs {root}. The answer applies after a resume: {await find_resume_hint(store, found)}"
        )
        return
    with anyio.move_on_after(HEARD_S):
        while open_requests:
            async for event in store.read(found.info.root, after):
                after = event.seq
                if isinstance(event, ApprovalAnswered) and event.request in open_requests:
                    open_requests.discard(event.request)
                    exits.tell(_heard(event, decision, short_request(event.request, root)))
            if open_requests:
                await anyio.sleep(0.1)
    for request in sorted(open_requests):
        exits.tell(f"{short_request(request, root)}: answer stored; the process has not read it yet.")


def _heard(event: ApprovalAnswered, decision: Decision, short: str) -> str:
    if event.stopped:
        return f"{short}: the run stopped before the answer arrived."
    if event.allowed != decision.allowed:
        return f"{short}: someone else answered first: {'allowed' if event.allowed else 'denied'}."
    scope = "" if event.scope == "once" else f" for the rest of the {event.scope}"
    return f"{short}: {'allowed' if event.allowed else 'denied'}{scope}."


async def list_waiting(journal: str | None) -> None:
    """Print the open requests of all running trees."""
    async with run_lookup.opened(journal) as store:
        trees = await store.trees()
        shorts = run_lookup.short_ids(info.root for info in trees)
        count = 0
        for info in trees:
            for request in await remote.waiting(store, info.root) if info.live else ():
                count += 1
                columns.echo(f"{short_request(request.id, shorts[info.root])}\n{in_words(request)}\n")
    if count:
        exits.tell(f"{words.count(count, 'request')}. Answer with: remit approve ID, or remit deny ID REASON")
    else:
        exits.tell("No open approval requests.")
