"""TOML with the line of each key. The standard library reads the values; a scan of the text finds the lines."""

from __future__ import annotations

import re
import tomllib
from typing import cast

from remit.definitions.syntax.nodes import Node, Wrong
from remit.tools.bounded_toml import DEEPEST, TooLarge, parse, too_deep

KeyPath = tuple[str, ...]

_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
_AT_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")
_LONG = ('"""', "'''")


def read_toml(text: str) -> dict[str, Node]:
    """The entries of a document. Raises Wrong, with the line if it is known."""
    try:
        values = parse(text)
    except TooLarge as error:
        raise Wrong(error.text, error.line) from None
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        found = _AT_LINE.search(said)
        line = int(found[1]) if found and found[1] else text.count("\n") + 1 if found else 0
        raise Wrong(f"is not valid TOML: {_AT_LINE.sub('', said).strip()}", line) from None
    except (ValueError, RecursionError):
        raise Wrong(
            "is not valid TOML: it is nested too deeply, or has a number that is too long", 0
        ) from None
    return _with_lines(values, (), key_lines(text), 0)


def _with_lines(
    table: dict[str, object], path: KeyPath, lines: dict[KeyPath, int], line: int
) -> dict[str, Node]:
    return {key: _node(value, (*path, key), lines, line) for key, value in table.items()}


def _node(value: object, path: KeyPath, lines: dict[KeyPath, int], line: int) -> Node:
    """A value; without a known line it gets the line of the table or list that holds it."""
    line = lines.get(path, line)
    if len(path) > DEEPEST:
        raise Wrong(too_deep(), line)
    if isinstance(value, dict):
        return Node(_with_lines(cast("dict[str, object]", value), path, lines, line), line)
    if isinstance(value, list):
        items = cast("list[object]", value)
        return Node([_node(item, (*path, str(n)), lines, line) for n, item in enumerate(items)], line)
    if isinstance(value, (str, int, float, bool)):
        return Node(value, line)
    return Node(str(value), line)


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line of each key and table header of a valid document."""
    found = dict[KeyPath, int]()
    table: KeyPath = ()
    counts = dict[KeyPath, int]()
    scan = _Scan()
    for number, line in enumerate(text.split("\n"), start=1):
        if scan.is_open:
            scan.read(line)
            continue
        stripped = line.lstrip()
        if stripped.startswith("["):
            repeated = stripped.startswith("[[")
            table = _placed(_split(stripped[1 + repeated :])[0], counts, repeated=repeated)
            for length in range(1, len(table) + 1):
                found.setdefault(table[:length], number)
            continue
        key, rest = _split(line)
        if key and line[rest:].startswith("="):
            for length in range(1, len(key) + 1):
                found.setdefault((*table, *key[:length]), number)
            scan.read(line[rest + 1 :])
    return found


def _placed(header: KeyPath, counts: dict[KeyPath, int], *, repeated: bool) -> KeyPath:
    """The path of a table: below the newest entry of each list of tables in its name."""
    path: KeyPath = ()
    for part in header[:-1]:
        path = (*path, part)
        if path in counts:
            path = (*path, str(counts[path]))
    path = (*path, *header[-1:])
    if repeated:
        counts[path] = counts.get(path, -1) + 1
        path = (*path, str(counts[path]))
    return path


def _split(line: str) -> tuple[KeyPath, int]:
    """A dotted key at the beginning of a line, and where it ends."""
    parts, at = list[str](), 0
    while match := _PART.match(line, at):
        parts.append(next(part for part in match.groups() if part is not None))
        at = match.end()
        if line[at : at + 1] != ".":
            break
        at += 1
    return tuple(parts), at


class _Scan:
    """Tracks a value over several lines: long strings and brackets contain no keys."""

    def __init__(self) -> None:
        self._mark = ""
        self._depth = 0

    @property
    def is_open(self) -> bool:
        return bool(self._mark) or self._depth > 0

    def read(self, line: str) -> None:
        at = 0
        while at < len(line):
            if self._mark:
                at = self._leave(line, at)
            elif line.startswith(_LONG, at):
                self._mark = line[at : at + 3]
                at += 3
            elif line[at] in "\"'":
                at = _behind_string(line, at)
            elif line[at] == "#":
                return
            else:
                self._depth += (line[at] in "[{") - (line[at] in "]}")
                at += 1

    def _leave(self, line: str, at: int) -> int:
        escapes = self._mark == '"""'
        while at < len(line):
            if escapes and line[at] == "\\":
                at += 2
            elif line.startswith(self._mark, at):
                quote, at = self._mark[0], at + 3
                self._mark = ""
                # A long string may end with up to two quotes before the closing ones.
                while line[at : at + 1] == quote:
                    at += 1
                return at
            else:
                at += 1
        return at


def _behind_string(line: str, at: int) -> int:
    mark, at = line[at], at + 1
    while at < len(line) and line[at] != mark:
        at += 2 if mark == '"' and line[at] == "\\" else 1
    return at + 1
