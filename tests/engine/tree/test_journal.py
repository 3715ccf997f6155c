"""Stores that fail, hang or are taken over: the run goes on, says what is missing, and leaves a true beginning behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from remit import Agent, Limits, Outcome, StoreError, resume, run, start, tool
from remit.engine.tree.journal import Journal
from remit.errors import TreeOwned
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.types.events import Event
from remit.types.messages import AssistantMessage

ran: list[str] = []


@tool(tier="observe")
async def look(what: str) -> str:
    """Looks."""
    ran.append(what)
    return f"saw {what}"


@tool
async def change(what: str) -> str:
    """Changes something."""
    ran.append(what)
    return f"changed {what}"


AGENT = Agent("lead", tools=[look, change])


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def model() -> ScriptedModel:
    """Without a memory: the step follows from how often the run has spoken."""
    both = calls(call("look", what="a"), call("change", what="b"))
    steps = [both, call("look", what="c"), say("done")]
    return ScriptedModel(lambda r: steps[sum(isinstance(m, AssistantMessage) for m in r.messages)])


async def go(store: MemoryStore, limits: Limits | None = None) -> Outcome:
    return await run(AGENT, "go", model=model(), store=store, policy=["allow *"], limits=limits)


class Durable(MemoryStore):
    """A store that outlives the process, as far as the run can tell."""

    volatile = False

    def __init__(self) -> None:
        super().__init__()
        self.took: list[Event] = []

    def append(self, event: Event) -> None:
        super().append(event)
        self.took.append(event)


class Full(Durable):
    """Takes so many events and refuses one; what it would do after that is not known, so it must not be asked."""

    def __init__(self, most: int, error: Exception) -> None:
        super().__init__()
        self.most = most
        self.error = error
        self.refused = 0

    def append(self, event: Event) -> None:
        if len(self.took) >= self.most and not self.refused:
            self.refused += 1
            raise self.error
        super().append(event)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (StoreError("The disk is full: free some space."), "The disk is full"),
        (ValueError("odd"), "ValueError: odd"),
    ],
)
async def test_a_store_that_takes_no_more_events_leaves_a_true_beginning(
    error: Exception, words: str
) -> None:
    """From the first refused event on nothing is appended, the run goes on, and its outcome says how much is missing and why."""
    for most in range(14):
        store = Full(most, error)
        async with start(AGENT, "go", model=model(), store=store, policy=["allow *"]) as running:
            happened = [event async for event in running.events()]
            outcome = await running.outcome()
        assert (outcome.status, outcome.text) == ("completed", "done")
        assert store.took == happened[:most]
        # The changing call is among the events that were not taken, or it ran.
        *refused, missing = outcome.warnings
        assert len(refused) == ("b" not in ran)
        assert missing.startswith(f"{len(happened) - most} event")
        assert "not stored" in missing
        assert words in missing
        ran.clear()


async def test_what_changes_things_does_not_run_unrecorded() -> None:
    """When the start of a changing call cannot be recorded it is not run; one that observes is."""
    store = Full(3, StoreError("The disk is full."))
    outcome = await go(store)
    assert ran == ["a", "c"]
    results = [m.text for m in outcome.messages[2:4]]
    assert results[0] == "saw a"
    assert results[1].startswith(
        "Not run: a call that changes things must be recorded first. The disk is full."
    )


async def test_a_tree_of_which_only_a_beginning_was_stored_resumes_from_it() -> None:
    """What a full store has is enough to resume from, once there is room."""
    for most in range(1, 8):
        store = Full(most, StoreError("The disk is full."))
        short = await go(store)
        outcome = await resume(store, short.run_id, agent=AGENT, model=model(), policy=["allow *"])
        assert (outcome.status, outcome.text, outcome.warnings) == ("completed", "done", ())


class Unsure(Durable):
    """Takes everything and cannot make sure of it."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.flushed = 0

    async def flush(self, root: str | None = None) -> None:
        self.flushed += 1
        if self.how == "hangs":
            await asyncio.Event().wait()
        if self.how == "odd":
            raise ValueError("odd")
        raise StoreError("The disk cannot be written: look at its mount.")


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("raises", "The disk cannot be written"),
        ("odd", "ValueError: odd"),
        ("hangs", "did not respond within"),
    ],
)
async def test_a_flush_that_fails_or_hangs_stops_only_what_changes_things(how: str, words: str) -> None:
    """A changing tool is not run, an observing one is; the run ends with a warning, not with an error, and not never."""
    store = Unsure(how)
    outcome = await go(store)
    assert (outcome.status, ran) == ("completed", ["a", "c"])
    assert words in outcome.messages[3].text
    assert outcome.messages[3].text.startswith("Not run: ")
    refused, missing = outcome.warnings
    assert refused.startswith("1 call that changes things was not run")
    assert missing.startswith("The last events were not stored")
    assert words in refused
    assert words in missing


async def test_a_hanging_flush_does_not_hold_up_a_cancel() -> None:
    """A run that waits for its store can be stopped at once."""
    async with start(AGENT, "go", model=model(), store=Unsure("hangs"), policy=["allow *"]) as running:
        await asyncio.sleep(1)
        began = asyncio.get_running_loop().time()
        running_cancel = asyncio.get_running_loop().create_task(running.cancel("enough"))
        outcome = await running.outcome()
        await running_cancel
    assert outcome.status == "cancelled"
    assert outcome.duration_s <= began + 1 + 5
    assert "b" not in ran


