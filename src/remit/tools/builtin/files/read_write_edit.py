"""The tools `read`, `write` and `edit`, for single files of the workspace."""

from __future__ import annotations

import difflib
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import remit.tools.builtin.files.diffs as diffs
import remit.tools.builtin.files.file_contents as file_contents
import remit.tools.builtin.files.files_read as files_read
import remit.tools.builtin.sandbox.protected_files as protected_files
from remit.tools.builtin.folders import CREATE
from remit.tools.builtin.workspace import ResolvedPath, Workspace
from remit.tools.result import ToolResult
from remit.tools.tool import ToolContext, tool
from remit.tools.words import Refused, count, counted, errors_as_results, show, size, trouble
from remit.types.messages import ImagePart
from remit.types.text import clean, count_lines, shorten

MOST_LINES = 2000
"""The most lines of one `read`, and the default."""
MOST_LINE_CHARS = 2000
MOST_CHARS = 100_000
"""The most characters that one `read` returns."""
MOST_IMAGE = 5_000_000
MOST_WRITTEN = 5_000_000
_WORD = re.compile(r"\w+")


# --- read ----------------------------------------------------------------------------------------


@tool(tier="observe", paths=("path",), summarise=lambda result: counted(result, "lines", "line"))
@errors_as_results
def read(path: str, ctx: ToolContext, *, offset: int = 1, limit: int = MOST_LINES) -> ToolResult:
    """Read a text file or an image in the workspace. Line numbers are added to the output; they are not in the file.

    Args:
        path: The file, relative to the workspace.
        offset: The first line to read, counted from 1.
        limit: How many lines to read, at most 2000.
    """
    with Workspace(ctx.workspace) as workspace:
        place = workspace.find(path)
        data = file_contents.load(place)
        media = file_contents.image_type(data)
        if not media:
            _only_text(place, data)
        files_read.saw(ctx, workspace.real, place.parts, data)
    if media:
        return _image(place, data, media)
    if not data:
        return ToolResult(f"{place.shown} is empty.", details={"lines": 0})
    text, whole = file_contents.decode(data)
    return _numbered(place, text, max(offset, 1), min(max(limit, 1), MOST_LINES), whole=whole)


def _only_text(place: ResolvedPath, data: bytes) -> None:
    if what := file_contents.binary_kind(data):
        raise Refused(f"{place.shown} is {what} ({size(len(data))}), not text. This tool cannot read it.")


def _image(place: ResolvedPath, data: bytes, media: str) -> ToolResult:
    if len(data) > MOST_IMAGE:
        raise Refused(
            f"The image {place.shown} is too large: {size(len(data))}, and the limit is {size(MOST_IMAGE)}."
        )
    return ToolResult(
        f"{place.shown}: an image ({media}, {size(len(data))}).", parts=(ImagePart(media, data),)
    )


def _numbered(place: ResolvedPath, text: str, first: int, limit: int, *, whole: bool) -> ToolResult:
    lines = diffs.split_lines(text)
    if first > len(lines):
        raise Refused(
            f"{place.shown} has only {count(len(lines), 'line')}; offset {first:,} is past the end."
        )
    out: list[str] = []
    chars = 0
    for number in range(first, min(first + limit, len(lines) + 1)):
        line = lines[number - 1]
        if len(line) > MOST_LINE_CHARS:
            line = f"{line[:MOST_LINE_CHARS]}... (line truncated: it has {len(line):,} characters)"
        chars += len(line) + 8
        if chars > MOST_CHARS and out:
            break
        out.append(f"{number:6}\t{line}")
    last = first + len(out) - 1
    notes: list[str] = []
    if first > 1 or last < len(lines):
        more = f" Continue with offset={last + 1}." if last < len(lines) else ""
        notes.append(f"(Lines {first} to {last} of {len(lines)}.{more})")
    if not whole:
        notes.append("(The file is not valid UTF-8: invalid bytes are shown as �.)")
    return ToolResult("\n".join([*out, *notes]), details={"lines": len(out), "of": len(lines)})


# --- previews -----------------------------------------------------------------------------------


def _visible(preview: Callable[..., str]) -> Callable[..., str]:
    """A preview with invisible characters escaped, or the reason why the call will be refused."""

    def wrapped(**asked: object) -> str:
        try:
            text = preview(**asked)
        except Refused as refusal:
            text = f"This call will be refused. {refusal}"
        except OSError as error:
            text = f"This call will be refused. {trouble(error, str(asked.get('path', '')))}"
        # Tabs are kept: they are visible, and common in code.
        return "\n".join("\t".join(map(show, line.split("\t"))) for line in text.split("\n"))

    return wrapped


