"""The tools `ls` and `glob`: list files."""

from __future__ import annotations

import stat
from pathlib import Path

from remit.tools.builtin.search.path_patterns import compile_glob
from remit.tools.builtin.search.walk import MOST_DEPTH, Walk, WalkEntry
from remit.tools.builtin.workspace import ResolvedPath, Workspace
from remit.tools.result import ToolResult
from remit.tools.tool import ToolContext, tool
from remit.tools.words import Refused, count, counted, errors_as_results, kind, show, size

MOST_ENTRIES = 1000
MOST_LEVELS = 10
MOST_FILES = 1000
"""The most paths of one page."""


# --- ls ------------------------------------------------------------------------------------------


class _Totals:
    def __init__(self) -> None:
        self.kinds = dict.fromkeys(("folder", "file", "symlink", "other"), 0)

    def add(self, word: str) -> None:
        self.kinds[word if word in self.kinds else "other"] += 1

    def __str__(self) -> str:
        said = [count(n, word, "other" if word == "other" else "") for word, n in self.kinds.items() if n]
        return ", ".join(said) or "no entries"


@tool(tier="observe", paths=("path",), summarise=lambda result: counted(result, "total", "file"))
@errors_as_results
def ls(ctx: ToolContext, *, path: str = ".", depth: int = 1, hidden: bool = False) -> ToolResult:
    """List a folder of the workspace: names, kinds and sizes. A folder's name ends with a slash.

    Args:
        path: The folder, relative to the workspace.
        depth: How many levels to show, at most 10.
        hidden: Whether to show names that begin with a dot.
    """
    with Workspace(ctx.workspace) as workspace:
        place = workspace.find_folder(path)
        levels = min(max(depth, 1), MOST_LEVELS)
        walk = Walk(
            workspace,
            place,
            hidden=hidden,
            ignored=True,
            open_ignored=False,
            cancelled=lambda: ctx.cancelled,
            most_depth=levels,
        )
        lines: list[str] = []
        totals = _Totals()
        for found in walk:
            line, word = _entry(found, deeper=levels > found.depth)
            totals.add(word)
            if len(lines) < MOST_ENTRIES:
                lines.append("  " * (found.depth - 1) + line)
    total = sum(totals.kinds.values())
    if total > MOST_ENTRIES:
        lines.append(f"... {count(total - MOST_ENTRIES, 'more line')}; list a smaller folder.")
    lines.append(_summary(place, totals, walk, given=workspace.given))
    return ToolResult("\n".join(lines), details={"total": total})


def _entry(found: WalkEntry, *, deeper: bool) -> tuple[str, str]:
    name = show(found.name)
    if found.is_folder:
        return f"{name}/{'  (ignored, not opened)' if found.ignored and deeper else ''}", "folder"
    try:
        info = found.entry.stat(follow_symlinks=False)
    except OSError:
        return f"{name}  (removed meanwhile)", "other"
    word = kind(info.st_mode)
    if stat.S_ISREG(info.st_mode):
        return f"{name}  {size(info.st_size)}", word
    if stat.S_ISLNK(info.st_mode):
        return f"{name} -> {_target(found)}", word
    return f"{name}  ({word})", word


def _target(found: WalkEntry) -> str:
    try:
        return show(found.folder.target(found.name))
    except OSError:
        return "?"


def _summary(place: ResolvedPath, totals: _Totals, walk: Walk, *, given: bool) -> str:
    hidden = f", {walk.hidden_left_out} hidden not shown" if walk.hidden_left_out else ""
    unreadable = f", {count(walk.unreadable, 'folder')} could not be opened" if walk.unreadable else ""
    where = "" if given else " No workspace is set: this is the current directory."
    return f"({place.shown}: {totals}{hidden}{unreadable}.{where})"


# --- glob ----------------------------------------------------------------------------------------


@tool(tier="observe", paths=("path",), summarise=lambda result: counted(result, "total", "file"))
@errors_as_results
def glob(
    pattern: str,
    ctx: ToolContext,
    *,
    path: str = ".",
    hidden: bool = False,
    ignored: bool = False,
    offset: int = 0,
    limit: int = 200,
) -> ToolResult:
    """Find files by a pattern of their path, such as **/*.py or src/**/test_*.{js,ts}. Sorted by path.

    Args:
        pattern: * and ? match within one name, ** any number of folders, {a,b} either.
        path: The folder to search, relative to the workspace. The pattern is matched from there.
        hidden: Whether to include names that begin with a dot.
        ignored: Whether to include files that .gitignore excludes.
        offset: How many paths to skip.
        limit: How many paths to return, at most 1000.
    """
    with Workspace(ctx.workspace) as workspace:
        wanted = compile_glob(_relative(workspace, pattern))
        place = workspace.find_folder(path)
        dotted = hidden or any(part.startswith(".") for part in pattern.split("/") if part != ".")
        walk = Walk(
            workspace,
            place,
            hidden=dotted,
            ignored=ignored,
            cancelled=lambda: ctx.cancelled,
            most_depth=wanted.depth or MOST_DEPTH,
        )
        prefix = "/".join([*place.parts, ""])
        found = [show(prefix + f.path) for f in walk if not f.is_folder and wanted.matches(f.path)]
    first = max(offset, 0)
    page = found[first : first + min(max(limit, 1), MOST_FILES)]
    if not page:
        return ToolResult(_nothing(pattern, place, len(found), first), details={"total": 0})
    lines = list(page)
    if first or first + len(page) < len(found):
        last = first + len(page)
        more = f" Continue with offset={last}." if last < len(found) else ""
        lines.append(f"(Files {first + 1} to {last} of {len(found)}.{more})")
    return ToolResult("\n".join(lines), details={"total": len(found)})


def _relative(workspace: Workspace, pattern: str) -> str:
    if not pattern or "\0" in pattern:
        raise Refused("The pattern is empty or contains a NUL character.")
    if Path(pattern).is_absolute():
        parts = workspace.inside(pattern)
        if parts is None:
            raise Refused(f"{show(pattern)} leads outside the workspace. Use a pattern inside it.")
        pattern = "/".join(parts)
    if ".." in pattern.split("/"):
        raise Refused(f"{show(pattern)}: a pattern cannot contain '..'. Pass the folder as path.")
    return pattern


def _nothing(pattern: str, place: ResolvedPath, total: int, offset: int) -> str:
    if total:
        return f"There are only {count(total, 'file')}; offset {offset} is past the end."
    where = "the workspace" if place.path == "." else place.shown
    hint = "" if "**" in pattern or "/" in pattern else f" To search subfolders too: **/{show(pattern)}"
    return f"No file matches {show(pattern)} in {where}.{hint}"
