"""The port for traces: who sees events as they happen, and in which context code that is not ours runs.

Nothing else in the engine knows about spans. Without `set_tracing` a tree has no tracing, and each place costs one check.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from remit.types.events import Event, Where


class Tracing(Protocol):
    """The traces of one tree. Every method is called on the event loop's thread, except `inside`, and must return at once."""

    def begin(self, where: Where, link: str) -> str:
        """The root is about to start, or to be resumed: its trace as text, which the journal keeps.

        `link` is the trace of the tree's first execution; empty for a tree that is new.
        """
        ...

    def see(self, event: Event) -> None:
        """An event has happened. Raises nothing."""
        ...

    def inside(self, run: str, call: str) -> AbstractContextManager[object]:
        """The context of a call's code, or of the model or program of a run if `call` is empty.

        Entered in the task or thread that runs the code.
        """
        ...

    def close(self) -> None:
        """The tree has ended: nothing more is seen."""
        ...


_make: Callable[[], Tracing] | None = None


def set_tracing(make: Callable[[], Tracing] | None) -> None:
    """Trace every tree that starts from now on in this process; None turns it off."""
    global _make  # noqa: PLW0603 - one setting for the process, as OpenTelemetry has it
    _make = make


def new_tracing() -> Tracing | None:
    """The traces of a new tree; None when nothing is traced."""
    return None if _make is None else _make()
