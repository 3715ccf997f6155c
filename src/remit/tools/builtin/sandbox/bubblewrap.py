"""Sandboxes for commands, made with bubblewrap: what a command can see, write and reach.

A trial run decides whether bubblewrap works on this machine. If it does not, commands that need a sandbox are refused.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import remit.history.journal_files as journal_files
import remit.tools.builtin.sandbox.mounts as mounts
import remit.tools.builtin.sandbox.protected_files as protected_files
import remit.tools.builtin.sandbox.repositories as repositories
import remit.tools.builtin.sandbox.seccomp as seccomp
from remit.tools.builtin.sandbox.hidden_journals import Journals
from remit.tools.builtin.sandbox.mounts import Mount
from remit.tools.secret_places import may_hide, secrets
from remit.tools.words import Refused
from remit.types.sandbox import Sandbox

TRIAL_S = 10

_PROC = ("--proc", "/proc", "--remount-ro", "/proc")
"""Read-only: /proc contains kernel settings, and root may write them without any capability."""


class Cage(NamedTuple):
    """A sandbox around one command."""

    before: tuple[str, ...]
    """The command line that precedes the command."""
    fds: tuple[int, ...]
    """Descriptors that the sandbox needs; the caller closes them after the start."""
    journals: Journals
    guard: protected_files.Guard | None = None

    def planted(self) -> list[str]:
        """Rename files that the command planted; returns a note about each. Slow."""
        try:
            return [] if self.guard is None else self.guard.put_aside()
        finally:
            self.journals.close()


def cage(sandbox: Sandbox, workspace: Path, cwd: str, library: str = "") -> Cage:
    """Prepare a sandbox for a command; `library` is the command's LD_LIBRARY_PATH. Raises Refused if that is impossible.

    The environment must not contain LD_LIBRARY_PATH: bubblewrap itself runs outside the sandbox.
    """
    protected_files.check_workspace(sandbox, workspace)
    program = _working(sandbox)
    writes = sandbox.files == "workspace-write"
    journals = Journals(workspace if writes else None)
    try:
        guard = protected_files.Guard(workspace) if writes else None
        hidden = journals.hold(_journals_inside(sandbox, workspace, guard))
        words = [program, *_apart(sandbox)]
        if sandbox.files == "open":
            words += ["--dev-bind", "/", "/", *_PROC]
        else:
            words += ["--ro-bind", "/", "/", "--dev", "/dev", *_PROC]
        plan = _plan([*_mounts(sandbox, workspace, guard), *(Mount(path, "nothing") for path in hidden)])
        for mount in plan:
            words += mount.words()
        proving = mounts.proving(mounts.Table().plan(plan), library)
        fds = _filters(sandbox)
    except BaseException:
        journals.close()
        raise
    for fd in fds:
        words += ["--seccomp", str(fd)]
    return Cage((*words, "--chdir", cwd, "--", *proving), fds, journals, guard)


def _journals_inside(sandbox: Sandbox, workspace: Path, guard: protected_files.Guard | None) -> list[Path]:
    if guard is not None:
        return guard.journals
    return repositories.find_all(workspace).journals if sandbox.files == "read-only" else []


def _plan(wanted: Iterable[Mount]) -> list[Mount]:
    """The mounts in order: a mount inside another comes after it."""
    # If a path repeats, the last mount counts.
    planned = {mount.path: mount for mount in wanted}

    def is_seen(path: Path) -> bool:
        around = next((planned[above].how for above in path.parents if above in planned), "")
        return around != "empty"

    needed = [mount for mount in planned.values() if mount.how != "nothing" or is_seen(mount.path)]
    return sorted(needed, key=lambda mount: len(mount.path.parts))


def _apart(sandbox: Sandbox) -> list[str]:
    """Options for separate namespaces, and no capabilities even if remit runs as root."""
    words = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    words += ["--new-session", "--die-with-parent", "--cap-drop", "ALL"]
    return words if sandbox.network else [*words, "--unshare-net"]


def _filters(sandbox: Sandbox) -> tuple[int, ...]:
    if not seccomp.can_filter():
        return ()
    return (seccomp.as_file(seccomp.make_filter(unix=sandbox.files == "open")),)


def _mounts(sandbox: Sandbox, workspace: Path, guard: protected_files.Guard | None) -> Iterator[Mount]:
    """The mounts over the system; none if commands may write everywhere."""
    if sandbox.files == "open":
        return
    for private in ("/tmp", "/var/tmp", "/run", "/var/run"):  # noqa: S108 - these become private folders
        if Path(private).is_dir() and not Path(private).is_symlink():
            yield Mount(Path(private), "empty")
    yield from _needed_of_run(network=sandbox.network)
    yield Mount(workspace, "read" if guard is None else "write")
    if guard is not None:
        yield from guard.mounts()
    for secret in (*secrets(os.environ, workspace), *_own_folder(workspace)):
        yield from _hidden(secret)
    if not seccomp.can_filter():
        for socket in _sockets(workspace):
            yield from _hidden(socket)


def _needed_of_run(*, network: bool) -> Iterator[Mount]:
    """The parts of /run that stay visible: resolv.conf if the network is allowed, and programs on NixOS."""
    with suppress(OSError):
        names = Path("/etc/resolv.conf").resolve()
        if network and names.is_relative_to("/run") and names.is_file():
            yield Mount(names, "read")
    system = Path("/run/current-system")
    if system.exists():
        yield Mount(system, "read", system.resolve())


def _own_folder(workspace: Path) -> Iterator[Path]:
    """remit's own folder. Created if missing: otherwise a journal could appear there while a command runs."""
    with suppress(OSError, RuntimeError):
        folder = journal_files.default_folder().absolute()
        if may_hide(folder, workspace) and not folder.is_relative_to(workspace):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            yield folder


