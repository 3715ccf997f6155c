"""Forgetting trees by age and by size. Works with any store."""

from __future__ import annotations

import time

from remit.errors import TreeOwned, UsageError
from remit.stores import open_store
from remit.types.ports import Store, TreeInfo


async def prune(
    store: Store | str,
    *,
    older_than_s: float | None = None,
    most_bytes: int | None = None,
    unfinished: bool = False,
    now: float | None = None,
) -> list[TreeInfo]:
    """Deletes trees, those first whose last event is the oldest, and says which.

    Trees without an end are kept, since they can be resumed, unless `unfinished` is true.

    `older_than_s`: those whose last event is longer ago. `most_bytes`: then further ones, until what is left
    takes no more. A tree that is being run is never deleted, but counts. `now` is in seconds since the epoch.
    Raises UsageError for a number below 0.
    """
    if (older_than_s or 0) < 0 or (most_bytes or 0) < 0:
        raise UsageError("Trees can be kept for 0 seconds or longer, and in 0 bytes or more, not in fewer.")
    if isinstance(store, str):
        opened = open_store(store)
        try:
            return await prune(
                opened, older_than_s=older_than_s, most_bytes=most_bytes, unfinished=unfinished, now=now
            )
        finally:
            await opened.close()
    found = sorted(await store.trees(), key=lambda info: (info.last_at, info.root))
    left = sum(info.bytes for info in found)
    oldest = None if older_than_s is None else (time.time() if now is None else now) - older_than_s
    deleted: list[TreeInfo] = []
    for info in found:
        old = oldest is not None and info.last_at < oldest
        heavy = most_bytes is not None and left > most_bytes
        if info.live or not (old or heavy) or (info.status is None and not unfinished):
            continue
        try:
            await store.delete(info.root)
        except TreeOwned:
            # Somebody took it up meanwhile.
            continue
        deleted.append(info)
        left -= info.bytes
    return deleted
