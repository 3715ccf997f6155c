"""`remit trust`: records which versions of a project's settings the user trusts."""

from __future__ import annotations

from pathlib import Path

import click

import remit.cli.exits as exits
import remit.cli.jobs.approver as approver
import remit.cli.jobs.trust_prompt as trust_prompt
import remit.cli.views.columns as columns
from remit.definitions import Settings, distrust, load_settings, trusted_folders
from remit.definitions.project_trust.trusted_versions import add_version, nearest, trusted_versions
from remit.definitions.settings import read_asks
from remit.types.text import visible


@click.command()
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--yes", "-y", is_flag=True, help="Trust without asking.")
@click.option("--revoke", is_flag=True, help="Stop trusting the project, in every version.")
@click.option("--list", "listing", is_flag=True, help="List the projects you trust.")
def command(*, folder: Path | None, yes: bool, revoke: bool, listing: bool) -> None:
    """Choose which projects' settings to trust: MCP servers, allow rules, wider limits.

    Shows the settings of FOLDER that need trust, or their changes since you trusted them, and asks. FOLDER defaults to
    the current folder. Trust covers this content only: when it changes, `remit run` shows the difference and asks again.
    """
    if listing:
        if revoke or yes or folder is not None:
            exits.wrong_use("--list cannot be combined with other options: remit trust --list")
        _list()
    elif revoke:
        if yes:
            exits.wrong_use("--yes and --revoke cannot be combined: remit trust --revoke")
        _revoke(folder or Path())
    else:
        _trust(folder or Path(), yes=yes)


def _list() -> None:
    folders = trusted_folders()
    for folder in folders:
        columns.echo(visible(str(folder)))
    if not folders:
        exits.tell("No project is trusted yet. To trust one, run `remit trust` in its folder.")


def _revoke(folder: Path) -> None:
    if not distrust(folder):
        known = ", ".join(map(str, trusted_folders())) or "none"
        exits.fail(
            f"{folder.resolve()} is not trusted, so there is nothing to revoke. Trusted projects: {known}."
        )
    exits.tell(f"{folder.resolve()} is no longer trusted.")
    if load_settings(folder).trusted:
        exits.tell("remit still follows its settings, because REMIT_TRUST is set.")


def _trust(folder: Path, *, yes: bool) -> None:
    settings = read_asks(folder)
    project = settings.project
    versions = trusted_versions(project, settings.home, settings.environ)
    if settings.asks in versions:
        exits.tell(f"{project} is already trusted with its current settings.")
        return
    if not yes and not approver.can_ask():
        exits.wrong_use(
            f"Nothing was trusted: there is no terminal for the question. `remit trust --yes` trusts {project} as it is now."
        )
    _show(settings, nearest(versions, settings.asks) if versions else None)
    if not yes and not trust_prompt.ask("Trust this? [y]es, [n]o: "):
        exits.fail(f"The current settings of {project} are not trusted.")
    add_version(project, settings.asks, settings.home, settings.environ)
    exits.tell(f"{project} is trusted now. To undo: remit trust --revoke")


def _show(settings: Settings, before: tuple[str, ...] | None) -> None:
    files = ", ".join(trust_prompt.read_from(settings))
    where = f" ({files})" if files else ""
    if before is not None:
        exits.tell(f"The settings of {settings.project}{where} changed since you trusted them:")
        trust_prompt.show(trust_prompt.difference(before, settings.asks))
    elif settings.asks:
        exits.tell(f"Settings of {settings.project}{where} that need trust:")
        trust_prompt.show(settings.asks)
    else:
        exits.tell(f"{settings.project} has no settings that need trust yet.")
