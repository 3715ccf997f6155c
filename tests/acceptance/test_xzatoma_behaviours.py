"""Seed 1, XZatoma's `subagent`: what its document states (S1.x) beyond its nineteen acceptance cases.

Not here: S1.2 (names of classes), S1.5 (the constants are in A1.3, A1.4 and S1.21), S1.7 (see W1.1),
S1.19 (replaced by counting model calls, C7), S1.20 (A1.16, A1.17 and W1.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from remit import (
    Agent,
    AssistantMessage,
    Event,
    Limits,
    Outcome,
    Reply,
    Request,
    Status,
    ToolMessage,
    UserMessage,
    start,
    tool,
)
from remit.testing import ScriptedModel, call, calls, fail, refuse, say, wrapped
from remit.types.events import CallEnded, DelegationRejected, RunStarted, TurnStarted

E = TypeVar("E", bound=Event)

SUBAGENT_OUTPUT_MAX_SIZE = 4096
RESULT_FIELDS = {"success", "output", "error", "truncated", "metadata"}


@tool(tier="observe")
async def read(path: str) -> str:
    """Reads a file."""
    return f"the text of {path}"


@tool(tier="observe")
async def grep(pattern: str) -> str:
    """Looks for a pattern."""
    return f"no {pattern} anywhere"


LEAD = Agent("lead", instructions="You lead.", tools=[read, grep], adhoc=True, settings={"temperature": 0})


@dataclass
class Story:
    """What a finished tree left behind."""

    outcome: Outcome
    events: list[Event]
    model: ScriptedModel

    def of(self, kind: type[E], depth: int = 0) -> list[E]:
        return [e for e in self.events if isinstance(e, kind) and e.depth == depth]

    def details(self, depth: int = 0) -> dict[str, Any]:
        (ended,) = [e for e in self.of(CallEnded, depth) if e.tool == "subagent"]
        assert isinstance(ended.details, dict)
        return ended.details

    def results(self) -> list[ToolMessage]:
        """What the lead's model read."""
        return [m for m in self.outcome.messages if isinstance(m, ToolMessage)]

    def requests_of(self, depth: int) -> list[Request]:
        return [r for r in self.model.requests if r.depth == depth]


async def tell(scripts: Any, *, agent: Agent = LEAD, limits: Limits | None = None) -> Story:
    """Run a tree by its scripts, every step of which must be used."""
    with ScriptedModel(scripts) as model:
        async with start(agent, "go", model=model, limits=limits) as running:
            outcome = await running.outcome()
            return Story(outcome, [e async for e in running.events()], model)


def subagent(**args: object) -> Any:
    return call("subagent", {"label": "survey", "task_prompt": "look around", **args})


async def delegate(*child: object, limits: Limits | None = None, **args: object) -> Story:
    """The lead delegates once with these arguments, and the child plays these steps."""
    return await tell({"lead": [subagent(**args), say("done")], "subagent": list(child)}, limits=limits)


async def nest(outer: Any, *inner: object) -> Story:
    """The child makes the call `outer`; its own child, if there is one, plays `inner`."""

    def play(request: Request) -> Any:
        if request.depth == 2:
            return inner[len([m for m in request.messages if isinstance(m, AssistantMessage)])]
        asked = any(isinstance(m, ToolMessage) for m in request.messages)
        return say("middle") if asked else outer

    return await tell({"lead": [subagent(allowed_tools=["read"]), say("done")], "subagent": play})


def once(**args: object) -> Any:
    """A script for every agent: the root delegates once, started or not, and everybody answers."""

    def play(request: Request) -> Any:
        asked = request.depth or any(isinstance(m, ToolMessage) for m in request.messages)
        return say("done") if asked else subagent(**args)

    return play


def offered(request: Request) -> set[str]:
    return {t.name for t in request.tools}


async def test_s1_01_only_the_final_text_comes_back() -> None:
    """S1.1, S1.16: the parent's conversation has one result with the child's final text, and nothing else of it."""
    story = await delegate(
        call("read", path="secret.txt", said="thinking aloud"), say("raw"), say("in short")
    )
    kinds = [type(m) for m in story.outcome.messages]
    assert kinds == [UserMessage, AssistantMessage, ToolMessage, AssistantMessage]
    (result,) = story.results()
    assert result.content == "in short"
    for inner in ("secret.txt", "thinking aloud", "raw"):
        assert inner not in result.text


