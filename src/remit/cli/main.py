"""`remit`: the list of commands. A command's module is imported only when that command is used.

`main(args, models=...)` is the entry point for programs and tests: `models` maps names to models, as in `remit.run`.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

import click
from click.shell_completion import CompletionItem

import remit.cli.exits as exits
import remit.cli.standard_streams as standard_streams
from remit.cli.help_format import Context, help_width
from remit.types.spelling import suggest

if TYPE_CHECKING:
    from remit.engine.budget.model_choice import ModelSource


class Listed(NamedTuple):
    """A command as `remit --help` lists it."""

    module: str
    help: str


COMMANDS = {
    "run": Listed("remit.cli.commands.run", "Run an agent on a task and show its progress."),
    "batch": Listed("remit.cli.commands.batch", "Run an agent on many rows; show, resume, cancel batches."),
    "resume": Listed("remit.cli.commands.resume", "Resume a stopped run."),
    "demo": Listed("remit.cli.commands.demo", "Survey a folder offline: a demo without an API key."),
    "runs": Listed("remit.cli.commands.runs", "List the runs in the journal."),
    "show": Listed("remit.cli.commands.show", "Show one run: its tree, messages, calls, events, usage."),
    "watch": Listed("remit.cli.commands.watch", "Watch a run from another terminal."),
    "serve": Listed("remit.cli.commands.serve", "Show the runs in a browser, and serve their HTTP API."),
    "cancel": Listed("remit.cli.commands.cancel", "Cancel a run and its children."),
    "send": Listed("remit.cli.commands.send", "Send a message to a run, for its next turn."),
    "approve": Listed("remit.cli.commands.approve", "Approve a tool call that waits for an answer."),
    "deny": Listed("remit.cli.commands.deny", "Deny a tool call that waits for an answer."),
    "rm": Listed("remit.cli.commands.rm", "Delete runs from the journal."),
    "agents": Listed("remit.cli.commands.agents", "List the agents and check their files."),
    "doctor": Listed("remit.cli.commands.doctor", "Check the setup and suggest fixes."),
    "trust": Listed("remit.cli.commands.trust", "Choose which projects' settings to trust."),
    "completion": Listed("remit.cli.commands.completion", "Print a shell completion script."),
}


OTHER_NAMES = {
    "tree": "show --tree",
    "logs": "show --events",
    "log": "show --events",
    "events": "show --events",
    "messages": "show --messages",
    "usage": "show --usage",
    "status": "show",
    "list": "runs",
    "ls": "runs",
    "ps": "runs",
    "stop": "cancel",
    "kill": "cancel",
    "delete": "rm",
    "prune": "rm",
    "continue": "resume",
    "attach": "watch",
    "ui": "serve",
    "web": "serve",
    "view": "serve",
    "version": "--version",
    "help": "--help",
}
"""Names from other tools. They are suggestions, not aliases: each command has one name."""


class Setup(NamedTuple):
    """The values that the caller of `main` passes to commands, as `ctx.obj`."""

    models: ModelSource | None = None


class Commands(click.Group):
    """A click group that imports a command's module only when that command is used."""

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        listed = COMMANDS.get(cmd_name)
        if listed is None:
            return None
        command = cast(click.Command, importlib.import_module(listed.module).command)
        command.context_class = Context
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            hint = suggest(name, COMMANDS, OTHER_NAMES) or f" To run a task: remit run {name[:40]!r}"
            raise click.UsageError(f"No such command {name[:60]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete names of commands without importing them."""
        names = [
            CompletionItem(name, help=listed.help)
            for name, listed in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, listed.help) for name, listed in COMMANDS.items()])


@click.command(
    cls=Commands,
    no_args_is_help=False,
    invoke_without_command=True,
    epilog=exits.IN_WORDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option("--version", is_flag=True, help="Print the version and exit.")
@click.pass_context
def program(ctx: click.Context, *, version: bool) -> None:
    """Run agents that delegate tasks to subagents, within limits that you set.

    First steps: `remit demo` needs no API key; `remit doctor` checks your setup.
    """
    if version:
        click.echo(f"remit {importlib.import_module('remit').__version__}")
    elif ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(args: Sequence[str] | None = None, *, models: ModelSource | None = None) -> int:
    """Run a command and return its exit code. `models` adds models by name to those of the providers."""
    standard_streams.open_closed()
    if args is None and (instruction := os.environ.get("_REMIT_COMPLETE")):
        importlib.import_module("remit.cli.completion").answer(program, instruction)
        return exits.COMPLETED
    # Commands print warnings themselves, and a log line would break the layout of the live tree.
    logging.getLogger("remit").addHandler(logging.NullHandler())
    given = sys.argv[1:] if args is None else list(args)
    return exits.guard(lambda: _invoke(given, Setup(models)))


def _invoke(args: list[str], setup: Setup) -> object:
    """Like `click.Command.main`, which however turns a closed pipe into exit code 1."""
    try:
        with program.make_context("remit", args, obj=setup, terminal_width=help_width()) as context:
            return program.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