# --- write ---------------------------------------------------------------------------------------


@_visible
def _preview_write(path: str, content: str, ctx: ToolContext, *, make_folders: bool = False) -> str:
    text, data = _writable(content, ctx)
    with Workspace(ctx.workspace) as workspace:
        place = _expect(workspace, path) if make_folders else workspace.find(path)
        _check_place(workspace, place, ctx)
        if isinstance(place, ResolvedPath) and place.is_folder:
            raise Refused(f"{place.shown} is a folder.")
        if isinstance(place, _Unmade) or place.info is None:
            shown = show(path) if isinstance(place, _Unmade) else place.shown
            return f"Create {shown}: {_size(text, data)}.{diffs.added(diffs.split_lines(text))}"
        old = _current(workspace, place, ctx)
    # If the two cannot be compared, show the new content.
    plain = bool(file_contents.binary_kind(old)) or diffs.costly(file_contents.decode(old)[0], text)
    change = diffs.added(diffs.split_lines(text)) if plain else _replaced_by(place, old, text)
    return f"Replace {place.shown}: {_size(text, data)}.{change}"


def _must_ask_to_write(path: str, content: str, ctx: ToolContext, *, make_folders: bool = False) -> str:
    data = _writable(content, ctx)[1]
    with Workspace(ctx.workspace) as workspace:
        place = _expect(workspace, path) if make_folders else workspace.find(path)
        return _settings_change(workspace, place, _old(place), data)


def _old(place: ResolvedPath | _Unmade) -> bytes | None:
    return None if isinstance(place, _Unmade) or place.info is None else file_contents.load(place)


@tool(tier="confirm", paths=("path",), preview=_preview_write, must_ask=_must_ask_to_write)
@errors_as_results
def write(path: str, content: str, ctx: ToolContext, *, make_folders: bool = False) -> ToolResult:
    """Write a whole text file. An existing file is replaced; read it first.

    Args:
        path: The file, relative to the workspace.
        content: The whole content of the file.
        make_folders: Whether to create missing folders of the path.
    """
    text, data = _writable(content, ctx)
    with Workspace(ctx.workspace) as workspace:
        if make_folders:
            expected = _expect(workspace, path)
            _check_place(workspace, expected, ctx)
            if isinstance(expected, _Unmade):
                # Check before a folder is created.
                _check_settings(workspace, expected, None, data, ctx)
        place = workspace.find(path, make_folders=make_folders)
        _check_place(workspace, place, ctx)
        if place.is_folder:
            raise Refused(f"{place.shown} is a folder.")
        with files_read.changing(workspace.real, place.parts):
            old = None if place.info is None else _current(workspace, place, ctx)
            _check_settings(workspace, place, old, data, ctx)
            _put(place, data)
            files_read.wrote(ctx, workspace.real, place.parts, data)
    if old is None:
        return ToolResult(f"Created {place.shown}: {_size(text, data)}.")
    return ToolResult(f"Replaced {place.shown}: {_size(text, data)}.{_replaced_by(place, old, text)}")


def _writable(content: str, ctx: ToolContext) -> tuple[str, bytes]:
    """The text and its bytes. Raises Refused if it may not be written."""
    _check_sandbox(ctx)
    text = clean(content)
    data = text.encode()
    if len(data) > MOST_WRITTEN:
        raise Refused(f"The text is too large: {size(len(data))}, and the limit is {size(MOST_WRITTEN)}.")
    return text, data


def _check_sandbox(ctx: ToolContext) -> None:
    if ctx.sandbox.files == "read-only":
        raise Refused(f"Not written: the sandbox does not allow writing (sandbox: {ctx.sandbox}).")


class _Unmade(NamedTuple):
    """A path whose folder does not exist yet."""

    parts: tuple[str, ...]


def _check_place(workspace: Workspace, place: ResolvedPath | _Unmade, ctx: ToolContext) -> None:
    protected_files.check_place(ctx.sandbox, workspace.real, place.parts)


def _settings_change(
    workspace: Workspace, place: ResolvedPath | _Unmade, old: bytes | None, new: bytes
) -> str:
    """The path if the new content would change remit's settings; empty otherwise."""
    change = protected_files.changes_settings(workspace.real, place.parts, old, new)
    return "/".join(place.parts) if change else ""


