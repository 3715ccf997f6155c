"""Standard input, output and error: those that are closed at the start, and readers that go away."""

from __future__ import annotations

import os
import select
import sys
from contextlib import suppress
from typing import TextIO

LOOK_S = 0.5
"""How often it is checked whether standard output has a reader."""

_NAMES = ("stdin", "stdout", "stderr")


def open_closed() -> None:
    """Open the null device in place of standard streams that are closed (`remit runs >&-`), as git does.

    Otherwise Python has None for the stream, and the journal's file could get its number.
    """
    for number, name in enumerate(_NAMES):
        try:
            os.fstat(number)
        except OSError:
            # A new descriptor has the lowest free number, which is this one.
            with suppress(OSError):
                os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
        if getattr(sys, name) is None:
            with suppress(OSError):
                mode = "r" if name == "stdin" else "w"
                setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for the process


def reader_is_gone(stream: TextIO) -> bool:
    """Whether nobody reads a pipe any more, learnt without writing to it. False where the system cannot tell."""
    try:
        poll = select.poll()
        poll.register(stream.fileno(), 0)
        return any(state & (select.POLLERR | select.POLLHUP) for _, state in poll.poll(0))
    except (OSError, ValueError, AttributeError):
        return False


async def until_unread() -> None:
    """Returns once nobody reads standard output any more."""
    import anyio  # noqa: PLC0415 - not for `remit --help`

    while not reader_is_gone(sys.stdout):  # noqa: ASYNC110 - the system has no event for this
        await anyio.sleep(LOOK_S)


def discard_unwritten() -> None:
    """Let the output that nobody reads go to the null device: Python would complain when it flushes at the end."""
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
