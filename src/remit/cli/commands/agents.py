"""`remit agents`: which agents there are, and what is wrong with their files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click

import remit.cli.default_model as default_model
import remit.cli.exits as exits
import remit.cli.views.columns as columns
import remit.observe.words as words
from remit.definitions import (
    Definition,
    Loaded,
    Problem,
    Settings,
    SettingsError,
    by_cause,
    check,
    load,
    load_settings,
)
from remit.types.messages import JsonObject

_LOOKS = {"error": "bad", "warning": "warn", "note": "dim"}


@click.command()
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@click.option("--check", "checking", is_flag=True, help="Report every problem in the files.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def command(*, paths: tuple[Path, ...], checking: bool, as_json: bool) -> int:
    """List the agents of this folder, its project and yours: name, model, tools, file.

    PATH is a file, a folder of agents or a whole project to look at instead. With --check there is one line for each cause,
    and the exit code is 1 only if an agent cannot be run.
    """
    settings: Settings | None = None
    problems: list[Problem] = []
    try:
        settings = load_settings(".")
        problems += settings.problems
    except SettingsError as error:
        if not checking:
            raise
        problems += error.problems
    loaded = _load(paths, settings)
    problems += _told(loaded, settings, checking=checking) if settings else loaded.problems
    if settings is not None and not paths:
        problems += _no_such_agent(loaded, settings)
    errors = sum(problem.level == "error" for problem in problems)
    if as_json:
        columns.echo_json({"agents": [_item(one) for one in loaded.agents.values()], "problems": problems})
    elif checking:
        _print_problems(problems, len(loaded.agents))
    else:
        _print_agents(loaded, problems, where=", ".join(map(str, paths)))
    return exits.FAILED if errors and checking else exits.COMPLETED


def _told(loaded: Loaded, settings: Settings, *, checking: bool) -> list[Problem]:
    """With --check as a run would have it: of models too that cannot be used here, which is nobody's mistake in a file."""
    usable = partial(default_model.why_not, environ=os.environ) if checking else None
    return check(loaded, surroundings=settings.surroundings(usable=usable))


def _no_such_agent(loaded: Loaded, settings: Settings) -> list[Problem]:
    """The agent that every run would start, if the settings name one that is not here."""
    name = settings.agent
    if not name or loaded.find(name) is not None:
        return []
    text = f"agent = {name!r}: no agent of that name can be used.{loaded.suggest(name)}"
    return [Problem("error", settings.origin("agent"), 0, text)]


def _load(paths: Sequence[Path], settings: Settings | None) -> Loaded:
    if not paths:
        return settings.load_agents() if settings is not None else Loaded()
    loaded = Loaded()
    for path in paths:
        found = load(path)
        for agent in found.agents.values():
            loaded.add(agent)
        # Those of agents came with them.
        told = {id(problem) for agent in found.agents.values() for problem in agent.problems}
        loaded.problems += [problem for problem in found.problems if id(problem) not in told]
    return loaded


def _item(one: Definition) -> JsonObject:
    return {
        "name": one.name,
        "description": one.description,
        "models": one.models,
        "tools": None if one.tools is None else [word.written or word.name for word in one.tools],
        "subagents": [said.text for said in one.subagents],
        "file": str(one.file),
        "place": one.place,
        "trusted": one.trusted,
    }


def _print_agents(loaded: Loaded, problems: Sequence[Problem], where: str) -> None:
    if not loaded.agents:
        exits.tell(
            f"No agents were found in {where}."
            if where
            else "No agents were found. Write one: .remit/agents/NAME.md, with `name:` and `description:` between --- lines."
        )
    else:
        rows = [
            (columns.Cell(one.name, "strong"), _models(one), _tools(one), _short(one.file), one.description)
            for one in loaded.agents.values()
        ]
        columns.echo_table([("NAME", "MODEL", "TOOLS", "FILE", "DESCRIPTION"), *rows], gives_way=4)
    told = by_cause(problems)
    errors, warnings = (sum(one.level == level for one in told) for level in ("error", "warning"))
    if errors or warnings:
        both = f"{words.count(errors, 'error')}, {words.count(warnings, 'warning')}"
        why = " (an agent whose file has an error is left out)" if errors else ""
        exits.tell(f"{both} in these files{why}: remit agents --check{' ' + where if where else ''}")


def _models(one: Definition) -> str:
    return ", ".join(one.models) or "inherit"


def _tools(one: Definition) -> str:
    if one.tools is None:
        return "all"
    named = [word.written or word.name for word in one.tools]
    return words.cut(", ".join([*named, *(f"→ {said.text}" for said in one.subagents)]), 32) or "none"


def _short(file: Path) -> str:
    """A file's name from here, or from the home folder, where it is below one of them."""
    real = Path(file).absolute()
    for folder, beginning in ((Path.cwd(), ""), (Path.home(), "~/")):
        if real.is_relative_to(folder):
            return beginning + real.relative_to(folder).as_posix()
    return str(file)


def _print_problems(problems: Sequence[Problem], agents: int) -> None:
    colour = words.has_colour(sys.stdout)
    told = by_cause(problems)
    for one in told:
        level = words.looked(one.level, _LOOKS[one.level], colour=colour)
        columns.echo(f"{words.line(one.where)}: {level}: {words.line(one.text)}".removeprefix(": "))
    counts = {level: sum(one.level == level for one in told) for level in ("error", "warning")}
    said = ", ".join(words.count(number, level) for level, number in counts.items())
    exits.tell(f"{words.count(agents, 'agent')}: {said}.")
