"""What a store must do, as checks that anyone can run against theirs.

    battery = StoreBattery(make)
    for name in battery.names():
        await battery.check(name)

With pytest: `@pytest.mark.parametrize("name", StoreBattery.names())`. A check that fails raises
AssertionError. Stores with threads or sockets of their own need a real clock, not virtual time.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import anyio

from remit.errors import StoreError, TreeOwned
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
"""How long something may take that another store has to notice."""

TRICKY = "ä€𝄞\0\r\n\t\x7f\u2028\ufeff\"'\\"
"""Characters that stores have lost before."""


class StoreBattery:
    """The checks. `make` opens the store anew; each call must open the same place.

    For a store that keeps nothing between two openings, `names(reopens=False)` leaves out the checks whose names
    begin with `again_`: those open the place a second time. Every check uses trees of its own, so the place may
    hold others.
    """

    def __init__(self, make: Callable[[], Awaitable[Store]]) -> None:
        self._make = make

    @classmethod
    def names(cls, *, reopens: bool = True) -> list[str]:
        """The checks there are, in the order of reading."""
        found = [name for name in vars(cls) if name.startswith(("check_", "again_"))]
        return [name for name in found if reopens or not name.startswith("again_")]

    async def check(self, name: str) -> None:
        """Raises AssertionError when the store fails it."""
        store = await self._make()
        try:
            await getattr(self, name)(store)
        finally:
            await store.close()

    # Events.

    async def check_events_come_back_in_order(self, store: Store) -> None:
        """What was appended is read as it was, in order."""
        root = await new_tree(store)
        given = [started(root, 1), *(warned(root, seq, f"{TRICKY} {seq}") for seq in range(2, 1203))]
        for event in given:
            store.append(event)
        await store.flush()
        assert await read_events(store, root) == given

    async def check_gaps_in_seq_are_kept(self, store: Store) -> None:
        """A `seq` need not follow the last one; `after` counts in `seq`, not in events."""
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
        """An event is in its own tree only, however the events of several are mixed."""
        roots = [await new_tree(store) for _ in range(3)]
        for seq in range(1, 31):
            for root in roots:
                store.append(warned(root, seq, root))
        await store.flush()
        for root in roots:
            assert await read_events(store, root) == [warned(root, seq, root) for seq in range(1, 31)]

    async def check_an_unknown_tree_has_no_events(self, store: Store) -> None:
        """Reading a tree that does not exist gives nothing."""
        assert await read_events(store, new_id()) == []

    async def check_flush_with_nothing_to_do(self, store: Store) -> None:
        """Flushing is fine before anything was written, and twice."""
        await store.flush()
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.flush()
        await store.flush()

    async def check_append_needs_a_claim(self, store: Store) -> None:
        """Nothing is added to a tree that is not claimed, not any more, or not known."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.release(root)
        for event in (warned(root, 2), warned(new_id(), 1)):
            try:
                store.append(event)
            except StoreError as error:
                speaks(error, event.root)
            else:
                raise AssertionError("an event of a tree that is not claimed was taken")
        assert [event.seq for event in await read_events(store, root)] == [1]

    # Claims.

    async def check_claim_new_twice(self, store: Store) -> None:
        """A new tree needs a new name."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await refused(store.claim(root, new=True), root)
        await store.release(root)
        await refused(store.claim(root, new=True), root)

    async def check_claim_unknown(self, store: Store) -> None:
        """A tree that does not exist cannot be taken up."""
        root = new_id()
        error = await refused(store.claim(root, new=False), root)
        assert not isinstance(error, TreeOwned)

    async def check_claim_what_is_owned(self, store: Store) -> None:
        """A tree has one owner at a time, also within one process."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.flush()
        await refused(store.claim(root, new=False), root, TreeOwned)

    async def check_release_and_claim_again(self, store: Store) -> None:
        """What was released can be taken up, and goes on where it ended."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.release(root)
        await store.claim(root, new=False)
        store.append(warned(root, 2))
        await store.flush()
        assert [event.seq for event in await read_events(store, root)] == [1, 2]

    async def check_release_what_is_not_owned(self, store: Store) -> None:
        """Releasing what is not owned, or does not exist, does nothing."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.release(root)
        await store.release(root)
        await store.release(new_id())

    async def check_an_unused_claim_leaves_nothing(self, store: Store) -> None:
        """A new tree that got no event is gone when it is released, and its name is free."""
        root = await new_tree(store)
        assert await info(store, root) is None
        await store.release(root)
        await store.claim(root, new=True)

    async def again_claim_from_elsewhere(self, store: Store) -> None:
        """What one store owns, another cannot take; what was released, it can."""
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
        """Of several that take up a tree at once, exactly one does."""
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
        """What was appended before `close` is there when the place is opened again."""
        root = await new_tree(store)
        given = [started(root, 1), *(warned(root, seq) for seq in range(2, 50))]
        for event in given:
            store.append(event)
        await store.close()
        async with second(self._make) as other:
            assert await read_events(other, root) == given
            await other.claim(root, new=False)

    # Artifacts.

    async def check_artifacts_come_back(self, store: Store) -> None:
        """Any text is kept to the character: empty, with NUL, of any script, a megabyte."""
        root = await new_tree(store)
        for name, text in {"empty": "", "tricky": TRICKY, "long": (TRICKY + "x" * 1000) * 1000}.items():
            await store.save_artifact(root, name, text)
            assert await store.load_artifact(root, name, 0, len(text) + 1) == text

    async def check_artifact_ranges(self, store: Store) -> None:
        """A part is counted in characters; past the end there is nothing; no such artifact is None."""
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
        """Pieces of any size make one text."""
        root = await new_tree(store)
        pieces = ["", "a", TRICKY, "b" * 70_000, "", "c" * 300_000, "end"]
        await store.save_artifact(root, "a", stream(pieces))
        await store.save_artifact(root, "none", stream([]))
        whole = "".join(pieces)
        assert await store.load_artifact(root, "a", 0, len(whole) + 1) == whole
        assert await store.load_artifact(root, "none", 0, 1) == ""

    async def check_artifacts_are_replaced(self, store: Store) -> None:
        """One of the same name takes the place of the other, whole."""
        root = await new_tree(store)
        await store.save_artifact(root, "a", "x" * 200_000)
        await store.save_artifact(root, "a", "short")
        assert await store.load_artifact(root, "a", 0, 200_000) == "short"

    async def check_artifacts_are_whole_or_not_there(self, store: Store) -> None:
        """A stream that fails leaves what was there before."""
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
                raise AssertionError("what the stream raised was swallowed")
            assert await store.load_artifact(root, name, 0, 10) == before

    async def check_artifacts_need_a_claim(self, store: Store) -> None:
        """Nothing is kept for a tree that is not claimed."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.release(root)
        await refused(store.save_artifact(root, "a", "text"), root)
        assert await store.load_artifact(root, "a", 0, 10) is None

    async def again_artifacts_are_seen_elsewhere(self, store: Store) -> None:
        """An artifact can be read by whoever opens the place."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.save_artifact(root, "a", TRICKY)
        async with second(self._make) as other:
            assert await other.load_artifact(root, "a", 0, 100) == TRICKY

    # Commands.

    async def check_commands_are_numbered(self, store: Store) -> None:
        """Commands come back as they were posted, numbered from 1, those above `after`."""
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
        """With `wait` there is no answer before there is a command."""
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
        """A wait for commands that is cancelled ends at once, and the next one works."""
        root = await new_tree(store)
        with anyio.move_on_after(0.05) as scope:
            await store.commands(root, 0, wait=True)
        assert scope.cancelled_caught
        await store.post(root, send(root, "a"))
        assert len(await store.commands(root, 0, wait=True)) == 1

    async def check_commands_of_an_unknown_tree(self, store: Store) -> None:
        """Nothing can be asked of a tree that does not exist."""
        root = new_id()
        await refused(store.post(root, send(root, "a")), root)
        await refused(store.commands(root, 0, wait=False), root)

    async def check_commands_need_no_owner(self, store: Store) -> None:
        """A tree that nobody runs can be asked something; whoever takes it up finds it."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.release(root)
        await store.post(root, send(root, "a"))
        await store.claim(root, new=False)
        assert len(await store.commands(root, 0, wait=True)) == 1

    async def again_commands_cross_over(self, store: Store) -> None:
        """What another store posts reaches the owner, in the order of arrival, each once."""
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

    # What there is.

    async def check_trees_say_what_they_are(self, store: Store) -> None:
        """One line about a tree: whose, what, how it ended, since when, how much, and who runs it."""
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
        """A line counts runs, and what replies used; money only where every price is known, and nothing is known too."""
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
        """The status is the root's, whatever came after it; resuming takes it back."""
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
        """The list begins with the tree that started last, whatever was claimed first."""
        roots = [await new_tree(store) for _ in range(3)]
        for root, seq in zip(roots, (2, 3, 1), strict=True):
            store.append(started(root, seq))
        listed = [line.root for line in await store.trees() if line.root in roots]
        assert listed == [roots[1], roots[0], roots[2]]

    async def check_delete(self, store: Store) -> None:
        """A deleted tree is gone with everything of it; an unknown one is no mistake."""
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
        """A tree that another store owns is seen to be live, and is not deleted."""
        root = await new_tree(store)
        store.append(started(root, 1))
        await store.flush()
        async with second(self._make) as other:
            assert (await known(other, root)).live
            await refused(other.delete(root), root, TreeOwned)
            await store.close()
            assert not (await known(other, root)).live
            await other.delete(root)

    # Closing.

    async def check_close_twice(self, store: Store) -> None:
        """Closing is done once, however often it is asked for."""
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
        raise AssertionError("a closed store took an event")
