"""Seed 3: one `subagent_<name>` tool per configured child. Its acceptance cases, then what else can be seen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from remit import (
    Agent,
    Limits,
    Outcome,
    Request,
    Status,
    Tier,
    Tool,
    ToolContext,
    ToolMessage,
    ToolResult,
    allow,
    deny,
    run,
    start,
    tool,
)
from remit.engine.tree.approvals import Approver
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, crash, fail, refuse, say, wait
from remit.testing.scripted import Answer, Line, Script
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.events import (
    AnyEvent,
    CallEnded,
    CallStarted,
    Event,
    ReplyReceived,
    RunEnded,
    TurnStarted,
)


def ask(name: str = "child", task: str = "look") -> Answer:
    return call(f"subagent_{name}", task=task)


def lead(*subagents: Agent) -> Agent:
    return Agent("lead", surface="subagent_<name>", subagents=subagents or [Agent("child")])


def nest(name: str, *subagents: Agent, tools: tuple[Tool, ...] = ()) -> Agent:
    return Agent(name, surface="subagent_<name>", subagents=subagents, tools=tools)


async def told(
    agent: Agent,
    model: ScriptedModel,
    limits: Limits | None = None,
    *,
    policy: list[str] | None = None,
    approver: Approver | None = None,
) -> tuple[Outcome, list[Event]]:
    store = MemoryStore()
    outcome = await run(
        agent, "go", model=model, limits=limits, store=store, policy=policy, approver=approver
    )
    return outcome, [event async for event in store.read(outcome.run_id)]


def details(events: Sequence[Event]) -> list[dict[str, Any]]:
    """What each delegating call gave to programs, as the JSON that they read."""
    ended = [e for e in events if isinstance(e, CallEnded) and e.tool.startswith("subagent_")]
    return [json.loads(json.dumps(e.details)) for e in ended]


async def result_of(child: Agent, script: Script, limits: Limits | None = None) -> dict[str, Any]:
    """The JSON of one child that plays this script; its parent must get over it."""
    model = ScriptedModel({"lead": [ask(child.name), say("went on")], child.name: script})
    outcome, events = await told(lead(child), model, limits)
    assert outcome.text == "went on"
    assert outcome.children[0].agent == child.name
    return details(events)[0]


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


@tool(tier="observe")
async def look() -> str:
    """Looks."""
    return "seen"


CHILD = Agent("child", tools=[look])


def test_a3_01_a_child_is_configured_by_name() -> None:
    """A3.1: name, nickname, system prompt, turns, timeout and model are the agent's fields and limits."""
    child = Agent(
        "child",
        nickname="Kid",
        instructions="Be brief.",
        model="some:model",
        limits=Limits(turns=7, seconds=1.5),
    )
    assert (child.name, child.nickname, child.instructions) == ("child", "Kid", "Be brief.")
    assert child.model == "some:model"
    assert child.limits == Limits(turns=7, seconds=1.5)


def test_a3_02_what_is_not_configured_is_empty() -> None:
    """A3.2: an agent of which only the name is given has an empty system prompt and nothing else."""
    child = Agent("child")
    assert (child.instructions, child.description) == ("", "")
    assert (child.nickname, child.model, child.limits) == (None, None, None)
    assert (child.tools, child.subagents) == ((), ())


async def test_a3_03_the_result_is_json_with_its_logs() -> None:
    """A3.3: a child's result is JSON with its logs; what is absent (error, failed tool) is left out."""
    found = await result_of(CHILD, [call("look", delay=2), say("found")])
    assert (found["name"], found["final_response"], found["success"]) == ("child", "found", True)
    (log,) = found["tool_logs"]
    assert {k: log[k] for k in ("name", "display_name", "context", "result", "success")} == {
        "name": "look",
        "display_name": "look",
        "context": "",
        "result": "1 line",
        "success": True,
    }
    assert isinstance(log["duration_ms"], int)
    assert "error_details" not in found
    assert "failed_tool" not in found


async def test_a3_04_every_field_can_be_read_from_the_json() -> None:
    """A3.4: turns, tool count, usage, duration and success are numbers and flags in the JSON."""
    found = await result_of(CHILD, [call("look"), say("found", delay=2)])
    assert (found["total_turns"], found["tool_count"], found["success"]) == (2, 1, True)
    assert (found["usage"]["input_tokens"], found["usage"]["output_tokens"]) == (20, 10)
    assert found["duration_ms"] > 0


