"""`remit`: the list of commands. A command's module is imported when that command is used, and not before.

`main(args, models=...)` is the way in for programs and tests: `models` are models by name, as in `remit.run`.
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
    """A command as `remit --help` has it."""

    module: str
    help: str


COMMANDS = {
    "run": Listed("remit.cli.commands.run", "Run an agent on a task and watch the tree."),
    "resume": Listed("remit.cli.commands.resume", "Resume a stopped run."),
    "demo": Listed("remit.cli.commands.demo", "Survey a folder without a key: the offline demonstration."),
    "runs": Listed("remit.cli.commands.runs", "List the runs in the journal."),
    "show": Listed("remit.cli.commands.show", "Show one run: tree, messages, calls, events, usage."),
    "watch": Listed("remit.cli.commands.watch", "Watch a run of another process."),
    "cancel": Listed("remit.cli.commands.cancel", "Stop a run and everything below it."),
    "send": Listed("remit.cli.commands.send", "Send a message to a run; it joins the next turn."),
    "approve": Listed("remit.cli.commands.approve", "Say yes to what a run asks for."),
    "deny": Listed("remit.cli.commands.deny", "Say no to what a run asks for."),
    "rm": Listed("remit.cli.commands.rm", "Delete runs from the journal."),
    "agents": Listed("remit.cli.commands.agents", "List agents, and check their files."),
    "doctor": Listed("remit.cli.commands.doctor", "See what works here, and how to fix what does not."),
    "trust": Listed("remit.cli.commands.trust", "Choose which projects' settings to trust."),
    "completion": Listed(
        "remit.cli.commands.completion", "Complete commands, agents and runs in your shell."
    ),
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
    "version": "--version",
    "help": "--help",
}
"""What people call them; only suggested, so that there is one name for each."""


class Setup(NamedTuple):
    """What a program that calls `main` brings along; commands find it as `ctx.obj`."""

    models: ModelSource | None = None


class Commands(click.Group):
    """Commands by name, none of which is imported for the sake of another."""

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
            hint = suggest(name, COMMANDS, OTHER_NAMES) or f" To run a task: remit run {name[:40]!r}."
            raise click.UsageError(f"There is no command {name[:60]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """As a group does, without importing every command."""
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
@click.option("--version", is_flag=True, help="Say which version this is.")
@click.pass_context
def program(ctx: click.Context, *, version: bool) -> None:
    """Agents that delegate: every child bounded, visible, stoppable, paid for once, never lost.

    First steps: `remit demo` needs no key; `remit doctor` says what works here.
    """
    if version:
        click.echo(f"remit {importlib.import_module('remit').__version__}")
    elif ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(args: Sequence[str] | None = None, *, models: ModelSource | None = None) -> int:
    """Do what the arguments say and give the exit code. `models` are models by name, besides those of providers."""
    standard_streams.open_closed()
    if args is None and (instruction := os.environ.get("_REMIT_COMPLETE")):
        importlib.import_module("remit.cli.completion").answer(program, instruction)
        return exits.COMPLETED
    # Commands print warnings in their own way, and a log line would tear the live tree apart.
    logging.getLogger("remit").addHandler(logging.NullHandler())
    given = sys.argv[1:] if args is None else list(args)
    return exits.guard(lambda: _invoke(given, Setup(models)))


def _invoke(args: list[str], setup: Setup) -> object:
    """What `click.Command.main` does, except that it takes a closed pipe for an error of its own, with exit code 1."""
    try:
        with program.make_context("remit", args, obj=setup, terminal_width=help_width()) as context:
            return program.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
