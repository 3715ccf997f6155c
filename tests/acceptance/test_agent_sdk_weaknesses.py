"""What went wrong in seed 3 and cannot happen here: dead limits, lost work, late views, wrong names."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest

from remit import (
    Agent,
    Limits,
    Outcome,
    Request,
    Status,
    ToolContext,
    ToolMessage,
    Usage,
    allow,
    deny,
    run,
    start,
    tool,
)
from remit.engine.tree.stream_progress import ChildProgress
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, fail, refuse, say, wait, wrapped
from remit.testing.scripted import Answer, Line, Script
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.event_json import encode
from remit.types.events import CallEnded, DelegationRejected, Event, RunStarted, TurnStarted


def ask(name: str = "child", task: str = "look") -> Answer:
    return call(f"subagent_{name}", task=task)


def lead(*subagents: Agent) -> Agent:
    return Agent("lead", surface="subagent_<name>", subagents=subagents or [Agent("child")])


def nest(name: str, *subagents: Agent) -> Agent:
    return Agent(name, surface="subagent_<name>", subagents=subagents)


async def told(
    agent: Agent, model: ScriptedModel, limits: Limits | None = None
) -> tuple[Outcome, list[Event]]:
    store = MemoryStore()
    outcome = await run(agent, "go", model=model, limits=limits, store=store)
    return outcome, [event async for event in store.read(outcome.run_id)]


def details(events: list[Event]) -> list[dict[str, Any]]:
    """What each delegating call gave to programs, as the JSON that they read."""
    ended = [e for e in events if isinstance(e, CallEnded) and e.tool.startswith("subagent_")]
    return [json.loads(json.dumps(e.details)) for e in ended]


async def result_of(child: Agent, script: Script, limits: Limits | None = None) -> dict[str, Any]:
    """The JSON of one child that plays this script; its parent must get over it."""
    model = ScriptedModel({"lead": [ask(child.name), say("went on")], child.name: script})
    outcome, events = await told(lead(child), model, limits)
    assert outcome.text == "went on"
    return details(events)[0]


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


@tool(tier="observe")
async def look(path: str = "") -> str:
    """Looks."""
    return f"seen {path}"


@tool(tier="observe")
async def sleepy() -> str:
    """Takes very long."""
    await asyncio.sleep(10**5)
    return "awake"


CHILD = Agent("child", tools=[look, sleepy])


async def test_w3_01_the_callers_deps_reach_a_grandchilds_tool() -> None:
    """W3.1: a tool at any depth gets the caller's own object, its true depth and its path."""
    seen: list[tuple[object, int, tuple[str, ...]]] = []

    @tool(tier="observe")
    async def where(ctx: ToolContext) -> str:
        """Notes where it runs."""
        seen.append((ctx.deps, ctx.depth, ctx.path))
        return "noted"

    scripts = {
        "lead": [ask("mid"), say("done")],
        "mid": [ask("leaf"), say("asked")],
        "leaf": [call("where"), say("x")],
    }
    deps = object()
    with ScriptedModel(scripts) as model:
        await run(lead(nest("mid", Agent("leaf", tools=[where]))), "go", model=model, deps=deps)
    assert seen == [(deps, 2, ("lead", "mid", "leaf"))]


@pytest.mark.parametrize(
    ("limits", "kind"),
    [(Limits(depth=1), "depth"), (Limits(delegations=1), "budget")],
    ids=["depth", "delegations"],
)
async def test_w3_01_a_limit_of_the_root_holds_for_a_grandchild(limits: Limits, kind: str) -> None:
    """W3.1: depth and delegations do not start again below a child."""
    scripts = {"lead": [ask("mid"), say("done")], "mid": [ask("leaf"), say("alone")]}
    with ScriptedModel(scripts) as model:
        outcome, events = await told(lead(nest("mid", Agent("leaf"))), model, limits)
    assert [(e.agent, e.rejection.kind) for e in events if isinstance(e, DelegationRejected)] == [
        ("mid", kind)
    ]
    assert outcome.children[0].text == "alone"