async def test_a3_04_a_zero_is_in_the_json_too() -> None:
    """A3.4: only the two optional fields may be absent; usage of nothing is written as zeros."""
    found = await result_of(CHILD, [fail("no key", "auth")])
    assert (found["total_turns"], found["tool_count"], found["tool_logs"]) == (0, 0, [])
    assert (found["usage"].get("input_tokens"), found["usage"].get("output_tokens")) == (0, 0)


async def test_a3_05_the_child_has_a_thread_of_its_own() -> None:
    """A3.5: a child's calls and end are events of its own run; its parent's run has one call and its result."""
    model = ScriptedModel({"lead": [ask(), say("done")], "child": [call("look"), say("found")]})
    outcome, events = await told(lead(CHILD), model)
    child = outcome.children[0].run_id
    assert child != outcome.run_id
    inner = [e for e in events if e.run == child]
    assert [e.tool for e in inner if isinstance(e, CallStarted)] == ["look"]
    assert [e.outcome.status for e in inner if isinstance(e, RunEnded)] == [Status.COMPLETED]
    outer = [e for e in events if e.run == outcome.run_id]
    assert [e.tool for e in outer if isinstance(e, CallStarted)] == ["subagent_child"]
    assert [e.reply.text for e in outer if isinstance(e, ReplyReceived)] == ["", "done"]
    (found,) = details(events)
    assert found["tool_count"] == len(found["tool_logs"]) == 1


class UnreadableStore(MemoryStore):
    """Fails whoever reads it."""

    def read(self, root: str, after: int = 0) -> Any:
        raise AssertionError(f"{root} was read")


async def test_a3_06_a_slow_provider_is_a_timeout() -> None:
    """A3.6: a 10 ms limit with a 50 ms provider fails; the result and its details say "timed out". No store is read."""
    child = Agent("child", limits=Limits(seconds=0.01))
    model = ScriptedModel({"lead": [ask(), say("went on")], "child": [say("late", delay=0.05)]})
    async with start(lead(child), "go", model=model, store=UnreadableStore()) as running:
        events = [event async for event in running.events()]
        outcome = await running.outcome()
    (found,) = details(events)
    assert (found["success"], found["final_response"]) == (False, "Subagent timed out")
    assert "child" in found["error_details"]
    assert "timed out after 10 ms" in found["error_details"]
    assert (outcome.text, outcome.children[0].status) == ("went on", Status.TIMED_OUT)


class BrokenStore(MemoryStore):
    """Takes nothing."""

    def append(self, event: Event) -> None:
        raise OSError("disk full")


async def test_a3_07_a_store_that_always_fails_breaks_nothing() -> None:
    """A3.7: with a store that refuses every event and a reader that always raises, the run still succeeds."""

    def complain(event: Event) -> None:
        raise RuntimeError(f"cannot read {event.kind}")

    model = ScriptedModel({"lead": [ask(), say("done")], "child": [call("look"), say("found")]})
    outcome = await run(lead(CHILD), "go", model=model, store=BrokenStore(), on_event=complain)
    assert (outcome.status, results(outcome)[0].content) == (Status.COMPLETED, "found")
    assert any("not stored" in warning for warning in outcome.warnings)


async def test_a3_08_a_panic_is_an_error_with_its_words() -> None:
    """A3.8: an exception in the child's provider is an error that says "panicked" and quotes the original message."""
    found = await result_of(CHILD, [crash("index out of bounds")])
    assert (found["success"], found["status"]) == (False, "failed")
    assert found["final_response"] == found["error_details"]
    assert "panicked" in found["error_details"]
    assert "index out of bounds" in found["error_details"]


async def test_a3_09_a_refusal_is_a_failure_in_its_own_words() -> None:
    """A3.9: a refusal is a failure, and its text is both the response and the details."""
    found = await result_of(CHILD, [refuse("I will not.")])
    assert (found["success"], found["status"]) == (False, "refused")
    assert found["final_response"] == found["error_details"] == "I will not."


async def test_a3_09_a_refusal_without_words_gets_some() -> None:
    """A3.9: a refusal without a text has a default one; what the child said before is not taken for it."""
    found = await result_of(CHILD, [call("look", said="Let me see."), refuse("")])
    assert (found["success"], found["status"]) == (False, "refused")
    assert found["final_response"] == found["error_details"] != "Let me see."
    assert "declined" in found["final_response"]
    assert found["partial_response"] == "Let me see."


