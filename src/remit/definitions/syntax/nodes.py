"""Values with line numbers, the result of reading front matter, TOML or JSON, and functions that convert them.

All of this is untrusted text, so the functions raise nothing but `Wrong`, with a message for people.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, cast

from remit.tools.words import show
from remit.types.messages import Json
from remit.types.spelling import nearest, suggest
from remit.types.text import clean, one_line, shorten

Scalar = str | int | float | bool | None
Value: TypeAlias = "Scalar | list[Node] | dict[str, Node]"
Level = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Node:
    """A value, and the line on which it or its key begins."""

    value: Value
    line: int
    plain: bool = False
    """Whether the value was written without quotes, so that `3` may be a number."""


class Cause(NamedTuple):
    """A cause that several problems share, so that one line can report them: `12 agents name ...`."""

    what: str
    """What these agents have in common: `use tools that remit does not have`."""
    about: str = ""
    """The part that differs, listed at the end of the line: the name of the tool."""
    topic: Literal["", "model"] = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with a file. An `error` means that the file was not used; a `note` needs no action."""

    level: Level
    file: Path | str
    line: int
    """From 1; 0 for the whole file."""
    text: str
    cause: Cause | None = None
    agent: str = ""
    """The agent that the problem is about, if it has a name."""

    @property
    def where(self) -> str:
        # File names are as untrusted as the files.
        file = show(str(self.file))
        return f"{file}:{self.line}" if self.line else file

    def __str__(self) -> str:
        return f"{self.where}: {fit(self.text)}"


MOST_TOLD = 50
"""Problems reported for one file."""


def note_down(problems: list[Problem], problem: Problem) -> None:
    """Add a problem, unless the limit is reached. The first error is always added."""
    if len(problems) < MOST_TOLD:
        problems.append(problem)
        return
    if len(problems) == MOST_TOLD:
        text = "There are more problems in this file; fix these first."
        problems.append(Problem("warning", problem.file, 0, text))
    if problem.level == "error" and not any(known.level == "error" for known in problems):
        problems.append(problem)


class Wrong(Exception):
    """Raised for a value that cannot be used; the message says what was expected."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.text = text
        self.line = line


def fit(text: str) -> str:
    """Text that quotes files, made safe to print: one line, no control characters, no characters that change the
    reading direction.
    """
    return show(one_line(clean(text)))


def quoted(value: object, most: int = 60) -> str:
    """A quoted excerpt of a file for a message: safe to print, and truncated."""
    text = value if isinstance(value, str) else str(value)
    return "'" + fit(shorten(text, most, most - 3)) + "'"


class Hints:
    """Suggestions for unknown words, from a fixed set of names, for the first few words only.

    A lookup is slow, and files are long.
    """

    def __init__(self, most: int = 20) -> None:
        self._left = most
        self._known: dict[str, str | None] = {}

    def nearest(self, word: str, known: Iterable[str]) -> str | None:
        """Like `remit.types.spelling.nearest`; None also if the limit on lookups is reached."""
        if word not in self._known and self._left:
            self._left -= 1
            self._known[word] = nearest(word, known)
        return self._known.get(word)

    def suggest(self, word: str, known: Iterable[str]) -> str:
        near = self.nearest(word, known)
        return f" Did you mean {near!r}?" if near is not None else ""


_INT = re.compile(r"[-+]?[0-9][0-9_]{0,17}")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]{0,17})?\.?[0-9]{1,17}(?:[eE][-+]?[0-9]{1,3})?")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
    **dict.fromkeys(("null", "~", "none", ""), None),
}


def scalar(node: Node) -> Scalar:
    """The value of an unquoted word by YAML's core schema; other scalars unchanged. Raises Wrong for a list or a
    mapping.
    """
    value = node.value
    if isinstance(value, (list, dict)):
        raise Wrong(f"must be one value, not {kind(node)}", node.line)
    if not isinstance(value, str) or not node.plain:
        return value
    if value.lower() in ("true", "false", "null", "~", ""):
        return _WORDS[value.lower()]
    number = _number(value)
    return value if number is None else number


def _number(text: str) -> int | float | None:
    if _INT.fullmatch(text):
        return int(text.replace("_", ""))
    if _FLOAT.fullmatch(text):
        return float(text.replace("_", ""))
    return None


def kind(node: Node) -> str:
    """A description of the value for a message."""
    value = node.value
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None or value == "" else quoted(value)


def text(node: Node) -> str:
    """Any scalar as the text that was written. Raises Wrong."""
    value = node.value
    if isinstance(value, (list, dict)):
        raise Wrong(f"must be text, not {kind(node)}", node.line)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else clean(str(value))


def whole(node: Node) -> int | None:
    """A whole number; None for `none`, `null` and `unlimited`. Raises Wrong."""
    found = number(node)
    if found is None or (isinstance(found, int) or found.is_integer()):
        return None if found is None else int(found)
    raise Wrong(f"must be a whole number, not {kind(node)}", node.line)


def number(node: Node) -> int | float | None:
    """A number, quoted or not; None for `none`, `null` and `unlimited`. Raises Wrong."""
    value = node.value
    if isinstance(value, str):
        word = value.strip()
        if word.lower() in ("none", "null", "~", "unlimited"):
            return None
        value = _number(word)
    if value is None or isinstance(value, (bool, list, dict)) or not math.isfinite(value):
        raise Wrong(f"must be a number, not {kind(node)}", node.line)
    return value


def flag(node: Node) -> bool:
    """True or false, including YAML 1.1's words. Raises Wrong."""
    value = node.value
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower())
    if isinstance(value, bool):
        return value
    raise Wrong(f"must be true or false, not {kind(node)}", node.line)


