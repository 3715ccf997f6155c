"""Hooks on calls and results: inspect, replace, refuse; before policy and approval; bounded and reported by name."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Literal, cast

import pytest
from stories import a, by_turn, died, journal

from remit import (
    Agent,
    ApprovalRequest,
    Call,
    Limits,
    Outcome,
    RunContext,
    ToolMessage,
    ToolResult,
    UsageError,
    allow,
    deny,
    resume,
    run,
    start,
    tool,
)
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.policy import Decision
from remit.types.events import ApprovalAnswered, ApprovalRequested, CallChanged, CallEnded, CallStarted
from remit.types.messages import AssistantMessage, JsonObject

RAN: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    RAN.clear()


@tool(tier="observe")
async def look(path: str) -> str:
    """Looks."""
    RAN.append(path)
    return f"saw {path}"


@tool
async def write(path: str) -> str:
    """Writes."""
    RAN.append(path)
    return f"wrote {path}"


async def to_b(call: Call, ctx: RunContext) -> JsonObject:
    return {"path": "b.txt"}


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


def once(name: str = "look", path: str = "a.txt") -> ScriptedModel:
    return ScriptedModel({"lead": [call(name, path=path), say("done")]})


async def test_a_hook_sees_the_call_and_its_run() -> None:
    """A hook that returns None changes nothing; it sees the call, the run's path, task and deps."""
    seen: list[object] = []

    async def watch(call: Call, ctx: RunContext) -> None:
        seen.append((call.name, call.args, ctx.path, ctx.depth, ctx.task, ctx.deps))
        cast(JsonObject, call.args)["path"] = "other.txt"  # a copy: no effect

    outcome = await run(Agent("lead", tools=[look], on_call=watch), "go", model=once(), deps=7)
    assert seen == [("look", {"path": "other.txt"}, ("lead",), 0, "go", 7)]
    assert RAN == ["a.txt"]
    assert outcome.ok


async def test_replaced_arguments_are_validated_judged_shown_and_recorded() -> None:
    """Policy, approver, tool, events and journal see the arguments of the hook; the conversation keeps the model's."""
    asked: list[JsonObject] = []
    judged: list[object] = []

    async def person(request: ApprovalRequest) -> Decision:
        asked.append(request.args)
        return allow()

    def policy(call: Call, _: object) -> Literal["ask"]:
        judged.append(call.args)
        return "ask"

    store = MemoryStore()
    agent = Agent("lead", tools=[write], on_call=to_b)
    outcome = await run(
        agent,
        "go",
        model=once("write"),
        approver=person,
        policy=policy,
        store=store,
    )
    final = {"path": "b.txt"}
    assert (asked, judged, RAN) == ([final], [final, final], ["b.txt"])
    kinds = [e for e in await journal(store) if isinstance(e, (CallChanged, ApprovalRequested, CallStarted))]
    assert [type(e) for e in kinds] == [CallChanged, ApprovalRequested, CallStarted]
    changed = kinds[0]
    assert isinstance(changed, CallChanged)
    assert (changed.args, changed.hooks) == (final, ("to_b",))
    said = next(m for m in outcome.messages if isinstance(m, AssistantMessage))
    assert said.calls[0].args == {"path": "a.txt"}
    assert results(outcome)[0].note == ""


async def test_invalid_arguments_of_a_hook_reach_neither_person_nor_tool() -> None:
    """Arguments that do not fit the tool are refused before anybody is asked."""

    async def broken(call: Call, ctx: RunContext) -> JsonObject:
        return {"pth": 3}

    async def person(request: ApprovalRequest) -> Decision:
        raise AssertionError

    outcome = await run(
        Agent("lead", tools=[write], on_call=broken), "go", model=once("write"), approver=person
    )
    assert not results(outcome)[0].ok
    assert "pth" in results(outcome)[0].content
    assert RAN == []


