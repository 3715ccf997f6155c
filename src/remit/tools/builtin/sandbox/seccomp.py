"""A filter of system calls for sandboxes: no sockets that lead out past files and network, no setuid files.

A program in the kernel's own small language, as bubblewrap's `--seccomp` takes it.
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
"""Where the call's number, its machine and its arguments are."""
_ALLOW, _FAIL, _ABSENT = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
_IO_URING = 425
"""It could make sockets past every filter."""
_OTHER_WAY = 0x40000000
"""Calls above this number are a second way to make them, on x86."""

_UNIX, _INET, _INET6, _NETLINK = 1, 2, 10, 16
_ROUTE = 0
"""The part of netlink that tells programs their own addresses."""
_STREAM, _SEQPACKET = 1, 5
_KIND = 0xF
"""What is left of a socket's kind without its flags."""


_OPENAT2 = 437
"""Its mode is out of a filter's sight. Programs that find it missing use the older call."""
_FCHMODAT2 = 452
_MAKING = 0o100 | 0o20000000
"""Flags with which `open` heeds its mode, on all machines below: O_CREAT, O_TMPFILE."""


class _Calls(NamedTuple):
    """The kernel's name for a machine, and the numbers of its calls."""

    machine: int
    socket: int
    pair: int
    keys: tuple[int, int, int]
    modes: dict[int, int]
    """Calls that give a file its mode, and where they have it."""
    opens: dict[int, tuple[int, int]]
    """The same for those that do so only with some flags: where they have flags and mode."""


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
    """Whether the machine is one whose calls are known here."""
    return platform.machine() in _MACHINES


def make_filter(*, unix: bool = False) -> bytes:
    """A filter by which neither setuid files nor sockets other than those of the internet can be made.

    With `unix`, Unix sockets can be made too.

    A setuid file would outlive the sandbox, and run with the rights of the one who ran remit, for root too.

    Unix sockets lead to servers outside, by names that no folder hides; others, such as those to the host of a virtual
    machine, are in no namespace. Pairs of connected sockets can be made, unless they could be led elsewhere later, as
    those for datagrams. Keys of the user's session are out of reach, and programs for another machine (32 bits).
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
    """Steps, with names for those that others go to; the kernel knows only how many steps to leave out."""

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
    """A descriptor that the program can be read from; the caller closes it."""
    reader, writer = os.pipe()
    os.write(writer, program)
    os.close(writer)
    return reader
