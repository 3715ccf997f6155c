"""Asks whether to trust a project's settings, and shows them or their changes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import quote

import remit.cli.exits as exits
import remit.cli.jobs.approver as approver
from remit.definitions import Settings
from remit.definitions.project_trust.trusted_versions import add_version
from remit.engine.terminal_prompt import forget_typed
from remit.errors import UsageError
from remit.types.text import shorten

MOST_LINE = 400
"""Characters shown per line; longer lines are cut."""
MOST_LINES = 100

_YES = frozenset({"y", "yes"})


def difference(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """The removed lines with `-`, then the added lines with `+`."""
    gone = [f"- {line}" for line in before if line not in now]
    return [*gone, *(f"+ {line}" for line in now if line not in before)]


def show(lines: Sequence[str]) -> None:
    for line in lines[:MOST_LINES]:
        exits.tell(f"  {shorten(line, MOST_LINE, MOST_LINE - 3)}")
    if len(lines) > MOST_LINES:
        exits.tell(f"  ... and {len(lines) - MOST_LINES:,} more")


def settle(settings: Settings, folder: str, *, may_ask: bool = True) -> None:
    """Ask about settings that changed since they were trusted. Raises UsageError unless the user trusts them."""
    before, project = settings.trusted_before, settings.project
    if before is None:
        return
    where = f" {quote(folder)}" if folder else ""
    if not may_ask or not approver.can_ask():
        raise UsageError(
            f"Not started: the settings of {project} changed since you trusted them. `remit trust{where}` shows the"
            f" changes; `remit trust --yes{where}` trusts them."
        )
    exits.tell(f"The settings of {project} changed since you trusted them:")
    show(difference(before, settings.asks))
    if not ask("Trust the current settings? [y]es, [n]o: "):
        raise UsageError(
            f"Not started: the settings of {project} are not trusted. Undo the change, or run `remit trust{where}`."
        )
    add_version(project, settings.asks, settings.home, settings.environ)


def ask(question: str) -> bool:
    """Ask for yes or no at the terminal; any other answer is no. Ctrl-C raises KeyboardInterrupt."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with approver.keyboard() as source:
            forget_typed(source)
            sys.stderr.write(question)
            sys.stderr.flush()
            typed = b""
            while not typed.endswith(b"\n") and (piece := os.read(source, 4096)):
                typed += piece
    finally:
        signal.signal(signal.SIGINT, before)
    return typed.decode("utf-8", "replace").strip().lower() in _YES


def read_from(settings: Settings) -> list[str]:
    """The project's settings files, relative to its root."""
    inside = (path for path in settings.files if path.is_relative_to(settings.project))
    return [Path(path).relative_to(settings.project).as_posix() for path in inside]
