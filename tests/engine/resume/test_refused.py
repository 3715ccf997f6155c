"""What cannot be resumed: agents that no longer match, trees that are not there or run already. Said before anything runs."""

from __future__ import annotations

import asyncio

import pytest

from remit import Agent, Limits, StoreError, UsageError, reopen, resume, run, start, tool
from remit.errors import TreeOwned
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.types.events import Event, RunStarted


@tool(tier="observe")
async def look(what: str) -> str:
    """Looks for a minute."""
    await asyncio.sleep(60)
    return f"saw {what}"


@tool(tier="observe")
async def hear() -> str:
    """Hears."""
    return "heard"


LEAF = Agent("leaf", tools=[look])
LEAD = Agent("lead", tools=[hear], subagents=[LEAF])
ADHOC = Agent("lead", tools=[look, hear], adhoc=True)


async def journal(store: MemoryStore) -> list[Event]:
    return [event async for event in store.read("r1")]


async def stopped(agent: Agent, *steps: object) -> MemoryStore:
    """A tree that was cancelled while its child looked."""
    first = calls(call("hear"), call("task", agent="leaf", prompt="x"))
    if agent is ADHOC:
        first = call("subagent", label="one", task_prompt="x", allowed_tools=["look"])
    below = [call("look", what="a"), say("ok")]
    model = ScriptedModel({"lead": [first, say("done")], "leaf": below, "subagent": below})
    store = MemoryStore()
    async with start(agent, "go", model=model, store=store) as running:
        await asyncio.sleep(10)
        await running.cancel()
    return store


WRONG = [
    pytest.param(LEAD, Agent("chief", tools=[hear], subagents=[LEAF]), ["'lead'", "'chief'"], id="name"),
    pytest.param(LEAD, Agent("lead", subagents=[LEAF]), ["lead: missing tools: hear"], id="tool"),
    pytest.param(
        LEAD, Agent("lead", tools=[hear]), ["no longer has a subagent 'leaf'", "leaf"], id="subagent"
    ),
    pytest.param(
        LEAD,
        Agent("lead", tools=[hear], subagents=[Agent("leaf", tools=[hear])]),
        ["lead > leaf: missing tools: look"],
        id="tool of a child",
    ),
    pytest.param(
        LEAD,
        Agent("lead", tools=[hear], subagents=[LEAF], surface="subagent_<name>"),
        ["lead: missing tools: task"],
        id="surface",
    ),
    pytest.param(ADHOC, Agent("lead", tools=[look, hear]), ["subagent"], id="ad hoc"),
    pytest.param(
        ADHOC,
        Agent("lead", tools=[hear], adhoc=True),
        ["missing tools: look"],
        id="tool of an ad hoc child",
    ),
]


@pytest.mark.parametrize(("then", "now", "words"), WRONG)
async def test_an_agent_without_its_old_tools_or_subagents_is_refused(
    then: Agent, now: Agent, words: list[str]
) -> None:
    """Resumed runs need their recorded tools and subagents; the error names the missing ones, and nothing runs."""
    store = await stopped(then)
    before, model = await journal(store), ScriptedModel([])
    with pytest.raises(UsageError) as raised:
        await resume(store, "r1", agent=now, model=model)
    assert all(word in str(raised.value) for word in words), str(raised.value)
    assert model.calls_made == 0
    assert await journal(store) == before
    assert not (await store.trees())[0].live


async def test_an_agent_that_has_more_is_fine() -> None:
    """New tools and subagents, other instructions and limits do not keep a tree from being resumed."""
    more = Agent("leaf", tools=[look, hear], instructions="now with more care")
    wider = Agent("lead", tools=[hear, look], subagents=[more, Agent("other")], limits=Limits(turns=9))
    store = await stopped(LEAD)
    model = ScriptedModel({"lead": [say("done")], "leaf": [say("seen")]})
    outcome = await resume(store, "r1", agent=wider, model=model)
    assert (outcome.text, outcome.children[0].text) == ("done", "seen")
    assert {s.name for r in model.requests if r.agent == "leaf" for s in r.tools} >= {"look", "hear"}


async def test_an_ended_tree_needs_no_matching_agent() -> None:
    """A completed tree returns its outcome whatever its agent is now; the same holds for a child that has ended."""
    store = MemoryStore()
    first = await run(LEAF, "go", model=ScriptedModel([say("done")]), store=store)
    assert await resume(store, "r1", agent=Agent("leaf"), model=ScriptedModel([])) == first