def _check_settings(
    workspace: Workspace, place: ResolvedPath | _Unmade, old: bytes | None, new: bytes, ctx: ToolContext
) -> None:
    """Raise Refused for a change of settings, unless a person approved it for this call."""
    change = _settings_change(workspace, place, old, new)
    if change and ctx.approved != change:
        raise Refused(
            f"Not written: remit reads {show(change)} as settings, so a person must approve this change."
        )


def _size(text: str, data: bytes) -> str:
    return f"{count(count_lines(text), 'line')}, {size(len(data))}"


def _replaced_by(place: ResolvedPath, old: bytes, text: str) -> str:
    return (
        ""
        if file_contents.binary_kind(old)
        else diffs.changed(place.shown, file_contents.decode(old)[0], text)
    )


def _expect(workspace: Workspace, path: str) -> ResolvedPath | _Unmade:
    """Resolve a path without creating missing folders. Raises Refused."""
    below = workspace.inside(path) if path.startswith("/") else path.split("/")
    if below is None:
        return workspace.find(path)
    parts = [part for part in below if part not in ("", ".")]
    number = 1
    while number < len(parts):
        above = workspace.find("/".join(parts[:number]))
        if not above.name or above.info is not None:
            number += 1
        elif ".." in parts[number:]:
            # These folders do not exist, so no symlink can change where ".." leads.
            back = parts.index("..", number)
            del parts[back - 1 : back + 1]
            number = 1
        else:
            return _Unmade((*above.parts, *parts[number:]))
    return workspace.find("/".join(parts) or ".")


def _current(workspace: Workspace, place: ResolvedPath, ctx: ToolContext) -> bytes:
    """The file's content. Raises Refused unless this run has seen it."""
    data = file_contents.load(place)
    files_read.check(ctx, workspace.real, place.parts, data, place.shown)
    return data


def _put(place: ResolvedPath, data: bytes) -> None:
    """Replace a file atomically: readers see the old content or the new."""
    folder, old = place.folder, place.info
    temporary = f".remit-{secrets.token_hex(8)}.tmp"
    try:
        # The umask applies to a new file; `_fill` restores the mode of an old one.
        fd = folder.open(temporary, CREATE, 0o666 if old is None else 0o600)
        try:
            _fill(fd, data, old)
        finally:
            os.close(fd)
        if old is None:
            _name_new(place, temporary)
        else:
            folder.replace(temporary, place.name)
    except OSError as error:
        with suppress(OSError):
            folder.remove(temporary)
        raise Refused(trouble(error, place.path)) from None
    with suppress(OSError):
        folder.sync()


def _fill(fd: int, data: bytes, old: os.stat_result | None) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]
    if old is not None and hasattr(os, "fchmod"):
        if hasattr(os, "fchown"):
            with suppress(OSError):
                os.fchown(fd, old.st_uid, old.st_gid)
        # Without setuid and setgid: the content is new.
        os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o777)
    os.fsync(fd)


def _name_new(place: ResolvedPath, temporary: str) -> None:
    folder = place.folder
    try:
        folder.link(temporary, place.name)
    except FileExistsError:
        folder.remove(temporary)
        raise Refused(f"Not written: {place.shown} was created meanwhile. Read it first.") from None
    except OSError:
        # Some file systems have no hard links.
        folder.replace(temporary, place.name)
    else:
        folder.remove(temporary)


# --- edit ----------------------------------------------------------------------------------------


@_visible
def _preview_edit(
    path: str, old_text: str, new_text: str, ctx: ToolContext, *, replace_all: bool = False
) -> str:
    _check_edit(old_text, new_text, ctx)
    with Workspace(ctx.workspace) as workspace:
        place = workspace.find(path)
        _check_place(workspace, place, ctx)
        before = _editable(place, _current(workspace, place, ctx))
    after, times = _replaced(place, before, old_text, new_text, replace_all=replace_all)
    return f"Edit {place.shown}{_in_places(times)}.{diffs.changed(place.shown, before, after)}"


def _must_ask_to_edit(
    path: str, old_text: str, new_text: str, ctx: ToolContext, *, replace_all: bool = False
) -> str:
    _check_edit(old_text, new_text, ctx)
    with Workspace(ctx.workspace) as workspace:
        place = workspace.find(path)
        before = _editable(place, file_contents.load(place))
        after, _ = _replaced(place, before, old_text, new_text, replace_all=replace_all)
        return _settings_change(workspace, place, _bytes(before), _bytes(after))


