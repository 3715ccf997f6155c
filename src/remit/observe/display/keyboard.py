"""Turns off the terminal's echo, so that typed keys do not appear in a live tree."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import cast

try:
    import termios
except ImportError:  # Windows
    termios = None

Mode = list[object]

_TROUBLE = (OSError, ValueError, AttributeError) if termios is None else (OSError, ValueError, termios.error)


class Keys:
    """Turns the echo of standard input off and on. Does nothing on systems without termios."""

    def __init__(self) -> None:
        self._before: Mode | None = None

    def hush(self) -> None:
        """Turn the echo off. Ctrl-C still works."""
        if termios is None or not in_foreground():
            return
        with suppress(*_TROUBLE):
            mode = cast(Mode, termios.tcgetattr(sys.stdin))
            if self._before is None:
                self._before = list(mode)
            mode[3] = cast(int, mode[3]) & ~termios.ECHO
            termios.tcsetattr(sys.stdin, termios.TCSANOW, mode)  # pyright: ignore[reportArgumentType]  # the list that tcgetattr returned

    def restore(self) -> None:
        """Restore the echo."""
        before, self._before = self._before, None
        if termios is not None and before is not None and in_foreground():
            with suppress(*_TROUBLE):
                termios.tcsetattr(sys.stdin, termios.TCSANOW, before)  # pyright: ignore[reportArgumentType]  # the list that tcgetattr returned


def in_foreground() -> bool:
    """Whether this process is in the foreground: the system suspends a background process that uses the terminal."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False
