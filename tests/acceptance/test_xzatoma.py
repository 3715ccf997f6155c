"""Seed 1, XZatoma's `subagent`: its nineteen acceptance cases, told through a scripted tree.

What the seed says beyond these cases is in `test_xzatoma_behaviours.py`; what it got wrong is in
`test_xzatoma_weaknesses.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from remit import Agent, Event, Limits, Outcome, Request, Status, Tool, ToolMessage, start, tool
from remit.testing import ScriptedModel, call, calls, say, wrapped
from remit.types.events import CallEnded, DelegationRejected, RunStarted

E = TypeVar("E", bound=Event)

MAX_SUBAGENT_DEPTH = 3
DEFAULT_SUBAGENT_MAX_TURNS = 10


@tool(tier="observe")
async def read(path: str) -> str:
    """Reads a file."""
    return f"the text of {path}"


@tool(tier="observe")
async def grep(pattern: str) -> str:
    """Looks for a pattern."""
    return f"no {pattern} anywhere"


LEAD = Agent("lead", tools=[read, grep], adhoc=True)


@dataclass
class Story:
    """What a finished tree left behind."""

    outcome: Outcome
    events: list[Event]
    model: ScriptedModel

    def of(self, kind: type[E], depth: int = 0) -> list[E]:
        return [e for e in self.events if isinstance(e, kind) and e.depth == depth]

    def result(self, depth: int = 0) -> CallEnded:
        """The one `subagent` call of the run at this depth, as people and programs see it."""
        (ended,) = [e for e in self.of(CallEnded, depth) if e.tool == "subagent"]
        return ended

    def details(self, depth: int = 0) -> dict[str, Any]:
        details = self.result(depth).details
        assert isinstance(details, dict)
        return details

    def read_by_lead(self) -> ToolMessage:
        """The one result that the lead's model read."""
        (message,) = [m for m in self.outcome.messages if isinstance(m, ToolMessage)]
        return message

    def requests_of(self, depth: int) -> list[Request]:
        return [r for r in self.model.requests if r.depth == depth]

    def child(self) -> Outcome:
        (child,) = self.outcome.children
        return child


async def tell(scripts: dict[str, Any], *, agent: Agent = LEAD, limits: Limits | None = None) -> Story:
    """Run a tree by its scripts, every step of which must be used."""
    with ScriptedModel(scripts) as model:
        async with start(agent, "go", model=model, limits=limits) as running:
            outcome = await running.outcome()
            return Story(outcome, [e async for e in running.events()], model)


async def delegate(
    *child: object, agent: Agent = LEAD, limits: Limits | None = None, **args: object
) -> Story:
    """The lead delegates once with these arguments, and the child plays these steps."""
    asked = {"label": "survey", "task_prompt": "look around", **args}
    return await tell(
        {"lead": [call("subagent", asked), say("done")], "subagent": list(child)}, agent=agent, limits=limits
    )


async def reject(*, limits: Limits | None = None, **args: object) -> Story:
    """The lead delegates once with exactly these arguments: no child starts, and the lead goes on."""
    story = await tell({"lead": [call("subagent", args), say("done")]}, limits=limits)
    assert story.outcome.status is Status.COMPLETED
    assert story.outcome.children == ()
    assert story.read_by_lead().ok is False
    assert story.details()["success"] is False
    return story


def dig(request: Request) -> Any:
    """Delegates once at every depth, allowed or not, then answers and sums up."""
    if request.tool_choice == "none":
        return say(f"summary from depth {request.depth}")
    if any(isinstance(m, ToolMessage) for m in request.messages):
        return say("done")
    return call("subagent", label="deeper", task_prompt="go deeper")


async def test_a1_01_all_five_fields_parse() -> None:
    """A1.1: label, task_prompt, summary_prompt, allowed_tools and max_turns are read and used."""
    story = await delegate(
        say("found"),
        say("in short"),
        label="survey",
        task_prompt="look around",
        summary_prompt="one line please",
        allowed_tools=["read"],
        max_turns=7,
    )
    (started,) = story.of(RunStarted, 1)
    assert started.label == story.child().label == "survey"
    assert started.task.text == "look around"
    assert started.limits.turns == 7
    assert "read" in started.tools
    assert "grep" not in started.tools
    assert story.requests_of(1)[1].messages[-1].text == "one line please"


@pytest.mark.parametrize("missing", ["label", "task_prompt"])
async def test_a1_02_a_missing_required_field_is_rejected(missing: str) -> None:
    """A1.2: without a required field nothing starts, and the model is told which one it is."""
    args: dict[str, Any] = {"label": "survey", "task_prompt": "look around"}
    del args[missing]
    story = await reject(**args)
    assert missing in story.read_by_lead().content
    (rejected,) = story.of(DelegationRejected)
    assert rejected.rejection.kind == "invalid_input"


