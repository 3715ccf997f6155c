"""Commands as processes: started under a supervisor, heard piece by piece, stopped as a whole.

The supervisor (`supervisor.py`) is the parent of everything that a command starts, and has a keeper over it. It is told
to stop by a word on a socket, and by the end of that socket, so that the death of this process is the end of the command
too. Who kills supervisor and keeper at once leaves us with what can be found by a mark, and `Ended.lost` says so.
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
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from remit.tasks.semaphore import Gate
from remit.tools.processes.descendants import Below, look, send
from remit.tools.words import Refused

GRACE_S = 0.5
"""Between asking a command to end and killing it."""
STOP_S = 2.2
"""How long a stop is waited for: less than half of the grace that a stopped run gives its tools."""
KILL_S = 2.0
"""How long is waited for the end of a command whose supervisor did not answer; together within that grace."""
OUTSIDE_S = 3.0
"""How long we try to end it ourselves, from outside."""
HURRY_S = 0.3
"""How long the keeper may take to end what the supervisor did not."""
SWEEP_S = 1.0
QUIET_LOOKS, LOOK_S = 2, 0.01
"""How often nothing must be found, and how far apart: a process that is just becoming another has no environment."""
CLOSE_S = 0.5
"""How long a process that was let go of may keep everybody, until what it started is killed."""
MOST_COMMANDS = 32
"""Commands that run at once in this process, all runs together; further ones wait in order. Each is three processes or
more."""
COMMANDS = Gate(MOST_COMMANDS)

PIECE = 1 << 18
"""Bytes read at once."""

MARK = "REMIT_COMMAND"
"""In the environment of everything that a command starts, with a value of its own for each command."""

KILLED = "what watched over it was killed or stopped"

_PIPE_BYTES = 1 << 20
_SET_PIPE_SIZE = 1031
_ENDED = re.compile(r"ended (-?\d+) (\d+) (\d+) ([\w.+,?-]*)")
_BEGUN = re.compile(r"begun (\d+)\n")
_LOST = re.compile(r"lost (\d+)")
_SOURCES = ("descendants", "linux", "supervisor")
_LOAD = """\
import sys
for name, source in SOURCES:
    module = type(sys)(name)
    sys.modules["remit.tools.processes." + name] = module
    exec(compile(source, name + ".py", "exec"), vars(module))