async def test_w3_01_calls_and_requests_of_a_grandchild_count_for_the_root() -> None:
    """W3.1: a grandchild draws on the root's calls and requests, and meets their end."""
    looping = [call("look", path=str(n)) for n in range(20)]
    scripts = {
        "lead": [ask("mid"), say("done")],
        "mid": [ask("leaf"), say("asked")],
        "leaf": [*looping, wrapped("x")],
    }
    root = lead(nest("mid", Agent("leaf", tools=[look])))
    outcome, _ = await told(root, ScriptedModel(scripts), Limits(requests=10))
    assert outcome.total_usage.requests == 10
    leaf = outcome.children[0].children[0]
    assert leaf.status is Status.OVER_BUDGET
    assert (outcome.children[0].text, outcome.text) == ("asked", "done")


@pytest.mark.parametrize("concurrency", [1, 2])
@pytest.mark.parametrize("levels", [1, 2, 6])
async def test_w3_02_nesting_needs_no_permit_per_level(concurrency: int, levels: int) -> None:
    """W3.2: a parent that waits gives its place to its child, so any depth finishes with one or two places."""
    agent = Agent(f"a{levels}")
    scripts: dict[str, Script] = {"lead": [calls(ask("a1"), ask("a1")), say("done")]}
    scripts[f"a{levels}"] = [say("deep", delay=1)]
    for level in range(levels - 1, 0, -1):
        agent = nest(f"a{level}", agent)
        scripts[f"a{level}"] = [ask(f"a{level + 1}"), say(f"level {level}")]
    with ScriptedModel(scripts) as model:
        outcome, events = await told(lead(agent), model, Limits(depth=levels, concurrency=concurrency))
    assert [d["success"] for d in details(events)] == [True] * 2 * levels
    assert model.peak <= concurrency
    assert outcome.text == "done"


@pytest.mark.parametrize("answer", [allow(), deny("not today"), None], ids=["yes", "no", "nobody"])
async def test_w3_03_a_grandchilds_question_reaches_the_root(answer: Decision | None) -> None:
    """W3.3: a changing tool deep down asks the root's approver; no answer ends the child or loses its work."""
    published: list[str] = []
    asked: list[tuple[tuple[str, ...], str, str]] = []

    @tool
    async def publish() -> str:
        """Changes the world."""
        published.append("yes")
        return "published"

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append((request.path, request.tool, request.task))
        await asyncio.sleep(10**4)
        assert answer is not None
        return answer

    scripts = {
        "lead": [ask("mid"), say("done")],
        "mid": [ask("leaf", "Publish it."), say("asked")],
        "leaf": [call("publish", said="work so far"), say("finished")],
    }
    leaf = Agent("leaf", tools=[publish], limits=Limits(seconds=10))
    with ScriptedModel(scripts) as model:
        root = lead(nest("mid", leaf))
        outcome = await run(root, "go", model=model, approver=approver if answer else None)
    ran = outcome.children[0].children[0]
    assert asked == ([(("lead", "mid", "leaf"), "publish", "Publish it.")] if answer else [])
    assert published == (["yes"] if answer == allow() else [])
    assert (ran.status, ran.text) == (Status.COMPLETED, "finished")
    assert results(ran)[0].ok is (answer == allow())


SPENT = Usage(1, 1000, 100)
BEGUN: list[Line] = [call("look", said="half-way", usage=SPENT)]


@pytest.mark.parametrize(
    ("rest", "limits", "status", "partial"),
    [
        ([wait(99, say("late"))], Limits(seconds=20), "timed_out", "half-way"),
        ([wait(99, say("late")), wrapped("so far")], Limits(seconds=20), "timed_out", "so far"),
        ([fail("no key", "auth")], None, "failed", "half-way"),
        ([call("look", said="nearly"), wrapped("so far")], Limits(turns=2), "incomplete", "so far"),
        ([say("late")], Limits(requests=1), "over_budget", "half-way"),
        ([say("")], None, "incomplete", "half-way"),
    ],
    ids=["timeout", "timeout, wrapped up", "error", "turns", "budget", "empty"],
)
async def test_w3_04_whatever_ends_a_child_its_work_is_kept(
    rest: list[Line], limits: Limits | None, status: str, partial: str
) -> None:
    """W3.4: turns, calls, usage and the partial answer of a child are in its result, whatever ended it."""
    found = await result_of(Agent("child", tools=[look], limits=limits), [*BEGUN, *rest])
    assert (found["success"], found["status"]) == (False, status)
    assert found["partial_response"] == partial
    assert found["total_turns"] >= 1
    assert [log["name"] for log in found["tool_logs"]][:1] == ["look"]
    assert found["tool_count"] == len(found["tool_logs"])
    assert found["usage"]["input_tokens"] >= 1000
    assert found["duration_ms"] >= 0


