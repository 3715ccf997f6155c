"""`remit approve`: approves tool calls of runs in any process."""

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
@click.option("--run", "for_run", is_flag=True, help="Also allow this tool for the rest of the run.")
@click.option("--tree", "for_tree", is_flag=True, help="Also allow this tool for the rest of the tree.")
@click.option("--all", "every", is_flag=True, help="Approve every request of the run and its children.")
@run_lookup.journal_option
def command(*, request: str | None, for_run: bool, for_tree: bool, every: bool, journal: str | None) -> None:
    """Approve a tool call that waits for an answer, and show it.

    Name the run if it has one open request, or the request itself, such as abcde/2. Without an argument, `remit
    approve` lists all open requests.
    """
    if for_run and for_tree:
        exits.wrong_use(
            "--run and --tree cannot be combined; --tree includes --run: remit approve RUN --tree"
        )
    if request is None:
        if for_run or for_tree or every:
            exits.wrong_use(
                "Name a run: remit approve RUN --all. `remit approve` alone lists all open requests."
            )
        asyncio.run(list_waiting(journal))
        return
    decision = allow("run" if for_run else "tree" if for_tree else "once")
    asyncio.run(answer(request, decision, journal, every=every, verb="approve"))
