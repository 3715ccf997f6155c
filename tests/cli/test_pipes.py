"""Standard streams that are closed, and readers that go away: `remit ... | head`, `remit ... >&-`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from runbench import project, remit
from terminals import environment

import remit.cli.exits as exits
from remit.cli.main import main
from remit.testing import ScriptedModel, say

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(sys.platform == "win32", reason="needs descriptors as POSIX has them"),
]

REMIT = f"'{sys.executable}' -m remit"

THINKS = """
import sys
from remit.cli.main import main
from remit.testing import *
model = ScriptedModel([call("ls"), say("never", delay=3600)])
sys.exit(main(sys.argv[1:], models={"scripted": model}))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return project(tmp_path, monkeypatch)


def shell(folder: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script],
        cwd=folder, env=environment(folder.parent), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def without_reader(folder: Path, *args: str) -> subprocess.CompletedProcess[bytes]:
    """`remit ARGS` with a pipe without a reader as its output."""
    read, write = os.pipe()
    os.close(read)
    try:
        return subprocess.run(
            [sys.executable, "-m", "remit", *args],
            cwd=folder, env=environment(folder.parent), stdout=write, stderr=subprocess.PIPE, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(write)


# --- Readers that go away -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args",
    [
        ("--help",),
        ("run", "--help"),
        ("runs",),
        ("runs", "--json"),
        ("show",),
        ("show", "last", "--events", "--json"),
        ("doctor",),
        ("agents", "--json"),
    ],
)
def test_a_closed_pipe_ends_a_command_quietly(folder: Path, args: tuple[str, ...]) -> None:
    """`remit ... | head` ends like `git log | head`: exit code 141 and nothing on standard error."""
    main(["run", "Go", "--model", "m", "-q"], models={"m": ScriptedModel([say("Fine.")])})
    done = without_reader(folder, *args)
    assert (done.returncode, done.stderr) == (exits.OUTPUT_CLOSED, b"")


def test_an_unread_answer_is_in_the_journal(folder: Path) -> None:
    """A run whose answer cannot be printed ends with 141 and without a traceback; it can be shown and resumed."""
    for form in ("text", "json", "stream-json"):
        done = without_reader(folder, "demo", "--fast", "--output-format", form)
        assert done.returncode == exits.OUTPUT_CLOSED
        assert re.search(rb"remit (show|resume) [a-z2-9]{10}", done.stderr)
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_a_run_stops_when_its_reader_is_gone(folder: Path, form: str) -> None:
    """When the reader of the output is gone, the tree is cancelled, even while its model is silent, and can be resumed."""
    argv = [sys.executable, "-c", THINKS, "run", "Go", "--model", "scripted", "--output-format", form]
    with subprocess.Popen(
        argv, cwd=folder, env=environment(folder.parent), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        if form == "stream-json":
            assert process.stdout.readline().startswith(b'{"kind":"run_started"')
        process.stdout.close()
        said = process.stderr.read().decode()
        assert process.wait(30) == exits.OUTPUT_CLOSED
    assert "Cancelled by the caller: the reader of its output is gone.\nResume: remit resume " in said
    assert "Traceback" not in said
    again = remit("resume", "last", "--model", "scripted", model=ScriptedModel([say("And the rest.")]))
    assert (again.code, again.out) == (0, "And the rest.\n")


def test_watch_ends_when_its_reader_is_gone(folder: Path) -> None:
    """`remit watch | head` does not wait for the end of the run; the run continues."""
    environ = environment(folder.parent)
    argv = [sys.executable, "-c", THINKS, "run", "Go", "--model", "scripted"]
    with subprocess.Popen(
        argv, cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stderr is not None
        assert b"started" in running.stderr.readline()
        done = without_reader(folder, "watch")
        assert done.returncode == exits.OUTPUT_CLOSED
        assert running.poll() is None
        running.terminate()
        running.communicate(timeout=30)


def test_unread_errors(folder: Path) -> None:
    """A closed standard error changes neither the exit code nor standard output."""
    wrong = shell(folder, f"({REMIT} show nope; echo $? >&3) 3>&1 >/dev/null 2> >(true)")
    assert wrong.stdout == "2\n"
    done = shell(folder, f"{REMIT} demo --fast 2> >(true)")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "# Survey of `.`")


# --- Closed from the start ------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_a_closed_output_is_the_null_device(folder: Path, form: str) -> None:
    """With `>&-` a command works and ends as with `>/dev/null`."""
    done = shell(folder, f"{REMIT} demo --fast --quiet --output-format {form} >&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_standard_error_is_the_null_device(folder: Path) -> None:
    """With `2>&-` the exit code and the answer are the same."""
    done = shell(folder, f"{REMIT} demo --fast 2>&-")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "# Survey of `.`")
    assert shell(folder, f"{REMIT} show nope 2>&-").returncode == exits.WRONG_USE


def test_a_closed_input_is_empty(folder: Path) -> None:
    """With `<&-` standard input counts as an empty file."""
    done = shell(folder, f"{REMIT} send last - <&-")
    assert done.returncode == exits.WRONG_USE
    assert done.stderr.startswith("The message is empty.")


def test_the_journal_gets_no_standard_descriptor(folder: Path) -> None:
    """With all three streams closed the journal's files get descriptors above 2, because commands write to 1 and 2."""
    script = (
        "import os, sys\nfrom remit.cli.main import main\nfrom remit.testing import *\n"
        "class Looking:\n"
        "    name = 'm'\n"
        "    async def reply(self, request, emit):\n"
        "        self.seen = [os.readlink(f'/proc/self/fd/{n}') for n in (0, 1, 2)]\n"
        "        return await ScriptedModel([say('Fine.')]).reply(request, emit)\n"
        "model = Looking()\n"
        "code = main(['run', 'Go', '--model', 'm', '-q'], models={'m': model})\n"
        "open('seen', 'w').write(' '.join([str(code), *model.seen]))\n"
    )
    (folder / "look.py").write_text(script, encoding="utf-8")
    shell(folder, f"'{sys.executable}' look.py <&- >&- 2>&-")
    assert (folder / "seen").read_text(encoding="utf-8") == "0 /dev/null /dev/null /dev/null"
