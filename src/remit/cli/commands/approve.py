"""`remit approve`: says yes to what a run of any process asks for."""

from __future__ import annotations

import asyncio

import click

import remit.cli.completion as completion
import remit.cli.exits as exits
import remit.cli.run_lookup as run_lookup
from remit.cli.jobs.approval_answers import answer, list_waiting
from remit.tools.policy import allow


@click.command()
@click.argument("request", metavar="[RUN|REQUEST]", required=False, shell_complete=completion.runs)
@click.option("--run", "for_run", is_flag=True, help="Allow this tool for the rest of that run.")
@click.option("--tree", "for_tree", is_flag=True, help="Allow this tool for the rest of the whole tree.")
@click.option("--all", "every", is_flag=True, help="Everything that the run and those below it wait for.")
@run_lookup.journal_option
def command(*, request: str | None, for_run: bool, for_tree: bool, every: bool, journal: str | None) -> None:
    """Say yes to what a run asks for, and show what that is.

    A run's id is enough while it waits for one answer; otherwise name the request, such as abcde/2. Without either,
    everything that waits is listed and nothing is answered.
    """
    if for_run and for_tree:
        exits.wrong_use(
            "--run and --tree do not go together; --tree is the wider one: remit approve RUN --tree"
        )
    if request is None:
        if for_run or for_tree or every:
            exits.wrong_use("Say which run: remit approve RUN --all. `remit approve` alone lists what waits.")
        asyncio.run(list_waiting(journal))
        return
    decision = allow("run" if for_run else "tree" if for_tree else "once")
    asyncio.run(answer(request, decision, journal, every=every, verb="approve"))
