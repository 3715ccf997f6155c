"""Walk a folder tree in order, without following symlinks, with the rules of .gitignore.

`glob`, `ls` and `grep` use the same walk, so that they see the same files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from remit.tools.builtin.folders import READ, Folder
from remit.tools.builtin.search.path_patterns import Ignore, read_ignore
from remit.tools.builtin.workspace import ResolvedPath, Workspace, read_bytes

MOST_DEPTH = 100
"""The deepest nesting of folders; each stays open while its contents are visited."""
MOST_RULES = 100_000
"""The most bytes read of one .gitignore: about a second of work for any rules."""
NEVER = ".git"
"""Never entered: git's own folder."""


class WalkEntry(NamedTuple):
    """One file or folder of a walk."""

    folder: Folder
    name: str
    path: str
    """Relative to the folder where the walk started."""
    entry: os.DirEntry[str]
    is_folder: bool
    ignored: bool
    depth: int


class _Level(NamedTuple):
    ignore: Ignore
    cut: int
    """The length of the prefix of a path from the root that is the folder of these rules."""


class Walk:
    """One walk, with counts of skipped entries. `open_ignored`: whether it enters the ignored folders that it shows."""

    def __init__(
        self,
        workspace: Workspace,
        start: ResolvedPath,
        *,
        hidden: bool,
        ignored: bool,
        cancelled: Callable[[], bool],
        open_ignored: bool = True,
        most_depth: int = MOST_DEPTH,
    ) -> None:
        self.workspace = workspace
        self.start = start
        self.hidden = hidden
        self.with_ignored = ignored
        self.cancelled = cancelled
        self.open_ignored = open_ignored
        self.most_depth = min(most_depth, MOST_DEPTH)
        self._prefix = "/".join([*start.parts, ""])
        self.hidden_left_out = 0
        self.unreadable = 0
        self.too_deep = 0

    def __iter__(self) -> Iterator[WalkEntry]:
        yield from self._below(self.start.folder, self._prefix, self._rules_above(), 1)

    def _rules_above(self) -> tuple[_Level, ...]:
        """The rules of the folders from the root down to the start; empty if the start itself is ignored."""
        levels: tuple[_Level, ...] = ()
        path = ""
        held = [self.workspace.top]
        try:
            for name in self.start.parts:
                levels = _with_rules(held[-1], levels, len(path))
                path += name
                if _judge(levels, path, is_folder=True):
                    # A caller that names an ignored folder wants its contents.
                    return ()
                path += "/"
                held.append(held[-1].folder(name))
        except OSError:
            return levels
        finally:
            for folder in held[1:]:
                folder.close()
        return levels

    def _below(
        self, folder: Folder, prefix: str, levels: tuple[_Level, ...], depth: int
    ) -> Iterator[WalkEntry]:
        try:
            entries = folder.entries()
        except OSError:
            self.unreadable += 1
            return
        levels = _with_rules(folder, levels, len(prefix), entries)
        for entry in entries:
            if self.cancelled():
                return
            name = entry.name
            if name[0] == "." and not self.hidden:
                self.hidden_left_out += 1
                continue
            is_folder = entry.is_dir(follow_symlinks=False)
            ignored = (is_folder and name == NEVER) or _judge(levels, prefix + name, is_folder=is_folder)
            if ignored and not self.with_ignored:
                continue
            path = (prefix + name)[len(self._prefix) :]
            found = WalkEntry(folder, name, path, entry, is_folder, ignored, depth)
            yield found
            if is_folder and name != NEVER and (self.open_ignored or not ignored):
                yield from self._enter(found, prefix, levels)

    def _enter(self, found: WalkEntry, prefix: str, levels: tuple[_Level, ...]) -> Iterator[WalkEntry]:
        if found.depth >= self.most_depth:
            self.too_deep += 1
            return
        try:
            inner = found.folder.folder(found.name)
        except OSError:
            self.unreadable += 1
            return
        try:
            yield from self._below(inner, f"{prefix}{found.name}/", levels, found.depth + 1)
        finally:
            inner.close()


def _judge(levels: tuple[_Level, ...], path: str, *, is_folder: bool) -> bool:
    for level in reversed(levels):
        answer = level.ignore.judge(path[level.cut :], is_folder=is_folder)
        if answer is not None:
            return answer
    return False


def _with_rules(
    folder: Folder, levels: tuple[_Level, ...], cut: int, entries: list[os.DirEntry[str]] | None = None
) -> tuple[_Level, ...]:
    if entries is not None and not any(entry.name == ".gitignore" for entry in entries):
        return levels
    try:
        fd = folder.open(".gitignore", READ)
    except OSError:
        return levels
    try:
        data = read_bytes(fd, MOST_RULES)[:MOST_RULES]
    except OSError:
        return levels
    finally:
        os.close(fd)
    ignore = read_ignore(data.decode("utf-8-sig", "surrogateescape"))
    return levels if ignore is None else (*levels, _Level(ignore, cut))
