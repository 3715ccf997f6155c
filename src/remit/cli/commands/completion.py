"""`remit completion`: prints a shell completion script."""

from __future__ import annotations

import click

import remit.cli.completion as completion
import remit.cli.exits as exits
import remit.cli.views.columns as columns

SHELLS = tuple(completion.SHELLS)


@click.command()
@click.argument("shell", metavar="bash|zsh|fish", type=click.Choice(SHELLS), required=False)
@click.pass_context
def command(ctx: click.Context, *, shell: str | None) -> None:
    """Print a script that completes commands, options, agents and runs with the Tab key.

    bash, in ~/.bashrc: eval "$(remit completion bash)"

    zsh, in ~/.zshrc after compinit: eval "$(remit completion zsh)"

    fish: remit completion fish > ~/.config/fish/completions/remit.fish
    """
    if shell is None:
        exits.wrong_use("Name your shell: remit completion bash (or zsh, or fish)")
    columns.echo(completion.script(ctx.find_root().command, shell), nl=False, wrap=False)
