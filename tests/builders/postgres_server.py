"""A Postgres server for the tests: on loopback, in a temporary folder, stopped after the tests."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

MISSING = "no Postgres server on this machine (on Debian and Ubuntu: apt install postgresql)"
INITDB = ("-E", "UTF8", "--locale=C", "--no-sync")
UNPRIVILEGED = ("postgres", "nobody")


def find_programs() -> Path | None:
    """The folder with `initdb` and `postgres`, the newest first."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version, reverse=True)
    named = shutil.which("initdb")
    candidates = [*found, *([Path(named).parent] if named else [])]
    return next((c for c in candidates if (c / "initdb").exists() and (c / "postgres").exists()), None)


def _version(folder: Path) -> int:
    part = folder.parent.name
    return int(part) if part.isdigit() else 0


def _as_somebody(folder: Path) -> list[str]:
    """The command prefix that drops root, which Postgres refuses to run as."""
    if os.geteuid() != 0:
        return []
    for name in UNPRIVILEGED:
        with contextlib.suppress(LookupError):
            shutil.chown(folder, name)
            return ["runuser", "-u", name, "--"]
    raise RuntimeError(f"Postgres does not run as root, and none of the users {UNPRIVILEGED} exists")


def _free_port() -> int:
    with socket.socket() as picked:
        picked.bind(("127.0.0.1", 0))
        return picked.getsockname()[1]


@contextlib.contextmanager
def server(programs: Path) -> Iterator[str]:
    """The address of an empty database, while the server runs."""
    # Not pytest's temporary folders: another user cannot enter them.
    folder = Path(tempfile.mkdtemp(prefix="remit-postgres-"))
    folder.chmod(0o755)
    process: subprocess.Popen[bytes] | None = None
    try:
        somebody = _as_somebody(folder)
        data = folder / "data"
        made = subprocess.run(
            [*somebody, str(programs / "initdb"), "-D", str(data), "-U", "remit", "-A", "trust", *INITDB],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise RuntimeError(f"initdb failed: {made.stderr or made.stdout}")
        port = _free_port()
        process = _start(somebody, programs, data, port)
        _wait(programs, port, process)
        yield f"postgresql://remit@127.0.0.1:{port}/postgres"
    finally:
        if process is not None:
            _stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def _start(somebody: list[str], programs: Path, data: Path, port: int) -> subprocess.Popen[bytes]:
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(port),
        "unix_socket_directories": str(data.parent),
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
        "max_connections": "80",
        "shared_buffers": "16MB",
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    # The shell reads from a pipe that only this process holds: when this process ends for any reason, the server stops.
    watch = '"$@" & server=$!; read -r _; kill -INT $server; wait $server'
    with (data.parent / "log").open("wb") as log:
        return subprocess.Popen(
            [*somebody, "sh", "-c", watch, "sh", str(programs / "postgres"), "-D", str(data), *options],
            cwd=data.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )


def _wait(programs: Path, port: int, process: subprocess.Popen[bytes]) -> None:
    ready = [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(port), "-U", "remit"]
    for _ in range(300):
        if subprocess.run(ready, check=False).returncode == 0:
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise RuntimeError("the Postgres server did not start")


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
