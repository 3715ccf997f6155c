"""`remit runs`: lists the trees of the journal, one line each."""

from __future__ import annotations

import asyncio
import platform
import time

import click
from msgspec import Struct
from msgspec.structs import asdict

import remit.cli.exits as exits
import remit.cli.run_lookup as run_lookup
import remit.cli.views.columns as columns
import remit.observe.words as words
from remit.cli.views.columns import Cell
from remit.history.fold import fold
from remit.types.outcome import Status
from remit.types.ports import Store, TreeInfo

SHOWN = 20
"""How many trees are listed by default."""


class Line(Struct, frozen=True):
    """A tree as it is listed."""

    id: str
    short: str
    status: str
    """`running`, or how the tree ended; `interrupted` if its process is gone."""
    agent: str
    task: str
    started_at: float
    last_at: float
    requests: int = 0
    tokens: int = 0
    usd: float | None = None
    runs: int = 1
    """Runs of the tree, the root included."""
    waiting: int = 0
    """Open approval requests."""
    owner: str = ""
    """The process that runs the tree."""
    bytes: int = 0


@click.command()
@click.option(
    "--limit", "-n", type=click.IntRange(min=1), help=f"How many runs to list. Defaults to {SHOWN}."
)
@click.option("--all", "-a", "every", is_flag=True, help="List all runs.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@run_lookup.journal_option
def command(*, limit: int | None, every: bool, as_json: bool, journal: str | None) -> None:
    """List the runs in the journal, newest first, with their status and usage."""
    if every and limit is not None:
        exits.wrong_use("--all and --limit cannot be combined. Use one of them: remit runs --limit 50")
    place = run_lookup.find_journal(journal)
    lines, total = asyncio.run(_read(place.url, None if every else limit or SHOWN))
    if as_json:
        for line in lines:
            columns.echo_json(asdict(line), indent=False)
        return
    if not lines:
        exits.tell(f"No runs in {place.where} yet. Start one: remit run PROMPT, or remit demo")
        return
    _print(lines)
    for line in lines:
        if line.waiting:
            exits.tell(
                f"{line.short} waits for {words.count(line.waiting, 'approval')}: {run_lookup.hint(f'approve {line.short}')}"
            )
    if total > len(lines):
        exits.tell(f"{len(lines)} of {total:,} runs shown. All runs: {run_lookup.hint('runs --all')}")


async def _read(url: str, most: int | None) -> tuple[list[Line], int]:
    async with run_lookup.opened(url) as store:
        trees = await store.trees()
        shorts = run_lookup.short_ids(info.root for info in trees)
        lines = [await _line(store, info, shorts[info.root]) for info in trees[:most]]
        return lines, len(trees)


async def _line(store: Store, info: TreeInfo, short: str) -> Line:
    # Only a running tree can wait for approvals.
    tree = fold([event async for event in store.read(info.root)]) if info.live else None
    return Line(
        id=info.root,
        short=short,
        status="running" if info.live and info.status is None else str(info.status or Status.INTERRUPTED),
        agent=info.agent,
        task=info.task,
        started_at=info.started_at,
        last_at=info.last_at,
        requests=info.requests,
        tokens=info.tokens,
        usd=info.usd,
        runs=info.runs,
        waiting=len(tree.requests) if tree is not None else 0,
        owner=info.owner,
        bytes=info.bytes,
    )


def _print(lines: list[Line]) -> None:
    now = time.time()
    heads = ("ID", "STATUS", "AGENT", "TASK", "STARTED", "TOKENS", "COST", "CHILDREN")
    rows = [heads, *(_row(line, now) for line in lines)]
    columns.echo_table(rows, gives_way=3, right=(5, 6, 7))


def _row(line: Line, now: float) -> columns.Row:
    return (
        Cell(line.short, "strong"),
        _status(line),
        line.agent,
        line.task,
        words.ago(line.started_at, now),
        words.number(line.tokens),
        words.money(line.usd) if line.usd else "",
        str(line.runs - 1 or ""),
    )


def _status(line: Line) -> Cell:
    if line.status != "running":
        status = Status(line.status)
        return Cell(words.status_words(status), words.MARKS[status].look)
    process = line.owner.removesuffix(f" on {platform.node()}")
    return Cell(f"running ({process})", words.RUNNING.look)
