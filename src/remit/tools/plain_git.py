"""git, run without the programs that its settings name: hooks, filters, aliases, helpers.

A rule such as `allow terminal(git status)` allows git, not whatever a repository's settings make of it. For such a
command, `terminal.py` puts this program before git on the PATH. It reads the names of all settings that apply, switches
off those that name a program, and becomes git. Programs that git starts come through here too, since it is also where
git looks for itself: a submodule has settings of its own.

This file runs as a program (standard library only) and is imported for its table of options.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
import sys
from collections.abc import Generator, Iterable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager

WITH_VALUE = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--config-env", "--attr-source", "--shallow-file"}
    | {"--super-prefix"}
)
"""Options before git's command that take the next word, unless they have a value already."""

_FIXED = (
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("safe.bareRepository", "explicit"),
    ("log.showSignature", "false"),
)
_OFF = (
    (r"filter\..*\.(clean|smudge|process)", ""),
    (r"diff\..*\.(textconv|command)|diff\.external", ""),
    # An empty driver would take one side without a word; a failing one leaves a conflict.
    (r"merge\..*\.driver", "false"),
    (r"alias\..*", ""),
    (r"credential\.(.*\.)?helper", ""),
    (r"remote\..*\.uploadpack", "git-upload-pack"),
    (r"remote\..*\.receivepack", "git-receive-pack"),
    (r"remote\..*\.vcs", ""),
    (r"submodule\..*\.update", "checkout"),
    (r"hook\..*\.command", "true"),
    (r"init\.templatedir", ""),
    (
        r"pager\..*|.*(program|command|cmd|helper|driver|pager|editor|browser|askpass|tunnel|gitproxy)",
        "false",
    ),
    (r"interactive\.difffilter|.*packobjectshook|(browser|man|difftool|mergetool)\..*\.path", "false"),
)
"""Settings that name a program, by git's manual, and the value that switches each off. The first that matches counts."""

_FLAGS = re.IGNORECASE | re.DOTALL
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


def command_at(words: Sequence[str]) -> int:
    """Where git's command stands among the words after `git`: behind the options that are git's own."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in WITH_VALUE else 1
    return min(at, len(words))


def switched_off(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The settings among these that name a program, each with the value that switches it off."""
    for name in names:
        value = next((off for pattern, off in _OFF if re.fullmatch(pattern, name, _FLAGS)), None)
        if value is not None:
            yield name, value


def main(git: str, programs: str, words: Sequence[str]) -> None:
    """Become git. `programs` is where git's own programs are."""
    if list(words) == ["--exec-path"]:
        sys.stdout.write(f"{programs}\n")
        return
    folder = os.path.dirname(os.path.abspath(os.environ["REMIT_PLAIN_GIT"]))  # noqa: PTH100, PTH120 - no links followed
    env = dict(os.environ) | _ENVIRONMENT | {"GIT_EXEC_PATH": folder}
    env.setdefault("GIT_SSH_COMMAND", "ssh")
    env.pop("GIT_EXTERNAL_DIFF", None)
    start = command_at(words)
    names = _names_of_settings(git, words[:start], env)
    if names is None:
        sys.exit(
            "remit: git was not run: its settings cannot be read, and a rule allows it only without programs."
        )
    pairs = [*_FIXED, *switched_off(dict.fromkeys(names))]
    for number, (name, value) in enumerate(pairs):
        env |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    env["GIT_CONFIG_COUNT"] = str(len(pairs))
    env["PATH"] = os.pathsep.join(dict.fromkeys([folder, *env.get("PATH", "").split(os.pathsep), programs]))
    os.execve(git, ["git", *words[:start], *_without_programs(words[start:], pairs)], env)  # noqa: S606 - no shell wanted


def _names_of_settings(git: str, options: Sequence[str], env: MutableMapping[str, str]) -> list[str] | None:
    """Listing settings runs nothing, and git knows best which files they are in."""
    done = subprocess.run(  # noqa: S603 - the git that the command would have run
        [git, *options, "config", "--list", "--name-only", "-z"],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(os.fsdecode(done.stderr))
        return None
    return os.fsdecode(done.stdout).split("\0")[:-1]


def _without_programs(words: Sequence[str], pairs: Iterable[tuple[str, str]]) -> list[str]:
    """A command that shows changes fails where its program is switched off, unless it is told not to want one."""
    if not words or not any(name.startswith("diff.") for name, _ in pairs):
        return list(words)
    if words[0] in ("blame", "annotate"):
        return [words[0], "--no-textconv", *words[1:]]
    if words[0] in _SHOWS_CHANGES:
        return [words[0], "--no-ext-diff", "--no-textconv", *words[1:]]
    return list(words)


# --- Putting it before git ----------------------------------------------------------------------


@contextmanager
def first_on_path(env: MutableMapping[str, str]) -> Generator[None]:
    """While entered, `git` means this program in the environment. Does nothing where there is no git."""
    import shlex  # noqa: PLC0415 - not for the program
    import shutil  # noqa: PLC0415
    import tempfile  # noqa: PLC0415

    git = shutil.which("git", path=env.get("PATH"))
    if git is None:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="remit-git-") as folder:
        program = os.path.join(folder, "git")  # noqa: PTH118 - text
        start = shlex.join([sys.executable, "-IS", __file__, git, _programs(git)])
        with open(program, "x", opener=_executable) as file:
            file.write(f'#!/bin/sh\nREMIT_PLAIN_GIT="$0" exec {start} "$@"\n')
        env["PATH"] = f"{folder}{os.pathsep}{env['PATH']}"
        yield


def _executable(path: str, flags: int) -> int:
    return os.open(path, flags, 0o700)


@functools.cache
def _programs(git: str) -> str:
    words = [git, "--exec-path"]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)  # noqa: S603 - as above
    return os.fsdecode(done.stdout).strip()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
