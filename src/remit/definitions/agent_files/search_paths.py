"""Where agent files and configuration are looked for: the project and the folders above it, and the user's own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from remit.definitions.agent_files.definition import Place
from remit.definitions.syntax.nodes import Problem
from remit.tools.settings_files import AGENT_FOLDERS, USER_AGENT_FOLDERS, config_folder

_ENDINGS = {".codex/agents": (".toml",), ".remit/agents": (".md", ".toml")}

MOST_DEEP = 8
MOST_FILES = 2_000
"""Files of one folder; more is no folder of agents."""

_HIGHEST = 64


class Folder(NamedTuple):
    """A folder to look into."""

    path: Path
    place: Place
    inside: Path | None
    """What links may not lead out of."""
    endings: tuple[str, ...] = (".md",)


def repository(workspace: Path, home: Path) -> Path:
    """The root of the repository that a folder belongs to; the folder itself where there is none.

    Without a repository nothing above is looked at: anybody may leave a file in a folder such as /tmp, a .git too. One
    that belongs neither to the user, nor to the system, nor to whoever has the folder itself, makes no repository.
    """
    folder, owners = workspace, (_user(), _SYSTEM, owner(workspace))
    for _ in range(_HIGHEST):
        if (folder / ".git").exists() and owner(folder / ".git") in owners:
            return folder
        if folder in (folder.parent, home):
            break
        folder = folder.parent
    return workspace


_SYSTEM = 0


def owner(path: Path) -> int:
    """The number of the user to whom a file, folder or link belongs; -1 where there is none. 0 on systems without."""
    try:
        return path.lstat().st_uid
    except OSError:
        return -1


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else _SYSTEM


def upwards(workspace: Path, root: Path) -> Iterator[Path]:
    """The folder and those above it, up to the root."""
    folder = workspace
    for _ in range(_HIGHEST):
        yield folder
        if folder in (root, folder.parent):
            return
        folder = folder.parent


def agent_folders(workspace: Path, home: Path, environ: Mapping[str, str]) -> Iterator[Folder]:
    """Every folder that may have agents, the nearest first, the user's own last."""
    root = repository(workspace, home)
    for folder in upwards(workspace, root):
        if folder == home:
            break
        for name in AGENT_FOLDERS:
            yield Folder(folder / name, "project", root, _ENDINGS.get(name, (".md",)))
    for name in AGENT_FOLDERS:
        yield Folder(home / name, "user", None, _ENDINGS.get(name, (".md",)))
    config = config_folder(home, environ)
    for name in USER_AGENT_FOLDERS:
        yield Folder(config / name, "user", None, (".md", ".toml") if name.startswith("remit") else (".md",))


def files_in(folder: Folder, problems: list[Problem]) -> Iterator[Path]:
    """The agent files of a folder and those below it, in order; what is not looked into is told."""
    seen = set[Path]()
    left = MOST_FILES
    todo = [(folder.path, 0)]
    while todo:
        here, depth = todo.pop(0)
        real = _real_folder(here, folder.inside, problems)
        if real is None or real in seen:
            continue
        seen.add(real)
        below = list[tuple[Path, int]]()
        for entry in _entries(real, left):
            left -= 1
            if left < 0:
                text = f"There are more than {MOST_FILES:,} files here; the rest was not looked at."
                problems.append(Problem("warning", folder.path, 0, text))
                return
            if entry.name.startswith("."):
                continue
            if _is_folder(entry):
                below += [(here / entry.name, depth + 1)] if depth < MOST_DEEP else []
            elif entry.name.lower().endswith(folder.endings):
                yield here / entry.name
        todo = below + todo


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def _real_folder(path: Path, inside: Path | None, problems: list[Problem]) -> Path | None:
    try:
        real = path.resolve(strict=True)
    except (OSError, RuntimeError):
        return None
    if inside is None or real.is_relative_to(inside):
        return real
    text = (
        "The folder is a link to a place outside the project, and is not read; put the files themselves here."
    )
    problems.append(Problem("error", path, 0, text))
    return None


def _entries(folder: Path, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(islice(found, most + 1), key=lambda entry: entry.name)
    except OSError:
        return []