async def test_w3_04_a_cancelled_childs_work_is_kept() -> None:
    """W3.4: turns, calls, usage and the partial answer of a cancelled child are in its result."""
    script: list[Line] = [*BEGUN, wait(99, say("late"))]
    model = ScriptedModel({"lead": [ask(), say("went on")], "child": script})
    events: list[Event] = []
    async with start(lead(CHILD), "go", model=model) as running:
        async for event in running.events():
            events.append(event)
            if isinstance(event, TurnStarted) and (event.agent, event.turn) == ("child", 2):
                await running.cancel("enough", run=event.run)
        outcome = await running.outcome()
    (found,) = details(events)
    assert (found["status"], found["final_response"]) == ("cancelled", "Subagent cancelled")
    assert (found["partial_response"], found["total_turns"], found["tool_count"]) == ("half-way", 1, 1)
    assert found["usage"]["input_tokens"] >= 1000
    assert "half-way" in results(outcome)[0].content
    assert outcome.text == "went on"


async def test_w3_05_progress_is_seen_while_the_child_works() -> None:
    """W3.5, S3.18: each call of a child is seen when it starts and when it ends, with everything about it."""
    go_on = asyncio.Event()

    @tool(tier="observe", name="read")
    async def read(path: str) -> str:
        """Waits until somebody has seen that it runs."""
        await go_on.wait()
        return "text"

    child = Agent("child", nickname="Kid", tools=[read], model=None)
    scripts = {"lead": [ask(), say("done")], "child": [call("read", path="a.py"), say("found")]}
    steps: list[ChildProgress] = []
    async with start(lead(child), "go", model=ScriptedModel(scripts, name="small")) as running:
        async for step in running.progress():
            steps.append(step)
            go_on.set()
        outcome = await running.outcome()
    assert [(s.completed, s.success) for s in steps] == [(False, False), (True, True)]
    for step in steps:
        assert (step.subagent_id, step.child_thread_id) == (outcome.children[0].run_id,) * 2
        assert (step.subagent_name, step.nickname, step.model) == ("child", "Kid", "small")
        assert (step.tool_name, step.tool_context, step.tool_count) == ("read", "a.py", 1)
        assert (step.current_turn, step.max_turns, step.total_tokens) == (1, 50, 15)
        assert step.child_root_task_id == outcome.run_id
        assert step.subagent_task_id == results(outcome)[0].call_id


async def test_w3_05_progress_numbers_stay_within_32_bits() -> None:
    """S3.18: numbers too large for 32 bits are shown as the largest that fits."""
    scripts = {"lead": [ask(), say("done")], "child": [call("look", usage=Usage(1, 2**33, 5)), say("found")]}
    async with start(lead(CHILD), "go", model=ScriptedModel(scripts)) as running:
        steps = [step async for step in running.progress()]
    assert [s.total_tokens for s in steps] == [2**32 - 1] * 2


async def test_w3_06_the_answer_is_not_all_that_was_said() -> None:
    """W3.6: what the parent reads as the answer has nothing of the child's earlier turns."""
    script: list[Line] = [call("look", said="noise one"), call("look", said="noise two"), say("answer")]
    found = await result_of(CHILD, script)
    assert (found["final_response"], "noise" in json.dumps(found)) == ("answer", False)


async def test_w3_07_a_childs_model_is_the_one_that_answers() -> None:
    """W3.7: the model that a child names is asked, by the object or by its name, and is the one reported."""
    small = ScriptedModel({"child": [say("from small")]}, name="small")
    tiny = ScriptedModel({"other": [say("from tiny")]}, name="tiny")
    root = lead(Agent("child", model=small), Agent("other", model="some:tiny"))
    with ScriptedModel({"lead": [calls(ask(), ask("other")), say("done")]}) as big, small, tiny:
        outcome = await run(root, "go", model=big, models={"some:tiny": tiny})
    assert [r.content for r in results(outcome)] == ["from small", "from tiny"]
    assert {c.agent: c.model for c in outcome.children} == {"child": "small", "other": "tiny"}
    assert big.calls_made == 2


