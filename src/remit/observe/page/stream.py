"""Server-sent events: rows that changed, at most four times a second, to readers that keep up. See decision 0050."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import anyio
import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from remit.errors import StoreError
from remit.observe.page.hosting import Hosting
from remit.observe.page.hub import UnknownRun, Watched
from remit.observe.page.listing import Listing
from remit.observe.page.rows import Head, Listed, Row

TICK_S = 0.25
ALIVE_S = 10.0
"""How often an idle stream says that it is there."""
AGAIN_S = 2.0
"""How long a journal that cannot be read is left alone."""
SEND_S = 20.0
"""How long a reader may take for one patch."""
CHUNK_ROWS = 500
LISTED = 200
"""Trees that are kept up to date in the list, the newest first; and all that are live."""


class Patch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changed in a tree. The id of the message is the number of the last event that is in it."""

    now: float
    reset: bool = False
    """What was sent before is of another tree: begin anew."""
    head: Head | None = None
    rows: tuple[Row, ...] = ()
    more: bool = False
    """Another part of the same patch follows."""
    texts: tuple[Writing, ...] = ()


class Writing(Struct, frozen=True, kw_only=True):
    """What a model is writing, for runs of this process."""

    run: str
    turn: int
    at: int
    """Where `text` joins what was sent before."""
    text: str


class ListPatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What changed in the list of runs."""

    now: float
    rows: tuple[Listed, ...] = ()
    gone: tuple[str, ...] = ()
    total: int = 0


class Trouble(Struct, frozen=True):
    """Why nothing comes at the moment; the stream tries again by itself unless `ended`."""

    error: str
    ended: bool = False


class Streams:
    """All open streams: how many there may be, and that they end with the server."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open = 0
        self.closing = False


class EventStream:
    """An answer that lasts: each message is sent as it comes. A reader that does not take it is left."""

    def __init__(self, streams: Streams, messages: AsyncIterator[bytes]) -> None:
        self._streams = streams
        self._messages = messages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        self._streams.open += 1
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(_until_gone, receive, group.cancel_scope)
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                # The headers alone do not leave: a browser waits for the first byte.
                await _send(send, b": remit\n\n")
                async for message in self._messages:
                    await _send(send, message)
                await send({"type": "http.response.body", "body": b""})
                group.cancel_scope.cancel()
        except* TimeoutError:
            # Nothing is lost: a reconnect continues from its last id, out of the journal.
            pass
        finally:
            self._streams.open -= 1


async def _send(send: Send, body: bytes) -> None:
    with anyio.fail_after(SEND_S):
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


def message(kind: str, value: object, number: int | None = None) -> bytes:
    """One server-sent event. JSON has no line breaks, so the data is one line."""
    head = f"event: {kind}\n" + (f"id: {number}\n" if number is not None else "")
    return head.encode() + b"data: " + msgspec.json.encode(value) + b"\n\n"


async def follow_tree(
    watched: Watched, hosting: Hosting, streams: Streams, after: int
) -> AsyncIterator[bytes]:
    """What changed in a tree since event `after`, then what changes."""
    follower = _Follower(watched, hosting, after)
    watched.watchers += 1
    quiet_since = time.monotonic()
    try:
        while not streams.closing:
            try:
                await hosting.tidy()
                await watched.catch_up()
                async for one in follower.patches():
                    quiet_since = time.monotonic()
                    yield one
            except UnknownRun:
                yield message("trouble", Trouble("This run was deleted from the journal.", ended=True))
                return
            except StoreError as error:
                yield message("trouble", Trouble(str(error)))
                await anyio.sleep(AGAIN_S)
            if time.monotonic() - quiet_since > ALIVE_S:
                quiet_since = time.monotonic()
                yield b": alive\n\n"
            await anyio.sleep(TICK_S)
    finally:
        watched.watchers -= 1


class _Follower:
    """What one reader has been sent."""

    def __init__(self, watched: Watched, hosting: Hosting, after: int) -> None:
        self._watched = watched
        self._hosting = hosting
        self._after = after
        self._first = True
        self._live = False
        self._head: Head | None = None
        self._texts: dict[str, tuple[int, int]] = {}
        """For each run the turn, and how much of its text."""

    async def patches(self) -> AsyncIterator[bytes]:
        projection, first = self._watched.projection, self._first
        reset = first and self._after > projection.seq
        after = 0 if reset else self._after
        # A run without an end changes with its process, which no event tells.
        turned = first or self._live != projection.live
        rows = projection.rows(after, open_too=turned and after > 0)
        seq, now = projection.seq, time.time()
        head = await self._new_head()
        texts = tuple(self._new_texts())
        self._after, self._first, self._live = seq, False, projection.live
        if not (rows or head or texts or first):
            return
        for start in range(0, max(1, len(rows)), CHUNK_ROWS):
            part, last = rows[start : start + CHUNK_ROWS], start + CHUNK_ROWS >= len(rows)
            patch = Patch(
                now=now,
                reset=reset and start == 0,
                head=head if start == 0 else None,
                rows=tuple(part),
                more=not last,
                texts=texts if last else (),
            )
            # Without an id until all of it is there: a reconnect in between begins anew.
            yield message("patch", patch, seq if last else None)

    async def _new_head(self) -> Head | None:
        hosting, root = self._hosting, self._watched.root
        head = await self._watched.head(hosted=hosting.is_hosted(root), may_start=hosting.starter is not None)
        before, self._head = self._head, head
        return None if before == head else head

    def _new_texts(self) -> list[Writing]:
        found: list[Writing] = []
        texts = self._hosting.texts(self._watched.root)
        for run, (turn, text) in texts.items():
            known, sent = self._texts.get(run, (turn, 0))
            at = sent if known == turn and sent <= len(text) else 0
            if len(text) > at:
                found.append(Writing(run=run, turn=turn, at=at, text=text[at:]))
            self._texts[run] = (turn, len(text))
        self._texts = {run: sent for run, sent in self._texts.items() if run in texts}
        return found


async def follow_list(listing: Listing, hosting: Hosting, streams: Streams) -> AsyncIterator[bytes]:
    """The list of runs, then what changes in it."""
    sent: dict[str, Listed] = {}
    first = True
    quiet_since = time.monotonic()
    while not streams.closing:
        try:
            await hosting.tidy()
            rows = await listing.window(LISTED)
            changed = tuple(one for one in rows if sent.get(one.root) != one)
            now_there = {one.root: one for one in rows}
            gone = tuple(root for root in sent if root not in now_there)
            sent = now_there
            if changed or gone or first:
                first, quiet_since = False, time.monotonic()
                yield message(
                    "patch", ListPatch(now=time.time(), rows=changed, gone=gone, total=await listing.total())
                )
        except StoreError as error:
            yield message("trouble", Trouble(str(error)))
            await anyio.sleep(AGAIN_S)
        if time.monotonic() - quiet_since > ALIVE_S:
            quiet_since = time.monotonic()
            yield b": alive\n\n"
        await anyio.sleep(TICK_S * 2)
