"""The tree in a notebook: one output that is updated while the tree runs, in Jupyter and in marimo."""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Protocol, cast

from remit.observe.display.drawings import TreeDrawing
from remit.observe.display.tree_view import TreeView
from remit.types.events import Event

UPDATE_S = 0.25
"""Least seconds between two updates."""

Publish = Callable[[str, str], None]
"""Replaces the output by this HTML, and by this text where HTML is not shown. Called on the event loop's thread."""


class NotebookDisplay:
    """Draws a tree into the output of the cell that started it."""

    def __init__(self, view: TreeView, publish: Publish, loop: asyncio.AbstractEventLoop) -> None:
        self.view = view
        self._publish = publish
        self._loop = loop
        # Notebooks find the cell of an output through context variables, on the thread that runs the cell.
        self._context = contextvars.copy_context()
        self._shown = ""
        self._painted_at = 0.0

    def begin(self) -> None:
        self._paint()

    def feed(self, event: Event) -> None:
        self.view.feed(event)

    def paint(self) -> None:
        """Update the output if the tree looks different."""
        if time.monotonic() - self._painted_at >= UPDATE_S:
            self._paint()

    @contextmanager
    def paused(self) -> Generator[None]:
        """A question has its own place in a notebook."""
        yield

    def end(self, *, tree: bool = True) -> None:
        """Draw the last state; with `tree` or without, the output stays."""
        del tree
        self._paint()

    def _paint(self) -> None:
        self._painted_at = time.monotonic()
        drawing = TreeDrawing(self.view, self.view.clock(time.time()))
        html = drawing.html
        if html != self._shown:
            self._shown = html
            self._loop.call_soon_threadsafe(self._publish, html, str(drawing), context=self._context)


def find_notebook() -> Publish | None:
    """How to publish in the notebook that runs this code; None outside notebooks."""
    return _jupyter() or _marimo()


class _Handle(Protocol):
    display_id: str


class _Jupyter(Protocol):
    """The functions of `IPython.display` that are used here."""

    def display(self, *data: object, raw: bool, display_id: bool) -> _Handle: ...
    def update_display(self, data: object, *, raw: bool, display_id: str) -> None: ...


def _jupyter() -> Publish | None:
    # Without IPython in memory this is not Jupyter, and importing it takes half a second.
    ipython = sys.modules.get("IPython")
    if ipython is None or getattr(ipython.get_ipython(), "kernel", None) is None:
        # Without a kernel it is IPython in a terminal.
        return None
    jupyter = cast(_Jupyter, importlib.import_module("IPython.display"))
    handle = ""

    def publish(html: str, text: str) -> None:
        nonlocal handle
        data = {"text/html": html, "text/plain": text}
        if handle:
            jupyter.update_display(data, raw=True, display_id=handle)
        else:
            handle = jupyter.display(data, raw=True, display_id=True).display_id

    return publish


def _marimo() -> Publish | None:
    marimo = cast(Any, sys.modules.get("marimo"))
    if marimo is None or not marimo.running_in_notebook():
        return None
    # marimo's own progress bars work like this: an output whose text changes, and a call to draw the cell again.
    # marimo has no public name for that call.
    flush: Callable[[], None] = importlib.import_module("marimo._runtime.output._output").flush
    now = ""
    tree = type("Tree", (marimo.Html,), {"text": property(lambda _: now)})("")

    def publish(html: str, text: str) -> None:
        nonlocal now
        del text
        first, now = not now, html
        if first:
            marimo.output.append(tree)
        else:
            flush()

    return publish
