"""Sandboxes for commands, made with bubblewrap: what they can see, what they can write, and whom they can reach.

Whether it works here is found out by running it. Where it does not, a command that should be in a sandbox is refused.
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

import remit.tools.seccomp as seccomp
from remit.sandbox import Sandbox
from remit.tools.places import PROTECTED, PROTECTED_HOME, SECRETS, SYSTEM_SECRETS
from remit.tools.words import Refused

_PLACES = "/usr/bin:/bin:/usr/local/bin:/run/current-system/sw/bin"
"""Not the PATH: it may lead to folders that commands can write."""

TRIAL_S = 10


class Cage(NamedTuple):
    """A sandbox around one command: what to run instead of it, and what to look at afterwards."""

    before: tuple[str, ...]
    """The words to put before the command."""
    fds: tuple[int, ...]
    """Descriptors that it needs; the caller closes them once it has begun."""
    watched: tuple[tuple[Path, os.stat_result | None], ...]
    """Names that a command must not plant but that could not be guarded: there was nothing, or a link."""

    def planted(self) -> list[str]:
        """Puts aside what a command has planted meanwhile; the names of what was."""
        found: list[str] = []
        for path, before in self.watched:
            now = _look(path)
            if now is None or (before is not None and _identity(now) == _identity(before)):
                continue
            with suppress(OSError):
                path.rename(_free(path))
                found.append(path.name)
        return found


def cage(sandbox: Sandbox, workspace: Path, cwd: str) -> Cage:
    """What puts a command into this sandbox. Raises Refused where that cannot be done here."""
    program = _working(sandbox)
    watched: list[tuple[Path, os.stat_result | None]] = []
    words = [program, *_apart(sandbox)]
    if sandbox.files == "open":
        words += ["--dev-bind", "/", "/", "--proc", "/proc"]
    else:
        words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        if sandbox.files == "workspace-write" and workspace == Path("/"):
            raise Refused(
                "The workspace is the whole file system, so a sandbox that can write in it would hold nothing."
            )
        mounts = dict.fromkeys(_mounts(sandbox, workspace, watched))
        # Whoever is inside another must come after it.
        for place in sorted(mounts, key=lambda place: len(place.path.parts)):
            words += [*place.how, str(place.path)]
    fds: tuple[int, ...] = ()
    if sandbox.files != "open" and sandbox.network:
        fds = (seccomp.as_file(seccomp.no_unix_sockets()),)
        words += ["--seccomp", str(fds[0])]
    return Cage((*words, "--chdir", cwd, "--"), fds, tuple(watched))


class _Mount(NamedTuple):
    path: Path
    how: tuple[str, ...]


def _apart(sandbox: Sandbox) -> list[str]:
    """The namespaces of its own. Without capabilities, also where remit runs as root."""
    words = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    words += ["--new-session", "--die-with-parent", "--cap-drop", "ALL"]
    return words if sandbox.network else [*words, "--unshare-net"]


def _mounts(
    sandbox: Sandbox, workspace: Path, watched: list[tuple[Path, os.stat_result | None]]
) -> Iterator[_Mount]:
    """What is laid over the read-only system."""
    writes = sandbox.files == "workspace-write"
    for private in ("/tmp", "/var/tmp", "/run", "/var/run"):  # noqa: S108 - these become private folders
        if Path(private).is_dir() and not Path(private).is_symlink():
            yield _Mount(Path(private), ("--tmpfs",))
    yield from _needed_of_run(network=sandbox.network)
    yield _Mount(workspace, ("--bind" if writes else "--ro-bind", str(workspace)))
    homes = _homes()
    for secret in (
        *(home / name for home in homes for name in SECRETS),
        *map(Path, SYSTEM_SECRETS),
        *_sockets(workspace),
    ):
        yield from _hidden(secret)
    if writes:
        repository = workspace / ".git"
        # In a worktree it is a file that says where the repository is.
        yield from _guarded(workspace, workspace, (".git",) if repository.is_file() else (), watched)
        yield from _guarded(workspace, workspace, PROTECTED, watched)
        for home in homes:
            if home.is_relative_to(workspace):
                yield from _guarded(home, workspace, PROTECTED_HOME, watched)
        # The environment that remit itself runs in, where it is one of the workspace.
        own = Path(sys.prefix).resolve()
        if sys.prefix != sys.base_prefix and own.is_relative_to(workspace):
            yield from _guarded(workspace, workspace, (str(own.relative_to(workspace)),), watched)


def _homes() -> list[Path]:
    """Where this user's secrets are: by the environment, and by the system."""
    import pwd  # noqa: PLC0415 - not on every system

    found: list[Path] = []
    with suppress(RuntimeError, OSError):
        found.append(Path.home().resolve())
    with suppress(KeyError, OSError):
        found.append(Path(pwd.getpwuid(os.getuid()).pw_dir).resolve())
    return list(dict.fromkeys(found))


