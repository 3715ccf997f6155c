"""Whether sandboxed commands could reach a store: paths to its file, and passwords in the workspace."""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import remit.history.journal_files as journal_files

MOST_FILES = 20_000
MOST_BYTES = 1_000_000
"""Largest file that is searched for a password: settings and programs are smaller."""
_MOST_LINKS = 40
"""The most symlinks that Linux follows."""


def steps(path: Path) -> Iterator[Path]:
    """Every path that is looked up to reach a path, including symlinks and their targets.

    A program that can write to one of them can put another file at the end of the path.
    """
    left, links = deque(path.parts[1:]), _MOST_LINKS
    here = Path(path.anchor)
    while left:
        part = left.popleft()
        here = here.parent if part == ".." else here / part
        yield here
        try:
            target = here.readlink()
        except OSError:
            continue
        links -= 1
        if links < 0:
            return
        left.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
        here = Path(target.anchor) if target.is_absolute() else here.parent


def find_text(folder: Path, text: str) -> Path | None:
    """The first file below a folder that contains a text as a whole word; large files are skipped."""
    forms = {text.encode(), quote(text, safe="").encode()}
    pattern = re.compile(rb"(?<!\w)(?:%s)(?!\w)" % b"|".join(map(re.escape, forms)))
    # Closing a file of an open SQLite database would drop the locks that this process holds on it.
    ours = {str(path) for journal in journal_files.used() for path in journal.files()}
    left = MOST_FILES
    for top, folders, files in os.walk(folder):
        folders.sort()
        for name in sorted(files):
            path = Path(top, name)
            left -= 1
            if left < 0:
                return None
            if str(path) not in ours and _small(path) and pattern.search(path.read_bytes()):
                return path
    return None


def _small(path: Path) -> bool:
    try:
        return path.is_file() and not path.is_symlink() and path.stat().st_size <= MOST_BYTES
    except OSError:
        return False
