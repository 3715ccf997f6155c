"""`remit resume`: resumes a stopped run, or continues its conversation with a new message."""

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
"""How many runs to search for the newest one of a folder."""


@click.command(epilog=exits.IN_WORDS)
@click.argument("run", metavar="RUN", shell_complete=completion.runs)
@click.argument("text", nargs=-1, metavar="[TEXT]")
@options.resume_options
@options.showing_options
@run_lookup.journal_option
@click.pass_obj
def command(setup: Setup, run: str, text: tuple[str, ...], **given: object) -> int:
    """Resume a stopped run.

    Finished work is neither repeated nor paid for again. With TEXT, a new run continues the conversation with that
    message. Agent, rules, model and folder stay the same unless options change them. RUN is an id from `remit runs`,
    the beginning of an id, or `last`.
    """
    said, showing = options.read_options(given), options.read_showing(given)
    message = task_input.read_message(text)
    return asyncio.run(
        resume_run(setup, run, message, said, showing=showing, journal=cast("str | None", given["journal"]))
    )


async def resume_run(
    setup: Setup,
    run: str | None,
    text: task_input.TaskText,
    said: Options,
    *,
    showing: Showing,
    journal: str | None,
) -> int:
    """Resume the named run, or the newest run of the folder if `run` is None. Returns the exit code."""
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
            f"{root} is still running ({found.owner}). Watch: {run_lookup.hint(f'watch {root}')}\n"
            f"Send it a message: {run_lookup.hint(f'send {root} TEXT')}"
        )
    record = tree.runs.get(root)
    if record is None:
        exits.fail(f"{root} has no recorded events yet. Try again in a moment.")
    if not text.prompt and tree.status is not None and tree.status not in REOPENED:
        return tell_ended(_structured(tree.outcome(), before), showing, before)
    try:
        job = put_together(said.over(before or _guessed(record)), setup.models)._replace(journal=url)
    except UsageError as error:
        if before is not None:
            raise
        raise UsageError(
            f"{root} was not started by `remit run`, so its agent and model are unknown. Add --agent and --model, or"
            f" resume it in its own program: remit.resume(store, {root!r}, agent=..., model=...). ({error})"
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
    """Check that an agent has the tools of a run that `remit run` did not start. Raises UsageError."""
    tools = {spec.name for spec in kit_for(agent, may_delegate=True).specs}
    if tools != set(record.start.tools):
        raise UsageError(
            f"{record.id} was not started by `remit run`, and the agent {agent.name!r} found here has other tools."
            " Continue the conversation in the program that started it: history=outcome.messages"
        )


def _structured(outcome: Outcome, before: Options | None) -> Outcome:
    """Restore the structured answer, which the journal stores as text."""
    if before is None or before.schema is None or not outcome.ok:
        return outcome
    try:
        return msgspec.structs.replace(outcome, output=msgspec.json.decode(outcome.text))
    except msgspec.DecodeError:
        return outcome


def _guessed(record: RunRecord) -> Options:
    """The likely options of a tree without a recorded call: another program started it, or recording failed."""
    if record.agent == "survey" and record.model == OFFLINE:
        return Options(survey=True)
    return Options(agent="" if record.agent == LEAD else record.agent, model=record.model)


def _root(found: run_lookup.NamedRun) -> TreeInfo:
    if not found.is_root:
        raise UsageError(
            f"{found.short} is a child. Resume its whole tree: remit resume {found.short.partition('.')[0]}"
        )
    return found.info


async def _newest(store: Store, said: Options) -> TreeInfo:
    """The newest tree that ran in this folder. Raises UsageError if there is none."""
    folder = Path(await anyio.Path(said.workspace or ".").resolve())
    for info in (await store.trees())[:MOST_TRIED]:
        record = await options.recall(store, info.root)
        if record is not None and record.workspace and Path(record.workspace) == folder:
            return info
    raise UsageError(
        f"The journal has no run of {folder}. `remit runs` lists all runs; `remit run PROMPT` starts one."
    )
