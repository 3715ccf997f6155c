"""Short texts for output: marks, times, tokens, money, paths, actions; and wrapping, cutting and escaping.

All untrusted text goes through `line`, `lines` or `visible` before it is printed. Nothing here imports rich.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple, TextIO

from remit.types.outcome import Status
from remit.types.text import clean, one_line, visible

Look = str
"""How a piece of text looks: empty, or one of `LOOKS`."""

LOOKS = {
    "good": "32",
    "bad": "31",
    "warn": "33",
    "busy": "36",
    "dim": "2",
    "strong": "1",
    "ask": "1;33",
}
"""Names of looks and their terminal codes. Colour never carries information that the text lacks."""


class Mark(NamedTuple):
    """The sign before a run."""

    sign: str
    plain: str
    """For terminals with ASCII only."""
    look: Look


RUNNING = Mark("●", "*", "busy")
WAITING = Mark("○", "o", "dim")
ASKING = Mark("?", "?", "ask")

MARKS = {
    Status.COMPLETED: Mark("✓", "+", "good"),
    Status.FAILED: Mark("✗", "x", "bad"),
    Status.REFUSED: Mark("✗", "x", "bad"),
    Status.CANCELLED: Mark("■", "#", "warn"),
    Status.INTERRUPTED: Mark("■", "#", "warn"),
    Status.INCOMPLETE: Mark("!", "!", "warn"),
    Status.OVER_BUDGET: Mark("!", "!", "warn"),
    Status.TIMED_OUT: Mark("!", "!", "warn"),
    Status.STALLED: Mark("!", "!", "warn"),
}

_DOING = {
    "read": "reading",
    "write": "writing",
    "edit": "editing",
    "ls": "listing",
    "glob": "finding",
    "grep": "searching",
    "terminal": "running",
    "fetch": "fetching",
    "read_artifact": "reading an artifact",
}


def mark_of(status: Status | None, *, asking: bool = False, waiting: bool = False) -> Mark:
    """The mark of a run; its status is None while it runs."""
    if status is not None:
        return MARKS[status]
    return ASKING if asking else WAITING if waiting else RUNNING


def status_words(status: Status) -> str:
    """A status for people: `over budget`."""
    return status.value.replace("_", " ")


def doing(tool: str, context: str, display_name: str = "") -> str:
    """A call in words: `reading src/a.py`, `running make test`, `github: search issues`."""
    name = tool.lower()
    if name.startswith("mcp__"):
        server, _, rest = name.removeprefix("mcp__").partition("__")
        verb = f"{server}: {rest.replace('_', ' ')}"
    else:
        verb = _DOING.get(name) or display_name or tool
    return line(f"{verb} {context}")


def duration(seconds: float) -> str:
    """`4s`, `1m05s`, `2h03m`, `3d04h`."""
    whole = max(0, int(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def allowed_time(seconds: float) -> str:
    """A time limit in its shortest form: `10m`, `90s`, `2h`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size and seconds % size == 0:
            return f"{int(seconds // size)}{unit}"
    return f"{seconds:g}s" if seconds < 600 else duration(seconds)


def ago(then: float, now: float) -> str:
    """`just now`, `5m ago`, `3d ago`."""
    past = now - then
    if past < 10:
        return "just now"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if past >= size:
            return f"{int(past // size)}{unit} ago"
    return f"{int(past)}s ago"


