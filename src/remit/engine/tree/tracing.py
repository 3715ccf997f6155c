"""The port for traces: sees events as they happen, and sets the context for code that is not part of remit.

Nothing else in the engine knows about spans. Without `set_tracing` a tree has no tracing, at the cost of one check.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from remit.types.events import Event, RunStarted
from remit.types.messages import Call, Request

Inside = AbstractContextManager[object]
"""A context for foreign code. Created on the event loop's thread, entered in the task or thread that runs the code."""

UNTRACED: Inside = nullcontext()
"""For trees that are not traced."""


class Tracing(Protocol):
    """The traces of one tree. Every method is called on the event loop's thread, returns at once and raises nothing."""

    def begin(self, start: RunStarted, description: str, *, resumed: bool) -> str:
        """A run is about to start, or to be resumed: then `start` is the recorded one. `description` is its agent's.

        Returns the trace of a root as text, which the journal keeps; "" for other runs.
        """
        ...

    def see(self, event: Event) -> None:
        """An event has happened."""
        ...

    def in_run(self, run: str) -> Inside:
        """For everything that a run does outside its model calls and tool calls; for all of a program."""
        ...

    def in_model_call(self, run: str, model: str, request: Request) -> Inside:
        """For one request to a model, after its `TurnStarted`."""
        ...

    def in_call(self, run: str, call: Call) -> Inside:
        """For the code of one tool call; before its `CallStarted` if the call waits for a thread."""
        ...

    async def finish(self) -> None:
        """The tree has ended: no more events come. May wait up to a second for spans to be exported."""
        ...


_make: Callable[[], Tracing] | None = None


def set_tracing(make: Callable[[], Tracing] | None) -> None:
    """Trace every tree that starts from now on in this process; None turns it off."""
    global _make  # noqa: PLW0603 - one setting for the process, as in OpenTelemetry
    _make = make


def new_tracing() -> Tracing | None:
    """The traces of a new tree; None if tracing is off."""
    return None if _make is None else _make()
