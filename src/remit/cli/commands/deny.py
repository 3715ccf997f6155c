"""`remit deny`: denies tool calls of runs in any process."""

from __future__ import annotations

import asyncio

import click

import remit.cli.completion as completion
import remit.cli.run_lookup as run_lookup
from remit.cli.jobs.approval_answers import answer, list_waiting
from remit.tools.policy import deny


@click.command()
@click.argument("request", metavar="[RUN|REQUEST]", required=False, shell_complete=completion.runs)
@click.argument("reason", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Deny every request of the run and its children.")
@run_lookup.journal_option
def command(*, request: str | None, reason: tuple[str, ...], every: bool, journal: str | None) -> None:
    """Deny a tool call that waits for an answer. The run continues; its model reads the REASON.

    Name the run if it has one open request, or the request itself, such as abcde/2. Without an argument, `remit
    deny` lists all open requests.
    """
    if request is None:
        asyncio.run(list_waiting(journal))
        return
    asyncio.run(answer(request, deny(" ".join(reason)), journal, every=every, verb="deny"))
