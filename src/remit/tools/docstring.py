"""Docstrings in Google, NumPy, Sphinx or Epydoc style: the description, and a note about each parameter.

This is our own code because docstring-parser finds fewer notes, and it drops or moves text that stands after a section:
docs/decisions/0041-our-own-reader-for-docstrings.md has the figures.
"""

from __future__ import annotations

import re

_PARAMETERS = "Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments|Other Parameters"
_HEADING = rf"(?:({_PARAMETERS})|Returns?|Yields?|Raises)\s*(:?)\s*$"
_UNDERLINE = r"(?:-{3,}|={3,})\s*$"
_NAMES = r"([*`]*\w+`?(?:\s*,\s*[*`]*\w+`?)*)"
_GOOGLE_ENTRY = rf"\s+{_NAMES}(?:\s*\(.*?\))?\s*:(?:\s+(.*))?$"
_NUMPY_ENTRY = rf"{_NAMES}\s*(?::.*)?$"
_FIELD = r"[:@](?:(param|parameter|arg|argument|key|keyword)|type|returns?|rtype|raises?|yields?|ytype)\b([^:]*):(.*)$"


def read_docstring(doc: str) -> tuple[str, dict[str, str]]:
    """The description in a docstring, as `inspect.getdoc` returns it, and its note about each parameter.

    Never raises. Text that cannot be read as a note stays in the description.
    """
    reader = _Reader()
    lines = doc.splitlines()
    for line, below in zip(lines, [*lines[1:], ""], strict=False):
        reader.read(line, underlined=bool(line.strip() and re.match(_UNDERLINE, below)))
    notes = {name: " ".join(" ".join(parts).split()) for name, parts in reader.notes.items()}
    return "\n".join(reader.description).strip(), {name: note for name, note in notes.items() if note}


class _Reader:
    """Reads line by line. A section is open from its heading, or from its field, until a line that cannot belong to it."""

    def __init__(self) -> None:
        self.description: list[str] = []
        self.notes: dict[str, list[str]] = {}
        self._style = ""
        """The style of the open section; empty between sections."""
        self._wanted = False
        """Whether the open section is about parameters."""
        self._heading: list[str] = []
        """The heading of a section in which no entry was found yet."""
        self._names: list[str] = []
        """The parameters that the open entry is about."""
        self._indent = 0

    def read(self, line: str, *, underlined: bool) -> None:
        heading = re.match(_HEADING, line)
        field = re.match(_FIELD, line)
        if heading and (underlined or heading[2]):
            self._open("numpy" if underlined else "google", line, wanted=bool(heading[1]))
        elif field:
            self._open("fields", line, wanted=bool(field[1]))
            self._enter(field[2].split()[-1:], field[3])
        elif self._style == "numpy" and not underlined:
            self._read_numpy(line)
        elif self._style in ("google", "fields") and (not line.strip() or line[0].isspace()):
            self._read_indented(line)
        else:
            self._style = ""
            self.description.append(line)

    def _open(self, style: str, heading: str, *, wanted: bool) -> None:
        self._style, self._wanted, self._heading, self._names, self._indent = style, wanted, [heading], [], 0

    def _enter(self, names: list[str], note: str) -> None:
        names = [bare for name in names if (bare := name.strip(" *`"))] if self._wanted else []
        self._names = names
        for name in names:
            self.notes[name] = [note]
        if names:
            self._heading = []
        elif self._style == "fields":
            self._more("")

    def _more(self, line: str) -> None:
        """Add a line to the open entry; in a parameter section without an entry, keep the line in the description."""
        for name in self._names:
            self.notes[name].append(line)
        if self._wanted and not self._names:
            self.description += [*self._heading, line]
            self._heading = []

    def _read_numpy(self, line: str) -> None:
        entry = re.match(_NUMPY_ENTRY, line)
        if entry:
            self._enter(entry[1].split(","), "")
        elif not re.match(_UNDERLINE, line):
            if line.strip() and not line[0].isspace():
                self._names = []
            self._more(line)

    def _read_indented(self, line: str) -> None:
        indent = len(line) - len(line.lstrip())
        entry = re.match(_GOOGLE_ENTRY, line) if self._style == "google" else None
        if entry and indent <= (self._indent or indent):
            self._indent = indent
            self._enter(entry[1].split(","), entry[2] or "")
        else:
            self._more(line)
