"""The tool `terminal`: shell commands in the workspace, bounded in time and output, ended with all their processes.

`rule_subjects.py` reads commands for rules, `tools/processes/process.py` runs and ends them,
`tools/builtin/sandbox/bubblewrap.py` isolates them, and `git_without_hooks.py` limits git.
"""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import anyio

import remit.history.journal_files as journal_files
import remit.tasks.threads as threads
import remit.tools.builtin.terminal.sandbox_report as sandbox_report
from remit.errors import UsageError
from remit.tools.builtin.sandbox.bubblewrap import cage
from remit.tools.builtin.terminal.destructive_commands import disaster
from remit.tools.builtin.terminal.environment import scrub, without
from remit.tools.builtin.terminal.git_without_hooks import put_before_git
from remit.tools.builtin.terminal.output import Kept, Pieces
from remit.tools.builtin.terminal.rule_subjects import read_command, read_folder, runs_git, subjects
from remit.tools.builtin.workspace import Workspace
from remit.tools.policy_rules import Rule, Subject
from remit.tools.processes.process import COMMANDS, KILL_S, STOP_S, Ended, Process, launch
from remit.tools.result import ToolResult
from remit.tools.tool import Tool, ToolContext, tool
from remit.tools.words import Refused, count, trouble
from remit.types.messages import Json, JsonObject
from remit.types.text import NO_OUTPUT, count_lines, shorten

T = TypeVar("T")

INLINE_CHARS = 30_000
MOST_COMMAND = 100_000
"""The most bytes of a command: Linux rejects arguments above 128 KiB."""
MOST_SECONDS = 24 * 3600
SLOW_TEXT = 200_000
"""Output above this many bytes is turned into text in a thread."""

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/run/current-system/sw/bin/bash", "/bin/sh")


def make_terminal(
    *,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    env: Sequence[str] = (),
    timeout_s: float | None = None,
    apart: bool = True,
) -> Tool:
    """Make a `terminal` tool with your own settings.

    With `allow`, every part of a command must match one of these patterns ("git *", or "git:*" for git with any
    arguments). A part that matches a pattern of `deny` is refused. `env` lists variables (or patterns of names) that
    commands get even if they look like secrets. `timeout_s` is the timeout of one command; None means the run's limit.
    If remit runs as root, commands see only their own processes, so that none of them can outlive the command; with
    `apart=False` commands see, and may end, other processes.
    """
    rules = _Rules(_patterns("allow", allow), _patterns("deny", deny))
    passed = _patterns("env", env)
    if timeout_s is not None and not 0 < timeout_s <= MOST_SECONDS:
        raise UsageError(f"make_terminal: timeout_s must be a number of seconds above 0, not {timeout_s!r}.")

    async def terminal(
        command: str,
        ctx: ToolContext,
        *,
        cwd: str = ".",
        timeout: int | None = None,  # noqa: ASYNC109 - models set it
    ) -> ToolResult:
        """Run a bash command in the workspace. Returns stdout and stderr together.

        There is no terminal and no stdin: use non-interactive options. When the command ends, every process it started is
        ended too, so a server cannot run until a later call. Each call is a new shell: `cd` and variables are not kept.
        Other processes may be hidden.

        Args:
            command: The bash command.
            cwd: The folder to run it in, relative to the workspace.
            timeout: Timeout in seconds; defaults to the run's limit for one call.
        """
        try:
            seconds = _seconds(timeout, timeout_s)
            parts = rules.check(command, cwd)
            made = _Call(command, ctx, seconds, passed, apart=apart)
            # A rule allows git alone. With a person's approval, or in a sandbox, git may run other programs.
            ruled = ctx.allowed_by == "pattern" or (bool(rules.allow) and ctx.allowed_by != "person")
            made.plain_git = ruled and ctx.sandbox.files == "open" and any(map(runs_git, parts))
            return await made.run(cwd)
        except Refused as refusal:
            return ToolResult(str(refusal), ok=False)
        except OSError as error:
            return ToolResult(f"Not run: {trouble(error, 'the command')}", ok=False)

    made = tool(
        terminal,
        tier="confirm",
        # The command's own timeout comes first and keeps its output; this one is for a command that does not stop.
        timeout_s=None if timeout_s is None else timeout_s + 2 * STOP_S,
        display_name="Terminal",
        subjects=subjects,
        summarise=_summarise,
        inline_chars=INLINE_CHARS,
    )
    made.gate = COMMANDS
    return made


