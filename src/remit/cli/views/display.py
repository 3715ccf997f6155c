"""What shows a run while it runs, and which one: the live tree, plain lines, or nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import remit.observe.words as words
from remit.cli.views.keyboard import in_foreground
from remit.cli.views.line_display import LineDisplay
from remit.cli.views.tree_view import TreeView
from remit.types.events import Event


class Display(Protocol):
    """Shows a tree. `begin` first, `end` last; none of it raises over a terminal that goes away."""

    view: TreeView

    def begin(self) -> None: ...

    def feed(self, event: Event) -> None:
        """Take in what happened."""
        ...

    def paint(self) -> None:
        """Called about ten times a second."""
        ...

    def note(self, text: str) -> None:
        """Say something of our own; foreign text in it has been made visible."""
        ...

    def paused(self) -> AbstractContextManager[None]:
        """Leaves the terminal to somebody else inside."""
        ...

    def go_on(self) -> None:
        """The process was stopped and goes on."""
        ...

    def end(self, *, tree: bool = True) -> None:
        """Give the terminal back; with `tree`, what came of it is left standing."""
        ...


class NoDisplay:
    """Shows nothing."""

    def __init__(self, view: TreeView) -> None:
        self.view = view

    def begin(self) -> None:
        """Nothing to be made ready."""

    def feed(self, event: Event) -> None:
        self.view.feed(event)

    def paint(self) -> None:
        """Nothing to be drawn."""

    def note(self, text: str) -> None:
        """Nobody wants to know."""

    @contextmanager
    def paused(self) -> Generator[None]:
        yield

    def go_on(self) -> None:
        """Nothing to be drawn again."""

    def end(self, *, tree: bool = True) -> None:
        """Nothing to be given back."""


def open_display(view: TreeView, *, quiet: bool, plain: bool = False) -> Display:
    """The live tree where somebody looks on at standard error; otherwise plain lines."""
    if quiet:
        return NoDisplay(view)
    stream = sys.stderr
    if plain or not words.is_terminal(stream) or os.environ.get("TERM", "") == "dumb" or not _is_ours():
        return LineDisplay(view, stream)
    from remit.cli.views.live_display import LiveDisplay  # noqa: PLC0415 - it needs rich

    return LiveDisplay(view, stream)


def _is_ours() -> bool:
    """In the background of a shell a tree would be drawn over what is typed there."""
    return in_foreground() or not words.is_terminal(sys.stdin)
