"""What finds matching lines: ripgrep where there is one, else Python, each a process that reads text and prints line numbers.

The text is fed to them, so neither opens a file: which files are searched is decided in one place, and nothing that is
renamed meanwhile can lead them outside the workspace.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from remit.tasks.semaphore import Gate
from remit.tools.builtin.search.regex_dialect import Pattern
from remit.tools.words import Refused

MOST_SEARCHES = max(2, min(8, os.cpu_count() or 2))
"""Searches that run at once in this process, all runs together; further ones wait in order. Each is one or two processes
that may keep a processor busy for `SECONDS`."""
SEARCHES = Gate(MOST_SEARCHES)

MOST_MATCHES = 10_000
"""Lines that one search finds; then it stops."""

_PROGRAM = "rg.exe" if os.name == "nt" else "rg"
_KEPT = ("SYSTEMROOT",)


def ripgrep_command(program: str, pattern: Pattern) -> list[str]:
    """ripgrep over its input: numbers of lines, and nothing of its own settings."""
    case = "--ignore-case" if pattern.ignore_case else "--case-sensitive"
    options = "--no-config --color=never --no-heading --no-filename --line-number --text --encoding=none --max-columns=1"
    return [program, *options.split(), case, f"--regexp={pattern.text}", "-"]


def python_command(pattern: Pattern, seconds: float) -> list[str]:
    """The same in Python."""
    if not sys.executable:
        raise Refused("This pattern needs a Python program to search with, and there is none.")
    script = Path(__file__).with_name("python_engine.py")
    case = "i" if pattern.ignore_case else "-"
    return [sys.executable, "-I", "-S", "-W", "ignore", str(script), pattern.text, case, f"{seconds + 2:.0f}"]


@functools.cache
def find_ripgrep() -> str:
    """A ripgrep that works, found out by running it; empty when there is none."""
    candidates = [str(Path(sysconfig.get_path("scripts")) / _PROGRAM), shutil.which("rg") or ""]
    probe = Pattern("b+", ignore_case=False, shared=True, needs_tables=False)
    for candidate in candidates:
        # A relative one would be whatever lies in the current directory.
        if Path(candidate).is_absolute() and _try(ripgrep_command(candidate, probe), b"a\nbb\n") == "2:":
            return candidate
    return ""


def accepts(program: str, pattern: Pattern) -> bool:
    """Whether ripgrep can compile it; very large ones it cannot."""
    return _try(ripgrep_command(program, pattern), b"") is not None


def _try(command: list[str], data: bytes) -> str | None:
    """The first two characters it prints; None when it fails."""
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=10, check=False, env=_env())  # noqa: S603 - no shell, and the program is absolute
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")[:2] if done.returncode in (0, 1) else None


def _env() -> dict[str, str]:
    return {key: os.environ[key] for key in _KEPT if key in os.environ}


class Engine:
    """One process and the files that were fed to it. `kill` may be called from any thread."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - no shell, and the program is absolute
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_env(),
        )
        self._starts: list[int] = []
        """The first line of each file, counted over all of them."""
        self._files: list[int] = []
        self._next = 1
        self._found: list[int] = []
        self.full = False
        self.killed = False
        self._reader = threading.Thread(target=self._read, name="remit-grep", daemon=True)
        self._reader.start()

    def feed(self, file: int, text: bytes) -> None:
        """One file's lines. What an engine that is gone does not take is lost; `killed` or `full` says so."""
        if not text:
            return
        self._starts.append(self._next)
        self._files.append(file)
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.write(text)
            if not text.endswith(b"\n"):
                self._process.stdin.write(b"\n")
        self._next += text.count(b"\n") + (not text.endswith(b"\n"))

    def finish(self) -> None:
        """Waits until everything is searched, or until somebody kills it."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.close()
        self._reader.join()
        self._process.wait()
        # An engine that ends badly by itself must not pass for one that found nothing.
        self.killed = self.killed or (not self.full and self._process.returncode not in (0, 1))

    def kill(self) -> None:
        """Ends it now."""
        self.killed = True
        self._process.kill()

    def close(self) -> None:
        """Leaves no process, whatever happened."""
        with suppress(OSError, ValueError):
            self._process.kill()
        self.finish()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def matches(self) -> Iterator[tuple[int, int]]:
        """File and line of every match, in the order they were fed."""
        for line in self._found:
            at = bisect_right(self._starts, line) - 1
            if at >= 0:
                yield self._files[at], line - self._starts[at] + 1

    def last_file(self) -> int:
        """The file fed last; -1 for none."""
        return self._files[-1] if self._files else -1

    def _read(self) -> None:
        assert self._process.stdout is not None
        number = re.compile(rb"\d+")
        with suppress(OSError, ValueError):
            for line in self._process.stdout:
                found = number.match(line)
                if found:
                    self._found.append(int(found[0]))
                if len(self._found) >= MOST_MATCHES:
                    self.full = True
                    self._process.kill()
                    return
