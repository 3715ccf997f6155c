"""A report from inside a sandbox: whether the command started, and which processes it left running."""

from __future__ import annotations

import os
import re
import socket

from remit.tools.processes.process import Ended

NOT_BEGUN = "the sandbox could not be set up"

_REPORT = """\
echo begun >&FD
exec 2>/dev/null
"$0" -c "$1" 2>&1 FD>&-
code=$?
for round in 1 2 3 4 5 6 7 8; do
  left=0 names=
  for place in /proc/[0-9]*; do
    case ${place#/proc/} in 1|$$) continue;; esac
    IFS= read -r line < "$place/stat" || continue
    rest=${line##*) }
    case $rest in Z*|X*) continue;; esac
    name=${line#*(}
    left=$((left + 1)) names=$names,${name%)*}
  done
  [ $left = 0 ] && break
  sleep 0.02
done
echo "left $left ${names#,}" >&FD
exit $code
"""
"""A shell around the command. Only processes inside a sandbox can see what is left at the end."""


def is_bash(shell: str) -> bool:
    return shell.endswith("bash")


def open_line(shell: str) -> tuple[int, int]:
    """The descriptors to read and to write the report. The caller closes both."""
    if not is_bash(shell):
        return os.pipe()
    # Not a pipe: a command could open a pipe through /proc and read the report first.
    ours, theirs = socket.socketpair()
    return ours.detach(), theirs.detach()


def words(shell: str, command: str, fd: int) -> list[str]:
    """The command line of the shell that runs the command and writes the report."""
    if not is_bash(shell):
        # Other shells have no descriptors above 9.
        return [shell, "-c", f'echo begun >/proc/self/fd/{fd}; exec "$0" -c "$1"', shell, command]
    return [shell, "-c", _REPORT.replace("FD", str(fd)), shell, command]


def with_report(ended: Ended, said: bytes) -> Ended:
    """`ended` with the data of the report."""
    if not said.startswith(b"begun"):
        return ended if ended.failed or ended.code is None else ended._replace(failed=NOT_BEGUN)
    found = re.search(r"^left (\d{1,6}) ([\w.+, -]*)$", said.decode("utf-8", "replace"), re.MULTILINE)
    names = tuple(found[2].split(",")[:5]) if found and found[2] else ()
    return ended._replace(left=int(found[1]) if found else 0, names=names)
