"""`remit watch`: shows a tree that another process runs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

import anyio
import click

import remit.cli.completion as completion
import remit.cli.exits as exits
import remit.cli.run_lookup as run_lookup
import remit.cli.standard_streams as standard_streams
import remit.cli.views.columns as columns
import remit.remote as remote
from remit.cli.follow import follow, is_live
from remit.cli.resume_hints import find_resume_hint
from remit.cli.run_lookup import LAST, NamedRun, short_request
from remit.engine.terminal_prompt import in_words
from remit.history.records import REOPENED, Tree
from remit.observe.display.open_display import Display, open_display
from remit.observe.display.tree_view import TreeView
from remit.types.ports import Store

PAINT_S = 0.1


@click.command()
@click.argument("run", metavar="[RUN]", required=False, default=LAST, shell_complete=completion.runs)
@click.option("--plain", is_flag=True, help="Print plain lines instead of a live tree.")
@click.option("--quiet", "-q", is_flag=True, help="Wait for the end and print only the answer.")
@run_lookup.journal_option
def command(*, run: str, plain: bool, quiet: bool, journal: str | None) -> int:
    """Watch a run from another terminal, from its first event to its end.

    RUN is an id from `remit runs`, the beginning of an id, or `last`. Defaults to `last`. With a child's id, watching
    ends when that child ends. Approval requests are shown with the command that answers them. Ctrl-C stops the
    watching, not the run. The exit code is the run's.
    """
    # The hint names the id: `last` may mean another run by then.
    watched: list[NamedRun] = []
    try:
        return asyncio.run(_watch(run, journal, watched.append, plain=plain, quiet=quiet))
    except KeyboardInterrupt:
        for found in watched:
            exits.tell(f"The run continues. To cancel it: {run_lookup.hint(f'cancel {found.short}')}")
        return exits.CANCELLED


async def _watch(
    written: str, journal: str | None, tell: Callable[[NamedRun], None], *, plain: bool, quiet: bool
) -> int:
    """`tell` receives the watched run once it is known."""
    async with run_lookup.opened(journal) as store:
        found = run_lookup.find(await store.trees(), written)
        tell(found)
        if not found.is_root:
            await run_lookup.look(store, written)
        view = TreeView()
        view.stands = not found.info.live
        display = open_display(view, quiet=quiet, plain=plain)
        display.begin()
        try:
            tree = await _show(store, found, display)
        finally:
            display.end()
        return await _tell_end(store, found, tree)


async def _show(store: Store, found: NamedRun, display: Display) -> Tree:
    view, tree = display.view, Tree()

    def alive() -> None:
        view.stands = False

    async with anyio.create_task_group() as group:
        group.start_soon(_paint, store, found, display)
        group.start_soon(_end_unread, group.cancel_scope)
        tree = await follow(store, found, display.feed, alive)
        group.cancel_scope.cancel()
    if standard_streams.reader_is_gone(sys.stdout):
        raise BrokenPipeError
    if tree.status is None and not await is_live(store, found.info.root):
        view.end()
    return tree


async def _end_unread(scope: anyio.CancelScope) -> None:
    await standard_streams.until_unread()
    scope.cancel()


async def _paint(store: Store, found: NamedRun, display: Display) -> None:
    """Draw changes, and print how to answer new approval requests."""
    told: set[str] = set()
    while True:
        display.paint()
        new = display.view.tree.requests.keys() - told
        for request in await remote.waiting(store, found.info.root) if new else ():
            if request.id in new:
                short = short_request(request.id, found.short)
                display.note(
                    f"{in_words(request)}\nAnswer: {run_lookup.hint(f'approve {short}')}, or {run_lookup.hint(f'deny {short} REASON')}"
                )
        told |= new
        await anyio.sleep(PAINT_S)


async def _tell_end(store: Store, found: NamedRun, tree: Tree) -> int:
    """Print the answer to standard output, as `remit run` does; returns the exit code."""
    if found.run not in tree.runs:
        exits.fail(f"{found.short} is no longer in the journal: it was deleted.")
    outcome = tree.outcomes()[found.run]
    if tree.runs[found.run].outcome is None:
        root = found.short.partition(".")[0]
        exits.tell(f"No process runs {root} any more. Resume: {await find_resume_hint(store, found)}")
    elif not outcome.ok and found.is_root and outcome.status in REOPENED:
        exits.tell(f"Resume: {await find_resume_hint(store, found)}")
    answer = outcome.text or outcome.partial
    if answer:
        columns.echo_answer(answer)
    return exits.BY_STATUS[outcome.status]
