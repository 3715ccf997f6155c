"""`remit cancel`: cancels a run of any process and waits until it has stopped."""

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
from remit.cli.resume_hints import find_resume_hint
from remit.cli.run_lookup import NamedRun
from remit.history.records import REOPENED
from remit.types.outcome import Status
from remit.types.ports import Store

WAIT_S = 15.0
"""How long to wait for a run to stop: its tools have a grace period of some seconds."""


@click.command()
@click.argument("run", metavar="RUN", shell_complete=completion.runs)
@click.argument("reason", nargs=-1)
@click.option("--no-wait", is_flag=True, help="Do not wait until the run has stopped.")
@run_lookup.journal_option
def command(*, run: str, reason: tuple[str, ...], no_wait: bool, journal: str | None) -> None:
    """Cancel a run and its children, whichever process runs them.

    The work so far is kept. RUN is an id from `remit runs`, the beginning of an id, or `last`; an id such as abcde.2
    cancels only that child. REASON is recorded in the journal.
    """
    asyncio.run(_cancel(run, " ".join(reason), journal, wait=not no_wait))


async def _cancel(written: str, reason: str, journal: str | None, *, wait: bool) -> None:
    async with run_lookup.opened(journal, posts=True) as store:
        found, _ = await run_lookup.look(store, written)
        if not await remote.cancel(store, found.run, reason):
            # Read again: the run may have ended since.
            status = (await remote.look(store, found.run)).runs[found.run].status
            how = f"it has already ended ({_how(status)})"
            exits.fail(f"{found.short} cannot be cancelled: {how}. {await _then(store, found, status)}")
        if not found.info.live:
            exits.tell(
                f"Cancel recorded for {found.short}, which no process runs: it takes effect when the run is resumed."
                f" {await _then(store, found, None)}"
            )
        elif wait:
            await _wait(store, found)
        else:
            exits.tell(f"Cancel sent to {found.short}.")


async def _wait(store: Store, found: NamedRun) -> None:
    with anyio.move_on_after(WAIT_S):
        tree = await follow(store, found)
        status = tree.runs[found.run].status
        how = "was cancelled" if status is Status.CANCELLED else f"ended: {_how(status)}"
        exits.tell(f"{found.short} {how}. {await _then(store, found, status)}")
        return
    exits.tell(
        f"Cancel sent to {found.short}, which has not stopped yet. Watch: {run_lookup.hint(f'watch {found.short}')}"
    )


def _how(status: Status | None) -> str:
    return words.status_words(status) if status else "its process is gone"


async def _then(store: Store, found: NamedRun, status: Status | None) -> str:
    if found.is_root and (status is None or status in REOPENED):
        return f"Resume: {await find_resume_hint(store, found)}"
    return f"Details: {run_lookup.hint(f'show {found.short}')}"
