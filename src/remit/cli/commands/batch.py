"""`remit batch`: runs one agent on the rows of a file; shows, watches, cancels, resumes and retries batches."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import anyio
import click

import remit.cli.exits as exits
import remit.cli.options as options
import remit.cli.run_lookup as run_lookup
import remit.cli.views.columns as columns
import remit.remote as remote
from remit.batches.batch import CONCURRENCY, NAME, RETRIES
from remit.batches.records import RowResult, results_of, summarise
from remit.cli.help_format import Context
from remit.cli.jobs.batch_job import BatchOptions, recall, run_batch, summary_lines, tell_summary
from remit.cli.jobs.batch_rows import read_rows
from remit.cli.jobs.setup import put_together
from remit.cli.main import Setup
from remit.errors import UsageError
from remit.history.records import Tree
from remit.tasks.signals import run_interruptible
from remit.types.outcome import Status
from remit.types.ports import Store

WATCH_S = 1.0


@click.group()
def command() -> None:
    """Run one agent on many rows, with one cap over all of them.

    Each row has its own run, named ID-1, ID-2 and so on, which `remit show` and the other commands accept.
    """


command.context_class = Context


@command.command(
    "run",
    epilog="\b\nExample:\nremit batch run files.jsonl --task 'Review {path}' --agent lead \\\n"
    "  --limits usd=0.5 --total usd=200 --id review-11",
)
@click.argument("rows", type=click.Path(dir_okay=False, path_type=Path), metavar="ROWS")
@click.option("--task", required=True, metavar="TEXT", help="The task of a row, such as 'Review {path}'.")
@click.option("--id", "name", metavar="ID", help="Names the batch; with the same id, it resumes.")
@click.option("--total", metavar="LIST", default="", help="Limits of all rows together, such as usd=200.")
@click.option(
    "--concurrency", type=click.IntRange(1), default=CONCURRENCY, show_default=True, help="Rows at once."
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    default=RETRIES,
    show_default=True,
    help="New attempts after a failure that may pass.",
)
@click.option(
    "--out",
    metavar="FILE",
    default="",
    help="Write results here, as JSON lines. Defaults to standard output.",
)
@click.option("--quiet", "-q", is_flag=True, help="Print only results.")
@options.given_options
@run_lookup.journal_option
@click.pass_obj
def run(setup: Setup, rows: Path, **given: object) -> int:
    """Run an agent on each row of a .jsonl or .csv file.

    The same command with the same --id resumes a batch.
    """
    said = BatchOptions(
        rows=str(rows.expanduser().absolute()),
        task=cast(str, given["task"]),
        run=options.read_options(given),
        total=cast(str, given["total"]),
        concurrency=cast(int, given["concurrency"]),
        retries=cast(int, given["retries"]),
        out=str(Path(cast(str, given["out"])).expanduser().absolute()) if given["out"] else "",
    )
    journal, name = cast("str | None", given["journal"]), cast("str | None", given["name"])
    return _run(setup, said, name, journal, quiet=bool(given["quiet"]))


def _run(setup: Setup, said: BatchOptions, name: str | None, journal: str | None, *, quiet: bool) -> int:
    found = read_rows(Path(said.rows))
    if not found:
        exits.wrong_use(f"{said.rows} has no rows.")
    job = put_together(said.run, setup.models, journal=journal)
    if job.journal is None:
        exits.wrong_use("A batch needs a journal: --journal URL")
    for note in () if quiet else job.notes:
        exits.tell(note)
    return run_interruptible(lambda: run_batch(job, said, found, name, quiet=quiet))


@command.command()
@click.argument("name", metavar="ID")
@click.option("--quiet", "-q", is_flag=True, help="Print only results.")
@run_lookup.journal_option
@click.pass_obj
def resume(setup: Setup, name: str, *, quiet: bool, journal: str | None) -> int:
    """Resume a batch that was stopped, with the options it was started with."""
    said, _ = asyncio.run(_recall(name, journal))
    return _run(setup, said, name, journal, quiet=quiet)


@command.command()
@click.argument("name", metavar="ID")
@click.option("--quiet", "-q", is_flag=True, help="Print only results.")
@run_lookup.journal_option
@click.pass_obj
def retry(setup: Setup, name: str, *, quiet: bool, journal: str | None) -> int:
    """Run the rows of a completed batch again that did not complete, as a new batch ID-again1."""
    said, past = asyncio.run(_recall(name, journal))
    if past.status is not Status.COMPLETED:
        exits.fail(
            f"The batch {name!r} has not completed. Resume it: {run_lookup.hint(f'batch resume {name}')}"
        )
    bad = sorted(one.number for one in results_of(past) if one.status != Status.COMPLETED)
    if not bad:
        exits.fail(f"Every row of the batch {name!r} completed.")
    first, _, times = name.partition("-again")
    numbers = tuple(said.numbers[number - 1] for number in bad) if said.numbers else tuple(bad)
    changed = BatchOptions(
        rows=said.rows,
        task=said.task,
        run=said.run,
        total=said.total,
        concurrency=said.concurrency,
        retries=said.retries,
        out=f"{said.out}.again" if said.out else "",
        numbers=numbers,
    )
    return _run(setup, changed, f"{first}-again{int(times or 0) + 1}", journal, quiet=quiet)


async def _recall(name: str, journal: str | None) -> tuple[BatchOptions, Tree]:
    async with run_lookup.opened(journal) as store:
        past = await _look(store, name)
        said = await recall(store, name)
    if said is None:
        raise UsageError(
            f"The batch {name!r} was not started with `remit batch run`: resume it from its own program."
        )
    return said, past


async def _look(store: Store, name: str) -> Tree:
    past = await remote.look(store, name)
    root = past.runs.get(name)
    if root is None or root.start.agent != NAME:
        raise UsageError(f"{name!r} is not a batch. `remit runs` lists the runs.")
    return past


def _rows_of(past: Tree) -> int:
    """The number of rows, from the task of the batch's tree: 'lead: 20 rows (fingerprint ...)'."""
    words = past.runs[past.root].task.text.rpartition(" rows (")[0].split()
    return int(words[-1]) if words and words[-1].isdigit() else 0


