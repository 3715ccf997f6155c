"""The tool `grep`: find lines that match a regular expression."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

import remit.tools.builtin.files.file_contents as file_contents
import remit.tools.builtin.search.grep_engines as grep_engines
from remit.tools.builtin.folders import READ, Folder
from remit.tools.builtin.search.path_patterns import Glob, compile_glob
from remit.tools.builtin.search.regex_dialect import Pattern, read_pattern
from remit.tools.builtin.search.walk import Walk
from remit.tools.builtin.workspace import ResolvedPath, Workspace, open_file, read_bytes
from remit.tools.result import ToolResult
from remit.tools.tool import ToolContext, tool
from remit.tools.words import Refused, count, counted, errors_as_results, show, size

SECONDS = 20.0
"""The timeout of one search. It also stops a pattern with endless backtracking."""
MOST_BYTES = 30_000_000
"""The largest file that is searched."""
HEAD_BYTES = 1 << 16
"""The bytes of a file that decide whether it is text."""
MOST_LINES = 1000
MOST_CONTEXT = 20
MOST_LINE_CHARS = 500
MOST_CHARS = 100_000

Mode = Literal["lines", "files", "count"]


@tool(
    tier="observe", paths=("path",), summarise=lambda result: counted(result, "matches", "match", "matches")
)
@errors_as_results
def grep(
    pattern: str,
    ctx: ToolContext,
    *,
    path: str = ".",
    glob: str = "",
    ignore_case: bool = False,
    context: int = 0,
    mode: Mode = "lines",
    hidden: bool = False,
    ignored: bool = False,
    offset: int = 0,
    limit: int = 100,
) -> ToolResult:
    """Search the files of the workspace for lines that match a regular expression. Binary files are skipped.

    Args:
        pattern: A regular expression in Python's syntax, matched within single lines.
        path: The folder or file to search, relative to the workspace.
        glob: Only files that match: *.py (any folder), src/**/*.py (from path), !*.min.js (all others).
        ignore_case: Whether to ignore case.
        context: How many lines to show before and after each match, at most 20.
        mode: lines shows the lines, files only the names, count how many lines match in each file.
        hidden: Whether to search names that begin with a dot.
        ignored: Whether to search files that .gitignore excludes.
        offset: How many matches (or files) to skip.
        limit: How many matches (or files) to return, at most 1000.
    """
    wanted = read_pattern(pattern, ignore_case=ignore_case)
    names = _Names(glob)
    page = _Page(max(offset, 0), min(max(limit, 1), MOST_LINES), min(max(context, 0), MOST_CONTEXT))
    with Workspace(ctx.workspace) as workspace:
        search = _Search(workspace, wanted, lambda: ctx.cancelled)
        start = workspace.find(path)
        if start.is_folder or start.info is None:
            start = workspace.find_folder(path)
            search.folder(
                Walk(workspace, start, hidden=hidden, ignored=ignored, cancelled=search.over), names
            )
        else:
            search.file(start)
        if ctx.cancelled:
            raise Refused("Search stopped: the run was cancelled.")
        return _Report(workspace, search, start, page).result(mode)


grep.gate = grep_engines.SEARCHES


class _Page(NamedTuple):
    offset: int
    limit: int
    context: int


class _Names:
    """Selects files by a glob, matched against the path from the start of the search."""

    def __init__(self, glob: str) -> None:
        self.negated = glob.startswith("!")
        text = glob.removeprefix("!")
        if text.startswith("/") or ".." in text.split("/"):
            raise Refused(
                f"{show(glob)}: a glob is matched below path, so it cannot begin with / or contain '..'."
            )
        self.any_folder = "/" not in text
        self.glob: Glob | None = compile_glob(text) if text else None

    def picks(self, path: str, name: str) -> bool:
        if self.glob is None:
            return True
        return self.glob.matches(name if self.any_folder else path) is not self.negated


# --- Searching -----------------------------------------------------------------------------------


class _Search:
    """Feeds files to engines and collects the matches."""

    def __init__(self, workspace: Workspace, pattern: Pattern, cancelled: Callable[[], bool]) -> None:
        self.workspace = workspace
        self.pattern = pattern
        self.cancelled = cancelled
        self.files: list[tuple[str, ...]] = []
        self.matches: list[tuple[int, int]] = []
        self.large = self.unreadable = self.binary = 0
        self.late = False
        self.full = False
        self._python: grep_engines.Engine | None = None
        self._ripgrep: grep_engines.Engine | None = None
        program = grep_engines.find_ripgrep() if pattern.shared else ""
        self._program = program if program and grep_engines.accepts(program, pattern) else ""
        self._done = threading.Event()

    def over(self) -> bool:
        """Whether the search should stop."""
        return self.late or self.cancelled() or any(engine.full for engine in self._engines())

    def folder(self, walk: Walk, names: _Names) -> None:
        """Search a folder."""
        with _Watched(self):
            for found in walk:
                if found.is_folder or not found.entry.is_file(follow_symlinks=False):
                    continue
                if names.picks(found.path, found.name):
                    data = self._load(found.folder, found.name)
                    if data is not None:
                        self._feed((*walk.start.parts, *found.path.split("/")), data)
        self.unreadable += walk.unreadable

    def file(self, place: ResolvedPath) -> None:
        """Search one file. Raises Refused if it cannot be read as text."""
        data = file_contents.load(place, MOST_BYTES)
        if what := file_contents.binary_kind(data):
            raise Refused(f"{place.shown} is {what}, not text.")
        with _Watched(self):
            self._feed(place.parts, data)

    def _load(self, folder: Folder, name: str) -> bytes | None:
        try:
            fd = folder.open(name, READ)
        except OSError:
            self.unreadable += 1
            return None
        try:
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                return None
            if info.st_size > MOST_BYTES:
                self.large += 1
                return None
            data = os.read(fd, HEAD_BYTES)
            if not file_contents.binary_kind(data):
                data += read_bytes(fd, MOST_BYTES)
        except OSError:
            self.unreadable += 1
            return None
        finally:
            os.close(fd)
        if file_contents.binary_kind(data):
            self.binary += 1
            return None
        return data

    def _feed(self, parts: tuple[str, ...], data: bytes) -> None:
        text = file_contents.as_lines(data)
        self.files.append(parts)
        self._engine(text).feed(len(self.files) - 1, text)

    def _engine(self, text: bytes) -> grep_engines.Engine:
        # Beyond ASCII the engines' Unicode tables differ, so Python searches such files if tables matter.
        if self._program and (not self.pattern.needs_tables or text.isascii()):
            if self._ripgrep is None:
                self._ripgrep = grep_engines.Engine(grep_engines.ripgrep_command(self._program, self.pattern))
            return self._ripgrep
        if self._python is None:
            self._python = grep_engines.Engine(grep_engines.python_command(self.pattern, SECONDS))
        return self._python

    def _engines(self) -> Iterator[grep_engines.Engine]:
        yield from (engine for engine in (self._ripgrep, self._python) if engine is not None)

    def watch(self) -> None:
        """Wait until the search is done; kill the engines at the timeout, or when the run is cancelled."""
        end = time.monotonic() + SECONDS
        while not self._done.wait(0.02):
            if self.cancelled() or time.monotonic() >= end:
                self.late = True
                for engine in self._engines():
                    engine.kill()

    def collect(self) -> None:
        """Wait for the engines, and collect the matches in the order of the files."""
        for engine in self._engines():
            engine.finish()
            self.late = self.late or engine.killed
            self.full = self.full or engine.full
            self.matches += engine.matches()
        self.matches = sorted(self.matches)[: grep_engines.MOST_MATCHES]

    def close(self) -> None:
        self._done.set()
        for engine in self._engines():
            engine.close()


class _Watched:
    """A search with a timeout. At its end, the matches are collected and every process has ended."""

    def __init__(self, search: _Search) -> None:
        self.search = search

    def __enter__(self) -> None:
        threading.Thread(target=self.search.watch, name="remit-grep-clock", daemon=True).start()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if error is None:
                self.search.collect()
        finally:
            self.search.close()


# --- The result ----------------------------------------------------------------------------------


class _Report:
    """The result of a search, page by page."""

    def __init__(self, workspace: Workspace, search: _Search, start: ResolvedPath, page: _Page) -> None:
        self.workspace = workspace
        self.search = search
        self.start = start
        self.page = page
        self.by_file: dict[int, list[int]] = {}
        for file, line in search.matches:
            self.by_file.setdefault(file, []).append(line)

    def result(self, mode: Mode) -> ToolResult:
        matches = len(self.search.matches)
        details: dict[str, object] = {"matches": matches, "files": len(self.by_file)}
        total = matches if mode == "lines" else len(self.by_file)
        if not matches:
            return ToolResult(
                "\n".join([self._nothing(), *self._notes()]), ok=not self._lost, details=details
            )
        if self.page.offset >= total:
            raise Refused(
                f"There are only {self._unit(total, mode)}; offset {self.page.offset} is past the end."
            )
        lines, shown = self._lines() if mode == "lines" else self._files(mode)
        footer = self._footer(total, shown, mode)
        return ToolResult("\n".join([*lines, *footer, *self._notes()]), details=details)

    @property
    def _lost(self) -> bool:
        return self.search.late

    def _unit(self, number: int, mode: Mode) -> str:
        return count(number, "match", "matches") if mode == "lines" else count(number, "file")

    def _nothing(self) -> str:
        where = "" if self.start.path == "." else f" in {self.start.shown}"
        if self.search.late:
            return f"No match{where} before the search was stopped."
        return f"No line matches {show(self.search.pattern.text)}{where} ({count(len(self.search.files), 'file')} searched)."

    def _notes(self) -> list[str]:
        search, notes = self.search, list[str]()
        if search.late:
            notes.append(
                f"(Incomplete: the search was stopped; its limit is {SECONDS:g} s. Use a simpler pattern, or a narrower path or glob.)"
            )
        if search.full:
            notes.append(
                f"(Stopped after {grep_engines.MOST_MATCHES:,} matches. Use a narrower pattern, path or glob.)"
            )
        if search.large:
            notes.append(f"({count(search.large, 'file')} over {size(MOST_BYTES)} not searched.)")
        if search.unreadable:
            notes.append(
                f"({count(search.unreadable, 'file or folder', 'files or folders')} could not be opened.)"
            )
        return notes

    def _footer(self, total: int, shown: int, mode: Mode) -> list[str]:
        first = self.page.offset
        if not first and shown == total:
            return []
        last = first + shown
        more = f" Continue with offset={last}." if last < total else ""
        what = "Matches" if mode == "lines" else "Files"
        return [f"({what} {first + 1} to {last} of {total}.{more})"]

    def _files(self, mode: Mode) -> tuple[list[str], int]:
        picked = list(self.by_file.items())[self.page.offset :][: self.page.limit]
        paths = [(self._path(file), len(found)) for file, found in picked]
        return [path if mode == "files" else f"{path}:{n}" for path, n in paths], len(paths)

    def _path(self, file: int) -> str:
        return show("/".join(self.search.files[file]))

    def _lines(self) -> tuple[list[str], int]:
        chosen: dict[int, list[int]] = {}
        for file, line in self.search.matches[self.page.offset :][: self.page.limit]:
            chosen.setdefault(file, []).append(line)
        out: list[str] = []
        chars = shown = 0
        for file, picked in chosen.items():
            for line, hit in self._around(file, picked):
                if chars > MOST_CHARS:
                    return out, shown
                out.append(line)
                chars += len(line) + 1
                shown += hit
        return out, shown

    def _around(self, file: int, picked: list[int]) -> Iterator[tuple[str, bool]]:
        """The lines to show of one file, and for each whether it is a match of this page."""
        text, path, context = self._text(file), self._path(file), self.page.context
        hits, asked = set(self.by_file[file]), set(picked)
        numbers = sorted({n for hit in picked for n in range(max(hit - context, 1), hit + context + 1)})
        last = None
        for number in numbers:
            if number > len(text) and number not in asked:
                continue
            if (
                context
                and last != number - 1
                and (last is not None or file != self.search.matches[self.page.offset][0])
            ):
                yield "--", False
            last = number
            line = text[number - 1] if number <= len(text) else "(the file has changed)"
            mark = ":" if number in hits else "-"
            yield f"{path}{mark}{number}{mark}{_cut(line)}", number in asked

    def _text(self, file: int) -> list[str]:
        """The file's lines, read again so that a search does not keep every file in memory."""
        try:
            fd, _ = open_file(self.workspace.find(self.search.files[file]))
        except Refused:
            return []
        try:
            data = read_bytes(fd, MOST_BYTES)
        finally:
            os.close(fd)
        return file_contents.as_lines(data).decode("utf-8", "replace").removesuffix("\n").split("\n")


def _cut(line: str) -> str:
    if len(line) <= MOST_LINE_CHARS:
        return line
    return f"{line[:MOST_LINE_CHARS]}... (line truncated: it has {len(line):,} characters)"
