"""Find git repositories, settings and journals in a workspace, the paths that git settings refer to, and what git would run.

None of this calls git, which would follow the settings in question.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from remit.history.journal_files import is_journal
from remit.tools.builtin.folders import READ, Folder
from remit.tools.builtin.workspace import read_bytes
from remit.tools.settings_files import NAMES, Parts

MOST_ENTRIES = 100_000
"""The most names visited in a search for repositories; shallow folders come first."""
MOST_SETTINGS = 200_000
"""The most bytes read of a git config."""
MOST_HOOKS = 200

_LATE = frozenset(
    {"node_modules", ".venv", "venv", "target", "build", "dist", "__pycache__", ".cache", ".tox"}
)
"""Large folders that seldom contain a repository; searched last."""


class Repository(NamedTuple):
    """The top folder of a repository."""

    parts: tuple[str, ...]
    """Relative to the workspace; empty for the workspace itself."""
    mode: int
    """The mode of its `.git`: a folder, a file with the path of the folder, or a symlink."""
    id: tuple[int, int]
    """Device and inode of its `.git`."""

    @property
    def git(self) -> tuple[str, ...]:
        return (*self.parts, ".git")


class Survey(NamedTuple):
    """The result of a search in a workspace."""

    repositories: list[Repository]
    settings: list[tuple[Parts, str]]
    """Folders, and names in them that may be remit's settings."""
    journals: list[Path]
    whole: bool
    """Whether the whole workspace was searched."""


class _Listing(NamedTuple):
    """The relevant entries of a folder, and a fingerprint that changes when an entry is created or renamed."""

    sign: tuple[int, ...]
    entries: int
    folders: tuple[str, ...]
    begins: bool
    """Whether the folder is the top of a repository."""
    settings: tuple[str, ...]
    journals: tuple[str, ...]
    """Files that are journals. Opening a journal creates files beside it, which changes the fingerprint."""


_SETTLED_NS = 1_000_000_000
"""A listing is cached if its last change is older than this: a newer change could have the same timestamp."""
_MOST_REMEMBERED = 4
_remembered: dict[Path, dict[str, _Listing]] = {}
"""A cache for the workspaces used last: every command is preceded and followed by a search."""


def find_all(top: Path, most: int = MOST_ENTRIES, *, insist: bool = False) -> Survey:
    """Find repositories, settings and journals in a folder and below it, except in git folders.

    A path may change after the search: callers must check again before use. `insist` makes folders readable that their
    owner cannot list.
    """
    found, settings, journals = list[Repository](), list[tuple[Parts, str]](), list[Path]()
    known = _remembered.pop(top, {})
    _remembered[top] = known
    for old in list(_remembered)[:-_MOST_REMEMBERED]:
        _remembered.pop(old, None)
    early, late = deque[tuple[str, tuple[str, ...]]](), deque[tuple[str, tuple[str, ...]]]()
    early.append((str(top), ()))
    while (early or late) and most > 0:
        path, parts = (early or late).popleft()
        listing = _list(path, known, insist=insist)
        if listing is None:
            continue
        most -= listing.entries
        if listing.begins:
            found += _found(path, parts)
        settings += ((parts, name) for name in listing.settings)
        journals += (Path(path, name) for name in listing.journals)
        for name in listing.folders:
            (late if name in _LATE else early).append((f"{path}/{name}", (*parts, name)))
    return Survey(found, settings, journals, most > 0)


def _list(path: str, known: dict[str, _Listing], *, insist: bool) -> _Listing | None:
    try:
        info = os.lstat(path)
        before = known.get(path)
        sign = (info.st_dev, info.st_ino, info.st_mode, info.st_ctime_ns)
        if before is not None and before.sign == sign:
            return before
        if not stat.S_ISDIR(info.st_mode):
            return None
        with os.scandir(path) as found:
            entries = list(found)
        folders = tuple(e.name for e in entries if e.name != ".git" and e.is_dir(follow_symlinks=False))
        names = [entry.name for entry in entries]
        settings = tuple(name for name in names if name.casefold() in NAMES)
        listing = _Listing(sign, len(entries), folders, ".git" in names, settings, tuple(_journals(entries)))
    except PermissionError:
        return _list_by_force(path, known) if insist else None
    except OSError:
        return None
    if time.time_ns() - info.st_ctime_ns > _SETTLED_NS:
        known[path] = listing
    return listing


