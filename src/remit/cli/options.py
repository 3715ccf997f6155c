"""The options of `run` and `resume`, and the record of them that a later `resume` starts from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar, cast

import click
import msgspec
from msgspec import Struct

import remit.cli.completion as completion
from remit.definitions.agent_files.limit_values import read_limit
from remit.definitions.syntax.nodes import Node, Wrong
from remit.errors import UsageError
from remit.types.messages import Json, JsonObject
from remit.types.ports import Store

F = TypeVar("F", bound=Callable[..., object])

MOST_RECORD = 1_000_000
"""Characters of a record; remit never writes a longer one."""


class Options(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The options that a resume needs. They are stored in the journal, so none of them may be secret."""

    agent: str = ""
    """The agent's name; empty for the built-in lead, which has all tools and agents."""
    survey: bool = False
    """Run the built-in survey, which needs no key."""
    model: str = ""
    agents: tuple[str, ...] = ()
    limits: str = ""
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    yes: bool = False
    read_only: bool = False
    sandbox: str = ""
    schema: JsonObject | None = None
    workspace: str = ""
    trust: bool = False
    no_notes: bool = False
    """Do not read the project's AGENTS.md."""

    def over(self, before: Options) -> Options:
        """These options, with those that are not set taken from `before`."""
        unset = {
            name: getattr(before, name)
            for name in self.__struct_fields__
            if getattr(self, name) in ("", (), None, False)
        }
        return msgspec.structs.replace(self, **unset) if unset else self


class Showing(Struct, frozen=True, kw_only=True):
    """How the output of a run is shown."""

    form: Literal["text", "json", "stream-json"] = "text"
    quiet: bool = False
    elsewhere: bool = False
    """Approval requests wait for `remit approve`, even without a terminal."""


def artifact(root: str) -> str:
    """The name of the artifact that stores a tree's options."""
    return f"{root}/cli"


async def keep(store: Store, root: str, options: Options) -> None:
    """Store the options of a tree. Raises StoreError."""
    await store.save_artifact(root, artifact(root), msgspec.json.encode(options).decode())


async def recall(store: Store, root: str) -> Options | None:
    """The stored options of a tree; None if they are missing or unreadable. Raises StoreError."""
    text = await store.load_artifact(root, artifact(root), 0, MOST_RECORD)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Options)
    except msgspec.DecodeError:
        return None


# --- Reading options ------------------------------------------------------------------------------

_GIVEN = (
    click.option(
        "--agent",
        metavar="NAME",
        shell_complete=completion.agents,
        help="The agent to run, from `remit agents`. Defaults to a lead that can use every tool and agent.",
    ),
    click.option(
        "--model",
        "-m",
        metavar="NAME",
        help="The model, such as anthropic:claude-sonnet-5, ollama:llama3, an alias, or offline.",
    ),
    click.option(
        "--agents",
        metavar="PATH",
        multiple=True,
        shell_complete=completion.files,
        help="Load agents from this file or folder. Repeatable.",
    ),
    click.option(
        "--limits",
        metavar="LIST",
        help="Limits of the run and its children, such as depth=2,usd=0.5,seconds=5m.",
    ),
    click.option("--max-turns", metavar="N", help="Same as --limits turns=N."),
    click.option("--max-budget-usd", metavar="USD", help="Same as --limits usd=USD."),
    click.option("--timeout", metavar="TIME", help="Same as --limits seconds=TIME, such as 90s or 5m."),
    click.option("--max-depth", metavar="N", help="Same as --limits depth=N."),
    click.option(
        "--allow",
        metavar="RULE",
        multiple=True,
        help="Allow these tool calls without asking, such as 'terminal(git status*)'. Repeatable.",
    ),
    click.option("--ask", metavar="RULE", multiple=True, help="Ask before these tool calls. Repeatable."),
    click.option("--deny", metavar="RULE", multiple=True, help="Never allow these tool calls. Repeatable."),
    click.option(
        "--yes",
        "-y",
        is_flag=True,
        help="Approve every request, except changes to files that remit reads as settings. Deny rules still apply.",
    ),
    click.option(
        "--read-only", is_flag=True, help="Only tools that read, in a read-only sandbox without network."
    ),
    click.option(
        "--sandbox",
        metavar="KIND",
        help="read-only, workspace-write or open. Append +network to one of the first two to allow network access.",
    ),
    click.option(
        "--json-schema",
        metavar="FILE|TEXT",
        shell_complete=completion.files,
        help="Require an answer in JSON that matches this schema.",
    ),
    click.option(
        "--workspace",
        metavar="DIR",
        shell_complete=completion.folders,
        help="The folder to work in. Defaults to the current folder.",
    ),
    click.option(
        "--trust", is_flag=True, help="Trust this project's settings for this run. See `remit trust`."
    ),
    click.option(
        "--no-project-notes",
        "no_notes",
        is_flag=True,
        help="Do not give AGENTS.md or CLAUDE.md of a trusted project to the agents.",
    ),
)
_SHOWING = (
    click.option(
        "--output-format",
        type=click.Choice(["text", "json", "stream-json"]),
        metavar="FORMAT",
        default="text",
        show_default=True,
        help="text: only the answer; json: one object; stream-json: one event per line, then the object.",
    ),
    click.option(
        "--quiet",
        "-q",
        is_flag=True,
        help="Print only the answer, and the reason if the run did not complete.",
    ),
)
_ASK_ELSEWHERE = click.option(
    "--ask-elsewhere",
    is_flag=True,
    help="Let `remit approve` in another terminal answer approval requests.",
)


