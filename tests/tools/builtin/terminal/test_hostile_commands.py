"""Commands that try to do more than their rules allow, to block the event loop, or to outlive their call."""

from __future__ import annotations

import asyncio
import os
import secrets
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shellbench import Shell, open_shell

import remit
import remit.tools.builtin.terminal.terminal as terminals
from remit import Agent
from remit.testing import ScriptedModel, call, say
from remit.tools.builtin.sandbox.bubblewrap import trial
from remit.tools.builtin.terminal.destructive_commands import disaster
from remit.tools.builtin.terminal.environment import scrub
from remit.tools.builtin.terminal.rule_subjects import MOST_READ, PER_SUBJECT, read_command, subjects
from remit.tools.builtin.terminal.shell_parser import MOST_CHARS
from remit.tools.builtin.terminal.terminal import MOST_COMMAND, make_terminal, terminal
from remit.tools.policy_rules import Subject, decide, parse
from remit.tools.processes.process import Process, launch
from remit.types.messages import JsonObject
from remit.types.sandbox import Sandbox

pytestmark = pytest.mark.real_time

needs_bash = pytest.mark.skipif(not Path("/bin/bash").exists(), reason="no bash here")
needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc here to look into")


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    with open_shell(tmp_path / "ws", monkeypatch) as made:
        yield made


def _verdict(command: str, *rules: str, **args: str) -> str | None:
    """The ruling of these rules on a command."""
    given: JsonObject = {"command": command, **args}
    rule = decide([parse(rule, "test") for rule in rules], subjects(given))
    answer = getattr(rule, "answer", None)
    return answer if isinstance(answer, str) else None


# --- Braces and globs ----------------------------------------------------------------------------

_ALLOWED = (
    "allow terminal(find *)",
    "allow terminal(printf *)",
    "allow terminal(test *)",
    "allow terminal([ *)",
)


@pytest.mark.parametrize(
    "command",
    [
        r"find . {-exec,touch,x,\;}",
        "find . {-delete,}",
        "find . -{delete,x}",
        "find . *",
        "find . -d*",
        "printf {-v,'a[$(touch x)]'} x",
        "printf * x",
        "test {-v,'a[$(touch x)]'}",
        "test *",
        "[ {-v,'a[$(touch x)]'} ]",
        "[ -[v] 'a[$(touch x)]' ]",
        "bash {-c,'touch x'}",
        "bash *",
        "timeout {5,touch} x",
        "timeout [5] touch x",
        "python3 {-,}",
    ],
)
def test_braces_and_globs_cannot_add_hidden_options(command: str) -> None:
    """A pattern does not allow a command whose braces or globs may expand to options outside the pattern."""
    patterns = (*_ALLOWED, "allow terminal(bash *)", "allow terminal(timeout *)", "allow terminal(python3 *)")
    assert _verdict(command, *patterns, "allow terminal(x)") != "allow"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("git {push,--force}", "git push --force"),
        ("mkdir -p a/{b,c}/d", "mkdir -p a/b/d a/c/d"),
        ("cp x{,.bak}", "cp x x.bak"),
        ("echo {a,b}{1,2}", "echo a1 a2 b1 b2"),
        ("echo a{,}", "echo a a"),
        ("echo {,a}", "echo a"),
        ("git show stash@{0} HEAD@{a} {} {a}", "git show stash@{0} HEAD@{a} {} {a}"),
        ("echo '{a,b}' \"{a,b}\" \\{a,b}", "echo {a,b} {a,b} {a,b}"),
        ("echo {'a,b',c}", "echo a,b c"),
        ("X={a,b} env", "X={a,b} env"),
    ],
)
def test_braces_are_read_as_bash_reads_them(command: str, text: str) -> None:
    """Rules see the words that bash expands braces to."""
    assert [(part.text, part.clear) for part in read_command(command)] == [(text, True)]


@pytest.mark.parametrize(
    "command", ["echo {a,{b,c}}", "echo {1..3}", "echo {a,b", "echo }{a,b}", "echo {'',a}"]
)
def test_braces_that_are_not_simple_are_not_clear(command: str) -> None:
    """Nested braces, sequences and unbalanced braces are unclear."""
    assert not all(part.clear for part in read_command(command))


_PIECES = st.lists(
    st.sampled_from(
        ["a", "-v", "{", "}", ",", "..", "'b,'", '"{"', "\\,", "'$'", "{a,b}", "{,c}", "*", "{}", "1"]
    ),
    min_size=1,
    max_size=8,
).map("".join)


