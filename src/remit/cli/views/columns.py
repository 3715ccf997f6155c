"""Tables of plain text: columns that line up and fit the window. Without rich, so that lists are quick."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Sequence
from typing import NamedTuple

import click
import msgspec

import remit.cli.views.words as words

GAP = "  "
LEAST_CELL = 8
"""The column that gives way is never narrower."""


class Cell(NamedTuple):
    """A piece of foreign text and its look."""

    text: str
    look: words.Look = ""


Row = Sequence[str | Cell]


def window() -> int | None:
    """The width of the terminal that standard output is; None when it is none, and nothing need be cut."""
    return shutil.get_terminal_size().columns if words.is_terminal(sys.stdout) else None


def echo(text: str = "", *, nl: bool = True) -> None:
    """Prints text that is fit for a terminal; where the output has nothing but ASCII, in that."""
    shown = text if words.has_unicode(sys.stdout) else words.ascii_only(text)
    click.echo(shown, nl=nl, color=words.has_colour(sys.stdout))


def echo_table(rows: Sequence[Row], *, gives_way: int, right: Sequence[int] = ()) -> None:
    """Prints rows, the first of which has the headings."""
    colour = words.has_colour(sys.stdout)
    for line in table(rows, gives_way=gives_way, right=right, width=window(), colour=colour):
        echo(line)


def table(
    rows: Sequence[Row],
    *,
    gives_way: int,
    right: Sequence[int] = (),
    width: int | None = None,
    colour: bool = False,
) -> list[str]:
    """Lines of aligned columns. The column `gives_way` is cut to fit `width`; those in `right` end together.

    Columns that are empty in every row but that of the headings are left out.
    """
    tidy = [[_tidy(cell) for cell in row] for row in rows]
    used = [place for place in range(len(tidy[0])) if any(row[place].text for row in tidy[1:])]
    widths = {place: max(words.width(row[place].text) for row in tidy) for place in used}
    if width is not None and gives_way in widths:
        others = sum(widths.values()) - widths[gives_way] + len(GAP) * (len(used) - 1)
        widths[gives_way] = min(widths[gives_way], max(LEAST_CELL, width - others))
    lines: list[str] = []
    for number, row in enumerate(tidy):
        parts = [words.pad(row[place].text, widths[place], right=place in right) for place in used]
        looks = ["dim" if number == 0 else row[place].look for place in used]
        if parts:
            parts[-1] = parts[-1].rstrip()
        shown = [words.looked(part, look, colour=colour) for part, look in zip(parts, looks, strict=True)]
        lines.append(GAP.join(shown).rstrip())
    return lines


def _tidy(cell: str | Cell) -> Cell:
    given = cell if isinstance(cell, Cell) else Cell(cell)
    return Cell(words.line(given.text), given.look)


def echo_json(value: object, *, indent: bool = True) -> None:
    """Prints a value as JSON; what JSON does not know, paths for one, is text."""
    _echo(
        json.dumps(msgspec.to_builtins(value, enc_hook=str), ensure_ascii=False, indent=2 if indent else None)
    )


def echo_encoded(data: bytes) -> None:
    """Prints one value that is JSON already, on a line of its own."""
    _echo(data.decode())


def _echo(text: str) -> None:
    click.echo(safe_json(text))


def safe_json(text: str) -> str:
    """JSON with the same value that drives no terminal: controls, C1 and bidi ones too, are escapes."""
    # Outside its strings JSON has nothing but ASCII, so that the whole text can be searched.
    return _UNSEEN.sub(_escaped if words.has_unicode(sys.stdout) else _in_ascii, text)


_UNSEEN = re.compile(r"[^\x00-\x7e]")


def _escaped(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else _in_ascii(found)


def _in_ascii(found: re.Match[str]) -> str:
    return "\\u007f" if found[0] == "\x7f" else json.dumps(found[0])[1:-1]
