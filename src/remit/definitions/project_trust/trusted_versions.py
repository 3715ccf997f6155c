"""Which versions of which projects the user trusts: one file per project, in the user's configuration folder.

A version is the set of facts in a project's files (`trusted_content.py`). Trust covers one project, not repositories
below it. Other projects and other versions may only narrow what an agent may do.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from remit.definitions.agent_files.search_paths import repository
from remit.errors import UsageError
from remit.tools.settings_files import config_folder

MOST_VERSIONS = 20
"""Trusted versions kept for one project, newest first: one for each branch in use."""


class Record(Struct):
    """The trusted versions of one project."""

    project: str
    versions: list[tuple[str, ...]]
    """The lines of each version."""


def folder_of(home: Path, environ: Mapping[str, str] | None = None) -> Path:
    """The folder that holds the records."""
    environ = os.environ if environ is None else environ
    return config_folder(home, environ) / "remit" / "trusted"


def trusted_versions(project: Path, home: Path, environ: Mapping[str, str]) -> list[tuple[str, ...]]:
    """The lines of every trusted version of a project. Raises UsageError for an unreadable record."""
    record = _read(_path(project, home, environ))
    return record.versions if record is not None and record.project == _text(project) else []


def trusted_folders(home: Path | None = None, environ: Mapping[str, str] | None = None) -> list[Path]:
    """The projects with a trusted version. Raises UsageError for an unreadable record."""
    environ = os.environ if environ is None else environ
    try:
        files = sorted(folder_of((home or Path.home()).resolve(), environ).glob("*.json"))
    except OSError:
        return []
    records = (_read(path) for path in files)
    return sorted(Path(record.project) for record in records if record is not None)


def add_version(project: Path, lines: Iterable[str], home: Path, environ: Mapping[str, str]) -> None:
    """Trust a version of a project. Raises UsageError."""
    if project == Path(project.anchor) or home.is_relative_to(project):
        raise UsageError(f"{project} is not a project: it contains your home folder, or everything.")
    new, versions = tuple(lines), trusted_versions(project, home, environ)
    others = [known for known in versions if known != new]
    record = Record(_text(project), [new, *others][:MOST_VERSIONS])
    _write(record, _path(project, home, environ))


def distrust(
    workspace: str | Path, *, home: Path | None = None, environ: Mapping[str, str] | None = None
) -> bool:
    """Delete every trusted version of the project that a folder belongs to; returns whether there was one. Raises
    UsageError.
    """
    environ = os.environ if environ is None else environ
    own = (home or Path.home()).resolve()
    # The path as given too: a trusted folder may have become a symlink.
    gone = (repository(Path(workspace).resolve(), own), Path(os.path.abspath(workspace)))  # noqa: PTH100 - links stay
    paths = [path for path in (_path(project, own, environ) for project in gone) if path.exists()]
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise _trouble(path, "deleted", error) from None
    return bool(paths)


def nearest(versions: Iterable[tuple[str, ...]], lines: Iterable[str]) -> tuple[str, ...]:
    """The version that differs in the fewest lines."""
    now = set(lines)
    return min(versions, key=lambda version: len(now.symmetric_difference(version)))


def _text(project: Path) -> str:
    """A path as text, even if it is not UTF-8."""
    return os.fsencode(project).decode("utf-8", "backslashreplace")


def _path(project: Path, home: Path, environ: Mapping[str, str]) -> Path:
    name = hashlib.sha256(os.fsencode(project)).hexdigest()[:32]
    return folder_of(home, environ) / f"{name}.json"


def _read(path: Path) -> Record | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Record)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _trouble(path, "read", error) from None
    except msgspec.MsgspecError:
        raise UsageError(
            f"{path}: this trust record is damaged. Delete it, and run `remit trust` again."
        ) from None


def _write(record: Record, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written in one step, so that a crash does not leave a damaged record.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(record)))
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _trouble(path, "written", error) from None


def _trouble(path: Path, what: str, error: OSError) -> UsageError:
    why = (error.strerror or type(error).__name__).lower()
    return UsageError(f"{path}: this trust record cannot be {what}: {why}.")
