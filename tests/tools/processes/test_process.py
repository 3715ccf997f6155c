"""However a command ends, every process that it started has ended too."""

from __future__ import annotations

import asyncio
import resource
import secrets
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from shellbench import Shell, open_shell

import remit
import remit.tools.builtin.terminal.terminal as terminals
import remit.tools.processes.process as processes
from remit import Agent, Limits
from remit.testing import ScriptedModel, call, say
from remit.tools.builtin.terminal.terminal import make_terminal, terminal
from remit.tools.processes.process import KILLED, MARK, Ended, Process, launch, marked, read_ended, sweep

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc here to look into"),
]

_DAEMON = f"{sys.executable} -c 'import os,time; os.fork() and os._exit(0); os.setsid(); os.fork() and os._exit(0); time.sleep(99)'"

_STUBBORN = "bash -c 'trap \"\" TERM INT HUP; while :; do sleep 0.01; done'"

_WAYS = {
    "children": [
        "sleep NAP",
        "bash -c 'sleep NAP; :'",
        "yes | cat > /dev/null",
        "{ sleep NAP & kill -STOP $!; }",
    ],
    "those who have left": [
        *("setsid sleep NAP", "nohup sleep NAP >/dev/null 2>&1", "(sleep NAP &)", "(setsid sleep NAP &)"),
        *(_DAEMON, "env -i /bin/sleep NAP"),
    ],
    "those who ignore signals": [_STUBBORN, f"setsid {_STUBBORN}", f"(setsid nohup {_STUBBORN} &)"],
}


def _started(how: str, nap: int = 99) -> str:
    """A command that starts these processes, prints `here` and continues; all its sleeps have the same number."""
    return f"{' & '.join(_WAYS[how])} & sleep 0.1; echo here; sleep NAP".replace("NAP", str(nap))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with open_shell(tmp_path / "ws", monkeypatch) as made:
        yield made


async def _until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        await asyncio.sleep(0.01)


def _sleepers(nap: int) -> list[str]:
    """Processes that sleep for this many seconds, marked or not."""
    found: list[str] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cmdline").read_bytes() in (
                f"/bin/sleep\0{nap}\0".encode(),
                f"sleep\0{nap}\0".encode(),
            ):
                found.append(entry.name)
    return found


@pytest.mark.parametrize("how", _WAYS)
async def test_a_cancelled_command_leaves_nothing(shell: Shell, how: str) -> None:
    """A cancel ends every process of a command, however it was started, and its output is returned."""
    nap = 10_000 + secrets.randbelow(90_000)
    task = asyncio.create_task(shell.run(_started(how, nap)))
    await _until(lambda: shell.emitted)
    assert len(shell.running()) >= len(_WAYS[how])
    task.cancel()
    result = await task
    shell.assert_nothing_left()
    assert not _sleepers(nap)
    assert not result.ok
    assert result.content.startswith("here\n(stopped")


@pytest.mark.parametrize("how", ["those who have left", "those who ignore signals"])
async def test_a_command_that_timed_out_leaves_nothing(shell: Shell, how: str) -> None:
    """At its timeout a command is ended with all its processes; the result has its output and the reason."""
    shell.tool = make_terminal(timeout_s=0.4)
    result = await shell.run(_started(how))
    shell.assert_nothing_left()
    assert not result.ok
    assert result.content.startswith("here\n(timed out and stopped")


async def test_background_processes_are_ended(shell: Shell) -> None:
    """A command that ends by itself leaves no process behind, and the result names the processes that were ended."""
    result = await shell.run(
        f"echo a; setsid sleep 99 >/dev/null & {_DAEMON}; {_STUBBORN} >/dev/null & exit 3"
    )
    shell.assert_nothing_left()
    assert not result.ok
    status = result.content.splitlines()[-1]
    assert status.startswith("(exit code 3; ")
    assert " left in the background: " in status
    assert "sleep" in status


async def test_the_output_of_process_substitutions_is_kept(shell: Shell) -> None:
    """bash does not wait for a process substitution, but its last output is not lost."""
    result = await shell.run("echo one > >(sleep 0.05; sed s/one/two/)")
    assert result.content == "two\n(exit code 0)"


async def test_500_processes(shell: Shell) -> None:
    """A command that starts 500 processes is cleaned up completely."""
    result = await shell.run("for i in $(seq 500); do sleep 99 & done; echo started")
    shell.assert_nothing_left()
    assert "; ended 500 processes left in the background: sleep, " in result.content


async def test_processes_that_keep_forking_are_killed(shell: Shell) -> None:
    """Processes that constantly replace themselves, each in a new session, are all killed."""
    forker = shell.workspace / "forker.py"
    forker.write_text(
        textwrap.dedent("""
            import os, signal, time
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            end = time.monotonic() + 20
            while time.monotonic() < end:
                if os.fork():
                    os._exit(0)
                os.setsid()
        """)
    )
    result = await shell.run(
        f"for i in 1 2 3 4 5 6; do {sys.executable} -S forker.py & done; sleep 0.2; echo on; wait; sleep 99",
        timeout=1,
    )
    shell.assert_nothing_left()
    assert "(timed out" in result.content


