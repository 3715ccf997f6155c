"""The live tree on a terminal: drawn at most ten times a second, hidden while a question is open.

A terminal has room for one live tree. While one is drawn or a question is open, the others wait; when they end, their last
tree is printed above the live one.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

import remit.observe.words as words
from remit.observe.display.keyboard import Keys
from remit.observe.display.tree_view import Line, TreeView, frame, shown, whole
from remit.types.events import Event

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

LAST_LINES = 12
"""Runs in the tree that stays above the answer."""

CLOCK_S = 0.5
"""How often the times are redrawn while there are no events."""


class _Terminal:
    """Which display of this process draws, and which ones wait for the answer to a question."""

    def __init__(self) -> None:
        self.drawing: LiveDisplay | None = None
        self.asking: list[LiveDisplay] = []


_terminal = _Terminal()


class LiveDisplay:
    """Draws a tree in place, below the earlier output of the terminal.

    `hush` turns off the terminal's echo meanwhile. `redirect` prints what the program writes to standard output above
    the tree. With several displays in several threads, the caller must use one lock for all of them.
    """

    def __init__(self, view: TreeView, stream: TextIO, *, hush: bool = True, redirect: bool = False) -> None:
        # Imported here because only terminals need rich.
        from rich.console import Console  # noqa: PLC0415 - see above

        self.view = view
        self._stream = stream
        self._console: Console = Console(
            file=stream, force_terminal=True, highlight=False, markup=False, emoji=False, legacy_windows=False
        )
        self._unicode = words.has_unicode(stream)
        self._keys = Keys() if hush else None
        self._redirect = redirect
        self._live: Live | None = None
        self._lines: list[Line] = []
        """The lines on the terminal."""
        self._size = (0, 0)
        self._changed = True
        self._painted_at = 0.0
        self._broken = False
        self._begun = False

    def begin(self) -> None:
        self._begun = True
        self._follow_state()

    def feed(self, event: Event) -> None:
        self.view.feed(event)
        self._changed = True

    def paint(self) -> None:
        """Draw if anything changed, the clock included. Never raises, even if the terminal goes away."""
        now = time.monotonic()
        if self._live is None:
            self._follow_state()
        if self._live is None or self._broken:
            return
        if not (self._changed or now - self._painted_at >= CLOCK_S or self._resized()):
            return
        self._changed, self._painted_at = False, now
        with self._unbroken():
            size = self._console.size
            lines = frame(
                self.view, width=size.width - 1, height=size.height - 1, now=self.view.clock(time.time())
            )
            if lines == self._lines and size == self._size:
                return
            self._mend(size.width)
            self._lines, self._size = lines, size
            self._live.update(self._text(lines), refresh=True)

    def note(self, text: str) -> None:
        """Print a message above the tree."""
        from rich.text import Text  # noqa: PLC0415 - as above

        with self._unbroken():
            self._print(Text(text))

    def _print(self, text: Text) -> None:
        """Print above the tree that is being drawn, whichever it is."""
        (_terminal.drawing or self)._console.print(text)  # noqa: SLF001 - of this class

    @contextmanager
    def paused(self) -> Generator[None]:
        """Hide the tree inside this context; also valid before `begin` and after `end`."""
        self.hide()
        try:
            yield
        finally:
            self.unhide()

    def hide(self) -> None:
        """Free the terminal for a question: no display of this process draws until `unhide`."""
        _terminal.asking.append(self)
        if _terminal.drawing is not None:
            _terminal.drawing._follow_state()  # noqa: SLF001 - of this class

    def unhide(self) -> None:
        if self in _terminal.asking:
            _terminal.asking.remove(self)
        self._follow_state()
        self.paint()

    def redraw(self) -> None:
        """Draw again after SIGCONT, below the output that other programs wrote in the meantime."""
        if self._live is not None:
            if self._keys is not None:
                self._keys.hush()
            with self._unbroken():
                self._stream.write("\n" * len(self._lines))
            self._lines = []
            self._changed = True

    def end(self, *, tree: bool = True) -> None:
        """Remove the live tree; with `tree`, leave a short one."""
        self._begun = False
        self._follow_state()
        if tree and self.view.tree.runs:
            with self._unbroken():
                lines = whole(
                    self.view,
                    width=self._console.size.width - 1,
                    now=self.view.clock(time.time()),
                    most=LAST_LINES,
                )
                self._print(self._text(lines))

    def _follow_state(self) -> None:
        """Start or stop drawing, according to `begin`, `end`, and who uses the terminal."""
        wanted = self._begun and not _terminal.asking and _terminal.drawing in (None, self)
        if wanted and self._live is None:
            _terminal.drawing = self
            if self._keys is not None:
                self._keys.hush()
            self._start()
        elif not wanted and self._live is not None:
            _terminal.drawing = None
            self._stop()
            if self._keys is not None:
                self._keys.restore()

    def _start(self) -> None:
        from rich.live import Live  # noqa: PLC0415 - as above

        with self._unbroken():
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=self._redirect,
                redirect_stderr=self._redirect,
                vertical_overflow="crop",
            )
            self._live.start()
        self._lines = []
        self._changed = True

    def _stop(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            with self._unbroken():
                self._mend(self._console.size.width)
                live.stop()

    def _resized(self) -> bool:
        return self._console.size != self._size

    def _mend(self, width: int) -> None:
        """Erase the lines of a window that became narrower: they are wrapped, so they fill more rows than we drew."""
        cells = (sum(words.width(text) for text, _ in line) for line in self._lines)
        rows = sum(max(1, -(-one // max(1, width))) for one in cells)
        if rows > len(self._lines):
            down = "\n" * (len(self._lines) - 1)
            self._stream.write(f"\r\x1b[{rows - 1}A\x1b[J{down}")
        self._lines = []

    def _text(self, lines: list[Line]) -> Text:
        from rich.text import Text  # noqa: PLC0415 - as above

        text = Text.from_ansi(shown(lines, colour=True, unicode=self._unicode))
        text.no_wrap, text.overflow = True, "crop"
        return text

    @contextmanager
    def _unbroken(self) -> Generator[None]:
        """Stop drawing, and only that, when the terminal is gone."""
        try:
            yield
        except (OSError, ValueError):
            self._broken = True
