"""Commands from elsewhere, through the store: each obeyed once, recorded, and never able to break a run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from stories import by_turn, change, journal, stare

import remit.remote as remote
from remit import Agent, Outcome, StoreError, allow, deny, reopen, resume, start
from remit.history.fold import fold
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.commands import Answer, AnyCommand, Cancel, Send
from remit.types.events import ApprovalAnswered, CancelRequested, Event, MessageJoined
from remit.types.messages import ToolMessage
from remit.types.ports import Posted, TreeInfo

LEAF = Agent("leaf", tools=[stare, change])
LEAD = Agent("lead", subagents=[LEAF])


def model() -> ScriptedModel:
    tasks = calls(call("task", agent="leaf", prompt="one"), call("task", agent="leaf", prompt="two"))
    return ScriptedModel(
        {
            "lead": by_turn(tasks, say("done")),
            "leaf": by_turn(call("stare", seconds=20), call("stare", seconds=20), say("ok")),
        }
    )


def changing() -> ScriptedModel:
    return ScriptedModel(by_turn(call("change", what="a"), say("done")))


def texts(outcome: Outcome) -> list[str]:
    return [message.text for message in outcome.messages]


async def never(request: ApprovalRequest) -> Decision:
    """A person who is not there."""
    await asyncio.sleep(1_000_000)
    return deny("too late")


async def test_a_cancel_stops_that_run_and_no_other() -> None:
    """A cancel posted for a child stops it, says who asked and why, and leaves its sibling alone."""
    store = MemoryStore()
    async with start(LEAD, "go", model=model(), store=store) as running:
        await asyncio.sleep(10)
        await store.post("r1", Cancel(id="k1", at=0.0, by="anna", run="r1.1", reason="wrong folder"))
        outcome = await running.outcome()
    assert [c.status for c in outcome.children] == ["cancelled", "completed"]
    assert "cancelled by anna: wrong folder" in outcome.children[0].reason
    assert outcome.children[0].duration_s < 11
    told = [e for e in await journal(store) if isinstance(e, CancelRequested)]
    assert [(e.run, e.by, e.command) for e in told] == [("r1.1", "anna", "k1")]


async def test_a_cancel_of_the_root_by_nobody_named() -> None:
    """A cancel without a name is from another process."""
    store = MemoryStore()
    async with start(LEAD, "go", model=model(), store=store) as running:
        await asyncio.sleep(10)
        await store.post("r1", Cancel(id="k1", at=0.0, run="r1"))
        outcome = await running.outcome()
    assert (outcome.status, outcome.reason) == ("cancelled", "cancelled by another process")


async def test_a_message_joins_the_next_turn_once() -> None:
    """What was posted to a run joins its next turn, and is not obeyed again however often it is posted or resumed."""
    store, command = MemoryStore(), Send(id="k1", at=0.0, run="r1.2", text="mind the gap")
    async with start(LEAD, "go", model=model(), store=store) as running:
        await asyncio.sleep(10)
        await store.post("r1", command)
        await store.post("r1", command)
        await asyncio.sleep(20)
        await running.cancel()
    outcome = await resume(store, "r1", agent=LEAD, model=model())
    assert outcome.status == "completed"
    assert [texts(c).count("mind the gap") for c in outcome.children] == [0, 1]
    joined = [e for e in await journal(store) if isinstance(e, MessageJoined) and e.origin == "sent"]
    assert {e.command for e in joined} == {"k1"}


async def test_a_message_that_waited_for_its_turn_is_not_lost_with_the_process() -> None:
    """A message that was posted and had not joined a turn when the process died joins one after the resume."""
    store = MemoryStore()
    async with start(LEAF, "go", model=leaf_model(), store=store) as running:
        await asyncio.sleep(10)
        await store.post("r1", Send(id="k1", at=0.0, run="r1", text="mind the gap"))
        await asyncio.sleep(1)
        await running.cancel()
    assert "mind the gap" not in texts(await running.outcome())
    outcome = await resume(store, "r1", agent=LEAF, model=leaf_model())
    assert texts(outcome).count("mind the gap") == 1


def leaf_model() -> ScriptedModel:
    return ScriptedModel(by_turn(call("stare", seconds=20), call("stare", seconds=20), say("ok")))


async def test_what_was_posted_while_nobody_ran_the_tree() -> None:
    """Messages reach the run that goes on, a child too; a cancel from before the resume does not stop it."""
    store = MemoryStore()
    async with start(LEAD, "go", model=model(), store=store) as running:
        await asyncio.sleep(10)
        await running.cancel()
    await store.post("r1", Send(id="k1", at=0.0, run="r1", text="to the lead"))
    await store.post("r1", Send(id="k2", at=0.0, run="r1.2", text="to the leaf"))
    await store.post("r1", Cancel(id="k3", at=0.0, run="r1"))
    outcome = await resume(store, "r1", agent=LEAD, model=model())
    assert outcome.status == "completed"
    assert texts(outcome).count("to the lead") == 1
    assert [texts(c).count("to the leaf") for c in outcome.children] == [0, 1]
    assert outcome.warnings == ()


async def test_a_message_for_a_run_that_is_over_or_unknown_is_a_warning() -> None:
    """What cannot be delivered any more is said in the root's outcome."""
    store = MemoryStore()
    lead = Agent("lead", subagents=[LEAF], tools=[stare])
    scripted = ScriptedModel(
        {
            "lead": by_turn(call("task", agent="leaf", prompt="x"), call("stare", seconds=20), say("done")),
            "leaf": by_turn(say("ok")),
        }
    )
    async with start(lead, "go", model=scripted, store=store) as running:
        await asyncio.sleep(10)
        await store.post("r1", Send(id="k1", at=0.0, run="r1.1", text="too late"))
        await store.post("r1", Send(id="k2", at=0.0, run="nobody", text="who"))
        await store.post("r1", Cancel(id="k3", at=0.0, run="r1.1"))
        outcome = await running.outcome()
    assert outcome.status == "completed"
    assert [w for w in outcome.warnings if "'r1.1'" in w]
    assert [w for w in outcome.warnings if "'nobody'" in w]


