"""`remit resume`: a run that was stopped goes on, or its conversation does with something new."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import anyio
import click
import msgspec

import remit.cli.completion as completion
import remit.cli.exits as exits
import remit.cli.jobs.task_input as task_input
import remit.cli.options as options
import remit.cli.run_lookup as run_lookup
from remit.agent import Agent
from remit.cli.default_model import OFFLINE
from remit.cli.jobs.launch import conversation, launch, relaunch, tell_ended
from remit.cli.jobs.setup import LEAD, put_together
from remit.cli.main import Setup
from remit.cli.options import Options, Showing
from remit.definitions import parse_limits
from remit.engine.delegation.delegate_tools import kit_for
from remit.errors import UsageError
from remit.history.records import REOPENED, RunRecord
from remit.remote import look
from remit.stores import open_store
from remit.types.outcome import Outcome
from remit.types.ports import Store, TreeInfo

MOST_TRIED = 500
"""Runs that are looked at for the newest one of a folder."""


@click.command(epilog=exits.IN_WORDS)
@click.argument("run", metavar="RUN", shell_complete=completion.runs)
@click.argument("text", nargs=-1, metavar="[TEXT]")
@options.given_options
@options.showing_options
@run_lookup.journal_option
@click.pass_obj
def command(setup: Setup, run: str, text: tuple[str, ...], **given: object) -> int:
    """Resume a stopped run.

    What was done is not done or paid for again. With TEXT a new run begins that knows the conversation so far. The
    agent, its rules, its model and its folder are those of the run; options replace them. RUN may be the beginning
    of an id, or `last`.
    """
    said, showing = options.read_options(given), options.read_showing(given)
    return asyncio.run(
        go_on(setup, run, text, said, showing=showing, journal=cast("str | None", given["journal"]))
    )


async def go_on(
    setup: Setup,
    run: str | None,
    prompt: tuple[str, ...],
    said: Options,
    *,
    showing: Showing,
    journal: str | None,
) -> int:
    """Go on with a run, or without a name with the newest one of the folder. The exit code."""
    # A run is named, so that a prompt has to be said: what is piped in is not taken for one.
    text = task_input.read_words(prompt) if prompt else task_input.TaskText("")
    url = run_lookup.find_journal(journal).url
    store = open_store(url)
    try:
        found = (
            await _newest(store, said) if run is None else _root(run_lookup.find(await store.trees(), run))
        )
        root = found.root
        before = await options.recall(store, root)
        tree = await look(store, root)
    finally:
        await store.close()
    if found.live:
        exits.fail(
            f"{root} is running ({found.owner}), so it need not be resumed. To look on: {run_lookup.hint(f'watch {root}')}\n"
            f"To tell it something: {run_lookup.hint(f'send {root} TEXT')}"
        )
    record = tree.runs.get(root)
    if record is None:
        exits.fail(f"Nothing is recorded of {root} yet. Try again in a moment.")
    if not text.prompt and tree.status is not None and tree.status not in REOPENED:
        return tell_ended(_structured(tree.outcome(), before), showing, before)
    try:
        job = put_together(said.over(before or _guessed(record)), setup.models)._replace(journal=url)
    except UsageError as error:
        if before is not None:
            raise
        raise UsageError(
            f"{root} was not started by `remit run`, so its agent and its model are not known here. Go on with it in"
            f" its own program: remit.resume(store, {root!r}, agent=..., model=...). Or name them here, with --agent"
            f" and --model. ({error})"
        ) from None
    if text.prompt:
        if before is None:
            _check_same(job.agent, record)
        task, notes = task_input.with_files(text, Path(job.workspace))
        job = job._replace(notes=[*job.notes, *notes])
        return await launch(job, task, showing, history=conversation(tree.outcome()))
    limits = parse_limits(said.limits, "--limits") if said.limits else None
    return await relaunch(job, tree, showing, limits=limits)


def _check_same(agent: Agent, record: RunRecord) -> None:
    """See that an agent found by its name is the one of a run that `remit run` did not start. Raises UsageError."""
    tools = {spec.name for spec in kit_for(agent, may_delegate=True).specs}
    if tools != set(record.start.tools):
        raise UsageError(
            f"{record.id} was not started by `remit run`, and the agent {agent.name!r} that is known here has other tools,"
            " so its conversation does not go on here. Go on where it was started: history=outcome.messages"
        )


def _structured(outcome: Outcome, before: Options | None) -> Outcome:
    """With its structured answer, which the journal has as text."""
    if before is None or before.schema is None or not outcome.ok:
        return outcome
    try:
        return msgspec.structs.replace(outcome, output=msgspec.json.decode(outcome.text))
    except msgspec.DecodeError:
        return outcome


def _guessed(record: RunRecord) -> Options:
    """How a tree was probably called that was not started by `remit run`, or that ended before that was kept."""
    if record.agent == "survey" and record.model == OFFLINE:
        return Options(survey=True)
    return Options(agent="" if record.agent == LEAD else record.agent, model=record.model)


def _root(found: run_lookup.NamedRun) -> TreeInfo:
    if not found.is_root:
        raise UsageError(
            f"{found.short} is a child; whole trees are resumed: remit resume {found.short.partition('.')[0]}"
        )
    return found.info


async def _newest(store: Store, said: Options) -> TreeInfo:
    """The newest tree that was run in this folder. Raises UsageError when there is none."""
    folder = Path(await anyio.Path(said.workspace or ".").resolve())
    for info in (await store.trees())[:MOST_TRIED]:
        record = await options.recall(store, info.root)
        if record is not None and record.workspace and Path(record.workspace) == folder:
            return info
    raise UsageError(
        f"No run of {folder} is kept here. `remit runs` lists those there are; remit run PROMPT starts one."
    )
