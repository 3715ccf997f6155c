"""Deletes trees by age and size. Works with any store."""

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
    """Delete trees, oldest last event first, and return the deleted ones.

    Unfinished trees are kept, because they can be resumed, unless `unfinished` is true.

    `older_than_s`: delete trees whose last event is longer ago. `most_bytes`: then delete further trees until the rest
    fits. A running tree is never deleted, but its size counts. `now` is in seconds since the epoch. Raises UsageError
    for a negative number.
    """
    if (older_than_s or 0) < 0 or (most_bytes or 0) < 0:
        raise UsageError("older_than_s and most_bytes must be at least 0.")
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
            # Another process resumed the tree meanwhile.
            continue
        deleted.append(info)
        left -= info.bytes
    return deleted
