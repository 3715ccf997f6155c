"""Runs a batch from the command line: its record in the journal, its progress, its results."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TextIO

import anyio
import msgspec
from msgspec import Struct

import remit.cli.exits as exits
import remit.cli.run_lookup as run_lookup
import remit.observe.words as words
from remit.batches.batch import Batch, batch
from remit.batches.records import Progress, Summary
from remit.cli.jobs.approver import choose_approver
from remit.cli.jobs.batch_rows import FileRow, task_from
from remit.cli.jobs.priced_models import PricedModels
from remit.cli.jobs.setup import RunSetup
from remit.cli.options import MOST_RECORD, Options
from remit.definitions import parse_limits
from remit.errors import StoreError
from remit.observe.display.open_display import open_display
from remit.observe.display.tree_view import TreeView
from remit.stores import open_store
from remit.types.outcome import Status
from remit.types.ports import Store
from remit.types.text import visible

ARTIFACT = "remit-batch"
EVERY_S = 10.0
"""Seconds between two lines of progress without a terminal."""
DRAW_S = 0.2
BAR = 24


class BatchOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `remit batch resume` needs. Stored in the journal, so nothing in it may be secret."""

    rows: str
    task: str
    run: Options
    total: str = ""
    concurrency: int = 16
    retries: int = 2
    out: str = ""
    numbers: tuple[int, ...] = ()
    """The rows of the file that the batch has; empty for all."""


async def recall(store: Store, name: str) -> BatchOptions | None:
    """The stored options of a batch; None if it has none. Raises StoreError."""
    text = await store.load_artifact(name, ARTIFACT, 0, MOST_RECORD)
    try:
        return None if text is None else msgspec.json.decode(text, type=BatchOptions)
    except msgspec.DecodeError:
        return None


async def run_batch(
    setup: RunSetup, said: BatchOptions, rows: list[FileRow], name: str | None, *, quiet: bool
) -> int:
    """Start or resume a batch and show its progress until it ends. Returns the exit code."""
    chosen = [rows[number - 1] for number in said.numbers] if said.numbers else rows
    async with AsyncExitStack() as stack:
        store = open_store(setup.journal or "memory", secrets=setup.secrets)
        stack.push_async_callback(store.close)
        if isinstance(setup.models, PricedModels):
            stack.push_async_callback(setup.models.close)
        display = open_display(TreeView(None), quiet=True)
        job = batch(
            setup.agent,
            chosen,
            task=task_from(said.task),
            id=name,
            store=store,
            limits=setup.limits,
            total=parse_limits(said.total, "--total") if said.total else None,
            concurrency=said.concurrency,
            retries=said.retries,
            model=setup.model,
            models=setup.models,
            approver=choose_approver(display, yes=setup.options.yes, elsewhere=False),
            policy=setup.policy,
            sandbox=setup.sandbox,
            workspace=setup.workspace,
        )
        return await _follow(job, store, said, quiet=quiet)


async def _follow(job: Batch[FileRow], store: Store, said: BatchOptions, *, quiet: bool) -> int:
    async with AsyncExitStack() as stack:
        # Written again from the start: a resumed batch delivers recorded rows too.
        out: TextIO = sys.stdout
        if said.out:
            out = stack.enter_context(Path(said.out).open("w", encoding="utf-8"))  # noqa: ASYNC230, SIM115 - once; the stack closes it
        try:
            async with job:
                with suppress(StoreError):
                    # A batch that has completed is not claimed, and has its record.
                    await store.save_artifact(job.id, ARTIFACT, msgspec.json.encode(said).decode())
                async with anyio.create_task_group() as group:
                    group.start_soon(_show, job, quiet)
                    async for item in job.outcomes():
                        out.write(msgspec.json.encode(item.as_json()).decode() + "\n")
                        out.flush()
                    group.cancel_scope.cancel()
                outcome = await job.outcome()
        finally:
            if not quiet:
                tell_summary(job.id, job.summary)
        if outcome.status is not Status.COMPLETED:
            again = run_lookup.hint(f"batch resume {job.id}")
            exits.tell(f"The batch has not completed: {visible(outcome.reason)}. Resume: {again}")
            return exits.BY_STATUS[outcome.status]
        return exits.COMPLETED if job.progress.ok == job.progress.rows else exits.FAILED


async def _show(job: Batch[FileRow], quiet: bool) -> None:
    if quiet:
        return
    exits.tell(f"Batch {job.id}: {job.progress.rows} rows. Watch: {run_lookup.hint(f'batch watch {job.id}')}")
    draws = words.is_terminal(sys.stderr)
    rate = Rate()
    try:
        while True:
            line = progress_line(job.progress, rate)
            if draws:
                sys.stderr.write(f"\r\x1b[K{line}")
                sys.stderr.flush()
            elif job.progress.done:
                exits.tell(line)
            await anyio.sleep(DRAW_S if draws else EVERY_S)
    finally:
        if draws:
            sys.stderr.write("\r\x1b[K")


class Rate:
    """Rows per second since the first look: recorded rows of a resumed batch do not count."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None

    def of(self, done: int) -> float:
        now = time.monotonic()
        if self._began is None:
            self._began = now, done
        at, before = self._began
        return (done - before) / (now - at) if now > at else 0.0


def progress_line(progress: Progress, rate: Rate) -> str:
    """A bar, the counts, the rate and the estimated end."""
    done, rows, speed = progress.done, progress.rows, rate.of(progress.done)
    full = BAR * done // rows if rows else BAR
    ends = f", ends in about {words.duration((rows - done) / speed)}" if speed and done < rows else ""
    per = f", {speed:.1f} rows/s" if speed else ""
    return f"[{'#' * full}{'.' * (BAR - full)}] {progress}{per}{ends}"


def tell_summary(name: str, summary: Summary) -> None:
    for line in summary_lines(name, summary):
        exits.tell(line)


def summary_lines(name: str, summary: Summary) -> Iterable[str]:
    """A batch in words: by status, cost, time, and cause of failure."""
    counts = ", ".join(f"{count} {status}" for status, count in summary.by_status.items())
    cost = "cost unknown" if summary.usd is None else f"${summary.usd:.4f}"
    yield f"Batch {name}: {summary.rows} rows ({counts or 'none ended'})"
    yield (
        f"{summary.requests:,} requests, {summary.tokens:,} tokens, {cost}, {summary.retries} retries,"
        f" {words.duration(summary.tree_seconds)} in trees"
    )
    for cause, count in summary.by_cause.items():
        yield f"  {count} x {visible(cause)}"
