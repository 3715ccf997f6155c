"""`remit demo`: surveys a folder with the offline rules, to show a tree of agents without an API key."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import anyio
import click

import remit.cli.completion as completion
import remit.cli.exits as exits
import remit.cli.run_lookup as run_lookup
import remit.observe.words as words
from remit.cli.jobs.launch import launch
from remit.cli.jobs.setup import put_together
from remit.cli.options import Options, Showing, output_options, read_showing
from remit.errors import ModelError
from remit.models.offline import Offline
from remit.types.limits import Usage
from remit.types.messages import Reply, Request
from remit.types.ports import Emit

TASK = "Survey this folder and report what is in it."
PACE_S = 0.35
"""The least delay of a reply, so that people can watch the tree."""


class Paced(Offline):
    """The offline rules with a delay, so that people can watch. Without it they answer at once."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def reply(self, request: Request, emit: Emit) -> Reply:
        # The delay depends on the run's place in the tree: branches differ, as with models, but every demo is the same.
        try:
            await anyio.sleep(self._seconds * (1 + sum(map(ord, request.run_id[10:])) % 5))
        except anyio.get_cancelled_exc_class():
            # Without a reported usage the engine would estimate the tokens of a stopped call; rules use none.
            raise ModelError("stopped", kind="connection", usage=Usage(requests=1, usd=0.0)) from None
        return await super().reply(request, emit)


@click.command()
@click.argument("folder", required=False, metavar="[FOLDER]", shell_complete=completion.folders)
@click.option("--fast", is_flag=True, help="Run without the delays that make the tree easy to watch.")
@output_options
@run_lookup.journal_option
def command(folder: str | None, *, fast: bool, journal: str | None, **given: object) -> int:
    """Survey a folder offline: a demo without an API key.

    A lead agent delegates each part of FOLDER to a subagent and reports what is in it. Engine, tools and limits are
    real; only the model is replaced by a set of rules, which costs nothing. The demo only reads files. FOLDER defaults
    to the current folder.
    """
    place = Path(folder or ".").expanduser().absolute()
    if not place.is_dir():
        exits.wrong_use(f"{folder!r} is not a folder. Usage: remit demo [FOLDER]")
    showing = read_showing(given)
    watched = words.is_terminal(sys.stderr) and not fast and not showing.quiet
    return asyncio.run(_demo(place, showing, journal, PACE_S if watched else 0.0))


async def _demo(place: Path, showing: Showing, journal: str | None, pace: float) -> int:
    options = Options(survey=True, workspace=str(place), model="offline")
    job = put_together(options, {"offline": Paced(pace)}, journal=journal)
    if not showing.quiet:
        exits.tell(
            f"Surveying {place} with built-in rules instead of a model: no API key, no network, no cost."
        )
    code = await launch(job, TASK, showing)
    if not showing.quiet and job.journal is not None:
        where = run_lookup.Journal(job.journal, "").where
        exits.tell(
            f"The run is stored in {where}.\nAll runs: remit runs\nWith a real model: remit run 'your task'"
        )
    return code