async def test_an_ended_child_needs_no_matching_agent() -> None:
    """Only resumed runs must match: an ended child's tools are not checked."""
    lead = Agent("lead", subagents=[LEAF, Agent("other")])
    model = ScriptedModel(
        {
            "lead": [call("task", agent="other", prompt="x"), call("task", agent="leaf", prompt="x")],
            "leaf": [call("look", what="a")],
            "other": [say("ok")],
        }
    )
    store = MemoryStore()
    async with start(lead, "go", model=model, store=store) as running:
        await asyncio.sleep(10)
        await running.cancel()
    with pytest.raises(UsageError, match="missing subagents: other"):
        await resume(store, "r1", agent=Agent("lead", subagents=[LEAF]), model=ScriptedModel([]))
    changed = Agent("lead", subagents=[LEAF, Agent("other", tools=[hear])])
    again = ScriptedModel({"lead": [say("done")], "leaf": [say("seen")]})
    assert (await resume(store, "r1", agent=changed, model=again)).ok


async def test_an_unknown_run_is_an_error() -> None:
    """An unknown id is a StoreError that names the id, and leaves nothing behind."""
    store = MemoryStore()
    with pytest.raises(StoreError, match="'r9'"):
        await resume(store, "r9", agent=LEAF, model=ScriptedModel([]))
    assert await store.trees() == []


@pytest.mark.parametrize("run_id", ["", 7, None, "r1.1"])
def test_an_id_that_cannot_be_a_roots_is_a_usage_error(run_id: object) -> None:
    """A child's id, an empty one or none at all is refused at once; for a child's, its root is named."""
    with pytest.raises(UsageError) as raised:
        reopen(MemoryStore(), run_id, agent=LEAF, model=ScriptedModel([]))  # pyright: ignore[reportArgumentType] - the mistake
    assert run_id != "r1.1" or "'r1'" in str(raised.value)


async def test_an_empty_journal_cannot_be_resumed() -> None:
    """A tree that was claimed and has no first event is a StoreError, and is left unclaimed."""

    class Blank(MemoryStore):
        async def claim(self, root: str, *, new: bool) -> None:
            await super().claim(root, new=True)

    store = Blank()
    with pytest.raises(StoreError, match="no first event"):
        await resume(store, "r1", agent=LEAF, model=ScriptedModel([]))
    await store.claim("r1", new=True)


async def test_a_tree_that_runs_is_not_resumed() -> None:
    """While a tree runs, resuming it raises TreeOwned, and does not disturb it; afterwards it can be."""
    store = MemoryStore()
    model = ScriptedModel([call("look", what="a"), say("done")])
    async with start(LEAF, "go", model=model, store=store) as running:
        await asyncio.sleep(10)
        with pytest.raises(TreeOwned):
            await resume(store, "r1", agent=LEAF, model=ScriptedModel([]))
        outcome = await running.outcome()
    assert outcome.text == "done"
    assert await resume(store, "r1", agent=LEAF, model=ScriptedModel([])) == outcome


async def test_only_one_of_several_resumes_runs() -> None:
    """If several processes resume a tree at the same time, exactly one does; the others raise."""
    store = await stopped(LEAD)
    models = [ScriptedModel({"lead": [say("done")], "leaf": [say("seen")]}) for _ in range(4)]
    ended = await asyncio.gather(
        *(resume(store, "r1", agent=LEAD, model=m) for m in models), return_exceptions=True
    )
    assert sorted(type(e).__name__ for e in ended) == ["Outcome", "TreeOwned", "TreeOwned", "TreeOwned"]
    assert sorted(m.calls_made for m in models) == [0, 0, 0, 2]


async def test_two_trees_of_one_id_do_not_start_in_one_store() -> None:
    """A new tree whose id is taken is a StoreError before anything runs, and the old one is not touched."""
    from remit.testing import fixed_ids

    store, model = MemoryStore(), ScriptedModel([])
    await run(LEAF, "go", model=ScriptedModel([say("done")]), store=store)
    before = await journal(store)
    with fixed_ids(), pytest.raises(StoreError, match="'r1'"):
        await run(LEAF, "go", model=model, store=store)
    assert model.calls_made == 0
    assert await journal(store) == before
    assert sum(isinstance(e, RunStarted) for e in before) == 1
