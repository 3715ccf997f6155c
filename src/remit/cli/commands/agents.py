"""`remit agents`: lists the agents and the problems in their files."""

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
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(*, paths: tuple[Path, ...], checking: bool, as_json: bool) -> int:
    """List the agents of this folder, of its project and of your user: name, model, tools, file.

    PATH is an agent file, a folder of agent files or a project to read instead. --check prints one line per problem;
    its exit code is 1 only if an agent cannot run.
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
    problems += _check(loaded, settings, checking=checking) if settings else loaded.problems
    if settings is not None and not paths:
        problems += _check_default_agent(loaded, settings)
    errors = sum(problem.level == "error" for problem in problems)
    if as_json:
        columns.echo_json({"agents": [_item(one) for one in loaded.agents.values()], "problems": problems})
    elif checking:
        _print_problems(problems, len(loaded.agents))
    else:
        _print_agents(loaded, problems, where=", ".join(map(str, paths)))
    return exits.FAILED if errors and checking else exits.COMPLETED


def _check(loaded: Loaded, settings: Settings, *, checking: bool) -> list[Problem]:
    """The problems of the agents; with --check also models that are unavailable here, which is not an error in a file."""
    usable = partial(default_model.why_not, environ=os.environ) if checking else None
    return check(loaded, surroundings=settings.surroundings(usable=usable))


def _check_default_agent(loaded: Loaded, settings: Settings) -> list[Problem]:
    """A problem if the `agent` setting names an agent that does not exist."""
    name = settings.agent
    if not name or loaded.find(name) is not None:
        return []
    text = f"agent = {name!r}: no usable agent has this name.{loaded.suggest(name)}"
    return [Problem("error", settings.origin("agent"), 0, text)]


def _load(paths: Sequence[Path], settings: Settings | None) -> Loaded:
    if not paths:
        return settings.load_agents() if settings is not None else Loaded()
    loaded = Loaded()
    for path in paths:
        found = load(path)
        for agent in found.agents.values():
            loaded.add(agent)
        # `add` has already copied the problems of each agent.
        known = {id(problem) for agent in found.agents.values() for problem in agent.problems}
        loaded.problems += [problem for problem in found.problems if id(problem) not in known]
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
            f"No agents found in {where}."
            if where
            else "No agents found. Create .remit/agents/NAME.md with `name:` and `description:` between --- lines."
        )
    else:
        rows = [
            (columns.Cell(one.name, "strong"), _models(one), _tools(one), _short(one.file), one.description)
            for one in loaded.agents.values()
        ]
        columns.echo_table([("NAME", "MODEL", "TOOLS", "FILE", "DESCRIPTION"), *rows], gives_way=4)
    causes = by_cause(problems)
    errors, warnings = (sum(one.level == level for one in causes) for level in ("error", "warning"))
    if errors or warnings:
        both = f"{words.count(errors, 'error')}, {words.count(warnings, 'warning')}"
        why = " (agents with errors cannot run)" if errors else ""
        exits.tell(f"{both} in agent files{why}. Details: remit agents --check{' ' + where if where else ''}")


def _models(one: Definition) -> str:
    return ", ".join(one.models) or "inherit"


def _tools(one: Definition) -> str:
    if one.tools is None:
        return "all"
    named = [word.written or word.name for word in one.tools]
    return words.cut(", ".join([*named, *(f"→ {said.text}" for said in one.subagents)]), 32) or "none"


def _short(file: Path) -> str:
    """A file's path relative to the current folder, else below `~`, else as it is."""
    real = Path(file).absolute()
    for folder, beginning in ((Path.cwd(), ""), (Path.home(), "~/")):
        if real.is_relative_to(folder):
            return beginning + real.relative_to(folder).as_posix()
    return str(file)


def _print_problems(problems: Sequence[Problem], agents: int) -> None:
    colour = words.has_colour(sys.stdout)
    causes = by_cause(problems)
    for one in causes:
        level = words.looked(one.level, _LOOKS[one.level], colour=colour)
        columns.echo(f"{words.line(one.where)}: {level}: {words.line(one.text)}".removeprefix(": "))
    counts = {level: sum(one.level == level for one in causes) for level in ("error", "warning")}
    summary = ", ".join(words.count(number, level) for level, number in counts.items())
    exits.tell(f"{words.count(agents, 'agent')}: {summary}.")
