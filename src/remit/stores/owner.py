"""Which process owns a tree, and whether that process is still alive.

The owner renews a lease, which works across machines. On the same machine, a dead process is noticed at once.
"""

from __future__ import annotations

import contextlib
import os
import platform
import secrets
import time
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct

LEASE_S = 15.0
"""How long a claim lasts without a heartbeat."""

HEARTBEAT_S = 2.0

SAFE_S = LEASE_S - 1.0
"""How long after a renewal this process relies on it; the rest is for clocks that run at different speeds."""


class OwnerProcess(Struct, frozen=True, omit_defaults=True):
    """A process and a store object in it. Two store objects are two owners."""

    host: str
    pid: int
    token: str
    boot: str = ""
    """The machine's boot id; empty if unknown, and then only the lease counts."""
    namespace: str = ""
    """The namespace of process ids: each container has its own."""
    started: str = ""
    """When the process started, in ticks since the boot: a pid can be reused."""

    @property
    def words(self) -> str:
        return f"pid {self.pid} on {self.host}"

    @property
    def here(self) -> bool:
        """Whether the owner is this process."""
        return msgspec.structs.replace(self, token="") == _this_process(os.getpid())

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()


def new_owner() -> OwnerProcess:
    return msgspec.structs.replace(_this_process(os.getpid()), token=secrets.token_hex(8))


def decode(text: str) -> OwnerProcess | None:
    """The owner that `encode` wrote; None for anything else."""
    try:
        return msgspec.json.decode(text, type=OwnerProcess)
    except msgspec.DecodeError:
        return None


def is_dead(owner: OwnerProcess) -> bool:
    """Whether the process is known to be dead. False for other machines, which cannot be checked."""
    me = _this_process(os.getpid())
    if not me.boot or (owner.host, owner.boot, owner.namespace) != (me.host, me.boot, me.namespace):
        return False
    return _started(owner.pid) != owner.started


def is_live(text: str, lease_left_s: float) -> bool:
    """Whether the owner recorded in a tree's row still owns it."""
    if not text or lease_left_s <= 0:
        return False
    owner = decode(text)
    return owner is None or not is_dead(owner)


def words(text: str) -> str:
    owner = decode(text)
    return owner.words if owner else "an unknown process"


def since(seconds: float) -> str:
    """A time for people to read."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds))


@cache
def _this_process(pid: int) -> OwnerProcess:
    boot = namespace = ""
    with contextlib.suppress(OSError):
        namespace = str(Path("/proc/self/ns/pid").readlink())
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return OwnerProcess(platform.node(), pid, "", boot, namespace, _started(pid) if boot else "")


def _started(pid: int) -> str:
    """When a process started; empty if it is dead or a zombie."""
    try:
        # The name before the last ")" may contain anything.
        fields = (
            Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        )
        return "" if fields[0] in "ZX" else fields[19]
    except (OSError, IndexError):
        return ""
