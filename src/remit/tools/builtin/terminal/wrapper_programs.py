"""Programs that run other programs, and builtins that run or change what their arguments name: as tables.

What they make of a command is in `rule_subjects.py`.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Runner(NamedTuple):
    """A program that runs the command in its own arguments, and which arguments come before that."""

    flags: str = ""
    values: str = ""
    """Options that take the next word, unless they have it already."""
    positions: int = 0
    assigns: bool = False
    """Whether assignments may stand before the command."""


RUNNERS = {
    "sudo": Runner("-n -E -H -k -P -b", "-u -g -p -C -D -R", assigns=True),
    "doas": Runner("-n", "-u -C"),
    "env": Runner("-i -0 - --ignore-environment", "-u -C --unset --chdir", assigns=True),
    "nohup": Runner(),
    "setsid": Runner("-c -f -w --fork --wait --ctty"),
    "nice": Runner("", "-n --adjustment"),
    "ionice": Runner("-t", "-c -n"),
    "timeout": Runner("--foreground --preserve-status -v --verbose", "-k -s --kill-after --signal", 1),
    "stdbuf": Runner("", "-i -o -e --input --output --error"),
    "command": Runner("-p"),
    "builtin": Runner(),
    "exec": Runner("-c -l", "-a"),
    "time": Runner("-p -v"),
    "busybox": Runner(),
    "xargs": Runner(
        "-0 -r -t -x --null --no-run-if-empty --verbose",
        "-n -P -L -s -d -E -a --max-args --max-procs --max-lines --delimiter --arg-file",
    ),
}
RUNS_ANYTHING = frozenset(
    {
        *("watch", "parallel", "script", "su", "runuser", "strace", "ltrace", "gdb", "perf", "valgrind"),
        *("unshare", "nsenter", "chroot", "proot", "systemd-run", "firejail", "bwrap", "fakeroot"),
        *("entr", "rlwrap", "setpriv", "flock", "at", "batch", "ssh-agent", "dbus-run-session"),
        *("xvfb-run", "unbuffer", "chronic", "taskset", "chrt", "numactl", "eval", "trap"),
        *("linux32", "linux64", "setarch", "i386", "x86_64", "prlimit", "choom", "pkexec"),
        *("catchsegv", "toybox", "sg"),
    }
)
LOADER = re.compile(r"ld-(linux|musl|\d).*|ld\.so(\.\d+)?")
RUN_AFTER = {
    **dict.fromkeys(("docker", "podman", "kubectl"), ("exec", "run")),
    **dict.fromkeys(("uv", "poetry", "pipenv", "conda", "hatch", "pdm", "rye"), ("run",)),
    "git": ("run", "-x", "--exec", "foreach"),
    "bundle": ("exec",),
    "jobs": ("-x",),
}
"""Programs that run what follows one of these words; said only to rules that ask or deny."""
RUN_LATER = frozenset({"ssh", "npx", "uvx", "pnpx", "bunx"})
"""Programs that run what one of their words begins; said only to the same."""
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "busybox"})
READ_ALIKE = frozenset({"sh", "bash", "dash", "ash", "rbash"})
"""Shells that read a command as bash does, or not at all."""
INTERPRETERS = re.compile(r"(python|perl|ruby|node|nodejs|php|lua|deno|bun|tclsh|Rscript|pypy)[0-9.]*")
EVALUATING = frozenset(
    {
        *(
            "eval",
            "source",
            ".",
            "alias",
            "unalias",
            "let",
            "trap",
            "enable",
            "bind",
            "complete",
            "compgen",
            "compopt",
        ),
        *("fc", "hash", "mapfile", "readarray", "read", "getopts", "export", "declare", "typeset", "local"),
        *("readonly", "unset", "shopt"),
    }
)
"""Builtins that run their arguments, or change what later words mean."""
TESTING = {"test": ("-v", "-R"), "[": ("-v", "-R"), "printf": ("-",), "wait": ("-p",)}
"""Builtins that run what is in a subscript, with these options."""
CHANGES_PROGRAMS = re.compile(
    r"PATH|ENV|IFS|HOME|SHELL|VISUAL|LESSOPEN|LESSCLOSE|PS4|CDPATH|SHELLOPTS|BASHOPTS"
    r"|(LD|DYLD|GIT|BASH|XDG|SSH)_\w+|(PYTHON|PERL5?|RUBY|NODE|JAVA|JDK)_?\w+"
    r"|\w*(PAGER|EDITOR|BROWSER|ASKPASS|PRELOAD|COMMAND|WRAPPER|RSH|PLUGINS?)"
)
"""Variables by which a program, or the shell, runs another program or other code than it would without them."""