async def test_an_answer_from_elsewhere_settles_an_approval() -> None:
    """A posted answer counts in place of the approver's, who need not answer any more; it is recorded with its command."""
    for allowed, said in ((True, "changed a"), (False, "Denied: not today.")):
        store = MemoryStore()
        async with start(LEAF, "go", model=changing(), store=store, approver=never) as running:
            await asyncio.sleep(10)
            root = running.run_id
            await store.post(
                root,
                Answer(id="k1", at=0.0, request=f"{root}/approval1", allowed=allowed, reason="not today"),
            )
            outcome = await running.outcome()
        assert [m.text for m in outcome.messages if isinstance(m, ToolMessage)] == [said]
        told = [e async for e in store.read(root) if isinstance(e, ApprovalAnswered)]
        assert [(e.allowed, e.command, e.stopped) for e in told] == [(allowed, "k1", False)]


async def test_the_first_answer_counts() -> None:
    """A second answer to the same request changes nothing."""
    store = MemoryStore()
    async with start(LEAF, "go", model=changing(), store=store, approver=never) as running:
        await asyncio.sleep(10)
        await store.post("r1", Answer(id="k1", at=0.0, request="r1/approval1", allowed=True))
        await store.post("r1", Answer(id="k2", at=0.0, request="r1/approval1", allowed=False))
        outcome = await running.outcome()
    assert "changed a" in texts(outcome)


async def test_an_answer_given_while_nobody_ran_the_tree_is_used() -> None:
    """A pending approval outlives its process; answered meanwhile, nobody is asked again."""
    store, asked = MemoryStore(), list[str]()

    async def person(request: ApprovalRequest) -> Decision:
        asked.append(request.id)
        return deny("asked again")

    async with start(LEAF, "go", model=changing(), store=store, approver=never) as running:
        await asyncio.sleep(10)
        await running.cancel()
    await store.post("r1", Answer(id="k1", at=0.0, request="r1/approval1", allowed=True))
    outcome = await resume(store, "r1", agent=LEAF, model=changing(), approver=person)
    assert ("changed a" in texts(outcome), asked) == (True, [])
    again = await resume(store, "r1", agent=LEAF, model=ScriptedModel([]))
    assert again == outcome


async def test_an_answer_for_the_whole_tree_is_a_grant() -> None:
    """A posted `scope="tree"` holds for later calls, after a resume too."""
    steps = (call("change", what="a"), call("stare", seconds=20), call("change", what="b"), say("done"))

    def scripted() -> ScriptedModel:
        return ScriptedModel(by_turn(*steps))

    store = MemoryStore()
    async with start(LEAF, "go", model=scripted(), store=store, approver=never) as running:
        await asyncio.sleep(10)
        await store.post("r1", Answer(id="k1", at=0.0, request="r1/approval1", allowed=True, scope="tree"))
        await asyncio.sleep(10)
        await running.cancel()
    outcome = await resume(store, "r1", agent=LEAF, model=scripted(), approver=never)
    assert "changed b" in texts(outcome)
    assert fold(await journal(store)).asked == 1


