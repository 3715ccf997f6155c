"""The displays of a running tree: the live tree, plain lines, or nothing; and the choice between them."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

import remit.observe.words as words
from remit.observe.display.keyboard import in_foreground
from remit.observe.display.line_display import LineDisplay
from remit.observe.display.tree_view import TreeView
from remit.types.events import Event


class Display(Protocol):
    """Shows a tree. Call `begin` first and `end` last. No method raises when the terminal goes away."""

    view: TreeView

    def begin(self) -> None: ...

    def feed(self, event: Event) -> None:
        """Process an event."""
        ...

    def paint(self) -> None:
        """Called about ten times a second."""
        ...

    def note(self, text: str) -> None:
        """Print a message of remit; the caller has escaped untrusted text in it."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Free the terminal for a prompt inside this context."""
        ...

    def redraw(self) -> None:
        """Draw again after the process was suspended and continued (SIGCONT)."""
        ...

    def end(self, *, tree: bool = True) -> None:
        """Restore the terminal; with `tree`, leave the final tree on it."""
        ...


class NoDisplay:
    """Shows nothing."""

    def __init__(self, view: TreeView) -> None:
        self.view = view

    def begin(self) -> None:
        """Nothing to prepare."""

    def feed(self, event: Event) -> None:
        self.view.feed(event)

    def paint(self) -> None:
        """Nothing to draw."""

    def note(self, text: str) -> None:
        """Nothing to print."""

    @contextmanager
    def paused(self) -> Generator[None]:
        yield

    def redraw(self) -> None:
        """Nothing to draw again."""

    def end(self, *, tree: bool = True) -> None:
        """Nothing to restore."""


def open_display(view: TreeView, *, quiet: bool, plain: bool = False) -> Display:
    """The live tree if standard error is a terminal; otherwise plain lines. Nothing with `quiet`."""
    if quiet:
        return NoDisplay(view)
    stream = sys.stderr
    if plain or not can_draw(stream):
        return LineDisplay(view, stream)
    from remit.observe.display.live_display import LiveDisplay  # noqa: PLC0415 - it needs rich

    return LiveDisplay(view, stream)


def can_draw(stream: TextIO) -> bool:
    """Whether a stream can show a live tree: a terminal in which the cursor moves.

    False for a background job, whose tree would overwrite what the user types in the shell.
    """
    if not words.is_terminal(stream) or os.environ.get("TERM", "") == "dumb":
        return False
    return in_foreground() or not words.is_terminal(sys.stdin)