@needs_bash
@settings(max_examples=120, deadline=None)
@given(st.lists(_PIECES, min_size=1, max_size=2))
def test_bash_expands_to_the_same_words(given_words: list[str]) -> None:
    """For any clear word with braces, bash expands it to the same words."""
    command = "printf '%s\\n' x " + " ".join(given_words)
    parts = read_command(command)
    if len(parts) != 1 or not parts[0].clear or "*" in command:
        return
    done = subprocess.run(
        ["/bin/bash", "-c", command], env={}, cwd="/", capture_output=True, text=True, check=False
    )
    if done.returncode == 0 and "''" not in parts[0].text:
        assert parts[0].text.split("%s\\n ", 1)[1].split(" ") == done.stdout.splitlines(), command


# --- Endless readings ----------------------------------------------------------------------------


def _fill(unit: str, before: str = "", after: str = "", most: int = MOST_CHARS) -> str:
    return before + unit * ((most - len(before) - len(after)) // len(unit)) + after


# fmt: off
_SHAPES = {
    "options": _fill("c", "bash -", "1"), "recursive": _fill("r", "rm -", "1 x"), "parts": _fill("a;"),
    "runners": _fill("a/ ", "nice " * 5), "finds": _fill("-exec a \\; ", "find "), "depth": _fill("$("),
    "nested": "echo $(" * 39 + "x" * 9000 + ")" * 39, "backticks": _fill("`a`"), "globs": _fill("a*"),
    "braces": _fill("x{a,b,c,d}{a,b,c,d}{a,b,c,d} ", "echo "), "long braces": _fill("x" * 99 + "{,,,}{,,,}{,,,} ", "a "),
    "shells": "bash -c '" + _fill("a;")[:9000] + "'", "bombs": _fill(":(){"), "documents": _fill("<<E "),
    "unclear": _fill("nice a/ b;", "((") , "words": _fill("a "), "lines": _fill("\n"), "watched": _fill("nice a;", "watch '", "'"),
}
# fmt: on


@pytest.mark.parametrize("shape", _SHAPES)
def test_the_readings_of_a_command_are_bounded(shape: str) -> None:
    """For any command, rules are matched against a bounded number of texts of bounded length."""
    parts = read_command(_SHAPES[shape])
    assert sum(len(text) for part in parts for text in (part.text, *part.also)) <= 2 * MOST_READ
    assert len(parts) <= MOST_READ // PER_SUBJECT + 2
    assert not disaster(_SHAPES[shape], parts)


def _steps(command: str) -> int:
    """The number of Python lines that run when a command is read for rules."""
    taken = 0

    def trace(*_: object) -> object:
        nonlocal taken
        taken += 1
        return trace

    sys.settrace(trace)  # pyright: ignore[reportArgumentType]
    try:
        disaster(command, read_command(command))
    finally:
        sys.settrace(None)
    return taken


@pytest.mark.parametrize("shape", _SHAPES)
def test_the_steps_of_a_reading_are_bounded(shape: str) -> None:
    """Reading takes a bounded number of steps, even for commands of the maximum length."""
    assert _steps(_SHAPES[shape] + " ") < 300_000
    assert _steps(_SHAPES[shape] * (MOST_COMMAND // MOST_CHARS)) < 60_000


def test_a_command_that_is_too_long_to_read_is_not_clear() -> None:
    """No pattern allows a command that is too long, and deny rules see its beginning."""
    (part,) = read_command("rm -rf x; " + "a " * MOST_CHARS)
    assert not part.clear
    assert _verdict("rm -rf x; " + "a " * MOST_CHARS, "allow terminal", "deny terminal(rm *)") == "deny"


def test_a_reading_that_is_cut_short_is_not_clear() -> None:
    """If a command was only read in part, no pattern allows it."""
    for shape in ("parts", "runners", "finds", "braces"):
        assert not all(part.clear for part in read_command(_SHAPES[shape])), shape


# --- The folder ----------------------------------------------------------------------------------


async def test_rules_apply_to_the_folder_of_a_call(tmp_path: Path) -> None:
    """A call in another folder must be allowed for that folder too, as for `cd`."""
    (tmp_path / "docs").mkdir()
    lead = Agent("lead", tools=[terminal])
    model = ScriptedModel({"lead": [call("terminal", command="echo hi", cwd="docs"), say("done")]})
    policy = ["allow terminal(echo *)"]
    outcome = await remit.run(lead, "go", model=model, policy=policy, workspace=tmp_path)
    assert not outcome.calls[0].success
    model = ScriptedModel({"lead": [call("terminal", command="echo hi", cwd="docs"), say("done")]})
    policy.append("allow terminal(cd docs*)")
    outcome = await remit.run(lead, "go", model=model, policy=policy, workspace=tmp_path)
    assert outcome.calls[0].success


def test_the_subject_of_a_folder() -> None:
    """The workspace itself has no subject; every other folder is a `cd`, and an invalid one is unclear."""
    for same in ("", ".", "./", "././/."):
        assert subjects({"command": "a", "cwd": same}) == [Subject("a")]
    assert subjects({"command": "a", "cwd": "x/.."}) == [Subject("cd x/.."), Subject("a")]
    assert subjects({"command": "a", "cwd": "x y"}) == [Subject("cd 'x y'"), Subject("a")]
    assert subjects({"command": "a", "cwd": "/"}) == [Subject("cd /"), Subject("a")]
    assert not subjects({"command": "a", "cwd": 3})[0].clear
    assert _verdict("a", "allow terminal", "deny terminal(cd secrets*)", cwd="secrets") == "deny"


async def test_make_terminal_has_rules_for_folders(shell: Shell) -> None:
    """The lists of `make_terminal` also apply to the folder."""
    (shell.workspace / "sub").mkdir()
    shell.tool = make_terminal(allow=["echo *"])
    assert not (await shell.run("echo a", cwd="sub")).ok
    shell.tool = make_terminal(deny=["cd sub"])
    assert not (await shell.run("echo a", cwd="sub")).ok
    assert (await shell.run("echo a")).ok


async def test_git_does_not_use_a_bare_repository_in_a_clone(shell: Shell) -> None:
    """`git status` runs no program from a bare repository among the files of a clone."""
    data = shell.workspace / "data"
    (data / "objects").mkdir(parents=True)
    (data / "refs").mkdir()
    (data / "HEAD").write_text("ref: refs/heads/main\n")
    planted = shell.workspace / "planted"
    (data / "config").write_text(
        f'[core]\nbare = false\nworktree = ..\nfsmonitor = "touch {planted}; false"\n'
    )
    result = await shell.run("git status", cwd="data")
    assert not planted.exists()
    assert not result.ok


# --- Processes that outlive their call -----------------------------------------------------------

_STOPPER = """
    import os, signal, sys, time
    while True:
        for pid in map(int, sys.argv[2:]):
            try:
                os.kill(pid, signal.SIGSTOP)
            except OSError:
                pass
        time.sleep(0.001)
"""
_HOPPER = """
    import os, sys, time
    end = time.monotonic() + 20
    while time.monotonic() < end:
        if os.fork():
            os._exit(0)
"""
_ATTACKS = {
    "without a mark": "env -i setsid python3 -c 'import time; time.sleep(99)' TAG & sleep 0.1; kill -9 $PPID; sleep 99",
    "hopping": "python3 -S hopper.py TAG & sleep 0.1; kill -9 $PPID; sleep 99",
    "stopping the one": "env -i setsid python3 -S stopper.py TAG $PPID & sleep 99",
    "stopping both": "env -i setsid python3 -S stopper.py TAG $PPID $KEEPER & sleep 99",
    "killing the upper": "env -i setsid python3 -c 'import time; time.sleep(99)' TAG & sleep 0.1; kill -9 $KEEPER; sleep 99",
}


def _with(tag: str) -> list[int]:
    """Processes with this word in their command line, without supervisors and keepers."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if tag in (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0"):
                found.append(int(entry.name))
    return found


async def _until(condition: Callable[[], object]) -> None:
    for _ in range(800):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come to that")


def _prepare(shell: Shell, command: str) -> tuple[str, str]:
    tag = f"tag{secrets.token_hex(6)}"
    (shell.workspace / "stopper.py").write_text(textwrap.dedent(_STOPPER))
    (shell.workspace / "hopper.py").write_text(textwrap.dedent(_HOPPER))
    python = os.path.realpath(sys.executable)
    keeper = "KEEPER=$(cut -d' ' -f4 /proc/$PPID/stat); "
    return tag, keeper + command.replace("TAG", tag).replace("python3", python)


@needs_proc
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("attack", _ATTACKS)
async def test_nothing_survives_an_attack_on_a_supervisor(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, attack: str, apart: bool
) -> None:
    """If a command kills or stops its supervisor or its keeper, none of its processes outlives the call."""
    monkeypatch.setattr(terminals, "STOP_S", 0.7)
    shell.tool = make_terminal(timeout_s=0.6, apart=apart)
    tag, command = _prepare(shell, _ATTACKS[attack])
    result = await shell.run(command)
    assert _with(tag) == []
    shell.assert_nothing_left()
    assert not result.ok
    assert "may still be running" not in result.content


@needs_proc
async def test_a_command_that_kills_supervisor_and_keeper_is_reported(shell: Shell) -> None:
    """If supervisor and keeper are killed, processes with the mark are ended, and the result says that more may run."""
    shell.tool = make_terminal(apart=False)
    tag, command = _prepare(
        shell,
        "python3 -S hopper.py TAG & sleep 0.1; kill -STOP $KEEPER; kill -9 $PPID; kill -9 $KEEPER; sleep 99",
    )
    result = await shell.run(command)
    assert _with(tag) == []
    assert "processes that it started may still be running" in result.content
    assert not result.ok


@needs_proc
async def test_supervisors_are_not_killed_by_accident(shell: Shell) -> None:
    """A kill of all Pythons, or by a word in the command line, does not match supervisor and keeper."""
    shell.tool = make_terminal(apart=False)
    said = await shell.run(
        "for p in $PPID $(cut -d' ' -f4 /proc/$PPID/stat); do cat /proc/$p/comm /proc/$p/cmdline; done"
    )
    assert said.content.count("remit-watch") == 2
    assert "python" not in said.content
    assert "cmdline" not in said.content.rpartition("\n")[0]


@needs_proc
async def test_a_closed_process_is_ended_although_its_supervisor_is_stopped(shell: Shell) -> None:
    """Closing a process ends everything it started, even if supervisor and keeper do not answer."""
    tag, command = _prepare(shell, _ATTACKS["stopping both"])
    heard: list[bytes] = []
    launched = launch(
        ["/bin/bash", "-c", f"{command.replace('sleep 99', 'echo up; sleep 99')}"],
        cwd=str(shell.workspace),
        env=dict(os.environ),
    )
    process = Process(launched, heard.append)
    try:
        await _until(lambda: heard and _with(tag))
    finally:
        process.close()
    await _until(lambda: not _with(tag) and not shell.running())
    shell.assert_nothing_left(2)


async def test_commands_that_are_apart_see_only_their_own(shell: Shell) -> None:
    """If the system permits it, a command sees only its own processes; with `apart=False` it sees all."""
    look = f"test -d /proc/{os.getpid()} && grep -q . /proc/{os.getpid()}/stat && echo seen; echo $PPID"
    said = (await shell.run(look)).content.splitlines()
    assert said[0] == "1" or said[0] == "seen"
    shell.tool = make_terminal(apart=False)
    assert (await shell.run(look)).content.splitlines()[0] == "seen"


# --- The rest ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["linux64 rm x", "prlimit rm x", "/lib64/ld-linux-x86-64.so.2 /bin/rm x", "uv run rm x"]
)
def test_a_denied_program_is_found_behind_those_that_run_others(command: str) -> None:
    """A deny rule matches a program that a wrapper program runs."""
    assert _verdict(command, "allow terminal", "deny terminal(rm *)") == "deny"


@pytest.mark.parametrize(
    "command", ["ssh host rm x", "docker exec c rm x", "git bisect run rm x", "git rebase -x 'rm x' y"]
)
def test_a_denied_program_is_found_behind_words_that_run_others(command: str) -> None:
    """A deny rule matches a program after words such as `exec`; a subcommand with the same name does not match."""
    assert _verdict(command, "allow terminal", "deny terminal(rm *)") == "deny"
    for other in ("git rm x", "docker rm x"):
        assert _verdict(other, "allow terminal", "deny terminal(rm *)") == "allow"
    assert _verdict("docker ps -a", "allow terminal(docker ps*)") == "allow"


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        *[
            (name, "x", False)
            for name in ("PASS", "ADMIN_PW", "DBPASS", "SMTP_PASS1", "JWT", "PIN", "MNEMONIC")
        ],
        ("ODBC", "DRIVER=x;UID=sa;PWD=hunter2", False),
        ("LINE", "machine h login u password hunter2", False),
        ("SETTINGS", '{"user": "a", "pw": "hunter2"}', False),
        ("REPORTS", "https://abcdef0123456789abcdef@host/1", False),
        *[(name, "x", True) for name in ("RANDOM_SEED", "PINNED", "SPIN", "PYTHONHASHSEED", "SALTED")],
        ("REMOTE", "ssh://git@host/repository", True),
    ],
)
def test_more_secrets_that_commands_do_not_get(name: str, value: str, kept: bool) -> None:
    """Short names of secrets are recognised, and secrets inside longer values."""
    assert (scrub({name: value}).get(name) == value) is kept


@pytest.mark.parametrize("seconds", [10**9, 10**400])
async def test_no_timeout_is_too_long(shell: Shell, seconds: int) -> None:
    """Any number of seconds is accepted, and capped at one day."""
    assert (await shell.run("echo hi", timeout=seconds)).content == "hi\n(exit code 0)"


@pytest.mark.skipif(trial() is not None, reason=f"no sandbox here: {trial()}")
async def test_a_command_in_a_sandbox_runs_once(shell: Shell) -> None:
    """A command that reads its own report from the pipe is neither run again nor reported as not started."""
    shell.sandbox = Sandbox("workspace-write")
    take = 'for f in /proc/$PPID/fd/*; do timeout 0.05 head -c 6 < "$f"; done >/dev/null 2>&1'
    result = await shell.run(f"echo ran >> count; {take}; true")
    assert (shell.workspace / "count").read_text() == "ran\n"
    assert result.content == "(no output)\n(exit code 0)"
