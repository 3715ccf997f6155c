"""Run git without the programs that its settings name: hooks, filters, aliases, helpers.

A rule such as `allow terminal(git status)` allows git, not the programs that a repository's settings name. For such a
command, `terminal.py` puts this program before git on the PATH. It reads the names of all settings that apply, disables
those that name a program, and executes git. It is also set as GIT_EXEC_PATH, so that every git started by git passes
through it: a submodule has its own settings.

This file runs as a program before every git, so it imports little. It is also imported for its table of options.
"""

from __future__ import annotations

import os
import sys

WITH_VALUE = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source", "--shallow-file"}
    | {"--super-prefix"}
)
"""Options before git's command that take the next word as their value."""

_FIXED = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "safe.bareRepository": "explicit",
    "log.showSignature": "false",
}
_OFF = {
    ("filter", "clean"): "",
    ("filter", "smudge"): "",
    ("filter", "process"): "",
    ("diff", "textconv"): "",
    ("diff", "command"): "",
    ("diff", "external"): "",
    # An empty driver would silently take one side; a failing one leaves a conflict.
    ("merge", "driver"): "false",
    ("credential", "helper"): "",
    ("remote", "vcs"): "",
    ("submodule", "update"): "checkout",
    ("hook", "command"): "true",
    ("init", "templatedir"): "",
    ("interactive", "difffilter"): "",
}
"""Settings that name a program, by section and key, and the values that disable them."""
_OFF_SECTIONS = {"alias": "", "pager": "false"}
_OFF_ENDINGS = (
    *("program", "command", "cmd", "helper", "driver", "pager", "editor", "browser", "askpass", "tunnel"),
    *("gitproxy", "hook"),
)
"""Endings of keys that name a program; it is replaced by a program that fails."""
_OFF_PATHS = frozenset({"browser", "man", "difftool", "mergetool"})
_FIRST_COUNTS = frozenset({"uploadpack", "receivepack"})
"""Keys of remotes for which git uses the first value, so that a later value cannot override it."""

_SHOWS_CHANGES = frozenset(
    {"diff", "log", "show", "whatchanged", "diff-tree", "diff-index", "diff-files", "reflog"}
)
_ENVIRONMENT = {
    "GIT_EDITOR": "true",
    "GIT_SEQUENCE_EDITOR": "true",
    "GIT_PAGER": "cat",
    "GIT_ASKPASS": "",
    "GIT_PROXY_COMMAND": "",
    "GIT_TERMINAL_PROMPT": "0",
    # Without file, which runs the hooks of another repository, and without protocols that run a program, such as ext.
    "GIT_ALLOW_PROTOCOL": "http:https:git:ssh",
}


def command_at(words: list[str]) -> int:
    """The index of git's command among the words after `git`, after git's own options."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in WITH_VALUE else 1
    return min(at, len(words))


def switched_off(name: str) -> str | None:
    """The value that disables a setting; None if the setting does not name a program."""
    lower = name.lower()
    section, key = lower.partition(".")[0], lower.rpartition(".")[2]
    if (section, key) in _OFF:
        return _OFF[section, key]
    if section in _OFF_SECTIONS:
        return _OFF_SECTIONS[section]
    names_path = section in _OFF_PATHS and key == "path"
    return "false" if names_path or key.endswith(_OFF_ENDINGS) else None


def _cannot_be_switched_off(name: str) -> bool:
    lower = name.lower()
    return lower.startswith("remote.") and lower.rpartition(".")[2] in _FIRST_COUNTS


def main(program: str, git: str, programs: str, words: list[str]) -> None:
    """Execute git. `program` is this program's path, `programs` the folder of git's own programs."""
    if words == ["--exec-path"]:
        sys.stdout.write(f"{programs}\n")
        return
    folder = os.path.dirname(program)  # noqa: PTH120 - pathlib takes too long to import
    env = dict(os.environ) | _ENVIRONMENT | {"GIT_EXEC_PATH": folder}
    env.setdefault("GIT_SSH_COMMAND", "ssh")
    env.pop("GIT_EXTERNAL_DIFF", None)
    env["PATH"] = os.pathsep.join(dict.fromkeys([folder, *env.get("PATH", "").split(os.pathsep), programs]))
    start = command_at(words)
    names = _names_of_settings([git, *words[:start]], env)
    if names is None:
        sys.exit(
            "remit: git was not run: a rule allows it only without external programs, and its settings cannot be read."
        )
    if fixed := next(filter(_cannot_be_switched_off, names), ""):
        sys.exit(
            f"remit: git was not run: a rule allows it only without external programs, and the setting {fixed} names one."
        )
    off = {name: value for name in names if (value := switched_off(name)) is not None} | _FIXED
    for number, (name, value) in enumerate(off.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    env["GIT_CONFIG_COUNT"] = str(len(off))
    os.execve(git, ["git", *words[:start], *_without_programs(words[start:], off)], env)  # noqa: S606 - no shell wanted


def _names_of_settings(git: list[str], env: dict[str, str]) -> list[str] | None:
    """The names of all settings; None if git fails. Listing settings runs no program."""
    read, write = os.pipe()
    listing = [*git, "config", "--list", "--name-only", "-z"]
    child = os.posix_spawn(git[0], listing, env, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)])
    os.close(write)
    with open(read, "rb") as file:  # noqa: PTH123 - a descriptor
        names = os.fsdecode(file.read()).split("\0")[:-1]
    return None if os.waitpid(child, 0)[1] else names


def _without_programs(words: list[str], off: dict[str, str]) -> list[str]:
    """Add options to commands that show changes: they fail if their diff program is disabled without these options."""
    if not words or not any(name.lower().startswith("diff.") for name in off):
        return words
    if words[0] in ("blame", "annotate"):
        return [words[0], "--no-textconv", *words[1:]]
    if words[0] in _SHOWS_CHANGES:
        return [words[0], "--no-ext-diff", "--no-textconv", *words[1:]]
    return words


def put_before_git(folder: str, env: dict[str, str]) -> None:
    """Install this program as `git` in an empty folder, first on the PATH. Does nothing if git is not installed.

    Raises Refused if `git --exec-path` fails.
    """
    import shlex  # noqa: PLC0415 - not for the program
    import shutil  # noqa: PLC0415
    import subprocess  # noqa: PLC0415

    from remit.tools.words import Refused  # noqa: PLC0415

    git = shutil.which("git", path=env.get("PATH"))
    if git is None:
        return
    done = subprocess.run(  # noqa: S603 - the git that the command would run
        [git, "--exec-path"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    programs = done.stdout.strip()
    if done.returncode or not programs:
        raise Refused(f"Not run: `git --exec-path` failed: {done.stderr.strip()}")
    program = os.path.join(folder, "git")  # noqa: PTH118 - text
    start = shlex.join([sys.executable, "-IS", __file__, program, git, programs])
    with open(program, "x", opener=_executable) as file:
        file.write(f'#!/bin/sh\nexec {start} "$@"\n')
    env["PATH"] = f"{folder}{os.pathsep}{env['PATH']}"


def _executable(path: str, flags: int) -> int:
    return os.open(path, flags, 0o700)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
