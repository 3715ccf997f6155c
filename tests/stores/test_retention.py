"""Deleting trees by age and size."""

from __future__ import annotations

import pytest

from remit.errors import UsageError
from remit.stores.memory import MemoryStore
from remit.stores.retention import prune
from remit.testing.samples import started, warned
from remit.types.ports import Store


async def filled(*lasts: int) -> MemoryStore:
    """Trees `t<n>` whose last event is at 1000 + n seconds, each with an artifact of a thousand bytes."""
    store = MemoryStore()
    for last in lasts:
        await store.claim(f"t{last}", new=True)
        store.append(started(f"t{last}", 1))
        store.append(warned(f"t{last}", last))
        await store.save_artifact(f"t{last}", "a", "x" * 1000)
        await store.release(f"t{last}")
    return store


async def left(store: Store) -> set[str]:
    return {info.root for info in await store.trees()}


async def test_by_age() -> None:
    """Older trees are deleted, oldest first, and returned."""
    store = await filled(30, 10, 20, 40)
    deleted = await prune(store, unfinished=True, older_than_s=15, now=1040.0)
    assert [info.root for info in deleted] == ["t10", "t20"]
    assert await left(store) == {"t30", "t40"}


async def test_by_size() -> None:
    """The oldest trees are deleted until the rest fits."""
    store = await filled(30, 10, 20, 40)
    total = sum(info.bytes for info in await store.trees())
    assert [info.root for info in await prune(store, unfinished=True, most_bytes=total)] == []
    assert [info.root for info in await prune(store, unfinished=True, most_bytes=total - 1)] == ["t10"]
    rest = sum(info.bytes for info in await store.trees() if info.root != "t20")
    assert [info.root for info in await prune(store, unfinished=True, most_bytes=rest)] == ["t20"]
    assert [info.root for info in await prune(store, unfinished=True, most_bytes=0)] == ["t30", "t40"]


async def test_a_live_tree_stays() -> None:
    """A running tree is kept, however old and large, and its size counts."""
    store = await filled(10, 20)
    await store.claim("t10", new=False)
    deleted = await prune(store, unfinished=True, older_than_s=0, most_bytes=0, now=9999.0)
    assert [info.root for info in deleted] == ["t20"]
    assert await left(store) == {"t10"}


async def test_a_tree_that_is_claimed_meanwhile_stays() -> None:
    """A tree that is claimed after the list was read is skipped."""

    class Late(MemoryStore):
        async def delete(self, root: str) -> None:
            if root == "t10":
                await self.claim(root, new=False)
            await super().delete(root)

    store = Late()
    store._trees = (await filled(10, 20))._trees
    assert [info.root for info in await prune(store, unfinished=True, most_bytes=0)] == ["t20"]


async def test_without_age_and_size_nothing_is_deleted() -> None:
    """A negative age or size raises UsageError."""
    store = await filled(10)
    assert await prune(store) == []
    with pytest.raises(UsageError):
        await prune(store, older_than_s=-1.0)
    with pytest.raises(UsageError):
        await prune(store, most_bytes=-1)


async def test_unfinished_trees_are_kept_by_default() -> None:
    """A tree without an end can be resumed, even if its process died: age and size do not delete it."""
    store = await filled(10, 20)
    assert await prune(store, older_than_s=0, most_bytes=0, now=9999.0) == []
    assert len(await store.trees()) > 0
