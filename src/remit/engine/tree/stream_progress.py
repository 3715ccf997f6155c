"""What children are doing, call by call; computed from events, stored nowhere.

Feed it a tree's events in order. For each call of a run other than the root, it returns one `ChildProgress` when the
call starts and one when it ends.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import Struct

from remit.types.events import CallEnded, CallStarted, Event, RunStarted

MOST = 2**32 - 1
"""Numbers stop here, so that readers can store them in 32 bits."""


class ChildProgress(Struct, frozen=True):
    """The start or the end of a child's call."""

    subagent_id: str
    subagent_name: str
    nickname: str | None
    max_turns: int | None
    current_turn: int
    model: str
    tool_name: str
    tool_context: str
    completed: bool
    success: bool
    tool_count: int
    total_tokens: int
    child_thread_id: str
    """The child's conversation; each run has one, so this is the run's id."""
    child_root_task_id: str
    subagent_task_id: str


class ProgressView:
    """Turns events into steps; remembers each run's `RunStarted`."""

    def __init__(self) -> None:
        self._started: dict[str, RunStarted] = {}

    def feed(self, event: Event) -> ChildProgress | None:
        """The step that this event describes, if any."""
        if isinstance(event, RunStarted):
            self._started[event.run] = event
        if not isinstance(event, (CallStarted, CallEnded)) or event.parent is None:
            return None
        begun = self._started.get(event.run)
        turns = begun.limits.turns if begun and not begun.program else None
        ended = isinstance(event, CallEnded)
        return ChildProgress(
            subagent_id=event.run,
            subagent_name=event.agent,
            nickname=(begun.nickname or None) if begun else None,
            max_turns=min(turns, MOST) if isinstance(turns, int) else None,
            current_turn=min(event.turn, MOST),
            model=begun.model if begun else "",
            tool_name=event.tool,
            tool_context=event.context,
            completed=ended,
            success=event.success if isinstance(event, CallEnded) else False,
            tool_count=min(event.count, MOST),
            total_tokens=min(event.tokens, MOST),
            child_thread_id=event.run,
            child_root_task_id=event.root,
            subagent_task_id=begun.call if begun else "",
        )


class ProgressReader:
    """The steps in a stream of events, as an async iterator."""

    def __init__(self, events: AsyncIterator[Event]) -> None:
        self._events = events
        self._view = ProgressView()

    def __aiter__(self) -> ProgressReader:
        return self

    async def __anext__(self) -> ChildProgress:
        while True:
            step = self._view.feed(await anext(self._events))
            if step:
                return step
