"""Standard input, output and error: streams that are closed at the start, and readers that go away."""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from typing import TextIO

LOOK_S = 0.5
"""How often to check that standard output still has a reader."""

_NAMES = ("stdin", "stdout", "stderr")


def open_closed() -> None:
    """Open the null device in place of standard streams that are closed (`remit runs >&-`), as git does.

    Otherwise Python's stream is None, and the journal's file could get the stream's descriptor.
    """
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            # A new descriptor gets the lowest free number, which is this one.
            with suppress(OSError):
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            with suppress(OSError):
                mode = "r" if name == "stdin" else "w"
                setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for the process


def reader_is_gone(stream: TextIO) -> bool:
    """Whether the reader of a pipe is gone, checked without writing. False if the system cannot tell."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(state & (select.POLLERR | select.POLLHUP) for _, state in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


async def until_unread() -> None:
    """Return once the reader of standard output is gone."""
    import anyio  # noqa: PLC0415 - not for `remit --help`

    while not reader_is_gone(sys.stdout):  # noqa: ASYNC110 - the system has no event for this
        await anyio.sleep(LOOK_S)


def discard_unwritten() -> None:
    """Redirect unread output to the null device: Python would report an error in its flush at exit."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            _discard(stream)


def _discard(stream: TextIO) -> None:
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