async def test_two_commands_at_once_do_not_touch_each_other(shell: Shell) -> None:
    """Ending one command does not affect another."""
    lasting = asyncio.create_task(shell.run("echo up; until test -e go; do sleep 0.01; done; echo done"))
    await _until(lambda: shell.emitted)
    shell.tool = make_terminal(timeout_s=0.2)
    short = await shell.run("setsid sleep 99 & sleep 99")
    (shell.workspace / "go").touch()
    other = await lasting
    assert "(timed out" in short.content
    assert other.content.startswith("up\ndone\n(exit code 0")


async def test_a_gigabyte_of_output_in_constant_memory(shell: Shell) -> None:
    """However much a command prints, its first and last lines are kept, and memory and events stay bounded."""
    await shell.run("yes | head -c 5000000")
    shell.emitted.clear()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = await shell.run("echo first; yes 'a line of output' | head -c 1G; echo last", timeout=50)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert grown < 32_000_000
    assert result.ok
    assert isinstance(result.details, dict)
    assert result.details["bytes"] == 2**30 + len("first\nlast\n")
    assert len(result.content) < 4_100_000
    assert result.content.startswith("first\na line")
    assert "\n[... 1.1 GB omitted ...]\n" in result.content
    assert "last\n(exit code 0" in result.content[-50:]
    assert sum(map(len, shell.emitted)) < 200_000


async def test_a_command_that_floods_its_output(shell: Shell) -> None:
    """A command that floods its output is ended as fast as any other."""
    shell.tool = make_terminal(timeout_s=0.3)
    result = await shell.run("yes & yes & yes")
    shell.assert_nothing_left()
    assert "(timed out" in result.content[-200:]


async def test_a_killed_supervisor(shell: Shell) -> None:
    """If a command kills its supervisor, the process above ends it."""
    shell.tool = make_terminal(apart=False)
    result = await shell.run("setsid sleep 99 & kill -9 $PPID; sleep 99")
    shell.assert_nothing_left()
    assert "its supervisor was killed" in result.content
    assert not result.ok