@pytest.mark.parametrize("optional", [{}, {"summary_prompt": None, "allowed_tools": None, "max_turns": None}])
async def test_a1_03_optional_fields_default_to_none(optional: dict[str, Any]) -> None:
    """A1.3: what is left out or null means every tool, ten turns and the default request for a summary."""
    story = await delegate(say("found"), say("in short"), **optional)
    (started,) = story.of(RunStarted, 1)
    assert {"read", "grep"} <= set(started.tools)
    assert started.limits.turns == DEFAULT_SUBAGENT_MAX_TURNS
    assert "summar" in story.requests_of(1)[1].messages[-1].text.lower()


async def test_a1_04_at_the_depth_limit_the_call_fails() -> None:
    """A1.4: a run at the depth limit gets a failed result that names the recursion limit, and goes on."""
    story = await tell({"lead": dig, "subagent": dig})
    assert max(r.depth for r in story.model.requests) == MAX_SUBAGENT_DEPTH
    deepest = story.result(MAX_SUBAGENT_DEPTH)
    assert deepest.success is False
    assert "recursion limit" in deepest.content.lower()
    (rejected,) = story.of(DelegationRejected, MAX_SUBAGENT_DEPTH)
    assert (rejected.rejection.kind, rejected.rejection.limit, rejected.rejection.used) == ("depth", 3, 3)
    assert story.outcome.status is Status.COMPLETED


async def test_a1_04_with_depth_zero_nothing_is_delegated() -> None:
    """A1.4: with a limit of 0 the root itself is at the limit."""
    story = await reject(limits=Limits(depth=0), label="survey", task_prompt="look around")
    assert "recursion limit" in story.read_by_lead().content.lower()
    assert story.details()["metadata"] == {"subagent_label": "survey", "recursion_depth": "0"}


async def test_a1_05_depth_zero_executes() -> None:
    """A1.5: the root, at depth 0, may delegate."""
    story = await delegate(say("found"), say("in short"))
    assert story.result().success is True
    assert story.child().depth == 1


async def test_a1_06_no_whitelist_gives_all_but_subagent() -> None:
    """A1.6: without a whitelist the child has every tool of its parent but the parent's `subagent`."""
    limits = Limits(depth=1)
    story = await delegate(say("found"), say("in short"), allowed_tools=None, limits=limits)
    assert {t.name for t in story.requests_of(1)[0].tools} == {"read", "grep"}


async def test_a1_07_a_whitelist_gives_only_the_listed() -> None:
    """A1.7: with a whitelist the child has the listed tools, and calling another one fails as unknown."""
    story = await delegate(
        call("grep", pattern="x"),
        say("found"),
        say("in short"),
        allowed_tools=["read"],
        limits=Limits(depth=1),
    )
    assert {t.name for t in story.requests_of(1)[0].tools} == {"read"}
    (refused,) = story.of(CallEnded, 1)
    assert refused.success is False
    assert "No tool is named 'grep'" in refused.content


async def test_a1_08_subagent_in_the_whitelist_is_rejected() -> None:
    """A1.8: `subagent` may not be whitelisted."""
    story = await reject(label="survey", task_prompt="look", allowed_tools=["read", "subagent"])
    assert "'subagent'" in story.read_by_lead().content
    assert "allowed_tools" in story.read_by_lead().content


async def test_a1_09_an_unknown_tool_is_rejected() -> None:
    """A1.9: a whitelisted tool that the parent does not have is named, and nothing starts."""
    story = await reject(label="survey", task_prompt="look", allowed_tools=["read", "teleport"])
    assert "'teleport'" in story.read_by_lead().content
    (rejected,) = story.of(DelegationRejected)
    assert rejected.rejection.kind == "unknown_tool"


@pytest.mark.parametrize("blank", ["", "   ", "\n\t \u00a0"])
async def test_a1_10_a_blank_task_prompt_is_rejected(blank: str) -> None:
    """A1.10: a task_prompt of nothing but whitespace is empty."""
    story = await reject(label="survey", task_prompt=blank)
    assert "'task_prompt' is empty" in story.read_by_lead().content


@pytest.mark.parametrize("blank", ["", " \n"])
async def test_a1_11_an_empty_label_is_rejected(blank: str) -> None:
    """A1.11: a label is not empty, also after trimming."""
    story = await reject(label=blank, task_prompt="look around")
    assert "'label' is empty" in story.read_by_lead().content


@pytest.mark.parametrize("turns", [0, 51])
async def test_a1_12_max_turns_out_of_range_is_rejected(turns: int) -> None:
    """A1.12: max_turns is from 1 to 50, and the model reads the range and its own number."""
    story = await reject(label="survey", task_prompt="look", max_turns=turns)
    words = story.read_by_lead().content
    assert "'max_turns' must be a whole number from 1 to 50" in words
    assert f"not {turns}." in words


