"""A terminal for tests: a program on a real pseudo-terminal, and the screen that a person would see."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pexpect
import pyte

SCREENS = Path(__file__).parents[1] / "cli" / "screens"
SRC = Path(__file__).parents[2] / "src"
WAIT_S = 60.0

PROGRAM = """
import sys
from remit.cli.main import main
from remit.testing import ScriptedModel, call, calls, say, wrapped
{script}
sys.exit(main(sys.argv[1:], models={{"scripted": model}}))
"""


def environment(home: Path, **more: str) -> dict[str, str]:
    """Nothing of the caller's environment except PATH; a temporary home."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "REMIT_HOME": str(home / "state"),
        "PYTHONPATH": str(SRC),
        "PYTHONUTF8": "1",
        "TERM": "xterm-256color",
        **more,
    }


class Terminal:
    """A program that runs in a window of this size."""

    def __init__(
        self, argv: list[str], folder: Path, *, columns: int = 80, rows: int = 24, env: dict[str, str]
    ) -> None:
        self.screen = pyte.HistoryScreen(columns, rows, history=5000)
        self._stream = pyte.Stream(self.screen)
        self.raw = ""
        self.child: pexpect.spawn[str] = pexpect.spawn(
            sys.executable,
            argv,
            cwd=str(folder),
            env=env,
            dimensions=(rows, columns),
            encoding="utf-8",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.child.isalive():
            self.child.kill(signal.SIGKILL)
        self.child.close(force=True)

    def look(self) -> str:
        """The screen, and the lines that have scrolled out of it."""
        gone = [
            "".join(line[column].data for column in range(self.screen.columns))
            for line in self.screen.history.top
        ]
        return "\n".join(line.rstrip() for line in [*gone, *self.screen.display]).rstrip()

    def window(self) -> str:
        """The screen alone."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def wait_for(self, seen: str | Callable[[str], bool]) -> str:
        """Read until the screen shows this; returns the screen."""
        end = time.monotonic() + WAIT_S
        met = seen if callable(seen) else lambda text: seen in text
        while not met(self.look()):
            assert time.monotonic() < end, f"not seen: {seen!r}\n{self.look()}"
            if not self._read():
                assert met(self.look()), f"ended without {seen!r}:\n{self.look()}"
        return self.look()

    def type(self, text: str) -> None:
        self.child.send(text)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.resize(rows, columns)
        self.child.setwinsize(rows, columns)

    def end(self) -> int:
        """Read to the end; returns the exit code."""
        end = time.monotonic() + WAIT_S
        while self._read():
            assert time.monotonic() < end, f"it does not end:\n{self.look()}"
        self.child.wait()
        return self.child.exitstatus if self.child.exitstatus is not None else -(self.child.signalstatus or 0)

    def _read(self) -> bool:
        try:
            piece = self.child.read_nonblocking(65536, timeout=0.05)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            return False
        self.raw += piece
        self._stream.feed(piece)
        return True


def remit_in(
    folder: Path, *args: str, script: str = "model = None", columns: int = 80, rows: int = 24, **env: str
) -> Terminal:
    """`remit ARGS` in a terminal; `script` defines the model named `scripted`."""
    argv = ["-c", PROGRAM.format(script=script), *args]
    return Terminal(argv, folder, columns=columns, rows=rows, env=environment(folder.parent, **env))


_STABLE: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(remit (?:show|watch|resume)\s+)[a-z2-9]{10}\b"), r"\1xxxxxxxxxx"),
    (
        re.compile(r" +\d+s(?=/|\b)"),
        lambda found: "#s".rjust(len(found[0])) if found[0][:2] == "  " else " #s",
    ),
)


def stable(text: str, folder: Path) -> str:
    """The screen with ids, times and the folder's name replaced."""
    text = text.replace(str(folder), "FOLDER").replace(str(folder.parent), "HOME")
    for pattern, instead in _STABLE:
        text = pattern.sub(instead, text)
    return text


def settle_on(name: str, terminal: Terminal, folder: Path) -> None:
    """Wait until the window matches the reviewed screen: a read of a live tree may return half a frame."""
    path = SCREENS / f"{name}.txt"
    if not os.environ.get("UPDATE_SCREENS"):
        reviewed = path.read_text(encoding="utf-8")
        terminal.wait_for(lambda _: stable(terminal.window(), folder) + "\n" == reviewed)
    check_screen(name, stable(terminal.window(), folder))


def check_screen(name: str, text: str) -> None:
    """Compare with the reviewed screen of that name; UPDATE_SCREENS=1 rewrites it."""
    path = SCREENS / f"{name}.txt"
    if os.environ.get("UPDATE_SCREENS"):
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")