async def test_s1_01_the_child_sees_its_prompt_and_not_the_conversation() -> None:
    """S1.1: a child starts with its task alone, under instructions of its own."""
    story = await delegate(say("found"), say("in short"))
    first = story.requests_of(1)[0]
    assert [m.text for m in first.messages if isinstance(m, UserMessage)] == ["look around"]
    assert len(first.messages) == 1
    assert "You lead." not in first.instructions


async def test_s1_03_one_tool_for_every_task() -> None:
    """S1.3: whatever the task, the one tool is called `subagent`; it is only there where it was asked for."""
    plain = Agent("lead", tools=[read])
    story = await tell({"lead": [subagent(), say("done")]}, agent=plain)
    assert offered(story.model.requests[0]) == {"read"}
    assert "No tool is named 'subagent'" in story.results()[0].content


async def test_s1_06_depth_rises_by_one_at_each_level() -> None:
    """S1.6: the root is at depth 0, and each child one below the run that called it."""
    story = await nest(subagent(), say("found"), say("in short"))
    started = [e for e in story.events if isinstance(e, RunStarted)]
    assert [(e.depth, e.parent) for e in started] == [(0, None), (1, started[0].run), (2, started[1].run)]


async def test_s1_08_a_rejected_call_costs_nothing() -> None:
    """S1.8: checks come before any work: rejected calls start nothing and use up no delegation."""
    story = await tell(
        {
            "lead": [calls(subagent(label=""), subagent(max_turns=99)), subagent(), say("done")],
            "subagent": [say("found"), say("in short")],
        },
        limits=Limits(delegations=1),
    )
    assert [m.ok for m in story.results()] == [False, False, True]
    assert len(story.of(DelegationRejected)) == 2
    assert len(story.of(RunStarted, 1)) == 1


@pytest.mark.parametrize("turns", ["ten", 2.5, True, -1, [], 10**30])
async def test_s1_09_max_turns_is_a_whole_number(turns: object) -> None:
    """S1.9: anything but a whole number from 1 to 50 is rejected as invalid."""
    story = await tell({"lead": [subagent(max_turns=turns), say("done")]})
    assert "'max_turns' must be a whole number from 1 to 50" in story.results()[0].content


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("label", 7),
        ("task_prompt", ["look"]),
        ("summary_prompt", {}),
        ("allowed_tools", "read"),
        ("allowed_tools", [1]),
    ],
)
async def test_s1_09_fields_of_another_type_are_rejected(field: str, value: object) -> None:
    """S1.9: a field of another type is an error that the model can read, not an exception."""
    story = await tell({"lead": [subagent(**{field: value}), say("done")]})
    (result,) = story.results()
    assert result.ok is False
    assert f"'{field}'" in result.content
    assert story.of(DelegationRejected)[0].rejection.kind == "invalid_input"


async def test_s1_10_an_empty_whitelist_gives_no_tools() -> None:
    """S1.10: an empty list is a whitelist of nothing; only null means every tool."""
    story = await delegate(say("found"), say("in short"), allowed_tools=[], limits=Limits(depth=1))
    assert offered(story.requests_of(1)[0]) == set()


async def test_s1_10_delegate_tools_are_never_inherited() -> None:
    """S1.10: a child gets none of its parent's delegate tools, and cannot be given one by name."""
    lead = Agent("lead", tools=[read], subagents=[Agent("expert")], adhoc=True)
    story = await tell(
        {
            "lead": [calls(subagent(), subagent(allowed_tools=["task"])), say("done")],
            "subagent": [say("found"), say("in short")],
        },
        agent=lead,
    )
    assert "task" not in offered(story.requests_of(1)[0])
    assert [m.ok for m in story.results()] == [True, False]


async def test_s1_11_a_whitelisted_child_has_a_subagent_tool_of_its_own() -> None:
    """S1.11: a fresh `subagent` is added after the filter, while depth allows."""
    story = await delegate(say("found"), say("in short"), allowed_tools=["read"])
    assert {"subagent", "read"} <= offered(story.requests_of(1)[0])
    assert "grep" not in offered(story.requests_of(1)[0])


