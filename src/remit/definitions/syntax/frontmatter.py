"""Splits a Markdown file into the lines of its front matter and the text below."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from remit.definitions.syntax.header_lines import WORD_KEY, Vocabulary, is_void, plain_key
from remit.definitions.syntax.loose_yaml import Told, read_front_matter
from remit.definitions.syntax.nodes import Node

MOST_HEADER = 100_000
"""Characters of front matter."""

_FENCE = re.compile(r"-{3,}\s*(?:#.*)?")
_CODE = re.compile(r"(```+|~~~+)\s*(?:markdown|md|yaml|yml)?\s*", re.IGNORECASE)
_HEADING = re.compile(r"#{1,6}\s")


@dataclass(slots=True)
class MarkdownFile:
    """A file's entries with their lines, the text below, and the problems found."""

    entries: dict[str, Node]
    body: str
    told: list[Told] = field(default_factory=list[Told])
    has_header: bool = True


def take_apart(text: str, vocabulary: Vocabulary) -> MarkdownFile:
    """Split a file. Never fails: a file without front matter is all text."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    told = list[Told]()
    start = _opening(lines, told)
    if start is None and _has_lost_its_opening(lines, vocabulary):
        told.append(("warning", 1, "The first line should be ---; the file was read as if it were."))
        lines.insert(0, "---")
        start = 0
    if start is None:
        return MarkdownFile({}, "\n".join(lines).strip(), told, has_header=False)
    end, body = _closing(lines, start, vocabulary, told)
    header = lines[start + 1 : end]
    if not any(WORD_KEY.match(line.strip()) for line in header):
        told.append(
            (
                "warning",
                start + 1,
                "There are no keys between the --- lines; the whole file was read as text.",
            )
        )
        return MarkdownFile({}, "\n".join(lines).strip(), told, has_header=False)
    if sum(map(len, header)) > MOST_HEADER:
        told.append(
            ("error", start + 1, f"The front matter has more than {MOST_HEADER:,} characters; shorten it.")
        )
        return MarkdownFile({}, "", told)
    entries, more = read_front_matter(header, start + 2, vocabulary)
    return MarkdownFile(entries, "\n".join(body).strip(), told + more)


def _opening(lines: list[str], told: list[Told]) -> int | None:
    """The number of the line that opens the front matter, from 0."""
    at = 0
    while at < len(lines) and not lines[at].strip():
        at += 1
    if at < len(lines) and _CODE.fullmatch(lines[at].strip()):
        inside = at + 1
        if inside < len(lines) and _FENCE.fullmatch(lines[inside].strip()):
            told.append(("warning", at + 1, "The file begins with a code fence; remove it."))
            _drop_last_fence(lines)
            return inside
    if at == len(lines) or not _FENCE.fullmatch(lines[at].strip()):
        return None
    if at:
        told.append(("warning", at + 1, "The front matter should begin on the first line."))
    return at


def _has_lost_its_opening(lines: list[str], vocabulary: Vocabulary) -> bool:
    """Whether the file begins with a key and has a --- further down. Plain text does not begin like that."""
    first = next((line for line in lines if line.strip()), "")
    return bool(_known_key(first, vocabulary)) and any(
        _FENCE.fullmatch(line.rstrip()) for line in lines[:200]
    )


def _drop_last_fence(lines: list[str]) -> None:
    while lines and not lines[-1].strip():
        lines.pop()
    if lines and _CODE.fullmatch(lines[-1].strip()):
        lines.pop()


def _closing(lines: list[str], start: int, vocabulary: Vocabulary, told: list[Told]) -> tuple[int, list[str]]:
    """The line that closes the front matter, and the lines of the text below."""
    for at in range(start + 1, len(lines)):
        if _FENCE.fullmatch(lines[at].rstrip()) or lines[at].rstrip() == "...":
            end = _ran_over(lines, start, at, vocabulary)
            if end is None:
                return at, lines[at + 1 :]
            break
    else:
        end = _guessed_end(lines, start, vocabulary)
    told.append(
        ("warning", start + 1, f"The front matter is not closed; add a line --- before line {end + 1}.")
    )
    return end, lines[end:]


def _ran_over(lines: list[str], start: int, fence: int, vocabulary: Vocabulary) -> int | None:
    """Where the text begins, if the first --- is a ruler inside it: after the last key comes a heading or a paragraph."""
    keys = [n for n in range(start + 1, fence) if _known_key(lines[n], vocabulary)]
    if not keys:
        return None
    last = _known_key(lines[keys[-1]], vocabulary)
    if all(is_void(line) for line in lines[keys[-1] + 1 : fence]):
        return None
    for at in range(keys[-1] + 1, fence):
        line = lines[at]
        if lines[at - 1].strip() or not line.strip() or line[0].isspace():
            continue
        if _HEADING.match(line) or (last not in vocabulary.texts and line[0] not in "#-]}"):
            return at
    return None


def _known_key(line: str, vocabulary: Vocabulary) -> str:
    match = WORD_KEY.match(line)
    key = plain_key(match[1]) if match else ""
    return key if key in vocabulary.known else ""


def _guessed_end(lines: list[str], start: int, vocabulary: Vocabulary) -> int:
    """Where the text begins without a closing ---: at a heading, or after an empty line that no known key follows."""
    keys = 0
    for at in range(start + 1, len(lines)):
        line = lines[at].strip()
        keys += bool(_known_key(line, vocabulary))
        if keys and _HEADING.match(line):
            return at
        if keys and not line and not _key_follows(lines, at, vocabulary):
            return at
    return len(lines)


def _key_follows(lines: list[str], at: int, vocabulary: Vocabulary) -> bool:
    for line in lines[at + 1 : at + 4]:
        if line.strip():
            return bool(_known_key(line, vocabulary))
    return False