MOST_WORDS = 2_000
"""Entries of one list; more is a mistake or an attack."""


def words(node: Node) -> list[Node]:
    """The entries of a list, or of text separated by commas or line breaks. Raises Wrong.

    Commas inside brackets do not separate: `Bash(git add, git commit), Read` has two entries.
    """
    if isinstance(node.value, dict):
        raise Wrong(f"must be a list, not {kind(node)}", node.line)
    if isinstance(node.value, list):
        found = [word for item in node.value for word in _item(item)]
    else:
        found = [Node(word, node.line, plain=True) for word in split_list(text(node))]
    if len(found) > MOST_WORDS:
        raise Wrong(f"has {len(found):,} entries; at most {MOST_WORDS:,} are read", node.line)
    return found


def _item(item: Node) -> Iterator[Node]:
    if isinstance(item.value, (list, dict)):
        raise Wrong(f"has {kind(item)} among its entries, which must be plain words", item.line)
    for word in split_list(text(item)):
        yield Node(word, item.line, plain=item.plain)


def split_list(written: str) -> list[str]:
    """Words separated by commas or line breaks outside brackets; an enclosing `[a, b]` and quotes are removed."""
    written = written.strip()
    if written.startswith("[") and written.endswith("]"):
        written = written[1:-1]
    parts, depth, start = list[str](), 0, 0
    for at, char in enumerate(written):
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth = max(depth - 1, 0)
        elif char in ",\n" and not depth:
            parts.append(written[start:at])
            start = at + 1
    parts.append(written[start:])
    bare = (part.strip().removeprefix("- ").strip(" \t\r\"'`") for part in parts)
    return [part for part in bare if part]


def fields(node: Node) -> dict[str, Node]:
    """The entries of a mapping; empty for an empty value. Raises Wrong."""
    if isinstance(node.value, dict):
        return node.value
    if node.value is None or node.value == "":
        return {}
    raise Wrong(f"must be a mapping, not {kind(node)}", node.line)


def to_json(node: Node) -> Json:
    """The value as plain JSON."""
    if isinstance(node.value, dict):
        return {clean(key): to_json(inner) for key, inner in node.value.items()}
    if isinstance(node.value, list):
        return [to_json(inner) for inner in node.value]
    found = scalar(node)
    return clean(found) if isinstance(found, str) else found


def choice(node: Node, allowed: Sequence[str]) -> str:
    """One of the allowed words, ignoring case. Raises Wrong."""
    word = text(node).strip()
    for one in allowed:
        if word.lower() == one.lower():
            return one
    raise Wrong(
        f"must be one of {', '.join(allowed)}, not {quoted(word)}.{suggest(word, allowed)}", node.line
    )


def from_python(value: object, line: int) -> Node:
    """A Python value as a node, with the same line for every part."""
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value)
        return Node({str(key): from_python(inner, line) for key, inner in pairs.items()}, line)
    if isinstance(value, (list, tuple)):
        return Node([from_python(inner, line) for inner in cast("list[object]", value)], line)
    if value is None or isinstance(value, (str, int, float, bool)):
        return Node(value, line)
    return Node(str(value), line)
