"""Git repositories, settings and journals in a workspace: where they are, which places git's settings name, what would run.

Nothing here asks git, which would obey the very settings in question.
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
"""Names that are looked at in search of repositories; shallow ones first."""
MOST_SETTINGS = 200_000
"""Bytes of a git config that are read."""
MOST_HOOKS = 200

_LATE = frozenset(
    {"node_modules", ".venv", "venv", "target", "build", "dist", "__pycache__", ".cache", ".tox"}
)
"""Large folders that seldom hold a repository are looked into last."""


class Repository(NamedTuple):
    """A folder in which a repository begins."""

    parts: tuple[str, ...]
    """From the workspace; empty for the workspace itself."""
    mode: int
    """Of its `.git`: a folder, a file that says where it is, or a link."""
    id: tuple[int, int]
    """Which one it is on this machine."""

    @property
    def git(self) -> tuple[str, ...]:
        return (*self.parts, ".git")


class Survey(NamedTuple):
    """What was found in a workspace."""

    repositories: list[Repository]
    settings: list[tuple[Parts, str]]
    """Folders, and names in them behind which there may be settings of remit."""
    journals: list[Path]
    whole: bool
    """Whether all of it was looked at."""


class _Listing(NamedTuple):
    """What is of interest in a folder, and the sign that nothing in it was made or renamed since."""

    sign: tuple[int, ...]
    entries: int
    folders: tuple[str, ...]
    begins: bool
    """Whether a repository begins in it."""
    settings: tuple[str, ...]
    journals: tuple[str, ...]
    """Files that are journals. Whoever opens one makes files beside it, which changes the sign."""


_SETTLED_NS = 1_000_000_000
"""The age of a last change from which on another would be seen by the clock of the disk."""
_MOST_REMEMBERED = 4
_remembered: dict[Path, dict[str, _Listing]] = {}
"""Of the workspaces used last, so that a look before and after every command costs little."""


def find_all(top: Path, most: int = MOST_ENTRIES, *, insist: bool = False) -> Survey:
    """Repositories, settings and journals in a folder and below it, except in git folders.

    What is found by path may have become something else meanwhile: whoever uses it has to look again. Who insists has
    folders that their owner cannot list made listable.
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
        # The pages of a database are at least 512 bytes: most files need not be opened.
        if entry.is_file(follow_symlinks=False):
            size = entry.stat(follow_symlinks=False).st_size
            if size and not size % 512 and is_journal(entry.path):
                yield entry.name


def _list_by_force(path: str, known: dict[str, _Listing]) -> _Listing | None:
    """git needs no list: it would find by name what was hidden from us."""
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


# --- Whether a file is git's own -------------------------------------------------------------------

_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")
"""Characters that a Mac's file system leaves out of names."""


def is_inside(workspace: Path, parts: Sequence[str]) -> bool:
    """Whether a file is in a git folder, or would make the folder that it is in one. Links must be resolved before.

    By name, however a file system may spell it, and by what makes git take a folder for a git folder: a bare
    repository, and the one that a `.git` file leads to, can have any name.
    """
    if any(map(is_git_name, (*workspace.parts, *parts))):
        return True
    return any(_is_git_folder(workspace.joinpath(*parts[:at]), name) for at, name in enumerate(parts))


def is_git_name(name: str) -> bool:
    """Whether some file system takes a name for `.git`."""
    short = _IGNORED.sub("", name).casefold().partition(":")[0].rstrip(" .")
    return short in (".git", "git~1")


def _is_git_folder(folder: Path, new: str) -> bool:
    """Whether git would take a folder for a git folder, with one more name in it."""

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
"""Settings of git that run nothing and lead nowhere."""


def read_settings(text: str) -> Iterator[tuple[str, str, str]]:
    """The section, key and value of each line; a line that is not plainly one of these has an empty section."""
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
    """Whether no setting could have git run or obey something else; what is not understood could.

    `files` is where the repository's files are, from the git folder, should its settings have to say so.
    """
    for section, key, value in read_settings(text):
        if files and (section, key, value) == ("core", "worktree", files):
            continue
        if value[-1:] == "\\" or not _is_harmless(section, key, value):
            return False
    return True


def runs_nothing(name: str, value: str) -> bool:
    """The same for one setting by its whole name, such as `user.email` or `remote.origin.url`."""
    section, _, rest = name.lower().partition(".")
    return _is_harmless(section, rest.rpartition(".")[2], value)


def _is_harmless(section: str, key: str, value: str) -> bool:
    return key in _HARMLESS.get(section, ()) and "::" not in value and value[:1] != "-"


def named_places(folder: Path, git: Path, texts: Iterable[str], home: Path | None) -> Iterator[Path]:
    """Where the settings of a repository have git look for more settings, and for hooks."""
    for text in texts:
        for section, key, value in read_settings(text):
            given = value.strip('"')
            if given.startswith("~/") and home is not None:
                given = str(home / given[2:])
            if section.startswith("include") and key == "path":
                yield Path(os.path.normpath(git / given))
            elif (section, key) == ("core", "hookspath"):
                hooks = Path(os.path.normpath(folder / given))
                # husky's own hooks run those beside them.
                yield hooks.parent if hooks.name == "_" else hooks


def read_text(folder: Folder, name: str) -> str | None:
    """A small file of a folder that is held; None where there is none. Never waits."""
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


# --- Repositories that nobody knows yet ----------------------------------------------------------


def would_run(git: Folder, files: str = "") -> Iterator[str]:
    """The names in a git folder by which git would run something or look elsewhere; `files` as above."""
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
    """Where a `.git` file says that the repository is; None for one that says nothing of the kind."""
    found = re.fullmatch(r"gitdir: ([^\x00\n]+)\n?", text)
    return found[1] if found else None