def _journals(entries: Iterable[os.DirEntry[str]]) -> Iterator[str]:
    for entry in entries:
        # A database consists of pages of at least 512 bytes, so most files need not be opened.
        if entry.is_file(follow_symlinks=False):
            size = entry.stat(follow_symlinks=False).st_size
            if size and not size % 512 and is_journal(entry.path):
                yield entry.name


def _list_by_force(path: str, known: dict[str, _Listing]) -> _Listing | None:
    """List a folder after making it readable: git would find an entry by name, without listing the folder."""
    with suppress(OSError):
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            Path(path).chmod(stat.S_IMODE(mode) | 0o700)
            return _list(path, known, insist=False)
    return None


def _found(path: str, parts: tuple[str, ...]) -> Iterator[Repository]:
    with suppress(OSError):
        info = os.lstat(f"{path}/.git")
        yield Repository(parts, info.st_mode, (info.st_dev, info.st_ino))


# --- git's own files -------------------------------------------------------------------------------

_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that the file system of macOS ignores in names."""


def is_inside(workspace: Path, parts: Sequence[str]) -> bool:
    """Whether a file is in a git folder, or would turn its folder into one. Symlinks must be resolved before.

    Checked by name, in every spelling of a file system, and by the entries that make a folder a git folder: a bare
    repository, and the folder that a `.git` file refers to, can have any name.
    """
    if any(map(is_git_name, (*workspace.parts, *parts))):
        return True
    return any(_is_git_folder(workspace.joinpath(*parts[:at]), name) for at, name in enumerate(parts))


def is_git_name(name: str) -> bool:
    """Whether any file system treats a name as `.git`."""
    short = _IGNORED.sub("", name).casefold().partition(":")[0].rstrip(" .")
    return short in (".git", "git~1")


def _is_git_folder(folder: Path, new: str) -> bool:
    """Whether git would treat a folder as a git folder if it had one more entry."""

    def has(name: str) -> bool:
        return new.casefold() == name.casefold() or os.path.lexists(folder / name)

    return has("HEAD") and (has("commondir") or (has("objects") and has("refs")))


# --- Settings ------------------------------------------------------------------------------------

_SECTION = re.compile(r'\[\s*([A-Za-z0-9.-]+)(?:\s+"([^"\\]*)")?\s*\]')
_SETTING = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*=\s*([^\x00-\x08\x0a-\x1f]*)")

_HARMLESS = {
    "core": {
        "repositoryformatversion",
        "filemode",
        "bare",
        "logallrefupdates",
        "ignorecase",
        "precomposeunicode",
    }
    | {"symlinks", "autocrlf", "eol", "safecrlf", "abbrev", "quotepath", "compression", "bigfilethreshold"},
    "extensions": {"objectformat", "refstorage", "partialclone"},
    "user": {"name", "email", "useconfigonly"},
    "remote": {
        "url",
        "pushurl",
        "fetch",
        "push",
        "tagopt",
        "prune",
        "promisor",
        "partialclonefilter",
        "mirror",
    },
    "branch": {"remote", "merge", "rebase", "description", "pushremote"},
    "submodule": {"url", "active", "branch", "path", "ignore", "shallow"},
    "init": {"defaultbranch"},
    "pull": {"rebase", "ff"},
    "push": {"default", "autosetupremote", "followtags"},
    "fetch": {"prune", "prunetags"},
    "merge": {"ff", "conflictstyle"},
    "rebase": {"autostash", "autosquash"},
    "commit": {"gpgsign"},
    "tag": {"gpgsign"},
    "color": {"ui"},
    "advice": {"detachedhead"},
    "gc": {"auto"},
}
"""Settings of git that run no program and refer to no path."""


def read_settings(text: str) -> Iterator[tuple[str, str, str]]:
    """The section, key and value of each line; the section is empty for a line that cannot be parsed."""
    section = ""
    for line in text.removesuffix("\n").split("\n"):
        words = line.strip(" \t")
        if not words or words[0] in "#;":
            continue
        if header := _SECTION.fullmatch(words):
            section = header[1].lower()
        elif (setting := _SETTING.fullmatch(words)) and section:
            yield section, setting[1].lower(), setting[2].strip()
        else:
            yield "", "", words


def is_harmless(text: str, files: str = "") -> bool:
    """Whether no setting can make git run a program or read other settings. A line that cannot be parsed is not harmless.

    `files` is the path from the git folder to the repository's files, which `core.worktree` may contain.
    """
    for section, key, value in read_settings(text):
        if files and (section, key, value) == ("core", "worktree", files):
            continue
        if value[-1:] == "\\" or not _is_harmless(section, key, value):
            return False
    return True


def runs_nothing(name: str, value: str) -> bool:
    """The same for one setting by its full name, such as `user.email` or `remote.origin.url`."""
    section, _, rest = name.lower().partition(".")
    return _is_harmless(section, rest.rpartition(".")[2], value)


def _is_harmless(section: str, key: str, value: str) -> bool:
    return key in _HARMLESS.get(section, ()) and "::" not in value and value[:1] != "-"


def named_places(folder: Path, git: Path, texts: Iterable[str], home: Path | None) -> Iterator[Path]:
    """The paths where git settings make git look for more settings and for hooks."""
    for text in texts:
        for section, key, value in read_settings(text):
            given = value.strip('"')
            if given.startswith("~/") and home is not None:
                given = str(home / given[2:])
            if section.startswith("include") and key == "path":
                yield Path(os.path.normpath(git / given))
            elif (section, key) == ("core", "hookspath"):
                hooks = Path(os.path.normpath(folder / given))
                # husky's hooks in `_` run the hooks in its parent folder.
                yield hooks.parent if hooks.name == "_" else hooks


def read_text(folder: Folder, name: str) -> str | None:
    """Read a small file of an open folder; None if it does not exist. Never blocks."""
    try:
        fd = folder.open(name, READ)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        return read_bytes(fd, MOST_SETTINGS)[: MOST_SETTINGS + 1].decode("utf-8", "surrogateescape")
    except OSError:
        return None
    finally:
        os.close(fd)


# --- New repositories ----------------------------------------------------------------------------


def would_run(git: Folder, files: str = "") -> Iterator[str]:
    """The entries of a git folder that make git run a program or read other folders; `files` as in `is_harmless`."""
    for name in ("commondir", "config.worktree"):
        if _kind(git, name) is not None:
            yield name
    if (mode := _kind(git, "config")) is not None:
        text = read_text(git, "config") if stat.S_ISREG(mode) else None
        if text is None or len(text) > MOST_SETTINGS or not is_harmless(text, files):
            yield "config"
    if (mode := _kind(git, "hooks")) is not None and not (stat.S_ISDIR(mode) and _only_samples(git)):
        yield "hooks"


def _kind(folder: Folder, name: str) -> int | None:
    try:
        return folder.stat(name).st_mode
    except OSError:
        return None


def _only_samples(git: Folder) -> bool:
    try:
        hooks = git.folder("hooks")
    except OSError:
        return False
    try:
        names = [entry.name for entry in hooks.entries()]
        return len(names) <= MOST_HOOKS and all(name.endswith(".sample") for name in names)
    except OSError:
        return False
    finally:
        hooks.close()


def leads_to(text: str) -> str | None:
    """The path in a `.git` file; None if the file has none."""
    found = re.fullmatch(r"gitdir: ([^\x00\n]+)\n?", text)
    return found[1] if found else None