def _hidden(path: Path) -> Iterator[Mount]:
    with suppress(OSError, RuntimeError):
        # A mount cannot cover a symlink, only its target.
        real = path.resolve()
        if real.is_dir():
            yield Mount(real, "empty")
        elif real.exists() and not real.is_relative_to("/run") and real != Path("/dev/null"):
            yield Mount(real, "nothing")


def _sockets(workspace: Path) -> Iterator[Path]:
    """Listening Unix sockets, for machines without a seccomp filter. Finds most of them, not all."""
    seen: set[str] = set()
    with suppress(OSError):
        for line in Path("/proc/net/unix").read_text(errors="replace").splitlines()[1:]:
            fields = line.split(maxsplit=7)
            name = fields[7] if len(fields) > 7 else ""
            private = name.startswith(("/run/", "/var/run/", "/tmp/", "/var/tmp/", "/dev/"))  # noqa: S108 - see above
            if (
                not name.startswith("/")
                or name in seen
                or (private and not Path(name).is_relative_to(workspace))
            ):
                continue
            seen.add(name)
            yield Path(name)


# --- The trial -----------------------------------------------------------------------------------


def _working(sandbox: Sandbox) -> str:
    """The path of a bubblewrap that works for this kind of sandbox. Raises Refused."""
    if sandbox.network and sandbox.files != "open" and not seccomp.can_filter():
        raise Refused(
            f"Not run: the sandbox {sandbox} is unsupported on this type of machine. Use one without network."
        )
    said = trial(network=sandbox.network)
    if said is None and not seccomp.can_filter() and sandbox.files != "read-only" and os.geteuid() == 0:
        raise Refused(
            f"Not run: as root, a command in the sandbox {sandbox} could leave setuid files on this type of machine. Run remit"
            " as another user, or use the sandbox read-only."
        )
    if said is None:
        return find_bubblewrap()
    raise Refused(
        f"Not run: this run's sandbox ({sandbox}) needs bubblewrap, which does not work on this machine. remit never runs a"
        f" command outside its sandbox. {said}"
    )


def find_bubblewrap() -> str:
    """The path of bubblewrap; empty if it is not installed."""
    return shutil.which("bwrap", path=mounts.PLACES) or ""


@functools.cache
def trial(*, network: bool = False) -> str | None:
    """Run bubblewrap once; None if it works, otherwise the reason and a remedy, for people."""
    program = find_bubblewrap()
    if not program:
        if sys.platform != "linux":
            return "bubblewrap needs Linux. Run without a sandbox, or inside a container or virtual machine."
        return "It is not installed. Install the package `bubblewrap` (Debian, Ubuntu, Fedora, Arch, Alpine)."
    kind = Sandbox("read-only", network)
    words = [program, *_apart(kind), "--ro-bind", "/", "/", "--dev", "/dev", *_PROC]
    some = Mount(Path("/usr").resolve(), "read")
    words += some.words()
    fds = _filters(kind)
    for fd in fds:
        words += ["--seccomp", str(fd)]
    true = shutil.which("true", path=mounts.PLACES) or "/bin/true"
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and the program is absolute
            [*words, "--", *mounts.proving(mounts.Table().plan([some]), ""), true],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TRIAL_S,
            check=False,
            env={},
            pass_fds=fds,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{program} could not be run: {error}"
    finally:
        for fd in fds:
            os.close(fd)
    if done.returncode == 0:
        return None
    said = " ".join(done.stdout.decode("utf-8", "replace").split())[:300] or f"exit code {done.returncode}"
    return (
        f"Its output: {said}. If user namespaces are disabled, enable them: sysctl kernel.unprivileged_userns_clone=1, on"
        " Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; in a container, use a seccomp profile that permits them."
    )
