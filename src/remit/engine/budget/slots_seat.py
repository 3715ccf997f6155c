"""Whether a run is working: it holds its slots while anything of its own is in flight.

Waiting for children, for a person or for a back-off is not working. Who comes back takes its slots at
the front of the queue.
"""

from __future__ import annotations

import asyncio

import remit.engine.budget.slots as slots
from remit.engine.budget.call_queue import CallQueue
from remit.engine.budget.slots import Pool
from remit.tasks.cancel import Phase, Stopped, wake


async def take(pools: tuple[Pool, ...], phase: Phase, *, front: bool = False) -> None:
    """Wait in order for a slot in every pool. Raises Stopped; then nothing is held."""
    if slots.step_in(pools):
        return
    future: asyncio.Future[None] = phase.loop.create_future()
    place = slots.take(pools, lambda: wake(future), front=front)
    if place is None:
        return
    try:
        await phase.wait(future)
    except Stopped:
        slots.leave(place)
        raise


class Seat:
    """The slots of one run, and how many of its own things are in flight."""

    __slots__ = ("_coming_back", "held", "pools", "queue", "work")

    def __init__(self, pools: tuple[Pool, ...]) -> None:
        self.pools = pools
        self.held = True
        self.work = 1
        self.queue: CallQueue | None = None
        """Of the ordinary calls of this turn, while there are several."""
        self._coming_back: list[asyncio.Future[None]] | None = None
        """While it waits for its slots: who else wants to go on with them."""

    def leave(self) -> None:
        """One thing less in flight; the last one out gives the slots back."""
        self.work = work = self.work - 1
        if not work and self.held:
            self.held = False
            slots.give_back(self.pools)

    def count(self) -> None:
        """Count a thing as in flight again that left, without a slot: it is only about to end."""
        self.work += 1

    async def enter(self, phase: Phase) -> None:
        """One thing more in flight. Raises Stopped; it then counts as in flight all the same."""
        if not self.enter_at_once():
            await self.come_back(phase)

    def enter_at_once(self) -> bool:
        """One thing more in flight. False: it has still to `come_back`."""
        self.work += 1
        if not self.held and self._coming_back is None:
            self.held = slots.step_in(self.pools)
        return self.held

    async def come_back(self, phase: Phase) -> None:
        """Wait for the slots, at the front of the queue. Raises Stopped."""
        if self._coming_back is not None:
            future: asyncio.Future[None] = phase.loop.create_future()
            self._coming_back.append(future)
            await phase.wait(future)
            return
        self._coming_back = []
        try:
            await take(self.pools, phase, front=True)
            self.held = True
        finally:
            for future in self._coming_back:
                wake(future)
            self._coming_back = None

    async def return_to_one(self, phase: Phase) -> None:
        """After a stop, whatever was in flight: only the run itself is, from now on."""
        self.work = 1
        if not self.held:
            await self.come_back(phase)

    def close(self) -> None:
        """The run has ended: whatever it held goes back."""
        self.work = 0
        if self.held:
            self.held = False
            slots.give_back(self.pools)