def given_options(command: F) -> F:
    """Add the options that define a run."""
    for option in reversed(_GIVEN):
        command = option(command)
    return command


_ON_RESUME = {
    "agent": "The agent to run. Defaults to the recorded one.",
    "workspace": "The folder to work in. Defaults to the recorded one.",
}


def resume_options(command: F) -> F:
    """Add the options that define a run, with the defaults of a resume in their help."""
    changed = given_options(command)
    for option in cast("list[click.Option]", getattr(changed, "__click_params__", [])):
        if option.name in _ON_RESUME:
            option.help = _ON_RESUME[option.name]
    return changed


def showing_options(command: F) -> F:
    """Add the options that define the output and who is asked."""
    return output_options(_ASK_ELSEWHERE(command))


def output_options(command: F) -> F:
    """Add the options that define the output."""
    for option in reversed(_SHOWING):
        command = option(command)
    return command


def read_options(given: dict[str, object]) -> Options:
    """Convert click's values. Raises UsageError."""
    return Options(
        agent=_text(given["agent"]),
        model=_text(given["model"]),
        agents=tuple(
            str(Path(path).expanduser().absolute()) for path in cast("tuple[str, ...]", given["agents"])
        ),
        limits=_limits(given),
        allow=cast("tuple[str, ...]", given["allow"]),
        ask=cast("tuple[str, ...]", given["ask"]),
        deny=cast("tuple[str, ...]", given["deny"]),
        yes=bool(given["yes"]),
        read_only=bool(given["read_only"]),
        sandbox=_text(given["sandbox"]),
        schema=_schema(given["json_schema"]),
        workspace=_workspace(given["workspace"]),
        trust=bool(given["trust"]),
        no_notes=bool(given["no_notes"]),
    )


def read_showing(given: dict[str, object]) -> Showing:
    return Showing(
        form=cast("Literal['text', 'json', 'stream-json']", given["output_format"]),
        quiet=bool(given["quiet"]),
        elsewhere=bool(given.get("ask_elsewhere")),
    )


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


_SINGLE = {"max_turns": "turns", "max_budget_usd": "usd", "timeout": "seconds", "max_depth": "depth"}


def _limits(given: dict[str, object]) -> str:
    """All limits as one list. The single options come last, so they win; an invalid one raises UsageError."""
    parts = [_text(given["limits"]).strip(", ")]
    for flag, name in _SINGLE.items():
        if given[flag] is not None:
            written = _text(given[flag])
            _check_limit(f"--{flag.replace('_', '-')}", name, written)
            parts.append(f"{name}={written}")
    return ",".join(part for part in parts if part)


def _check_limit(flag: str, name: str, written: str) -> None:
    """Check one option's value here, so that the message can name the option."""
    try:
        read_limit(name, Node(written, 0, plain=True))
    except Wrong as wrong:
        raise UsageError(f"{flag} {wrong.text}.") from None


def _workspace(given: object) -> str:
    if not given:
        return ""
    folder = Path(str(given)).expanduser().absolute()
    if not folder.is_dir():
        raise UsageError(f"--workspace {str(given)!r} is not a folder. Create it, or name another.")
    return str(folder)


def _schema(given: object) -> JsonObject | None:
    """Read a schema from text or from a file. Raises UsageError."""
    if given is None:
        return None
    text = str(given)
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).expanduser().read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise UsageError(
                f"--json-schema {given!r} cannot be read: {why}. Pass a file name, or the schema itself."
            ) from None
    try:
        found: Json = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"--json-schema is not valid JSON: {error}.") from None
    if not isinstance(found, dict):
        raise UsageError('--json-schema must be a JSON object, such as {"type": "object", "properties": {}}.')
    return cast(JsonObject, found)
