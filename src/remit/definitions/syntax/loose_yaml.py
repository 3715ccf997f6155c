"""Front matter as people write it: YAML where it is YAML, and the likely meaning where it is not.

Blocks are read here, what stands between marks in `yaml_flow.py`. There are no tags, and anchors stand for nothing, so a small
file cannot become a large value. Reading never fails: what was not understood is told with its line.
"""

from __future__ import annotations

import re
from contextlib import suppress

from remit.definitions.syntax.header_lines import (
    COLON,
    GLUED_KEY,
    WORD_KEY,
    HeaderLines,
    Vocabulary,
    indent_of,
    is_void,
    plain_key,
)
from remit.definitions.syntax.multiline_text import RunningText
from remit.definitions.syntax.nodes import Level, Node, quoted
from remit.definitions.syntax.yaml_flow import DEEPEST, Unreadable, fold, read_flow, unescape

Told = tuple[Level, int, str]

_BLOCK = re.compile(r"([|>])[-+0-9]{0,3}\s*(?:#.*)?")
_COMMENT = re.compile(r"\s#(?=\s|$)")
_TIGHT_COMMENT = re.compile(r"\s#")
_ANCHOR = re.compile(r"&[\w-]+(?:\s+|$)")
_ALIAS = re.compile(r"\*[A-Za-z_][\w-]*")
_YAML_TAG = re.compile(r"!\S*(?:\s+|$)")

MOST_JOINED = 400
"""Lines that one value between marks may have."""
WORK = 30
"""How often each character may be looked at for the ends of such values, on average; a hostile file wants more."""
_LEAST_WORK = 20_000
_LINE_WORK = 20
"""What a line costs besides its characters."""
_FLOW_WORK, _QUOTED_WORK = 10, 0.25
"""What it costs to read a character of a list or mapping, and one between quotes."""
_CLOSING = {"[": "]", "{": "}"}


def read_front_matter(
    lines: list[str], first: int, vocabulary: Vocabulary
) -> tuple[dict[str, Node], list[Told]]:
    """The entries of front matter, and what is to be told of it. `first` is the number of its first line."""
    reader = _Reader(lines, first, vocabulary)
    return reader.top(), reader.told


