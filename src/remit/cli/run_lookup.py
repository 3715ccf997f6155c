"""Finds the journal of a command (`--journal`, settings) and a run in it (ids, short ids, unique prefixes)."""

from __future__ import annotations

import difflib
import os
import re
import shlex
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import unquote

import click

import remit.cli.exits as exits
from remit.errors import UsageError
from remit.history.fold import fold
from remit.history.records import Tree
from remit.history.secret_patterns import SecretPattern
from remit.stores import default_path, open_store
from remit.types.ports import Store, TreeInfo
from remit.types.text import visible

LEAST = 5
"""Letters of a short id; more if two ids share a prefix."""

LAST = "last"
"""Means the newest run. Ids never contain the letter l."""

_NONE = ("false", "none", "off")
"""Values of REMIT_JOURNAL that turn the journal off."""

_REQUEST = re.compile(r"(?:approval)?([1-9][0-9]{0,8})")

F = TypeVar("F", bound=Callable[..., object])


class Journal(NamedTuple):
    """A store's URL, and which setting it comes from."""

    url: str
    origin: str

    @property
    def where(self) -> str:
        """The URL for messages, without a password."""
        if self.url == "sqlite":
            return str(default_path())
        return visible(re.sub(r"(://[^:/@\s]*):[^@/\s]*@", r"\1:***@", self.url))

    @property
    def path(self) -> Path | None:
        """The journal's file, or None if it is not a file."""
        if self.url == "sqlite":
            return default_path()
        beginning = "sqlite:///"
        if not self.url.startswith(beginning):
            return None
        return Path(unquote(self.url.removeprefix(beginning))).expanduser().absolute()


class NamedRun(NamedTuple):
    """A run that the user named: its tree and its id."""

    info: TreeInfo
    run: str
    short: str
    """The run's id as messages show it."""

    @property
    def is_root(self) -> bool:
        return self.run == self.info.root


def journal_option(command: F) -> F:
    """Add `--journal` to a command."""
    return click.option(
        "--journal", metavar="URL", help="Where the runs are stored, such as sqlite:////full/path/runs.db."
    )(command)


def find_journal(given: str | None) -> Journal:
    """The journal of a command: `--journal`, REMIT_JOURNAL, remit.toml, else the user's default journal.

    Raises UsageError if the journal is turned off.
    """
    variable = "REMIT_JOURNAL"
    if given is not None:
        return _kept(Journal(given, "the command line"))
    if written := os.environ.get(variable, "").strip():
        return _kept(Journal("memory" if written.lower() in _NONE else written, variable))
    if not _may_have_settings():
        return Journal("sqlite", "default")
    from remit.definitions import SettingsError, load_settings  # noqa: PLC0415 - a third of the time of `remit runs`

    try:
        settings = load_settings(".")
    except SettingsError as error:
        # A broken settings file must not keep users from seeing or cancelling runs.
        exits.tell(f"{str(error).splitlines()[0]} (ignoring this file; using the default journal)")
        return Journal("sqlite", "default")
    if settings.trusted_before is not None and any(one.key == "journal" for one in settings.untrusted):
        exits.tell(
            f"The settings of {settings.project} changed since you trusted them, so remit does not use their journal."
            " To see the changes: remit trust"
        )
    return _kept(Journal(settings.journal or "sqlite", settings.origin("journal")))


def find_secrets() -> tuple[SecretPattern, ...]:
    """The patterns of secrets in the settings of the current folder."""
    from remit.definitions import SettingsError, load_settings  # noqa: PLC0415 - as above

    try:
        return load_settings(".").secrets if _may_have_settings() else ()
    except SettingsError:
        return ()


def _may_have_settings() -> bool:
    """Whether a settings file may exist. A cheap check that avoids loading the settings in most folders."""
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "remit" / "config.toml"
    here = Path.cwd()
    for folder in (here, *here.parents):
        if (folder / "remit.toml").exists():
            return True
        try:
            if b"tool.remit" in (folder / "pyproject.toml").read_bytes():
                return True
        except OSError:
            continue
    return config.exists()


def _kept(journal: Journal) -> Journal:
    if journal.url.partition("://")[0] == "memory":
        raise UsageError(
            f"The journal is off (set by {journal.origin}), so no runs are stored. Name one: --journal sqlite:////full/path/runs.db"
        )
    return journal


