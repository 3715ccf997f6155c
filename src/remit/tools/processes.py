"""Commands as processes: started under a supervisor, heard piece by piece, stopped as a whole.

The supervisor (`supervisor.py`) is the parent of everything that a command starts. It is told to stop by a word on a
socket, and by the end of that socket, so that the death of this process is the end of the command too.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from remit.tools.words import Refused

GRACE_S = 0.5
"""Between asking a command to end and killing it."""
STOP_S = 2.2
"""How long a stop is waited for: less than half of the grace that a stopped run gives its tools."""
CLOSE_S = 0.5
"""How long a process that was let go of may keep everybody, until what it started is killed."""
PIECE = 1 << 18
"""Bytes read at once."""

MARK = "REMIT_COMMAND"
"""In the environment of everything that a command starts, with a value of its own for each command."""

_PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031
_ENDED = re.compile(r"ended (-?\d+) (\d+) (\d+) ([\w.+,?-]*)")


class Ended(NamedTuple):
    """How a command ended, after which nothing of it runs but what is `stuck`."""

    code: int | None = None
    """Its exit code; None when a signal ended it, or nobody knows."""
    signal: int | None = None
    left: int = 0
    """Processes that it left running and that were killed."""
    names: tuple[str, ...] = ()
    """What the first of these are called."""
    stuck: int = 0
    """Processes that could not be killed: those of another user."""
    failed: str = ""
    """Why it never began, or why its end is not known."""


def read_ended(line: str) -> Ended:
    """What a supervisor wrote. Never raises."""
    found = _ENDED.match(line)
    if not found:
        why = line.removeprefix("failed ").strip()
        return Ended(failed=why or "what watched over it was killed")
    status, left, stuck = (int(number) for number in found.groups()[:3])
    names = tuple(name for name in found[4].split(",") if name)
    code = ended_by = None
    if status >= 0:
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else None
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return Ended(code, ended_by, left, names, stuck)


@functools.cache
def _python() -> str:
    """The interpreter itself, not the link in a virtual environment, which a command might replace."""
    found = Path(sys.executable).resolve() if sys.executable else None
    if found is None or not found.is_file() or getattr(sys, "frozen", False):
        raise Refused("Commands need a Python program to watch over them, and there is none.")
    return str(found)


@functools.cache
def _program() -> bytes:
    """Read once: the file may lie where commands can write."""
    return Path(__file__).with_name("supervisor.py").read_bytes()


class Process:
    """A command that runs. Everything here is called on the thread of its loop.

    Contract: `ended` is done when nothing of it runs any more. `close` must be called, by which everything is stopped
    that still runs.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        on_data: Callable[[bytes], None],
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_data = on_data
        self._said = b""
        self.ended: asyncio.Future[Ended] = self._loop.create_future()
        self._mark = secrets.token_hex(12)
        self._output, output = os.pipe()
        ours, theirs = socket.socketpair()
        self._control = ours
        source, feed = os.pipe()
        try:
            os.write(feed, _program())
            os.close(feed)
            self._enlarge()
            self._supervisor = subprocess.Popen(  # noqa: S603 - no shell, and the program is absolute
                [_python(), "-I", "-S", "-", str(theirs.fileno()), str(os.getpid()), str(GRACE_S), *argv],
                stdin=source,
                stdout=output,
                stderr=output,
                cwd=cwd,
                env={**env, MARK: self._mark},
                pass_fds=(theirs.fileno(), *pass_fds),
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            os.close(self._output)
            raise
        finally:
            theirs.close()
            os.close(source)
            os.close(output)
        ours.setblocking(False)
        os.set_blocking(self._output, False)
        self._reading = True
        self._loop.add_reader(self._output, self._read)
        self._loop.add_reader(ours.fileno(), self._hear)

    async def wait(self) -> Ended:
        """Until nothing of it runs. May be cancelled and called again."""
        return await asyncio.shield(self.ended)

    def stop(self, *, at_once: bool = False) -> None:
        """Ends everything, politely or at once; `ended` tells when that is done."""
        with suppress(OSError):
            self._control.send(b"k" if at_once else b"s")

    def close(self) -> None:
        """Lets go of it. What still runs is killed, which is waited for, but never long."""
        if self._output >= 0:
            if not self.ended.done():
                # Whoever closes it without waiting has no more time: no process may outlive this.
                self.stop(at_once=True)
                with suppress(RuntimeError):
                    self._loop.remove_reader(self._control.fileno())
            self._control.close()
            self._stop_reading()
            os.close(self._output)
            self._output = -1
            with suppress(subprocess.TimeoutExpired):
                self._supervisor.wait(CLOSE_S)
        if self._supervisor.poll() is None:
            threading.Thread(target=self._supervisor.wait, name="remit-terminal", daemon=True).start()

    def kill(self) -> None:
        """For a supervisor that does not answer: kills whoever has the command's mark, and wakes it."""
        sweep(self._mark, spare=self._supervisor.pid)
        # The command may have stopped it; once it goes on, it finds the others.
        with suppress(OSError):
            self._supervisor.send_signal(signal.SIGCONT)

    def _enlarge(self) -> None:
        if sys.platform == "linux":
            import fcntl  # noqa: PLC0415 - not on every system

            with suppress(OSError):
                fcntl.fcntl(self._output, _SET_PIPE_SIZE, _PIPE_BYTES)

    def _read(self) -> None:
        try:
            data = os.read(self._output, PIECE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if data:
            self._on_data(data)
        else:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            # A loop that is closed already has let go of it.
            with suppress(RuntimeError):
                self._loop.remove_reader(self._output)

    def _hear(self) -> None:
        """The supervisor's one line and then its end."""
        try:
            data = self._control.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        self._said += data
        if data and len(self._said) < 65536:
            return
        self._loop.remove_reader(self._control.fileno())
        self._drain()
        if not self._said.startswith((b"ended", b"failed")):
            # Somebody killed the supervisor, so its wards are orphans of the system.
            sweep(self._mark)
        if not self.ended.done():
            self.ended.set_result(read_ended(self._said.decode("utf-8", "replace")))

    def _drain(self) -> None:
        """Reads what is still in the pipe, and no more: somebody who could not be killed may go on writing."""
        with suppress(BlockingIOError, OSError):
            for _ in range(2 * _PIPE_BYTES // PIECE):
                if not self._reading or not (data := os.read(self._output, PIECE)):
                    break
                self._on_data(data)
        self._stop_reading()


def marked(mark: str) -> Iterator[int]:
    """Processes of this user that have the mark in their environment."""
    sign = f"{MARK}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if sign in entry.read_bytes().split(b"\0"):
                yield int(entry.parent.name)


def sweep(mark: str, *, spare: int = 0) -> None:
    """Kills what has the mark, for as long as there is any: the last resort, without a supervisor."""
    for _ in range(20):
        found = [pid for pid in marked(mark) if pid != spare]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with suppress(OSError):
                    os.kill(pid, number)
        if not found:
            return
