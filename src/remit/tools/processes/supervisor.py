"""The programs over every command: a supervisor that leaves nothing of it running, and a keeper over the supervisor.

They are two processes of one program, fed to a Python of its own (`process.py`) with the two files that it needs. On
Linux each becomes the parent of every orphan below it, so that "I have no children" proves that nothing is left: who
kills or stops one of them has the other to deal with. Where the system permits it the supervisor is the first process of
a world of its own, in which nobody can touch it. Without /proc (macOS) only the command's process group can be ended.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from contextlib import suppress

from remit.tools.processes.descendants import FREEZE_S, Below, Seen, look
from remit.tools.processes.linux import DEATH_SIGNAL, SUBREAPER, Linux

# What costs more to import than all the rest.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

SETTLE_S = 0.2
"""How long what a command left may take to end by itself; bash does not wait for `>(...)`."""
INSIST_S = 3.0
"""How long killing is tried before it is said that somebody cannot be killed: one of another user."""
LINGER_S = 30.0
"""How long it is tried after that."""
LOOK_S = 1.0
"""How often it is looked whether whoever started us still lives, should their pipe be held open by others."""
SAID = 42
"""The exit code of a supervisor that has said how its command ended."""
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-")


class Watcher:
    """What keeper and supervisor have in common: they bury the dead, hear when to stop, and can end everybody."""

    def __init__(self, parent: int) -> None:
        self.parent = parent
        self.childless = False
        self.stopping = False
        self.at_once = False
        """Whether nobody is to be asked before the kill."""
        self.group = 0
        """Where nobody below can be seen, this process group is all that can be ended."""
        self.below = Below(os.getpid())
        self.wakeup, waker = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self.poll = select.poll()
        self.poll.register(self.wakeup, select.POLLIN)
        signal.signal(signal.SIGCHLD, self._woken)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._told)

    def _told(self, *_: object) -> None:
        self.stopping = True

    def _woken(self, *_: object) -> None:
        """A signal that is ignored would not be written to the wake-up pipe."""

    def rest(self, seconds: float) -> None:
        """Until something happens, at most so long; the dead are buried, and a wish to stop is heard."""
        for fd, _ in self.poll.poll(max(0.0, seconds) * 1000):
            if fd == self.wakeup:
                with suppress(BlockingIOError):
                    os.read(fd, 4096)
            else:
                self.hear()
        self.reap()

    def hear(self) -> None:
        """A word came."""

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if not pid:
                return
            self.bury(pid, status)

    def bury(self, pid: int, status: int) -> None:
        """Somebody right below has ended."""

    def rest_until_childless(self, seconds: float, *, unless_told: bool = False) -> bool:
        end = time.monotonic() + seconds
        self.reap()
        while not self.childless and (left := end - time.monotonic()) > 0:
            if unless_told and self.at_once:
                break
            # Grandchildren end without a word to us.
            self.rest(min(left, 0.02))
        return self.childless

    def signal_all(self, number: int) -> None:
        if not self.below.visible and self.group:
            with suppress(OSError):
                os.killpg(self.group, number)
        self.below.signal(number)

    def kill_all(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.below.freeze(min(end, time.monotonic() + FREEZE_S))
            self.signal_all(signal.SIGKILL)
            if self.strike() or self.rest_until_childless(0.02):
                return True
        return False

    def strike(self) -> bool:
        """Kill children the moment they are seen: one that always forks and ends is gone by the time of a full look."""
        for _ in range(200 if self.below.visible else 1):
            for pid in self.below.children():
                # Nobody else can have its number: only we could free it.
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            self.reap()
            if self.childless:
                return True
        return False


class Supervisor(Watcher):
    """One command and everything it starts."""

    def __init__(self, control: int, parent: int, grace_s: float) -> None:
        super().__init__(parent)
        self.control = control
        self.grace_s = grace_s
        self.status: int | None = None
        self.poll.register(control, select.POLLIN)

    def start(self, command: list[str]) -> str:
        """Run the command in a session of its own; what the system said if it cannot."""
        failed, fail = os.pipe()
        self.group = os.fork()
        if not self.group:
            self._become(command, fail)
        os.close(fail)
        let_go()
        if self.parent:
            say(self.control, f"begun {self.group}")
        said = b""
        while piece := os.read(failed, 4096):
            said += piece
        os.close(failed)
        return said.decode()

    def _become(self, command: list[str], fail: int) -> NoReturn:
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
        super().rest(seconds)
        if os.getppid() != self.parent:
            self.stopping = True

    def hear(self) -> None:
        """A word, "s" or "k", or the end of the line: each means stop, and "k" at once."""
        try:
            word = os.read(self.control, 64)
        except OSError:
            word = b""
        if not word:
            self.poll.unregister(self.control)
        self.stopping = True
        self.at_once = self.at_once or b"k" in word

    def bury(self, pid: int, status: int) -> None:
        if pid == self.group:
            self.status = status

    def end_all(self, grace_s: float) -> list[Seen]:
        """Ask, wait, then kill until there is nobody; returns who could not be killed."""
        if not self.at_once:
            self.signal_all(signal.SIGTERM)
        if self.rest_until_childless(grace_s, unless_told=True) or self.kill_all(INSIST_S):
            return []
        return self.below.everybody()

    def watch(self) -> str:
        """Until the command has ended or is stopped, and nothing of it is left; how it ended, on one line."""
        while self.status is None and not self.stopping:
            self.rest(LOOK_S)
        left: list[Seen] = []
        if not self.stopping and not self.rest_until_childless(SETTLE_S):
            left = self.below.everybody()
        grace = self.grace_s if self.stopping else min(self.grace_s, SETTLE_S)
        stuck = [] if self.childless else self.end_all(grace)
        names = ",".join("".join(c for c in seen.name if c in _LETTERS) or "?" for seen in left[:5])
        status = -1 if self.status is None else self.status
        return f"ended {status} {len(left)} {len(stuck)} {names}"

    def run(self, command: list[str]) -> NoReturn:
        """The command, to its end."""
        failed = self.start(command)
        say(self.control, f"failed {failed}" if failed else self.watch())
        # Who could not be killed falls to the keeper.
        os._exit(SAID)


class Keeper(Watcher):
    """Over the supervisor, for the case that somebody kills or stops it; then all that it had falls to us."""

    def __init__(self, supervisor: int, parent: int, grace_s: float) -> None:
        super().__init__(parent)
        self.supervisor = supervisor
        self.status: int | None = None
        self.patience = grace_s + INSIST_S + LOOK_S
        """How long the supervisor may take to end once it was asked to."""

    def bury(self, pid: int, status: int) -> None:
        if pid == self.supervisor:
            self.status = status

    def keep(self, control: int) -> NoReturn:
        asked: float | None = None
        self.reap()
        while self.status is None:
            self.rest(LOOK_S)
            if asked is None and os.getppid() != self.parent:
                asked = time.monotonic()
                self._signal(signal.SIGTERM)
            late = asked is not None and time.monotonic() > asked + self.patience
            if self.stopping or late or self._is_stopped():
                self._signal(signal.SIGKILL)
        if os.waitstatus_to_exitcode(self.status) != SAID:
            ended = self.childless or self.kill_all(INSIST_S)
            say(control, f"lost {0 if ended else len(self.below.everybody())}")
        # The end of the line is what is waited for, and nobody is to wait for those who cannot be killed.
        os.close(control)
        if not self.childless:
            self.kill_all(LINGER_S)
        os._exit(0)

    def _is_stopped(self) -> bool:
        """Nobody but a command stops a supervisor."""
        seen = look(self.supervisor) if self.status is None else None
        return seen is not None and seen.state == "T"

    def _signal(self, number: int) -> None:
        if self.status is None:
            # Nobody else can have its number: only we could free it.
            with suppress(OSError):
                os.kill(self.supervisor, number)


def say(control: int, line: str) -> None:
    with suppress(OSError):
        os.write(control, f"{line}\n".encode())


def let_go() -> None:
    """Of input and output: the reader is to see the end of the output once the last who can write has gone."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)


def main(control: str, parent: str, grace_s: str, apart: str, *command: str) -> None:
    """Run one command to its end."""
    line, grace = int(control), float(grace_s)
    os.set_inheritable(line, False)
    linux = Linux()
    linux.disguise()
    linux.prctl(SUBREAPER, 1)
    keeper = os.getpid()
    pid = linux.fork_apart() if apart == "apart" else -1
    alone = pid >= 0
    if not alone:
        pid = os.fork()
    if pid:
        let_go()
        os.closerange(3, line)
        os.closerange(line + 1, 1 << 16)
        Keeper(pid, int(parent), grace).keep(line)
    linux.prctl(SUBREAPER, 1)
    linux.prctl(DEATH_SIGNAL, signal.SIGKILL if alone else signal.SIGTERM)
    Supervisor(line, 0 if alone else keeper, grace).run(list(command))