class _Reader:
    def __init__(self, lines: list[str], first: int, vocabulary: Vocabulary) -> None:
        self.first = first
        self.told: list[Told] = []
        self.lines = HeaderLines(lines, vocabulary)
        self.base = self.lines.base
        self.patience: float = _LEAST_WORK + WORK * sum(map(len, lines))
        if self.lines.tabbed is not None:
            self.tell(self.lines.tabbed, "The line is indented with a tab, which YAML forbids; use blanks.")

    def tell(self, at: int, text: str, level: Level = "warning") -> None:
        self.told.append((level, self.first + at, text))

    # --- The top level: known keys, and text that ran over ------------------------------------------

    def top(self) -> dict[str, Node]:
        found, at = dict[str, Node](), 0
        while at < len(self.lines):
            line = self.lines[at]
            if is_void(line):
                at += 1
                continue
            key, rest = self.top_key(at)
            if key is None:
                self.tell(at, f"{quoted(line.strip())} is no `key: value`; it was passed over.")
                at += 1
                continue
            node, after = self.top_value(at, key, rest)
            self.put(found, key, node, at)
            at = after
        return found

    def put(self, found: dict[str, Node], key: str, node: Node, at: int) -> None:
        if key in found:
            self.tell(at, f"{key} is written twice (also in line {found[key].line}); this one counts.")
        found[key] = node

    def top_key(self, at: int) -> tuple[str | None, str]:
        line = self.lines[at].strip()
        if line[:1] in ("'", '"'):
            split = _split_quoted_key(line)
            return split or (None, "")
        if match := WORD_KEY.match(line):
            return match[1], line[match.end() :]
        match = GLUED_KEY.match(line)
        if match and plain_key(match[1]) in self.lines.words.known:
            self.tell(at, f"{match[1]}: has no blank behind the colon.")
            return match[1], line[match.end() :]
        return None, ""

    def top_value(self, at: int, key: str, rest: str) -> tuple[Node, int]:
        is_text = plain_key(key) in self.lines.words.texts
        if not rest:
            below = self.below(at)
            if below is not None and not (is_text and not self.is_block(below)):
                return self.block(below, at, 1)
        if _BLOCK.fullmatch(rest):
            node, after = self.block_scalar(at, self.base, rest[0])
            if node.value or not is_text:
                return node, after
            rest = ""
        if rest[:1] in ("'", '"', "[", "{"):
            marked = self.marked(at, rest, self.base)
            if marked is not None:
                return marked
            self.tell(at, f"{key} has a {rest[0]} that is not closed as YAML wants it; it was read as text.")
            return self.running(at, key, _unquoted(rest), is_text)
        if not is_text and (shaped := self.reference(at, key, rest)) is not None:
            return shaped, at + 1
        return self.running(at, key, rest, is_text)

    def running(self, at: int, key: str, rest: str, is_text: bool) -> tuple[Node, int]:
        """A plain value, and the lines below that must belong to it."""
        text = self.uncommented(at, rest, is_text)
        if COLON.search(text):
            self.tell(
                at, f"{key} has a colon outside quotes, which other readers refuse; put it into quotes."
            )
        gathered = RunningText(self.lines, at, is_text=is_text)
        value = gathered.gather(text)
        if gathered.loose:
            self.tell(at, f"{key} runs over lines that are not indented; indent them below `{key}: |`.")
        if is_text:
            value = value.replace("\\n", "\n").replace("\\t", " ").replace('\\"', '"')
        return Node(value, self.first + at, plain=True), gathered.at

    def uncommented(self, at: int, rest: str, is_text: bool) -> str:
        cut = _COMMENT.search(" " + rest)
        if cut is None and not is_text:
            cut = _TIGHT_COMMENT.search(" " + rest)
        if cut is not None:
            return rest[: max(cut.start() - 1, 0)].rstrip()
        if is_text and _TIGHT_COMMENT.search(" " + rest):
            self.tell(at, "There is a # outside quotes, where other readers stop; put the text into quotes.")
        return rest

    def reference(self, at: int, key: str, rest: str) -> Node | None:
        """What anchors, aliases and tags are read as; None for anything else."""
        if _ALIAS.fullmatch(rest):
            self.tell(at, f"{key} refers to {quoted(rest)}; references are not followed, so write it out.")
            return Node(None, self.first + at)
        for pattern, what in ((_ANCHOR, "The anchor"), (_YAML_TAG, "The tag")):
            if match := pattern.match(rest):
                self.tell(at, f"{what} {quoted(match[0].strip())} means nothing here and was left out.")
                return Node(self.uncommented(at, rest[match.end() :], False), self.first + at, plain=True)
        return None

    # --- Blocks ---------------------------------------------------------------------------------------

    def below(self, at: int) -> int | None:
        """The next line with something on it, when it belongs below this one."""
        after = self.lines.next_solid(at)
        if after is None:
            return None
        own, indent = indent_of(self.lines[at]), indent_of(self.lines[after])
        is_item = self.lines[after].lstrip().startswith("- ")
        return after if indent > own or (is_item and indent == own) else None

    def is_block(self, at: int) -> bool:
        line = self.lines[at].strip()
        return line.startswith(("- ", "[", "{")) or line == "-"

    def block(self, at: int, owner: int, depth: int) -> tuple[Node, int]:
        """The list, mapping or text that begins on this line."""
        line, indent = self.lines[at].strip(), indent_of(self.lines[at])
        if depth > DEEPEST:
            self.tell(at, "This is nested too deeply and was passed over.")
            return Node(None, self.first + at), self.end_of(at, indent)
        if line.startswith("- ") or line == "-":
            return self.sequence(at, indent, owner, depth)
        if line[:1] not in "[{" and _split_key(line) is not None:
            return self.mapping(at, indent_of(self.lines[owner]), owner, depth)
        return self.value(at, line, indent_of(self.lines[owner]), owner, depth)

    def end_of(self, at: int, indent: int) -> int:
        at += 1
        while at < len(self.lines) and (is_void(self.lines[at]) or indent_of(self.lines[at]) >= indent > 0):
            at += 1
        return at

    def sequence(self, at: int, indent: int, owner: int, depth: int) -> tuple[Node, int]:
        items = list[Node]()
        while at < len(self.lines):
            line = self.lines[at]
            if is_void(line):
                at += 1
                continue
            stripped = line.strip()
            if indent_of(line) < indent or not (stripped.startswith("- ") or stripped == "-"):
                break
            node, at = self.entry(at, stripped[1:].strip(), depth)
            items.append(node)
        return Node(items, self.first + owner), at

    def entry(self, at: int, rest: str, depth: int) -> tuple[Node, int]:
        indent = indent_of(self.lines[at])
        if not rest:
            below = self.below(at)
            if below is None or indent_of(self.lines[below]) <= indent:
                return Node(None, self.first + at), at + 1
            node, after = self.block(below, at, depth + 1)
            return node, after
        split = _split_key(rest)
        if split and (WORD_KEY.match(rest) or rest[0] in "\"'") and rest[0] not in "[{":
            self.lines.all[at] = " " * (indent + 2) + rest
            return self.mapping(at, indent, at, depth + 1)
        return self.value(at, rest, indent, at, depth)

    def mapping(self, at: int, floor: int, owner: int, depth: int) -> tuple[Node, int]:
        """Entries that are indented further than `floor`."""
        found, indent = dict[str, Node](), indent_of(self.lines[at])
        if depth > DEEPEST:
            self.tell(at, "This is nested too deeply and was passed over.")
            return Node(None, self.first + at), self.end_of(at, indent)
        while at < len(self.lines):
            line = self.lines[at]
            if is_void(line):
                at += 1
                continue
            if indent_of(line) <= floor:
                break
            if indent_of(line) != indent:
                self.tell(at, "The line is indented differently from those above it.")
            split = _split_key(line.strip())
            if split is None:
                self.tell(at, f"{quoted(line.strip())} is no `key: value`; it was passed over.")
                at += 1
                continue
            key, rest = split
            start = at
            node, at = self.nested(at, rest, indent, depth)
            self.put(found, key, node, start)
        return Node(found, self.first + owner), at

    def nested(self, at: int, rest: str, indent: int, depth: int) -> tuple[Node, int]:
        if not rest:
            below = self.below(at)
            if below is None:
                return Node(None, self.first + at), at + 1
            return self.block(below, at, depth + 1)
        return self.value(at, rest, indent, at, depth)

    def value(self, at: int, rest: str, indent: int, owner: int, depth: int) -> tuple[Node, int]:
        """A value that begins on this line, below the top level."""
        del depth
        if _BLOCK.fullmatch(rest):
            return self.block_scalar(at, indent, rest[0])
        if rest[0] in "'\"[{":
            marked = self.marked(at, rest, indent)
            if marked is not None:
                return marked
            self.tell(at, f"{quoted(rest)} is not closed as YAML wants it; it was read as text.")
            rest = _unquoted(rest)
        elif (shaped := self.reference(at, quoted(rest), rest)) is not None:
            return shaped, at + 1
        parts, after = [self.uncommented(at, rest, False)], at + 1
        while after < len(self.lines) and self.continues(after, indent):
            parts.append(self.lines[after].strip())
            after += 1
        return Node(fold(parts).strip(), self.first + owner, plain=True), after

    def continues(self, at: int, indent: int) -> bool:
        line = self.lines[at]
        if is_void(line) or indent_of(line) <= indent:
            return False
        stripped = line.strip()
        return not stripped.startswith("- ") and WORD_KEY.match(stripped) is None

    # --- Values over several lines --------------------------------------------------------------------

    def block_scalar(self, at: int, indent: int, style: str) -> tuple[Node, int]:
        after, body = at + 1, list[str]()
        while after < len(self.lines) and (
            not self.lines[after].strip() or indent_of(self.lines[after]) > indent
        ):
            body.append(self.lines[after])
            after += 1
        depth = min((indent_of(line) for line in body if line.strip()), default=0)
        body = [line[depth:] for line in body]
        value = "\n".join(body) if style == "|" else _folded_block(body)
        return Node(value.strip("\n"), self.first + at), after

    def marked(self, at: int, rest: str, indent: int) -> tuple[Node, int] | None:
        """A value between quotes or brackets, perhaps over several lines; None when it does not end well."""
        try:
            return read_flow(rest, self.first + at), at + 1
        except Unreadable:
            pass
        is_flow = rest[0] in _CLOSING
        closing = _CLOSING.get(rest[0], rest[0])
        joined, opened = [_COMMENT.split(rest, 1)[0] if is_flow else rest], _opened(rest)
        for after in range(at + 1, min(len(self.lines), at + MOST_JOINED)):
            line = self.lines[after]
            if not self.may_spend(len(line) + _LINE_WORK) or self.begins_key(after, indent):
                return None
            joined.append(_TIGHT_COMMENT.split(f" {line}", 1)[0].strip() if is_flow else line.strip())
            opened += _opened(line)
            if closing not in line or (is_flow and opened > 0 and not self.begins_key(after + 1, indent)):
                continue
            whole = "\n".join(joined)
            if not self.may_spend(len(whole) * (_FLOW_WORK if is_flow else _QUOTED_WORK)):
                return None
            with suppress(Unreadable):
                return read_flow(whole, self.first + at), after + 1
        return None

    def may_spend(self, work: float) -> bool:
        self.patience -= work
        return self.patience >= 0

    def begins_key(self, at: int, indent: int) -> bool:
        """Whether a value must have ended before this line."""
        if at >= len(self.lines):
            return True
        line = self.lines[at]
        return bool(line.strip()) and indent_of(line) <= indent and self.lines.is_known(at)


