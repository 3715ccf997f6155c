"""Signals, Ctrl-C above all, that are heard as soon as they come."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import threading
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")


async def heard_at_once(work: Coroutine[object, object, T]) -> T:
    """Have a signal wake the event loop, in the program's main thread, while something runs.

    Without it a Ctrl-C that comes in the moment before the loop goes to sleep is heard when the loop next wakes up, which
    may be never.
    """
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread() or sys.platform == "win32":
        return await work
    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        there.setblocking(False)
        before = signal.set_wakeup_fd(there.fileno(), warn_on_full_buffer=False)
        if before != -1:
            # Somebody has seen to it.
            signal.set_wakeup_fd(before)
            return await work
        loop.add_reader(here, _drain, here)
        try:
            return await work
        finally:
            loop.remove_reader(here)
            signal.set_wakeup_fd(-1)


def _drain(here: socket.socket) -> None:
    with contextlib.suppress(BlockingIOError):
        here.recv(4096)