async def test_a_hook_refuses_a_call() -> None:
    """`deny(reason)` refuses the call: nobody is asked, nothing runs, no call is charged, and the model reads the reason."""

    async def no(call: Call, ctx: RunContext) -> Decision:
        return deny("not on Fridays.")

    async with start(
        Agent("lead", tools=[write], on_call=no), "go", model=once("write"), limits=Limits(calls=0)
    ) as running:
        kinds = [e.kind async for e in running.events()]
        outcome = await running.outcome()
    assert results(outcome)[0].content == "Denied: not on Fridays."
    assert RAN == []
    assert not {"approval_requested", "call_started"} & set(kinds)


async def test_no_hook_turns_a_deny_into_an_allow() -> None:
    """A call that the policy denies stays denied whatever the hook returns; `allow()` is not an answer of a hook."""

    async def wants(call: Call, ctx: RunContext) -> Decision:
        return allow()

    for hook in (to_b, wants):
        outcome = await run(
            Agent("lead", tools=[write], on_call=cast("Callable[..., None]", hook)),
            "go",
            model=once("write"),
            policy=["deny write"],
        )
        assert not results(outcome)[0].ok
    assert "wants" in outcome.warnings[0]
    assert RAN == []


async def test_hooks_run_in_order_the_callers_last() -> None:
    """Each hook sees the arguments of the one before it: first the agent's hooks, then the caller's."""

    def adding(text: str) -> Callable[[Call, RunContext], JsonObject]:
        return lambda call, ctx: {"path": f"{cast(JsonObject, call.args)['path']}{text}"}

    agent = Agent("lead", tools=[look], on_call=[adding("1"), adding("2")])
    await run(agent, "go", model=once(path="p"), on_call=adding("3"))
    assert RAN == ["p123"]


async def test_the_callers_hooks_apply_at_every_depth_and_an_agents_to_its_own_runs() -> None:
    """`run(on_call=...)` sees the calls of all runs; `Agent(on_call=...)` sees those of that agent."""
    of_tree: list[tuple[str, int]] = []
    of_lead: list[str] = []

    def tree(call: Call, ctx: RunContext) -> None:
        of_tree.append((call.name, ctx.depth))

    def lead(call: Call, ctx: RunContext) -> None:
        of_lead.append(call.name)

    leaf = Agent("leaf", tools=[look])
    middle = Agent("middle", subagents=[leaf])
    model = ScriptedModel(
        {
            "lead": [call("task", agent="middle", prompt="x"), say("done")],
            "middle": [call("task", agent="leaf", prompt="x"), say("done")],
            "leaf": [call("look", path="a"), say("done")],
        }
    )
    outcome = await run(Agent("lead", subagents=[middle], on_call=lead), "go", model=model, on_call=tree)
    assert outcome.ok
    assert of_tree == [("task", 0), ("task", 1), ("look", 2)]
    assert of_lead == ["task"]


async def test_an_ad_hoc_child_has_its_parents_hooks() -> None:
    """A model cannot get round a hook by handing its tools to an ad hoc child."""

    def no_secrets(call: Call, ctx: RunContext) -> Decision | None:
        return deny("secret") if call.name == "look" else None

    model = ScriptedModel(
        {
            "lead": [call("subagent", label="x", task_prompt="look"), say("done")],
            "subagent": [call("look", path="secret"), say("no"), say("summary")],
        }
    )
    outcome = await run(Agent("lead", tools=[look], adhoc=True, on_call=no_secrets), "go", model=model)
    assert outcome.children[0].calls[0].success is False
    assert RAN == []


async def test_a_delegation_can_be_changed() -> None:
    """A hook may change the prompt of a `task` call; the child starts with the new one."""

    def shorter(call: Call, ctx: RunContext) -> JsonObject | None:
        return {**cast(JsonObject, call.args), "prompt": "short"} if call.name == "task" else None

    model = ScriptedModel(
        {"lead": [call("task", agent="kid", prompt="long"), say("done")], "kid": [say("ok")]}
    )
    lead = Agent("lead", subagents=[Agent("kid")], on_call=shorter)
    outcome = await run(lead, "go", model=model)
    assert outcome.children[0].messages[0].text == "short"


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_failing_hook_is_reported_by_name_and_the_call_is_not_run(is_async: bool) -> None:
    """A hook that raises stops its call, not the run; model, outcome and root read the hook's name."""

    async def guard(call: Call, ctx: RunContext) -> None:
        raise ValueError("no database")

    def plain(call: Call, ctx: RunContext) -> None:
        raise ValueError("no database")

    plain.__name__ = "guard"
    model = ScriptedModel(
        {
            "lead": [call("task", agent="kid", prompt="x"), say("done")],
            "kid": [call("look", path="a"), say("ok")],
        }
    )
    kid = Agent("kid", tools=[look], on_call=guard if is_async else plain)
    outcome = await run(Agent("lead", subagents=[kid]), "go", model=model)
    assert outcome.ok
    assert RAN == []
    said = "the on_call hook 'guard' raised ValueError: no database. The call was not run."
    assert outcome.warnings == (f"lead > kid: look: {said}",)
    assert (
        results(outcome.children[0])[0].content == "Not run: the hook 'guard' raised ValueError: no database."
    )


