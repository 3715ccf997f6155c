"""Where agent files and configuration are searched: the project, the folders above it, and the user's folders."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from remit.definitions.agent_files.definition import Place
from remit.definitions.agent_files.formats import COMMAND_FOLDERS, SKILL, why_no_agent
from remit.definitions.syntax.nodes import Problem
from remit.tools.settings_files import (
    AGENT_FILES,
    AGENT_FOLDERS,
    KIRO_FOLDER,
    OPENCODE_FILES,
    ROO_FILE,
    USER_AGENT_FILES,
    USER_AGENT_FOLDERS,
    config_folder,
)

_ENDINGS = {
    ".codex/agents": (".toml",),
    ".remit/agents": (".md", ".toml"),
    KIRO_FOLDER: (".md", ".json"),
}

MOST_DEEP = 8
MOST_FILES = 2_000
"""Agent files of one folder."""
MOST_ENTRIES = 50_000
"""Directory entries read in one folder and its subfolders."""

_HIGHEST = 64


class Folder(NamedTuple):
    """A folder to search, or a file with several agents."""

    path: Path
    place: Place
    inside: Path | None
    """The folder that symlinks may not leave."""
    endings: tuple[str, ...] = (".md",)
    is_named: bool = False
    """Whether the caller or a setting named the folder. It may then be a whole project with its own agent folders."""
    root: Path | None = None
    """The folder that prompt files may not leave, if symlinks may."""


def repository(workspace: Path, home: Path) -> Path:
    """The root of the repository that a folder belongs to; the folder itself if there is no repository.

    Without a repository no parent folder is searched: anyone can create files, and a .git, in a folder such as /tmp. A
    .git counts only if it belongs to the user, to the system or to the owner of the workspace.
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
    """The user id that owns a file, folder or link; -1 if the path does not exist, 0 on systems without user ids."""
    try:
        return path.lstat().st_uid
    except OSError:
        return -1


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else _SYSTEM


def upwards(workspace: Path, root: Path) -> Iterator[Path]:
    """The folder and its parents, up to the root."""
    folder = workspace
    for _ in range(_HIGHEST):
        yield folder
        if folder in (root, folder.parent):
            return
        folder = folder.parent


def agent_folders(workspace: Path, home: Path, environ: Mapping[str, str]) -> Iterator[Folder]:
    """Every place that may have agents, nearest first, the user's own last."""
    root = repository(workspace, home)
    for folder in upwards(workspace, root):
        if folder == home:
            break
        for name in AGENT_FOLDERS:
            yield Folder(folder / name, "project", root, _ENDINGS.get(name, (".md",)))
        for name in AGENT_FILES:
            yield Folder(folder / name, "project", root)
    for name in AGENT_FOLDERS:
        yield Folder(home / name, "user", None, _ENDINGS.get(name, (".md",)))
    config = config_folder(home, environ)
    for name in USER_AGENT_FOLDERS:
        yield Folder(config / name, "user", None, (".md", ".toml") if name.startswith("remit") else (".md",))
    for name in USER_AGENT_FILES:
        yield Folder(config / name, "user", None)


def endings_of(path: Path) -> tuple[str, ...]:
    """The endings of agent files in a folder that was named explicitly."""
    parts = [part.lower() for part in path.absolute().parts]
    inside = (_ENDINGS.get("/".join(pair), ()) for pair in pairwise(parts))
    return tuple(dict.fromkeys((".md", ".toml", *(ending for endings in inside for ending in endings))))


def files_in(folder: Folder, problems: list[Problem]) -> Iterator[Path]:
    """The agent files of a folder and its subfolders, in order. Skipped files and folders are added to `problems`."""
    seen = set[Path]()
    entries, files = MOST_ENTRIES, MOST_FILES
    todo = [(folder, 0)]
    while todo:
        here, depth = todo.pop(0)
        real = _real_folder(here.path, here.inside, problems)
        if real is None or real in seen:
            continue
        seen.add(real)
        listed = _entries(real, entries)
        entries -= len(listed)
        visit = _Visit(here, depth, listed, problems)
        for path in visit.files():
            files -= 1
            if files < 0 or entries < 0:
                text = f"There are more than {MOST_FILES:,} files here; the rest was not read."
                problems.append(Problem("warning", folder.path, 0, text))
                return
            yield path
        todo = [*visit.folders(), *todo]


class _Visit:
    """One folder: the files in it that may be agents, and the subfolders to search."""

    def __init__(
        self, folder: Folder, depth: int, listed: list[os.DirEntry[str]], problems: list[Problem]
    ) -> None:
        self._folder = folder
        self._depth = depth
        self._inner, self._listed = list[os.DirEntry[str]](), list[os.DirEntry[str]]()
        for entry in listed:
            (self._inner if _is_folder(entry) else self._listed).append(entry)
        self._problems = problems
        # A skill's other files belong to the skill; its agents are in a folder named `agents`.
        self._is_skill = depth > 0 and any(entry.name.lower() == SKILL for entry in self._listed)

    def files(self) -> Iterator[Path]:
        for entry in self._listed:
            path, name = self._folder.path / entry.name, entry.name.lower()
            if not self._is_candidate(name):
                continue
            why = why_no_agent(name)
            if why:
                self._problems.append(Problem("note", path, 0, why))
            elif not self._is_skill:
                yield path

    def _is_candidate(self, name: str) -> bool:
        if self._folder.is_named and name in (*OPENCODE_FILES, ROO_FILE):
            return True
        return not name.startswith(".") and name.endswith(self._folder.endings)

    def folders(self) -> Iterator[tuple[Folder, int]]:
        if self._depth >= MOST_DEEP:
            return
        for entry in self._inner:
            path, name = self._folder.path / entry.name, entry.name.lower()
            if name.startswith("."):
                yield from self._hidden(path, name)
            elif name in COMMAND_FOLDERS:
                text = "This is a folder of commands, not of agents; it was ignored."
                self._problems.append(Problem("note", path, 0, text))
            elif name != "node_modules" and (not self._is_skill or name in ("agents", "agent")):
                yield self._folder._replace(path=path), self._depth + 1

    def _hidden(self, path: Path, name: str) -> Iterator[tuple[Folder, int]]:
        """The hidden folders that hold agents. Files in other hidden folders may look like agents."""
        for place in AGENT_FOLDERS if self._folder.is_named else ():
            outer, inner = place.split("/")
            if outer == name:
                endings = _ENDINGS.get(place, (".md",))
                yield self._folder._replace(path=path / inner, endings=endings), self._depth + 1
        if self._folder.is_named and name == ".opencode":
            yield Folder(path, self._folder.place, self._folder.inside, (), is_named=True), MOST_DEEP


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
    text = "The folder is a symlink to a place outside the project and was not read; put the files themselves here."
    problems.append(Problem("error", path, 0, text))
    return None


def _entries(folder: Path, most: int) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return sorted(islice(found, most + 1), key=lambda entry: entry.name)
    except OSError:
        return []
