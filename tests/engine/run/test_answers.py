"""What a reply amounts to: answers, and what only looks like one; wrapping up, going in circles, summaries."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from remit import (
    Agent,
    AssistantMessage,
    Call,
    Limits,
    Outcome,
    Reply,
    Status,
    ToolMessage,
    Usage,
    UsageError,
    UserMessage,
    run,
    tool,
)
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, fail, refuse, say, wait, wrapped
from remit.testing.scripted import Answer, Line
from remit.types.events import Event, LimitMet, TurnStarted


@tool(tier="observe")
async def look(at: int = 0) -> str:
    """Looks."""
    return f"seen {at}"


LOOKING = Agent("lead", tools=[look])


def results(outcome: Outcome) -> list[ToolMessage]:
    return [m for m in outcome.messages if isinstance(m, ToolMessage)]


async def events_of(store: MemoryStore, outcome: Outcome) -> list[Event]:
    return [event async for event in store.read(outcome.run_id)]


def assert_no_open_calls(outcome: Outcome) -> None:
    """Each call of the conversation has one result, so that it can be continued; each is in the log."""
    asked = [c.id for m in outcome.messages if isinstance(m, AssistantMessage) for c in m.calls]
    assert [m.call_id for m in results(outcome)] == asked
    assert len(outcome.calls) == len(asked)


# --- Replies without calls -----------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", " ", "\n\t "])
async def test_an_empty_answer_is_not_success(text: str) -> None:
    """Empty and blank answers end `incomplete` with reason `empty`, never `completed` (law 7)."""
    outcome = await run(Agent("lead"), "go", model=ScriptedModel([say(text)]))
    assert (outcome.status, outcome.reason, outcome.text) == (Status.INCOMPLETE, "empty", "")
    assert not outcome.ok


async def test_an_empty_answer_keeps_what_was_said_before() -> None:
    """What the run had said before an empty answer is its partial answer (law 6)."""
    model = ScriptedModel([call("look", said="I see a door"), say("")])
    outcome = await run(LOOKING, "go", model=model)
    assert (outcome.reason, outcome.text, outcome.partial) == ("empty", "", "I see a door")


async def test_a_parent_reads_that_a_child_was_empty() -> None:
    """A child's empty answer reaches the parent as a failed result with a placeholder, not as an empty text."""
    scripts = {"lead": [call("task", agent="w", prompt="go"), say("ok")], "w": [say("  ")]}
    with ScriptedModel(scripts) as model:
        outcome = await run(Agent("lead", subagents=[Agent("w")]), "go", model=model)
    result = results(outcome)[0]
    assert (result.content, result.ok) == ("(subagent returned no text)", False)


async def test_a_cut_off_answer_is_incomplete() -> None:
    """An answer cut off at the output limit is partial, with reason `length` (law 7)."""
    outcome = await run(Agent("lead"), "go", model=ScriptedModel([say("half a sent", stop="length")]))
    assert (outcome.status, outcome.reason) == (Status.INCOMPLETE, "length")
    assert (outcome.text, outcome.partial) == ("", "half a sent")


@pytest.mark.parametrize("words", ["I will not do that.", ""])
async def test_a_refusal_is_its_own_status(words: str) -> None:
    """A model that declines ends `refused`, with its words kept (law 7)."""
    outcome = await run(Agent("lead"), "go", model=ScriptedModel([refuse(words)]))
    assert (outcome.status, outcome.text, outcome.partial) == (Status.REFUSED, "", words)
    assert outcome.reason


async def test_a_parent_reads_a_childs_refusal() -> None:
    """A child that declines is a failed result with its words; the parent goes on (law 5)."""
    scripts = {"lead": [call("task", agent="w", prompt="go"), say("ok")], "w": [refuse("Not that.")]}
    with ScriptedModel(scripts) as model:
        outcome = await run(Agent("lead", subagents=[Agent("w")]), "go", model=model)
    assert outcome.text == "ok"
    assert not results(outcome)[0].ok
    assert "declined to answer" in results(outcome)[0].content
    assert "Not that." in results(outcome)[0].content


# --- Replies with calls that must not run --------------------------------------------------------


def ran_into(where: list[int]) -> Agent:
    @tool(tier="observe")
    async def touch(at: int = 0) -> str:
        """Leaves a mark."""
        where.append(at)
        return "touched"

    return Agent("lead", tools=[touch])