@pytest.mark.parametrize("turns", [1, 50])
async def test_a1_12_the_bounds_of_max_turns_are_allowed(turns: int) -> None:
    """A1.12: 1 and 50 themselves are within the range."""
    story = await delegate(say("found"), say("in short"), max_turns=turns)
    assert story.of(RunStarted, 1)[0].limits.turns == turns


async def test_a1_13_the_schema_names_the_tool_and_what_it_requires() -> None:
    """A1.13: the model is offered `subagent`, whose required fields are label and task_prompt."""
    story = await delegate(say("found"), say("in short"))
    (spec,) = [t for t in story.requests_of(0)[0].tools if t.name.startswith("subagent")]
    assert spec.name == "subagent"
    assert spec.parameters["required"] == ["label", "task_prompt"]
    properties = spec.parameters["properties"]
    assert isinstance(properties, dict)
    assert {"label", "task_prompt", "summary_prompt", "allowed_tools", "max_turns"} <= set(properties)


async def test_a1_14_the_output_is_the_summary() -> None:
    """A1.14: the model is asked twice in the child, and the parent reads the second reply."""
    story = await delegate(say("a long story"), say("in short"))
    assert len(story.requests_of(1)) == 2
    assert story.details()["success"] is True
    assert story.details()["output"] == story.read_by_lead().content == "in short"
    assert story.details()["error"] is None
    assert story.child().text == "in short"


async def test_a1_15_label_and_depth_are_in_the_metadata() -> None:
    """A1.15: the metadata has the label and the depth of the caller: "1" for a call made at depth 1."""
    story = await tell({"lead": dig, "subagent": dig}, limits=Limits(depth=2))
    assert story.details(1)["metadata"]["subagent_label"] == "deeper"
    assert story.details(1)["metadata"]["recursion_depth"] == "1"
    assert story.details(0)["metadata"]["recursion_depth"] == "0"


async def test_a1_16_a_partial_result_when_the_turns_are_used_up() -> None:
    """A1.16: at its turn limit a child hands over what it has: a success, marked incomplete, with the numbers."""
    story = await delegate(
        call("read", path="a"),
        call("read", path="b"),
        wrapped("half of it"),
        max_turns=2,
    )
    details = story.details()
    assert (details["success"], details["error"], details["truncated"]) == (True, None, False)
    assert details["output"] == story.read_by_lead().content == "half of it"
    metadata = details["metadata"]
    assert metadata["completion_status"] == "incomplete"
    assert metadata["max_turns_reached"] == "true"
    # Two turns and the wrap-up: turns used are model calls.
    assert (metadata["turns_used"], metadata["max_turns"]) == ("3", "2")
    assert (story.child().status, story.child().reason) == (Status.INCOMPLETE, "turns")


async def test_a1_17_finishing_early_is_complete() -> None:
    """A1.17: a child that finishes below its limit is complete: two turns, and no word of the limit."""
    story = await delegate(say("found"), say("in short"), max_turns=5)
    metadata = story.details()["metadata"]
    assert metadata["completion_status"] == "complete"
    assert metadata["turns_used"] == "2"
    assert "max_turns_reached" not in metadata


def failing(name: str) -> Tool:
    async def fails(target: str) -> str:
        raise OSError(f"{name} is out of order")

    return tool(fails, name=name, description=f"Does {name}.", tier="observe")


async def test_a1_18_a_child_survives_a_failing_tool() -> None:
    """A1.18: a tool that raises is a failed result in the child's conversation; the child goes on."""
    agent = Agent("lead", tools=[failing("flaky"), read], adhoc=True)
    story = await delegate(
        call("flaky", target="x"), call("read", path="y"), say("found"), say("in short"), agent=agent
    )
    failed, worked = story.of(CallEnded, 1)
    assert (failed.success, worked.success) == (False, True)
    assert "flaky is out of order" in story.requests_of(1)[1].messages[-1].text
    assert story.details()["metadata"]["completion_status"] == "complete"


async def test_a1_19_every_ordinary_tool_fails_as_a_result() -> None:
    """A1.19: fetch, file, grep and terminal that fail are four failed results, in order, and no exception."""
    names = ["fetch", "file", "grep", "terminal"]
    agent = Agent("lead", tools=[failing(n) for n in names], adhoc=True)
    story = await delegate(
        calls(*(call(n, target="x") for n in names)), say("all down"), say("in short"), agent=agent
    )
    results = [m for m in story.requests_of(1)[1].messages if isinstance(m, ToolMessage)]
    assert [m.name for m in results] == names
    for message in results:
        assert message.ok is False
        assert message.content == f"OSError: {message.name} is out of order"
    assert story.child().status is Status.COMPLETED
