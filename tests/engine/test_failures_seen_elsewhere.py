"""What other systems were seen to get wrong with subagents, each with the result that is right."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Literal

import pytest

from remit import Agent, ApprovalRequest, Limits, Outcome, Status, ToolMessage, allow, run, start, tool
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, crash, say, wait, wrapped
from remit.testing.scripted import Line
from remit.tools.policy import Decision
from remit.types.events import DelegationRejected, Event, RunEnded, RunStarted
from remit.types.messages import Request

Surface = Literal["task", "subagent_<name>"]

BROKEN = (
    pytest.param([crash("the disk is full")], "the disk is full", id="a bug in its model"),
    pytest.param([crash(SystemExit("bye"))], "bye", id="its model calls exit"),
    pytest.param([crash(ExceptionGroup("many", [ValueError("deep down")]))], "many", id="a group of errors"),
)


def workers(count: int) -> list[Agent]:
    return [Agent(f"w{i}") for i in range(count)]


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


async def events_of(store: MemoryStore, outcome: Outcome) -> list[Event]:
    return [event async for event in store.read(outcome.run_id)]


@pytest.mark.parametrize("surface", ["task", "subagent_<name>"])
@pytest.mark.parametrize(("script", "cause"), BROKEN)
async def test_one_of_three_children_raises(script: list[Line], cause: str, surface: Surface) -> None:
    """A child that raises ends neither its siblings nor its parent, and the parent reads the cause (law 5)."""
    lead = Agent("lead", subagents=workers(3), surface=surface)
    if surface == "task":
        asked = calls(*(call("task", agent=f"w{i}", prompt="go") for i in range(3)))
    else:
        asked = calls(*(call(f"subagent_w{i}", task="go") for i in range(3)))
    scripts = {
        "lead": [asked, say("two of three")],
        "w0": [say("a", delay=1)],
        "w1": script,
        "w2": [say("c", delay=2)],
    }
    with ScriptedModel(scripts) as model:
        outcome = await run(lead, "go", model=model)
    assert outcome.status is Status.COMPLETED
    assert outcome.text == "two of three"
    first, second, third = results(outcome)
    assert (first.content, first.ok) == ("a", True)
    assert (third.content, third.ok) == ("c", True)
    assert not second.ok
    assert cause in second.content
    assert "Traceback" not in second.text
    statuses = {child.agent: child.status for child in outcome.children}
    assert statuses == {"w0": Status.COMPLETED, "w1": Status.FAILED, "w2": Status.COMPLETED}


async def test_one_of_three_ad_hoc_children_raises() -> None:
    """An ad hoc child that raises is a readable result too (law 5)."""

    def child(request: Request) -> Line:
        if request.messages[0].text == "1":
            return crash("the disk is full")
        return say(f"did {request.messages[0].text}")

    asked = calls(*(call("subagent", label=f"part {i}", task_prompt=str(i)) for i in range(3)))
    model = ScriptedModel({"lead": [asked, say("two of three")], "subagent": child})
    outcome = await run(Agent("lead", adhoc=True), "go", model=model)
    assert outcome.text == "two of three"
    assert [m.ok for m in results(outcome)] == [True, False, True]
    assert "the disk is full" in results(outcome)[1].content


async def test_a_broken_tool_of_a_child_stays_in_the_child() -> None:
    """A child reads its own tool's failure and may go on; its parent and siblings never see it as theirs (law 5)."""

    @tool(tier="observe")
    async def lookup() -> str:
        """Fails."""
        raise ConnectionError("no route to host")

    child = Agent("child", tools=[lookup])
    scripts = {
        "lead": [call("task", agent="child", prompt="go"), say("fine")],
        "child": [call("lookup"), say("could not look it up")],
    }
    with ScriptedModel(scripts) as model:
        outcome = await run(Agent("lead", subagents=[child]), "go", model=model)
    assert outcome.text == "fine"
    assert results(outcome)[0].content == "could not look it up"
    inner = results(outcome.children[0])[0]
    assert not inner.ok
    assert "no route to host" in inner.content


