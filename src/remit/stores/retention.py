"""Forgetting trees by age and by size. Works with any store."""

from __future__ import annotations

import time

from remit.errors import TreeOwned, UsageError
from remit.ports import Store, TreeInfo


async def prune(
    store: Store,
    *,
    older_than_s: float | None = None,
    most_bytes: int | None = None,
    now: float | None = None,
) -> list[TreeInfo]:
    """Deletes trees, those first whose last event is the oldest, and says which.

    `older_than_s`: those whose last event is longer ago. `most_bytes`: then further ones, until what is left
    takes no more. A tree that is being run is never deleted, but counts. `now` is in seconds since the epoch.
    Raises UsageError for a number below 0.
    """
    if (older_than_s or 0) < 0 or (most_bytes or 0) < 0:
        raise UsageError("Trees can be kept for 0 seconds or longer, and in 0 bytes or more, not in fewer.")
    found = sorted(await store.trees(), key=lambda info: (info.last_at, info.root))
    left = sum(info.bytes for info in found)
    oldest = None if older_than_s is None else (time.time() if now is None else now) - older_than_s
    deleted: list[TreeInfo] = []
    for info in found:
        old = oldest is not None and info.last_at < oldest
        heavy = most_bytes is not None and left > most_bytes
        if info.live or not (old or heavy):
            continue
        try:
            await store.delete(info.root)
        except TreeOwned:
            # Somebody took it up meanwhile.
            continue
        deleted.append(info)
        left -= info.bytes
    return deleted
