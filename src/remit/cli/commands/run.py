"""`remit run`: runs an agent on a task."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import click

import remit.cli.completion as completion
import remit.cli.default_model as default_model
import remit.cli.exits as exits
import remit.cli.jobs.task_input as task_input
import remit.cli.options as options
from remit.cli.jobs.launch import launch
from remit.cli.jobs.setup import put_together
from remit.cli.jobs.task_input import TaskText
from remit.cli.main import Setup
from remit.cli.options import Options, Showing
from remit.models.offline import is_survey


@click.command(
    epilog="\b\nExamples:\nremit run 'Find the slow tests' --read-only\ngit diff | remit run 'Review this' -\n"
    "remit run 'Explain @src/app.py' --model ollama:llama3\n\n" + exits.IN_WORDS,
)
@click.argument("prompt", nargs=-1, metavar="PROMPT")
@options.given_options
@options.showing_options
@click.option(
    "--continue",
    "-c",
    "last",
    is_flag=True,
    help="Resume the newest run of this folder; with PROMPT, continue its conversation.",
)
@click.option(
    "--resume",
    "-r",
    "before",
    metavar="RUN",
    shell_complete=completion.runs,
    help="The same for this run. See `remit runs`.",
)
@click.option(
    "--journal", metavar="URL", help="Where to store the run, such as sqlite:////full/path/runs.db."
)
@click.option("--no-journal", is_flag=True, help="Store nothing; the run cannot be resumed.")
@click.pass_obj
def command(setup: Setup, prompt: tuple[str, ...], **given: object) -> int:
    """Run an agent on a task and show its progress.

    PROMPT is the task. Use `-` to append standard input, and @path to append a file of the workspace. The answer goes to
    standard output, everything else to standard error.
    """
    said = options.read_options(given)
    showing = options.read_showing(given)
    journal = cast("str | None", given["journal"])
    if given["no_journal"] and (journal or given["last"] or given["before"]):
        exits.wrong_use(
            "--no-journal stores nothing, so it cannot be combined with --journal, --continue or --resume."
        )
    if given["last"] and given["before"]:
        exits.wrong_use(
            "--continue and --resume cannot be combined: --continue resumes the newest run, --resume RUN the named run."
        )
    if given["last"] or given["before"]:
        from remit.cli.commands.resume import resume_run  # noqa: PLC0415 - only for a resume

        before = cast("str | None", given["before"])
        text = task_input.read_message(prompt)
        return asyncio.run(resume_run(setup, before, text, said, showing=showing, journal=journal))
    text = task_input.read_words(prompt)
    return asyncio.run(_run(setup, text, said, showing, journal=journal, kept=not given["no_journal"]))


async def _run(
    setup: Setup, text: TaskText, said: Options, showing: Showing, *, journal: str | None, kept: bool
) -> int:
    if not text.prompt:
        exits.wrong_use("The task is missing: remit run 'Survey this folder'")
    job = put_together(said, setup.models, journal=journal, kept=kept)
    if job.options.survey and not is_survey(text.prompt):
        # Not started: the offline rules would answer that they cannot help, and the run would count as completed.
        for note in job.notes:
            exits.tell(note)
        # The note on the choice of the model may say it already.
        is_said = any(default_model.ONLY_SURVEY in note for note in job.notes)
        why = "" if is_said else f"{default_model.ONLY_SURVEY} "
        exits.wrong_use(f"{why}To survey it: remit run 'Survey this folder'")
    task, notes = task_input.with_files(text, Path(job.workspace))
    return await launch(job._replace(notes=[*job.notes, *notes]), task, showing)
