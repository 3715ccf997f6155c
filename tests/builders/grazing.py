"""A clock that advances between any two reads: on it, a wait that depends on two reads is never woken."""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import contextmanager

import pytest

import remit.testing.virtual as virtual

STEP_S = 1e-7
MOST_EARLY = 10
"""Steps by which a timer may fire early. uvloop fires up to half a millisecond early."""


class GrazingLoop(virtual.VirtualTimeLoop):
    """Virtual time that advances with every read, and whose timers fire a few reads early."""

    seed = 0

    def __init__(self, *, timeout_s: float, stuck_s: float) -> None:
        super().__init__(timeout_s=timeout_s, stuck_s=stuck_s)
        self._random = random.Random(self.seed)

    def time(self) -> float:
        self._now += STEP_S
        return self._now

    def _jump(self) -> None:
        early = self._random.randrange(MOST_EARLY) * STEP_S
        self._now = max(self._now, self._scheduled[0].when() - early)
        # How early asyncio may fire a timer.
        self._clock_resolution = MOST_EARLY * STEP_S


@contextmanager
def grazing(seed: int = 0) -> Generator[None]:
    """`run_virtual` uses such a clock inside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GrazingLoop, "seed", seed)
        patch.setattr(virtual, "VirtualTimeLoop", GrazingLoop)
        yield