async def test_w3_08_the_tool_a_child_ended_in_is_named() -> None:
    """W3.8: a child stopped inside a call names that tool, and every call asked for is logged and counted."""
    child = Agent("child", tools=[look, sleepy], limits=Limits(seconds=20))
    found = await result_of(child, [calls(call("look"), call("sleepy")), wrapped("so far")])
    assert (found["status"], found["failed_tool"]) == ("timed_out", "sleepy")
    assert found["tool_count"] == len(found["tool_logs"]) == 2
    assert [(log["name"], log["success"]) for log in found["tool_logs"]] == [
        ("look", True),
        ("sleepy", False),
    ]


async def test_w3_08_a_delegation_a_child_ended_in_is_named() -> None:
    """W3.8: a child stopped while it waits for its own child names the tool it had called."""
    scripts = {"lead": [ask("mid"), say("went on")], "mid": [ask("leaf")], "leaf": [say("never", delay=500)]}
    async with start(lead(nest("mid", Agent("leaf"))), "go", model=ScriptedModel(scripts)) as running:
        async for event in running.events():
            if isinstance(event, TurnStarted) and event.agent == "leaf":
                assert event.parent is not None
                await running.cancel("enough", run=event.parent)
        outcome = await running.outcome()
    mid = outcome.children[0]
    assert (mid.status, mid.failed_tool) == (Status.CANCELLED, "subagent_leaf")


async def test_w3_08_unknown_and_broken_calls_are_logged_and_counted() -> None:
    """W3.8: a call to no tool, with bad arguments or denied is one failed log entry each."""
    asked = calls(call("missing"), call("look", "not json"), call("look", path=3), call("look"))
    found = await result_of(CHILD, [asked, say("found")])
    assert [log["success"] for log in found["tool_logs"]] == [False, False, False, True]
    assert (found["tool_count"], found["success"]) == (4, True)
    assert "failed_tool" not in found


async def test_w3_10_nobody_waits_for_ever_by_default() -> None:
    """W3.10: with no limit written anywhere, a child whose provider never answers still ends."""
    found = await result_of(Agent("child"), [wait(10**9, say("never"))])
    assert found["status"] == "timed_out"


async def test_w3_10_no_time_means_no_request() -> None:
    """W3.10, S3.13: a child with no time at all is a timeout at once, and its model is not asked."""
    found = await result_of(Agent("child", limits=Limits(seconds=0)), [say("never")])
    assert (found["status"], found["usage"].get("requests", 0)) == ("timed_out", 0)


async def test_w3_10_a_long_child_that_works_is_not_killed() -> None:
    """W3.10: without a wall clock, a child that keeps talking lives, and one that goes silent is stalled."""
    scripts: dict[str, Script] = {
        "lead": [calls(ask("busy"), ask("silent")), say("done")],
        "busy": [say("x" * 500, chunks=500, delay=10**4)],
        "silent": lambda _: wait(10**5, say("never")),
    }
    limits = Limits(seconds=None, stall_seconds=60)
    model = ScriptedModel(scripts, streams=True)
    outcome, _ = await told(lead(Agent("busy"), Agent("silent")), model, limits)
    assert {c.agent: str(c.status) for c in outcome.children} == {"busy": "completed", "silent": "stalled"}
    assert outcome.text == "done"


async def test_w3_11_a_stopped_tool_may_clean_up() -> None:
    """W3.11: a tool that is cancelled gets a moment to finish what must not be cut in the middle."""
    wrote: list[str] = []

    @tool(tier="observe")
    async def write() -> str:
        """Must not be cut between its two halves."""
        wrote.append("first half")
        try:
            await asyncio.sleep(10**5)
        finally:
            await asyncio.sleep(1)
            wrote.append("second half")
        return "written"

    scripts = {"lead": [ask(), say("went on")], "child": [call("write")]}
    async with start(lead(Agent("child", tools=[write])), "go", model=ScriptedModel(scripts)) as running:
        async for event in running.events():
            if event.kind == "call_started" and event.agent == "child":
                await asyncio.sleep(1)
                await running.cancel("enough", run=event.run)
                assert wrote == ["first half", "second half"]
        outcome = await running.outcome()
    assert (outcome.children[0].status, outcome.children[0].warnings) == (Status.CANCELLED, ())


