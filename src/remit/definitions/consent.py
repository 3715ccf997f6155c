"""Which projects the user trusts: a list of folders, one to a line, beside the user's configuration.

A trusted folder covers those below it. Files of other projects may narrow what an agent does, and nothing else.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from remit.definitions.nodes import Wrong
from remit.definitions.places import config_folder, repository
from remit.definitions.text_files import read_text
from remit.errors import UsageError

_ABOUT = "# Folders whose remit.toml, agent files and MCP servers remit may follow without asking. One to a line.\n"


def list_path(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The file with the list."""
    return config_folder(home or Path.home(), environ) / "remit" / "trusted-folders"


def trusted_folders(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """What the user trusts. Raises UsageError for a list that cannot be read."""
    path = list_path(home, environ)
    if not path.exists():
        return []
    try:
        text = read_text(path, None).text
    except Wrong as wrong:
        raise UsageError(f"{path}: the list of trusted folders {wrong.text}.") from None
    lines = (line.strip() for line in text.splitlines())
    folders = (Path(line).expanduser() for line in lines if line and not line.startswith("#"))
    # A relative one would mean another folder from every place.
    return [folder for folder in folders if folder.is_absolute()]


def is_trusted(folder: Path, home: Path | None = None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a folder, or one above it, is on the list."""
    real = folder.resolve()
    return any(real.is_relative_to(known.resolve()) for known in trusted_folders(home, environ))


def trust(
    workspace: str | Path, *, home: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Path:
    """Put the project that a folder belongs to on the list; returns what was put there."""
    own = home or Path.home()
    project = repository(Path(workspace).resolve(), own)
    if "\n" in str(project):
        raise UsageError(
            f"The folder {str(project)!r} has a line break in its name and cannot be on the list."
        )
    if project in (own.resolve(), Path(project.anchor)):
        raise UsageError(f"{project} is no project: trusting it would be to trust everything below it.")
    folders = trusted_folders(home, environ)
    if project not in folders:
        _write([*folders, project], list_path(home, environ))
    return project


def distrust(
    workspace: str | Path, *, home: Path | None = None, environ: Mapping[str, str] = os.environ
) -> bool:
    """Take the project off the list; says whether it was on it."""
    project = repository(Path(workspace).resolve(), home or Path.home())
    folders = trusted_folders(home, environ)
    left = [folder for folder in folders if folder.resolve() != project]
    if len(left) == len(folders):
        return False
    _write(left, list_path(home, environ))
    return True


def _write(folders: list[Path], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # In one step: half a list would trust the wrong folders.
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".trusted-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(_ABOUT + "".join(f"{folder}\n" for folder in folders))
    Path(name).replace(path)
