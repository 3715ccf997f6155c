"""Seed 2: one `task` tool over declared agents. Its acceptance cases, then what else it says can be seen."""

from __future__ import annotations

import pytest

from remit import (
    Agent,
    Limits,
    Outcome,
    Request,
    Status,
    ToolMessage,
    UsageError,
    UserMessage,
    run,
    start,
    tool,
)
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, crash, fail, say
from remit.testing.scripted import Answer, Line
from remit.types.events import CallEnded, DelegationRejected, Event, RunStarted
from remit.types.messages import ToolSpec
from remit.types.outcome import Rejection


def task(agent: str = "child", prompt: str = "look") -> Answer:
    return call("task", agent=agent, prompt=prompt)


def lead(*subagents: Agent) -> Agent:
    return Agent("lead", subagents=subagents or [Agent("child")])


async def told(
    agent: Agent, model: ScriptedModel, limits: Limits | None = None
) -> tuple[Outcome, list[Event]]:
    store = MemoryStore()
    outcome = await run(agent, "go", model=model, limits=limits, store=store)
    return outcome, [event async for event in store.read(outcome.run_id)]


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


def rejections(events: list[Event]) -> list[Rejection]:
    return [e.rejection for e in events if isinstance(e, DelegationRejected)]


def started(events: list[Event]) -> list[str]:
    return [e.agent for e in events if isinstance(e, RunStarted)]


def first_request(model: ScriptedModel, agent: str) -> Request:
    return next(r for r in model.requests if r.agent == agent)


def offered(model: ScriptedModel, agent: str) -> list[str]:
    return [spec.name for spec in first_request(model, agent).tools]


def task_spec(model: ScriptedModel, agent: str = "lead") -> ToolSpec:
    return next(spec for spec in first_request(model, agent).tools if spec.name == "task")


async def test_a2_01_the_definition_lists_names_and_descriptions() -> None:
    """A2.1: the tool is `task`, labelled "Task", and lists each declared agent with its description."""
    agents = [
        Agent("explorer", description="Reads and reports."),
        Agent("writer", description="Writes files."),
    ]
    scripts = {"lead": [task("explorer"), say("done")], "explorer": [say("found")]}
    with ScriptedModel(scripts) as model:
        outcome = await run(lead(*agents), "go", model=model)
    listed = task_spec(model).description.splitlines()
    assert '- "explorer": Reads and reports.' in listed
    assert '- "writer": Writes files.' in listed
    assert (outcome.calls[0].name, outcome.calls[0].display_name) == ("task", "Task")


async def test_a2_02_without_agents_none_are_declared() -> None:
    """A2.2: a run with nothing declared is not offered `task`; calling it anyway reads "(none declared)"."""
    with ScriptedModel({"loner": [task("ghost"), say("alone")]}) as model:
        outcome, events = await told(Agent("loner"), model)
    assert offered(model, "loner") == []
    assert outcome.ok
    assert not results(outcome)[0].ok
    assert "(none declared)" in results(outcome)[0].content
    assert [r.kind for r in rejections(events)] == ["unknown_agent"]


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (call("task", prompt="look"), "'agent'"),
        (call("task", agent="child"), "'prompt'"),
        (call("task", agent=3, prompt="look"), "'agent'"),
        (call("task", agent="child", prompt=["look"]), "'prompt'"),
        (call("task", "not an object"), "not a JSON object"),
    ],
)
async def test_a2_03_both_fields_are_required(step: Answer, names: str) -> None:
    """A2.3: `agent` and `prompt` are required strings; without one the call fails, names it and starts nothing."""
    with ScriptedModel({"lead": [step, say("done")]}) as model:
        outcome, events = await told(lead(), model, Limits(delegations=1))
    assert not results(outcome)[0].ok
    assert names in results(outcome)[0].content
    assert outcome.text == "done"
    assert started(events) == ["lead"]


async def test_a2_04_an_unknown_agent_is_named_with_the_known_ones() -> None:
    """A2.4: the error for an unknown agent says "not declared", names the known agents, and costs no delegation."""
    scripts = {"lead": [task("ghost"), task("writer"), say("done")], "writer": [say("written")]}
    with ScriptedModel(scripts) as model:
        outcome, events = await told(lead(Agent("explorer"), Agent("writer")), model, Limits(delegations=1))
    unknown, known = results(outcome)
    assert not unknown.ok
    assert "agent 'ghost' is not declared" in unknown.content
    assert all(name in unknown.content for name in ("explorer", "writer"))
    assert [r.kind for r in rejections(events)] == ["unknown_agent"]
    assert (known.ok, known.content) == (True, "written")


async def test_a2_05_depth_zero_rejects_every_delegation() -> None:
    """A2.5: with depth 0 a delegation is rejected; the message says "depth exceeded" and "max_depth 0"."""
    with ScriptedModel({"lead": [task(), say("alone")]}) as model:
        outcome, events = await told(lead(), model, Limits(depth=0))
    assert "depth exceeded" in results(outcome)[0].content
    assert "max_depth 0" in results(outcome)[0].content
    assert not results(outcome)[0].ok
    assert [(r.kind, r.limit, r.used) for r in rejections(events)] == [("depth", 0, 0)]
    assert (outcome.text, started(events)) == ("alone", ["lead"])