async def test_a_refusal_with_calls_runs_none_of_them() -> None:
    """A refusal ends the run: its calls are not run, and each still has a result and a log entry."""
    touched: list[int] = []
    asked = Reply(
        "No.", (Call("a", "touch"), Call("b", "touch", {"at": 1})), stop="refusal", usage=Usage(1, 1, 1)
    )
    outcome = await run(ran_into(touched), "go", model=ScriptedModel([asked]))
    assert (outcome.status, outcome.partial) == (Status.REFUSED, "No.")
    assert touched == []
    assert_no_open_calls(outcome)


async def test_a_cut_off_reply_with_calls_runs_none_of_them() -> None:
    """Calls of a reply that was cut off may be incomplete: none runs, the model is told, and the run goes on."""
    touched: list[int] = []
    asked = Reply(
        "", (Call("a", "touch"), Call("b", "touch", {"at": 1})), stop="length", usage=Usage(1, 1, 1)
    )
    model = ScriptedModel([asked, call("touch", at=7), say("done")])
    outcome = await run(ran_into(touched), "go", model=model)
    assert outcome.text == "done"
    assert touched == [7]
    assert [m.ok for m in results(outcome)] == [False, False, True]
    assert all("cut off" in m.content for m in results(outcome)[:2])
    assert_no_open_calls(outcome)


@pytest.mark.parametrize("purpose", ["wrap_up", "summary"])
async def test_calls_where_none_are_allowed_do_not_run(purpose: str) -> None:
    """A model that calls tools although it may not is answered, and no call is left open."""
    touched: list[int] = []
    worker = ran_into(touched)
    limits = Limits(turns=1)
    first = call("touch", at=1, said="first")
    if purpose == "summary":
        worker, limits, first = Agent("lead", tools=worker.tools, summary="always"), Limits(), say("first")
    disobeying = Reply("the end", (Call("x", "touch", {"at": 9}),), stop="calls", usage=Usage(1, 1, 1))
    outcome = await run(worker, "go", model=ScriptedModel([first, disobeying]), limits=limits)
    assert 9 not in touched
    assert "the end" in (outcome.text, outcome.partial)
    assert_no_open_calls(outcome)


async def test_open_calls_are_answered_when_time_runs_out() -> None:
    """Calls still running at the soft deadline are answered "not finished" before the wrap-up."""

    @tool(tier="observe")
    async def hang() -> str:
        """Never ends."""
        await asyncio.sleep(100_000)
        return "never"

    model = ScriptedModel([calls(call("hang"), call("look"), said="two things"), wrapped("one of two")])
    lead = Agent("lead", tools=[hang, look])
    outcome = await run(lead, "go", model=model, limits=Limits(seconds=100, call_seconds=None))
    assert (outcome.status, outcome.partial) == (Status.TIMED_OUT, "one of two")
    first, second = results(outcome)
    assert "Not finished" in first.content
    assert (second.content, second.ok) == ("seen 0", True)
    assert_no_open_calls(outcome)


# --- Going in circles ----------------------------------------------------------------------------


async def test_a_repeated_call_is_nudged_and_then_stopped() -> None:
    """The same call with the same result is nudged from the third time on and ends the run at the sixth."""
    asked = [call("look", at=1, said=f"try {i}") for i in range(6)]
    store = MemoryStore()
    with ScriptedModel([*asked, wrapped("I saw 1")]) as model:
        outcome = await run(LOOKING, "go", model=model, store=store)
    assert (outcome.status, outcome.reason) == (Status.INCOMPLETE, "repeating")
    assert (outcome.partial, outcome.failed_tool) == ("I saw 1", "look")
    nudged = ["same call" in m.note for m in results(outcome)]
    assert nudged == [False, False, True, True, True, False]
    assert all(m.content == "seen 1" for m in results(outcome))
    assert [e.limit for e in await events_of(store, outcome) if isinstance(e, LimitMet)] == ["repeating"]
    assert_no_open_calls(outcome)


async def test_a_nudge_that_helps() -> None:
    """A run that changes its ways after a nudge completes."""
    asked = [call("look", at=1) for _ in range(5)]
    with ScriptedModel([*asked, call("look", at=2), say("done")]) as model:
        outcome = await run(LOOKING, "go", model=model)
    assert outcome.text == "done"


