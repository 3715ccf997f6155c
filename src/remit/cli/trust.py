"""`remit trust`: the list of projects whose files may widen what agents do."""

from __future__ import annotations

from pathlib import Path

import click

import remit.cli.columns as columns
import remit.cli.exits as exits
from remit.definitions import SettingsError, check, distrust, load_settings, trust, trusted_folders
from remit.definitions.narrowing import CONSENT
from remit.text import visible
from remit.tools.mcp import McpServer


@click.command()
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--revoke", is_flag=True, help="Take the project off the list.")
@click.option("--list", "listing", is_flag=True, help="Show the list.")
def command(*, folder: Path | None, revoke: bool, listing: bool) -> None:
    """Let remit follow what a project's files ask for: MCP servers, rules that allow, wider limits.

    FOLDER is this one if none is named; the whole repository that it belongs to is trusted. Read what it asks for
    first: `remit doctor` shows what was set aside.
    """
    if listing:
        if revoke or folder is not None:
            exits.wrong_use("--list goes alone: remit trust --list")
        _list()
    elif revoke:
        _revoke(folder or Path())
    else:
        _trust(folder or Path())


def _list() -> None:
    folders = trusted_folders()
    for folder in folders:
        columns.echo(visible(str(folder)))
    if not folders:
        exits.tell("No project is trusted yet. In its folder: remit trust")


def _revoke(folder: Path) -> None:
    if not distrust(folder):
        known = ", ".join(map(str, trusted_folders())) or "nothing"
        exits.fail(f"{folder.resolve()} is not on the list, which has {known}.")
    exits.tell(f"{folder.resolve()} is no longer trusted.")
    if load_settings(folder).trusted:
        exits.tell("It still counts as trusted: a folder above it is on the list, or REMIT_TRUST is set.")


def _trust(folder: Path) -> None:
    asked = _asks_for(folder)
    project = trust(folder)
    exits.tell(f"{project} is trusted now. To take that back: remit trust --revoke")
    if asked:
        exits.tell("remit follows from now on:")
    for line in (*asked, *_starts(folder)):
        exits.tell(f"  {line}")


def _asks_for(folder: Path) -> list[str]:
    """What the project asks for beyond what it may without consent."""
    try:
        settings = load_settings(folder)
    except SettingsError:
        # Its files are broken, which is told whenever they are used.
        return []
    lines = [f"{one.origin}: {one.key} ({one.why})" for one in settings.untrusted]
    problems = check(settings.load_agents(), surroundings=settings.surroundings())
    return lines + [str(problem) for problem in problems if CONSENT in problem.text]


def _starts(folder: Path) -> list[str]:
    """What a trusted project's servers are, so that nobody starts a program unseen."""
    try:
        servers = load_settings(folder).servers
    except SettingsError:
        return []
    return [
        f"the MCP server {name}: {server.url or ' '.join((server.command or '', *server.args))}"
        for name, server in servers.items()
        if isinstance(server, McpServer)
    ]
