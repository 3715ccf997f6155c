"""YAML through PyYAML's nodes, which have line numbers. The text is untrusted, so depth and size are bounded.

Only `compose` is used, so tags create no objects. A value that aliases would make large is refused, not expanded.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

import yaml

from remit.definitions.syntax.nodes import Level, Node, quoted
from remit.tools.bounded_toml import DEEPEST

if TYPE_CHECKING:
    from yaml.nodes import MappingNode, SequenceNode

Told = tuple[Level, int, str]

MOST_VALUES = 20_000
"""Values of one document; aliased values are counted at each use."""

_STANDARD = "tag:yaml.org,2002:"
_TAGS = frozenset(
    _STANDARD + name
    for name in ("str", "int", "float", "bool", "null", "timestamp", "merge", "value", "map", "seq")
)
# PyYAML refuses a document that contains one of these characters.
_UNREADABLE = re.compile("[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# YAML treats these three as line breaks; other formats do not.
_LINE_ENDS = str.maketrans(dict.fromkeys("\x85\u2028\u2029", " "))
_CONTROLS = dict.fromkeys((*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)))


class Unreadable(Exception):
    """Raised for invalid YAML, or for too much of it; the message is for people."""

    def __init__(self, text: str, line: int) -> None:
        super().__init__(text)
        self.text = text
        self.line = line
        """Counted from `first` of `read_yaml`; 0 if unknown."""


def read_yaml(text: str, told: list[Told], first: int = 1) -> Node:
    """The document of a text. `first` is the number of its first line. Raises Unreadable."""
    try:
        root = _Loader(_readable(text)).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Unreadable(error.problem or "", 0 if mark is None else first + mark.line) from None
    except (yaml.YAMLError, ValueError) as error:
        raise Unreadable(str(error), 0) from None
    return Node(None, first) if root is None else _Reading(first, told).node(root, 0)


def is_yaml(text: str) -> bool:
    """Whether a text is syntactically valid YAML; aliases are not resolved."""
    try:
        events = cast("Callable[..., Iterator[object]]", yaml.parse)(_readable(text), Loader=_Loader)  # pyright: ignore[reportUnknownMemberType]  # its stubs give it no type
        deque(events, maxlen=0)
    except (yaml.YAMLError, ValueError):
        return False
    return True


def _readable(text: str) -> str:
    return _UNREADABLE.sub("", text.translate(_LINE_ENDS))


class _Loader(yaml.SafeLoader):
    """Stops scanning at a nesting limit: scanning time grows with the square of the depth."""

    def fetch_more_tokens(self) -> None:
        if max(self.flow_level, len(self.indents)) > DEEPEST:
            raise yaml.YAMLError(f"it is nested more than {DEEPEST} levels deep")
        super().fetch_more_tokens()  # pyright: ignore[reportUnknownMemberType]  # its stubs give it no type


class _Reading:
    """Converts PyYAML's nodes to ours and counts them."""

    def __init__(self, first: int, told: list[Told]) -> None:
        self._first = first
        self._told = told
        self._left = MOST_VALUES

    def node(self, found: yaml.Node, depth: int, line: int = 0) -> Node:
        """`line` is the line of the value's key, if it has one."""
        own = self._first + found.start_mark.line
        self._left -= 1
        if self._left < 0 or depth > DEEPEST:
            raise Unreadable(f"it has more than {MOST_VALUES:,} values, or a value that contains itself", own)
        if found.tag not in _TAGS:
            tag = quoted(found.tag.replace(_STANDARD, "!!"))
            self._told.append(("warning", own, f"The tag {tag} is not supported and was ignored."))
        if isinstance(found, yaml.MappingNode):
            return Node(self._pairs(found, depth), line or own)
        if isinstance(found, yaml.SequenceNode):
            return Node(self._items(found, depth), line or own)
        return _scalar(found, line or own)

    def _pairs(self, found: MappingNode, depth: int) -> dict[str, Node]:
        pairs = dict[str, Node]()
        for key, value in found.value:
            line = self._first + key.start_mark.line
            if not isinstance(key, yaml.ScalarNode):
                self._told.append(("warning", line, "A key must be one word; the entry was ignored."))
                continue
            if key.value in pairs:
                text = (
                    f"{key.value} is written twice (also in line {pairs[key.value].line}); this line is used."
                )
                self._told.append(("warning", line, text))
            pairs[key.value] = self.node(value, depth + 1, line)
        return pairs

    def _items(self, found: SequenceNode, depth: int) -> list[Node]:
        items = [self.node(item, depth + 1) for item in found.value]
        return _joined(items) if found.flow_style else items


def _scalar(found: yaml.Node, line: int) -> Node:
    text, style = str(found.value), getattr(found, "style", None)
    if style is None:
        return Node(text or None, line, plain=bool(text))
    if style in "|>":
        return Node(text.strip("\n"), line)
    return Node(text.translate(_CONTROLS), line)


def _joined(items: list[Node]) -> list[Node]:
    """`[Bash(git add, git commit), Read]` has two entries: commas inside brackets do not separate."""
    found = list[Node]()
    for item in items:
        if found and item.plain and _is_open(found[-1]):
            found[-1] = Node(f"{found[-1].value}, {item.value}", found[-1].line, plain=True)
        else:
            found.append(item)
    return found


def _is_open(node: Node) -> bool:
    return node.plain and isinstance(node.value, str) and node.value.count("(") > node.value.count(")")
