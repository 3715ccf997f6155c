"""The parent processes of every command: a supervisor that ends everything the command started, and a keeper of it.

Both are processes of one program, which `process.py` passes to a separate Python together with the two modules it needs.
On Linux each is a subreaper: orphans below it become its children, so "no children" proves that nothing is left. If one
of the two is killed or stopped, the other takes over. If the system permits it, the supervisor is the first process of a
new pid namespace, where the command cannot kill it. Without /proc (macOS) only the command's process group can be ended.
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

# `typing` takes longer to import than everything else here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

SETTLE_S = 0.2
"""Seconds for leftover processes to end by themselves; bash does not wait for `>(...)`."""
INSIST_S = 3.0
"""Seconds of killing before a process is reported as impossible to kill, such as one of another user."""
LINGER_S = 30.0
"""Seconds of further attempts after that report."""
LOOK_S = 1.0
"""Seconds between checks that the parent is alive, in case another process holds its pipe open."""
SAID = 42
"""The exit code of a supervisor that has reported how its command ended."""
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-")


class Watcher:
    """Shared by keeper and supervisor: reap children, notice requests to stop, end all descendants."""

    def __init__(self, parent: int) -> None:
        self.parent = parent
        self.childless = False
        self.stopping = False
        self.at_once = False
        """Whether to kill without SIGTERM first."""
        self.group = 0
        """The command's process group; all that can be ended if descendants are not visible."""
        self.below = Below(os.getpid())
        self.wakeup, waker = os.pipe()
        os.set_blocking(self.wakeup, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self.poll = select.poll()
        self.poll.register(self.wakeup, select.POLLIN)
        signal.signal(signal.SIGCHLD, self._woken)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_stop_signal)

    def _on_stop_signal(self, *_: object) -> None:
        self.stopping = True

    def _woken(self, *_: object) -> None:
        """Does nothing, but a signal without a handler would not be written to the wake-up pipe."""

    def rest(self, seconds: float) -> None:
        """Wait for an event, at most so long; then reap children and read the control socket."""
        for fd, _ in self.poll.poll(max(0.0, seconds) * 1000):
            if fd == self.wakeup:
                with suppress(BlockingIOError):
                    os.read(fd, 4096)
            else:
                self.hear()
        self.reap()

    def hear(self) -> None:
        """Called when the control socket is readable."""

    def reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if not pid:
                return
            self.on_exit(pid, status)

    def on_exit(self, pid: int, status: int) -> None:
        """Called when a direct child has ended."""

    def rest_until_childless(self, seconds: float, *, unless_told: bool = False) -> bool:
        end = time.monotonic() + seconds
        self.reap()
        while not self.childless and (left := end - time.monotonic()) > 0:
            if unless_told and self.at_once:
                break
            # The end of a grandchild sends no signal to this process.
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
            if self.kill_children() or self.rest_until_childless(0.02):
                return True
        return False

    def kill_children(self) -> bool:
        """Kill children as soon as they are seen: one that keeps forking and exiting is gone before a full scan."""
        for _ in range(200 if self.below.visible else 1):
            for pid in self.below.children():
                # The pid cannot be reused: only this process reaps it.
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
        """Run the command in a new session; returns the system's message if that fails."""
        failed, fail = os.pipe()
        self.group = os.fork()
        if not self.group:
            self._become(command, fail)
        os.close(fail)
        close_stdio()
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
            # No core dumps in the workspace.
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
        """Read "s" (stop), "k" (kill at once), or the end of the socket, which also means stop."""
        try:
            word = os.read(self.control, 64)
        except OSError:
            word = b""
        if not word:
            self.poll.unregister(self.control)
        self.stopping = True
        self.at_once = self.at_once or b"k" in word

    def on_exit(self, pid: int, status: int) -> None:
        if pid == self.group:
            self.status = status

    def end_all(self, grace_s: float) -> list[Seen]:
        """Terminate, wait, then kill until no process is left; returns the processes that could not be killed."""
        if not self.at_once:
            self.signal_all(signal.SIGTERM)
        if self.rest_until_childless(grace_s, unless_told=True) or self.kill_all(INSIST_S):
            return []
        return self.below.running()

    def watch(self) -> str:
        """Wait until the command has ended or is stopped and nothing of it is left; returns a one-line report."""
        while self.status is None and not self.stopping:
            self.rest(LOOK_S)
        left: list[Seen] = []
        if not self.stopping and not self.rest_until_childless(SETTLE_S):
            left = self.below.running()
        grace = self.grace_s if self.stopping else min(self.grace_s, SETTLE_S)
        stuck = [] if self.childless else self.end_all(grace)
        names = ",".join("".join(c for c in seen.name if c in _LETTERS) or "?" for seen in left[:5])
        status = -1 if self.status is None else self.status
        return f"ended {status} {len(left)} {len(stuck)} {names}"

    def run(self, command: list[str]) -> NoReturn:
        """Run the command to its end."""
        failed = self.start(command)
        say(self.control, f"failed {failed}" if failed else self.watch())
        # The keeper takes over processes that could not be killed.
        os._exit(SAID)


class Keeper(Watcher):
    """The supervisor's parent: if the supervisor is killed or stopped, the keeper ends the command's processes."""

    def __init__(self, supervisor: int, parent: int, grace_s: float) -> None:
        super().__init__(parent)
        self.supervisor = supervisor
        self.status: int | None = None
        self.patience = grace_s + INSIST_S + LOOK_S
        """Seconds for the supervisor to end after a request to stop."""

    def on_exit(self, pid: int, status: int) -> None:
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
            say(control, f"lost {0 if ended else len(self.below.running())}")
        # The reader waits for the end of the socket, and must not wait for processes that cannot be killed.
        os.close(control)
        if not self.childless:
            self.kill_all(LINGER_S)
        os._exit(0)

    def _is_stopped(self) -> bool:
        """Whether the supervisor is stopped; only the command would do that."""
        seen = look(self.supervisor) if self.status is None else None
        return seen is not None and seen.state == "T"

    def _signal(self, number: int) -> None:
        if self.status is None:
            # The pid cannot be reused: only this process reaps it.
            with suppress(OSError):
                os.kill(self.supervisor, number)


def say(control: int, line: str) -> None:
    with suppress(OSError):
        os.write(control, f"{line}\n".encode())


def close_stdio() -> None:
    """Redirect stdio to /dev/null, so that the reader sees the end of the output when the last writer has gone."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.close(nothing)


def main(control: str, parent: str, grace_s: str, apart: str, *command: str) -> None:
    """Run one command to its end."""
    line, grace = int(control), float(grace_s)
    os.set_inheritable(line, False)
    linux = Linux()
    linux.rename()
    linux.prctl(SUBREAPER, 1)
    keeper = os.getpid()
    pid = linux.fork_apart() if apart == "apart" else -1
    alone = pid >= 0
    if not alone:
        pid = os.fork()
    if pid:
        close_stdio()
        os.closerange(3, line)
        os.closerange(line + 1, 1 << 16)
        Keeper(pid, int(parent), grace).keep(line)
    linux.prctl(SUBREAPER, 1)
    linux.prctl(DEATH_SIGNAL, signal.SIGKILL if alone else signal.SIGTERM)
    Supervisor(line, 0 if alone else keeper, grace).run(list(command))
