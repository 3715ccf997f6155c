"""Run ids that the caller chooses, and the errors about trees that exist or do not."""

from __future__ import annotations

import pytest

import remit.remote as remote
from remit import Agent, NoSuchTree, Reply, Request, StoreError, TreeExists, UsageError, resume, run, start
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, say

LEAD = Agent("lead")


def model() -> ScriptedModel:
    return ScriptedModel([say("done")])


async def test_the_root_has_the_id_that_the_caller_chose() -> None:
    """`run_id` becomes the id of the root run, in the outcome and in the store."""
    store = MemoryStore()
    outcome = await run(LEAD, "go", model=model(), store=store, run_id="review-11-7")
    assert outcome.run_id == "review-11-7"
    assert [info.root for info in await store.trees()] == ["review-11-7"]
    async with start(LEAD, "go", model=model(), run_id="without-a-store") as running:
        assert running.run_id == "without-a-store"


class Counting:
    """Counts requests."""

    name = "counting"
    asked = 0

    async def reply(self, request: Request, emit: object) -> Reply:
        self.asked += 1
        return Reply("done")


async def test_an_id_is_used_once() -> None:
    """A second tree with the same id raises TreeExists, a StoreError, before anything is sent."""
    store, counting = MemoryStore(), Counting()
    await run(LEAD, "go", model=counting, store=store, run_id="a")
    with pytest.raises(TreeExists, match="already has a run 'a'"):
        await run(LEAD, "go", model=counting, store=store, run_id="a")
    assert counting.asked == 1
    assert issubclass(TreeExists, StoreError)


async def test_an_unknown_tree_raises_no_such_tree() -> None:
    """Resuming, cancelling or looking at an unknown tree raises NoSuchTree, a StoreError."""
    store = MemoryStore()
    for attempt in (
        resume(store, "b", agent=LEAD, model=model()),
        remote.cancel(store, "b"),
        remote.look(store, "b"),
        remote.send(store, "b", "hello"),
    ):
        with pytest.raises(NoSuchTree, match="No run 'b'"):
            await attempt
    assert issubclass(NoSuchTree, StoreError)


@pytest.mark.parametrize("wrong", ["", "a.1", "a/b", "a b", "é", "x" * 65, 7, "a\n"])
async def test_an_id_has_plain_characters(wrong: object) -> None:
    """An id has 1 to 64 letters, digits, hyphens and underscores: a dot would name a child."""
    with pytest.raises(UsageError, match="run_id must have 1 to 64 characters"):
        await run(LEAD, "go", model=model(), run_id=wrong)  # pyright: ignore[reportArgumentType] - the mistake