def _patterns(what: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise UsageError(f"make_terminal: {what} must be a list of strings, not {given!r}.")
    items = cast("Sequence[object]", given)
    if not all(isinstance(item, str) and item for item in items):
        raise UsageError(f"make_terminal: {what} must be a list of strings, not {given!r}.")
    return tuple(cast("Sequence[str]", items))


def _seconds(asked: int | None, most: float | None) -> float | None:
    if asked is not None and asked < 1:
        raise Refused(f"timeout must be at least 1 second, not {asked}.")
    # The event loop's clock cannot handle every number that a model may send.
    asked = None if asked is None else min(asked, MOST_SECONDS)
    return min((s for s in (asked, most) if s is not None), default=None)


# --- Permission ----------------------------------------------------------------------------------


class _Rules(NamedTuple):
    """The patterns of `make_terminal`, applied in addition to the run's policy."""

    allow: tuple[str, ...]
    deny: tuple[str, ...]

    def check(self, command: str, cwd: str) -> list[Subject]:
        """The parts of the command. Raises Refused if one is not allowed."""
        if not command.strip():
            raise Refused("The command is empty.")
        if "\0" in command:
            raise Refused("A command cannot contain a NUL character.")
        if len(command.encode("utf-8", "replace")) > MOST_COMMAND:
            raise Refused(
                f"The command is too long ({len(command):,} characters). Write it to a file and run the file."
            )
        parts = read_command(command)
        if said := disaster(command, parts):
            raise Refused(
                f"Refused: this command would {said}. remit never runs such a command; use a narrower one."
            )
        for part in (*read_folder(cwd), *parts):
            self._check_part(part)
        return parts

    def _check_part(self, part: Subject) -> None:
        """Apply the patterns like a policy in which no person can be asked."""
        shown = shorten(part.text, 200, 197)
        denying = [Rule("deny", "terminal", pattern) for pattern in self.deny]
        if found := next((rule for rule in denying if rule.matches(part)), None):
            raise Refused(f"Refused: `{shown}` matches the denied pattern {found.pattern!r}.")
        allowing = [Rule("allow", "terminal", pattern) for pattern in self.allow]
        if any(rule.may_match(part) for rule in denying) or (allowing and not part.clear):
            listed = f" Allowed: {', '.join(self.allow)}." if allowing else ""
            listed += f" Denied: {', '.join(self.deny)}." if denying else ""
            raise Refused(
                f"Refused: remit cannot determine what `{shown}` would run. Use simple, separate commands.{listed}"
            )
        if allowing and not any(rule.matches(part) for rule in allowing):
            raise Refused(f"Refused: `{shown}` is not allowed. Allowed: {', '.join(self.allow)}.")


# --- One call ------------------------------------------------------------------------------------


class _Call:
    """One command, from its start to its result."""

    def __init__(
        self, command: str, ctx: ToolContext, seconds: float | None, passed: Sequence[str], *, apart: bool
    ) -> None:
        self.command = command
        self.ctx = ctx
        self.seconds = seconds
        # A sandbox already hides other processes.
        self.apart = apart and ctx.sandbox.is_open
        self.env = scrub(os.environ, passed)
        if not ctx.sandbox.is_open:
            # Even if `env=` names it: a process with a journal's password can approve calls.
            self.env = without(self.env, [journal.password for journal in journal_files.used()])
        self.loop = asyncio.get_running_loop()
        self.kept = Kept()
        self.timed_out = False
        self.cancelled = False
        self.planted: list[str] = []
        self.library = ""
        self.plain_git = False
        """Whether git runs without the programs named in its settings."""

    async def run(self, cwd: str) -> ToolResult:
        with Workspace(self.ctx.workspace) as workspace:
            place = workspace.find_folder(cwd)
            folder = workspace.real.joinpath(*place.parts)
            root = workspace.real
        began = self.loop.time()
        pieces = Pieces(self.ctx.emit)
        with ExitStack() as stack:
            stack.callback(pieces.close)
            if self.plain_git:
                made = stack.enter_context(tempfile.TemporaryDirectory(prefix="remit-git-"))
                await self._in_thread(lambda: put_before_git(made, self.env))
            ended = await self._attempts(root, str(folder), pieces)
        return await self._result(ended, self.loop.time() - began)

    async def _attempts(self, root: Path, folder: str, pieces: Pieces) -> Ended:
        """Run the command. Retry a sandbox that could not be set up: a path that it covers may have disappeared."""

        def hear(data: bytes) -> None:
            self.kept.add(data)
            pieces.add(data)

        if self.ctx.sandbox.is_open:
            return await self._once([_shell(), "-c", self.command], folder, hear, ())
        for last in (False, False, True):
            ended = await self._caged(root, folder, hear)
            # Retry only if it is certain that the command never started.
            if (
                last
                or ended.failed != sandbox_report.NOT_BEGUN
                or self.cancelled
                or not sandbox_report.is_bash(_shell())
            ):
                break
            self.kept = Kept()
        return ended

    async def _caged(self, root: Path, folder: str, hear: Callable[[bytes], None]) -> Ended:
        # Not for programs outside the sandbox: commands may have written to these folders.
        self.library = self.env.pop("LD_LIBRARY_PATH", self.library)
        held = await self._in_thread(lambda: cage(self.ctx.sandbox, root, folder, self.library))
        shell = _shell()
        heard, report = sandbox_report.open_line(shell)
        said = b""
        if self.ctx.sandbox.files != "open":
            self.env["TMPDIR"] = "/tmp"  # noqa: S108 - a private one
            self.env.pop("XDG_RUNTIME_DIR", None)
        try:
            argv = [*held.before, *sandbox_report.words(shell, self.command, report)]
            ended = await self._once(argv, "/", hear, (report, *held.fds))
        finally:
            for fd in (report, *held.fds):
                os.close(fd)
            os.set_blocking(heard, False)
            with suppress(BlockingIOError):
                said = os.read(heard, 4096)
            os.close(heard)
            self.planted += await self._in_thread(held.planted)
        return sandbox_report.with_report(ended, said)

    async def _once(
        self, argv: Sequence[str], folder: str, hear: Callable[[bytes], None], fds: Sequence[int]
    ) -> Ended:
        if self.cancelled:
            return Ended(failed="the command was not started")
        env, apart = self.env, self.apart
        # In a thread: on a busy machine this takes a while and would block the event loop.
        launched = await self._in_thread(lambda: launch(argv, cwd=folder, env=env, pass_fds=fds, apart=apart))
        process = Process(launched, hear)
        try:
            if not self.cancelled:
                await self._wait(process)
            ended = await self._stop(process)
            if process.ended.done():
                await self._in_thread(process.reap)
            return ended
        finally:
            process.close()

    async def _wait(self, process: Process) -> None:
        try:
            await asyncio.wait({process.ended}, timeout=self.seconds)
            self.timed_out = not process.ended.done()
        except asyncio.CancelledError:
            # Return the output so far instead of raising.
            self.cancelled = True

    async def _stop(self, process: Process) -> Ended:
        """Stop the process if it still runs, and return how it ended.

        Takes at most `STOP_S` + `KILL_S`, however often it is cancelled.
        """
        if not process.ended.done():
            process.stop()
            if not await self._ended_within(process, STOP_S):
                process.kill()
                await self._ended_within(process, KILL_S)
        if process.ended.done():
            return process.ended.result()
        return Ended(failed="the command did not stop", lost=True)

    async def _ended_within(self, process: Process, seconds: float) -> bool:
        end = self.loop.time() + seconds
        with anyio.CancelScope(shield=True):
            while not process.ended.done() and (left := end - self.loop.time()) > 0:
                try:
                    await asyncio.wait({process.ended}, timeout=left)
                except asyncio.CancelledError:
                    # After a second cancel, kill at once.
                    self.cancelled = True
                    process.stop(at_once=True)
        return process.ended.done()

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run slow work in a thread and wait for it, even when cancelled."""
        job = threads.start(work, self.loop, name="terminal", urgent=True)
        with anyio.CancelScope(shield=True):
            while not job.done_future.done():
                try:
                    await job.wait()
                except asyncio.CancelledError:
                    self.cancelled = True
        return job.result()

    async def _result(self, ended: Ended, seconds: float) -> ToolResult:
        slow = self.kept.total > SLOW_TEXT
        text = (await self._in_thread(self.kept.text) if slow else self.kept.text()).rstrip("\n") or NO_OUTPUT
        status = self._status(ended, seconds)
        details: JsonObject = {
            "exit_code": ended.code,
            "signal": None if ended.signal is None else _name(ended.signal),
            "seconds": round(seconds, 3),
            "bytes": self.kept.total,
            "timed_out": self.timed_out,
            "lines": count_lines(text) if self.kept.total else 0,
        }
        ok = ended.code == 0 and not (self.timed_out or self.cancelled or ended.failed)
        return ToolResult(f"{text}\n{status}", ok=ok, details=details)

    def _status(self, ended: Ended, seconds: float) -> str:
        # Whole seconds, and nothing below one, so that a command has the same result each time.
        after = f" after {round(seconds):,} s" if seconds >= 1 else ""
        if ended.lost and (self.timed_out or self.cancelled):
            how = f"{'timed out' if self.timed_out else 'cancelled'}{after}, but {ended.failed}"
        elif self.timed_out:
            how = f"timed out and stopped{after}"
        elif self.cancelled:
            how = f"stopped{after}: the run was cancelled, or the call timed out"
        elif ended.failed:
            how = f"failed: {ended.failed}"
        elif ended.signal is not None:
            how = f"ended by {_name(ended.signal)}{after}"
        elif ended.code is None:
            how = f"exit code unknown{after}"
        else:
            how = f"exit code {ended.code}{_hint(ended.code)}{after}"
        notes = [how, *_notes(ended)]
        if ended.code != 0 and self.plain_git:
            notes.append(
                "git was allowed by a rule, so it ran without hooks, filters, aliases and other programs"
            )
        sandbox = self.ctx.sandbox
        if ended.code != 0 and not sandbox.is_open:
            # The sandbox may be the reason for the failure.
            notes.append(f"in a sandbox: {sandbox.files}, {'with' if sandbox.network else 'no'} network")
        return f"({'; '.join([*notes, *self.planted])})"


def _notes(ended: Ended) -> list[str]:
    notes: list[str] = []
    if ended.left:
        names = ", ".join(ended.names) + (", ..." if ended.left > len(ended.names) else "")
        notes.append(f"ended {count(ended.left, 'process', 'processes')} left in the background: {names}")
    if ended.stuck:
        notes.append(
            f"{count(ended.stuck, 'process', 'processes')} could not be ended: owned by another user"
        )
    if ended.lost:
        notes.append("processes that it started may still be running")
    return notes


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _hint(code: int) -> str:
    return f" (128 + {_name(code - 128)})" if code - 128 in signal.valid_signals() else ""


def _summarise(result: ToolResult) -> str:
    about: object = result.details
    details = cast("dict[str, Json]", about) if isinstance(about, dict) else {}
    if result.ok and isinstance(lines := details.get("lines"), int):
        return count(lines, "line") if lines else "done"
    if details.get("timed_out"):
        return "timed out"
    if details.get("signal"):
        return str(details["signal"])
    if details.get("exit_code"):
        return f"exit code {details['exit_code']}"
    return shorten(result.content.split("\n", 1)[0], 80, 77)


# --- The shell -----------------------------------------------------------------------------------


@functools.cache
def _shell() -> str:
    """The path of bash, or of sh. The PATH comes last: commands may be able to write to its folders."""
    if os.name != "posix":
        raise Refused("terminal needs a Unix system.")
    found = next((shell for shell in _SHELLS if Path(shell).is_file()), shutil.which("bash") or "")
    if not found:
        raise Refused("terminal needs bash or sh, and neither was found.")
    return found


terminal = make_terminal()
