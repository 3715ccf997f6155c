"""A filter of system calls for sandboxes that share the network: no Unix sockets, which namespaces do not hide there.

A program in the kernel's own small language, as bubblewrap's `--seccomp` takes it.
"""

from __future__ import annotations

import errno
import os
import platform
import struct

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER, _MACHINE, _FIRST = 0, 4, 16
"""Where the call's number, its machine and its first argument are."""
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_UNIX = 1
_IO_URING = 425
_OTHER_WAY = 0x40000000
"""Calls above this number are a second way to make them, on x86."""

_MACHINES = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198), "riscv64": (0xC00000F3, 198)}
"""The kernel's name for the machine, and the number of `socket`."""


def can_filter() -> bool:
    """Whether the machine is one whose calls are known here."""
    return platform.machine() in _MACHINES


def no_unix_sockets() -> bytes:
    """A filter by which `socket(AF_UNIX)` fails, and io_uring, which could make one past every filter.

    Pairs of connected sockets can still be made. Programs for another machine (32 bits) cannot run at all.
    """
    machine, socket = _MACHINES[platform.machine()]
    steps = [
        (_LOAD, 0, 0, _MACHINE),
        (_EQUAL, 0, 6, machine),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 4, 0, _OTHER_WAY),
        (_EQUAL, 3, 0, _IO_URING),
        (_EQUAL, 0, 3, socket),
        (_LOAD, 0, 0, _FIRST),
        (_EQUAL, 0, 1, _UNIX),
        (_RETURN, 0, 0, _FAIL | errno.EPERM),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def as_file(program: bytes) -> int:
    """A descriptor that the program can be read from; the caller closes it."""
    reader, writer = os.pipe()
    os.write(writer, program)
    os.close(writer)
    return reader
