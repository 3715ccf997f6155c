"""Checks that every store must pass. Run them against your own store:

    battery = StoreBattery(make)
    for name in battery.names():
        await battery.check(name)

With pytest: `@pytest.mark.parametrize("name", StoreBattery.names())`. A failed check raises AssertionError. Stores that
use threads or sockets need a real clock, not virtual time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio

from remit.errors import NoSuchTree, StoreError, TreeExists, TreeOwned
from remit.testing.samples import (
    ended,
    head,
    info,
    known,
    new_id,
    new_tree,
    read_events,
    refused,
    replied,
    second,
    send,
    speaks,
    started,
    stream,
    together,
    warned,
)
from remit.types.commands import Answer, AnyCommand, Cancel, Send
from remit.types.events import RunResumed
from remit.types.limits import Usage
from remit.types.outcome import Status
from remit.types.ports import Posted, Store

TOGETHER_S = 10.0
"""Timeout for a change to become visible to another store."""

TRICKY = "ä€𝄞\0\r\n\t\x7f\u2028\ufeff\"'\\"
"""Characters that stores often lose."""


class StoreBattery:
    """The checks. Each call of `make` must open the same location again.

    The checks whose names begin with `again_` open the location a second time; `names(reopens=False)` omits them, for a
    store that keeps nothing between two openings. Every check creates its own trees, so the location may hold others.
    """

    def __init__(self, make: Callable[[], Awaitable[Store]]) -> None:
        self._make = make

    @classmethod
    def names(cls, *, reopens: bool = True) -> list[str]:
        """The names of the checks, in the order of the source."""
        found = [name for name in vars(cls) if name.startswith(("check_", "again_"))]
        return [name for name in found if reopens or not name.startswith("again_")]

    async def check(self, name: str) -> None:
        """Run one check. Raises AssertionError if the store fails it."""
        store = await self._make()
        try:
            await getattr(self, name)(store)
        finally:
            await store.close()

    # --- Events

    async def check_events_come_back_in_order(self, store: Store) -> None:
        """Appended events are read back unchanged and in order."""
        root = await new_tree(store)
        given = [started(root, 1), *(warned(root, seq, f"{TRICKY} {seq}") for seq in range(2, 1203))]
        for event in given:
            store.append(event)
        await store.flush()
        assert await read_events(store, root) == given

    async def check_gaps_in_seq_are_kept(self, store: Store) -> None:
        """`seq` may have gaps; `after` refers to `seq`, not to a number of events."""
        root = await new_tree(store)
        for seq in (2, 5, 1_000_000_007):
            store.append(warned(root, seq))
        await store.flush()
        assert [event.seq for event in await read_events(store, root)] == [2, 5, 1_000_000_007]
        assert [event.seq for event in await read_events(store, root, after=4)] == [5, 1_000_000_007]
        assert [event.seq for event in await read_events(store, root, after=5)] == [1_000_000_007]
        assert await read_events(store, root, after=1_000_000_007) == []

    async def check_read_sees_what_was_appended(self, store: Store) -> None:
        """Reading in the same process needs no flush."""
        root = await new_tree(store)
        store.append(started(root, 1))
        assert [event.seq for event in await read_events(store, root)] == [1]

    async def check_trees_are_kept_apart(self, store: Store) -> None:
        """An event belongs to its own tree only, even if events of several trees alternate."""
        roots = [await new_tree(store) for _ in range(3)]
        for seq in range(1, 31):
            for root in roots:
                store.append(warned(root, seq, root))
        await store.flush()
        for root in roots:
            assert await read_events(store, root) == [warned(root, seq, root) for seq in range(1, 31)]

    async def check_an_unknown_tree_has_no_events(self, store: Store) -> None:
        """Reading an unknown tree returns no events."""
        assert await read_events(store, new_id()) == []

    async def check_flush_with_nothing_to_do(self, store: Store) -> None:
        """Flushing works before anything was written, and twice in a row."""
        await store.flush()
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.flush()
        await store.flush()

    async def check_append_needs_a_claim(self, store: Store) -> None:
        """An event of an unknown, unclaimed or released tree is refused."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.release(root)
        for event in (warned(root, 2), warned(new_id(), 1)):
            try:
                store.append(event)
            except StoreError as error:
                speaks(error, event.root)
            else:
                raise AssertionError("the store accepted an event of a tree that is not claimed")
        assert [event.seq for event in await read_events(store, root)] == [1]

    # --- Claims

    async def check_claim_new_twice(self, store: Store) -> None:
        """A new tree needs an unused id."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await refused(store.claim(root, new=True), root, TreeExists)
        await store.release(root)
        await refused(store.claim(root, new=True), root, TreeExists)

    async def check_claim_unknown(self, store: Store) -> None:
        """An unknown tree cannot be claimed."""
        root = new_id()
        await refused(store.claim(root, new=False), root, NoSuchTree)

    async def check_claim_what_is_owned(self, store: Store) -> None:
        """A tree has one owner at a time, even within one process."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.flush()
        await refused(store.claim(root, new=False), root, TreeOwned)

    async def check_release_and_claim_again(self, store: Store) -> None:
        """A released tree can be claimed again and continues after its last event."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.release(root)
        await store.claim(root, new=False)
        store.append(warned(root, 2))
        await store.flush()
        assert [event.seq for event in await read_events(store, root)] == [1, 2]

    async def check_release_what_is_not_owned(self, store: Store) -> None:
        """Releasing a tree that is unknown or not owned does nothing."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.release(root)
        await store.release(root)
        await store.release(new_id())

    async def check_an_unused_claim_leaves_nothing(self, store: Store) -> None:
        """A released tree without events disappears, and its id can be used again."""
        root = await new_tree(store)
        assert await info(store, root) is None
        await store.release(root)
        await store.claim(root, new=True)

    async def again_claim_from_elsewhere(self, store: Store) -> None:
        """Another store cannot claim an owned tree, but can claim a released tree."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.flush()
        async with second(self._make) as other:
            await refused(other.claim(root, new=False), root, TreeOwned)
            await store.release(root)
            await other.claim(root, new=False)
            await refused(store.claim(root, new=False), root, TreeOwned)
            other.append(warned(root, 2))
            await other.release(root)
        assert [event.seq for event in await read_events(store, root)] == [1, 2]

    async def again_only_one_claims(self, store: Store) -> None:
        """If several stores claim a tree at once, exactly one succeeds."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.release(root)
        others = [await self._make() for _ in range(4)]
        won: list[Store] = []

        async def claim(one: Store) -> None:
            try:
                await one.claim(root, new=False)
            except TreeOwned:
                return
            won.append(one)

        await together(claim(one) for one in (store, *others))
        for one in others:
            await one.close()
        assert len(won) == 1

    async def again_events_survive_closing(self, store: Store) -> None:
        """Events appended before `close` are there when the location is opened again."""
        root = await new_tree(store)
        given = [started(root, 1), *(warned(root, seq) for seq in range(2, 50))]
        for event in given:
            store.append(event)
        await store.close()
        async with second(self._make) as other:
            assert await read_events(other, root) == given
            await other.claim(root, new=False)

    # --- Artifacts

    async def check_artifacts_come_back(self, store: Store) -> None:
        """Any text is stored exactly: empty, with NUL, in any script, one megabyte."""
        root = await new_tree(store)
        for name, text in {"empty": "", "tricky": TRICKY, "long": (TRICKY + "x" * 1000) * 1000}.items():
            await store.save_artifact(root, name, text)
            assert await store.load_artifact(root, name, 0, len(text) + 1) == text

    async def check_artifact_ranges(self, store: Store) -> None:
        """Ranges count characters; a range past the end is empty; an unknown artifact is None."""
        root = await new_tree(store)
        text = "".join(chr(0x100 + n % 5000) for n in range(200_000))
        await store.save_artifact(root, "a", text)
        for start, length in (
            (0, 1),
            (65_530, 20),
            (131_071, 2),
            (0, 200_000),
            (199_999, 10),
            (70_000, 100_000),
        ):
            assert await store.load_artifact(root, "a", start, length) == text[start : start + length]
        assert await store.load_artifact(root, "a", 200_000, 10) == ""
        assert await store.load_artifact(root, "a", 10, 0) == ""
        assert await store.load_artifact(root, "b", 0, 10) is None
        assert await store.load_artifact(new_id(), "a", 0, 10) is None

    async def check_artifacts_are_streamed(self, store: Store) -> None:
        """Streamed pieces of any size form one text."""
        root = await new_tree(store)
        pieces = ["", "a", TRICKY, "b" * 70_000, "", "c" * 300_000, "end"]
        await store.save_artifact(root, "a", stream(pieces))
        await store.save_artifact(root, "none", stream([]))
        whole = "".join(pieces)
        assert await store.load_artifact(root, "a", 0, len(whole) + 1) == whole
        assert await store.load_artifact(root, "none", 0, 1) == ""

    async def check_artifacts_are_replaced(self, store: Store) -> None:
        """A new artifact replaces an artifact of the same name completely."""
        root = await new_tree(store)
        await store.save_artifact(root, "a", "x" * 200_000)
        await store.save_artifact(root, "a", "short")
        assert await store.load_artifact(root, "a", 0, 200_000) == "short"

    async def check_artifacts_are_whole_or_not_there(self, store: Store) -> None:
        """A stream that fails leaves the previous artifact unchanged."""
        root = await new_tree(store)

        async def broken() -> AsyncIterator[str]:
            yield "x" * 3_000_000
            raise RuntimeError("the source failed")

        for name, before in (("new", None), ("old", "before")):
            if before is not None:
                await store.save_artifact(root, name, before)
            try:
                await store.save_artifact(root, name, broken())
            except RuntimeError:
                pass
            else:
                raise AssertionError("the store swallowed the exception of the stream")
            assert await store.load_artifact(root, name, 0, 10) == before

    async def check_artifacts_need_a_claim(self, store: Store) -> None:
        """An artifact of a tree that is not claimed is refused."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.release(root)
        await refused(store.save_artifact(root, "a", "text"), root)
        assert await store.load_artifact(root, "a", 0, 10) is None

    async def again_artifacts_are_seen_elsewhere(self, store: Store) -> None:
        """Another store at the same location can read an artifact."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.save_artifact(root, "a", TRICKY)
        async with second(self._make) as other:
            assert await other.load_artifact(root, "a", 0, 100) == TRICKY

    # --- Commands

    async def check_commands_are_numbered(self, store: Store) -> None:
        """Commands above `after` are returned unchanged, numbered from 1."""
        root = await new_tree(store)
        given: list[AnyCommand] = [
            Send(id="a", at=1.5, by="me", run=root, text=TRICKY),
            Cancel(id="b", at=2.5, run=root, reason="enough"),
            Answer(id="c", at=3.5, request="q1", allowed=True, scope="tree"),
        ]
        assert await store.commands(root, 0, wait=False) == []
        for command in given:
            await store.post(root, command)
        assert await store.commands(root, 0, wait=False) == [Posted(n + 1, c) for n, c in enumerate(given)]
        assert await store.commands(root, 2, wait=True) == [Posted(3, given[2])]
        assert await store.commands(root, 3, wait=False) == []

    async def check_commands_are_waited_for(self, store: Store) -> None:
        """With `wait`, `commands` returns only when there is a command."""
        root = await new_tree(store)
        found: list[Posted] = []

        async def wait() -> None:
            found.extend(await store.commands(root, 0, wait=True))

        async def post() -> None:
            await anyio.sleep(0.05)
            assert found == []
            await store.post(root, send(root, "a"))

        with anyio.fail_after(TOGETHER_S):
            await together((wait(), post()))
        assert [posted.command.id for posted in found] == ["a"]

    async def check_a_wait_can_be_cancelled(self, store: Store) -> None:
        """A cancelled wait for commands ends at once, and the next wait works."""
        root = await new_tree(store)
        with anyio.move_on_after(0.05) as scope:
            await store.commands(root, 0, wait=True)
        assert scope.cancelled_caught
        await store.post(root, send(root, "a"))
        assert len(await store.commands(root, 0, wait=True)) == 1

    async def check_commands_of_an_unknown_tree(self, store: Store) -> None:
        """A command for an unknown tree is refused."""
        root = new_id()
        await refused(store.post(root, send(root, "a")), root)
        await refused(store.commands(root, 0, wait=False), root)

    async def check_commands_need_no_owner(self, store: Store) -> None:
        """A command for a tree without an owner waits for the next owner."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.release(root)
        await store.post(root, send(root, "a"))
        await store.claim(root, new=False)
        assert len(await store.commands(root, 0, wait=True)) == 1

    async def again_commands_cross_over(self, store: Store) -> None:
        """Commands from another store reach the owner once each, in the order of arrival."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.flush()
        async with second(self._make) as other:
            await other.post(root, send(root, "a"))
            await store.post(root, send(root, "b"))
            await other.post(root, send(root, "c"))
        with anyio.fail_after(TOGETHER_S):
            found = await store.commands(root, 0, wait=True)
        assert [(posted.number, posted.command.id) for posted in found] == [(1, "a"), (2, "b"), (3, "c")]

    # --- Listing and deleting

    async def check_trees_say_what_they_are(self, store: Store) -> None:
        """A tree's summary has its agent, task, status, times, sizes and owner."""
        root = await new_tree(store)
        store.append(started(root, 1, task="count the birds"))
        store.append(warned(root, 2))
        await store.flush()
        line = await known(store, root)
        assert (line.agent, line.task, line.status) == ("lead", "count the birds", None)
        assert (line.started_at, line.last_at, line.events) == (1001.0, 1002.0, 2)
        assert line.live
        assert line.bytes > 0
        await store.save_artifact(root, "a", "x" * 5000)
        assert (await known(store, root)).bytes == line.bytes + 5000
        await store.save_artifact(root, "a", "x" * 10)
        assert (await known(store, root)).bytes == line.bytes + 10
        await store.release(root)
        assert not (await known(store, root)).live

    async def check_trees_say_what_was_used(self, store: Store) -> None:
        """A tree's summary counts runs and usage; `usd` is None if any price is unknown, and 0 without usage."""
        root = await new_tree(store)
        store.append(started(root, 1))
        assert (await known(store, root)).usd == 0
        store.append(replied(root, 2, Usage(1, 0, 0, usd=0.0)))
        assert (await known(store, root)).usd == 0
        store.append(replied(root, 3, Usage(1, 100, 20, usd=0.5)))
        line = await known(store, root)
        assert (line.runs, line.requests, line.tokens, line.usd) == (1, 2, 120, 0.5)
        store.append(replied(root, 4, Usage(1, 10, 0)))
        assert (await known(store, root)).usd is None

    async def check_trees_say_how_the_root_ended(self, store: Store) -> None:
        """The status is the root's, even if events follow its end; a resume clears the status."""
        root = await new_tree(store)
        store.append(started(root, 1))
        store.append(ended(root, 2, run=f"{root}.1"))
        assert (await known(store, root)).status is None
        store.append(ended(root, 3, status=Status.TIMED_OUT))
        store.append(warned(root, 4))
        assert (await known(store, root)).status is Status.TIMED_OUT
        store.append(RunResumed(**head(root, 5)))
        assert (await known(store, root)).status is None
        store.append(ended(root, 6))
        assert (await known(store, root)).status is Status.COMPLETED

    async def check_trees_are_listed_newest_first(self, store: Store) -> None:
        """Trees are listed by their start, newest first, not by their claim."""
        roots = [await new_tree(store) for _ in range(3)]
        for root, seq in zip(roots, (2, 3, 1), strict=True):
            store.append(started(root, seq))
        listed = [line.root for line in await store.trees() if line.root in roots]
        assert listed == [roots[1], roots[0], roots[2]]

    async def check_delete(self, store: Store) -> None:
        """Deleting a tree deletes its events, artifacts and commands; deleting an unknown tree does nothing."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.save_artifact(root, "a", "x" * 100_000)
        await store.post(root, send(root, "a"))
        await refused(store.delete(root), root, TreeOwned)
        await store.release(root)
        await store.delete(root)
        await store.delete(root)
        assert await info(store, root) is None
        assert await read_events(store, root) == []
        assert await store.load_artifact(root, "a", 0, 10) is None
        await refused(store.claim(root, new=False), root)
        await store.claim(root, new=True)
        assert await store.commands(root, 0, wait=False) == []

    async def again_delete_from_elsewhere(self, store: Store) -> None:
        """A tree that another store owns is listed as live and cannot be deleted."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.flush()
        async with second(self._make) as other:
            assert (await known(other, root)).live
            await refused(other.delete(root), root, TreeOwned)
            await store.close()
            assert not (await known(other, root)).live
            await other.delete(root)

    # --- Closing

    async def check_close_twice(self, store: Store) -> None:
        """A store can be closed twice."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.close()
        await store.close()

    async def check_use_after_close(self, store: Store) -> None:
        """A closed store refuses everything with a StoreError."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.close()
        for use in (
            lambda: store.claim(new_id(), new=True),
            lambda: store.claim(root, new=False),
            lambda: store.release(root),
            store.flush,
            lambda: read_events(store, root),
            lambda: store.save_artifact(root, "a", "x"),
            lambda: store.load_artifact(root, "a", 0, 1),
            lambda: store.post(root, send(root, "a")),
            lambda: store.commands(root, 0, wait=True),
            store.trees,
            lambda: store.delete(root),
        ):
            await refused(use())
        try:
            store.append(warned(root, 2))
        except StoreError:
            return
        raise AssertionError("a closed store accepted an event")
