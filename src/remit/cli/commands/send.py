"""`remit send`: a message for a run of any process."""

from __future__ import annotations

import asyncio
import sys

import click

import remit.cli.exits as exits
import remit.cli.run_lookup as run_lookup
import remit.remote as remote
from remit.cli.options import recall
from remit.cli.resume_hints import find_way_on, way_to_ask


@click.command()
@click.argument("run", metavar="RUN")
@click.argument("text", nargs=-1, required=True)
@run_lookup.journal_option
def command(*, run: str, text: tuple[str, ...], journal: str | None) -> None:
    """Send a message to a run; it joins that run's next turn.

    RUN is an id as `remit runs` shows it, the beginning of one, or `last`; an id such as abcde.2 is a child's.
    TEXT may be - to read it from standard input.
    """
    said = sys.stdin.read() if text == ("-",) else " ".join(text)
    if not said.strip():
        exits.wrong_use("There is nothing to send. Write the message: remit send RUN TEXT")
    asyncio.run(_send(run, said, journal))


async def _send(written: str, text: str, journal: str | None) -> None:
    async with run_lookup.opened(journal, posts=True) as store:
        found, tree = await run_lookup.look(store, written)
        if tree.runs[found.run].start.program:
            exits.fail(f"{found.short} ({tree.runs[found.run].agent}) is a program: it takes no messages.")
        if not await remote.send(store, found.run, text):
            called = await recall(store, found.info.root)
            # Looked at again: it may have ended since.
            status = (await remote.look(store, found.run)).runs[found.run].status
            exits.fail(
                f"{found.short} has ended ({status}) and has no turn to come."
                f" To ask more: {way_to_ask(called, found.short.partition('.')[0])}"
            )
        if found.info.live:
            exits.tell(f"Sent: it joins the next turn of {found.short} ({tree.runs[found.run].agent}).")
        else:
            exits.tell(
                f"Kept: no process runs {found.short}, so it joins when that goes on:"
                f" {await find_way_on(store, found)}"
            )
