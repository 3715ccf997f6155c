"""A seccomp filter for sandboxes: no sockets that bypass the limits on files and network, no setuid files.

The filter is a BPF program for bubblewrap's `--seccomp`.
"""

from __future__ import annotations

import errno
import os
import platform
import stat
import struct
from typing import NamedTuple

_LOAD, _EQUAL, _AT_LEAST, _ANY, _AND, _GO, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x05, 0x06
_NUMBER, _MACHINE, _FIRST, _SECOND, _THIRD, _FOURTH = 0, 4, 16, 24, 32, 40
"""Offsets of the call's number, its architecture and its arguments."""
_ALLOW, _FAIL, _ABSENT = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
_IO_URING = 425
"""io_uring could create sockets that no filter sees."""
_OTHER_WAY = 0x40000000
"""On x86, calls from this number on are the x32 variants of the same calls."""

_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_ROUTE = 0
"""The netlink protocol that gives programs their own addresses."""
_STREAM, _SEQPACKET = 1, 5
_KIND = 0xF
"""Masks the flags off a socket type."""


_OPENAT2 = 437
"""A filter cannot see the mode of this call. Programs that find it missing use the older call."""
_FCHMODAT2 = 452
_MAKING = 0o100 | 0o20000000
"""Flags with which `open` uses its mode, on all machines below: O_CREAT, O_TMPFILE."""


class _Calls(NamedTuple):
    """The kernel's number for an architecture, and the numbers of its system calls."""

    machine: int
    socket: int
    pair: int
    keys: tuple[int, int, int]
    modes: dict[int, int]
    """Calls that set a file's mode, and the offset of that argument."""
    opens: dict[int, tuple[int, int]]
    """Calls that set a mode only with some flags, and the offsets of flags and mode."""


_NEWER = {33: _THIRD, 52: _SECOND, 53: _THIRD, _FCHMODAT2: _THIRD}
"""mknodat, fchmod, fchmodat."""
_MACHINES = {
    "x86_64": _Calls(
        0xC000003E,
        41,
        53,
        (248, 249, 250),
        # creat, chmod, fchmod, mknod, mknodat, fchmodat
        {85: _SECOND, 90: _SECOND, 91: _SECOND, 133: _SECOND, 259: _THIRD, 268: _THIRD, _FCHMODAT2: _THIRD},
        # open, openat
        {2: (_SECOND, _THIRD), 257: (_THIRD, _FOURTH)},
    ),
    "aarch64": _Calls(0xC00000B7, 198, 199, (217, 218, 219), _NEWER, {56: (_THIRD, _FOURTH)}),
    "riscv64": _Calls(0xC00000F3, 198, 199, (217, 218, 219), _NEWER, {56: (_THIRD, _FOURTH)}),
}


def can_filter() -> bool:
    """Whether the system calls of this architecture are known."""
    return platform.machine() in _MACHINES


def make_filter(*, unix: bool = False) -> bytes:
    """A filter that forbids setuid files, and sockets other than internet sockets; `unix` allows Unix sockets too.

    A setuid file would outlive the sandbox and run with the rights of the user who ran remit, perhaps root.

    Unix sockets can reach servers outside through names that no mount hides. Other sockets, such as those to the host of a
    virtual machine, belong to no namespace. Connected pairs are allowed, except datagram pairs, which can be redirected
    later. The filter also blocks the keyrings of the user's session and 32-bit programs.
    """
    calls = _MACHINES[platform.machine()]
    program = _Program()
    program.unless(_MACHINE, calls.machine, "fail")
    program.load(_NUMBER)
    program.at_least(_OTHER_WAY, "fail")
    for number in (_IO_URING, *calls.keys):
        program.when(number, "fail")
    program.when(_OPENAT2, "absent")
    for number, mode in calls.modes.items():
        program.when(number, f"mode at {mode}")
    for number, (flags, _) in calls.opens.items():
        program.when(number, f"flags at {flags}")
    program.when(calls.socket, "socket")
    if not unix:
        program.when(calls.pair, "pair")
    program.go("allow")
    for flags, mode in calls.opens.values():
        program.label(f"flags at {flags}")
        program.load(flags)
        program.any(_MAKING, f"mode at {mode}")
        program.go("allow")
    for mode in (_SECOND, _THIRD, _FOURTH):
        program.label(f"mode at {mode}")
        program.load(mode)
        program.any(stat.S_ISUID, "fail")
        program.go("allow")
    program.label("socket")
    program.load(_FIRST)
    for family in (_INET, _INET6, *((_UNIX,) if unix else ())):
        program.when(family, "allow")
    program.unless(_FIRST, _NETLINK, "fail")
    program.unless(_THIRD, _ROUTE, "fail")
    program.go("allow")
    program.label("pair")
    program.load(_SECOND)
    program.mask(_KIND)
    program.when(_STREAM, "allow")
    program.when(_SEQPACKET, "allow")
    program.label("fail")
    program.give(_FAIL)
    program.label("absent")
    program.give(_ABSENT)
    program.label("allow")
    program.give(_ALLOW)
    return program.finish()


class _Program:
    """A list of instructions with labels. The kernel's jumps are numbers of instructions to skip."""

    def __init__(self) -> None:
        self._steps: list[tuple[int, str, str, int]] = []
        self._labels: dict[str, int] = {}

    def label(self, name: str) -> None:
        self._labels[name] = len(self._steps)

    def load(self, offset: int) -> None:
        self._steps.append((_LOAD, "", "", offset))

    def mask(self, bits: int) -> None:
        self._steps.append((_AND, "", "", bits))

    def when(self, value: int, then: str) -> None:
        self._steps.append((_EQUAL, then, "", value))

    def any(self, bits: int, then: str) -> None:
        self._steps.append((_ANY, then, "", bits))

    def at_least(self, value: int, then: str) -> None:
        self._steps.append((_AT_LEAST, then, "", value))

    def unless(self, offset: int, value: int, then: str) -> None:
        self.load(offset)
        self._steps.append((_EQUAL, "", then, value))

    def go(self, name: str) -> None:
        self._steps.append((_GO, "", name, 0))

    def give(self, answer: int) -> None:
        self._steps.append((_RETURN, "", "", answer))

    def finish(self) -> bytes:
        return b"".join(self._packed(at, *step) for at, step in enumerate(self._steps))

    def _packed(self, at: int, code: int, yes: str, no: str, value: int) -> bytes:
        left = [self._labels[name] - at - 1 if name else 0 for name in (yes, no)]
        if code == _GO:
            return struct.pack("=HBBI", code, 0, 0, left[1])
        return struct.pack("=HBBI", code, *left, value)


def as_file(program: bytes) -> int:
    """A descriptor from which the program can be read; the caller closes it."""
    reader, writer = os.pipe()
    os.write(writer, program)
    os.close(writer)
    return reader