@command.command()
@click.argument("name", metavar="ID")
@click.option("--failed", is_flag=True, help="List only rows that did not complete.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@run_lookup.journal_option
def show(name: str, *, failed: bool, as_json: bool, journal: str | None) -> None:
    """Show a batch: its rows by status, cost, time and cause of failure."""
    past = asyncio.run(_shown(name, journal))
    results = results_of(past)
    summary = summarise(_rows_of(past), results)
    listed = sorted(
        (r for r in results if not failed or r.status != Status.COMPLETED), key=lambda r: r.number
    )
    if as_json:
        columns.echo_json({"id": name, "status": past.status, "summary": summary, "rows": listed})
        return
    for line in summary_lines(name, summary):
        click.echo(line)
    for result in listed:
        click.echo(_line(result))


async def _shown(name: str, journal: str | None) -> Tree:
    async with run_lookup.opened(journal) as store:
        return await _look(store, name)


def _line(one: RowResult) -> str:
    cost = "" if one.usd is None else f"  ${one.usd:.4f}"
    return f"{one.number:>6}  {one.status:<12} {one.tree}{cost}"


@command.command()
@click.argument("name", metavar="ID")
@run_lookup.journal_option
def watch(name: str, *, journal: str | None) -> None:
    """Watch a batch of another process until it ends."""
    asyncio.run(_watch(name, journal))


async def _watch(name: str, journal: str | None) -> None:
    async with run_lookup.opened(journal) as store:
        before = -1
        while True:
            past = await _look(store, name)
            results = results_of(past)
            if len(results) != before:
                before = len(results)
                ok = sum(one.status == Status.COMPLETED for one in results)
                exits.tell(f"{before}/{_rows_of(past)} rows, {ok} ok")
            live = any(info.live for info in await remote.infos(store, [name]))
            if past.status is not None or not live:
                break
            await anyio.sleep(WATCH_S)
    tell_summary(name, summarise(_rows_of(past), results))
    if past.status is None:
        exits.tell(f"No process runs the batch. Resume: {run_lookup.hint(f'batch resume {name}')}")


@command.command()
@click.argument("name", metavar="ID")
@click.argument("reason", nargs=-1)
@run_lookup.journal_option
def cancel(name: str, reason: tuple[str, ...], *, journal: str | None) -> None:
    """Cancel a batch and all its rows, whichever process runs them."""
    asyncio.run(_cancel(name, " ".join(reason), journal))


async def _cancel(name: str, reason: str, journal: str | None) -> None:
    async with run_lookup.opened(journal, posts=True) as store:
        await _look(store, name)
        if not await remote.cancel(store, name, reason):
            exits.fail(f"The batch {name!r} has already ended.")
    exits.tell(f"Cancel sent to {name}. Resume later: {run_lookup.hint(f'batch resume {name}')}")
