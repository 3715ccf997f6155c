"""A run's wall clock: a hard end, a soft one before it, and time that does not count.

The last tenth of a run's time (at most 30 s) is kept for wrapping up. Children end a margin before
their parent's soft end, at every level, so they wrap up before it does.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import copy_context

from remit.phase import clock_of

MOST_KEPT_S = 30.0
MOST_MARGIN_S = 1.0


class Deadline:
    """One re-armed timer. `on_soft` is called at the soft end, `on_hard` at the hard one."""

    __slots__ = (
        "_at",
        "_clock",
        "_context",
        "_loop",
        "_pauses",
        "_since",
        "_timer",
        "hard",
        "kept_s",
        "on_hard",
        "on_soft",
        "soft_met",
        "total_s",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        seconds: float | None,
        parent: Deadline | None,
        *,
        on_soft: Callable[[], None],
        on_hard: Callable[[], None],
        elapsed_s: float = 0.0,
    ) -> None:
        own = math.inf if seconds is None else seconds
        left = max(0.0, own - elapsed_s)
        self._clock = clock_of(loop) if parent is None else parent._clock  # noqa: SLF001 - one of its own
        # One for the tree: a timer without a context copies the current one.
        self._context = copy_context() if parent is None else parent._context  # noqa: SLF001 - as above
        if parent is not None:
            left = min(left, _share(parent.soft_left()))
        total = min(own, left + elapsed_s)
        self._loop = loop
        self.total_s = total
        """What it really has, `elapsed_s` of it behind it: the smaller of its own and its share of the parent's."""
        self.hard = self._clock() + left
        self.kept_s = min(MOST_KEPT_S, total / 10)
        self.on_soft = on_soft
        self.on_hard = on_hard
        self.soft_met = False
        self._pauses = 0
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._at = math.inf
        """When the timer rings."""
        self._arm()

    def left(self) -> float:
        """Seconds until the hard end; it stands still while somebody is asked."""
        return self.hard - (self._since if self._pauses else self._clock())

    def soft_left(self) -> float:
        return self.left() - self.kept_s

    def pause(self) -> None:
        """Stop the clock. Pauses of several askers count as long as any of them waits."""
        self._pauses += 1
        if self._pauses == 1:
            self._since = self._loop.time()
            self._disarm()

    def resume(self) -> None:
        self._pauses -= 1
        if self._pauses == 0:
            self.hard += self._loop.time() - self._since
            self._arm()

    def close(self) -> None:
        """Never ring again, also not after a pause that is still to end."""
        self._disarm()
        self.hard = math.inf
        # It is let go of at once: what only a garbage collector finds costs more than it looks.
        self.on_soft = self.on_hard = _nobody

    def look(self) -> None:
        """Ring at once if the time has come and the timer could not say so yet."""
        while self._at <= self._clock():
            self._disarm()
            self._ring()

    def _arm(self) -> None:
        if self.hard == math.inf:
            return
        self._at = self.hard if self.soft_met else self.hard - self.kept_s
        self._timer = self._loop.call_at(self._at, self._ring, context=self._context)

    def _disarm(self) -> None:
        self._at = math.inf
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer, self._at = None, math.inf
        if self.soft_met:
            self.on_hard()
            return
        self.soft_met = True
        self._arm()
        self.on_soft()


def _nobody() -> None:
    """Who is told of the ends of a deadline that is closed."""


def _share(soft_left: float) -> float:
    """What a child may have of its parent's time up to the soft end."""
    if soft_left == math.inf:
        return math.inf
    return max(0.0, soft_left - min(MOST_MARGIN_S, soft_left / 20))