@pytest.mark.parametrize("concurrency", [1, 4, 16, None])
@pytest.mark.parametrize("delay", [0.0, 1.0])
async def test_thirty_children_under_ten_requests(concurrency: int | None, delay: float) -> None:
    """Thirty children under requests=10 make, with their parent, exactly ten, and the parent answers (law 2)."""
    worker = Agent("worker")
    asked = calls(*(call("task", agent="worker", prompt=f"part {i}") for i in range(30)))
    scripts = {"lead": [asked, say("what I have")], "worker": [say("done", delay=delay)]}
    with ScriptedModel(scripts) as model:
        outcome = await run(
            Agent("lead", subagents=[worker]),
            "go",
            model=model,
            limits=Limits(requests=10, concurrency=concurrency),
        )
    assert model.calls_made == outcome.total_usage.requests == 10
    assert outcome.status is Status.COMPLETED
    assert outcome.text == "what I have"
    assert sum(m.ok for m in results(outcome)) == 8
    assert all("request limit" in m.content for m in results(outcome) if not m.ok)


async def test_thirty_children_of_two_requests_under_ten() -> None:
    """A cap that runs out in the middle of children is still exact, and what they had is kept (laws 2 and 6)."""

    @tool(tier="observe")
    async def look() -> str:
        """Looks."""
        return "seen"

    asked = calls(*(call("task", agent="worker", prompt=f"part {i}") for i in range(30)))
    scripts = {
        "lead": [asked, say("enough")],
        "worker": [call("look", said="half way", delay=1), say("done")],
    }
    model = ScriptedModel(scripts)
    lead = Agent("lead", subagents=[Agent("worker", tools=[look])])
    outcome = await run(lead, "go", model=model, limits=Limits(requests=10))
    assert model.calls_made == outcome.total_usage.requests == 10
    assert outcome.text == "enough"
    short = [c for c in outcome.children if c.status is Status.OVER_BUDGET and c.turns]
    assert short
    assert all(c.partial == "half way" for c in short)


async def test_twelve_children_four_at_a_time() -> None:
    """With concurrency=4 twelve children queue: at most four at once, all twelve done, none rejected (law 12)."""
    store = MemoryStore()
    asked = calls(*(call("task", agent="worker", prompt=f"part {i}") for i in range(12)))
    scripts = {"lead": [asked, say("all")], "worker": [say("done", delay=5)]}
    with ScriptedModel(scripts) as model:
        outcome = await run(
            Agent("lead", subagents=[Agent("worker")]),
            "go",
            model=model,
            store=store,
            limits=Limits(concurrency=4),
        )
    assert model.peak == 4
    assert [c.status for c in outcome.children] == [Status.COMPLETED] * 12
    assert not [e for e in await events_of(store, outcome) if isinstance(e, DelegationRejected)]


async def test_forty_children_by_default_are_not_forty_at_once() -> None:
    """Without any limit written there is still a cap on how many work at once (law 12)."""
    asked = calls(*(call("task", agent="worker", prompt=f"part {i}") for i in range(40)))
    scripts = {"lead": [asked, say("all")], "worker": [say("done", delay=5)]}
    with ScriptedModel(scripts) as model:
        outcome = await run(Agent("lead", subagents=[Agent("worker")]), "go", model=model)
    assert model.peak == 16
    assert sum(c.ok for c in outcome.children) == 40


@pytest.mark.parametrize("surface", ["task", "subagent_<name>"])
async def test_a_child_timed_out_after_four_findings_returns_them(surface: Surface) -> None:
    """A child that meets its deadline is asked once for what it has, and its parent reads that (law 6)."""
    turns = [call("look", at=i, said=f"finding {i}", delay=1) for i in range(4)]

    @tool(tier="observe")
    async def look(at: int) -> str:
        """Looks."""
        return f"seen {at}"

    child = Agent("child", tools=[look], limits=Limits(seconds=100))
    asked = (
        call("task", agent="child", prompt="go") if surface == "task" else call("subagent_child", task="go")
    )
    scripts = {
        "lead": [asked, say("thanks")],
        "child": [*turns, wait(1000), wrapped("findings 0, 1, 2 and 3")],
    }
    lead = Agent("lead", subagents=[child], surface=surface)
    outcome = await run(lead, "go", model=ScriptedModel(scripts))
    result = results(outcome)[0]
    assert not result.ok
    assert "timed out" in result.content.replace("_", " ")
    assert "findings 0, 1, 2 and 3" in result.content
    assert outcome.text == "thanks"
    assert outcome.children[0].status is Status.TIMED_OUT
    assert len(outcome.children[0].calls) == 4