module.main(*sys.argv[1:])
"""


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
    lost: bool = False
    """Whether nobody knows if something of it still runs."""


def read_ended(line: str) -> Ended:
    """What a supervisor wrote. Never raises."""
    found = _ENDED.match(line)
    if taken_over := _LOST.match(line):
        return Ended(stuck=int(taken_over[1]), failed=KILLED)
    if not found:
        why = line.removeprefix("failed ").strip()
        return Ended(failed=why or KILLED, lost=not why)
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
    """Read once: the files may lie where commands can write."""
    here = Path(__file__)
    sources = [(name, here.with_name(f"{name}.py").read_text(encoding="utf-8")) for name in _SOURCES]
    return _LOAD.replace("SOURCES", repr(sources)).encode()


class Launched(NamedTuple):
    """A command that was started and is not listened to yet. What lets go of it ends the command: its socket closes."""

    keeper: subprocess.Popen[bytes]
    control: socket.socket
    output: int
    mark: str


def launch(
    argv: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    apart: bool = False,
) -> Launched:
    """Start a command. On a busy machine this takes a while, so many of them are started in threads.

    With `apart` it sees no processes but its own, where the system permits that; then nothing can survive it, whatever
    it does.
    """
    mark = secrets.token_hex(12)
    ours_out, output = os.pipe()
    ours, theirs = socket.socketpair()
    source, feed = os.pipe()
    how = "apart" if apart else "among others"
    try:
        os.write(feed, _program())
        os.close(feed)
        _enlarge(ours_out)
        keeper = subprocess.Popen(  # noqa: S603 - no shell, and the program is absolute
            [_python(), "-I", "-S", "-", str(theirs.fileno()), str(os.getpid()), str(GRACE_S), how, *argv],
            stdin=source,
            stdout=output,
            stderr=output,
            cwd=cwd,
            env={**env, MARK: mark},
            pass_fds=(theirs.fileno(), *pass_fds),
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        os.close(ours_out)
        raise
    finally:
        theirs.close()
        os.close(source)
        os.close(output)
    return Launched(keeper, ours, ours_out, mark)


def _enlarge(pipe: int) -> None:
    if sys.platform == "linux":
        import fcntl  # noqa: PLC0415 - not on every system

        with suppress(OSError):
            fcntl.fcntl(pipe, _SET_PIPE_SIZE, _PIPE_BYTES)


class Process:
    """A command that runs. Everything here but `reap` is called on the thread of its loop.

    Contract: `ended` is done when nothing of it runs any more, or `lost` says that nobody knows. `close` must be
    called, by which everything is stopped that still runs.
    """

    def __init__(self, launched: Launched, on_data: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_data = on_data
        self._said = b""
        self.ended: asyncio.Future[Ended] = self._loop.create_future()
        self._keeper, self._control, self._output, self._mark = launched
        self._killing = False
        self._control.setblocking(False)
        os.set_blocking(self._output, False)
        self._reading = True
        self._loop.add_reader(self._output, self._read)
        self._loop.add_reader(self._control.fileno(), self._hear)

    async def wait(self) -> Ended:
        """Until nothing of it runs. May be cancelled and called again."""
        return await asyncio.shield(self.ended)

    def stop(self, *, at_once: bool = False) -> None:
        """Ends everything, politely or at once; `ended` tells when that is done."""
        with suppress(OSError):
            self._control.send(b"k" if at_once else b"s")

    def reap(self) -> None:
        """Wait until the keeper of a command that has ended is gone, but not long. From any thread."""
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(CLOSE_S)

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
            self.reap()
        if self._keeper.poll() is None:
            self.kill()

    def kill(self) -> None:
        """For a supervisor that does not answer. Returns at once; `ended` tells when that is done, if it ever is."""
        if not self._killing:
            self._killing = True
            threading.Thread(target=self._end_from_outside, name="remit-terminal", daemon=True).start()

    def _end_from_outside(self) -> None:
        keeper = look(self._keeper.pid)
        if keeper is not None:
            # The command may have stopped it; once it goes on, it ends the supervisor, and then the others.
            for number in (signal.SIGTERM, signal.SIGCONT):
                send(keeper, number)
            if not self._gone(HURRY_S):
                Below(keeper.pid).end(OUTSIDE_S)
                send(keeper, signal.SIGCONT)
        self._keeper.wait()

    def _gone(self, seconds: float) -> bool:
        try:
            self._keeper.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

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
        """The supervisor's lines and then its end."""
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
        said = self._said.decode("utf-8", "replace")
        begun = _BEGUN.match(said)
        ended = read_ended(said[begun.end() :] if begun else said)
        if ended.lost:
            # Somebody killed keeper and supervisor, so their wards are orphans of the system.
            group = int(begun[1]) if begun else 0
            threading.Thread(
                target=self._sweep, args=(ended, group), name="remit-terminal", daemon=True
            ).start()
        else:
            self._end(ended)

    def _sweep(self, ended: Ended, group: int) -> None:
        sweep(self._mark, group)
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end, ended)

    def _end(self, ended: Ended) -> None:
        if not self.ended.done():
            self.ended.set_result(ended)

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
    # Only the numbers by a pattern: looking for what is below one trips over a process that ends meanwhile.
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if sign in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def sweep(mark: str, group: int = 0, seconds: float = SWEEP_S) -> bool:
    """Kills what has the mark, and the group; whether nothing was left. The last resort, when nobody watches."""
    end = time.monotonic() + seconds
    quiet = 0
    while True:
        # One that always forks and ends is gone before it is seen, but all that it forks is in one group.
        if group:
            with suppress(OSError):
                os.killpg(group, signal.SIGKILL)
        found = list(marked(mark))
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in found:
                with suppress(OSError):
                    os.kill(pid, number)
        quiet = 0 if found else quiet + 1
        if quiet == QUIET_LOOKS or time.monotonic() > end:
            return not found
        if not found:
            time.sleep(LOOK_S)  # noqa: TID251 - it has a thread of its own