async def test_a_call_whose_result_changes_is_not_a_loop() -> None:
    """Polling is fine: the same call with another result each time is progress."""
    count = Counter[str]()

    @tool(tier="observe")
    async def poll() -> str:
        """Counts."""
        count["polls"] += 1
        return f"{count['polls']} of 12"

    with ScriptedModel([*(call("poll") for _ in range(12)), say("done")]) as model:
        outcome = await run(Agent("lead", tools=[poll]), "go", model=model)
    assert outcome.text == "done"
    assert not any(m.note for m in results(outcome))


def turn(first: int, size: int) -> Answer:
    return calls(*(call("look", at=first + i) for i in range(size)), said="again")


@pytest.mark.parametrize("period", [2, 3])
async def test_an_alternating_loop_is_stopped(period: int) -> None:
    """Two or three calls in turn, again and again, are a loop too."""
    asked = [call("look", at=i % period, said="again") for i in range(40)]
    outcome = await run(LOOKING, "go", model=ScriptedModel([*asked, wrapped("seen it all")]))
    assert (outcome.reason, outcome.partial) == ("repeating", "seen it all")
    assert len(results(outcome)) <= 6 * period


@pytest.mark.parametrize("size", [2, 5, 30])
async def test_the_same_turn_again_and_again_is_stopped(size: int) -> None:
    """A loop is a loop however many calls each of its replies has: the sixth time ends it."""
    asked = [turn(0, size) for _ in range(40)]
    outcome = await run(LOOKING, "go", model=ScriptedModel([*asked, wrapped("seen it all")]))
    assert (outcome.reason, outcome.partial) == ("repeating", "seen it all")
    assert len(results(outcome)) == 6 * size


async def test_failing_calls_count_as_a_loop() -> None:
    """An unknown tool called again and again is a loop like any other."""
    asked = [call("lok", at=1, said="hm") for _ in range(40)]
    outcome = await run(LOOKING, "go", model=ScriptedModel([*asked, wrapped("no such tool")]))
    assert (outcome.reason, outcome.partial) == ("repeating", "no such tool")


# --- Wrapping up ---------------------------------------------------------------------------------


async def test_the_turn_limit_asks_once_for_what_there_is() -> None:
    """At its turn limit a run gets one wrap-up turn: the same tools in the request, none may be called."""
    store = MemoryStore()
    with ScriptedModel([call("look", at=1), call("look", at=2), wrapped("saw 1 and 2")]) as model:
        outcome = await run(LOOKING, "go", model=model, limits=Limits(turns=2), store=store)
    assert (outcome.status, outcome.reason) == (Status.INCOMPLETE, "turns")
    assert (outcome.text, outcome.partial) == ("", "saw 1 and 2")
    assert [r.tool_choice for r in model.requests] == ["auto", "auto", "none"]
    assert [[t.name for t in r.tools] for r in model.requests] == [["look"]] * 3
    assert "limit of 2 turns" in model.requests[-1].messages[-1].text
    purposes = [e.purpose for e in await events_of(store, outcome) if isinstance(e, TurnStarted)]
    assert purposes == ["turn", "turn", "wrap_up"]
    assert outcome.turns == 3


async def test_an_answer_on_the_last_turn_is_complete() -> None:
    """A run that answers within its turns is complete, also on the last of them."""
    with ScriptedModel([call("look"), say("done")]) as model:
        outcome = await run(LOOKING, "go", model=model, limits=Limits(turns=2))
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "done")


@pytest.mark.parametrize(
    ("last", "status"),
    [
        (say(""), Status.INCOMPLETE),
        (refuse(""), Status.INCOMPLETE),
        (fail("down", "auth"), Status.INCOMPLETE),
        (fail("busy", "overloaded"), Status.INCOMPLETE),
        (wait(100_000, say("never")), Status.TIMED_OUT),
    ],
)
async def test_a_failed_wrap_up_keeps_the_last_text(last: Line, status: Status) -> None:
    """When the wrap-up gives nothing, the last text is what is left (law 6)."""
    model = ScriptedModel(lambda r: last if r.tool_choice == "none" else call("look", said="so far"))
    outcome = await run(LOOKING, "go", model=model, limits=Limits(turns=1))
    assert (outcome.status, outcome.partial) == (status, "so far")


