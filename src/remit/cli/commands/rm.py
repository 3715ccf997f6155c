"""`remit rm`: deletes runs from the journal, except those that are running."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence

import click

import remit.cli.completion as completion
import remit.cli.exits as exits
import remit.cli.jobs.approver as approver
import remit.cli.jobs.trust_prompt as trust_prompt
import remit.cli.run_lookup as run_lookup
import remit.cli.views.columns as columns
import remit.observe.words as words
from remit.definitions.agent_files.limit_values import seconds
from remit.definitions.syntax.nodes import Node, Wrong
from remit.errors import TreeOwned
from remit.types.ports import Store, TreeInfo

MOST_LISTED = 20
"""How many runs the confirmation lists."""


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, shell_complete=completion.runs)
@click.option("--older-than", metavar="AGE", help="Runs whose last event is older, such as 30d or 12h.")
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="All runs except the newest N.")
@click.option("--unfinished", is_flag=True, help="With --older-than or --keep: include interrupted runs.")
@click.option("--yes", "-y", is_flag=True, help="Delete without asking.")
@run_lookup.journal_option
def command(
    *,
    runs: tuple[str, ...],
    older_than: str | None,
    keep: int | None,
    unfinished: bool,
    yes: bool,
    journal: str | None,
) -> int:
    """Delete runs and everything recorded about them.

    Lists the runs and asks for confirmation; without a terminal, add --yes. Running trees are never deleted. With
    --older-than or --keep, interrupted runs stay, because they can be resumed, unless you add --unfinished.
    """
    by_rule = older_than is not None or keep is not None
    if bool(runs) == by_rule:
        exits.wrong_use(
            "Name the runs to delete: remit rm RUN..., or remit rm --older-than 30d, or remit rm --keep 50"
        )
    age = None if older_than is None else _age(older_than)
    return asyncio.run(_remove(runs, age, keep, journal, unfinished=unfinished, yes=yes))


def _age(written: str) -> float:
    try:
        found = seconds(Node(written, 0, plain=True))
    except Wrong:
        found = None
    if found is None or found < 0:
        exits.wrong_use(f"--older-than must be a time such as 30d, 12h or 90m, not {written!r}.")
    return found


async def _remove(
    runs: Sequence[str],
    age: float | None,
    keep: int | None,
    journal: str | None,
    *,
    unfinished: bool,
    yes: bool,
) -> int:
    async with run_lookup.opened(journal) as store:
        trees = await store.trees()
        shorts = run_lookup.short_ids(info.root for info in trees)
        if runs:
            chosen = _named(trees, runs)
        else:
            chosen = [info for info in _ruled(trees, age, keep) if unfinished or info.status is not None]
        live = [info for info in chosen if info.live]
        for info in live if runs else ():
            exits.tell(
                f"{shorts[info.root]} is running ({info.owner}) and was not deleted. Cancel it first: {run_lookup.hint(f'cancel {shorts[info.root]}')}"
            )
        chosen = [info for info in chosen if not info.live]
        if not chosen:
            exits.tell("Nothing was deleted.")
            return exits.FAILED if live and runs else exits.COMPLETED
        if not yes and not _agreed(chosen, shorts):
            exits.tell("Nothing was deleted.")
            return exits.COMPLETED
        kept = await _delete(store, chosen, shorts)
        return exits.FAILED if kept or (live and runs) else exits.COMPLETED


def _named(trees: Sequence[TreeInfo], runs: Sequence[str]) -> list[TreeInfo]:
    chosen: dict[str, TreeInfo] = {}
    for written in runs:
        found = run_lookup.find(trees, written)
        if not found.is_root:
            root = found.short.partition(".")[0]
            exits.wrong_use(f"{found.short} is a child. Delete its whole tree: remit rm {root}")
        chosen[found.info.root] = found.info
    return list(chosen.values())


def _ruled(trees: Sequence[TreeInfo], age: float | None, keep: int | None) -> list[TreeInfo]:
    """The trees that match --older-than and --keep, or both if both are given."""
    newest = sorted(trees, key=lambda info: info.last_at, reverse=True)
    chosen = newest[keep or 0 :]
    oldest = time.time() - age if age is not None else None
    return [info for info in chosen if oldest is None or info.last_at < oldest]


def _agreed(chosen: Sequence[TreeInfo], shorts: dict[str, str]) -> bool:
    """List the runs to delete and ask for confirmation. Without a terminal, end the command."""
    many = words.count(len(chosen), "run")
    if not approver.can_ask():
        ids = ", ".join(shorts[info.root] for info in chosen[:MOST_LISTED])
        more = f" and {len(chosen) - MOST_LISTED:,} more" if len(chosen) > MOST_LISTED else ""
        exits.wrong_use(
            f"Nothing was deleted: there is no terminal for the confirmation. Add --yes to delete {many}: {ids}{more}."
        )
    now = time.time()
    rows = [
        (shorts[one.root], one.agent, one.task, words.ago(one.last_at, now)) for one in chosen[:MOST_LISTED]
    ]
    # On standard error, like the question: standard output may be a file.
    width = words.window_of(sys.stderr) - 1
    for line in columns.table([("ID", "AGENT", "TASK", "LAST"), *rows], gives_way=2, width=width):
        exits.tell(line)
    if len(chosen) > MOST_LISTED:
        exits.tell(f"… and {len(chosen) - MOST_LISTED:,} more")
    size = sum(info.bytes for info in chosen) / 1e6
    return trust_prompt.ask(f"Delete {many} ({size:.1f} MB)? [y/N] ")


async def _delete(store: Store, chosen: Sequence[TreeInfo], shorts: dict[str, str]) -> int:
    """Delete the trees; returns how many could not be deleted."""
    kept = 0
    for info in chosen:
        try:
            await store.delete(info.root)
        except TreeOwned as error:
            # Another process resumed it after it was listed.
            exits.tell(f"{shorts[info.root]} was not deleted: {error}")
            kept += 1
    done = len(chosen) - kept
    if done:
        exits.tell(f"Deleted {words.count(done, 'run')}.")
    return kept
