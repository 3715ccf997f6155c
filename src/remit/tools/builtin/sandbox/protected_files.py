"""Files of the workspace that a sandboxed command may not change, since programs outside use them: settings, hooks, agents.

Existing files are read-only. A missing file cannot be protected, so remit looks for it after the command and renames it.
The file tools use the same rules. `tools/settings_files.py` knows which files are remit's own settings.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import remit.tools.builtin.sandbox.repositories as repositories
from remit.history.journal_files import database_of, is_journal
from remit.tools.builtin.folders import CREATE, FdFolder, Folder, open_folder
from remit.tools.builtin.sandbox.mounts import Mount
from remit.tools.secret_places import PROTECTED, PROTECTED_GIT, SYSTEM, homes
from remit.tools.settings_files import Parts, SettingsFiles, by_name, read_small, shared_files
from remit.tools.words import Refused, show
from remit.types.sandbox import Sandbox

log = logging.getLogger("remit")

MOST_REPOSITORIES = 64
"""Each repository needs several mounts, and every mount slows bubblewrap down."""
MOST_SETTINGS = 200
"""The same for remit's settings: each needs a mount, and so does every folder above it."""
MOST_TOLD = 20
"""The most renamed files that are listed; the rest are counted."""
MOST_AFTERWARDS = 2_000_000
"""The most names checked after a command, which may have created many to hide one."""
_MOST_LINKS = 8
_names = frozenset(name.lower() for name in PROTECTED)


def check_workspace(sandbox: Sandbox, workspace: Path) -> None:
    """Raise Refused if a sandbox that can write in this workspace would protect nothing."""
    if sandbox.files != "workspace-write":
        return
    if workspace == Path("/") or any(Path(name).is_relative_to(workspace) for name in SYSTEM):
        raise Refused(
            f"The workspace {show(str(workspace))} contains system folders, so a sandbox that can write in it would protect"
            " nothing. Choose a narrower workspace."
        )
    if any(home.is_relative_to(workspace) for home in homes()):
        raise Refused(
            f"The workspace {show(str(workspace))} contains your home folder, with settings and keys that other programs"
            " use, so a sandbox that can write in it would protect nothing. Choose a folder below it as the workspace,"
            " or the sandbox read-only."
        )


# --- Read-only files -----------------------------------------------------------------------------


