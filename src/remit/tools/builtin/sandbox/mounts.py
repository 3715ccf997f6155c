"""The mounts of a sandbox, and a check that they are as planned: folders may be swapped while the sandbox is set up.

The check runs inside the finished sandbox before anything else: a finished mount does not change, even if paths do.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from remit.tools.words import Refused

PLACES = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
"""Where to find programs. Not the PATH: commands may be able to write to its folders."""

_TABLE = Path("/proc/self/mountinfo")
_ESCAPED = {" ": r"\040", "\t": r"\011", "\n": r"\012", "\\": r"\134"}


class Mount(NamedTuple):
    """One mount of a sandbox."""

    path: Path
    how: Literal["read", "write", "empty", "nothing"]
    """`read` and `write` show the path itself, `empty` an empty private folder, `nothing` an empty file."""
    source: Path | None = None
    """The source if it is not the path itself; not a symlink."""

    def words(self) -> tuple[str, ...]:
        """The options for bubblewrap."""
        path = str(self.path)
        match self.how:
            case "read":
                return ("--ro-bind", str(self.source or path), path)
            case "write":
                return ("--bind", str(self.source or path), path)
            case "empty":
                return ("--tmpfs", path)
            case "nothing":
                return ("--ro-bind", "/dev/null", path)


class _Line(NamedTuple):
    """The needed fields of a line of the mount table."""

    root: str
    """The folder of the file system that is mounted."""
    place: str


def _read(line: str) -> _Line | None:
    fields = line.split(" ")
    if len(fields) < 10 or "-" not in fields:
        return None
    kind, source = fields[fields.index("-") + 1 :][:2]
    # NFS gives / as every root; the folder is in the source.
    return _Line(source if kind.startswith("nfs") else fields[3], fields[4])


def _escape(path: Path) -> str:
    return "".join(_ESCAPED.get(c, c) for c in str(path))


class Table:
    """The mounts of this process, used to predict the mount table of a sandbox."""

    def __init__(self, text: str | None = None) -> None:
        lines = (_TABLE.read_text("utf-8", "surrogateescape") if text is None else text).split("\n")
        # If a path repeats, the last mount is on top.
        self._roots: Mapping[str, str] = {line.place: line.root for line in map(_read, lines) if line}

    def root(self, path: Path) -> str:
        """The root field of a mount of this path; "?" if it is unknown."""
        for above in (path, *path.parents):
            root = self._roots.get(_escape(above))
            if root is not None:
                below = _escape(path)[len(_escape(above)) :].strip("/")
                return f"{root.rstrip('/')}/{below}" if below else root
        return "?"

    def plan(self, mounts: Iterable[Mount]) -> list[str]:
        """The expected entries of the sandbox's mount table, one text per mount."""
        return [f"{_escape(mount.path)} {self._planned(mount)}" for mount in mounts]

    def _planned(self, mount: Mount) -> str:
        match mount.how:
            case "read":
                return f"{self.root(mount.source or mount.path)} ro"
            case "write":
                return f"{self.root(mount.source or mount.path)} rw"
            case "empty":
                return "/ rw"
            case "nothing":
                return f"{self.root(Path('/dev/null'))} ro"


# "rw" in the plan accepts a read-only mount too: the file system itself may be read-only.
_PROOF = """\
BEGIN {
  for (i = 2; ARGV[i] != "--"; i++) { split(ARGV[i], word, " "); root[word[1]] = word[2]; mode[word[1]] = word[3] }
  while ((getline line < "/proc/self/mountinfo") > 0) {
    count = split(line, word, " ")
    if (!(word[5] in root)) continue
    for (i = 7; i < count && word[i] != "-"; i++);
    shown = word[i + 1] ~ /^nfs/ ? word[i + 2] : word[4]
    good[word[5]] = shown == root[word[5]] && (mode[word[5]] == "rw" || word[6] ~ /^ro(,|$)/)
  }
  for (place in root) if (!good[place]) { print "sandbox: the mount at " place " is not as planned"; exit 1 }
}
"""
_SCRIPT = """\
AWK 'PROOF' "$@" || exit 1
[ -z "$1" ] || export LD_LIBRARY_PATH="$1"
until [ "$1" = -- ]; do shift; done
shift
exec "$@"
"""


def proving(plan: Sequence[str], library: str) -> list[str]:
    """The command line that checks the mounts and then runs a command. Raises Refused.

    `library` becomes the command's LD_LIBRARY_PATH only after the check, which must not load planted libraries.
    """
    shell, awk = (shutil.which(name, path=PLACES) for name in ("sh", "awk"))
    if not shell or not awk:
        raise Refused("Not run: a sandbox needs the programs `sh` and `awk`; install both.")
    if not re.fullmatch(r"[\w./-]+", awk):
        raise Refused(f"Not run: the path of awk, {awk}, contains unsupported characters.")
    script = _SCRIPT.replace("AWK", awk).replace("PROOF", _PROOF)
    return [shell, "-c", script, shell, library, *plan, "--"]