async def test_a_child_whose_wrap_up_hangs_still_returns_its_last_text() -> None:
    """When even the wrap-up does not come, the last text and the tool log are what the parent gets (law 6)."""

    @tool(tier="observe")
    async def look(at: int) -> str:
        """Looks."""
        return f"seen {at}"

    turns = [call("look", at=i, said=f"finding {i}", delay=1) for i in range(4)]
    child = Agent("child", tools=[look], limits=Limits(seconds=100))
    scripts = {
        "lead": [call("task", agent="child", prompt="go"), say("thanks")],
        "child": [*turns, wait(10_000, say("never"))],
    }
    outcome = await run(Agent("lead", subagents=[child]), "go", model=ScriptedModel(scripts))
    assert outcome.text == "thanks"
    assert "finding 3" in results(outcome)[0].content
    done = outcome.children[0]
    assert (done.status, done.partial) == (Status.TIMED_OUT, "finding 3")
    assert [c.name for c in done.calls] == ["look"] * 4
    assert done.usage.requests >= 5


async def test_max_turns_keeps_the_findings() -> None:
    """A child at its turn limit returns its findings with the reason, not a generic error (law 6)."""

    @tool(tier="observe")
    async def look(at: int) -> str:
        """Looks."""
        return f"seen {at}"

    child = Agent("child", tools=[look], limits=Limits(turns=3))
    scripts = {
        "lead": [call("task", agent="child", prompt="go"), say("thanks")],
        "child": [
            *(call("look", at=i, said=f"finding {i}") for i in range(3)),
            wrapped("findings 0, 1 and 2"),
        ],
    }
    with ScriptedModel(scripts) as model:
        outcome = await run(Agent("lead", subagents=[child]), "go", model=model)
    result = results(outcome)[0]
    assert not result.ok
    assert "findings 0, 1 and 2" in result.content
    assert "turn limit" in result.content


async def test_cancelling_the_parent_leaves_no_child_alive() -> None:
    """When cancel returns, none of ten live children runs, and each says who stopped it and why (law 4)."""
    asked = calls(*(call("task", agent="worker", prompt=f"part {i}") for i in range(10)))
    model = ScriptedModel({"lead": [asked], "worker": [wait(10_000, say("never"))]})
    async with start(Agent("lead", subagents=[Agent("worker")]), "go", model=model) as running:
        await asyncio.sleep(1)
        assert model.in_flight == 10
        assert await running.cancel("changed my mind")
        assert model.in_flight == 0
        outcome = await running.outcome()
    assert outcome.status is Status.CANCELLED
    assert "changed my mind" in outcome.reason
    assert Counter(c.status for c in outcome.children) == {Status.CANCELLED: 10}
    assert all("changed my mind" in c.reason for c in outcome.children)


async def test_cancelling_the_callers_task_leaves_no_child_alive() -> None:
    """The caller's own cancellation passes through run() only after everything below has stopped (law 4)."""
    store = MemoryStore()
    asked = calls(*(call("task", agent="worker", prompt=f"part {i}") for i in range(10)))
    model = ScriptedModel({"lead": [asked], "worker": [wait(10_000, say("never"))]})
    lead = Agent("lead", subagents=[Agent("worker")])
    task = asyncio.get_running_loop().create_task(run(lead, "go", model=model, store=store))
    await asyncio.sleep(1)
    assert model.in_flight == 10
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert model.in_flight == 0
    events = [event async for event in store.read("r1")]
    started = {e.run for e in events if isinstance(e, RunStarted)}
    ended = {e.run: e.outcome.status for e in events if isinstance(e, RunEnded)}
    assert len(started) == 11
    assert ended == dict.fromkeys(started, Status.CANCELLED)


