"""Write the reference pages of the site from the code: `python docs/build_reference.py docs/reference`.

Texts come from docstrings, from the strings below fields, and from the help of commands. Only the words about settings
are here (`SETTINGS`, `VARIABLES`): a missing one fails the build.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import click

import remit
import remit.cli.exits as exits
import remit.definitions.settings_layer as settings
import remit.events
from remit.cli.help_format import Context
from remit.cli.main import COMMANDS, OTHER_NAMES, program
from remit.errors import KINDS, RETRYABLE_KINDS
from remit.types.limits import ROOT_DEFAULTS, SHARED, Limits
from remit.types.outcome import Status

sys.path.insert(0, str(Path(__file__).parent))
from source_text import Field, Parts, document, fields, option_rows, parts_of, signature

STARTING = ("run", "run_sync", "start", "resume", "reopen")

PARAMETERS = {
    "agent": "The agent to run; for a resume, the same agent as before.",
    "task": "The task: a text, or a `UserMessage` with images and files.",
    "store": "The store that has the run: a store or a URL.",
    "run_id": "The id of the root run, as in `outcome.run_id`.",
}
"""The parameters that the options of `run` and `resume` do not describe."""

MODULES = {
    "remit.tools": "Built-in tools and MCP servers.",
    "remit.stores": "Open a store by its URL.",
    "remit.stores.retention": "Delete old runs.",
    "remit.remote": "Control a run from another process.",
    "remit.definitions": "Agents and settings from files.",
    "remit.testing": "A scripted model, virtual time, and checks for your own store.",
    "remit.survey": "The agents of `remit demo`.",
}

NAMES = {
    "remit.stores": ("open_store", "default_path", "SecretPattern"),
    "remit.stores.retention": ("prune",),
    "remit.remote": ("look", "waiting", "approve", "refuse", "send", "cancel", "ask_elsewhere"),
    "remit.survey": ("survey",),
}
"""The public names of modules that have no `__all__`."""

SETTINGS = {
    "model": "The default model: a name, an alias, or a list in order of preference.",
    "models": 'A table of aliases, `fast = "provider:model"`, and of prices, `[models."provider:model"]` with `price`.',
    "agent": "The agent that `remit run` uses.",
    "agents": "A table of agents, and `paths`: more files or folders of agents.",
    "limits": "A table of [limits](limits.md). Times may have a unit, such as `10m`.",
    "policy": "Lists of rules: `allow`, `ask` and `deny`.",
    "sandbox": "The sandbox of commands: `read-only`, `workspace-write`, or `open`; `+network` may follow the first two.",
    "journal": "The store: `sqlite`, a URL, or `false` for none.",
    "workspace": "The folder that tools work in.",
    "mcp": "`[mcp.servers.NAME]`: an MCP server.",
    "secrets": "`[secrets.NAME]`: a kind of secret to redact in the journal: `prefix`, `least`, `chars`, `exact`, `random`.",
}

VARIABLES = {
    "REMIT_HOME": "The folder of the default journal, `runs.db`.",
    "REMIT_DEBUG": "`1` prints the traceback of an error.",
    "REMIT_TRUST": "`1` trusts every project. Only for containers that hold nothing of value.",
}


def main(folder: Path) -> None:
    """Write every page into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in PAGES.items():
        (folder / f"{name}.md").write_text("\n".join(write()).rstrip() + "\n", encoding="utf-8")


# --- Markdown ------------------------------------------------------------------------------------


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    """A Markdown table and an empty line; nothing without rows."""
    lines = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    if not lines:
        return []
    head = list(head)
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *lines, ""]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def _listing(lines: str) -> list[str]:
    """Code to look at. Not a `python` block: the tests run those."""
    return ["```{code-block} python", lines, "```", ""]