def number(count: float) -> str:
    """`950`, `1.2k`, `34k`, `1.2M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= size * 0.9995:
            amount = count / size
            return f"{amount:.1f}{unit}" if amount < 9.95 else f"{amount:.0f}{unit}"
    return f"{count:.0f}"


def money(usd: float | None) -> str:
    """`$0.0042`, `$1.25`; `?` if unknown."""
    if usd is None:
        return "?"
    return f"${usd:.4f}" if 0 < usd < 0.1 else f"${usd:,.2f}"


def count(many: int, one: str, others: str = "") -> str:
    """`1 run`, `3 runs`."""
    return f"{many:,} {one if many == 1 else others or one + 's'}"


def path(names: Iterable[str]) -> str:
    """`lead › reviewer`."""
    return " › ".join(visible(name) for name in names)


def line(text: str, most: int = 0) -> str:
    """Untrusted text on one line: escaped, white space collapsed, cut to `most` cells."""
    found = visible(" ".join(one_line(clean(text[:4000])).split()))
    return cut(found, most) if most else found


def lines(text: str) -> str:
    """Untrusted text for a terminal: newlines and tabs stay, other control characters are escaped."""
    return "\n".join("\t".join(visible(part) for part in row.split("\t")) for row in clean(text).split("\n"))


def width(text: str) -> int:
    """The number of terminal cells of a text."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def _cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def cut(text: str, most: int) -> str:
    """The text cut to `most` cells, with `…` at the end if it was cut."""
    if width(text) <= most:
        return text
    if most <= 0:
        return ""
    used, end = 0, 0
    for character in text:
        used += _cells(character)
        if used > most - 1:
            break
        end += 1
    return text[:end].rstrip() + "…"


_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_WORD = re.compile(r"( *)([^ ]+)")


def wrap(text: str, most: int, hanging: str = "") -> list[str]:
    """Wrap at spaces to lines of at most `most` cells; longer words stay whole, so that they can be copied.

    Later lines start with the indent of the text and `hanging`. Colour codes take no cells.
    """
    if width(_STYLE.sub("", text)) <= most:
        return [text]
    begin = text[: len(text) - len(text.lstrip(" "))]
    found: list[str] = []
    line, used = "", 0
    for blanks, word in _WORD.findall(text):
        cells = width(_STYLE.sub("", word))
        if line and used + len(blanks) + cells > most:
            found.append(line)
            line, used = begin + hanging + word, len(begin + hanging) + cells
        else:
            line, used = line + blanks + word, used + len(blanks) + cells
    return [*found, line]


_LITERAL = re.compile(r"    |\t|\s*\|")
"""The start of a line of code or of a table, which is not wrapped."""
_FENCE = re.compile(r"\s*(```|~~~)")
_BULLET = re.compile(r" *(?:[-*+•]|\d{1,3}[.)]) +")


def wrap_prose(text: str, most: int) -> str:
    """Wrap paragraphs and lists to `most` cells; code and tables stay unchanged."""
    found: list[str] = []
    fenced = False
    for row in text.split("\n"):
        fenced ^= bool(_FENCE.match(row))
        if fenced or _LITERAL.match(row):
            found.append(row)
        else:
            bullet = _BULLET.match(row)
            found += wrap(row, most, " " * len(bullet[0].lstrip(" ")) if bullet else "")
    return "\n".join(found)


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """The text cut or padded to `cells`; `right` aligns it right."""
    shown = cut(text, cells)
    blanks = " " * (cells - width(shown))
    return blanks + shown if right else shown + blanks


def has_colour(stream: TextIO) -> bool:
    """Whether to print colours: on a terminal, unless TERM=dumb; FORCE_COLOR turns them on, NO_COLOR off."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "") not in ("", "0"):
        return True
    return is_terminal(stream) and os.environ.get("TERM", "") != "dumb"


def has_unicode(stream: TextIO) -> bool:
    """Whether a stream can encode our signs."""
    try:
        "✓│…›".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is an open terminal."""
    try:
        return stream is not None and not stream.closed and stream.isatty()
    except (ValueError, OSError):
        return False


def window_of(stream: TextIO) -> int:
    """The columns of a stream's terminal; COLUMNS overrides them."""
    written = os.environ.get("COLUMNS", "")
    try:
        return (
            int(written)
            if written.isdecimal() and int(written)
            else os.get_terminal_size(stream.fileno()).columns
        )
    except (OSError, ValueError):
        return 80


def looked(text: str, look: Look, *, colour: bool) -> str:
    """The text with the terminal codes of its look, if `colour`."""
    return f"\x1b[{LOOKS[look]}m{text}\x1b[0m" if colour and look and text else text


_ASCII = str.maketrans(
    {
        "●": "*",
        "○": "o",
        "✓": "+",
        "✗": "x",
        "■": "#",
        "…": "~",
        "·": "-",
        "›": ">",
        "│": "|",
        "├": "|",
        "└": "`",
    }
)


def ascii_only(text: str) -> str:
    """The text in ASCII: our signs as similar characters, all others as `?`."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()