def _needed_of_run(*, network: bool) -> Iterator[_Mount]:
    """What is kept of /run: names of servers for those who may use the network, programs on NixOS."""
    with suppress(OSError):
        names = Path("/etc/resolv.conf").resolve()
        if network and names.is_relative_to("/run") and names.is_file():
            yield _Mount(names, ("--ro-bind", str(names)))
    system = Path("/run/current-system")
    if system.exists():
        yield _Mount(system, ("--ro-bind", str(system)))


def _hidden(path: Path) -> Iterator[_Mount]:
    with suppress(OSError, RuntimeError):
        # Nothing can be laid over a link, only over what it leads to.
        real = path.resolve()
        if real.is_dir():
            yield _Mount(real, ("--tmpfs",))
        elif real.exists() and not real.is_relative_to("/run") and real != Path("/dev/null"):
            yield _Mount(real, ("--ro-bind", "/dev/null"))


def _sockets(workspace: Path) -> Iterator[Path]:
    """Unix sockets that somebody listens at: behind one may be a server that does things for whoever asks."""
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


def _guarded(
    folder: Path, workspace: Path, names: Iterable[str], watched: list[tuple[Path, os.stat_result | None]]
) -> Iterator[_Mount]:
    """Read-only where there is something; the folders on the way become mounts, which cannot be renamed."""
    for name in names:
        path = folder / name
        for parent in reversed(path.relative_to(folder).parents[:-1]):
            way = folder / parent
            info = _look(way)
            if info is not None and not way.is_symlink() and way.is_dir():
                yield _Mount(way, ("--bind", str(way)))
        info = _look(path)
        real = path.resolve() if info is not None else path
        if info is not None and real == path and real.is_relative_to(workspace):
            yield _Mount(path, ("--ro-bind", str(path)))
        elif path.parent == folder or path.parent.is_dir():
            watched.append((path, info))


def _identity(info: os.stat_result) -> tuple[int, ...]:
    """What is the same only for the same file: numbers alone are used again."""
    return info.st_dev, info.st_ino, info.st_mode, info.st_ctime_ns


def _look(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _free(path: Path) -> Path:
    number = 1
    while _look(free := path.with_name(f"{path.name}.from-sandbox{number}")) is not None:
        number += 1
    return free


# --- Whether it works ----------------------------------------------------------------------------


def _working(sandbox: Sandbox) -> str:
    """A bubblewrap that works for this kind of sandbox. Raises Refused."""
    if sandbox.network and sandbox.files != "open" and not seccomp.can_filter():
        raise Refused(
            f"Not run: the sandbox {sandbox} cannot be made on this kind of machine. Use one without network."
        )
    said = trial(network=sandbox.network)
    if said is None:
        return find_bubblewrap()
    raise Refused(
        f"Not run: this run's sandbox ({sandbox}) needs bubblewrap, which does not work here, and commands are never run"
        f" outside their sandbox. {said}"
    )


def find_bubblewrap() -> str:
    """Where it is; empty when it is not installed."""
    return shutil.which("bwrap", path=_PLACES) or ""


@functools.cache
def trial(*, network: bool = False) -> str | None:
    """Runs bubblewrap once; None when it works, otherwise why not and what to do, for people."""
    program = find_bubblewrap()
    if not program:
        if sys.platform != "linux":
            return "bubblewrap is for Linux only. Run without a sandbox, or inside a container or virtual machine."
        return "It is not installed. Install the package `bubblewrap` (Debian, Ubuntu, Fedora, Arch, Alpine)."
    kind = Sandbox("read-only", network)
    words = [program, *_apart(kind), "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    fds: tuple[int, ...] = ()
    if network and seccomp.can_filter():
        fds = (seccomp.as_file(seccomp.no_unix_sockets()),)
        words += ["--seccomp", str(fds[0])]
    true = shutil.which("true", path=_PLACES) or "/bin/true"
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and the program is absolute
            [*words, "--", true],
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
        f"It said: {said}. If user namespaces are switched off, allow them: sysctl kernel.unprivileged_userns_clone=1, on"
        " Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; in a container, run it with a seccomp profile that"
        " permits them."
    )
