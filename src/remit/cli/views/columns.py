"""Tables of plain text that fit the window. Without rich, whose import would slow every list down."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import click
import msgspec

import remit.observe.words as words

GAP = "  "
LEAST_CELL = 16
"""The least width of the column that is cut; if the table still does not fit, every row becomes a block of lines."""


class Cell(NamedTuple):
    """Untrusted text and its look."""

    text: str
    look: words.Look = ""


Row = Sequence[str | Cell]


def window() -> int | None:
    """The width of the terminal; None if standard output is not a terminal, so that nothing is cut."""
    return words.window_of(sys.stdout) if words.is_terminal(sys.stdout) else None


def echo(text: str = "", *, nl: bool = True, wrap: bool = True) -> None:
    """Print escaped text, wrapped at spaces in a terminal, and in ASCII if the output supports nothing else."""
    room = window() if wrap else None
    if room is not None:
        text = "\n".join(part for line in text.split("\n") for part in words.wrap(line, room))
    shown = text if words.has_unicode(sys.stdout) else words.ascii_only(text)
    click.echo(shown, nl=nl, color=words.has_colour(sys.stdout))


def echo_answer(text: str) -> None:
    """Print untrusted text, escaped for a terminal: prose is wrapped, code is not."""
    shown, room = words.lines(text), window()
    echo(shown if room is None else words.wrap_prose(shown, room), wrap=False)


def echo_table(rows: Sequence[Row], *, gives_way: int, right: Sequence[int] = ()) -> None:
    """Print rows; the first row has the headings."""
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
    """Lines of aligned columns. The column `gives_way` is cut to fit `width`; columns in `right` are right-aligned.

    Columns without values are left out. If the columns do not fit, each row becomes a block of lines: the columns before
    `gives_way`, that column, and the other columns with their headings.
    """
    tidy = [[_tidy(cell) for cell in row] for row in rows]
    used = [place for place in range(len(tidy[0])) if any(row[place].text for row in tidy[1:])]
    widths = {place: max(words.width(row[place].text) for row in tidy) for place in used}
    if width is not None and gives_way in widths:
        room = width - (sum(widths.values()) - widths[gives_way] + len(GAP) * (len(used) - 1))
        if room < min(widths[gives_way], LEAST_CELL):
            return [
                line for row in tidy[1:] for line in _block(tidy[0], row, gives_way, width, colour=colour)
            ]
        widths[gives_way] = min(widths[gives_way], room)
    lines: list[str] = []
    for number, row in enumerate(tidy):
        parts = [words.pad(row[place].text, widths[place], right=place in right) for place in used]
        looks = ["dim" if number == 0 else row[place].look for place in used]
        if parts:
            parts[-1] = parts[-1].rstrip()
        shown = [words.looked(part, look, colour=colour) for part, look in zip(parts, looks, strict=True)]
        lines.append(GAP.join(shown).rstrip())
    return lines


def _block(
    heads: Sequence[Cell], row: Sequence[Cell], gives_way: int, width: int, *, colour: bool
) -> Iterator[str]:
    """A row as a block of lines, for a narrow window."""
    first = [words.looked(cell.text, cell.look, colour=colour) for cell in row[:gives_way] if cell.text]
    yield from words.wrap(GAP.join(first), width, GAP)
    if row[gives_way].text:
        yield words.looked(
            GAP + words.cut(row[gives_way].text, width - len(GAP)), row[gives_way].look, colour=colour
        )
    rest = zip(heads[gives_way + 1 :], row[gives_way + 1 :], strict=True)
    named = ", ".join(f"{head.text.lower()} {cell.text}" for head, cell in rest if cell.text)
    for line in words.wrap(GAP + named, width) if named else ():
        yield words.looked(line, "dim", colour=colour)


def _tidy(cell: str | Cell) -> Cell:
    given = cell if isinstance(cell, Cell) else Cell(cell)
    return Cell(words.line(given.text), given.look)


def echo_json(value: object, *, indent: bool = True) -> None:
    """Print a value as JSON; types that JSON lacks, such as paths, become text."""
    _echo(
        json.dumps(msgspec.to_builtins(value, enc_hook=str), ensure_ascii=False, indent=2 if indent else None)
    )


def echo_encoded(data: bytes) -> None:
    """Print one encoded JSON value on its own line."""
    _echo(data.decode())


def _echo(text: str) -> None:
    click.echo(safe_json(text))


def safe_json(text: str) -> str:
    """The same JSON with all control characters escaped, C1 and bidi too, so that it is safe on a terminal."""
    # Outside of strings JSON is ASCII only, so the substitution can run over the whole text.
    return _UNSEEN.sub(_escaped if words.has_unicode(sys.stdout) else _in_ascii, text)


_UNSEEN = re.compile(r"[^\x00-\x7e]")


def _escaped(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else _in_ascii(found)


def _in_ascii(found: re.Match[str]) -> str:
    return "\\u007f" if found[0] == "\x7f" else json.dumps(found[0])[1:-1]
