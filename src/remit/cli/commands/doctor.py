"""`remit doctor`: checks the setup and says how to fix each problem."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence

import click
from msgspec.structs import replace

import remit.cli.doctor_checks as doctor_checks
import remit.cli.exits as exits
import remit.cli.run_lookup as run_lookup
import remit.cli.views.columns as columns
import remit.observe.words as words
from remit.cli.doctor_checks import Finding
from remit.cli.install_command import with_local_installer
from remit.definitions import Settings, SettingsError, load_settings
from remit.errors import UsageError
from remit.types.text import describe_error

NARROW = 60
"""Findings have three columns in windows that are at least this wide."""

_LOOKS = {"ok": "good", "note": "dim", "warning": "warn", "problem": "bad"}


@click.command()
@click.option("--no-servers", is_flag=True, help="Do not start the MCP servers.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@run_lookup.journal_option
def command(*, no_servers: bool, as_json: bool, journal: str | None) -> int:
    """Check packages, API keys, model, journal, sandbox, agents, MCP servers and settings.

    Each line is ok, a note, a warning or a problem, with a fix; the exit code is 1 if there is a problem. The values of
    keys are never shown. MCP servers are started briefly, unless you add --no-servers.
    """
    found = [doctor_checks.versions(), *doctor_checks.extras(), *doctor_checks.keys(os.environ)]
    try:
        settings = load_settings(".")
    except SettingsError as error:
        found += doctor_checks.settings_files(error.problems)
        settings = None
    if settings is not None:
        found += asyncio.run(_examine(settings, journal, servers=not no_servers))
    found = [
        replace(one, text=with_local_installer(one.text), fix=with_local_installer(one.fix)) for one in found
    ]
    rows = [] if settings is None else list(settings.rows())
    if as_json:
        values = [{"key": key, "value": value, "origin": origin} for key, value, origin in rows]
        columns.echo_json({"findings": found, "settings": values})
    else:
        _print(found, rows)
    return exits.FAILED if any(one.level == "problem" for one in found) else exits.COMPLETED


async def _examine(settings: Settings, journal: str | None, *, servers: bool) -> list[Finding]:
    found = [*doctor_checks.settings_files(settings.problems), *doctor_checks.consent(settings)]
    found += _guarded("model", lambda: doctor_checks.models(settings))
    try:
        place = run_lookup.find_journal(journal)
        found += await doctor_checks.journal(place)
        found += _guarded("journal", lambda: doctor_checks.reach(settings, place))
    except UsageError as error:
        found.append(Finding("note", "journal", "runs are not recorded", str(error)))
    found += _guarded("sandbox", lambda: doctor_checks.sandbox(settings))
    found += _guarded("search", doctor_checks.search)
    found += _guarded("terminal", doctor_checks.terminal)
    found += _guarded("agents", lambda: doctor_checks.agents(settings))
    if servers:
        found += await doctor_checks.servers(settings)
    elif settings.servers:
        found.append(Finding("note", "server", f"not checked: {', '.join(settings.servers)}"))
    return found


def _guarded(topic: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of one topic. A broken package fails this topic, not the whole command."""
    try:
        return list(look())
    except Exception as error:  # noqa: BLE001 - see above
        return [Finding("problem", topic, f"the check failed: {describe_error(error)}")]


def _lines(one: Finding, *, colour: bool) -> Iterator[str]:
    """The text and the fix, right of level and topic, or below them in a narrow window."""
    room, level = columns.window(), words.looked(f"{one.level:8}", _LOOKS[one.level], colour=colour)
    said = [words.line(one.text), *([words.line(f"→ {one.fix}")] if one.fix else [])]
    begin, below = f"{level} {one.topic:9} ", " " * 19
    if room is not None and room < NARROW:
        yield begin.rstrip()
        begin = below = "  "
    for place, text in enumerate(said):
        for number, line in enumerate(words.wrap(text, (room or sys.maxsize) - len(below), "  ")):
            yield (begin if place == number == 0 else below) + line


def _print(found: Sequence[Finding], rows: Sequence[tuple[str, str, str]]) -> None:
    colour = words.has_colour(sys.stdout)
    for one in found:
        for line in _lines(one, colour=colour):
            columns.echo(line, wrap=False)
    if rows:
        columns.echo()
        columns.echo_table([("SETTING", "VALUE", "FROM"), *rows], gives_way=1)
    problems = sum(one.level == "problem" for one in found)
    warnings = sum(one.level == "warning" for one in found)
    columns.echo()
    if problems:
        columns.echo(f"{words.count(problems, 'problem')}, {words.count(warnings, 'warning')}.")
    else:
        columns.echo(f"No problems, {words.count(warnings, 'warning')}.")
