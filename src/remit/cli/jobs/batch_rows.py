"""Rows of a batch from a file: JSON lines or CSV; and tasks from a template such as 'Review {path}'."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import msgspec

from remit.errors import UsageError
from remit.types.messages import Json
from remit.types.spelling import suggest

FileRow = str | Mapping[str, Json]
"""A line of text, or values by name."""

_FIELD = re.compile(r"\{(\w+)\}")


def read_rows(path: Path) -> list[FileRow]:
    """The rows of a .jsonl or .csv file. Raises UsageError, which names the file and the line."""
    try:
        if path.suffix.lower() == ".csv":
            with path.open(encoding="utf-8-sig", newline="") as file:
                return [_named(row, path, number) for number, row in enumerate(csv.DictReader(file), 2)]
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"Cannot read the rows in {str(path)!r}: {error}.") from None
    return [_row(line, path, number) for number, line in enumerate(lines, 1) if line.strip()]


def _named(row: Mapping[str | None, object], path: Path, number: int) -> FileRow:
    if None in row or None in row.values():
        raise UsageError(f"{path}, line {number}: the row has more or fewer columns than the first line.")
    return cast("Mapping[str, Json]", row)


def _row(line: str, path: Path, number: int) -> FileRow:
    try:
        row: object = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{path}, line {number}: not JSON ({error}). Write one JSON value per line."
        ) from None
    if not isinstance(row, (str, dict)):
        raise UsageError(f"{path}, line {number}: a row must be an object or a string, not {repr(row)[:40]}.")
    return cast(FileRow, row)


def task_from(template: str) -> Callable[[FileRow], str]:
    """A function that fills a template. Only names are replaced: a row cannot reach anything else."""

    def fill(row: FileRow) -> str:
        values: Mapping[str, Json] = {"row": row} if isinstance(row, str) else row

        def value(found: re.Match[str]) -> str:
            name = found[1]
            if name not in values:
                raise UsageError(
                    f"--task has {{{name}}}, but a row has only: {', '.join(values)}.{suggest(name, list(values))}"
                )
            known = values[name]
            return known if isinstance(known, str) else msgspec.json.encode(known).decode()

        return _FIELD.sub(value, template)

    return fill
