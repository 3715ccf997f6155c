"""Commands as processes: started under a supervisor, read in pieces, stopped with all their descendants.

The supervisor (`supervisor.py`) is the ancestor of everything that a command starts, and a keeper is its parent. A byte on
a socket, or the end of that socket, tells it to stop, so that the command ends with this process too. If supervisor and
keeper are both killed, only processes with a mark in their environment can be found; `Ended.lost` reports that case.
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
"""Seconds between terminating a command and killing it."""
STOP_S = 2.2
"""Seconds to wait for a stop: less than half of the grace period of a stopped run's tools."""
KILL_S = 2.0
"""Seconds to wait for a command whose supervisor did not answer. STOP_S and KILL_S fit into that grace period."""
OUTSIDE_S = 3.0
"""Seconds of killing a command from this process."""
HURRY_S = 0.3
"""Seconds for the keeper to end what the supervisor did not."""
SWEEP_S = 1.0
QUIET_LOOKS, LOOK_S = 2, 0.01
"""Number of empty scans needed, and seconds between them: during exec, a process has no environment."""
CLOSE_S = 0.5
"""Seconds that closing a process may block before its processes are killed."""
MOST_COMMANDS = 32
"""The most concurrent commands in this process, over all runs; others wait in order. Each is at least three processes."""
COMMANDS = Gate(MOST_COMMANDS)

PIECE = 1 << 18
"""The most bytes per read."""

MARK = "REMIT_COMMAND"
"""A variable in the environment of everything that a command starts; its value is unique per command."""

KILLED = "its supervisor was killed or stopped"

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
    """How a command ended. Nothing of it still runs, except the processes counted in `stuck`."""

    code: int | None = None
    """Its exit code; None if a signal ended it, or it is unknown."""
    signal: int | None = None
    left: int = 0
    """The number of processes that it left running, which were killed."""
    names: tuple[str, ...] = ()
    """The names of the first of these."""
    stuck: int = 0
    """The number of processes that could not be killed because another user owns them."""
    failed: str = ""
    """Why it did not start, or why its end is unknown."""
    lost: bool = False
    """Whether processes of the command may still run."""


def read_ended(line: str) -> Ended:
    """Read a supervisor's report. Never raises."""
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
    """The interpreter itself, not the symlink in a virtual environment, which a command might replace."""
    found = Path(sys.executable).resolve() if sys.executable else None
    if found is None or not found.is_file() or getattr(sys, "frozen", False):
        raise Refused("Commands need a Python interpreter to supervise them, and none was found.")
    return str(found)


@functools.cache
def _program() -> bytes:
    """The source of the supervisor. Read once: commands may be able to change the files."""
    here = Path(__file__)
    sources = [(name, here.with_name(f"{name}.py").read_text(encoding="utf-8")) for name in _SOURCES]
    return _LOAD.replace("SOURCES", repr(sources)).encode()


class Launched(NamedTuple):
    """A started command whose output is not read yet. Closing its socket ends the command."""

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
    """Start a command. Slow on a busy machine, so callers use a thread.

    With `apart`, if the system permits it, the command sees only its own processes, and none of them can outlive it.
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
    """A running command. Call everything except `reap` on the event loop's thread.

    Contract: `ended` is done when nothing of the command runs any more, or `lost` reports that this is unknown. Always call
    `close`, which stops what still runs.
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
        """Wait until nothing of it runs. May be cancelled and called again."""
        return await asyncio.shield(self.ended)

    def stop(self, *, at_once: bool = False) -> None:
        """End everything, with a grace period or at once; `ended` is done afterwards."""
        with suppress(OSError):
            self._control.send(b"k" if at_once else b"s")

    def reap(self) -> None:
        """After the command has ended, wait for its keeper, at most `CLOSE_S`. May be called from any thread."""
        with suppress(subprocess.TimeoutExpired):
            self._keeper.wait(CLOSE_S)

    def close(self) -> None:
        """Release the process. Kills what still runs, and waits for that at most `CLOSE_S`."""
        if self._output >= 0:
            if not self.ended.done():
                # The caller did not wait, so kill at once: no process may outlive this call.
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
        """Kill a command whose supervisor does not answer. Returns at once; `ended` is done if it succeeds."""
        if not self._killing:
            self._killing = True
            threading.Thread(target=self._end_from_outside, name="remit-terminal", daemon=True).start()

    def _end_from_outside(self) -> None:
        keeper = look(self._keeper.pid)
        if keeper is not None:
            # The command may have stopped the keeper; once continued, it ends the supervisor and the other processes.
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
            # A closed loop has already removed the reader.
            with suppress(RuntimeError):
                self._loop.remove_reader(self._output)

    def _hear(self) -> None:
        """Read the supervisor's report and the end of the socket."""
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
            # Keeper and supervisor were killed, so the command's processes were adopted by the system.
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
        """Read the rest of the pipe, bounded: a process that could not be killed may continue to write."""
        with suppress(BlockingIOError, OSError):
            for _ in range(2 * _PIPE_BYTES // PIECE):
                if not self._reading or not (data := os.read(self._output, PIECE)):
                    break
                self._on_data(data)
        self._stop_reading()


def marked(mark: str) -> Iterator[int]:
    """The pids of this user's processes with the mark in their environment."""
    sign = f"{MARK}={mark}".encode()
    # The pattern matches only the pid: a deeper glob raises if a process ends meanwhile.
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if sign in (entry / "environ").read_bytes().split(b"\0"):
                yield int(entry.name)


def sweep(mark: str, group: int = 0, seconds: float = SWEEP_S) -> bool:
    """Kill the group and every process with the mark; returns whether none is left. Used when the supervisor is gone."""
    end = time.monotonic() + seconds
    quiet = 0
    while True:
        # A process that keeps forking and exiting is never seen, but all its forks are in one group.
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
            time.sleep(LOOK_S)  # noqa: TID251 - it runs in its own thread
