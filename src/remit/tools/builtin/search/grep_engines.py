"""Search engines: ripgrep if installed, else Python. Each is a process that reads text and prints line numbers.

The engines never open a file; they get the text on stdin. One place decides which files are searched, and a rename during
the search cannot lead an engine outside the workspace.
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
"""The most concurrent searches in this process, over all runs; others wait in order. Each search is one or two processes
that may keep a CPU busy until the timeout."""
SEARCHES = Gate(MOST_SEARCHES)

MOST_MATCHES = 10_000
"""One search stops after this many matches."""

_PROGRAM = "rg.exe" if os.name == "nt" else "rg"
_KEPT = ("SYSTEMROOT",)


def ripgrep_command(program: str, pattern: Pattern) -> list[str]:
    """The command line of ripgrep: read stdin, print line numbers, ignore the user's configuration."""
    case = "--ignore-case" if pattern.ignore_case else "--case-sensitive"
    options = "--no-config --color=never --no-heading --no-filename --line-number --text --encoding=none --max-columns=1"
    return [program, *options.split(), case, f"--regexp={pattern.text}", "-"]


def python_command(pattern: Pattern, seconds: float) -> list[str]:
    """The command line of the Python engine."""
    if not sys.executable:
        raise Refused("This pattern needs the Python engine, but the Python executable is unknown.")
    script = Path(__file__).with_name("python_engine.py")
    case = "i" if pattern.ignore_case else "-"
    return [sys.executable, "-I", "-S", "-W", "ignore", str(script), pattern.text, case, f"{seconds + 2:.0f}"]


@functools.cache
def find_ripgrep() -> str:
    """The path of a ripgrep that passed a trial run; empty if there is none."""
    candidates = [str(Path(sysconfig.get_path("scripts")) / _PROGRAM), shutil.which("rg") or ""]
    probe = Pattern("b+", ignore_case=False, shared=True, needs_tables=False)
    for candidate in candidates:
        # A relative path could name a program in the current directory.
        if Path(candidate).is_absolute() and _try(ripgrep_command(candidate, probe), b"a\nbb\n") == "2:":
            return candidate
    return ""


def accepts(program: str, pattern: Pattern) -> bool:
    """Whether ripgrep can compile the pattern; it cannot compile very large ones."""
    return _try(ripgrep_command(program, pattern), b"") is not None


def _try(command: list[str], data: bytes) -> str | None:
    """The first two characters of the output; None if the command fails."""
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=10, check=False, env=_env())  # noqa: S603 - no shell, and the program is absolute
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace")[:2] if done.returncode in (0, 1) else None


def _env() -> dict[str, str]:
    return {key: os.environ[key] for key in _KEPT if key in os.environ}


class Engine:
    """One process and the files fed to it. `kill` may be called from any thread."""

    def __init__(self, command: list[str]) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - no shell, and the program is absolute
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_env(),
        )
        self._starts: list[int] = []
        """The first line of each file, counted over all files."""
        self._files: list[int] = []
        self._next = 1
        self._found: list[int] = []
        self.full = False
        self.killed = False
        self._reader = threading.Thread(target=self._read, name="remit-grep", daemon=True)
        self._reader.start()

    def feed(self, file: int, text: bytes) -> None:
        """Send one file's lines. Lines for an engine that has ended are dropped; `killed` or `full` shows it."""
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
        """Wait until everything is searched, or the engine is killed."""
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):
            self._process.stdin.close()
        self._reader.join()
        self._process.wait()
        # A crashed engine must not count as one that found nothing.
        self.killed = self.killed or (not self.full and self._process.returncode not in (0, 1))

    def kill(self) -> None:
        """Kill the process."""
        self.killed = True
        self._process.kill()

    def close(self) -> None:
        """End the process and release its pipes."""
        with suppress(OSError, ValueError):
            self._process.kill()
        self.finish()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def matches(self) -> Iterator[tuple[int, int]]:
        """File and line of every match, in the order of feeding."""
        for line in self._found:
            at = bisect_right(self._starts, line) - 1
            if at >= 0:
                yield self._files[at], line - self._starts[at] + 1

    def last_file(self) -> int:
        """The last file fed; -1 if none was."""
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
