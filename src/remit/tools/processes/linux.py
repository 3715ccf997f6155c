"""Linux features for supervising a command: adopt orphans, change the process title, use a pid namespace.

Part of the program that supervises commands (`supervisor.py`). On other systems these calls do nothing.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from remit.tools.processes.descendants import read_proc_file

TITLE = b"remit: supervising a command"
DEATH_SIGNAL, SUBREAPER = 1, 36
_DUMPABLE, _NAME = 4, 15
_NEW_MOUNTS, _NEW_PIDS = 0x20000, 0x20000000
_PRIVATE, _AS_PROC = 1 << 18, 2 | 4 | 8
"""Mount flags: private; nosuid, nodev, noexec."""


class Linux:
    """System calls that Python does not wrap."""

    def __init__(self) -> None:
        self.libc = None
        if sys.platform == "linux":
            import ctypes  # noqa: PLC0415 - used on Linux only

            self.libc = ctypes.CDLL(None, use_errno=True)
            self.ctypes = ctypes

    def prctl(self, option: int, value: int | bytes) -> None:
        if self.libc is not None:
            self.libc.prctl(option, value, 0, 0, 0)

    def rename(self) -> None:
        """Change name and command line, so that a kill of all Pythons, or by a word in the command, does not match."""
        if self.libc is None:
            return
        self.prctl(_NAME, b"remit-watch")
        # Other processes of the same user must not inspect or modify this one.
        self.prctl(_DUMPABLE, 0)
        with suppress(OSError, ValueError, IndexError):
            start, end = map(int, read_proc_file("/proc/self/stat").rpartition(")")[2].split()[45:47])
            if 0 < start < end:
                self.ctypes.memset(start, 0, end - start)
                self.ctypes.memmove(start, TITLE, min(len(TITLE), end - start - 1))

    def fork_apart(self) -> int:
        """As `os.fork`, but the child is the first process of a new pid namespace; -1 if that is not permitted."""
        if self.libc is None or _covered():
            return -1
        try:
            ours = os.open("/proc/self/ns/pid", os.O_RDONLY)
        except OSError:
            return -1
        if self.libc.unshare(_NEW_PIDS):
            os.close(ours)
            return -1
        ready, tell = os.pipe()
        pid = os.fork()
        if not pid:
            if not self._see_only_own():
                os._exit(1)
            os.write(tell, b"y")
            for fd in (ours, ready, tell):
                os.close(fd)
            return 0
        os.close(tell)
        works = os.read(ready, 1) == b"y"
        os.close(ready)
        # Later forks belong to the original namespace again.
        self.libc.setns(ours, _NEW_PIDS)
        os.close(ours)
        if not works:
            os.waitpid(pid, 0)
        return pid if works else -1

    def _see_only_own(self) -> bool:
        """Mount a private /proc; all other mounts stay shared."""
        libc = self.libc
        if libc is None or libc.unshare(_NEW_MOUNTS):
            return False
        if libc.mount(None, b"/proc", None, _PRIVATE, None):
            return False
        if libc.mount(b"proc", b"/proc", b"proc", _AS_PROC, None):
            return False
        with suppress(OSError, ValueError):
            # Start at a random pid: small pids repeat in every command, and an old pid file would seem valid.
            most = int(read_proc_file("/proc/sys/kernel/pid_max"))
            number = 300 + int.from_bytes(os.urandom(4), "big") % max(1, most // 2)
            with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:  # noqa: PTH123 - as above
                file.write(str(number))
        return True


def _covered() -> bool:
    """Whether parts of /proc are covered by mounts: a new /proc would reveal what they hide."""
    try:
        places = [line.split()[4] for line in read_proc_file("/proc/self/mountinfo").splitlines()]
    except (OSError, IndexError):
        return True
    return any(p.startswith("/proc/") and not p.startswith("/proc/sys/fs/binfmt_misc") for p in places)