async def test_a_hook_has_a_time_limit() -> None:
    """A hook that does not end in 30 seconds has failed, and is stopped."""
    stopped: list[str] = []

    async def slow(call: Call, ctx: RunContext) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.append("slow")

    outcome = await run(Agent("lead", tools=[look], on_call=slow), "go", model=once())
    assert results(outcome)[0].content == "Not run: the hook 'slow' did not finish within 30 s."
    assert (RAN, stopped, round(outcome.duration_s)) == ([], ["slow"], 30)


async def test_a_stop_ends_a_hook() -> None:
    """Cancelling a run stops the hook it waits for, and the call is not run."""
    began = asyncio.Event()

    async def slow(call: Call, ctx: RunContext) -> None:
        began.set()
        await asyncio.sleep(3600)

    async with start(Agent("lead", tools=[look], on_call=slow), "go", model=once()) as running:
        await began.wait()
        await running.cancel("enough")
        outcome = await running.outcome()
    assert (outcome.status, RAN) == ("cancelled", [])


async def test_a_plain_hook_may_block() -> None:
    """A hook that is a plain function runs in a thread."""
    where: list[threading.Thread] = []

    def plain(call: Call, ctx: RunContext) -> None:
        where.append(threading.current_thread())

    await run(Agent("lead", tools=[look], on_call=plain), "go", model=once())
    assert where[0] is not threading.main_thread()


async def test_a_result_can_be_seen_replaced_and_withheld() -> None:
    """`on_result` returns None, a text, a ToolResult, or `deny(reason)`; model and journal have only the new result."""

    def judge(call: Call, result: ToolResult, ctx: RunContext) -> ToolResult | str | Decision | None:
        path = cast(JsonObject, call.args)["path"]
        return {"a": None, "b": "new", "c": ToolResult("bad", ok=False), "d": deny("private")}[
            cast(str, path)
        ]

    several = calls(*(call("look", path=path) for path in "abcd"))
    store = MemoryStore()
    model = ScriptedModel({"lead": [several, say("done")]})
    outcome = await run(Agent("lead", tools=[look], on_result=judge), "go", model=model, store=store)
    withheld = "The call ran, but its result is withheld: private."
    expected = [("saw a", True), ("new", True), ("bad", False), (withheld, False)]
    assert [(m.content, m.ok) for m in results(outcome)] == expected
    ended = [(e.content, e.success) for e in await journal(store) if isinstance(e, CallEnded)]
    assert sorted(ended) == sorted(expected)


async def test_hooks_see_a_long_result_whole_before_it_is_stored() -> None:
    """A hook that redacts sees the whole result; the stored artifact has the redacted text only."""

    @tool(tier="observe", inline_chars=100)
    async def dump() -> str:
        """Much."""
        return "x" * 1000 + "SECRET" + "x" * 1000

    def redact(call: Call, result: ToolResult, ctx: RunContext) -> str:
        return result.content.replace("SECRET", "------")

    store = MemoryStore()
    model = ScriptedModel({"lead": [call("dump"), say("done")]})
    outcome = await run(Agent("lead", tools=[dump], on_result=redact), "go", model=model, store=store)
    kept = await store.load_artifact(outcome.run_id, outcome.artifacts[0].id, 0, 10_000)
    assert kept is not None
    assert "SECRET" not in kept
    assert len(kept) == 2006