async def test_a3_10_a_call_cancelled_before_its_start_fails_as_cancelled() -> None:
    """A3.10: a child whose parent is cancelled before it starts fails with the cancelled text."""
    model = ScriptedModel({"lead": [calls(ask(), ask())], "child": [say("late", delay=60)]})
    events: list[AnyEvent] = []
    async with start(lead(), "go", model=model, limits=Limits(concurrency=1)) as running:
        async for event in running.events():
            events.append(event)
            if event.kind == "child_queued":
                await running.cancel("changed my mind")
    waiting = next(d for d in details(events) if d["total_turns"] == 0 and "rejection" in d)
    assert (waiting["success"], waiting["final_response"]) == (False, "Subagent cancelled")
    assert waiting["rejection"]["kind"] == "cancelled"
    assert "cancelled by the caller: changed my mind" in waiting["rejection"]["message"]
    assert all((d["success"], d["final_response"]) == (False, "Subagent cancelled") for d in details(events))


async def test_a3_11_six_server_errors_are_a_failure_of_no_tool() -> None:
    """A3.11: after six server errors the child fails; the details say "Server error" and name no failed tool."""
    down: list[Line] = [fail("upstream is down") for _ in range(6)]
    found = await result_of(CHILD, [call("look"), *down])
    assert (found["success"], found["status"]) == (False, "failed")
    assert "failed_tool" not in found
    assert "upstream is down" in found["error_details"]
    assert "Server error" in found["error_details"]


async def test_a3_12_nothing_after_an_error_counts() -> None:
    """A3.12: an error ends the child; what it would have said later is in no field of the result."""
    script: list[Line] = [call("look", said="before"), fail("no key", "auth"), say("after")]
    found = await result_of(CHILD, script)
    assert (found["success"], found["total_turns"]) == (False, 1)
    assert "no key" in found["final_response"]
    assert found["partial_response"] == "before"
    assert "after" not in json.dumps(found)


async def test_a3_13_only_the_last_message_is_the_answer() -> None:
    """A3.13: what a child says between its calls is not part of its final response."""
    found = await result_of(CHILD, [call("look", said="first"), call("look", said="second"), say("answer")])
    assert found["final_response"] == "answer"


async def test_a3_14_depth_and_limits_reach_the_nested_context() -> None:
    """A3.14: a child's tools run at its parent's depth + 1, under the same depth limit and the same slots."""
    depths: list[int] = []

    @tool(tier="observe")
    async def where(ctx: ToolContext) -> str:
        """Notes how deep it runs."""
        depths.append(ctx.depth)
        return "noted"

    scripts = {
        "lead": [ask("mid"), say("done")],
        "mid": [call("where"), calls(ask("leaf"), ask("leaf")), say("asked")],
        "leaf": [call("where"), ask("more"), say("found", delay=5)],
    }
    leaf = nest("leaf", Agent("more"), tools=(where,))
    root = lead(nest("mid", leaf, tools=(where,)))
    outcome, events = await told(
        root, ScriptedModel(scripts), Limits(depth=2, concurrency=1, when_full="reject")
    )
    assert depths == [1, 2]
    assert sorted(d["status"] for d in details(events)) == [
        "completed",
        "completed",
        "rejected: busy",
        "rejected: depth",
    ]
    assert outcome.ok


async def test_a3_15_a_nested_rejection_is_a_failed_log_of_a_child_that_succeeds() -> None:
    """A3.15: a nested spawn refused by depth is a failed entry in the logs of a child that still succeeds."""
    scripts = {"lead": [ask("outer"), say("done")], "outer": [ask("inner"), say("alone")]}
    root = lead(nest("outer", Agent("inner")))
    _, events = await told(root, ScriptedModel(scripts), Limits(depth=1))
    inner, outer = details(events)
    assert (inner["success"], inner["rejection"]["kind"]) == (False, "depth")
    assert all(words in inner["final_response"] for words in ("'inner'", "depth 1", "max_depth 1"))
    assert (outer["success"], outer["final_response"]) == (True, "alone")
    assert [(log["name"], log["success"]) for log in outer["tool_logs"]] == [("subagent_inner", False)]
    assert outer["tool_count"] == 1


