"""Corrects lists and mappings below a key that are not valid YAML: quotes plain values and aligns indentation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from remit.definitions.syntax.header_lines import COLON, indent_of, is_void
from remit.definitions.syntax.yaml_nodes import Told
from remit.definitions.syntax.yaml_words import BLOCK, as_yaml, needs_quotes

_DASHES = re.compile(r"(?:-\s+)+")
_KEY = re.compile(r"""[A-Za-z_*?][\w.*/@ -]{0,80}|"[^"]*"|'[^']*'""")
_COMMENT = re.compile(r"\s#(?=\s|$)")


def mend_nested(lines: Sequence[str], told: list[Told], first: int) -> Iterator[str]:
    """The same lines, corrected where possible. The first line holds the key and is unchanged."""
    straight = _Straightener()
    block_above: int | None = None
    yield lines[0]
    for at, line in enumerate(lines[1:], start=1):
        if is_void(line) or (block_above is not None and indent_of(line) > block_above):
            yield line
            continue
        indent, dashes, key, value = _split(line)
        block_above = indent if BLOCK.fullmatch(value) else None
        level = straight.level(indent, is_item=bool(dashes), is_key=bool(key), has_value=bool(value))
        if level != indent:
            told.append(("warning", first + at, "The line is indented differently from the lines above it."))
        yield " " * level + dashes + key + _mended(value)


class _Straightener:
    """Aligns a key that is indented further than the `key: value` above it: a scalar cannot have children."""

    def __init__(self) -> None:
        self._above: int | None = None
        """The indent of the line above, if it is a key with a value."""

    def level(self, indent: int, *, is_item: bool, is_key: bool, has_value: bool) -> int:
        if self._above is not None and is_key and not is_item and indent > self._above:
            indent = self._above
        self._above = indent if is_key and has_value and not is_item else None
        return indent


def _split(line: str) -> tuple[int, str, str, str]:
    """Indent, dashes, key with its colon, and value."""
    indent, body = indent_of(line), line.strip()
    dashes = match[0] if (match := _DASHES.match(body)) else ""
    body = body[len(dashes) :]
    colon = COLON.search(body)
    if colon and _KEY.fullmatch(body[: colon.start()].rstrip()):
        return indent, dashes, f"{body[: colon.start()].rstrip()}: ", body[colon.end() :].strip()
    return indent, dashes, "", body


def _mended(value: str) -> str:
    bare = _COMMENT.split(f" {value}", maxsplit=1)[0].strip()
    is_plain = bool(bare) and bare[0] not in "'\"[{" and not BLOCK.fullmatch(bare)
    return as_yaml(bare) if is_plain and needs_quotes(bare) else value
