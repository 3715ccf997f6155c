"""A program that calls `run_sync` and is interrupted: `interrupted.py KIND [FIRST SECOND]`.

KIND is a tool below, or `trees`: short trees, one after another. With FIRST and SECOND, the program sends itself SIGINT when it
has run that many lines of the engine; otherwise the test sends them. `lines` prints how many lines one short tree runs.
"""

# ruff: noqa: ASYNC251, SIM105, T201 - it plays badly written code, and prints for the test

from __future__ import annotations

import asyncio
import itertools
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from remit import Agent, Limits, run_sync, tool
from remit.testing import ScriptedModel, call, calls, say

FREE = Limits(seconds=None, call_seconds=None, stall_seconds=None)
TRACED = ("/remit/engine/", "/remit/tasks/")


@tool(tier="observe")
async def wait() -> str:
    """Waits and can be cancelled."""
    ready()
    await asyncio.sleep(60)
    return "waited"


@tool(tier="observe")
async def short() -> str:
    """Waits for a moment."""
    await asyncio.sleep(0.001)
    return "waited"


@tool(tier="observe")
def thread() -> str:
    """Blocks its thread."""
    ready()
    threading.Event().wait()
    return "never"


@tool(tier="observe")
async def sleep() -> str:
    """Blocks the event loop in a system call."""
    ready()
    time.sleep(60)
    return "slept"


@tool(tier="observe")
async def busy() -> str:
    """Blocks the event loop in Python code."""
    ready()
    while True:
        pass


@tool(tier="observe")
async def swallow() -> str:
    """Ignores every cancel."""
    ready()
    while True:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass


@tool(tier="observe")
async def swallow_all() -> str:
    """Ignores every exception."""
    ready()
    while True:
        try:
            await asyncio.sleep(60)
        except BaseException:
            pass


TOOLS = {t.name: t for t in (wait, thread, sleep, busy, swallow, swallow_all)}


def ready() -> None:
    print("ready", flush=True)


def one_tree(kind: str) -> None:
    """A parent with two children, each of which calls the tool."""
    used = TOOLS.get(kind, short)
    both = calls(call("task", agent="kid", prompt="x"), call("task", agent="kid", prompt="y"))
    model = ScriptedModel({"lead": [both, say("done")], "kid": [call(used.name), say("done")]})
    lead = Agent("lead", subagents=[Agent("kid", tools=[used])])
    assert run_sync(lead, "go", model=model, limits=FREE).ok


class Lines:
    """Counts the lines that the main thread runs in the engine, and sends SIGINT at some of them."""

    def __init__(self, *at: int) -> None:
        self.count = 0
        self.at = at

    def trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if not any(part in frame.f_code.co_filename for part in TRACED):
            return None
        if event == "line":
            self.count += 1
            for _ in range(self.at.count(self.count)):
                signal.raise_signal(signal.SIGINT)
        return self.trace


def interrupted(kind: str, lines: Lines) -> None:
    if lines.at:
        sys.settrace(lines.trace)
    for _ in itertools.count() if kind == "trees" else range(1):
        one_tree(kind)


def main(kind: str, *at: str) -> None:
    lines = Lines(*map(int, at))
    if kind == "lines":
        lines.at = (0,)  # traced, never interrupted
        interrupted("short", lines)
        print(lines.count)
        return
    print("started", flush=True)
    try:
        try:
            interrupted(kind, lines)
        except KeyboardInterrupt:
            # From here on, nothing is tested, and the second SIGINT may still arrive.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    else:
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            print("not interrupted")
    sys.settrace(None)
    one_tree("short")
    print("interrupted")


if __name__ == "__main__":
    main(*sys.argv[1:])
