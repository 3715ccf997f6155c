"""Live events: one writer, many readers. A reader cannot slow down or break a run.

Each reader has a bounded buffer. A reader that falls behind loses its oldest events and gets their number in an
`EventsMissed`. An error in `on_event` is logged once. `on_event` runs in its own thread.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Callable

import remit.tasks.threads as threads
from remit.tasks.cancel import wake
from remit.types.events import Event, EventsMissed
from remit.types.text import FOREIGN, describe_error

log = logging.getLogger("remit")

BUFFER = 10_000
"""Events kept for a reader that is behind."""

BLOCK = 1_000
"""Extra events kept before the oldest are dropped together."""

LAST_LOOK_S = 2.0
"""How long the end of a run waits for `on_event` to see the remaining events."""


class Reader:
    """One reader's place in the stream: an async iterator. To stop reading, drop the reference."""

    def __init__(self, stream: Stream, past: deque[Event], missed: int) -> None:
        self._stream = stream
        self._buffer = past
        self._missed = missed
        self._waiters: list[asyncio.Future[None]] = []

    def put(self, event: Event) -> None:
        if len(self._buffer) == self._buffer.maxlen:
            self._missed += 1
        self._buffer.append(event)
        self.nudge()

    def nudge(self) -> None:
        for waiter in self._waiters:
            wake(waiter)
        self._waiters.clear()

    def __aiter__(self) -> Reader:
        return self

    async def __anext__(self) -> Event:
        while not self._buffer:
            if self._stream.ended:
                raise StopAsyncIteration
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter
        if self._missed:
            missed, self._missed = self._missed, 0
            return gap(self._buffer[0], missed)
        return self._buffer.popleft()


class Stream:
    """Gives every event to every reader at once, without waiting for any reader."""

    def __init__(self) -> None:
        self.ended = False
        self._past: list[Event] = []
        self._dropped = 0
        """How many of the oldest events were dropped."""
        self._readers: list[weakref.ref[Reader]] = []
        self._watchers: list[_Watcher] = []

    def reader(self, size: int = BUFFER) -> Reader:
        """A new reader; it begins with the past events that are still kept."""
        past = deque(self._past, maxlen=size)
        reader = Reader(self, past, self._dropped + len(self._past) - len(past))
        # A weak reference: a reader left with `break` is removed when it is freed.
        self._readers.append(weakref.ref(reader, self._readers.remove))
        return reader

    def kept(self) -> list[Event]:
        """The past events that are still kept, after a notice of the dropped ones."""
        past = list(self._past)
        return [gap(past[0], self._dropped), *past] if self._dropped else past

    def watch(
        self, function: Callable[[Event], object], loop: asyncio.AbstractEventLoop, name: str = "on_event"
    ) -> None:
        """Call `function` with every event, in order, in its own thread. `name` is for messages."""
        self._watchers.append(_Watcher(function, loop, name))

    @property
    def trouble(self) -> str:
        """What `on_event` raised first; empty if it never did."""
        return next((one.trouble for one in self._watchers if one.trouble), "")

    @property
    def watched(self) -> bool:
        return bool(self._readers or self._watchers)

    def publish(self, event: Event) -> None:
        self._past.append(event)
        if len(self._past) >= BUFFER + BLOCK:
            self._dropped += len(self._past) - BUFFER
            del self._past[:-BUFFER]
        if self._readers:
            # A copy: a reader may be freed, and leave the list, at any moment.
            for ref in tuple(self._readers):
                reader = ref()
                if reader is not None:
                    reader.put(event)
        for watcher in self._watchers:
            watcher.put(event)

    async def end(self) -> None:
        """No more events will come. `on_event` gets `LAST_LOOK_S` seconds for the remaining ones."""
        self.ended = True
        for ref in tuple(self._readers):
            reader = ref()
            if reader is not None:
                reader.nudge()
        for watcher in self._watchers:
            await watcher.finish()


class _Watcher:
    """Feeds a plain function from a bounded buffer, in a daemon thread that runs only when needed."""

    def __init__(
        self, function: Callable[[Event], object], loop: asyncio.AbstractEventLoop, name: str
    ) -> None:
        self._function = function
        self._loop = loop
        self._name = name
        self._buffer: deque[Event] = deque()
        self._missed = 0
        self._job: threads.Job[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        self.trouble = ""
        """What the function raised first."""

    def put(self, event: Event) -> None:
        if len(self._buffer) >= BUFFER:
            self._buffer.popleft()
            self._missed += 1
        self._buffer.append(event)
        self._work()

    def _work(self) -> None:
        """Start a thread to empty the buffer, unless one is running."""
        if self._job is not None or not self._buffer:
            return
        self._job = threads.start(self._drain, self._loop, name=self._name, urgent=True)
        self._job.done_future.add_done_callback(self._rested)

    def _rested(self, _: object) -> None:
        # Check again: an event may have arrived after the thread saw an empty buffer.
        self._job = None
        if self._buffer:
            self._work()
        elif self._idle is not None:
            wake(self._idle)

    def _drain(self) -> None:
        while self._buffer:
            try:
                event = self._buffer.popleft()
            except IndexError:
                return
            missed, self._missed = self._missed, 0
            if missed:
                self._call(gap(event, missed))
            self._call(event)

    def _call(self, event: Event) -> None:
        try:
            self._function(event)
        except FOREIGN as error:
            if not self.trouble:
                self.trouble = f"{self._name} raised {describe_error(error).rstrip('.')}"
                log.warning(
                    "%s; the run continues, and %s is called again", self.trouble, self._name, exc_info=True
                )

    async def finish(self) -> None:
        """Wait briefly for the remaining events, then abandon the thread."""
        if self._job is None:
            return
        self._idle = self._loop.create_future()
        timer = self._loop.call_later(LAST_LOOK_S, wake, self._idle)
        try:
            await self._idle
        finally:
            timer.cancel()
            if left := len(self._buffer) + self._missed:
                log.warning("%s was too slow and missed the last %d events", self._name, left)
            self._buffer.clear()
            self._leave_behind()

    def _leave_behind(self) -> None:
        if self._job is not None:
            self._job.abandon()


def gap(following: Event, missed: int) -> EventsMissed:
    """The notice in place of dropped events, just before the event that follows them."""
    return EventsMissed(following.seq, following.at, following.where, following.v, missed=missed)
