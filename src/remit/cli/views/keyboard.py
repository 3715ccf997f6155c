"""The keyboard of the terminal: what is typed while a tree is drawn is not echoed into it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import cast

try:
    import termios
except ImportError:  # a system without terminals of this kind
    termios = None

Mode = list[object]

_TROUBLE = (OSError, ValueError, AttributeError) if termios is None else (OSError, ValueError, termios.error)


class Keys:
    """Switches the echo of standard input off and on again. Does nothing where that cannot be."""

    def __init__(self) -> None:
        self._before: Mode | None = None

    def hush(self) -> None:
        """No echo from here on. Ctrl-C works as before."""
        if termios is None or not in_foreground():
            return
        with suppress(*_TROUBLE):
            mode = cast(Mode, termios.tcgetattr(sys.stdin))
            if self._before is None:
                self._before = list(mode)
            mode[3] = cast(int, mode[3]) & ~termios.ECHO
            termios.tcsetattr(sys.stdin, termios.TCSANOW, mode)  # pyright: ignore[reportArgumentType]  # as it was got

    def restore(self) -> None:
        """As it was before."""
        before, self._before = self._before, None
        if termios is not None and before is not None and in_foreground():
            with suppress(*_TROUBLE):
                termios.tcsetattr(sys.stdin, termios.TCSANOW, before)  # pyright: ignore[reportArgumentType]  # as it was got


def in_foreground() -> bool:
    """Whether the terminal is ours: a process in the background that touches it is stopped."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError, AttributeError):
        return False