def hint(command: str) -> str:
    """`remit COMMAND` for a message, with the `--journal` of the current command."""
    context = click.get_current_context(silent=True)
    given = context.params.get("journal") if context is not None else None
    flag = f" --journal {shlex.quote(Journal(given, '').where)}" if isinstance(given, str) else ""
    return f"remit {command}{flag}"


@asynccontextmanager
async def opened(journal: str | None, *, posts: bool = False) -> AsyncGenerator[Store]:
    """The store of a command, closed at the end. With `posts`, the store redacts the secrets of the settings."""
    store = open_store(find_journal(journal).url, secrets=find_secrets() if posts else ())
    try:
        yield store
    finally:
        await store.close()


# --- Which run ------------------------------------------------------------------------------------


def short_ids(roots: Iterable[str]) -> dict[str, str]:
    """For each id its shortest unique prefix of at least LEAST letters."""
    ordered = sorted(set(roots))
    found: dict[str, str] = {}
    for place, root in enumerate(ordered):
        beside = [*ordered[max(0, place - 1) : place], *ordered[place + 1 : place + 2]]
        needed = max((_shared(root, other) + 1 for other in beside), default=0)
        found[root] = root[: max(LEAST, needed)]
    return found


def _shared(one: str, other: str) -> int:
    """The length of the common prefix."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def find(trees: Sequence[TreeInfo], written: str) -> NamedRun:
    """The run with this id or prefix. Raises UsageError if none or several match."""
    name, dot, rest = written.strip().partition(".")
    shorts = short_ids(info.root for info in trees)
    info = trees[0] if name == LAST and trees else _match(trees, name, shorts)
    return NamedRun(info, info.root + dot + rest, visible(shorts[info.root] + dot + rest))


def _match(trees: Sequence[TreeInfo], name: str, shorts: dict[str, str]) -> TreeInfo:
    exact = [info for info in trees if info.root == name]
    near = exact or [info for info in trees if name and info.root.startswith(name)]
    if len(near) == 1:
        return near[0]
    if near:
        some = ", ".join(f"{shorts[info.root]} ({visible(info.agent)})" for info in near[:6])
        more = f" and {len(near) - 6} more" if len(near) > 6 else ""
        raise UsageError(f"{_quoted(name)} matches {len(near)} runs: {some}{more}. Write more of the id.")
    if not trees:
        raise UsageError(f"No run {_quoted(name)}: the journal is empty. Start a run: remit run PROMPT")
    meant = difflib.get_close_matches(name, [*shorts.values(), *shorts], n=1, cutoff=0.7)
    near_one = f" Did you mean {meant[0]}?" if meant else ""
    raise UsageError(f"No run {_quoted(name)} in the journal.{near_one} `{hint('runs')}` lists all runs.")


def _quoted(written: str) -> str:
    return "'" + visible(written if len(written) <= 60 else written[:57] + "...") + "'"


async def look(store: Store, written: str) -> tuple[NamedRun, Tree]:
    """The run with this id or prefix, and its current tree. Raises UsageError, also for an unknown child."""
    found = find(await store.trees(), written)
    tree = fold([event async for event in store.read(found.info.root)])
    check_run(tree, found)
    return found, tree


def check_run(tree: Tree, found: NamedRun) -> None:
    """Raises UsageError unless the tree has that run."""
    if found.run in tree.runs:
        return
    root = found.short.partition(".")[0]
    if not tree.runs:
        raise UsageError(f"{root} has no recorded events yet. Try again in a moment.")
    raise UsageError(
        f"No run {_quoted(found.short)} in the tree of {root}. `{hint(f'show {root} --tree')}` lists its runs."
    )


# --- Which request --------------------------------------------------------------------------------


def split_request(written: str) -> tuple[str, str]:
    """Split `abcde/2` or `abcde/approval2` into the run and the end of a request's id; a run alone has an empty end."""
    run, slash, name = written.strip().partition("/")
    if not slash:
        return run, ""
    number = _REQUEST.fullmatch(name)
    if number is None or not run:
        raise UsageError(
            f"{_quoted(written)} is not a request id. `remit approve` lists the ids, such as abcde/2."
        )
    return run, f"approval{number[1]}"


def short_request(request: str, short: str) -> str:
    """A request's id as messages show it: `abcde/2`."""
    return f"{short.partition('.')[0]}/{request.rpartition('/')[2].removeprefix('approval')}"
