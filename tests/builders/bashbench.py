"""Runs real bash in a temporary folder: which programs a command runs, and which files it opens."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

PROGRAMS = ("alpha", "beta", "omega")
"""Fake programs that only log their arguments."""
_REAL = ("bash", "sh", "env", "nice", "timeout", "xargs", "find", "nohup", "setsid")
_STUB = '#!/bin/sh\nprintf \'%s\\0\' "$(($# + 1))" "${0##*/}" "$@" >> "$LOG"\n'
_OPENED, _CREATED, _FOLDER, _NONBLOCK = 0x20, 0x100, 0x40000000, 0x800


class Did(NamedTuple):
    """The effects of a command."""

    ran: list[list[str]]
    opened: set[str]


class Bash:
    """Runs commands in a workspace with the files `in0`, `in1` and `sub/in2`, with fake programs."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.top = Path(self._folder.name)
        self.log = self.top / "log"
        programs = self.top / "bin"
        programs.mkdir()
        for name in PROGRAMS:
            (programs / name).write_text(_STUB)
            (programs / name).chmod(0o755)
        for name in _REAL:
            real = next(path for path in (Path("/bin", name), Path("/usr/bin", name)) if path.exists())
            (programs / name).symlink_to(real)

    def close(self) -> None:
        self._folder.cleanup()

    def run(self, command: str) -> Did:
        """The effects of a command in a fresh workspace."""
        with tempfile.TemporaryDirectory(dir=self.top, ignore_cleanup_errors=True) as name:
            work = Path(name)
            (work / "sub").mkdir()
            for file in ("in0", "in1", "sub/in2"):
                (work / file).write_text("x\n")
            (work / "omega").symlink_to(self.top / "bin/omega")
            self.log.unlink(missing_ok=True)
            watch = self._libc.inotify_init1(_NONBLOCK)
            try:
                for folder in (work, work / "sub"):
                    self._libc.inotify_add_watch(watch, os.fsencode(folder), _OPENED | _CREATED)
                self._start(command, work)
                opened = _names(watch)
            finally:
                os.close(watch)
        return Did(self._ran(), opened - {"omega"})

    def _start(self, command: str, work: Path) -> None:
        env = {"PATH": f"{self.top}/bin", "LOG": str(self.log), "HOME": str(work), "LC_ALL": "C.UTF-8"}
        with suppress(subprocess.TimeoutExpired):
            subprocess.run(
                ["/bin/bash", "-c", command],
                env=env,
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=5,
                check=False,
            )

    def _ran(self) -> list[list[str]]:
        if not self.log.exists():
            return []
        fields = self.log.read_bytes().decode("utf-8", "replace").split("\0")[:-1]
        found: list[list[str]] = []
        while fields:
            number = int(fields.pop(0))
            found.append(fields[:number])
            del fields[:number]
        return found


def _names(watch: int) -> set[str]:
    """The files that were opened or created, from the system trace."""
    found: set[str] = set()
    with suppress(BlockingIOError):
        while data := os.read(watch, 65536):
            while data:
                _, mask, _, length = struct.unpack_from("iIII", data)
                if not mask & _FOLDER:
                    found.add(data[16 : 16 + length].rstrip(b"\0").decode("utf-8", "replace"))
                data = data[16 + length :]
    return found