async def test_a_stopped_supervisor(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a command stops its supervisor, everything is killed."""
    monkeypatch.setattr(terminals, "STOP_S", 0.2)
    shell.tool = make_terminal(timeout_s=0.3, apart=False)
    result = await shell.run("setsid sleep 99 & kill -STOP $PPID; sleep 99")
    shell.assert_nothing_left()
    assert not result.ok


async def test_killing_remit_ends_the_command(shell: Shell) -> None:
    """When the process that started a command is killed, nothing of the command is left."""
    program = textwrap.dedent(f"""
        import asyncio, os
        from pathlib import Path
        from remit.tools.tool import ToolContext
        from remit.tools.builtin.terminal.terminal import make_terminal, terminal
        ctx = ToolContext(run_id="r", path=(), depth=0, workspace=Path({str(shell.workspace)!r}), deps=None,
                          emit=lambda text: print(text, end="", flush=True), cancelled=lambda: False)
        asyncio.run(terminal({f"echo up; setsid sleep 99 & {_DAEMON} & {_STUBBORN}"!r}, ctx))
    """)
    victim = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)  # noqa: ASYNC220 - nothing else is to run
    assert victim.stdout is not None
    assert await asyncio.to_thread(victim.stdout.readline) == b"up\n"
    await _until(lambda: len(shell.running()) > 4)
    victim.kill()
    victim.wait()
    victim.stdout.close()
    shell.assert_nothing_left(5)


async def test_a_closed_coroutine_ends_its_command(shell: Shell) -> None:
    """A call that is abandoned because it ignores every cancel still ends its command."""
    made = shell.run("echo up; sleep 99")
    task = asyncio.create_task(made)
    await _until(lambda: shell.emitted)
    with suppress(RuntimeError):
        task.get_coro().close()
    task.cancel()
    with suppress(asyncio.CancelledError, RuntimeError):
        await task
    await _until(lambda: not shell.running())


# --- Through a run -------------------------------------------------------------------------------


def _lead(*steps: object) -> tuple[Agent, ScriptedModel]:
    return Agent("lead", tools=[terminal]), ScriptedModel({"lead": [*steps]})  # pyright: ignore[reportArgumentType]


async def test_a_call_that_times_out_ends_its_command(shell: Shell) -> None:
    """When a call times out, its command is ended, and the model reads the output so far."""
    lead, model = _lead(call("terminal", command=f"echo here; {_DAEMON} & {_STUBBORN}"), say("seen"))
    outcome = await remit.run(
        lead,
        "go",
        model=model,
        policy=["allow terminal"],
        workspace=shell.workspace,
        limits=Limits(call_seconds=0.4),
    )
    shell.assert_nothing_left()
    assert outcome.ok
    result = outcome.messages[2].text
    assert "Timed out: terminal did not finish within 0.4 s. It finished later with: here\n(stopped" in result


async def test_a_runs_deadline_ends_its_commands(shell: Shell) -> None:
    """A run past its deadline leaves no process."""
    lead, model = _lead(call("terminal", command=f"setsid sleep 99 & {_STUBBORN}"), say("late"))
    outcome = await remit.run(
        lead,
        "go",
        model=model,
        policy=["allow terminal"],
        workspace=shell.workspace,
        limits=Limits(seconds=1),
    )
    shell.assert_nothing_left()
    assert outcome.status == "timed_out"


async def test_cancelling_a_run_ends_its_commands(shell: Shell) -> None:
    """`cancel` returns when nothing of the run is running, commands included; the output is in its log."""
    lead, model = _lead(call("terminal", command=f"echo here; {_DAEMON} & sleep 99"), say("never"))
    async with remit.start(
        lead, "go", model=model, policy=["allow terminal"], workspace=shell.workspace
    ) as running:
        await _until(lambda: len(shell.running()) > 2)
        await running.cancel("enough")
        shell.assert_nothing_left()
        outcome = await running.outcome()
    assert outcome.status == "cancelled"
    assert outcome.warnings == ()


# --- The parts -----------------------------------------------------------------------------------


async def test_a_process_that_cannot_be_run_says_why(tmp_path: Path) -> None:
    """A missing program is a failure with a message, and its supervisor ends too."""
    process = Process(launch([str(tmp_path / "none")], cwd=str(tmp_path), env={}), lambda data: None)
    try:
        ended = await process.wait()
    finally:
        process.close()
    assert ended.code is None
    assert "No such file" in ended.failed


async def test_commands_are_started_and_reaped_in_another_thread(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Starting and ending a process may take long on a busy machine, and the event loop does not wait for either."""
    where: list[bool] = []
    popen = subprocess.Popen.__init__
    wait = subprocess.Popen.wait

    def started(self: subprocess.Popen[bytes], *args: Any, **named: Any) -> None:
        where.append(threading.current_thread() is threading.main_thread())
        popen(self, *args, **named)

    def waited(self: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        if self.returncode is None:
            where.append(threading.current_thread() is threading.main_thread())
        return wait(self, timeout)

    monkeypatch.setattr(subprocess.Popen, "__init__", started)
    monkeypatch.setattr(subprocess.Popen, "wait", waited)
    assert (await shell.run("true")).ok
    assert where == [False, False]


def test_invalid_supervisor_output() -> None:
    """A line that the supervisor did not write is not an exit code."""
    assert read_ended("ended 768 2 0 sleep,cat\n") == Ended(3, left=2, names=("sleep", "cat"))
    assert read_ended("ended 9 0 1 ") == Ended(signal=9, stuck=1)
    assert read_ended("ended -1 0 0 ") == Ended()
    assert read_ended("failed x: no") == Ended(failed="x: no")
    assert read_ended("lost 2") == Ended(stuck=2, failed=KILLED)
    assert read_ended("") == Ended(failed=KILLED, lost=True)


def test_a_sweep_kills_by_mark_and_nothing_else() -> None:
    """The last resort kills the processes with the mark of one command and no others."""
    mine, other = (
        subprocess.Popen(["/bin/sleep", "99"], env={MARK: mark, "X": "1"}, start_new_session=True)
        for mark in ("remit-test-a", "remit-test-b")
    )
    try:
        assert sweep("remit-test-a")
        assert mine.wait(5) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        for process in (mine, other):
            process.kill()
            process.wait()


def test_a_sweep_looks_more_than_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that is just executing another program has no environment to be recognised by."""
    process = subprocess.Popen(["/bin/sleep", "99"], env={MARK: "remit-test-c"}, start_new_session=True)
    looks: list[list[int]] = []

    def marked(mark: str) -> list[int]:
        looks.append([process.pid] if looks and process.poll() is None else [])
        return looks[-1]

    monkeypatch.setattr(processes, "marked", marked)
    try:
        assert sweep("remit-test-c")
        assert process.wait(5) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()
    assert looks[:2] == [[], [process.pid]]


def test_a_sweep_while_processes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may disappear at any moment while /proc is read."""

    def ended(self: Path) -> bool:
        raise ProcessLookupError(3, "No such process", str(self))

    mark = secrets.token_hex(8)
    environment = {MARK: mark}
    with subprocess.Popen(["/bin/sleep", "20"], env=environment) as process:
        try:
            monkeypatch.setattr(Path, "exists", ended)
            assert list(marked(mark)) == [process.pid]
        finally:
            process.kill()