async def test_s1_12_access_only_narrows_going_down() -> None:
    """S1.12: a grandchild gets what its parent was left with, not what its grandparent has."""
    story = await nest(subagent(allowed_tools=None), say("found"), say("in short"))
    assert "read" in offered(story.requests_of(2)[0])
    assert "grep" not in offered(story.requests_of(2)[0])


async def test_s1_12_a_tool_that_was_filtered_out_cannot_be_handed_on() -> None:
    """S1.12: a child that lists a tool it was not given is rejected, and told what it has."""
    story = await nest(subagent(allowed_tools=["grep"]))
    assert story.of(RunStarted, 2) == []
    (rejected,) = story.of(DelegationRejected, 1)
    assert rejected.rejection.kind == "unknown_tool"
    assert "'grep'" in rejected.rejection.message


async def test_s1_13_the_model_is_shared() -> None:
    """S1.13: every level asks the one model of the parent, with the parent's settings."""
    story = await nest(subagent(), say("found"), say("in short"))
    assert {r.depth for r in story.model.requests} == {0, 1, 2}
    assert all(r.settings == {"temperature": 0} for r in story.model.requests)
    assert {e.model for e in story.events if isinstance(e, RunStarted)} == {story.model.name}


async def test_s1_14_ten_turns_unless_the_call_says_otherwise() -> None:
    """S1.14: max_turns is the call's, else 10, whatever the parent's own; the other limits are inherited."""
    limits = Limits(turns=30, call_seconds=33, result_chars=444)
    steps = [call("read", path=str(n)) for n in range(10)]
    story = await delegate(*steps, wrapped("ten looks"), limits=limits)
    assert len([e for e in story.of(TurnStarted, 1) if e.purpose == "turn"]) == 10
    inherited = story.of(RunStarted, 1)[0].limits
    assert (inherited.turns, inherited.call_seconds, inherited.result_chars) == (10, 33, 444)


async def test_s1_15_the_summary_is_asked_in_the_same_conversation() -> None:
    """S1.15: after the answer, the same conversation is asked for a summary, with the same tools and no calls."""
    story = await delegate(say("raw"), say("in short"), summary_prompt="three words")
    task, summary = story.requests_of(1)
    assert [m.text for m in summary.messages] == ["look around", "raw", "three words"]
    assert summary.tools == task.tools
    assert (task.tool_choice, summary.tool_choice) == ("auto", "none")


@pytest.mark.parametrize(
    "second",
    [fail("down", "auth"), say(""), refuse("no"), say("cut o", stop="length")],
    ids=["failed", "empty", "refused", "cut off"],
)
async def test_s1_15_without_a_summary_the_answer_itself_is_the_output(second: Any) -> None:
    """S1.15: when the summary fails, is empty, refused or cut off, the parent reads the answer itself."""
    story = await delegate(say("raw"), second)
    assert story.results()[0].content == "raw"
    assert story.details()["metadata"]["completion_status"] == "complete"


async def test_s1_17_a_result_has_five_fields() -> None:
    """S1.17: a success says success, output, error, truncated and metadata."""
    story = await delegate(say("found"), say("in short"))
    details = story.details()
    assert set(details) >= RESULT_FIELDS
    assert (details["success"], details["error"], details["truncated"]) == (True, None, False)


async def test_s1_17_a_failed_child_has_the_same_fields() -> None:
    """S1.17: so does a child that failed, with the reason as its error."""
    story = await delegate(fail("the key is wrong", "auth"))
    details = story.details()
    assert set(details) >= RESULT_FIELDS
    assert (details["success"], details["truncated"]) == (False, False)
    assert "the key is wrong" in details["error"]


@pytest.mark.parametrize(
    ("args", "limits"), [({"max_turns": 0}, None), ({}, Limits(depth=0))], ids=["invalid", "depth"]
)
async def test_s1_17_a_rejection_has_the_same_fields(args: dict[str, Any], limits: Limits | None) -> None:
    """S1.17: so does a call that started nothing, whatever rejected it."""
    story = await tell({"lead": [subagent(**args), say("done")]}, limits=limits)
    details = story.details()
    assert set(details) >= RESULT_FIELDS
    assert (details["success"], details["truncated"]) == (False, False)
    assert details["error"] == story.results()[0].content
    assert details["metadata"]["recursion_depth"] == "0"


