"""Following a running tree to its end: events to whoever shows them, Ctrl-C once and twice."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import contextmanager, suppress

import anyio

import remit.cli.exits as exits
from remit.cli.views.display import Display
from remit.engine.handle import Running
from remit.types.events import Event
from remit.types.outcome import Outcome

log = logging.getLogger("remit")

FRAME_S = 0.1
"""How often the display may draw."""

_STOPS = ("SIGINT", "SIGTERM", "SIGHUP")
_NAMES = {"SIGINT": "Ctrl-C"}


class Interrupts:
    """Signals that ask for an end: the first one is passed on, the second one is the end."""

    def __init__(self, display: Display, last_words: Callable[[], str]) -> None:
        self._display = display
        self._last_words = last_words
        self._first = asyncio.Event()
        self.reason = ""

    async def first(self) -> str:
        """Returns with the first, with its name in words."""
        await self._first.wait()
        return self.reason

    @contextmanager
    def caught(self) -> Generator[None]:
        """Inside, signals come here. Where the system has none, Ctrl-C is a KeyboardInterrupt as ever."""
        loop = asyncio.get_running_loop()
        caught: list[signal.Signals] = []
        with suppress(NotImplementedError, RuntimeError):
            for name in _STOPS:
                number = getattr(signal, name, None)
                if number is not None:
                    loop.add_signal_handler(number, self._met, name)
                    caught.append(number)
            again = getattr(signal, "SIGCONT", None)
            if again is not None:
                loop.add_signal_handler(again, self._display.go_on)
                caught.append(again)
        try:
            yield
        finally:
            for number in caught:
                loop.remove_signal_handler(number)

    def stop(self, reason: str) -> None:
        """Have the tree stopped in an orderly way, as the first signal does."""
        self.reason = self.reason or reason
        self._first.set()

    def _met(self, name: str) -> None:
        if not self.reason:
            self._display.note("Stopping, with what there is so far. Ctrl-C again: at once.")
            self.stop(_NAMES.get(name, name))
            return
        self._display.end(tree=False)
        exits.tell(self._last_words())
        with suppress(OSError, ValueError):
            sys.stdout.flush()
        # At once means that nobody is waited for. Commands have a supervisor that ends with this process.
        os._exit(exits.CANCELLED)


async def conduct(
    running: Running,
    display: Display,
    interrupts: Interrupts,
    sinks: tuple[Callable[[Event], None], ...] = (),
) -> Outcome:
    """Show a tree that has been entered until it ends; gives its outcome. `sinks` get every event too."""
    display.begin()
    done = False
    try:
        with interrupts.caught():
            async with anyio.create_task_group() as group:
                group.start_soon(_stop_on, running, interrupts)
                group.start_soon(_draw, display)
                await _feed(running.events(), (display.feed, *sinks))
                group.cancel_scope.cancel()
            outcome = await running.outcome()
            done = True
    finally:
        display.end(tree=done)
    return outcome


async def _feed(events: AsyncIterator[Event], readers: tuple[Callable[[Event], None], ...]) -> None:
    async for event in events:
        for read in readers:
            with _contained():
                read(event)


async def _draw(display: Display) -> None:
    while True:
        with _contained():
            display.paint()
        await anyio.sleep(FRAME_S)


@contextmanager
def _contained() -> Generator[None]:
    """A mistake in what is shown must not end a run that somebody pays for."""
    try:
        yield
    except Exception:
        log.exception("the display failed; the run goes on")


async def _stop_on(running: Running, interrupts: Interrupts) -> None:
    await running.cancel(await interrupts.first())