async def test_s3_06_the_tool_is_named_after_the_child() -> None:
    """S3.6: one tool per child, `subagent_<name>`, shown as "Subagent: <name>", with one required `task`."""
    model = ScriptedModel({"lead": [ask("a"), say("done")], "a": [say("found")]})
    outcome = await run(lead(Agent("a"), Agent("b")), "go", model=model)
    specs = {s.name: s for s in model.requests[0].tools}
    assert {"subagent_a", "subagent_b"} <= set(specs)
    assert "independently" in specs["subagent_a"].description
    assert "only its final response" in specs["subagent_a"].description
    assert specs["subagent_a"].parameters["required"] == ["task"]
    assert outcome.calls[0].display_name == "Subagent: a"


@pytest.mark.parametrize(
    ("policy", "answer", "spawned"),
    [(None, None, True), (["ask subagent_*"], allow(), True), (["ask subagent_*"], deny("no"), False)],
    ids=["default", "asked, yes", "asked, no"],
)
async def test_s3_07_spawning_is_of_the_confirm_tier(
    policy: list[str] | None, answer: Decision | None, spawned: bool
) -> None:
    """S3.7: the tool reports `confirm`; the default lets it pass, and a rule makes spawning ask a person."""
    asked: list[str] = []

    async def approver(request: ApprovalRequest) -> Decision:
        asked.append(request.tool)
        assert answer is not None
        return answer

    model = ScriptedModel({"lead": [ask(), say("done")], "child": [say("found")]})
    outcome, events = await told(lead(), model, policy=policy, approver=approver)
    assert asked == ([] if answer is None else ["subagent_child"])
    assert [e.tier for e in events if isinstance(e, CallStarted)] == [Tier.CONFIRM] * spawned
    assert results(outcome)[0].ok is spawned
    assert len(outcome.children) == spawned


async def test_s3_09_without_a_free_permit_the_call_fails_at_once() -> None:
    """S3.9: with when_full="reject" a call beyond the permits is a failed result that says to try later."""
    model = ScriptedModel({"lead": [calls(ask(), ask()), say("done")], "child": [say("found", delay=5)]})
    outcome, events = await told(lead(), model, Limits(concurrency=1, when_full="reject"))
    busy = next(d for d in details(events) if not d["success"])
    assert (busy["rejection"]["kind"], busy["duration_ms"]) == ("busy", 0)
    assert "later" in results(outcome)[1].content
    assert [r.ok for r in results(outcome)] == [True, False]


async def test_s3_11_a_cancel_goes_down_and_not_up() -> None:
    """S3.11: cancelling a child stops everything below it; its parent reads the reason and continues."""
    scripts = {"lead": [ask("mid"), say("went on")], "mid": [ask("leaf")], "leaf": [say("never", delay=500)]}
    events: list[AnyEvent] = []
    async with start(lead(nest("mid", Agent("leaf"))), "go", model=ScriptedModel(scripts)) as running:
        async for event in running.events():
            events.append(event)
            if isinstance(event, TurnStarted) and event.agent == "leaf":
                assert event.parent is not None
                await running.cancel("enough", run=event.parent)
        outcome = await running.outcome()
    ended = {e.agent: e.outcome.status for e in events if isinstance(e, RunEnded)}
    assert ended == {"leaf": "cancelled", "mid": "cancelled", "lead": "completed"}
    assert "enough" in details(events)[-1]["error_details"]
    assert outcome.text == "went on"


@pytest.mark.parametrize(
    ("script", "limits", "response", "said"),
    [
        ([wait(99, say("late"))], Limits(seconds=5), "Subagent timed out", ["child", "5000 ms"]),
        ([fail("no key", "auth")], None, "no key", ["no key"]),
        ([call("look"), say("late")], Limits(requests=1), "Subagent ran out of budget", ["child", "1 of 1"]),
        ([say("")], None, "(subagent returned no text)", ["child", "empty"]),
    ],
    ids=["timeout", "error", "budget", "empty"],
)
async def test_s3_16_each_end_has_its_text(
    script: list[Line], limits: Limits | None, response: str, said: list[str]
) -> None:
    """S3.16: each way to fail has a fixed response, and details with the name and the numbers behind it."""
    found = await result_of(Agent("child", tools=[look], limits=limits), script)
    assert not found["success"]
    assert response in found["final_response"]
    assert all(words in found["error_details"] for words in said), found["error_details"]


async def test_s3_16_a_timeout_names_the_time_it_really_had() -> None:
    """S3.16: a child stopped by its parent's time says how long it had, not its own larger number."""
    child = Agent("child", limits=Limits(seconds=500))
    found = await result_of(child, [wait(10**6, say("late"))], Limits(seconds=100))
    assert found["final_response"] == "Subagent timed out"
    assert "500000" not in found["error_details"]


