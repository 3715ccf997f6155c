"""Find the descendants of a process through /proc, and end them.

Part of the program that supervises commands (`supervisor.py`), so it imports only modules that load fast.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

FREEZE_S = 0.3


class Seen:
    """A snapshot of a process from /proc."""

    def __init__(self, pid: int, parent: int, start: str, state: str, name: str) -> None:
        self.pid = pid
        self.parent = parent
        self.start = start
        """The start time. Together with the pid it identifies one process; pids alone are reused."""
        self.state = state
        self.name = name

    @property
    def runs(self) -> bool:
        return self.state not in "ZX"


def read_proc_file(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib takes as long to import as the rest
        return file.read()


def look(pid: int | str) -> Seen | None:
    try:
        text = read_proc_file(f"/proc/{pid}/stat")
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return Seen(int(pid), int(fields[1]), fields[19], fields[0], name)


def send(seen: Seen, number: int) -> None:
    """Signal exactly this process, not a later one with the same pid."""
    try:
        fd = os.pidfd_open(seen.pid)
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        with suppress(OSError):
            os.kill(seen.pid, number)
        return
    try:
        now = look(seen.pid)
        if now is not None and now.start == seen.start:
            signal.pidfd_send_signal(fd, number)
    except OSError:
        pass
    finally:
        os.close(fd)


class Below:
    """All descendants of a process, and ways to end them."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.visible = os.path.exists("/proc/self/stat")  # noqa: PTH110 - as above

    def running(self) -> list[Seen]:
        """The descendants, without zombies."""
        if not self.visible:
            return []
        below: dict[int, list[Seen]] = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - as above
            if seen := look(pid):
                below.setdefault(seen.parent, []).append(seen)
        found: list[Seen] = []
        parents = [self.top]
        while parents:
            children = below.pop(parents.pop(), [])
            found += children
            parents += [child.pid for child in children]
        return [seen for seen in found if seen.runs]

    def children(self) -> list[int]:
        """The direct children. Orphaned descendants become children too."""
        try:
            return [int(pid) for pid in read_proc_file(f"/proc/{self.top}/task/{self.top}/children").split()]
        except OSError:
            return []

    def signal(self, number: int) -> None:
        for seen in self.running():
            send(seen, number)

    def freeze(self, end: float) -> None:
        """Stop all descendants, round by round, so that none can fork to escape the kill that follows."""
        frozen: set[tuple[int, str]] = set()
        while time.monotonic() < end:
            moving = [seen for seen in self.running() if (seen.pid, seen.start) not in frozen]
            if not moving:
                return
            for seen in moving:
                send(seen, signal.SIGSTOP)
                frozen.add((seen.pid, seen.start))

    def end(self, seconds: float) -> bool:
        """Kill from another process until no descendant is left; returns whether that succeeded in time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.freeze(min(end, time.monotonic() + FREEZE_S))
            self.signal(signal.SIGKILL)
            # A process that keeps forking and exiting is gone before a full scan reaches it.
            for _ in range(200):
                for child in filter(None, map(look, self.children())):
                    if child.runs:
                        send(child, signal.SIGKILL)
            if not self.running():
                return True
        return False
