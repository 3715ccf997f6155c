"""`remit cancel`: stops a run of any process, and says when it has stopped."""

from __future__ import annotations

import asyncio

import anyio
import click

import remit.cli.completion as completion
import remit.cli.exits as exits
import remit.cli.run_lookup as run_lookup
import remit.observe.words as words
import remit.remote as remote
from remit.cli.follow import follow
from remit.cli.resume_hints import find_way_on
from remit.cli.run_lookup import NamedRun
from remit.history.records import REOPENED
from remit.types.outcome import Status
from remit.types.ports import Store

WAIT_S = 15.0
"""How long a run is given to stop: its tools have a grace of some seconds."""


@click.command()
@click.argument("run", metavar="RUN", shell_complete=completion.runs)
@click.argument("reason", nargs=-1)
@click.option("--no-wait", is_flag=True, help="Do not wait until it has stopped.")
@run_lookup.journal_option
def command(*, run: str, reason: tuple[str, ...], no_wait: bool, journal: str | None) -> None:
    """Stop a run and everything below it, whichever process runs it.

    What it had done by then is kept. RUN is an id as `remit runs` shows it, the beginning of one, or `last`;
    with an id such as abcde.2 only that child is stopped. REASON is for whoever reads of it later.
    """
    asyncio.run(_cancel(run, " ".join(reason), journal, wait=not no_wait))


async def _cancel(written: str, reason: str, journal: str | None, *, wait: bool) -> None:
    async with run_lookup.opened(journal, posts=True) as store:
        found, _ = await run_lookup.look(store, written)
        if not await remote.cancel(store, found.run, reason):
            # Looked at again: it may have ended since.
            status = (await remote.look(store, found.run)).runs[found.run].status
            how = f"it ended before ({words.status_words(status)})" if status else "no process runs it"
            exits.fail(f"{found.short} cannot be cancelled: {how}. {await _then(store, found, status)}")
        if wait:
            await _wait(store, found)
        else:
            exits.tell(f"{found.short} was asked to stop.")


async def _wait(store: Store, found: NamedRun) -> None:
    with anyio.move_on_after(WAIT_S):
        tree = await follow(store, found)
        status = tree.runs[found.run].status
        how = "was cancelled" if status is Status.CANCELLED else f"ended: {_how(status)}"
        exits.tell(f"{found.short} {how}. {await _then(store, found, status)}")
        return
    exits.tell(
        f"{found.short} was asked to stop, and has not stopped yet. See: {run_lookup.hint(f'watch {found.short}')}"
    )


def _how(status: Status | None) -> str:
    return words.status_words(status) if status else "its process is gone"


async def _then(store: Store, found: NamedRun, status: Status | None) -> str:
    if found.is_root and (status is None or status in REOPENED):
        return f"To go on with it: {await find_way_on(store, found)}"
    return f"See: {run_lookup.hint(f'show {found.short}')}"