class Guard:
    """The files of one workspace that a command must not change, as they were before the command."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self._id = _id(top.stat())
        self._read: set[Path] = set()
        self._ways: set[Path] = set()
        self._watched: dict[tuple[str, ...], os.stat_result | None] = {}
        self._missing: list[Parts] = []
        """Settings that are referred to but do not exist."""
        survey = repositories.find_all(top)
        found, self._whole, self.journals = survey.repositories, survey.whole, survey.journals
        self._known = {repository.id for repository in found}
        if len(found) > MOST_REPOSITORIES:
            raise Refused(
                f"Not run: the workspace contains {len(found)} git repositories, and a sandbox that can write protects at most"
                f" {MOST_REPOSITORIES}. Choose a workspace with fewer repositories, or the sandbox read-only."
            )
        if not self._whole:
            _warn_once(top)
        self._settings = SettingsFiles(top, survey.settings)
        self._keep_settings()
        for journal in self.journals:
            self._keep_journal(journal)
        for name in PROTECTED:
            self._keep((), (name,))
        for repository in found:
            self._keep_repository(repository)
        # remit's own virtual environment, if it is in the workspace.
        own = Path(sys.prefix).resolve()
        if sys.prefix != sys.base_prefix and own.is_relative_to(top):
            self._keep((), own.relative_to(top).parts)

    def mounts(self) -> Iterator[Mount]:
        """The mounts over the workspace. The folders above a protected file become mounts too: a mount cannot be renamed."""
        for path in sorted(self._read | self._ways):
            if not any(above in self._read for above in path.parents):
                yield Mount(path, "read" if path in self._read else "write")

    def _keep(self, base: tuple[str, ...], names: tuple[str, ...], links: int = 0) -> None:
        path = self.top.joinpath(*base)
        for number, name in enumerate(names, 1):
            path = path / name
            info = _look(path)
            if info is None or stat.S_ISLNK(info.st_mode):
                self._watched[*base, *names[:number]] = info
                if info is not None and links < _MOST_LINKS:
                    self._keep_target(path.joinpath(*names[number:]), links)
                return
            if number == len(names):
                self._read.add(path)
            elif stat.S_ISDIR(info.st_mode):
                self._ways.add(path)
            else:
                return

    def _keep_journal(self, path: Path) -> None:
        """Protect the folders above a hidden journal. SQLite would apply a rollback journal that is planted beside it."""
        parts = path.relative_to(self.top).parts
        self._ways.update(self.top.joinpath(*parts[:number]) for number in range(1, len(parts)))
        planted = path.with_name(f"{path.name}-journal")
        self._watched[*parts[:-1], planted.name] = _look(planted)

    def _keep_target(self, path: Path, links: int) -> None:
        with suppress(OSError, RuntimeError):
            real = path.resolve()
            if real != self.top and real.is_relative_to(self.top):
                self._keep((), real.relative_to(self.top).parts, links + 1)

    def _keep_settings(self) -> None:
        top, settings = self.top, self._settings
        if settings.covers(top):
            raise Refused(
                f"Not run: remit reads agents from the whole workspace {show(str(top))}, so a sandbox that can write in it"
                " would protect nothing. Set agents.paths to a separate folder, or choose the sandbox read-only."
            )
        inside = (path for path in settings.named if path.is_relative_to(top))
        places = {top.joinpath(*parts) for parts in settings.found}.union(inside)
        if len(places) > MOST_SETTINGS:
            raise Refused(
                f"Not run: the workspace contains {len(places)} files and folders with remit's settings, and a sandbox that"
                f" can write protects at most {MOST_SETTINGS}. Choose a narrower workspace, or the sandbox read-only."
            )
        for path in sorted(places):
            parts = path.relative_to(top).parts
            if os.path.lexists(path):
                self._keep((), parts)
            else:
                self._missing.append(parts)
        self._shared = shared_files(places)

    def _keep_repository(self, found: repositories.Repository) -> None:
        if stat.S_ISREG(found.mode):
            self._keep(found.parts, (".git",))
        for name in PROTECTED_GIT:
            self._keep(found.parts, (".git", name))
        for name in PROTECTED if found.parts else ():
            self._keep(found.parts, (name,))
        folder = self.top.joinpath(*found.parts)
        for place in _named(self.top, folder):
            self._keep((), place.relative_to(self.top).parts)

    # --- Renaming planted files ------------------------------------------------------------------

    def put_aside(self) -> list[str]:
        """Rename files that the command planted; returns a note about each."""
        names: list[str] = []
        with suppress(OSError), _held(open_folder(self.top)) as top:
            if _id(top.stat(".")) == self._id:
                names += self._planted(top)
                survey = self._look_again()
                names += [*self._new_repositories(top, survey), *self._new_settings(top, survey)]
        notes = [
            f"{show(name)} was renamed: a sandboxed command may not create or change it" for name in names
        ]
        more = len(notes) - MOST_TOLD
        return [*notes[:MOST_TOLD], f"{more} more were renamed"] if more > 0 else notes

    def _planted(self, top: Folder) -> Iterator[str]:
        for parts, before in self._watched.items():
            with suppress(OSError), _walked(top, parts[:-1]) as folder:
                now = folder.stat(parts[-1])
                if before is None or _identity(now) != _identity(before):
                    yield from _aside(folder, parts)

    def _look_again(self) -> repositories.Survey:
        most = MOST_AFTERWARDS if self._whole else repositories.MOST_ENTRIES
        survey = repositories.find_all(self.top, most, insist=True)
        if self._whole and not survey.whole:
            _warn_once(self.top)
        return survey

    def _new_settings(self, top: Folder, survey: repositories.Survey) -> Iterator[str]:
        """Undo new settings files, and changes of settings through another hard link."""
        # A repository that a command created, such as a clone, is not trusted, and no later command can change that.
        own = [new.parts for new in survey.repositories if new.parts and self._is_new(top, new)]
        listed = [
            (parts, name) for parts, name in survey.settings if not any(parts[: len(r)] == r for r in own)
        ]
        new = SettingsFiles(self.top, listed).found - self._settings.found
        new |= {parts for parts in self._missing if os.path.lexists(self.top.joinpath(*parts))}
        before = {parts: self._settings.tables.get(parts) for parts in new}
        for path, data in self._shared.items():
            if read_small(path) != data:
                before[path.relative_to(self.top).parts] = data
        for parts, data in sorted(before.items()):
            with suppress(OSError):
                yield from _undo(top, parts, data)

    def _new_repositories(self, top: Folder, survey: repositories.Survey) -> Iterator[str]:
        """Keep repositories that a command created, but rename everything in them that git would run."""
        for new in survey.repositories:
            # Repositories that existed before were read-only.
            if self._is_new(top, new):
                with suppress(OSError), _walked(top, new.parts) as folder:
                    yield from self._check_new(top, folder, new)

    def _is_new(self, top: Folder, found: repositories.Repository) -> bool:
        """Whether a repository exists now and did not exist before."""
        with suppress(OSError), _walked(top, found.parts) as folder:
            return _id(folder.stat(".git")) not in self._known
        return False

    def _check_new(self, top: Folder, folder: Folder, new: repositories.Repository) -> Iterator[str]:
        mode = folder.stat(".git").st_mode
        if stat.S_ISDIR(mode):
            with _held(folder.folder(".git")) as git:
                for name in repositories.would_run(git):
                    yield from _aside(git, (*new.git, name))
            return
        text = repositories.read_text(folder, ".git") if stat.S_ISREG(mode) else None
        target = None if text is None else repositories.leads_to(text)
        if target is None:
            yield from _aside(folder, new.git)
            return
        place = Path(os.path.normpath(self.top.joinpath(*new.parts, target)))
        if not place.is_relative_to(self.top) or any(
            place == kept or kept in place.parents for kept in self._read
        ):
            return
        parts = place.relative_to(self.top).parts
        files = os.path.relpath(self.top.joinpath(*new.parts), place)
        try:
            with _walked(top, parts) as git:
                for name in repositories.would_run(git, files):
                    yield from _aside(git, (*parts, name))
        except OSError:
            # For example a symlink in the path: its target is unknown.
            yield from _aside(folder, new.git)


_warned: set[Path] = set()


def _warn_once(top: Path) -> None:
    if top not in _warned:
        _warned.add(top)
        log.warning(
            "%s is too large to search fully: sandboxes may not protect every git repository, settings file and journal",
            top,
        )


def _named(top: Path, folder: Path) -> Iterator[Path]:
    """Paths in the workspace that git settings of a repository or of the user refer to."""
    git = folder / ".git"
    home = next(iter(homes()), None)
    places = [*repositories.named_places(folder, git, _settings(git, "config"), home)]
    if home is not None:
        texts = [*_settings(home, ".gitconfig"), *_settings(home / ".config/git", "config")]
        places += repositories.named_places(folder, home, texts, home)
    for place in places:
        if place != top and place.is_relative_to(top) and place != folder:
            yield place


def _settings(folder: Path, name: str) -> list[str]:
    with suppress(OSError), _held(open_folder(folder)) as held:
        text = repositories.read_text(held, name)
        return [] if text is None else [text]
    return []


# --- The same for the file tools -----------------------------------------------------------------


def check_place(sandbox: Sandbox, workspace: Path, parts: tuple[str, ...]) -> None:
    """Raise Refused for a path that the file tools may not write. Symlinks must be resolved before.

    Journals are never written, with or without a sandbox: they hold approvals, which only people give.
    """
    shown = show("/".join(parts))
    if is_journal(database_of(workspace.joinpath(*parts))):
        raise Refused(f"Not written: {shown} belongs to one of remit's journals.")
    if repositories.is_inside(workspace, parts):
        raise Refused(f"Not written: {shown} is in a git folder. Use git commands to change a repository.")
    if sandbox.files != "workspace-write":
        return
    check_workspace(sandbox, workspace)
    # For remit's own settings, a person is asked instead.
    if not by_name(workspace.joinpath(*parts)) and _obeyed(workspace, parts):
        raise Refused(f"Not written: programs outside the sandbox use {shown} (sandbox: {sandbox}).")


def _obeyed(workspace: Path, parts: tuple[str, ...]) -> bool:
    path = workspace.joinpath(*parts)
    own = Path(sys.prefix).resolve()
    if sys.prefix != sys.base_prefix and own.is_relative_to(workspace) and path.is_relative_to(own):
        return True
    for number, name in enumerate(parts):
        folder = workspace.joinpath(*parts[:number])
        begins = os.path.lexists(folder / ".git")
        if name.lower() in _names and (begins or not number):
            return True
        if begins and any(path.is_relative_to(place) for place in _named(workspace, folder)):
            return True
    return False


def changes_settings(workspace: Path, parts: Parts, old: bytes | None, new: bytes) -> bool:
    """Whether new content would change remit's settings. Symlinks must be resolved before. May search the workspace."""
    path = workspace.joinpath(*parts)
    if by_name(path):
        return True
    return SettingsFiles(workspace, repositories.find_all(workspace).settings).is_change(path, old, new)