async def test_a2_06_a_second_delegation_is_over_a_budget_of_one() -> None:
    """A2.6: under delegations=1 the first child works and the second call reads "budget exhausted"."""
    with ScriptedModel({"lead": [task(), task(), say("done")], "child": [say("found")]}) as model:
        outcome, events = await told(lead(), model, Limits(delegations=1))
    first, second = results(outcome)
    assert (first.ok, first.content) == (True, "found")
    assert not second.ok
    assert "budget exhausted" in second.content
    assert [r.kind for r in rejections(events)] == ["budget"]
    assert started(events) == ["lead", "child"]


async def test_a2_07_the_answer_is_one_block_of_text() -> None:
    """A2.7: the child's final text is the result, word for word, and the details are empty."""
    answer = "Line one.\n\nLine two: *same*."
    with ScriptedModel({"lead": [task(), say("done")], "child": [say(answer)]}) as model:
        outcome, events = await told(lead(), model)
    assert (results(outcome)[0].ok, results(outcome)[0].content) == (True, answer)
    assert [e.details for e in events if isinstance(e, CallEnded) and e.tool == "task"] == [{}]


async def test_a2_08_a_call_cancelled_before_its_start_is_of_its_own_class() -> None:
    """A2.8: a delegation whose run is cancelled before it starts is `cancelled`, not a validation error."""
    model = ScriptedModel({"lead": [calls(task(), task())], "child": [say("late", delay=60)]})
    events: list[Event] = []
    async with start(lead(), "go", model=model, limits=Limits(concurrency=1)) as running:
        async for event in running.events():
            events.append(event)
            if event.kind == "child_queued":
                await running.cancel("changed my mind")
        outcome = await running.outcome()
    assert [r.kind for r in rejections(events)] == ["cancelled"]
    assert started(events) == ["lead", "child"]
    waiting = results(outcome)[1]
    assert not waiting.ok
    assert "Cancelled before it started" in waiting.content
    assert "changed my mind" in waiting.content
    assert outcome.status is Status.CANCELLED


async def test_a2_09_the_parent_delegates_and_uses_the_answer() -> None:
    """A2.9: the parent delegates in turn 1, the child answers, the parent uses it in turn 2."""

    def use(request: Request) -> Line:
        result = request.messages[-1]
        assert isinstance(result, ToolMessage)
        return f"The child said: {result.content}"

    with ScriptedModel({"lead": [task(), use], "child": [say("42")]}) as model:
        outcome = await run(lead(), "go", model=model)
    assert (outcome.status, outcome.text, outcome.turns) == (Status.COMPLETED, "The child said: 42", 2)
    assert [(c.agent, c.text, c.turns) for c in outcome.children] == [("child", "42", 1)]


async def test_a2_10_a_grandchild_below_the_depth_limit_is_refused() -> None:
    """A2.10: with depth 1 the grandchild is refused as a tool error, the child recovers, the parent completes."""
    child = Agent("child", subagents=[Agent("grandchild")])
    scripts = {"lead": [task(), say("done")], "child": [task("grandchild"), say("did it myself")]}
    with ScriptedModel(scripts) as model:
        outcome, events = await told(lead(child), model, Limits(depth=1))
    (ran,) = outcome.children
    assert [log.success for log in ran.calls] == [False]
    assert "max_depth 1" in results(ran)[0].content
    assert (ran.status, ran.text) == (Status.COMPLETED, "did it myself")
    assert (outcome.status, outcome.turns) == (Status.COMPLETED, 2)
    assert [(e.agent, e.rejection.kind) for e in events if isinstance(e, DelegationRejected)] == [
        ("child", "depth")
    ]


async def test_s2_01_the_default_budget_is_64_delegations() -> None:
    """S2.1: with no limits given, a tree starts 64 children and no more."""
    model = ScriptedModel({"lead": [calls(*[task()] * 70), say("done")], "child": [say("found")]})
    outcome, events = await told(lead(), model)
    assert started(events).count("child") == 64
    assert [r.ok for r in results(outcome)].count(False) == 6


async def test_s2_05_the_description_is_generated() -> None:
    """S2.5: it says what delegating is; descriptions are trimmed, and a blank one says that there is none."""
    agents = [Agent("padded", description="  Reads.\n"), Agent("blank", description="  ")]
    with ScriptedModel({"lead": [say("done")]}) as model:
        await run(lead(*agents), "go", model=model)
    description = task_spec(model).description
    assert "Delegate" in description
    assert "fresh context" in description
    assert "only if one of the declared agents suits" in description
    assert description.splitlines()[-2:] == ['- "padded": Reads.', '- "blank": (no description provided)']


