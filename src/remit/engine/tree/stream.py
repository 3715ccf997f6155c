"""Live events: one writer, many readers, none of whom can slow or break a run.

Each reader has a bounded buffer. One that falls behind loses its oldest events and is told how many;
one that raises is left alone and logged. A plain `on_event` function runs in a thread of its own.
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
from remit.types.text import describe_error

log = logging.getLogger("remit")

BUFFER = 10_000
"""Events kept for a reader that is behind."""

BLOCK = 1_000
"""How many more may be kept for a while."""

LAST_LOOK_S = 2.0
"""How long the end of a run waits for `on_event` to see what is left."""


class Reader:
    """One reader's place in the stream: an async iterator. Dropping it is all it takes to stop reading."""

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
    """Hands every event to every reader at once, without waiting for any of them."""

    def __init__(self) -> None:
        self.ended = False
        self._past: list[Event] = []
        self._dropped = 0
        """How many of the first events are not kept any more."""
        self._readers: list[weakref.ref[Reader]] = []
        self._watcher: _Watcher | None = None

    def reader(self, size: int = BUFFER) -> Reader:
        """A new reader; it begins with the past events that are still kept."""
        past = deque(self._past, maxlen=size)
        reader = Reader(self, past, self._dropped + len(self._past) - len(past))
        # Weak: a reader whose loop was left with `break` has no other way to leave.
        self._readers.append(weakref.ref(reader, self._readers.remove))
        return reader

    def watch(self, function: Callable[[Event], object], loop: asyncio.AbstractEventLoop) -> None:
        """Call `function` with every event, in order, in a thread of its own."""
        self._watcher = _Watcher(function, loop)

    @property
    def trouble(self) -> str:
        """What `on_event` raised first; empty if it never did."""
        return "" if self._watcher is None else self._watcher.trouble

    @property
    def watched(self) -> bool:
        return bool(self._readers) or self._watcher is not None

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
        if self._watcher:
            self._watcher.put(event)

    async def end(self) -> None:
        """No event comes any more. `on_event` gets a moment to see the last ones."""
        self.ended = True
        for ref in tuple(self._readers):
            reader = ref()
            if reader is not None:
                reader.nudge()
        if self._watcher:
            await self._watcher.finish()


class _Watcher:
    """Feeds a plain function from a bounded buffer, in a daemon thread that runs only when needed."""

    def __init__(self, function: Callable[[Event], object], loop: asyncio.AbstractEventLoop) -> None:
        self._function = function
        self._loop = loop
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
        """Have a thread look at what there is, unless one does already."""
        if self._job is not None or not self._buffer:
            return
        self._job = threads.start(self._drain, self._loop, name="on_event", urgent=True)
        self._job.done_future.add_done_callback(self._rested)

    def _rested(self, _: object) -> None:
        # Looked at again here: an event may have come after the thread saw the buffer empty.
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
                self._tell(gap(event, missed))
            self._tell(event)

    def _tell(self, event: Event) -> None:
        try:
            self._function(event)
        except Exception as error:
            if not self.trouble:
                self.trouble = f"on_event raised {describe_error(error).rstrip('.')}"
                log.warning(
                    "%s; the run continues, and on_event is called again", self.trouble, exc_info=True
                )

    async def finish(self) -> None:
        """A moment for what is left; then the function is left behind."""
        if self._job is None:
            return
        self._idle = self._loop.create_future()
        timer = self._loop.call_later(LAST_LOOK_S, wake, self._idle)
        try:
            await self._idle
        finally:
            timer.cancel()
            if left := len(self._buffer) + self._missed:
                log.warning("on_event was too slow: it has not seen the last %d events", left)
            self._buffer.clear()
            self._leave_behind()

    def _leave_behind(self) -> None:
        if self._job is not None:
            self._job.abandon()


def gap(following: Event, missed: int) -> EventsMissed:
    """The notice that stands where events were dropped, just before the one that follows."""
    return EventsMissed(following.seq, following.at, following.where, following.v, missed=missed)
