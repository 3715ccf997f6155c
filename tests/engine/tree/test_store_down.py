"""A store that is down: the first call that changes things waits for it, the next ones do not, and the outcome counts them."""

from __future__ import annotations

import asyncio

import pytest

from remit import Agent, Outcome, StoreError, resume, run, start, tool
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.types.events import AnyEvent, CallEnded, RunEnded
from remit.types.messages import AssistantMessage, ToolMessage

ran: list[str] = []


class Failing(MemoryStore):
    """Outlives the process, as far as a run can tell. While it is down a flush fails after five seconds, or hangs."""

    volatile = False
    FIRST_S = 5.0

    def __init__(self, *, hangs: bool = False) -> None:
        super().__init__()
        self.hangs = hangs
        self.down = False

    async def flush(self, root: str | None = None) -> None:
        if self.down and self.hangs:
            await asyncio.Event().wait()
        waited = 0.0
        while self.down:
            await asyncio.sleep(0.5)
            waited += 0.5
            if self.down and waited >= self.FIRST_S:
                raise StoreError("The disk is full: free some space.")


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@tool
async def change(what: str) -> str:
    """Changes something."""
    ran.append(what)
    return f"changed {what}"


def agent_of(store: Failing) -> Agent:
    @tool(tier="observe")
    async def fail() -> str:
        """Take the store down."""
        store.down = True
        return "down"

    @tool(tier="observe")
    async def mend() -> str:
        """Bring the store back, and wait until that was noticed."""
        store.down = False
        await asyncio.sleep(20)
        return "up"

    worker = Agent("worker", tools=[change, fail])
    return Agent("lead", tools=[change, fail, mend], subagents=[worker])


async def go(store: Failing, model: ScriptedModel) -> tuple[Outcome, list[AnyEvent]]:
    async with start(agent_of(store), "go", model=model, store=store, policy=["allow *"]) as running:
        events = [event async for event in running.events()]
        return await running.outcome(), events


def refused(outcome: Outcome) -> list[bool]:
    """Of each changing call, in order, whether it was refused."""
    found = [m for m in outcome.messages if isinstance(m, ToolMessage) and m.name == "change"]
    return [
        m.content.startswith("Not run: a call that changes things must be recorded first.") for m in found
    ]


def seconds(events: list[AnyEvent]) -> list[float]:
    """How long each changing call took."""
    return [e.duration_ms / 1000 for e in events if isinstance(e, CallEnded) and e.tool == "change"]


@pytest.mark.parametrize("hangs", [False, True])
async def test_after_one_refusal_calls_are_refused_at_once_until_the_store_responds(hangs: bool) -> None:
    """One call waits for a store that is down; those after it are refused at once; once it responds, calls run again."""
    store = Failing(hangs=hangs)
    steps = [
        *(call("fail"), call("change", what="a"), call("change", what="b"), call("change", what="c")),
        *(call("mend"), call("change", what="d")),
        *(call("fail"), call("change", what="e"), call("change", what="f")),
        *(call("mend"), call("change", what="g"), say("done")),
    ]
    outcome, events = await go(store, ScriptedModel(steps))
    assert ran == ["d", "g"]
    assert refused(outcome) == [True, True, True, False, True, True, False]
    first = 10.0 if hangs else 5.0
    assert seconds(events) == [first, 0, 0, 0, first, 0, 0]
    (warning,) = outcome.warnings
    assert warning.startswith("5 calls that change things were not run")
    assert ("did not respond within 10 s" if hangs else "The disk is full") in warning


async def test_a_store_that_stays_down_does_not_keep_the_tree() -> None:
    """A tree ends although its store is still being asked, and nothing of that lives on; one call is counted as one."""
    store = Failing()
    outcome, _ = await go(store, ScriptedModel([call("fail"), call("change", what="a"), say("done")]))
    assert outcome.ok
    counted, missing = outcome.warnings
    assert counted.startswith("1 call that changes things was not run")
    assert "not stored" in missing


async def test_calls_at_once_and_those_of_children_are_counted_at_the_root() -> None:
    """The root's outcome has the number of all calls that were refused, wherever in the tree they were made."""
    store = Failing()
    script = {
        "lead": [
            call("fail"),
            calls(*(call("change", what=w) for w in "abc")),
            call("task", agent="worker", prompt="x"),
            say("done"),
        ],
        "worker": [call("change", what="d"), say("done")],
    }
    outcome, events = await go(store, ScriptedModel(script))
    assert ran == []
    assert seconds(events) == [5.0, 5.0, 5.0, 0]
    assert outcome.warnings[0].startswith("4 calls that change things were not run")
    assert outcome.children[0].warnings == ()


async def test_the_journal_has_the_number_of_refused_calls_too() -> None:
    """Whoever reads the journal, or resumes the tree, is told as the caller was."""
    store = Failing()
    steps = [call("fail"), call("change", what="a"), call("mend"), say("done")]
    outcome, events = await go(store, ScriptedModel(steps))
    (ended,) = [e for e in events if isinstance(e, RunEnded)]
    again = await resume(store, outcome.run_id, agent=agent_of(store), model=ScriptedModel([]))
    assert len(outcome.warnings) == 1
    assert again.warnings == ended.outcome.warnings == outcome.warnings


async def test_a_cancel_while_the_store_is_asked_again_ends_at_once() -> None:
    """A run whose store is down can be stopped, and what asks the store again is stopped with it."""
    store = Failing(hangs=True)
    steps = [call("fail"), call("change", what="a"), call("mend")]
    async with start(
        agent_of(store), "go", model=ScriptedModel(steps), store=store, policy=["allow *"]
    ) as running:
        await asyncio.sleep(11)
        store.down = True
        await running.cancel("enough")
        outcome = await running.outcome()
    assert outcome.status == "cancelled"
    assert any(w.startswith("1 call that changes things") for w in outcome.warnings)


async def test_without_trouble_nothing_is_said() -> None:
    """A store that works leaves no warning behind."""
    model = ScriptedModel(
        lambda r: (
            say("done")
            if any(isinstance(m, AssistantMessage) for m in r.messages)
            else call("change", what="a")
        )
    )
    outcome = await run(agent_of(Failing()), "go", model=model, store=Failing(), policy=["allow *"])
    assert (ran, outcome.warnings) == (["a"], ())
