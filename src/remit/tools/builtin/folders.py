"""Open folders: an operation stays in its folder, even if the folder is renamed meanwhile.

`FdFolder` works relative to a file descriptor and never follows a symlink, so nothing can be swapped between a check
and its use. `PathFolder` is for systems without such descriptors: it checks a path and then uses it, so replacing a
folder by a symlink in between can redirect it. remit logs this weakness once.
"""

from __future__ import annotations

import logging
import os
import stat
from abc import ABC, abstractmethod
from pathlib import Path

log = logging.getLogger("remit")

_FLAGS = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOINHERIT", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FOLDER = os.O_RDONLY | _FLAGS | getattr(os, "O_DIRECTORY", 0)
READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
"""Never blocks on a FIFO, and never acquires a controlling terminal."""
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL

HAS_DIR_FD = (
    bool(_NO_FOLLOW)
    and {os.open, os.stat, os.readlink, os.rename, os.link, os.unlink, os.mkdir} <= os.supports_dir_fd
    and os.scandir in os.supports_fd
)


class Folder(ABC):
    """One folder. Names are single path components; no method follows a symlink. Every method raises OSError."""

    @abstractmethod
    def folder(self, name: str) -> Folder:
        """Open the folder of that name. Raises OSError for a symlink too."""

    @abstractmethod
    def stat(self, name: str) -> os.stat_result:
        """The name's status; a symlink is not followed."""

    @abstractmethod
    def target(self, name: str) -> str:
        """The target of a symlink, unresolved."""

    @abstractmethod
    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        """Open a file; returns its descriptor."""

    @abstractmethod
    def make_folder(self, name: str) -> None:
        """Create a folder."""

    @abstractmethod
    def replace(self, old: str, new: str) -> None:
        """Rename a file atomically, replacing the file with the new name."""

    @abstractmethod
    def link(self, old: str, new: str) -> None:
        """Create a hard link. Raises FileExistsError if the new name is taken."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file."""

    @abstractmethod
    def entries(self) -> list[os.DirEntry[str]]:
        """The folder's entries, sorted by name."""

    @abstractmethod
    def sync(self) -> None:
        """Flush new names to disk, if the system supports it."""

    @abstractmethod
    def close(self) -> None:
        """Close the folder."""


class FdFolder(Folder):
    """A folder referenced by its descriptor."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def folder(self, name: str) -> Folder:
        return FdFolder(os.open(name, _FOLDER | _NO_FOLLOW, dir_fd=self.fd))

    def stat(self, name: str) -> os.stat_result:
        return os.stat(name, dir_fd=self.fd, follow_symlinks=False)

    def target(self, name: str) -> str:
        return os.readlink(name, dir_fd=self.fd)

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        return os.open(name, flags | _FLAGS | _NO_FOLLOW, mode, dir_fd=self.fd)

    def make_folder(self, name: str) -> None:
        os.mkdir(name, dir_fd=self.fd)

    def replace(self, old: str, new: str) -> None:
        os.replace(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def link(self, old: str, new: str) -> None:
        os.link(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd, follow_symlinks=False)

    def remove(self, name: str) -> None:
        os.unlink(name, dir_fd=self.fd)

    def entries(self) -> list[os.DirEntry[str]]:
        with os.scandir(self.fd) as found:
            return sorted(found, key=_name)

    def sync(self) -> None:
        os.fsync(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class PathFolder(Folder):
    """A folder referenced by its path."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def folder(self, name: str) -> Folder:
        if not stat.S_ISDIR(self.stat(name).st_mode):
            raise NotADirectoryError(name)
        return PathFolder(self.path / name)

    def stat(self, name: str) -> os.stat_result:
        return (self.path / name).lstat()

    def target(self, name: str) -> str:
        return str((self.path / name).readlink())

    def open(self, name: str, flags: int, mode: int = 0o600) -> int:
        return os.open(self.path / name, flags | _FLAGS | _NO_FOLLOW, mode)

    def make_folder(self, name: str) -> None:
        (self.path / name).mkdir()

    def replace(self, old: str, new: str) -> None:
        (self.path / old).replace(self.path / new)

    def link(self, old: str, new: str) -> None:
        os.link(self.path / old, self.path / new)

    def remove(self, name: str) -> None:
        (self.path / name).unlink()

    def entries(self) -> list[os.DirEntry[str]]:
        with os.scandir(self.path) as found:
            return sorted(found, key=_name)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


_warned = False


def open_folder(path: Path) -> Folder:
    """Open a trusted folder, by descriptor if the system supports it."""
    if HAS_DIR_FD:
        return FdFolder(os.open(path, _FOLDER))
    global _warned  # noqa: PLW0603 - once per process is enough
    if not _warned:
        _warned = True
        log.warning(
            "this system lacks folder descriptors: renaming folders during a call can lead file tools out of the workspace"
        )
    if not path.is_dir():
        raise NotADirectoryError(str(path))
    return PathFolder(path)