def _field_rows(found: Iterable[Field]) -> list[str]:
    found = list(found)
    if any(f.default for f in found):
        rows = [(code(f.name), code(f.type), code(f.default), f.text) for f in found]
        return table(("field", "type", "default", "meaning"), rows)
    return table(("field", "type", "meaning"), [(code(f.name), code(f.type), f.text) for f in found])


def _entry(name: str, value: object, module: str, level: str) -> list[str]:
    """One public name: heading, signature, text, fields and methods."""
    lines = [f"{level} `{name}`", ""]
    if inspect.isroutine(value):
        return [*lines, *_listing(signature(name, value)), *document(name, value, module), ""]
    lines += [*document(name, value, module), ""]
    if isinstance(value, type):
        parts: Parts = parts_of(value)
        lines += _listing(parts.call) if parts.call else []
        lines += _field_rows(parts.fields)
        lines += table(("method or property", "meaning"), [(code(m.call), m.text) for m in parts.methods])
    return lines


# --- Pages ---------------------------------------------------------------------------------------


def _index() -> list[str]:
    lines = ["# Reference", "", "`make docs` writes these pages from the code.", ""]
    lines += ["```{toctree}", ":maxdepth: 1", "", *(name for name in PAGES if name != "index"), "```"]
    return lines


def _run() -> list[str]:
    lines = ["# run, start and resume", "", "The functions that run agents, with every parameter.", ""]
    for name in STARTING:
        function = getattr(remit, name)
        text, described = option_rows(function)
        words = PARAMETERS | described
        options = [(parameter, words[parameter]) for parameter in inspect.signature(function).parameters]
        lines += [f"## `{name}`", "", *_listing(signature(name, function)), *text, ""]
        lines += table(("parameter", "meaning"), [(code(option), what) for option, what in options])
    return lines


def _names() -> list[str]:
    lines = ["# Names in remit", "", "Every public name of `import remit`. "]
    lines += ["[run, start and resume](run.md) and [Limits](limits.md) have pages of their own.", ""]
    for name in sorted(set(remit.__all__) - {*STARTING, "Limits"}, key=str.lower):
        lines += _entry(name, getattr(remit, name), f"remit.{remit._HOME[name]}", "##")  # noqa: SLF001
    return lines


def _modules() -> list[str]:
    lines = ["# Modules", "", "The public names of the modules below `remit`.", ""]
    for path, words in MODULES.items():
        module = importlib.import_module(path)
        lines += [f"## `{path}`", "", words, ""]
        for name in getattr(module, "__all__", None) or NAMES[path]:
            lines += _entry(name, getattr(module, name), path, "###")
    return lines


def event_kinds() -> list[type[remit.Event]]:
    """Every kind of event, in the order of `remit.events.__all__`."""
    found = (getattr(remit.events, name) for name in remit.events.__all__)
    return [k for k in found if isinstance(k, type) and issubclass(k, remit.Event) and k is not remit.Event]


def _events() -> list[str]:
    lines = ["# Events", "", "Every kind of event, with its fields. All are in `remit.events`.", ""]
    lines += ["## Fields of every event", "", *_field_rows(fields(remit.Event))]
    lines += ["`where` has these fields. Each is also a property of the event: `event.run`.", ""]
    lines += _field_rows(fields(remit.events.Where))
    for kind in event_kinds():
        lines += [f"## `{kind.__struct_config__.tag}`", "", f"`remit.events.{kind.__name__}`."]
        lines += [*document(kind.__name__, kind, kind.__module__), ""]
        if kind.live_only:
            lines += ["Live readers get this event; the journal does not record it.", ""]
        lines += _field_rows(fields(kind))
    lines += ["## Functions", ""]
    for name in remit.events.__all__:
        value = getattr(remit.events, name)
        if callable(value) and not isinstance(value, type) and hasattr(value, "__code__"):
            lines += _entry(name, value, "remit.events", "###")
    return lines