async def test_w3_11_ids_of_parallel_children_never_collide() -> None:
    """W3.11: children started in the same instant have different ids, also in different trees."""
    model = ScriptedModel(
        {"lead": [calls(*[ask(task=str(n)) for n in range(60)]), say("done")], "child": [say("x")]}
    )
    pairs = [await told(lead(), model) for _ in range(2)]
    ids = [e.run for _, events in pairs for e in events if isinstance(e, RunStarted)]
    assert len(ids) == len(set(ids)) == 2 * 61


async def test_w3_12_a_long_answer_is_cut_and_can_be_read_whole() -> None:
    """W3.12: the parent reads the head of a long answer, its size, and gets the rest when it asks."""
    answer = "".join(f"line {n}\n" for n in range(500))

    def read_on(request: Request) -> Line:
        found = re.search(r'read_artifact\(artifact="([^"]+)", start=(\d+)\)', request.messages[-1].text)
        assert found is not None, "the note says how to read on"
        return call("read_artifact", artifact=found[1], start=int(found[2]))

    with ScriptedModel({"lead": [ask(), read_on, say("done")], "child": [say(answer)]}) as model:
        outcome, events = await told(lead(), model, Limits(result_chars=100))
    head, rest = results(outcome)
    assert (head.content, head.content + rest.content) == (answer[:100], answer)
    assert f"100 of {len(answer):,}" in head.note
    assert details(events)[0]["final_response"] == answer[:100]
    assert outcome.children[0].text == answer


@pytest.mark.parametrize(
    "end", [fail("x" * 100_000, "auth"), refuse("x" * 100_000)], ids=["error", "refusal"]
)
async def test_w3_12_a_long_failure_is_cut_too(end: Line) -> None:
    """W3.12: an error or a refusal of any length does not flood its parent's conversation."""
    model = ScriptedModel({"lead": [ask(), say("done")], "child": [end]})
    outcome, events = await told(lead(), model, Limits(result_chars=1000))
    assert len(results(outcome)[0].text) < 5_000
    assert len(json.dumps(details(events))) < 20_000


@pytest.mark.parametrize("args", [{}, {"task": ""}, {"task": " \n"}, {"task": 3}, {"task": None}])
async def test_w3_13_an_empty_task_starts_nobody(args: dict[str, object]) -> None:
    """W3.13: a task that is missing, blank or no text is a failed result that names it, and costs nothing."""
    scripts = {"lead": [call("subagent_child", args), ask(), say("done")], "child": [say("found")]}
    with ScriptedModel(scripts) as model:
        outcome, events = await told(lead(), model, Limits(delegations=1))
    assert [e.rejection.kind for e in events if isinstance(e, DelegationRejected)] == ["invalid_input"]
    assert "'task'" in results(outcome)[0].content
    assert [r.ok for r in results(outcome)] == [False, True]


async def test_w3_13_an_empty_answer_is_no_success() -> None:
    """W3.13: a child that says nothing has not succeeded, and its response says so."""
    found = await result_of(CHILD, [say("  ")])
    assert (found["success"], found["status"]) == (False, "incomplete")
    assert found["final_response"] == "(subagent returned no text)"


async def test_w3_13_any_text_can_be_written_down() -> None:
    """W3.13: broken Unicode from a model or a tool never costs a result: it is repaired and all of it is JSON."""

    @tool(tier="observe")
    async def odd() -> str:
        """Returns half a character."""
        return "half \ud83d"

    scripts = {"lead": [ask(), say("done")], "child": [call("odd", said="a \udc00"), say("b \ud800")]}
    with ScriptedModel(scripts) as model:
        _, events = await told(lead(Agent("child", tools=[odd])), model)
    (found,) = details(events)
    assert (found["success"], found["final_response"]) == (True, "b \ufffd")
    assert all(encode(event).decode() for event in events)