@tool(tier="confirm", paths=("path",), preview=_preview_edit, must_ask=_must_ask_to_edit)
@errors_as_results
def edit(
    path: str, old_text: str, new_text: str, ctx: ToolContext, *, replace_all: bool = False
) -> ToolResult:
    """Replace text in a file that you have read. Returns a diff.

    Args:
        path: The file, relative to the workspace.
        old_text: The text to replace, exactly as it is in the file, without line numbers. It must occur once.
        new_text: The text to put in its place.
        replace_all: Replace every occurrence instead.
    """
    _check_edit(old_text, new_text, ctx)
    with Workspace(ctx.workspace) as workspace:
        place = workspace.find(path)
        _check_place(workspace, place, ctx)
        with files_read.changing(workspace.real, place.parts):
            before = _editable(place, _current(workspace, place, ctx))
            after, times = _replaced(place, before, old_text, new_text, replace_all=replace_all)
            written = _bytes(after)
            _check_settings(workspace, place, _bytes(before), written, ctx)
            _put(place, written)
            files_read.wrote(ctx, workspace.real, place.parts, written)
    return ToolResult(f"Edited {place.shown}{_in_places(times)}.{diffs.changed(place.shown, before, after)}")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _check_edit(old_text: str, new_text: str, ctx: ToolContext) -> None:
    _check_sandbox(ctx)
    if not old_text:
        raise Refused("old_text is empty. Pass the text to replace, or use write for a new file.")
    if old_text == new_text:
        raise Refused("Not changed: old_text and new_text are the same.")


def _in_places(times: int) -> str:
    return "" if times == 1 else f" in {times} places"


def _editable(place: ResolvedPath, data: bytes) -> str:
    _only_text(place, data)
    if file_contents.is_wide(data) or file_contents.image_type(data):
        raise Refused(f"{place.shown} is not UTF-8 text. This tool cannot edit it.")
    # surrogateescape keeps invalid bytes unchanged.
    return data.decode("utf-8", "surrogateescape")


def _replaced(place: ResolvedPath, text: str, old: str, new: str, *, replace_all: bool) -> tuple[str, int]:
    old, new = clean(old), clean(new)
    if "\r\n" in text and "\r" not in old and ("\n" not in old or old not in text):
        # `read` shows lines without \r.
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    times = text.count(old)
    if times == 0:
        raise Refused(f"Not changed: old_text is not in {place.shown}.{_nearest(text, old)}")
    if times > 1 and not replace_all:
        numbers = ", ".join(map(str, _line_numbers(text, old)))
        raise Refused(
            f"Not changed: old_text occurs {times} times in {place.shown} (lines {numbers}). "
            "Pass more of the surrounding text, or replace_all."
        )
    _check_size(len(text) + times * (len(new) - len(old)))
    after = text.replace(old, new)
    _check_size(len(_bytes(after)))
    return after, times


def _check_size(number: int) -> None:
    if number > MOST_WRITTEN:
        raise Refused(f"The text would be too large: {size(number)}, and the limit is {size(MOST_WRITTEN)}.")


def _line_numbers(text: str, piece: str, most: int = 10) -> list[int]:
    numbers: list[int] = []
    at = text.find(piece)
    while at >= 0 and len(numbers) < most:
        numbers.append(text.count("\n", 0, at) + 1)
        at = text.find(piece, at + len(piece))
    return numbers


def _nearest(text: str, old: str) -> str:
    """A sentence with the line most similar to the text that was not found, or ""."""
    wanted = [line.strip() for line in old.splitlines() if line.strip()]
    lines = diffs.split_lines(text)[:20_000]
    if not wanted:
        return ""
    stripped = [line.strip() for line in lines]
    if wanted[0] in stripped:
        number = stripped.index(wanted[0]) + 1
        why = "spaces or the lines after it differ" if len(wanted) > 1 else "the spaces differ"
    else:
        close = difflib.get_close_matches(wanted[0][:200], _candidates(wanted[0], stripped), n=1)
        if not close:
            return " No line resembles its first line; read the file again."
        number = next(i for i, s in enumerate(stripped, 1) if s[:200] == close[0])
        why = "not the same"
    shown = shorten(lines[number - 1], 200, 197)
    return f" Line {number} is similar, but {why}:\n{number:6}\t{clean(shown)}"


def _candidates(wanted: str, lines: list[str], most: int = 50) -> list[str]:
    """The lines that share the most words with the wanted line: comparing all lines would take too long."""
    words = set(_WORD.findall(wanted))
    starts = dict.fromkeys(line[:200] for line in lines if line)
    return sorted(starts, key=lambda line: -len(words.intersection(_WORD.findall(line))))[:most]