@pytest.mark.parametrize("surface", ["task", "subagent_<name>"])
async def test_s3_16_no_words_about_a_number_that_is_not_set(surface: Any) -> None:
    """S3.16: a child without its own time limit, stopped by its parent's, is not reported with "None"."""
    parent = Agent("lead", surface=surface, subagents=[CHILD], limits=Limits(seconds=100))
    step = ask() if surface != "task" else call("task", agent="child", prompt="look")
    script: list[Line] = [call("look"), wait(10**6, say("late")), say("what I have")]
    model = ScriptedModel({"lead": [step, say("went on")], "child": script})
    outcome = await run(parent, "go", model=model)
    assert outcome.children[0].status is Status.TIMED_OUT
    read = [m.text for r in model.requests for m in r.messages]
    assert not [text for text in read if "None" in text]


def shaped(name: str, result: ToolResult) -> Tool:
    """A tool of this name that takes anything and gives this."""

    async def anything(**_: object) -> ToolResult:
        return result

    parameters: dict[str, object] = {"type": "object", "properties": {}}
    return tool(anything, name=name, tier="observe", description="Anything.", parameters=parameters)


FORTY_SEVEN = "é" * 47 + "..."


@pytest.mark.parametrize(
    ("name", "args", "gave", "context", "summary"),
    [
        ("read", {"file_path": "a.py", "path": "b.py"}, ToolResult("1\n2\n3"), "a.py", "3 lines"),
        ("read", {"path": "b.py"}, ToolResult("1\n2"), "b.py", "2 lines"),
        ("write", {"file_path": "a.py"}, ToolResult("ok\nok"), "a.py", "wrote file"),
        ("edit", {"file_path": "a.py"}, ToolResult("ok\nok"), "a.py", "edited"),
        ("bash", {"command": "x" * 60}, ToolResult(""), "x" * 60, "done"),
        ("bash", {"command": "é" * 61}, ToolResult("one line"), "é" * 57 + "...", "one line"),
        ("bash", {"command": "ls"}, ToolResult("é" * 51), "ls", FORTY_SEVEN),
        ("bash", {"command": "ls"}, ToolResult("é" * 50), "ls", "é" * 50),
        ("bash", {"command": "ls"}, ToolResult("a\nb"), "ls", "2 lines"),
        ("glob", {"pattern": "*.py"}, ToolResult("a\nb"), "*.py", "2 files"),
        ("grep", {"pattern": "def"}, ToolResult("a\nb\nc"), "def", "3 matches"),
        ("web_search", {"query": "remit"}, ToolResult("a\nb"), "remit", "2 lines"),
        ("other", {"thing": "x"}, ToolResult(""), "", "done"),
        ("read", {"path": "b"}, ToolResult("é" * 51 + "\nmore", ok=False), "b", FORTY_SEVEN),
        ("read", {"path": "b"}, ToolResult("no file\nmore", ok=False), "b", "no file"),
        ("bash", {"command": "ls"}, ToolResult("", ok=False), "ls", "Error"),
    ],
)
async def test_s3_19_s3_20_a_call_is_logged_in_short(
    name: str, args: dict[str, object], gave: ToolResult, context: str, summary: str
) -> None:
    """S3.19, S3.20: a log has the argument that matters and a few words of the result, cut by characters."""
    model = ScriptedModel({"worker": [call(name, args), say("done")]})
    outcome = await run(Agent("worker", tools=[shaped(name, gave)]), "go", model=model)
    (log,) = outcome.calls
    assert (log.context, log.result, log.success) == (context, summary, gave.ok)
    assert log.duration_ms is not None


@pytest.mark.parametrize(
    "problem", [ValueError("bad state"), SystemExit("bad state"), asyncio.CancelledError("bad state")]
)
async def test_s3_24_any_panic_keeps_its_words_and_blames_no_tool(problem: BaseException) -> None:
    """S3.24: whatever the child's provider raises is an error with the original words, blamed on no tool."""

    def panic(_: Request) -> Line:
        raise problem

    found = await result_of(CHILD, [call("look"), panic])
    assert (found["success"], found["status"]) == (False, "failed")
    assert "panicked" in found["error_details"]
    assert "failed_tool" not in found
    assert isinstance(problem, asyncio.CancelledError) or "bad state" in found["error_details"]
