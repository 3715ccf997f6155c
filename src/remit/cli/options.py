"""What `run` and `resume` are told: the options, and the record of them that a later `resume` builds on."""

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
"""Characters of a record; more is none of ours."""


class Options(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a run is called, as far as a resumed one needs it. Nothing here is secret: it is kept in the journal."""

    agent: str = ""
    """Its name; empty for the lead that has everything."""
    survey: bool = False
    """The built-in survey, which needs no key."""
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

    def over(self, before: Options) -> Options:
        """These, with what is not said here as it was before."""
        unsaid = {
            name: getattr(before, name)
            for name in self.__struct_fields__
            if getattr(self, name) in ("", (), None, False)
        }
        return msgspec.structs.replace(self, **unsaid) if unsaid else self


class Showing(Struct, frozen=True, kw_only=True):
    """What is shown of a run, and where."""

    form: Literal["text", "json", "stream-json"] = "text"
    quiet: bool = False
    elsewhere: bool = False
    """Questions wait for `remit approve`, also without a terminal."""


def artifact(root: str) -> str:
    """The name of the record of a tree."""
    return f"{root}/cli"


async def keep(store: Store, root: str, options: Options) -> None:
    """Write down how a tree was called. Raises StoreError."""
    await store.save_artifact(root, artifact(root), msgspec.json.encode(options).decode())


async def recall(store: Store, root: str) -> Options | None:
    """How a tree was called; None when that was not written down, or cannot be read. Raises StoreError."""
    text = await store.load_artifact(root, artifact(root), 0, MOST_RECORD)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Options)
    except msgspec.DecodeError:
        return None


# --- Reading them ---------------------------------------------------------------------------------

_GIVEN = (
    click.option(
        "--agent",
        metavar="NAME",
        shell_complete=completion.agents,
        help="Run this agent. `remit agents` lists them.",
    ),
    click.option(
        "--model",
        "-m",
        metavar="NAME",
        help="Such as anthropic:claude-sonnet-5, ollama:llama3, an alias, or offline.",
    ),
    click.option(
        "--agents",
        metavar="PATH",
        multiple=True,
        shell_complete=completion.files,
        help="A file or folder with agents. Repeatable.",
    ),
    click.option("--limits", metavar="LIST", help="Limits of the tree, such as depth=2,usd=0.5,seconds=5m."),
    click.option("--max-turns", metavar="N", help="The same as --limits turns=N."),
    click.option("--max-budget-usd", metavar="USD", help="The same as --limits usd=USD."),
    click.option("--timeout", metavar="TIME", help="The same as --limits seconds=TIME, such as 90s, 5m."),
    click.option("--max-depth", metavar="N", help="The same as --limits depth=N."),
    click.option(
        "--allow",
        metavar="RULE",
        multiple=True,
        help="Do not ask for this: 'terminal(git status*)'. Repeatable.",
    ),
    click.option("--ask", metavar="RULE", multiple=True, help="Ask for this. Repeatable."),
    click.option("--deny", metavar="RULE", multiple=True, help="Never do this. Repeatable."),
    click.option(
        "--yes", "-y", is_flag=True, help="Allow whatever would be asked. What is denied stays denied."
    ),
    click.option(
        "--read-only", is_flag=True, help="Tools that only look, in a sandbox that cannot be written to."
    ),
    click.option(
        "--sandbox",
        metavar="KIND",
        help="read-only, workspace-write or open; +network may follow the first two.",
    ),
    click.option(
        "--json-schema",
        metavar="FILE|TEXT",
        shell_complete=completion.files,
        help="The answer must be JSON that matches this schema.",
    ),
    click.option(
        "--workspace",
        metavar="DIR",
        shell_complete=completion.folders,
        help="The folder to work in; otherwise the current one.",
    ),
    click.option(
        "--trust", is_flag=True, help="Follow this project's own settings for this run. See `remit trust`."
    ),
)
_SHOWING = (
    click.option(
        "--output-format",
        type=click.Choice(["text", "json", "stream-json"]),
        metavar="FORM",
        default="text",
        show_default=True,
        help="text: the answer alone; json: one object; stream-json: one event per line, then the object.",
    ),
    click.option("--quiet", "-q", is_flag=True, help="Print the answer and nothing else."),
    click.option(
        "--ask-elsewhere", is_flag=True, help="Questions wait for `remit approve` in another terminal."
    ),
)


def given_options(command: F) -> F:
    """Adds the options that say what is run."""
    for option in reversed(_GIVEN):
        command = option(command)
    return command


def showing_options(command: F) -> F:
    """Adds the options that say what is shown."""
    for option in reversed(_SHOWING):
        command = option(command)
    return command


def read_options(given: dict[str, object]) -> Options:
    """What click has read, as options. Raises UsageError."""
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
    )


def read_showing(given: dict[str, object]) -> Showing:
    return Showing(
        form=cast("Literal['text', 'json', 'stream-json']", given["output_format"]),
        quiet=bool(given["quiet"]),
        elsewhere=bool(given["ask_elsewhere"]),
    )


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""


_SINGLE = {"max_turns": "turns", "max_budget_usd": "usd", "timeout": "seconds", "max_depth": "depth"}


def _limits(given: dict[str, object]) -> str:
    """One list of all of them; the single ones have the last word. Raises UsageError for one of those."""
    parts = [_text(given["limits"]).strip(", ")]
    for flag, name in _SINGLE.items():
        if given[flag] is not None:
            written = _text(given[flag])
            _check_limit(f"--{flag.replace('_', '-')}", name, written)
            parts.append(f"{name}={written}")
    return ",".join(part for part in parts if part)


def _check_limit(flag: str, name: str, written: str) -> None:
    """Here, where it is known which option was written."""
    try:
        read_limit(name, Node(written, 0, plain=True))
    except Wrong as wrong:
        raise UsageError(f"{flag} {wrong.text}.") from None


def _workspace(given: object) -> str:
    if not given:
        return ""
    folder = Path(str(given)).expanduser().absolute()
    if not folder.is_dir():
        raise UsageError(f"--workspace {str(given)!r} is not a folder. Make it, or name another.")
    return str(folder)


def _schema(given: object) -> JsonObject | None:
    """A schema as text, or the file that has it. Raises UsageError."""
    if given is None:
        return None
    text = str(given)
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).expanduser().read_text(encoding="utf-8-sig")
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UsageError(
                f"--json-schema {given!r} cannot be read: {why}. Name a file, or write the schema."
            ) from None
    try:
        found: Json = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"--json-schema is no JSON: {error}.") from None
    if not isinstance(found, dict):
        raise UsageError('--json-schema must be a JSON object, such as {"type": "object", "properties": {}}.')
    return cast(JsonObject, found)
