"""`remit send`: sends a message to a run of any process."""

from __future__ import annotations

import asyncio
import sys

import click

import remit.cli.completion as completion
import remit.cli.exits as exits
import remit.cli.run_lookup as run_lookup
import remit.remote as remote
from remit.cli.options import recall
from remit.cli.resume_hints import continue_hint, find_resume_hint


@click.command()
@click.argument("run", metavar="RUN", shell_complete=completion.runs)
@click.argument("text", nargs=-1, required=True)
@run_lookup.journal_option
def command(*, run: str, text: tuple[str, ...], journal: str | None) -> None:
    """Send a message to a run; its model reads it in the next turn.

    RUN is an id from `remit runs`, the beginning of an id, or `last`; abcde.2 is a child. TEXT may be - to read the
    message from standard input.
    """
    said = sys.stdin.read() if text == ("-",) else " ".join(text)
    if not said.strip():
        exits.wrong_use("The message is empty. Write: remit send RUN TEXT")
    asyncio.run(_send(run, said, journal))


async def _send(written: str, text: str, journal: str | None) -> None:
    async with run_lookup.opened(journal, posts=True) as store:
        found, tree = await run_lookup.look(store, written)
        if tree.runs[found.run].start.program:
            exits.fail(f"{found.short} ({tree.runs[found.run].agent}) is a program: it takes no messages.")
        if not await remote.send(store, found.run, text):
            called = await recall(store, found.info.root)
            # Read again: the run may have ended since.
            status = (await remote.look(store, found.run)).runs[found.run].status
            exits.fail(
                f"{found.short} has ended ({status}), so it cannot receive messages."
                f" Continue its conversation: {continue_hint(called, found.short.partition('.')[0])}"
            )
        if found.info.live:
            exits.tell(f"Sent to {found.short} ({tree.runs[found.run].agent}), for its next turn.")
        else:
            exits.tell(
                f"Stored: no process runs {found.short}. Its model reads the message after a resume:"
                f" {await find_resume_hint(store, found)}"
            )