async def test_s2_06_the_schema_has_two_required_strings() -> None:
    """S2.6: an object of two required strings, and the prompt's help says what the child does not see."""
    with ScriptedModel({"lead": [say("done")]}) as model:
        await run(lead(), "go", model=model)
    schema = task_spec(model).parameters
    properties = schema["properties"]
    assert isinstance(properties, dict)
    assert (schema["type"], schema["required"]) == ("object", ["agent", "prompt"])
    assert {name: field["type"] for name, field in properties.items()} == {
        "agent": "string",
        "prompt": "string",
    }
    assert "not your history" in properties["prompt"]["description"]


@tool(tier="observe")
async def look() -> str:
    """Looks."""
    return "seen"


async def test_s2_07_instructions_and_tools_are_the_childs_own() -> None:
    """S2.7: nothing but model and settings flows down: a child without tools or instructions has none."""
    parent = Agent(
        "lead", instructions="Secret.", tools=[look], settings={"temperature": 0}, subagents=[Agent("child")]
    )
    with ScriptedModel({"lead": [task(), say("done")], "child": [say("found")]}) as model:
        await run(parent, "go", model=model)
    request = first_request(model, "child")
    assert (request.instructions, request.tools) == ("", ())
    assert request.settings == {"temperature": 0}


async def test_s2_08_a_grandchild_inherits_from_the_child() -> None:
    """S2.8: model and settings that a grandchild omits are its parent's resolved ones, not the root's."""
    small = ScriptedModel(
        {"child": [task("grandchild"), say("found")], "grandchild": [say("deep")]}, name="small"
    )
    child = Agent("child", model=small, settings={"effort": "low"}, subagents=[Agent("grandchild")])
    root = Agent("lead", settings={"effort": "high"}, subagents=[child])
    with ScriptedModel({"lead": [task(), say("done")]}, name="big") as big, small:
        outcome = await run(root, "go", model=big)
    assert (outcome.model, outcome.children[0].children[0].model) == ("big", "small")
    assert first_request(small, "grandchild").settings == {"effort": "low"}


async def test_s2_09_task_comes_first_and_only_with_subagents() -> None:
    """S2.9: a child has `task` only if it declares subagents, and then as its first tool."""
    child = Agent("child", tools=[look], subagents=[Agent("leaf", tools=[look])])
    scripts = {"lead": [task(), say("done")], "child": [task("leaf"), say("found")], "leaf": [say("deep")]}
    with ScriptedModel(scripts) as model:
        await run(lead(child), "go", model=model)
    assert offered(model, "child")[0] == "task"
    assert offered(model, "leaf") == ["look"]


@pytest.mark.parametrize("name", ["task", "subagent", "subagent_child"])
def test_s2_09_no_tool_can_take_the_name_of_a_delegate_tool(name: str) -> None:
    """S2.9: a tool that would shadow a delegate tool, and so escape the depth limit, cannot be made."""

    def shadow() -> str:
        return "escaped"

    with pytest.raises(UsageError, match=name):
        tool(shadow, name=name)
    with pytest.raises(UsageError, match=name):
        Agent("lead", tools=[name])


async def test_s2_11_the_child_starts_with_its_prompt_and_nothing_else() -> None:
    """S2.11: a child's conversation is its instructions and its prompt; the parent keeps only the result."""
    scripts = {
        "lead": [call("look", said="private"), task(prompt="Find it."), say("done")],
        "child": [call("look", said="inner"), say("found")],
    }
    parent = Agent("lead", tools=[look], subagents=[Agent("child", instructions="Be brief.", tools=[look])])
    with ScriptedModel(scripts) as model:
        outcome = await run(parent, "go", model=model)
    request = first_request(model, "child")
    assert request.instructions == "Be brief."
    assert [(type(m), m.text) for m in request.messages] == [(UserMessage, "Find it.")]
    assert "inner" not in str(outcome.messages)


@pytest.mark.parametrize(
    "end", [fail("no key", "auth"), crash("bug"), say("")], ids=["error", "bug", "empty"]
)
async def test_s2_17_a_started_child_spends_its_delegation(end: Line) -> None:
    """S2.17, S2.18: a started child costs one delegation however it ends, and its end is a result to the parent."""
    with ScriptedModel({"lead": [task(), task(), say("done")], "child": [end]}) as model:
        outcome, events = await told(lead(), model, Limits(delegations=1))
    assert [r.ok for r in results(outcome)] == [False, False]
    assert started(events) == ["lead", "child"]
    assert [r.kind for r in rejections(events)] == ["budget"]
    assert outcome.text == "done"


async def test_s2_19_a_blank_answer_is_said_to_be_one() -> None:
    """S2.19: a child that ends with blank text is reported as "(subagent returned no text)", and not as a success."""
    with ScriptedModel({"lead": [task(), say("done")], "child": [say(" \n")]}) as model:
        outcome = await run(lead(), "go", model=model)
    assert (results(outcome)[0].ok, results(outcome)[0].content) == (False, "(subagent returned no text)")
    assert (outcome.children[0].status, outcome.children[0].reason) == (Status.INCOMPLETE, "empty")