async def test_over_budget_before_the_first_reply() -> None:
    """A run that may send nothing is over budget, with the numbers, and has no wrap-up (law 1)."""
    model = ScriptedModel([say("never")])
    outcome = await run(Agent("lead"), "go", model=model, limits=Limits(requests=0))
    assert outcome.status is Status.OVER_BUDGET
    assert "request limit" in outcome.reason
    assert "0 of 0" in outcome.reason
    assert model.calls_made == 0


async def test_over_budget_keeps_what_there_was() -> None:
    """A run that cannot pay its next turn ends `over_budget` with its last text and its log (law 6)."""
    model = ScriptedModel([call("look", at=1, said="first"), call("look", at=2, said="second")])
    outcome = await run(LOOKING, "go", model=model, limits=Limits(requests=2))
    assert (outcome.status, outcome.text, outcome.partial) == (Status.OVER_BUDGET, "", "second")
    assert [c.success for c in outcome.calls] == [True, True]
    assert "2 of 2" in outcome.reason


async def test_no_calls_left_is_a_result() -> None:
    """Past the `calls` limit a call is not run and the model is told; it may still answer (law 1)."""
    with ScriptedModel([turn(0, 3), say("two of three")]) as model:
        outcome = await run(LOOKING, "go", model=model, limits=Limits(calls=2))
    assert [m.ok for m in results(outcome)] == [True, True, False]
    assert "2 of 2" in results(outcome)[2].content
    assert outcome.text == "two of three"


# --- Structured answers --------------------------------------------------------------------------


class Finding(BaseModel):
    """A finding."""

    place: str
    lines: list[int]


@dataclass
class Point:
    """A point."""

    x: int
    y: int


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}


async def test_a_structured_answer_is_parsed() -> None:
    """An answer that fits its type is in `output`, as the type, and the model is told the schema."""
    with ScriptedModel([say('{"place": "a.py", "lines": [1, 2]}')]) as model:
        outcome = await run(Agent("lead", output=Finding), "go", model=model)
    assert outcome.output == Finding(place="a.py", lines=[1, 2])
    assert outcome.text == '{"place": "a.py", "lines": [1, 2]}'
    schema = model.requests[0].output_schema
    assert schema is not None
    assert schema["required"] == ["place", "lines"]


@pytest.mark.parametrize(
    ("output", "text", "value"),
    [
        (SCHEMA, '{"x": 1}', {"x": 1}),
        (SCHEMA, '```json\n{"x": 1}\n```', {"x": 1}),
        (SCHEMA, 'Here it is:\n\n```json\n{"x": 1}\n```\n\nHope this helps.', {"x": 1}),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (list[int], "[1, 2, 3]", [1, 2, 3]),
        (int, " 7 ", 7),
        (str, "plain words", "plain words"),
    ],
)
async def test_every_form_of_a_structured_answer(output: object, text: str, value: object) -> None:
    """Types and schemas, bare JSON and fenced blocks: each is read."""
    with ScriptedModel([say(text)]) as model:
        outcome = await run(Agent("lead", output=output), "go", model=model)
    assert outcome.status is Status.COMPLETED
    assert outcome.output == value


async def test_a_wrong_structured_answer_is_asked_for_again() -> None:
    """The model is told what is wrong, field by field, and may answer again."""
    wrong = '{"place": 3, "lines": [1]}'
    with ScriptedModel([say(wrong), say('{"place": "a", "lines": []}')]) as model:
        outcome = await run(Agent("lead", output=Finding), "go", model=model)
    assert outcome.output == Finding(place="a", lines=[])
    told = model.requests[1].messages[-1].text
    assert "place: must be a string" in told
    assert "pydantic" not in told
    assert "Finding" not in told


@pytest.mark.parametrize("text", ["no json here", '{"x": "one"}', "{}", "```json\n{oops}\n```", "null"])
async def test_asking_again_is_bounded(text: str) -> None:
    """After three answers that do not fit the run has failed, and the last one is kept (laws 1 and 6)."""
    model = ScriptedModel([say(text)] * 9)
    outcome = await run(Agent("lead", output=SCHEMA), "go", model=model)
    assert (outcome.status, outcome.output) == (Status.FAILED, None)
    assert model.calls_made == 3
    assert outcome.partial == text
    assert "3 answers failed validation" in outcome.reason
    asked = [m.text for m in outcome.messages if isinstance(m, UserMessage)]
    assert len(asked) == 3, "it is asked again twice, not after the last try"