class Clinging(Durable):
    """Cannot be left."""

    def __init__(self, error: Exception | None) -> None:
        super().__init__()
        self.error = error

    async def release(self, root: str) -> None:
        await self._fail()

    async def close(self) -> None:
        await self._fail()

    async def _fail(self) -> None:
        if self.error is None:
            await asyncio.Event().wait()
        else:
            raise self.error


@pytest.mark.parametrize("error", [StoreError("gone"), ValueError("odd"), None])
async def test_a_store_that_cannot_be_left_does_not_cost_the_outcome(error: Exception | None) -> None:
    """Whatever release and close do, raise or hang, the outcome comes back."""
    outcome = await go(Clinging(error))
    assert (outcome.status, outcome.text) == ("completed", "done")


@pytest.mark.parametrize("error", [StoreError("gone"), ValueError("odd"), None])
async def test_a_store_of_the_trees_own_is_let_go_of_whatever_it_does(error: Exception | None) -> None:
    """Leaving a store that was opened for one tree raises nothing and ends, though release and close fail or hang."""
    await Journal(Clinging(error), "r1", ours=True).leave()


class Opening(Durable):
    """Cannot be claimed, or not be read."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what
        self.released = 0

    async def claim(self, root: str, *, new: bool) -> None:
        if self.what == "claim hangs":
            await asyncio.Event().wait()
        if self.what == "claim":
            raise ValueError("odd")
        await super().claim(root, new=new)

    async def release(self, root: str) -> None:
        self.released += 1
        await super().release(root)

    async def read(self, root: str, after: int = 0) -> AsyncIterator[Event]:
        if self.what == "read":
            raise StoreError("Row 2 is garbage: restore it from a copy.")
        async for event in super().read(root, after):
            yield event


@pytest.mark.parametrize(
    ("what", "words"), [("claim", "ValueError: odd"), ("claim hangs", "did not respond")]
)
async def test_a_store_that_cannot_be_claimed_is_said_before_anything_runs(what: str, words: str) -> None:
    """A claim that fails or hangs is a StoreError of run() itself, and the model is not asked."""
    asked = model()
    with pytest.raises(StoreError, match=words):
        await run(AGENT, "go", model=asked, store=Opening(what))
    assert asked.calls_made == 0


async def test_a_journal_that_cannot_be_read_is_said_and_the_tree_is_let_go() -> None:
    """Garbage in a journal is a StoreError of resume(); the tree is not left claimed."""
    store, asked = Opening("read"), model()
    await store.claim("r1", new=True)
    for event in await first_events():
        store.append(event)
    await store.release("r1")
    with pytest.raises(StoreError, match="garbage"):
        await resume(store, "r1", agent=AGENT, model=asked)
    assert asked.calls_made == 0
    assert store.released == 1, "it was read before it was claimed"
    assert not (await store.trees())[0].live


async def first_events() -> list[Event]:
    store = Durable()
    await go(store)
    return store.took[:5]


class Taken(Durable):
    """Is taken over by another process after so many events; the owner hears of it when it appends or flushes."""

    def __init__(self, most: int, where: str) -> None:
        super().__init__()
        self.most = most
        self.where = where

    def append(self, event: Event) -> None:
        if len(self.took) >= self.most and self.where == "append":
            raise TreeOwned("The run 'r1' is run by pid 7 on other.")
        super().append(event)

    async def flush(self, root: str | None = None) -> None:
        if len(self.took) >= self.most:
            raise TreeOwned("The run 'r1' is run by pid 7 on other.")


@pytest.mark.parametrize("where", ["append", "flush"])
async def test_a_tree_that_was_taken_over_stops_with_words(where: str) -> None:
    """When another process has taken the tree over, this one stops it, changes nothing more, and says who has it."""
    store = Taken(4, where)
    outcome = await go(store)
    assert outcome.status == "cancelled"
    assert "pid 7 on other" in outcome.reason
    assert "b" not in ran
    assert "c" not in ran
    assert any("pid 7 on other" in warning for warning in outcome.warnings)


async def test_a_store_in_memory_is_not_waited_for() -> None:
    """Where nothing outlives the process nothing is flushed before a changing tool, and there is no warning."""

    class Counting(MemoryStore):
        flushed = 0

        async def flush(self, root: str | None = None) -> None:
            self.flushed += 1

    store = Counting()
    outcome = await go(store)
    assert (ran, outcome.warnings, store.flushed) == (["a", "b", "c"], (), 0)


async def test_what_changes_things_is_on_disk_before_it_starts() -> None:
    """Between the last append before a changing tool and the tool itself there is a flush."""
    seen: list[str] = []

    class Slow(Durable):
        def append(self, event: Event) -> None:
            super().append(event)
            seen.append(event.kind)

        async def flush(self, root: str | None = None) -> None:
            await asyncio.sleep(1)
            seen.append("flushed")

    @tool
    async def write() -> str:
        """Writes."""
        seen.append("write")
        return "ok"

    agent = Agent("lead", tools=[write])
    await run(
        agent, "go", model=ScriptedModel([call("write"), say("done")]), store=Slow(), policy=["allow *"]
    )
    at = seen.index("write")
    assert seen[at - 2 : at] == ["call_started", "flushed"]
    assert seen[-2:] == ["run_ended", "flushed"]
