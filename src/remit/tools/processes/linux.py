"""What only Linux can do for those who watch over a command: adopt orphans, hide, and a world of its own.

A part of the program that watches over commands (`supervisor.py`). On other systems nothing is done.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from remit.tools.processes.descendants import read_proc_file

TITLE = b"remit: watching over a command"
DEATH_SIGNAL, SUBREAPER = 1, 36
_DUMPABLE, _NAME = 4, 15
_NEW_MOUNTS, _NEW_PIDS = 0x20000, 0x20000000
_PRIVATE, _AS_PROC = 1 << 18, 2 | 4 | 8
"""Ways to mount: seen by nobody else; without programs, devices and rights."""


class Linux:
    """Calls that Python has no names for."""

    def __init__(self) -> None:
        self.libc = None
        if sys.platform == "linux":
            import ctypes  # noqa: PLC0415 - only where it is of use

            self.libc = ctypes.CDLL(None, use_errno=True)
            self.ctypes = ctypes

    def prctl(self, option: int, value: int | bytes) -> None:
        if self.libc is not None:
            self.libc.prctl(option, value, 0, 0, 0)

    def disguise(self) -> None:
        """Become one that nobody means who ends all Pythons, or all that have some word in their command line."""
        if self.libc is None:
            return
        self.prctl(_NAME, b"remit-watch")
        # Nobody of the same user may look into us or change us.
        self.prctl(_DUMPABLE, 0)
        with suppress(OSError, ValueError, IndexError):
            start, end = map(int, read_proc_file("/proc/self/stat").rpartition(")")[2].split()[45:47])
            if 0 < start < end:
                self.ctypes.memset(start, 0, end - start)
                self.ctypes.memmove(start, TITLE, min(len(TITLE), end - start - 1))

    def fork_apart(self) -> int:
        """As `os.fork`, but the child is the first of a world of its own; -1 where that is not permitted."""
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
        # What is forked from now on is to be among us again.
        self.libc.setns(ours, _NEW_PIDS)
        os.close(ours)
        if not works:
            os.waitpid(pid, 0)
        return pid if works else -1

    def _see_only_own(self) -> bool:
        """A /proc of its own; everything else that is mounted stays shared with the others."""
        libc = self.libc
        if libc is None or libc.unshare(_NEW_MOUNTS):
            return False
        if libc.mount(None, b"/proc", None, _PRIVATE, None):
            return False
        if libc.mount(b"proc", b"/proc", b"proc", _AS_PROC, None):
            return False
        with suppress(OSError, ValueError):
            # Small numbers would be the same in every command: a file that remembers one would be believed.
            most = int(read_proc_file("/proc/sys/kernel/pid_max"))
            number = 300 + int.from_bytes(os.urandom(4), "big") % max(1, most // 2)
            with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:  # noqa: PTH123 - as above
                file.write(str(number))
        return True


def _covered() -> bool:
    """Whether somebody has laid something over parts of /proc: a new one would show what is under it."""
    try:
        places = [line.split()[4] for line in read_proc_file("/proc/self/mountinfo").splitlines()]
    except (OSError, IndexError):
        return True
    return any(p.startswith("/proc/") and not p.startswith("/proc/sys/fs/binfmt_misc") for p in places)
