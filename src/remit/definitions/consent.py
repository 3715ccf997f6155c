"""Which projects the user trusts: a list of folders, one to a line, beside the user's configuration.

A trusted folder covers those below it. Files of other projects may narrow what an agent does, and nothing else.
"""

from __future__ import annotations

import os
import tempfile
import unicodedata
from collections.abc import Mapping
from pathlib import Path

from remit.definitions.nodes import Wrong
from remit.definitions.places import repository
from remit.definitions.text_files import read_text
from remit.errors import UsageError
from remit.tools.settings_files import config_folder

_ABOUT = (
    "# Folders whose remit.toml, agent files and MCP servers remit may follow without asking. One to a line."
)


def list_path(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> Path:
    """The file with the list."""
    return config_folder(home or Path.home(), environ) / "remit" / "trusted-folders"


def trusted_folders(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> list[Path]:
    """What the user trusts. Raises UsageError for a list that cannot be read."""
    own = home or Path.home()
    folders = (_folder(line, own) for line in _lines(list_path(home, environ)))
    return [folder for folder in folders if folder is not None]


def is_trusted(folder: Path, home: Path | None = None, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether a folder, or one above it, is on the list."""
    real = folder.resolve()
    # As it stands there: followed, it would lead to wherever somebody has put a link since.
    return any(real.is_relative_to(known) for known in trusted_folders(home, environ))


def trust(
    workspace: str | Path, *, home: Path | None = None, environ: Mapping[str, str] = os.environ
) -> Path:
    """Put the project that a folder belongs to on the list; returns what was put there. Raises UsageError."""
    own = (home or Path.home()).resolve()
    project = repository(Path(workspace).resolve(), own)
    if not _can_be_listed(str(project)):
        raise UsageError(
            f"The folder {str(project)!r} cannot be on the list of trusted folders: its name has characters that"
            " do not fit on a line, or blanks at its end. Rename it."
        )
    if project == Path(project.anchor) or own.is_relative_to(project):
        raise UsageError(f"{project} is no project: trusting it would be to trust everything below it.")
    if project not in trusted_folders(home, environ):
        path = list_path(home, environ)
        _write([*(_lines(path) or [_ABOUT]), str(project)], path)
    return project


def distrust(
    workspace: str | Path, *, home: Path | None = None, environ: Mapping[str, str] = os.environ
) -> bool:
    """Take the project off the list; says whether it was on it. Raises UsageError."""
    own = (home or Path.home()).resolve()
    # The name as given too: what is on the list may have become a link.
    gone = (repository(Path(workspace).resolve(), own), Path(os.path.abspath(workspace)))  # noqa: PTH100 - links stay
    path = list_path(home, environ)
    lines = _lines(path)
    left = [line for line in lines if _folder(line, own) not in gone]
    if len(left) == len(lines):
        return False
    _write(left, path)
    return True


def _lines(path: Path) -> list[str]:
    """Lines end where `_write` ends them and nowhere else: names may have the other characters that end lines."""
    if not path.exists():
        return []
    try:
        text = read_text(path, None).text
    except Wrong as wrong:
        raise UsageError(f"{path}: the list of trusted folders {wrong.text}.") from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def _folder(line: str, home: Path) -> Path | None:
    """What a line trusts: one folder that it names from the root, or from the user's home, exactly; else nothing."""
    if line.startswith("~/"):
        return home.resolve() / line[2:]
    # A relative one would mean another folder from every place; U+FFFD stands for what could not be read.
    return Path(line) if Path(line).is_absolute() and "\ufffd" not in line else None


def _can_be_listed(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return (
        text == text.strip()
        and text.splitlines() == [text]
        and "\ufffd" not in text
        and not any(unicodedata.category(char) == "Cc" for char in text)
    )


def _write(lines: list[str], path: Path) -> None:
    text = "".join(f"{line}\n" for line in lines)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # In one step: half a list would trust the wrong folders.
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".trusted-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise UsageError(f"{path}: the list of trusted folders cannot be written: {why}.") from None