class Deaf(MemoryStore):
    """Cannot say what was posted."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    async def commands(self, root: str, after: int, *, wait: bool) -> list[Posted]:
        if self.times > 0 and wait:
            self.times -= 1
            raise StoreError("The table of commands is locked.")
        return await super().commands(root, after, wait=wait)


async def test_a_store_that_cannot_say_what_was_posted_is_asked_again() -> None:
    """A run goes on with a store that fails to give commands, and hears them once it does."""
    store = Deaf(3)
    async with start(LEAD, "go", model=model(), store=store) as running:
        await store.post("r1", Cancel(id="k1", at=0.0, run="r1", reason="at last"))
        outcome = await running.outcome()
    assert outcome.status == "cancelled"
    assert "at last" in outcome.reason
    deaf = Deaf(10**6)
    async with start(LEAF, "go", model=leaf_model(), store=deaf) as running:
        assert (await running.outcome()).status == "completed"


async def test_a_store_that_cannot_say_what_was_posted_at_the_start_does_not_keep_a_tree_from_running() -> (
    None
):
    """Whatever the first look at the commands gives, the tree runs, and its place in the store is left in order."""

    class Mute(MemoryStore):
        async def commands(self, root: str, after: int, *, wait: bool) -> list[Posted]:
            raise StoreError("The table of commands is locked.")

    store = Mute()
    async with start(LEAF, "go", model=leaf_model(), store=store) as running:
        assert (await running.outcome()).status == "completed"
    assert not (await store.trees())[0].live


async def test_a_store_that_never_says_what_was_posted_does_not_keep_a_tree_from_being_resumed() -> None:
    """A look at the commands that hangs or fails holds up a resume only so long."""

    class Silent(MemoryStore):
        volatile = False
        hangs = True

        async def commands(self, root: str, after: int, *, wait: bool) -> list[Posted]:
            if self.hangs:
                await asyncio.Event().wait()
            raise StoreError("The table of commands is locked.")

    store = Silent()
    async with start(LEAF, "go", model=leaf_model(), store=store) as running:
        await asyncio.sleep(10)
        await running.cancel()
    for store.hangs in (False, True):
        async with reopen(store, "r1", agent=LEAF, model=leaf_model()) as running:
            if not store.hangs:
                await asyncio.sleep(1)
                await running.cancel()
            outcome = await running.outcome()
    assert outcome.status == "completed"


async def test_a_handle_on_a_resumed_tree_hears_too() -> None:
    """A tree that goes on obeys what is posted to it from then on, and nothing that it obeyed before."""
    store, before = MemoryStore(), Cancel(id="k1", at=0.0, run="r1.1", reason="first")
    async with start(LEAD, "go", model=model(), store=store) as running:
        await asyncio.sleep(10)
        await store.post("r1", before)
        await asyncio.sleep(1)
        await running.cancel()
    async with reopen(store, "r1", agent=LEAD, model=model()) as running:
        await asyncio.sleep(10)
        await store.post("r1", Cancel(id="k2", at=0.0, by="bob", run="r1", reason="again"))
        outcome = await running.outcome()
    assert "cancelled by bob: again" in outcome.reason
    ids = [e.command for e in await journal(store) if isinstance(e, CancelRequested) and e.command]
    assert ids == ["k1", "k2"]


async def test_a_command_that_cannot_be_written_down_is_refused() -> None:
    """A lone surrogate in a message or a reason is said to whoever posts it; the run goes on."""
    store = MemoryStore()
    odd: list[AnyCommand] = [
        Send(id="k1", at=0.0, run="r1", text="a\ud800b"),
        Cancel(id="k2", at=0.0, by="x\ud800", run="r1", reason="r\ud800"),
    ]
    async with start(LEAF, "go", model=leaf_model(), store=store) as running:
        for command in odd:
            with pytest.raises(StoreError, match="Invalid command"):
                await store.post("r1", command)
        outcome = await running.outcome()
    assert outcome.ok
    assert allow().allowed


class Killed(MemoryStore):
    """Forgets its claims, as if the process that owned the trees had died."""

    def kill(self) -> None:
        for kept in self._trees.values():
            kept.owned = False


async def killed(store: Killed) -> None:
    """A tree whose process died after ten seconds: it has no end in the journal."""
    async with start(LEAD, "go", model=model(), store=store) as running:
        await asyncio.sleep(10)
        store.kill()
        await running.cancel()
    assert fold(await journal(store)).status is None


@pytest.mark.parametrize(("run", "children"), [("r1", []), ("r1.1", ["cancelled", "completed"])])
async def test_a_cancel_sent_while_no_process_runs_the_tree(run: str, children: list[str]) -> None:
    """A cancel of an unfinished tree, or of a child, that no process runs takes effect when a process claims the tree."""
    store = Killed()
    await killed(store)
    assert await remote.cancel(store, run, "not needed", by="anna")
    outcome = await resume(store, "r1", agent=LEAD, model=model())
    if run == "r1":
        assert (outcome.status, outcome.reason) == ("cancelled", "cancelled by anna: not needed")
        assert outcome.duration_s < 11
    else:
        assert [child.status for child in outcome.children] == children
    again = await resume(store, "r1", agent=LEAD, model=model())
    assert again.status == "completed", "the cancel applies once"


async def test_a_cancel_reads_no_events() -> None:
    """Cancelling a root reads the summary of that one tree: neither its events nor other trees."""

    class Narrow(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.asked: list[str] = []

        async def trees_named(self, roots: Sequence[str]) -> list[TreeInfo]:
            self.asked += roots
            return [info for info in await super().trees() if info.root in roots]

        async def trees(self) -> list[TreeInfo]:
            raise AssertionError("all trees were read")

        def read(self, root: str, after: int = 0) -> AsyncIterator[Event]:
            raise AssertionError("events were read")

    store = Narrow()
    async with start(LEAD, "go", model=model(), store=store) as running:
        await asyncio.sleep(10)
        assert await remote.cancel(store, "r1")
        assert (await running.outcome()).status == "cancelled"
    assert not await remote.cancel(store, "r1"), "it has ended"
    assert store.asked == ["r1", "r1"]
