"""The layout of `--help`: it fits windows of any width and never breaks an option or an example."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable

import click

WIDEST = 100
"""Columns; longer lines are hard to read."""

NARROW = 60
"""In windows with fewer columns, explanations are printed below long options."""

LEAST = 20
GAP = 2
BELOW = 6
"""Indent of an explanation below its option, in cells."""


def help_width() -> int:
    """Columns for help in this window. Click's own minimum is 50."""
    return max(LEAST, min(shutil.get_terminal_size().columns, WIDEST) - 2)


class Help(click.HelpFormatter):
    """Breaks lines only at spaces."""

    def write_text(self, text: str) -> None:
        indent = " " * self.current_indent
        paragraphs = [self._paragraph(one, indent) for one in text.split("\n\n")]
        self.write("\n\n".join(paragraphs) + "\n")

    def _paragraph(self, text: str, indent: str) -> str:
        """Wrap one paragraph. A first line of `\\b` keeps its line breaks, as in click."""
        lines = text.split("\n")[1:] if text.startswith("\b") else [text]
        return "\n".join(part for line in lines for part in _wrap(line, self.width, indent))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = GAP) -> None:
        listed, indent = list(rows), self.current_indent
        widest = max((len(term) for term, _ in listed), default=0)
        stacked = self.width < NARROW and widest > self.width // 3
        column = BELOW if stacked else min(widest, col_max) + col_spacing
        for term, explained in listed:
            lines = _wrap(explained, self.width, " " * (indent + column))
            beside = f"{'':{indent}}{term:{column}}"
            if lines and len(term) + col_spacing <= column:
                lines[0] = beside + lines[0].lstrip()
            else:
                lines = [beside.rstrip(), *lines]
            self.write("\n".join(lines) + "\n")


def _wrap(text: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        text,
        max(LEAST, width),
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


class Context(click.Context):
    """A click context whose help has our layout."""

    formatter_class = Help
