"""`remit demo`: the offline rules survey a folder, so that there is a tree to be seen without a key."""

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
from remit.cli.options import Options, Showing, read_showing, showing_options
from remit.errors import ModelError
from remit.models.offline import Offline
from remit.types.limits import Usage
from remit.types.messages import Reply, Request
from remit.types.ports import Emit

TASK = "Survey this folder and report what is in it."
PACE_S = 0.35
"""What each reply takes, so that the tree can be watched."""


class Paced(Offline):
    """The offline rules at the pace of a person who looks on. They answer at once otherwise."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def reply(self, request: Request, emit: Emit) -> Reply:
        # Each branch at a pace of its own, as models are; by its place, so that it is the same every time.
        try:
            await anyio.sleep(self._seconds * (1 + sum(map(ord, request.run_id[10:])) % 5))
        except anyio.get_cancelled_exc_class():
            # Of a call that is stopped it is assumed that what was sent has been read and counted; rules read nothing.
            raise ModelError("stopped", kind="connection", usage=Usage(requests=1, usd=0.0)) from None
        return await super().reply(request, emit)


@click.command()
@click.argument("folder", required=False, metavar="[FOLDER]", shell_complete=completion.folders)
@click.option(
    "--fast", is_flag=True, help="As quickly as it can. Otherwise it takes a few seconds, to be watched."
)
@showing_options
@run_lookup.journal_option
def command(folder: str | None, *, fast: bool, journal: str | None, **given: object) -> int:
    """Survey a folder without a key: the offline demonstration.

    A lead has surveyors look at each part of FOLDER (the current one if none is named), and reports. It is the real
    engine with real tools and limits; only the model is a set of rules, which costs nothing. Nothing is changed.
    """
    place = Path(folder or ".").expanduser().absolute()
    if not place.is_dir():
        exits.wrong_use(f"{folder!r} is not a folder. Write: remit demo [FOLDER]")
    showing = read_showing(given)
    watched = words.is_terminal(sys.stderr) and not fast and not showing.quiet
    return asyncio.run(_demo(place, showing, journal, PACE_S if watched else 0.0))


async def _demo(place: Path, showing: Showing, journal: str | None, pace: float) -> int:
    options = Options(survey=True, workspace=str(place), model="offline")
    job = put_together(options, {"offline": Paced(pace)}, journal=journal)
    if not showing.quiet:
        exits.tell(f"Surveyors look at {place}. The model is a set of rules: no key, no network, no cost.")
    code = await launch(job, TASK, showing)
    if not showing.quiet and job.journal is not None:
        where = run_lookup.Journal(job.journal, "").where
        exits.tell(
            f"The run is kept in {where}. All runs: remit runs. With a real model: remit run 'your task'"
        )
    return code
