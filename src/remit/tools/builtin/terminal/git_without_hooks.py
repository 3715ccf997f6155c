"""git, run without the programs that its settings name: hooks, filters, aliases, helpers.

A rule such as `allow terminal(git status)` allows git, not whatever a repository's settings make of it. For such a
command, `terminal.py` puts this program before git on the PATH. It reads the names of all settings that apply, switches
off those that name a program, and becomes git. The gits that git itself starts come through here too, since this is also
where git looks for its own programs: a submodule has settings of its own.

This file runs as a program, before every git, so it imports little; it is also imported for its table of options.
"""

from __future__ import annotations

import os
import sys

WITH_VALUE = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source", "--shallow-file"}
    | {"--super-prefix"}
)
"""Options before git's command that take the next word, unless they have a value already."""

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
    # An empty driver would take one side without a word; a failing one leaves a conflict.
    ("merge", "driver"): "false",
    ("credential", "helper"): "",
    ("remote", "vcs"): "",
    ("submodule", "update"): "checkout",
    ("hook", "command"): "true",
    ("init", "templatedir"): "",
    ("interactive", "difffilter"): "",
}
"""Settings that name a program, by section and key, and the values that switch them off."""
_OFF_SECTIONS = {"alias": "", "pager": "false"}
_OFF_ENDINGS = (
    *("program", "command", "cmd", "helper", "driver", "pager", "editor", "browser", "askpass", "tunnel"),
    *("gitproxy", "hook"),
)
"""Ends of keys that name a program; a program that fails takes its place."""
_OFF_PATHS = frozenset({"browser", "man", "difftool", "mergetool"})
_FIRST_COUNTS = frozenset({"uploadpack", "receivepack"})
"""Keys of remotes of which git takes the first value, so that no other can take its place."""

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
    # Not file, which runs the hooks of another repository, and nothing that is a program of its own, such as ext.
    "GIT_ALLOW_PROTOCOL": "http:https:git:ssh",
}


def command_at(words: list[str]) -> int:
    """Where git's command stands among the words after `git`: behind the options that are git's own."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in WITH_VALUE else 1
    return min(at, len(words))


def switched_off(name: str) -> str | None:
    """The value that switches a setting off; None for one that names no program."""
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
    """Become git. `program` is what was called, `programs` the folder of git's own programs."""
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
            "remit: git was not run: a rule allows it without programs, and its settings cannot be read."
        )
    if fixed := next(filter(_cannot_be_switched_off, names), ""):
        sys.exit(f"remit: git was not run: a rule allows it without programs, and {fixed} names one.")
    off = {name: value for name in names if (value := switched_off(name)) is not None} | _FIXED
    for number, (name, value) in enumerate(off.items()):
        env |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    env["GIT_CONFIG_COUNT"] = str(len(off))
    os.execve(git, ["git", *words[:start], *_without_programs(words[start:], off)], env)  # noqa: S606 - no shell wanted


def _names_of_settings(git: list[str], env: dict[str, str]) -> list[str] | None:
    """None where git cannot say. Listing settings runs nothing, and git knows best which files they are in."""
    read, write = os.pipe()
    listing = [*git, "config", "--list", "--name-only", "-z"]
    child = os.posix_spawn(git[0], listing, env, file_actions=[(os.POSIX_SPAWN_DUP2, write, 1)])
    os.close(write)
    with open(read, "rb") as file:  # noqa: PTH123 - a descriptor
        names = os.fsdecode(file.read()).split("\0")[:-1]
    return None if os.waitpid(child, 0)[1] else names


def _without_programs(words: list[str], off: dict[str, str]) -> list[str]:
    """A command that shows changes fails where its program is switched off, unless it is told not to want one."""
    if not words or not any(name.lower().startswith("diff.") for name in off):
        return words
    if words[0] in ("blame", "annotate"):
        return [words[0], "--no-textconv", *words[1:]]
    if words[0] in _SHOWS_CHANGES:
        return [words[0], "--no-ext-diff", "--no-textconv", *words[1:]]
    return words


def put_before_git(folder: str, env: dict[str, str]) -> None:
    """Put this program into an empty folder, first on the PATH, as `git`. Does nothing where there is no git.

    Raises Refused where git does not say where its programs are.
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