async def test_a_childs_structured_answer_is_text_to_its_parent() -> None:
    """A parent reads a structured answer as JSON text; the value is in the child's outcome."""
    scripts = {"lead": [call("task", agent="w", prompt="go"), say("ok")], "w": [say('{"x": 1}')]}
    with ScriptedModel(scripts) as model:
        outcome = await run(Agent("lead", subagents=[Agent("w", output=SCHEMA)]), "go", model=model)
    assert results(outcome)[0].content == '{"x": 1}'
    assert outcome.children[0].output == {"x": 1}
    assert outcome.output is None


@pytest.mark.parametrize("output", ["Finding", {"type": "nonsense"}, 3, lambda: None])
def test_an_output_that_is_no_type(output: object) -> None:
    """An `output` that is neither a type nor a schema is an error when the Agent is built."""
    with pytest.raises(UsageError, match="output"):
        Agent("lead", output=output)


# --- Summaries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("summary", "answer", "asked"),
    [
        ("never", "x" * 500, False),
        ("auto", "x" * 100, False),
        ("auto", "x" * 101, True),
        ("always", "short", True),
    ],
)
async def test_when_a_summary_is_asked_for(summary: str, answer: str, asked: bool) -> None:
    """`never`, `auto` (over `result_chars`) and `always`; the answer itself is kept as an artifact."""
    child = Agent("w", summary=summary, tools=[look])  # pyright: ignore[reportArgumentType]
    script = [say(answer), wrapped("in short")] if asked else [say(answer)]
    scripts = {"lead": [call("task", agent="w", prompt="go"), say("ok")], "w": script}
    with ScriptedModel(scripts) as model:
        limits = Limits(result_chars=100)
        outcome = await run(Agent("lead", subagents=[child]), "go", model=model, limits=limits)
    done = outcome.children[0]
    assert done.text == ("in short" if asked else answer)
    assert ("answer" in [a.name for a in done.artifacts]) == asked
    mine = [r for r in model.requests if r.agent == "w"]
    assert [r.tool_choice for r in mine] == (["auto", "none"] if asked else ["auto"])
    assert mine[-1].tools == mine[0].tools


@pytest.mark.parametrize("last", [say(""), fail("down", "auth"), refuse("no"), say("cut of", stop="length")])
async def test_a_failed_summary_leaves_the_answer(last: Line) -> None:
    """The answer is used when its summary fails: the run did complete."""
    model = ScriptedModel([say("the answer"), last])
    outcome = await run(Agent("lead", summary="always"), "go", model=model)
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "the answer")


async def test_a_summary_is_not_a_turn() -> None:
    """The summary is not counted against the turn limit."""
    with ScriptedModel([say("the answer"), wrapped("in short")]) as model:
        outcome = await run(Agent("lead", summary="always"), "go", model=model, limits=Limits(turns=1))
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "in short")


async def test_a_summary_out_of_budget_leaves_the_answer() -> None:
    """A summary that cannot be paid is left out, and the answer stands."""
    model = ScriptedModel([say("the answer")])
    outcome = await run(Agent("lead", summary="always"), "go", model=model, limits=Limits(requests=1))
    assert (outcome.status, outcome.text) == (Status.COMPLETED, "the answer")


async def test_the_summary_prompt_of_an_ad_hoc_child() -> None:
    """`summary_prompt` is what the child is asked at the end; its own answer stays readable."""
    asked = call("subagent", label="part", task_prompt="dig", summary_prompt="Name the colour only.")
    scripts = {"lead": [asked, say("ok")], "subagent": [say("It is, I think, red."), wrapped("red")]}
    with ScriptedModel(scripts) as model:
        outcome = await run(Agent("lead", adhoc=True), "go", model=model)
    last = [r for r in model.requests if r.agent == "subagent"][-1]
    assert last.messages[-1].text == "Name the colour only."
    assert results(outcome)[0].content == "red"
    assert "read_artifact" in results(outcome)[0].note