# --- Open folders ---------------------------------------------------------------------------------


@contextmanager
def _held(folder: Folder) -> Generator[Folder]:
    try:
        yield folder
    finally:
        folder.close()


@contextmanager
def _walked(top: Folder, parts: Iterable[str]) -> Generator[Folder]:
    """Open a folder below another. Raises OSError for a symlink in the path."""
    folder = top.folder(".")
    try:
        for part in parts:
            inner = folder.folder(part)
            folder.close()
            folder = inner
        yield folder
    finally:
        folder.close()


def _undo(top: Folder, parts: Parts, before: bytes | None) -> Iterator[str]:
    """Rename the file at a path, or the first symlink in the path, and restore the old content."""
    folder = top.folder(".")
    try:
        for number, part in enumerate(parts, 1):
            mode = folder.stat(part).st_mode
            if stat.S_ISLNK(mode) or number == len(parts):
                yield from _aside(folder, parts[:number])
                break
            inner = folder.folder(part)
            folder.close()
            folder = inner
        else:
            return
        if before is not None:
            fd = folder.open(parts[number - 1], CREATE, stat.S_IMODE(mode) & 0o777)
            with os.fdopen(fd, "wb") as file:
                file.write(before)
    finally:
        folder.close()


def _aside(folder: Folder, parts: tuple[str, ...]) -> Iterator[str]:
    """Rename an entry of a folder; yields its path, or nothing if that fails."""
    number = 1
    while True:
        free = f"{parts[-1]}.from-sandbox{number}"
        try:
            folder.stat(free)
        except FileNotFoundError:
            break
        number += 1
    try:
        try:
            folder.replace(parts[-1], free)
        except PermissionError:
            if not isinstance(folder, FdFolder):
                raise
            # The command may have removed our permission to rename.
            os.fchmod(folder.fd, stat.S_IMODE(os.fstat(folder.fd).st_mode) | 0o700)
            folder.replace(parts[-1], free)
        yield "/".join(parts)
    except OSError as error:
        log.warning("a file from a sandboxed command could not be renamed: %s: %s", "/".join(parts), error)


def _id(info: os.stat_result) -> tuple[int, int]:
    return info.st_dev, info.st_ino


def _identity(info: os.stat_result | None) -> tuple[int, ...] | None:
    """A key that identifies a file; the inode number alone may be reused."""
    return None if info is None else (info.st_dev, info.st_ino, info.st_mode, info.st_ctime_ns)


def _look(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None
