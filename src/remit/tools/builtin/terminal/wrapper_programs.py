"""Tables of programs that run other programs, and of shell builtins that run or change what their arguments name.

`rule_subjects.py` uses them.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Runner(NamedTuple):
    """A program that runs the command in its arguments, and the arguments that may precede that command."""

    flags: str = ""
    values: str = ""
    """Options that take the next word as their value."""
    positions: int = 0
    assigns: bool = False
    """Whether assignments may precede the command."""


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
"""Programs that run the command after one of these words. Only ask and deny rules see that command."""
RUN_LATER = frozenset({"ssh", "npx", "uvx", "pnpx", "bunx"})
"""Programs that run a command starting at one of their words. Only ask and deny rules see that command."""
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "rbash", "busybox"})
READ_ALIKE = frozenset({"sh", "bash", "dash", "ash", "rbash"})
"""Shells that read a command as bash does, or reject it."""
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
"""Builtins that run their arguments, or change the meaning of later words."""
TESTING = {"test": ("-v", "-R"), "[": ("-v", "-R"), "printf": ("-",), "wait": ("-p",)}
"""Builtins that, with these options, run code in an array subscript."""
CHANGES_PROGRAMS = re.compile(
    r"PATH|ENV|IFS|HOME|SHELL|VISUAL|LESSOPEN|LESSCLOSE|PS4|CDPATH|SHELLOPTS|BASHOPTS"
    r"|(LD|DYLD|GIT|BASH|XDG|SSH)_\w+|(PYTHON|PERL5?|RUBY|NODE|JAVA|JDK)_?\w+"
    r"|\w*(PAGER|EDITOR|BROWSER|ASKPASS|PRELOAD|COMMAND|WRAPPER|RSH|PLUGINS?)"
)
"""Variables that make a program or the shell run other programs or code."""