async def test_results_of_children_and_failures_pass_the_hooks() -> None:
    """`on_result` sees the answers of delegated children and the failures of tools."""

    @tool(tier="observe")
    async def fail() -> str:
        """Fails."""
        raise ValueError("key=abc")

    seen: list[tuple[str, bool]] = []

    def watch(call: Call, result: ToolResult, ctx: RunContext) -> str:
        seen.append((call.name, result.ok))
        return "hidden"

    both = calls(call("task", agent="kid", prompt="x"), call("fail"))
    model = ScriptedModel({"lead": [both, say("done")], "kid": [say("ok")]})
    lead = Agent("lead", tools=[fail], subagents=[Agent("kid")])
    outcome = await run(lead, "go", model=model, on_result=watch)
    assert sorted(seen) == [("fail", False), ("task", True)]
    assert [(m.content, m.ok) for m in results(outcome)] == [("hidden", True), ("hidden", False)]


async def test_a_failing_result_hook_withholds_the_result() -> None:
    """The result of a call whose hook raised, or returned something else, does not reach the model."""

    def broken(call: Call, result: ToolResult, ctx: RunContext) -> None:
        raise KeyError("x")

    def wrong(call: Call, result: ToolResult, ctx: RunContext) -> int:
        return 3

    for hook, words in (
        (broken, "raised KeyError: 'x'"),
        (wrong, "returned 3; it must return None, a string"),
    ):
        agent = Agent("lead", tools=[look], on_result=cast("Callable[..., None]", hook))
        outcome = await run(agent, "go", model=once())
        content = results(outcome)[0].content
        assert content.startswith(
            f"The call ran, but its result is withheld: the hook {hook.__name__!r} {words}"
        )
        assert "saw a" not in str(outcome.messages)
        assert f"on_result hook {hook.__name__!r}" in outcome.warnings[0]


async def test_a_resumed_call_keeps_its_recorded_arguments() -> None:
    """An approved call that is resumed runs with the arguments that were approved; its hooks are not asked again."""
    store = MemoryStore()
    told: list[str] = []

    def counting(call: Call, ctx: RunContext) -> JsonObject:
        told.append("hook")
        return {"path": f"{len(told)}.txt"}

    async def person(request: ApprovalRequest) -> Decision:
        told.append("person")
        return allow()

    agent = Agent("lead", tools=[write], on_call=counting)
    model = ScriptedModel({"lead": by_turn(call("write", path="a"), say("done"))})
    await run(agent, "go", model=model, store=store, approver=person)
    for last, runs in (
        (a(CallChanged), ["person"]),
        (a(ApprovalRequested), ["person"]),
        (a(ApprovalAnswered), []),
    ):
        dead = await died(store, last)
        RAN.clear()
        told.clear()
        outcome = await resume(dead, "r1", agent=agent, model=model, approver=person)
        assert outcome.ok
        assert (RAN, told) == (["1.txt"], runs)


async def test_the_callers_hooks_must_be_given_again() -> None:
    """A tree that was started with hooks is not resumed without them by mistake; an empty list means it."""
    store = MemoryStore()
    agent = Agent("lead", tools=[look])
    model = ScriptedModel({"lead": by_turn(call("look", path="a"), say("done"))})
    await run(agent, "go", model=model, store=store, on_call=to_b)
    dead = await died(store, a(CallEnded))
    with pytest.raises(UsageError, match=r"started with on_call=\.\.\., which a journal cannot record"):
        await resume(dead, "r1", agent=agent, model=model)
    assert (await resume(dead, "r1", agent=agent, model=model, on_call=[])).ok


@pytest.mark.parametrize("wrong", [3, "hook", [to_b, None]])
async def test_a_hook_must_be_a_function(wrong: object) -> None:
    """A hook that cannot be called is a mistake, for an agent and for `run`."""
    given = cast("Callable[..., None]", wrong)
    with pytest.raises(UsageError, match=r"Agent 'lead': on_call must be a function or a list of functions"):
        Agent("lead", on_call=given)
    with pytest.raises(UsageError, match=r"run\(\): on_result must be a function"):
        await run(Agent("lead"), "go", model=once(), on_result=given)
