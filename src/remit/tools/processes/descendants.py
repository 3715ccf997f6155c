"""Processes below a process: seen through /proc, and ended.

A part of the program that watches over commands (`supervisor.py`), which is why only what is quick to import is used.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

FREEZE_S = 0.3


class Seen:
    """A process as /proc showed it."""

    def __init__(self, pid: int, parent: int, start: str, state: str, name: str) -> None:
        self.pid = pid
        self.parent = parent
        self.start = start
        """With the number, this is one process for ever: numbers are used again."""
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
    """Signal exactly this process, not one that has taken its number since."""
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
    """Every process below one, and the ways to end them."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.visible = os.path.exists("/proc/self/stat")  # noqa: PTH110 - as above

    def everybody(self) -> list[Seen]:
        """Zombies left out."""
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
        """The processes right below: all those whose parent has gone are here."""
        try:
            return [int(pid) for pid in read_proc_file(f"/proc/{self.top}/task/{self.top}/children").split()]
        except OSError:
            return []

    def signal(self, number: int) -> None:
        for seen in self.everybody():
            send(seen, number)

    def freeze(self, end: float) -> None:
        """Stop everybody, round by round, so that nobody forks away from the kill that follows."""
        frozen: set[tuple[int, str]] = set()
        while time.monotonic() < end:
            moving = [seen for seen in self.everybody() if (seen.pid, seen.start) not in frozen]
            if not moving:
                return
            for seen in moving:
                send(seen, signal.SIGSTOP)
                frozen.add((seen.pid, seen.start))

    def end(self, seconds: float) -> bool:
        """From outside, for those who are not heard any more: kill until there is nobody; whether that was reached."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.freeze(min(end, time.monotonic() + FREEZE_S))
            self.signal(signal.SIGKILL)
            # One that always forks and ends is gone by the time of a full look.
            for _ in range(200):
                for child in filter(None, map(look, self.children())):
                    if child.runs:
                        send(child, signal.SIGKILL)
            if not self.everybody():
                return True
        return False
