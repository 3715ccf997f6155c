"""What a call is about, for rules with a pattern. Tools say it themselves (`subjects=`), or it is read from their arguments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

from msgspec import Struct

from remit.types.messages import Json, JsonObject
from remit.types.text import text_of

if TYPE_CHECKING:
    from pathlib import Path

MOST_TEXTS = 1000
"""Texts of a call that rules look at; what has more is asked about."""
ANYTHING = "\0"
"""In a reading of a subject: text that is known only when the call runs. No command or path contains this character."""


class Subject(Struct, frozen=True):
    """One thing that a call is about, for rules such as `terminal(git status*)`."""

    text: str
    also: tuple[str, ...] = ()
    """Other ways to read it: only rules that ask or deny are matched with these. They may hold `ANYTHING`."""
    clear: bool = True
    """Whether it can be told what it would do; what is not clear no pattern allows."""
    host: str = ""
    """The host of an address, in lower case, for patterns such as `domain:example.com`."""
    assigned: tuple[str, ...] = ()
    """Variables that are set for a command. A pattern that allows the command must name each of them: `NAME=`."""


def texts(args: JsonObject) -> tuple[Subject, ...]:
    """Every text among the arguments, however deep; numbers as they are written. Beyond the bound it is unclear."""
    found: list[Subject] = []
    left: list[Json] = list(args.values())
    while left and len(found) < MOST_TEXTS:
        value = left.pop()
        if isinstance(value, dict):
            left += [*value, *cast(JsonObject, value).values()]
        elif isinstance(value, list):
            left += cast("list[Json]", value)
        elif value is not None:
            found.append(Subject(text_of(value)))
    return tuple(found) if not left else (*found, Subject("", clear=False))


def place(path: str, workspace: Path | None) -> Subject:
    """Where a path really leads, from the workspace; a link must not go round a rule."""
    root = os.path.realpath(workspace or ".")
    try:
        real = os.path.relpath(os.path.realpath(os.path.join(root, path)), root)  # noqa: PTH118 - as the tool will
    except (OSError, ValueError):
        return Subject(path, clear=False)
    return Subject(real.replace(os.sep, "/"), also=(path, os.path.normpath(path)))
