"""Splits artifacts into redacted chunks for rows, without holding a long artifact in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Iterator

from remit.history.redaction import HELD_CHARS, Redactor
from remit.stores.sql.tables import CHUNK_CHARS


async def chunks(data: str | AsyncIterable[str], redactor: Redactor) -> AsyncIterator[str]:
    """Redacted pieces of `CHUNK_CHARS`; the last is shorter, and an empty text has none."""
    if isinstance(data, str) and len(data) <= CHUNK_CHARS:
        for piece in _cut(redactor.redact_text(data)):
            yield piece
        return
    ready = ""
    async for text in _redacted(_pieces(data) if isinstance(data, str) else data, redactor):
        ready += text
        whole = len(ready) - len(ready) % CHUNK_CHARS
        for piece in _cut(ready[:whole]):
            yield piece
        ready = ready[whole:]
    if ready:
        yield ready


async def _pieces(text: str) -> AsyncIterator[str]:
    """Pieces of a long text, yielding to the event loop in between: searching for secrets takes time."""
    for piece in _cut(text):
        yield piece
        await asyncio.sleep(0)


def _cut(text: str) -> Iterator[str]:
    return (text[start : start + CHUNK_CHARS] for start in range(0, len(text), CHUNK_CHARS))


async def _redacted(data: AsyncIterable[str], redactor: Redactor) -> AsyncIterator[str]:
    held: list[str] = []
    size = 0
    least = enough = 2 * CHUNK_CHARS + redactor.held - HELD_CHARS
    async for text in data:
        held.append(text)
        size += len(text)
        if size >= enough:
            window = "".join(held)
            end = redactor.cut(window)
            yield redactor.redact_text(window[:end])
            held = [window[end:]]
            size = len(held[0])
            # If the cut released little text, wait for more before the next cut.
            enough = max(least, size + CHUNK_CHARS)
    if held:
        yield redactor.redact_text("".join(held))