async def test_s1_18_the_metadata_has_turns_and_tokens() -> None:
    """S1.18: label, depth, completion, turns and the tokens the provider reported, all as strings."""
    story = await delegate(say("found"), say("in short"), max_turns=4)
    assert story.details()["metadata"] == {
        "subagent_label": "survey",
        "recursion_depth": "0",
        "completion_status": "complete",
        "turns_used": "2",
        "max_turns": "4",
        "tokens_used": "30",
        "prompt_tokens": "20",
        "completion_tokens": "10",
    }


async def test_s1_18_tokens_that_nobody_reported_are_not_passed_off_as_reported() -> None:
    """S1.18: where the provider reports no usage, token numbers are left out or marked as estimated."""
    story = await delegate(Reply("found"), Reply("in short"))
    metadata = story.details()["metadata"]
    marked = any("estimate" in key for key in metadata)
    assert marked or not {"tokens_used", "prompt_tokens", "completion_tokens"} & set(metadata)


async def test_s1_21_the_output_is_cut_to_4096_bytes_with_a_mark() -> None:
    """S1.21: what the parent reads of a longer output is at most 4096 bytes, ends in a mark and is flagged."""
    story = await delegate(say("raw"), say("x" * 5000))
    details = story.details()
    assert details["truncated"] is True
    assert len(details["output"].encode()) == SUBAGENT_OUTPUT_MAX_SIZE
    assert details["output"].endswith("[truncated]")
    assert story.results()[0].content == details["output"]


async def test_s1_21_the_whole_limit_is_not_cut() -> None:
    """S1.21: exactly 4096 bytes are not too long."""
    story = await delegate(say("raw"), say("x" * SUBAGENT_OUTPUT_MAX_SIZE))
    assert story.details()["truncated"] is False
    assert story.results()[0].content == "x" * SUBAGENT_OUTPUT_MAX_SIZE


@pytest.mark.parametrize(
    ("step", "status", "words"),
    [
        (fail("the key is wrong", "auth"), Status.FAILED, "the key is wrong"),
        (refuse("I would rather not"), Status.REFUSED, "I would rather not"),
        (say(""), Status.INCOMPLETE, "its answer was empty"),
    ],
    ids=["provider", "refusal", "empty"],
)
async def test_s1_22_a_failed_execution_is_a_result(step: Any, status: Status, words: str) -> None:
    """S1.22, C2: a child that fails in execution is a failed result the parent reads, and the parent goes on."""
    story = await delegate(step)
    (result,) = story.results()
    assert result.ok is False
    assert words in result.content
    assert story.outcome.children[0].status is status
    assert story.outcome.status is Status.COMPLETED


async def test_s1_23_a_blacklist_takes_tools_away() -> None:
    """S1.23: denied_tools leaves all but the listed, and wins over allowed_tools."""
    limits = Limits(depth=1)
    denied = await delegate(say("found"), say("in short"), denied_tools=["grep"], limits=limits)
    assert offered(denied.requests_of(1)[0]) == {"read"}
    both: dict[str, Any] = {"allowed_tools": ["read", "grep"], "denied_tools": ["grep"]}
    wins = await delegate(say("found"), say("in short"), limits=limits, **both)
    assert offered(wins.requests_of(1)[0]) == {"read"}


async def test_s1_23_a_denied_subagent_is_not_handed_on() -> None:
    """S1.23: a call that denies `subagent` is obeyed or rejected; no child has the tool in spite of it."""
    story = await tell(once(denied_tools=["subagent"]))
    assert not [r for r in story.requests_of(1) if "subagent" in offered(r)]


async def test_s1_23_an_unknown_denied_tool_is_rejected() -> None:
    """S1.23: a misspelt denial would leave the tool in place, so it is rejected."""
    story = await tell({"lead": [subagent(denied_tools=["grpe"]), say("done")]})
    assert "'grpe'" in story.results()[0].content
    assert story.of(DelegationRejected)[0].rejection.kind == "unknown_tool"


@pytest.mark.parametrize("name", ["task", "read_artifact"])
async def test_s1_24_a_tool_that_cannot_be_handed_on_is_not_called_unknown(name: str) -> None:
    """S1.24: a rejection is true: a tool the model is offered is not said to be none of its tools."""
    lead = Agent("lead", tools=[read], subagents=[Agent("expert")], adhoc=True)
    story = await tell(once(allowed_tools=["read", name]), agent=lead)
    assert name in offered(story.requests_of(0)[0])
    assert "not one of your tools" not in story.results()[0].content
