"""The workspace: the folder that the file tools cannot leave.

A path is walked one component at a time from the open root. remit, not the system, follows symlinks, and only while
they stay inside; `..` returns to the previous folder. The folders on the way stay open, so that no rename can come
between a check and its use. Without a given workspace, the root is the current directory at the start of the call.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
from collections import deque
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from remit.tools.builtin.folders import READ, Folder, open_folder
from remit.tools.words import Refused, kind, show, trouble

MOST_PATH = 4096
MOST_PARTS = 200
"""The deepest nesting of folders; each stays open during the walk."""
MOST_LINKS = 40
"""The most symlinks in one path; Linux has the same limit."""

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_HOME = re.compile(r"~$|~[\w-]*/")


class ResolvedPath(NamedTuple):
    """A resolved path: a name in an open folder; an empty name means the folder itself."""

    folder: Folder
    name: str
    parts: tuple[str, ...]
    """The path from the root, with symlinks resolved."""
    info: os.stat_result | None
    """The status of the name; None if it does not exist, and for the folder itself."""

    @property
    def path(self) -> str:
        return "/".join(self.parts) or "."

    @property
    def shown(self) -> str:
        return show(self.path)

    @property
    def is_folder(self) -> bool:
        return not self.name or (self.info is not None and stat.S_ISDIR(self.info.st_mode))


class Workspace:
    """A root folder, open inside its `with` block."""

    def __init__(self, root: Path | None) -> None:
        self.given = root is not None
        try:
            start = Path.cwd() if root is None else Path(root)
            self.real = start.resolve()
        except (OSError, RuntimeError):
            raise Refused(
                "The workspace cannot be found: it does not exist, or its symlinks form a loop."
            ) from None
        self._spellings = tuple(
            dict.fromkeys(Path(os.path.abspath(p)).parts for p in (self.real, start))  # noqa: PTH100 - no links resolved
        )
        self._held: list[Folder] = []

    def __enter__(self) -> Self:
        try:
            self.top = self.hold(open_folder(self.real))
        except OSError as error:
            raise Refused(f"The workspace cannot be opened. {trouble(error, str(self.real))}") from None
        return self

    def __exit__(
        self, kind_: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for folder in self._held:
            folder.close()
        self._held.clear()

    def find(self, path: str | tuple[str, ...], *, make_folders: bool = False) -> ResolvedPath:
        """Resolve a path inside the workspace; a tuple holds names that were found here, used as they are.

        Raises Refused if the path leads outside, or a folder in it is missing or cannot be opened.
        """
        return _Walk(self, path, make_folders=make_folders).go()

    def find_folder(self, path: str) -> ResolvedPath:
        """Resolve and open a folder. Raises Refused for everything else."""
        place = self.find(path)
        if not place.name:
            return place
        if place.info is None:
            raise Refused(missing(place))
        if not place.is_folder:
            raise Refused(f"{place.shown} is a {kind(place.info.st_mode)}, not a folder.")
        try:
            folder = self.hold(place.folder.folder(place.name))
        except OSError as error:
            raise Refused(trouble(error, place.path)) from None
        return place._replace(folder=folder, name="")

    def inside(self, path: str) -> list[str] | None:
        """The components of an absolute path below the root; None for a path outside."""
        parts = Path(path).parts
        for root in self._spellings:
            if parts[: len(root)] == root:
                return [*parts[len(root) :]]
        return None

    def hold(self, folder: Folder) -> Folder:
        """Close this folder together with the workspace."""
        self._held.append(folder)
        return folder

    def drop(self, folder: Folder) -> None:
        """Close a folder before the workspace is closed."""
        folder.close()
        self._held.remove(folder)


class _Walk:
    """The walk along one path."""

    def __init__(self, workspace: Workspace, path: str | tuple[str, ...], *, make_folders: bool) -> None:
        self.workspace = workspace
        self.path = path if isinstance(path, str) else "/".join(path)
        self.make_folders = make_folders
        self.folders = [workspace.top]
        self.parts: list[str] = []
        self.links = 0
        self.left = deque(self._components(path) if isinstance(path, str) else path)

    def go(self) -> ResolvedPath:
        while self.left:
            name = self.left.popleft()
            if name in ("", "."):
                continue
            if name == "..":
                self._back()
                continue
            info = self._look(name)
            if info is not None and stat.S_ISLNK(info.st_mode):
                self._follow(name)
            elif not any(part not in ("", ".") for part in self.left):
                return self._arrive(name, info)
            else:
                self._enter(name, info)
        return ResolvedPath(self.folders[-1], "", tuple(self.parts), None)

    def _components(self, path: str) -> list[str]:
        if "\0" in path:
            raise Refused("A path cannot contain a NUL character.")
        if len(path.encode("utf-8", "surrogatepass")) > MOST_PATH:
            raise Refused(f"The path is too long: {len(path):,} characters.")
        if _URL.match(path):
            raise Refused(f"{show(path)} is a URL, not a path. Use a path inside the workspace.")
        if _HOME.match(path):
            raise Refused(f"{show(path)}: ~ is not expanded. Use a path inside the workspace.")
        if os.name == "nt":
            path = path.replace("\\", "/")
        parts = path.split("/")
        if Path(path).is_absolute() or path.startswith("/"):
            below = self.workspace.inside(path)
            if below is None:
                raise self._outside()
            parts = [*below, ""] if path.endswith("/") else below
        if len(parts) > MOST_PARTS:
            raise Refused(f"The path has too many parts: {len(parts):,}, and the limit is {MOST_PARTS}.")
        return parts

    def _outside(self, link: str = "") -> Refused:
        what = show(self.path) if not link else f"The symlink {show(link)}"
        return Refused(f"{what} leads outside the workspace. Use a path inside it.")

    def _back(self) -> None:
        if not self.parts:
            raise self._outside()
        self.parts.pop()
        self.workspace.drop(self.folders.pop())

    def _look(self, name: str) -> os.stat_result | None:
        if os.name == "nt" and ":" in name:
            raise self._outside()
        try:
            return self.folders[-1].stat(name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Refused(trouble(error, self._so_far(name))) from None

    def _so_far(self, name: str) -> str:
        return "/".join([*self.parts, name])

    def _follow(self, name: str) -> None:
        self.links += 1
        if self.links > MOST_LINKS:
            raise Refused(f"{show(self.path)}: too many symlinks; they may form a loop.")
        try:
            target = self.folders[-1].target(name)
        except OSError as error:
            raise Refused(trouble(error, self._so_far(name))) from None
        if Path(target).is_absolute():
            parts = self.workspace.inside(target)
            if parts is None:
                raise self._outside(self._so_far(name))
            while self.parts:
                self._back()
        else:
            parts = target.split("/")
        if len(self.parts) + len(self.left) + len(parts) > MOST_PARTS:
            raise Refused(f"{show(self.path)}: the path is too long once its symlinks are resolved.")
        self.left.extendleft(reversed(parts))

    def _arrive(self, name: str, info: os.stat_result | None) -> ResolvedPath:
        place = ResolvedPath(self.folders[-1], name, (*self.parts, name), info)
        if self.left and info is None:
            raise Refused(missing(place))
        if self.left and info is not None and not stat.S_ISDIR(info.st_mode):
            raise Refused(f"{place.shown} is a {kind(info.st_mode)}, not a folder.")
        return place

    def _enter(self, name: str, info: os.stat_result | None) -> None:
        where = self._so_far(name)
        try:
            if info is None and self.make_folders:
                with suppress(FileExistsError):
                    self.folders[-1].make_folder(name)
            elif info is None:
                raise Refused(f"The folder {show(where)} does not exist.{self._near(name)}")
            elif not stat.S_ISDIR(info.st_mode):
                raise Refused(f"{show(where)} is a {kind(info.st_mode)}, not a folder.")
            self.folders.append(self.workspace.hold(self.folders[-1].folder(name)))
        except OSError as error:
            raise Refused(trouble(error, where)) from None
        self.parts.append(name)

    def _near(self, name: str) -> str:
        return near(ResolvedPath(self.folders[-1], name, (*self.parts, name), None))


def near(place: ResolvedPath) -> str:
    """A sentence with similar names in the same folder, or ""."""
    try:
        names = [entry.name for entry in place.folder.entries()]
    except OSError:
        return ""
    lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(place.name.lower(), lower, n=3, cutoff=0.6)
    paths = [show("/".join([*place.parts[:-1], lower[name]])) for name in found]
    return f" Similar names: {', '.join(paths)}." if paths else ""


def missing(place: ResolvedPath) -> str:
    """The message about a missing path, with similar names."""
    return f"{place.shown} does not exist.{near(place)}"


def open_file(place: ResolvedPath) -> tuple[int, os.stat_result]:
    """Open a regular file for reading. Raises Refused for everything else; never blocks."""
    if not place.name:
        raise Refused(f"{place.shown} is a folder. Use ls to list it.")
    if place.info is None:
        raise Refused(missing(place))
    _only_files(place, place.info)
    try:
        fd = place.folder.open(place.name, READ)
    except OSError as error:
        raise Refused(trouble(error, place.path)) from None
    try:
        info = os.fstat(fd)
        _only_files(place, info)
    except BaseException:
        os.close(fd)
        raise
    return fd, info


def _only_files(place: ResolvedPath, info: os.stat_result) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise Refused(f"{place.shown} is a folder. Use ls to list it.")
    if not stat.S_ISREG(info.st_mode):
        raise Refused(f"{place.shown} is a {kind(info.st_mode)}, not a regular file.")


def read_bytes(fd: int, most: int) -> bytes:
    """Read a file, at most `most` + 1 bytes: the extra byte shows the caller that there is more."""
    pieces: list[bytes] = []
    left = most + 1
    while left > 0 and (piece := os.read(fd, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)
