"""The task of a run: words of the command line, standard input, and the files that the words mention."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import remit.cli.exits as exits
import remit.observe.words as words
from remit.types.messages import FilePart, ImagePart, Part, TextPart

MOST_TEXT = 400_000
"""Characters of one mentioned file."""

MOST_MENTIONS = 50
MOST_INPUT = 4_000_000
"""Bytes of standard input."""

_MENTION = re.compile(r"""(?<!\S)@(?:"([^"\n]+)"|'([^'\n]+)'|([^\s"'][^\s]*))""")
_AFTER = ".,;:!?)]}>"
"""Punctuation that may follow a file name in a sentence."""


class Asked(NamedTuple):
    """A task, and notes for the user."""

    task: str | list[Part]
    notes: list[str]


class TaskText(NamedTuple):
    """The prompt of the command line, and data from standard input."""

    prompt: str
    data: str = ""
    """Untrusted, so @names in it are not resolved."""


def read_words(given: Sequence[str]) -> TaskText:
    """The prompt from the given words; `-` adds standard input. Without words, standard input unless it is a terminal.

    Call it before an event loop runs: there, Ctrl-C would not interrupt the read.
    """
    prompt = " ".join(word for word in given if word != "-").strip()
    if "-" not in given and (prompt or words.is_terminal(sys.stdin)):
        return TaskText(prompt)
    return TaskText(prompt, _input()) if prompt else TaskText(_input())


def read_message(given: Sequence[str]) -> TaskText:
    """The new message for a resumed run. A resume needs none, so piped input is not read without `-`."""
    return read_words(given) if given else TaskText("")


def _input() -> str:
    source = sys.stdin
    if source is None or source.closed:
        return ""
    if words.is_terminal(source):
        exits.tell("Reading the task from standard input (end with Ctrl-D).")
    data = source.buffer.read(MOST_INPUT + 1)
    if len(data) > MOST_INPUT:
        exits.wrong_use(
            f"Standard input has more than {MOST_INPUT:,} bytes. Save it to a file and let the agent read the file."
        )
    return data.decode("utf-8", "replace").strip("\r\n")


def with_files(said: TaskText, workspace: Path) -> Asked:
    """The task, followed by the files that it mentions as @name. Only files inside the workspace are read."""
    parts: list[Part] = [TextPart(said.prompt)]
    notes: list[str] = []
    for name in list(dict.fromkeys(_mentions(said.prompt)))[:MOST_MENTIONS]:
        part = _load(name, workspace, notes)
        if part is not None:
            parts.append(part)
    if said.data:
        parts.append(TextPart(said.data))
    return Asked(parts if len(parts) > 1 else said.prompt, notes)


def _mentions(text: str) -> Iterator[str]:
    for found in _MENTION.finditer(text):
        name = found[1] or found[2] or found[3].rstrip(_AFTER)
        if name:
            yield name


def _load(name: str, workspace: Path, notes: list[str]) -> Part | None:
    """A file as a part of the task; None if it is not a file, since @ has other uses too."""
    # Uses the file tools' own checks, so that a mention reads nothing that a tool could not read.
    from remit.tools.builtin.files.file_contents import binary_kind, decode, image_type, load  # noqa: PLC0415 - see above
    from remit.tools.builtin.workspace import Workspace  # noqa: PLC0415 - see above
    from remit.tools.words import Refused  # noqa: PLC0415 - see above

    shown = words.line(name, 80)
    try:
        with Workspace(workspace) as room:
            place = room.find(name)
            if place.is_folder:
                return None
            if place.info is None:
                return _unknown(name, notes)
            data = load(place)
    except Refused as refused:
        # A file that exists but cannot be added is an error; any other word with @ stays as it is.
        if "outside" in str(refused) or "too large" in str(refused):
            exits.wrong_use(f"@{shown}: {refused}")
        return _unknown(name, notes)
    media = image_type(data)
    if media:
        return ImagePart(media, data)
    if data.startswith(b"%PDF-"):
        return FilePart(Path(name).name, "application/pdf", data)
    if kind := binary_kind(data):
        exits.wrong_use(f"@{shown} is {kind}, which cannot be added to a task.")
    text, _ = decode(data)
    if len(text) > MOST_TEXT:
        exits.wrong_use(
            f"@{shown} has {len(text):,} characters; the maximum is {MOST_TEXT:,}."
            " Remove the @ and let the agent read the file."
        )
    return TextPart(f'<file path="{words.line(name)}">\n{text}\n</file>')


def _unknown(name: str, notes: list[str]) -> None:
    if "/" in name or "." in name:
        shown = words.line(name, 80)
        notes.append(f"No file {shown!r} in the workspace: @{shown} stays in the task as text.")
