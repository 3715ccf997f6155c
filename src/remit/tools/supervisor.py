"""The program over every command of `terminal`: it adopts whatever the command leaves, and leaves none of it running.

It is fed to a Python of its own (`processes.py`) and imports nothing of remit. On Linux it becomes the parent of every
orphan below it, so that "I have no children" proves that nothing is left. Where there is no /proc (macOS) it can only
end the command's process group: what has left that group is not found.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress
from typing import NamedTuple

SETTLE_S = 0.2
"""How long what a command left may take to end by itself; bash does not wait for `>(...)`."""
INSIST_S = 3.0
"""How long killing is tried before it is said that somebody cannot be killed: one of another user."""
LINGER_S = 30.0
"""How long it is tried after that."""
FREEZE_S = 0.3
LOOK_S = 1.0
"""How often it is looked whether whoever started us still lives, should their pipe be held open by others."""
_SUBREAPER = 36
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-")


class Seen(NamedTuple):
    """A process as /proc showed it."""

    pid: int
    parent: int
    start: str
    """With the number, this is one process for ever: numbers are used again."""
    state: str
    name: str


def look(pid: int | str) -> Seen | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - pathlib takes as long to import as the rest
            text = file.read()
    except OSError:
        return None
    name, _, rest = text.partition("(")[2].rpartition(")")
    fields = rest.split()
    return Seen(int(pid), int(fields[1]), fields[19], fields[0], name)


def descendants() -> list[Seen]:
    """Every process below this one, zombies left out."""
    below: dict[int, list[Seen]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - as above
        if seen := look(pid):
            below.setdefault(seen.parent, []).append(seen)
    found: list[Seen] = []
    parents = [os.getpid()]
    while parents:
        children = below.pop(parents.pop(), [])
        found += children
        parents += [child.pid for child in children]
    return [seen for seen in found if seen.state not in "ZX"]


def children() -> list[int]:
    """The processes right below this one: all those whose parent has gone are here."""
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", encoding="ascii") as file:  # noqa: PTH123 - as above
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:
        return []


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


class Supervisor:
    """One command and everything it starts."""

    def __init__(self, control: int, parent: int, grace_s: float) -> None:
        self.control = control
        self.parent = parent
        self.grace_s = grace_s
        self.main = 0
        self.status: int | None = None
        self.childless = False
        self.stopping = False
        self.at_once = False
        """Whether nobody is to be asked before the kill."""
        self.has_proc = os.path.exists("/proc/self/stat")  # noqa: PTH110 - as above
        self.wakeup, waker = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self.poll = select.poll()
        self.poll.register(self.wakeup, select.POLLIN)
        self.poll.register(control, select.POLLIN)
        signal.signal(signal.SIGCHLD, self._woken)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._told)

    def _told(self, *_: object) -> None:
        self.stopping = True

    def _woken(self, *_: object) -> None:
        """A signal that is ignored would not be written to the wake-up pipe."""

    def adopt(self) -> None:
        """Have every orphan below us become our child."""
        if sys.platform == "linux":
            import ctypes  # noqa: PLC0415 - only where it is of use

            ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)

    def start(self, command: list[str]) -> str:
        """Run the command in a session of its own; what the system said if it cannot."""
        failed, fail = os.pipe()
        self.main = os.fork()
        if not self.main:
            self._become(command, fail)
        os.close(fail)
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            # The reader is to see the end of the output once the last who can write has gone.
            os.dup2(nothing, fd)
        os.close(nothing)
        said = b""
        while piece := os.read(failed, 4096):
            said += piece
        os.close(failed)
        return said.decode()

    def _become(self, command: list[str], fail: int) -> None:
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.close(nothing)
            signal.set_wakeup_fd(-1)
            # A crash is not to leave the memory of a program in the workspace.
            resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
            for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
                with suppress(OSError, ValueError):
                    signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            os.execv(command[0], command)  # noqa: S606 - no shell: the command is one already
        except BaseException as error:  # noqa: BLE001 - this process must end here, whatever happens
            os.write(fail, f"{command[0]}: {error}".encode())
        os._exit(127)

    def rest(self, seconds: float) -> None:
        """Until something happens, at most so long; the dead are buried, and a wish to stop is heard."""
        for fd, _ in self.poll.poll(max(0.0, seconds) * 1000):
            if fd == self.control:
                self._hear()
            else:
                with suppress(BlockingIOError):
                    os.read(fd, 4096)
        if os.getppid() != self.parent:
            self.stopping = True
        self.reap()

    def _hear(self) -> None:
        """A word, "s" or "k", or the end of the line: each means stop, and "k" at once."""
        try:
            word = os.read(self.control, 64)
        except OSError:
            word = b""
        if not word:
            self.poll.unregister(self.control)
        self.stopping = True
        self.at_once = self.at_once or b"k" in word

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if not pid:
                return
            if pid == self.main:
                self.status = status

    def rest_until_childless(self, seconds: float, *, unless_told: bool = False) -> bool:
        end = time.monotonic() + seconds
        self.reap()
        while not self.childless and (left := end - time.monotonic()) > 0:
            if unless_told and self.at_once:
                break
            # Grandchildren end without a word to us.
            self.rest(min(left, 0.02))
        return self.childless

    def below(self) -> list[Seen]:
        return descendants() if self.has_proc else []

    def signal_all(self, number: int) -> None:
        if not self.has_proc:
            with suppress(OSError):
                os.killpg(self.main, number)
        for seen in self.below():
            send(seen, number)

    def end_all(self, grace_s: float) -> list[Seen]:
        """Ask, wait, then kill until there is nobody; returns who could not be killed."""
        if not self.at_once:
            self.signal_all(signal.SIGTERM)
        if self.rest_until_childless(grace_s, unless_told=True) or self.kill_all(INSIST_S):
            return []
        return self.below()

    def kill_all(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.freeze(min(end, time.monotonic() + FREEZE_S))
            self.signal_all(signal.SIGKILL)
            if self.strike() or self.rest_until_childless(0.02):
                return True
        return False

    def freeze(self, end: float) -> None:
        """Stop everybody, round by round, so that nobody forks away from the kill that follows."""
        frozen: set[tuple[int, str]] = set()
        while time.monotonic() < end:
            moving = [seen for seen in self.below() if (seen.pid, seen.start) not in frozen]
            if not moving:
                return
            for seen in moving:
                send(seen, signal.SIGSTOP)
                frozen.add((seen.pid, seen.start))

    def strike(self) -> bool:
        """Kill children the moment they are seen: one that always forks and ends is gone by the time of a full look."""
        for _ in range(200 if self.has_proc else 1):
            for pid in children():
                # Nobody else can have its number: only we could free it.
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.reap()
            if self.childless:
                return True
        return False

    def watch(self) -> str:
        """Until the command has ended or is stopped, and nothing of it is left; how it ended, on one line."""
        while self.status is None and not self.stopping:
            self.rest(LOOK_S)
        left: list[Seen] = []
        if not self.stopping and not self.rest_until_childless(SETTLE_S):
            left = self.below()
        grace = self.grace_s if self.stopping else min(self.grace_s, SETTLE_S)
        stuck = [] if self.childless else self.end_all(grace)
        names = ",".join("".join(c for c in seen.name if c in _NAME) or "?" for seen in left[:5])
        status = -1 if self.status is None else self.status
        return f"ended {status} {len(left)} {len(stuck)} {names}"


def main(control: str, parent: str, grace_s: str, *command: str) -> None:
    """Run one command to its end."""
    supervisor = Supervisor(int(control), int(parent), float(grace_s))
    os.set_inheritable(supervisor.control, False)
    supervisor.adopt()
    failed = supervisor.start(list(command))
    said = f"failed {failed}" if failed else supervisor.watch()
    with suppress(OSError):
        os.write(supervisor.control, f"{said}\n".encode())
        os.close(supervisor.control)
    if not (failed or supervisor.childless):
        supervisor.kill_all(LINGER_S)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
