"""How a tree uses its store. A store that fails, hangs or is taken over never breaks or delays a run.

After the first event that the store refuses, it gets no more events. The store then has a complete beginning of the
history, without gaps, and the outcome says how many events are missing.

A call that changes things is recorded before it runs. One call waits for a store that is down and is then refused;
further calls are refused at once until the store responds again, and the outcome says how many were refused.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import cast

import remit.tasks.guest as foreign
from remit.errors import StoreError, TreeOwned
from remit.tasks.cancel import Phase
from remit.types.events import Event
from remit.types.ports import Posted, Store
from remit.types.text import describe_error

log = logging.getLogger("remit")

OPEN_S = 30.0
"""How long a store may take to be opened and claimed."""

FLUSH_S = 10.0
"""How long the store may take to flush."""

AGAIN_S = 0.5
"""The pause before a store that is down is tried again."""

LAST_S = 2.0
"""How long the store may take to close after its last flush failed."""


class Journal:
    """One tree in a store."""

    def __init__(
        self, store: Store, root: str, *, ours: bool, strict: bool = False, above: tuple[str, ...] = ()
    ) -> None:
        self._store = store
        self.root = root
        self.strict = strict
        """Whether a model request is sent only if the store has its intent and this process still owns the tree."""
        self._above = above
        """Trees that this process must own too: the batch of this tree."""
        self._ours = ours
        """Whether the store was opened for this tree alone, and is closed with it."""
        self.volatile = bool(getattr(store, "volatile", False))
        """Whether the store's data ends with the process; then flushing it is pointless."""
        self.shared = not (ours and self.volatile)
        """Whether other code could read the tree through the store. If not, no events are recorded."""
        self.held = self.shared
        """Whether the tree has to be released."""
        self._claimed = False
        self.trouble = ""
        """Why the store gets no more events."""
        self.taken_over = False
        self.missing = 0
        """How many events were not recorded."""
        self.down = ""
        """Why calls that change things are refused at once; empty while the store responds."""
        self.calls_refused = 0
        self._refused_because = ""
        self._asking: asyncio.Task[None] | None = None
        """Asks a store that is down until it responds."""
        self._redact: Callable[[str], str] | None = None
        self._late = False
        """Whether the final flush failed: then the store gets less time to close."""

    def record(self, event: Event) -> None:
        """Give an event to the store. Raises nothing: after the first event that a store refuses, it gets no more."""
        if not self.trouble:
            try:
                self._store.append(event)
            except Exception as error:  # noqa: BLE001 - a broken store never breaks a run
                self._broke(error)
        if self.trouble:
            self.missing += 1

    def redact(self, text: str) -> str:
        """A text as the store keeps it."""
        if self._redact is None:
            own: object = getattr(self._store, "redact_text", None)
            self._redact = cast("Callable[[str], str]", own) if callable(own) else _as_it_is
            if not callable(own) and not self.volatile:
                from remit.history.redaction import Redactor  # noqa: PLC0415 - a store of the caller's own

                self._redact = Redactor().redact_text
        return self._redact(text)

    def _broke(self, error: Exception) -> None:
        if not self.trouble:
            self.trouble = _words(error)
            self.taken_over = isinstance(error, TreeOwned)
            log.warning("the store cannot record events; the run continues without them: %s", error)

    async def finish(self) -> str:
        """Flush everything; returns the warning for the root's outcome if that fails. Raises nothing."""
        trouble = await self.flush()
        if not trouble:
            return ""
        self._late = True
        some = "1 event was" if self.missing == 1 else f"{self.missing} events were"
        count = some if self.missing else "The last events were"
        return f"{count} not stored, so this run can only be resumed from before them: {trouble}"

    async def claim(self, *, new: bool) -> None:
        """Claim the tree. Raises StoreError."""
        if new and not self.shared:
            # No other process can claim the tree. `store` claims it when something is first kept.
            return
        if self.volatile:
            await self._store.claim(self.root, new=new)
            self._claimed = True
            return

        async def claim() -> None:
            await self._store.claim(self.root, new=new)
            # Set inside the task: a caller that is cancelled now still owns the tree.
            self._claimed = True

        await self._within(OPEN_S, claim())

    async def store(self) -> Store:
        """The store itself, to keep other data of the tree."""
        if not self.held:
            await self._store.claim(self.root, new=True)
            self._claimed = self.held = True
        return self._store

    async def flush(self, phase: Phase | None = None) -> str:
        """Flush everything so far; returns the reason if that fails. Raises Stopped with the phase."""
        if not self.trouble and not self.volatile:
            try:
                if phase is None:
                    await self._within(FLUSH_S, self._store.flush(self.root))
                else:
                    await self._in_phase(phase, FLUSH_S, self._store.flush(self.root))
            except StoreError as error:
                # Only refused events are lost: buffered events may still be stored.
                if isinstance(error, TreeOwned):
                    self._broke(error)
                return _words(error)
        return self.trouble

    async def before_change(self, phase: Phase) -> str:
        """Flush before a call that changes things; returns the reason to refuse the call if that fails.

        Raises Stopped with the phase.
        """
        trouble = self.down or await self.flush(phase)
        if trouble:
            self.calls_refused += 1
            self._refused_because = trouble
            if not self.down and not self.trouble:
                self.down = trouble
                self._asking = asyncio.get_running_loop().create_task(
                    self._ask_again(), name="the store is down"
                )
        return trouble

    async def before_request(self) -> str:
        """For a strict tree: wait until everything so far is durable and the claim is sure.

        Returns the reason if that fails. Directly after it returned "", no other process can own the tree.
        """
        if self.volatile or self.trouble:
            return self.trouble
        confirm = cast("Callable[..., Coroutine[object, object, float]]", self._store.confirm)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - checked before the tree starts
        until: list[float] = []

        async def ask() -> None:
            until.append(await confirm(self.root, *self._above))

        try:
            # Again if this process was frozen after the store had answered.
            while not until or time.monotonic() >= until[-1]:
                await self._within(FLUSH_S, ask())
        except StoreError as error:
            if isinstance(error, TreeOwned):
                self._broke(error)
            return _words(error)
        return self.trouble

    async def _ask_again(self) -> None:
        """Try until the store responds. Raises nothing."""
        while self.down and not self.trouble:
            self.down = await self.flush()
            if self.down:
                await asyncio.sleep(AGAIN_S)

    def refusals(self) -> str:
        """How many calls were refused and why, for the root's outcome; empty if none."""
        if not self.calls_refused:
            return ""
        one = self.calls_refused == 1
        calls = (
            "1 call that changes things was" if one else f"{self.calls_refused} calls that change things were"
        )
        return f"{calls} not run, because the store did not record {'it' if one else 'them'}: {self._refused_because}"

    async def past(self, after: int = 0) -> AsyncIterator[Event]:
        """The tree's recorded events with a `seq` above `after`. Raises StoreError."""
        async for event in self._store.read(self.root, after):
            yield event

    async def posted(self) -> list[Posted] | None:
        """Commands sent to the tree before it was claimed; None if the store fails. Raises nothing."""
        found: list[Posted] = []

        async def ask() -> None:
            found.extend(await self._store.commands(self.root, 0, wait=False))

        try:
            await self._within(FLUSH_S, ask())
        except StoreError as error:
            log.warning("cannot read the commands that other processes sent to %s: %s", self.root, error)
            return None
        return found

    async def commands(self, after: int, *, wait: bool) -> list[Posted]:
        return await self._store.commands(self.root, after, wait=wait)

    async def leave(self) -> None:
        """Release the tree and close the store. Never raises: the outcome must not be lost."""
        if not self.held:
            return
        if self._asking is not None:
            self._asking.cancel()
        try:
            # Release only our own claim.
            if self._claimed:
                await self._within(FLUSH_S if not self._late else LAST_S, self._store.release(self.root))
        except StoreError as error:
            log.warning("the tree could not be released in the store: %s", error)
        finally:
            await self.close()

    async def close(self) -> None:
        """Close a store that was opened for this tree. Never raises."""
        if self._ours:
            try:
                await self._within(FLUSH_S if not self._late else LAST_S, self._store.close())
            except StoreError as error:
                log.warning("the store could not be closed: %s", error)

    async def _within(self, seconds: float, work: Coroutine[object, object, None]) -> None:
        """Run the store's code outside any run. Raises StoreError for any failure."""
        if self.volatile:
            await work
            return
        task = asyncio.get_running_loop().create_task(work, name="the store")
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            late = not task.done()
            task.cancel()
        if late:
            raise _too_late(seconds)
        error = RuntimeError("the store cancelled its own task") if task.cancelled() else task.exception()
        if error is not None:
            raise _store_error(error)

    async def _in_phase(self, phase: Phase, seconds: float, work: Coroutine[object, object, None]) -> None:
        """Run the store's code for a run, and stop it with the run. Raises StoreError or Stopped."""
        end = phase.loop.time() + seconds
        ended = await foreign.run(
            work, phase, name="the store", expires=lambda: end, on_abandoned=_left_behind
        )
        if ended.error is not None:
            raise _store_error(ended.error)
        if ended.how == "timed_out":
            raise _too_late(seconds)


def _as_it_is(text: str) -> str:
    return text


def _too_late(seconds: float) -> StoreError:
    return StoreError(f"The store did not respond within {seconds:g} s.")


def _store_error(error: BaseException) -> StoreError:
    if isinstance(error, StoreError):
        return error
    return StoreError(f"The store failed: {describe_error(error)}")


def _left_behind(name: str) -> None:
    log.warning("%s could not be stopped and was abandoned", name)


def _words(error: BaseException) -> str:
    """The error as text; never empty, because an empty text means success."""
    said = str(error) if isinstance(error, StoreError) else ""
    return said or f"the store failed: {describe_error(error)}"