async def test_cancelling_one_child_leaves_its_siblings() -> None:
    """Cancelling a run stops its subtree and nothing else; the parent reads who did it and why (law 4)."""
    lead = Agent("lead", subagents=workers(2))
    asked = calls(call("task", agent="w0", prompt="go"), call("task", agent="w1", prompt="go"))
    scripts = {"lead": [asked, say("one")], "w0": [wait(1000, say("never"))], "w1": [say("b", delay=9)]}
    model = ScriptedModel(scripts)
    async with start(lead, "go", model=model) as running:
        await asyncio.sleep(1)
        assert model.in_flight == 2
        assert await running.cancel("not needed", run=f"{running.run_id}.1")
        outcome = await running.outcome()
    assert outcome.text == "one"
    first, second = results(outcome)
    assert (second.content, second.ok) == ("b", True)
    assert not first.ok
    assert "not needed" in first.content


@pytest.mark.parametrize("depth", [0, 1, 3])
async def test_an_ad_hoc_recursion_stops_at_the_depth_limit(depth: int) -> None:
    """A model that always delegates is stopped in code, before the work, at exactly `depth` levels (law 1)."""

    def dig(request: Request) -> Line:
        if request.tool_choice == "none" or len(request.messages) > 1:
            return say(f"back from {request.depth}: {request.messages[-1].text}")
        return call("subagent", label="deeper", task_prompt="dig")

    model = ScriptedModel(dig)
    outcome = await run(Agent("lead", adhoc=True), "dig", model=model, limits=Limits(depth=depth))
    assert outcome.ok
    assert max(r.depth for r in model.requests) == depth
    offered = {r.depth: [t.name for t in r.tools] for r in model.requests}
    assert all(("subagent" in names) == (at < depth) for at, names in offered.items())
    deepest = outcome
    while deepest.children:
        deepest = deepest.children[0]
    rejected = results(deepest)[0]
    assert not rejected.ok
    assert f"depth {depth}" in rejected.content
    assert f"max_depth {depth}" in rejected.content


async def test_approval_from_depth_three() -> None:
    """A person is asked from depth 3 with the path of who asks; siblings go on meanwhile (law 11)."""
    asked: list[ApprovalRequest] = []
    done: list[str] = []

    @tool
    async def publish(where: str) -> str:
        """Changes things."""
        done.append(where)
        return "published"

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request)
        await asyncio.sleep(10_000)
        return allow()

    kid = Agent("kid", tools=[publish])
    mid = Agent("mid", subagents=[Agent("low", subagents=[kid])])
    lead = Agent("lead", subagents=[mid, Agent("other")])
    scripts = {
        "lead": [
            calls(call("task", agent="mid", prompt="a"), call("task", agent="other", prompt="b")),
            say("ok"),
        ],
        "mid": [call("task", agent="low", prompt="a"), say("mid ok")],
        "low": [call("task", agent="kid", prompt="a"), say("low ok")],
        "kid": [call("publish", where="here"), say("kid ok")],
        "other": [say("other ok", delay=30)],
    }
    store = MemoryStore()
    with ScriptedModel(scripts) as model:
        outcome = await run(lead, "go", model=model, approver=approver, store=store)
    assert outcome.text == "ok"
    assert done == ["here"]
    assert [(r.path, r.agent, r.tool, r.args) for r in asked] == [
        (("lead", "mid", "low", "kid"), "kid", "publish", {"where": "here"})
    ]
    kinds = [(e.kind, e.agent) for e in await events_of(store, outcome)]
    assert kinds.index(("run_ended", "other")) < kinds.index(("approval_answered", "kid"))


async def test_approval_without_an_approver_is_denied_at_depth_three() -> None:
    """With nobody to ask, the call is denied as a result at any depth, and every run goes on (law 11)."""
    done: list[str] = []

    @tool
    async def publish() -> str:
        """Changes things."""
        done.append("published")
        return "published"

    tree = Agent("kid", tools=[publish])
    for name in ("low", "mid", "lead"):
        tree = Agent(name, subagents=[tree])
    scripts = {
        "lead": [call("task", agent="mid", prompt="a"), say("ok")],
        "mid": [call("task", agent="low", prompt="a"), say("mid ok")],
        "low": [call("task", agent="kid", prompt="a"), say("low ok")],
        "kid": [call("publish"), say("was not allowed")],
    }
    with ScriptedModel(scripts) as model:
        outcome = await run(tree, "go", model=model)
    assert outcome.text == "ok"
    assert not done
    kid = outcome.children[0].children[0].children[0]
    assert results(kid)[0].content.startswith("Denied")
    assert kid.text == "was not allowed"
