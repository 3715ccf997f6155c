"""Values that know their line: what front matter and TOML are read into, and how a value is asked for.

Everything here is made of untrusted text, so asking never raises anything but `Wrong`, whose message is for people.
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
    """A value, and the line on which it, or its key, begins."""

    value: Value
    line: int
    plain: bool = False
    """Whether it was written without quotes, so that `3` may be a number."""


class Cause(NamedTuple):
    """What several problems have in common, so that they can be told in one line: `12 agents name ...`."""

    what: str
    """What is to be said of those agents: `use tools that remit does not have`."""
    about: str = ""
    """What differs between them, to be listed behind: the name of the tool."""
    topic: Literal["", "model"] = ""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something to tell about a file: an `error` means that it was not used, a `note` that nothing need be done."""

    level: Level
    file: Path | str
    line: int
    """From 1; 0 when it is about the whole file."""
    text: str
    cause: Cause | None = None
    agent: str = ""
    """Which agent it is about, where the file has one that can be named."""

    @property
    def where(self) -> str:
        # Names of files are as untrusted as what is in them.
        file = show(str(self.file))
        return f"{file}:{self.line}" if self.line else file

    def __str__(self) -> str:
        return f"{self.where}: {fit(self.text)}"


MOST_TOLD = 50
"""Problems of one file; who has more mends these first."""


def note_down(problems: list[Problem], problem: Problem) -> None:
    """Add what is to be told of a file, unless there is too much of it; the first error is always among it."""
    if len(problems) < MOST_TOLD:
        problems.append(problem)
        return
    if len(problems) == MOST_TOLD:
        text = "There is more to tell about this file; mend these first."
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
    """Text with pieces of files in it, fit to be printed: on one line, without what drives terminals or turns words round."""
    return show(one_line(clean(text)))


def quoted(value: object, most: int = 60) -> str:
    """A piece of a file, fit to stand in a message: as `fit`, and cut."""
    text = value if isinstance(value, str) else str(value)
    return "'" + fit(shorten(text, most, most - 3)) + "'"


class Hints:
    """What was probably meant, among names that stay the same, for the first few words that mean nothing.

    Looking for it is slow, and files are long.
    """

    def __init__(self, most: int = 20) -> None:
        self._left = most
        self._known: dict[str, str | None] = {}

    def nearest(self, word: str, known: Iterable[str]) -> str | None:
        """As the function of that name; None too when there were too many words before this one."""
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
    """The value of a plain word as YAML's core schema has it; any other scalar itself. Raises Wrong for no scalar."""
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
    """What a value is, in words."""
    value = node.value
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    return "nothing" if value is None or value == "" else quoted(value)


def text(node: Node) -> str:
    """Any scalar as the text it was written as. Raises Wrong."""
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
    """Yes or no, in YAML's older words too. Raises Wrong."""
    value = node.value
    if isinstance(value, str):
        value = _WORDS.get(value.strip().lower())
    if isinstance(value, bool):
        return value
    raise Wrong(f"must be true or false, not {kind(node)}", node.line)


MOST_WORDS = 2_000
"""Entries of one list; more is a mistake, or an attack."""


def words(node: Node) -> list[Node]:
    """The entries of a list, or of text with commas (or line breaks) between. Raises Wrong.

    Commas inside brackets do not count: `Bash(git add, git commit), Read` has two entries.
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
    """Words with commas or line breaks between, brackets kept together; `[a, b]` and quotes are taken off."""
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
    """The entries of a mapping; none for nothing. Raises Wrong."""
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
    """One of some words, whatever its case. Raises Wrong."""
    word = text(node).strip()
    for one in allowed:
        if word.lower() == one.lower():
            return one
    raise Wrong(
        f"must be one of {', '.join(allowed)}, not {quoted(word)}.{suggest(word, allowed)}", node.line
    )


def from_python(value: object, line: int) -> Node:
    """What TOML or JSON was read into, every part of it on one line."""
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value)
        return Node({str(key): from_python(inner, line) for key, inner in pairs.items()}, line)
    if isinstance(value, (list, tuple)):
        return Node([from_python(inner, line) for inner in cast("list[object]", value)], line)
    if value is None or isinstance(value, (str, int, float, bool)):
        return Node(value, line)
    return Node(str(value), line)