def _opened(line: str) -> int:
    """How many brackets are opened and not closed. A guess: those in quotes count too."""
    return line.count("[") + line.count("{") - line.count("]") - line.count("}")


def _split_quoted_key(line: str) -> tuple[str, str] | None:
    end = line.find(line[0], 1)
    behind = line[end + 1 :].lstrip()
    if end < 1 or not behind.startswith(":"):
        return None
    return line[1:end], behind[1:].strip()


def _split_key(line: str) -> tuple[str, str] | None:
    """The key of an entry and what stands behind its colon."""
    if line[:1] in ("'", '"'):
        return _split_quoted_key(line)
    colon = COLON.search(line)
    if colon is None or colon.start() == 0 or colon.start() > 200:
        return None
    return line[: colon.start()].rstrip(), line[colon.end() :].strip()


def _unquoted(rest: str) -> str:
    """Text whose quotes do not pair: without the outer ones, if it has both."""
    mark = rest[0]
    if mark in "'\"" and len(rest) > 1 and rest.endswith(mark):
        return unescape(rest[1:-1]) if mark == '"' else rest[1:-1]
    return rest.removeprefix("[") if mark == "[" and "]" not in rest else rest


def _folded_block(lines: list[str]) -> str:
    """Lines of a `>` block: joined by blanks, but for empty lines and those that are indented further."""
    out = ""
    for line in lines:
        if not line or line[0] == " ":
            out += "\n" + line
        elif not out or out.endswith("\n"):
            out += line
        else:
            out += " " + line
    return out
