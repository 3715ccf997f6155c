"""Shell completion: commands and options (by click), agents of this folder, runs of the journal.

Completion only reads files: it runs no code of a project, trusts no settings and opens no connection. On any error the
shell gets no completions and no message. Agent files are untrusted, and a completion becomes part of a command line, so
only names without characters that are special to a shell are offered.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from contextlib import redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import click
from click.shell_completion import BashComplete, CompletionItem, FishComplete, ShellComplete, ZshComplete

if TYPE_CHECKING:
    from remit.types.ports import TreeInfo

VARIABLE = "_REMIT_COMPLETE"
"""The environment variable that the scripts set, to the shell's name and `_complete`."""

MOST_S = 2.0
"""Seconds before completion gives up: a disk that does not answer must not block the prompt."""

MOST_RUNS = 50
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*", re.ASCII)

Items: TypeAlias = "list[CompletionItem[str]]"


class Bash(BashComplete):
    """Uses a script with local variables and quoted values; needs bash 4.4."""

    source_template = """\
%(complete_func)s() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
            dir,*) compopt -o dirnames ;;
            file,*) compopt -o default ;;
            plain,*) COMPREPLY+=("${line#plain,}") ;;
        esac
    done < <(env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" %(complete_var)s=bash_complete "$1" 2>/dev/null)
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def source(self) -> str:
        return self.source_template % self.source_vars()

    def get_completion_args(self) -> tuple[list[str], str]:
        args, incomplete = super().get_completion_args()
        # bash splits --agent=sc into three words.
        return (args[:-1], incomplete) if args[-1:] == ["="] else (args, incomplete)


SHELLS: dict[str, type[ShellComplete]] = {"bash": Bash, "zsh": ZshComplete, "fish": FishComplete}


def script(program: click.Command, shell: str) -> str:
    """The completion script of a shell."""
    return SHELLS[shell](program, {}, "remit", VARIABLE).source()


def answer(program: click.Command, instruction: str) -> None:
    """Print the completions for the shell that set the variable; nothing on any error."""
    guard = threading.Timer(MOST_S, os._exit, (0,))
    guard.daemon = True
    guard.start()
    found = ""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stderr(nowhere):
        try:
            shell = SHELLS[instruction.removesuffix("_complete")]
            found = shell(program, {}, "remit", VARIABLE).complete()
        except Exception:  # noqa: BLE001, S110 - an error would appear in the line that the user types
            pass
    guard.cancel()
    if found:
        sys.stdout.write(f"{found}\n")
        sys.stdout.flush()


# --- Values of options and arguments --------------------------------------------------------------


def agents(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Names of the agents that `--agent` accepts here."""
    del param
    from remit.definitions import load_settings  # noqa: PLC0415 - not for other completions

    folder = cast("str | None", ctx.params.get("workspace")) or "."
    extra = cast("tuple[str, ...]", ctx.params.get("agents") or ())
    loaded = load_settings(folder).load_agents(extra)
    return [
        _item(one.name, one.description) for one in loaded.agents.values() if is_offered(one.name, incomplete)
    ]


def runs(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """`last` and the short ids of the newest runs, if the journal is a file."""
    del param
    import asyncio  # noqa: PLC0415 - not for other completions

    import remit.cli.run_lookup as run_lookup  # noqa: PLC0415 - as above

    place = run_lookup.find_journal(cast("str | None", ctx.params.get("journal")))
    # A journal on a server would need a connection.
    if place.path is None or not place.path.exists():
        return []
    trees = asyncio.run(_trees(place.url))
    shorts = run_lookup.short_ids(info.root for info in trees)
    found = [
        _item(shorts[info.root], f"{info.agent}: {info.task}")
        for info in trees
        if is_offered(shorts[info.root], incomplete)
    ]
    newest = (
        [_item(run_lookup.LAST, "the newest run")]
        if trees and is_offered(run_lookup.LAST, incomplete)
        else []
    )
    return [*newest, *found[:MOST_RUNS]]


async def _trees(url: str) -> list[TreeInfo]:
    from remit.stores import open_store  # noqa: PLC0415 - as above

    store = open_store(url)
    try:
        return await store.trees()
    finally:
        await store.close()


def is_offered(name: str, incomplete: str) -> bool:
    """Whether a name starts with the typed text and has no characters that are special to a shell."""
    return _SAFE.fullmatch(name) is not None and name.startswith(incomplete)


def _item(name: str, explained: str) -> CompletionItem[str]:
    import remit.observe.words as words  # noqa: PLC0415 - as above

    return CompletionItem(name, help=words.line(explained, 60) or None)


def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Let the shell complete folders."""
    del ctx, param
    return [CompletionItem(incomplete, type="dir")]


def files(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Let the shell complete files."""
    del ctx, param
    return [CompletionItem(incomplete, type="file")]
