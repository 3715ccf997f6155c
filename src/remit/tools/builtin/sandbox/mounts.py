"""What a sandbox lays where, and the proof that it lies there: others may exchange folders while it is put together.

The proof is read inside the finished sandbox, before anything else runs there: mounts are where they are, whatever
paths lead to meanwhile.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from remit.tools.words import Refused

PLACES = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
"""Where programs are looked for. Not the PATH: it may lead to folders that commands can write."""

_TABLE = Path("/proc/self/mountinfo")
_ESCAPED = {" ": r"\040", "\t": r"\011", "\n": r"\012", "\\": r"\134"}


class Mount(NamedTuple):
    """One place of a sandbox."""

    path: Path
    how: Literal["read", "write", "empty", "nothing"]
    """As it is, for reading or for writing too; an empty private folder; a file with nothing in it."""
    source: Path | None = None
    """What is laid there, where it is not what is there; no link."""

    def words(self) -> tuple[str, ...]:
        """As bubblewrap takes it."""
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
    """A line of the table of mounts, as far as it is of use."""

    root: str
    """Which folder of its disk is mounted."""
    place: str


def _read(line: str) -> _Line | None:
    fields = line.split(" ")
    if len(fields) < 10 or "-" not in fields:
        return None
    kind, source = fields[fields.index("-") + 1 :][:2]
    # NFS says / for every root, and where it is in the source.
    return _Line(source if kind.startswith("nfs") else fields[3], fields[4])


def _escape(path: Path) -> str:
    return "".join(_ESCAPED.get(c, c) for c in str(path))


class Table:
    """The mounts of this process, by which it can be told how others will be shown."""

    def __init__(self, text: str | None = None) -> None:
        lines = (_TABLE.read_text("utf-8", "surrogateescape") if text is None else text).split("\n")
        # Of several in one place the last is on top.
        self._roots: Mapping[str, str] = {line.place: line.root for line in map(_read, lines) if line}

    def root(self, path: Path) -> str:
        """The root that a mount of this path has; "?" where that cannot be told."""
        for above in (path, *path.parents):
            root = self._roots.get(_escape(above))
            if root is not None:
                below = _escape(path)[len(_escape(above)) :].strip("/")
                return f"{root.rstrip('/')}/{below}" if below else root
        return "?"

    def plan(self, mounts: Iterable[Mount]) -> list[str]:
        """What the table of the sandbox has to say, one text for each mount."""
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


# A plan to write that ends as one to read is no harm: so is a disk that nobody can write.
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
  for (place in root) if (!good[place]) { print "sandbox: something was exchanged at " place; exit 1 }
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
    """The words before a command that is run only where the mounts are as planned. Raises Refused.

    `library` becomes its LD_LIBRARY_PATH: whoever looks must not load what a command has put there.
    """
    shell, awk = (shutil.which(name, path=PLACES) for name in ("sh", "awk"))
    if not shell or not awk:
        raise Refused("Not run: a sandbox needs the programs `sh` and `awk`, which are not both here.")
    if not re.fullmatch(r"[\w./-]+", awk):
        raise Refused(f"Not run: {awk} is no place for a program.")
    script = _SCRIPT.replace("AWK", awk).replace("PROOF", _PROOF)
    return [shell, "-c", script, shell, library, *plan, "--"]
