"""Tool sources: tools that are known only after something was opened, such as an MCP server.

The first run that needs a source opens it; the other runs of the tree share that opening. It is closed when the tree
ends, or when no run has used it for `LINGER_S`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

from msgspec import Struct

import remit.tasks.guest as foreign
from remit.errors import RemitError
from remit.tasks.cancel import Phase, Stopped, wake
from remit.tasks.deadline import Alarm
from remit.tools.tool import Tool
from remit.types.messages import unforge
from remit.types.text import clean, describe_error, one_line, shorten

if TYPE_CHECKING:
    from pathlib import Path
else:
    # Type hints can be read at run time, and importing pathlib is slow.
    from os import PathLike as Path

log = logging.getLogger("remit")

LINGER_S = 60.0
"""Seconds that an unused opening stays open, since the next child may need it."""


TROUBLE_CHARS = 2_000
"""The longest message about tools missing from one source."""


class Choice(Struct, frozen=True):
    """The tools that an agent gets from an opening, and a message about tools that it should have got and did not."""

    tools: Sequence[Tool]
    trouble: str = ""


def _safe(trouble: str) -> str:
    """The message, made safe for a note by remit: its text may come from an untrusted server."""
    return shorten(unforge(one_line(clean(trouble))), TROUBLE_CHARS, TROUBLE_CHARS - 3)


class Opening(Protocol):
    """An open source. Contract: `close` returns when all its resources are released, and never raises."""

    @property
    def tools(self) -> Sequence[Tool]: ...

    async def close(self) -> None: ...


@runtime_checkable
class ToolSource(Protocol):
    """A source of tools in `Agent(tools=...)`.

    Contract: sources with equal keys share one opening in a tree. `open` raises when it fails; people and the model
    read the message. A cancelled `open` leaves no resources open.
    """

    @property
    def name(self) -> str: ...

    @property
    def key(self) -> Hashable: ...

    @property
    def open_seconds(self) -> float:
        """The timeout of `open`."""
        ...

    @property
    def observes(self) -> bool:
        """Whether any of its tools may have the tier `observe`. If not, a read-only sandbox does not open the source."""
        ...

    async def open(self, workspace: Path | None) -> Opening: ...

    def choose(self, tools: Sequence[Tool]) -> Choice:
        """The tools of the opening that the agent with this source gets."""
        ...


class Sources:
    """The sources that the runs of one tree have opened."""

    def __init__(self, alarm: Alarm, workspace: Path | None) -> None:
        self._alarm = alarm
        self._loop = alarm.loop
        self._workspace = workspace
        self._shared: dict[Hashable, _Shared] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.made: dict[object, object] = {}
        """A cache of data made from the tools, shared by the runs of an agent."""

    async def borrow(self, source: ToolSource, phase: Phase) -> Choice:
        """Open the source if needed, and return the run's tools. Always call `give_back` afterwards. Raises Stopped."""
        shared = self._shared.get(source.key)
        if shared is None:
            shared = self._shared[source.key] = _Shared(self._alarm)
            shared.task = self._loop.create_task(
                self._open(source, shared), name=f"remit opens {source.name}"
            )
        shared.borrowers += 1
        shared.stop_timer()
        if not shared.done:
            waiter: asyncio.Future[None] = self._loop.create_future()
            shared.waiters.append(waiter)
            await phase.wait(waiter)
        if shared.opening is None:
            return Choice((), _safe(shared.trouble))
        choice = source.choose(shared.opening.tools)
        return Choice(choice.tools, _safe(choice.trouble))

    def give_back(self, source: ToolSource) -> None:
        shared = self._shared.get(source.key)
        if shared is None:
            return
        shared.borrowers -= 1
        if shared.borrowers <= 0:
            # A failed opening is not kept, so that the next run tries again.
            wait = LINGER_S if shared.opening is not None else 0.0
            shared.timer = self._loop.call_later(wait, self._let_go, source.key)

    async def close(self) -> None:
        """Close every opening; returns when all resources are released. Never raises."""
        for key in tuple(self._shared):
            self._let_go(key)
        while self._closing:
            await asyncio.wait(self._closing)

    def _let_go(self, key: Hashable) -> None:
        shared = self._shared.pop(key)
        shared.stop_timer()
        task = self._loop.create_task(_close(shared))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _open(self, source: ToolSource, shared: _Shared) -> None:
        end = self._loop.time() + source.open_seconds
        try:
            ended = await foreign.run(
                source.open(self._workspace),
                shared.phase,
                name=f"opening {source.name}",
                expires=lambda: end,
                on_abandoned=lambda name: log.warning("%s could not be stopped", name),
            )
        except Stopped as stop:
            ended = stop.ended or foreign.Ended("timed_out")
        if ended.how == "returned" or (ended.value is not None and ended.error is None):
            shared.opening = cast(Opening, ended.value)
        elif ended.error is not None:
            known = isinstance(ended.error, RemitError)
            shared.trouble = str(ended.error) if known else describe_error(ended.error)
        else:
            shared.trouble = f"not ready within {source.open_seconds:g} s"
        shared.done = True
        for waiter in shared.waiters:
            wake(waiter)


class _Shared:
    """One opening, with its waiters and the number of its borrowers."""

    def __init__(self, alarm: Alarm) -> None:
        self.phase = Phase(alarm)
        self.task: asyncio.Task[None] | None = None
        self.opening: Opening | None = None
        self.trouble = ""
        self.done = False
        self.waiters: list[asyncio.Future[None]] = []
        self.borrowers = 0
        self.timer: asyncio.TimerHandle | None = None

    def stop_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


async def _close(shared: _Shared) -> None:
    shared.phase.stop()
    if shared.task is not None:
        await asyncio.wait({shared.task})
    if shared.opening is not None:
        try:
            await shared.opening.close()
        except Exception:
            log.exception("closing a tool source failed")
