"""`remit deny`: says no to what a run of any process asks for."""

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
@click.option("--all", "every", is_flag=True, help="Everything that the run and those below it wait for.")
@run_lookup.journal_option
def command(*, request: str | None, reason: tuple[str, ...], every: bool, journal: str | None) -> None:
    """Say no to what a run asks for; its model reads the REASON and goes on.

    A run's id is enough while it waits for one answer; otherwise name the request, such as abcde/2. Without either,
    everything that waits is listed and nothing is answered.
    """
    if request is None:
        asyncio.run(list_waiting(journal))
        return
    asyncio.run(answer(request, deny(" ".join(reason)), journal, every=every, verb="deny"))