def _limits() -> list[str]:
    lines = ["# Limits", "", *document("Limits", Limits, "remit.types.limits"), ""]
    rows = [
        (
            code(f.name),
            code(str(getattr(ROOT_DEFAULTS, f.name))),
            "shared" if f.name in SHARED else "own",
            f.text.partition(" Default ")[0],
        )
        for f in fields(Limits)
    ]
    lines += table(("field", "default at the root", "shared or own", "meaning"), rows)
    lines += [
        "**Shared**: a child draws on what its parent has left, and its own number can only lower that."
    ]
    lines += ["**Own**: each run has the number of its agent, or else the number of its parent.", ""]
    return lines


def _commands() -> list[str]:
    lines = ["# Commands", "", f"The commands of `remit`, with every option. {exits.IN_WORDS}", ""]
    for name in COMMANDS:
        command = program.get_command(click.Context(program), name)
        assert command is not None
        context = Context(command, info_name=f"remit {name}")
        usage = " ".join(context.get_usage().split()).removeprefix("Usage: ")
        lines += [f"## `remit {name}`", "", "```text", usage, "```", ""]
        lines += [*_help(command.help or ""), ""]
        options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden]
        rows = [
            (code(", ".join(p.opts + p.secondary_opts) + _metavar(p, context)), p.help or "") for p in options
        ]
        lines += table(("option", "meaning"), rows)
    lines += [
        "## Names from other programs",
        "",
        "These are not commands. remit suggests the command beside them.",
        "",
    ]
    return lines + table(("name", "command"), [(code(a), code(f"remit {b}")) for a, b in OTHER_NAMES.items()])


def _metavar(option: click.Option, context: click.Context) -> str:
    return "" if option.is_flag else f" {option.make_metavar(context)}"


def _help(text: str) -> list[str]:
    return [line.strip() for line in text.replace("\b", "").strip().splitlines()]


def _settings() -> list[str]:
    lines = ["# Settings", "", "The keys of `remit.toml`, of `[tool.remit]` in `pyproject.toml`, and of", ""]
    lines[-2] += (
        " `~/.config/remit/config.toml`. [Change settings](../how-to/settings.md) has a file with all of them."
    )
    lines += table(("key", "meaning"), [(code(key), SETTINGS[key]) for key in settings.KEYS])
    lines += ["## Environment variables", ""]
    rows = [(code(name), f"Sets `{key}`.") for name, key in settings._VARIABLES.items()]  # noqa: SLF001
    rows += [("`REMIT_LIMITS_NAME`", "Sets `limits.NAME`, such as `REMIT_LIMITS_USD`.")]
    rows += [(code(name), VARIABLES[name]) for name in settings._ELSEWHERE]  # noqa: SLF001
    return lines + table(("variable", "meaning"), rows)


def _statuses() -> list[str]:
    lines = [
        "# Statuses, exit codes and errors",
        "",
        "## Statuses",
        "",
        "How a run can end: `outcome.status`.",
        "",
    ]
    words = {f.name: f.text for f in fields(Status)}
    rows = [(code(str(s)), str(exits.BY_STATUS[s]), words[s.name]) for s in Status]
    lines += table(("status", "exit code", "meaning"), rows)
    lines += ["## Exit codes", "", "The exit codes of `remit`.", ""]
    listed = exits.IN_WORDS.removeprefix("Exit codes: ").rstrip(".").split(", ")
    lines += table(
        ("code", "meaning"), [(code(number), what) for number, _, what in (i.partition(" ") for i in listed)]
    )
    lines += ["## Kinds of ModelError", ""]
    lines += table(("kind", "retried"), [(code(k), "yes" if k in RETRYABLE_KINDS else "no") for k in KINDS])
    return lines


PAGES: dict[str, Callable[[], list[str]]] = {
    "index": _index,
    "run": _run,
    "limits": _limits,
    "names": _names,
    "modules": _modules,
    "events": _events,
    "commands": _commands,
    "settings": _settings,
    "statuses": _statuses,
}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
