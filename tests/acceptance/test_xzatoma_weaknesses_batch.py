"""Seed 1, XZatoma's `subagent`: its weaknesses W1.10 to W1.15, as tests that they cannot happen here.

A batch is several `subagent` calls in one turn: there is no second tool for it, so `fail_fast` (W1.10) has
nothing to apply to. Not here because the part does not exist: W1.11 (switches and keywords of a chat; that the
tool is absent unless asked for is in S1.3) and the database of W1.12 (that nested and failed conversations are
recorded from their first event on is here).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest

from remit import (
    Agent,
    ApprovalRequest,
    AssistantMessage,
    Event,
    Limits,
    Outcome,
    Request,
    Running,
    Status,
    ToolContext,
    ToolMessage,
    UsageError,
    allow,
    deny,
    start,
    tool,
)
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, crash, fail, say, wait
from remit.types.events import (
    CallEnded,
    CallStarted,
    DelegationRejected,
    ReplyReceived,
    RunEnded,
    RunStarted,
    TurnStarted,
)

E = TypeVar("E", bound=Event)


@tool(tier="observe")
async def read(path: str) -> str:
    """Reads a file."""
    return f"the text of {path}"


LEAD = Agent("lead", tools=[read], adhoc=True)


@dataclass
class Story:
    """What a finished tree left behind."""

    outcome: Outcome
    events: list[Event]
    model: ScriptedModel

    def of(self, kind: type[E], depth: int = 0) -> list[E]:
        return [e for e in self.events if isinstance(e, kind) and e.depth == depth]

    def details(self) -> list[dict[str, Any]]:
        found = [e.details for e in self.of(CallEnded) if e.tool == "subagent"]
        return [d for d in found if isinstance(d, dict)]

    def results(self) -> list[ToolMessage]:
        """What the lead's model read."""
        return [m for m in self.outcome.messages if isinstance(m, ToolMessage)]


def subagent(task: str, **args: object) -> Any:
    return call("subagent", {"label": f"do {task}", "task_prompt": task, **args})


def by_task(scripts: dict[str, list[Any]]) -> Any:
    """A script for children: each plays the steps of its task, the last one for as long as it is asked."""

    def play(request: Request) -> Any:
        steps = scripts[request.messages[0].text]
        said = sum(isinstance(m, AssistantMessage) for m in request.messages)
        return steps[min(said, len(steps) - 1)]

    return play


def batch_model(scripts: dict[str, list[Any]], *asked: Any) -> ScriptedModel:
    return ScriptedModel({"lead": [calls(*asked), say("done")], "subagent": by_task(scripts)})


async def batch(scripts: dict[str, list[Any]], *asked: Any, limits: Limits | None = None) -> Story:
    """The lead makes all these calls in one turn; children play the script of their task."""
    model = batch_model(scripts, *asked)
    async with start(LEAD, "go", model=model, limits=limits) as running:
        outcome = await running.outcome()
        return Story(outcome, [e async for e in running.events()], model)


async def until(running: Running, wanted: Callable[[Event], bool]) -> AsyncIterator[Event]:
    """The events up to the first wanted one, as they happen."""
    async for event in running.events():
        yield event
        if wanted(event):
            return


async def test_w1_10_max_turns_holds_in_a_batch() -> None:
    """W1.10: each call of a batch has its own turn limit, and is held to it."""
    looks = [call("read", path=str(n)) for n in range(9)]
    asked = (subagent("a", max_turns=1), subagent("b", max_turns=3))
    story = await batch({"a": looks, "b": looks}, *asked)
    assert [e.limits.turns for e in story.of(RunStarted, 1)] == [1, 3]
    turns = {d["metadata"]["subagent_label"]: d["metadata"]["max_turns_reached"] for d in story.details()}
    assert turns == {"do a": "true", "do b": "true"}
    ran = [sum(c.success for c in child.calls) for child in story.outcome.children]
    assert sorted(ran) == [1, 3]


async def test_w1_10_every_output_of_a_batch_is_cut() -> None:
    """W1.10: the size limit holds for each output of a batch."""
    story = await batch({"a": [say("x" * 9000)], "b": [say("short")]}, subagent("a"), subagent("b"))
    long, short = story.results()
    assert len(long.content.encode()) == 4096
    assert short.content == "short"


async def test_w1_10_each_call_of_a_batch_is_a_delegation() -> None:
    """W1.10: a batch of three is three delegations, not one."""
    story = await batch({"a": [say("found")]}, *[subagent("a")] * 3, limits=Limits(delegations=2))
    assert len(story.of(RunStarted, 1)) == 2
    (rejected,) = story.of(DelegationRejected)
    assert (rejected.rejection.kind, rejected.rejection.limit) == ("budget", 2)


def test_w1_10_a_concurrency_of_zero_is_an_error() -> None:
    """W1.10: with concurrency 0 no run could ever work, so it is an error at once instead of a hang."""
    with pytest.raises(UsageError, match="concurrency"):
        Limits(concurrency=0)


async def test_w1_10_a_batch_finishes_with_one_place() -> None:
    """W1.10: with a single place to work a nested batch still finishes, one run at a time."""
    below = calls(subagent("leaf"), subagent("leaf"))
    story = await batch(
        {"a": [below, say("found", delay=1)], "leaf": [say("leaf", delay=1)]},
        *[subagent("a")] * 3,
        limits=Limits(concurrency=1),
    )
    assert [m.ok for m in story.results()] == [True, True, True]
    assert len(story.of(RunStarted, 2)) == 6
    assert story.model.peak == 1


async def test_w1_10_one_failure_takes_nothing_from_the_others() -> None:
    """W1.10: each call has its own result at its own place, whatever became of those before it."""
    story = await batch(
        {"bad": [fail("down", "auth")], "bug": [crash("oops")], "good": [say("found", delay=5)]},
        subagent("bad"),
        subagent("good"),
        subagent("bug"),
        subagent("good"),
    )
    assert [m.ok for m in story.results()] == [False, True, False, True]
    failed, _, crashed, _ = story.results()
    assert "'do bad'" in failed.content
    assert "'do bug'" in crashed.content
    assert "oops" in crashed.content
    assert len(story.outcome.children) == 4
    assert story.outcome.status is Status.COMPLETED


async def test_w1_10_nothing_of_a_batch_outlives_its_parent() -> None:
    """W1.10: when the parent is cancelled every child of the batch has stopped, and says why."""
    model = batch_model({"a": [wait(10**6)]}, *[subagent("a")] * 3)
    async with start(LEAD, "go", model=model) as running:
        working = [e async for e in until(running, lambda _: model.in_flight == 3)]
        assert not [e for e in working if isinstance(e, RunEnded)]
        await running.cancel("enough")
        assert model.in_flight == 0
        outcome = await running.outcome()
    assert outcome.status is Status.CANCELLED
    assert [c.status for c in outcome.children] == [Status.CANCELLED] * 3
    assert all("enough" in c.reason for c in outcome.children)


@pytest.mark.parametrize("name", ["teleport", "subagent"])
async def test_w1_10_a_bad_whitelist_is_rejected_in_a_batch_too(name: str) -> None:
    """W1.10: an unknown tool is not skipped and `subagent` not smuggled in; the other calls go on."""
    story = await batch({"a": [say("found")]}, subagent("a", allowed_tools=["read", name]), subagent("a"))
    assert [m.ok for m in story.results()] == [False, True]
    assert f"'{name}'" in story.results()[0].content


@pytest.mark.parametrize(
    ("end", "status"), [(say("found"), Status.COMPLETED), (fail("down", "auth"), Status.FAILED)]
)
async def test_w1_12_nested_conversations_are_recorded(end: Any, status: Status) -> None:
    """W1.12: the store has a nested conversation from its start to its end, whether or not it failed."""
    store = MemoryStore()
    scripts = {"a": [subagent("leaf"), say("found")], "leaf": [call("read", path="x"), end]}
    async with start(LEAD, "go", model=batch_model(scripts, subagent("a")), store=store) as running:
        outcome = await running.outcome()
    leaf = [e async for e in store.read(outcome.run_id) if e.depth == 2]
    assert isinstance(leaf[0], RunStarted)
    assert isinstance(leaf[-1], RunEnded)
    assert leaf[0].task.text == "leaf"
    assert [e.reply.calls[0].name for e in leaf if isinstance(e, ReplyReceived) and e.reply.calls] == ["read"]
    assert [e.content for e in leaf if isinstance(e, CallEnded)] == ["the text of x"]
    assert leaf[-1].outcome.status is status


async def test_w1_12_a_record_is_written_while_it_happens() -> None:
    """W1.12: while a nested run works, the store already has what it did, so a crash would not lose it."""
    store, seen = MemoryStore(), list[str]()

    @tool(tier="observe")
    async def look(ctx: ToolContext) -> str:
        """Looks at the store in the middle of a run."""
        seen.extend([e.kind async for e in store.read("r1") if e.run == ctx.run_id])
        return "looked"

    agent = Agent("lead", tools=[look], adhoc=True)
    scripts = {"a": [subagent("leaf"), say("found")], "leaf": [call("look"), say("found")]}
    async with start(agent, "go", model=batch_model(scripts, subagent("a")), store=store) as running:
        await running.outcome()
    assert seen == ["run_started", "turn_started", "reply_received", "call_started"]


async def test_w1_13_calls_of_one_turn_run_at_the_same_time() -> None:
    """W1.13: five calls in one turn are five children at once, and their results are in call order."""
    scripts = {str(n): [say(f"found {n}", delay=10 - n)] for n in range(5)}
    story = await batch(scripts, *(subagent(str(n)) for n in range(5)))
    assert story.model.peak == 5
    assert [m.content for m in story.results()] == [f"found {n}" for n in range(5)]


async def test_w1_13_one_child_can_be_watched_and_cancelled() -> None:
    """W1.13: a child's events come while it works; it alone can be cancelled, and its parent reads what it had."""
    scripts = {"a": [call("read", path="x", said="x is fine"), wait(10**6)], "b": [say("found", delay=60)]}
    async with start(LEAD, "go", model=batch_model(scripts, subagent("a"), subagent("b"))) as running:
        events = [e async for e in until(running, lambda e: isinstance(e, CallEnded))]
        assert not [e for e in events if isinstance(e, RunEnded)]
        assert await running.cancel("seen enough", run=events[-1].run)
        outcome = await running.outcome()
    cancelled, completed = (m for m in outcome.messages if isinstance(m, ToolMessage))
    assert (cancelled.ok, completed.ok) == (False, True)
    assert "seen enough" in cancelled.content
    assert "x is fine" in cancelled.content
    assert outcome.status is Status.COMPLETED


def is_summary(event: Event) -> bool:
    return isinstance(event, TurnStarted) and event.purpose == "summary"


async def test_w1_13_a_child_cancelled_in_its_summary_has_its_answer() -> None:
    """W1.13: cancelled while it sums up, a child is cancelled, and its parent reads the answer it had."""
    model = batch_model({"a": [say("the answer"), wait(10**6)]}, subagent("a"))
    async with start(LEAD, "go", model=model) as running:
        events = [e async for e in until(running, is_summary)]
        await running.cancel("enough", run=events[-1].run)
        outcome = await running.outcome()
    (child,) = outcome.children
    assert (child.status, child.partial) == (Status.CANCELLED, "the answer")
    assert outcome.status is Status.COMPLETED
    assert "the answer" in next(m for m in outcome.messages if isinstance(m, ToolMessage)).content


async def test_w1_13_a_reader_may_stop_reading() -> None:
    """W1.13: who stops reading events leaves nothing behind that lives on."""
    async with start(LEAD, "go", model=batch_model({"a": [say("found")]}, subagent("a"))) as running:
        await running.outcome()
        async for event in running.events():
            assert isinstance(event, RunStarted)
            break


async def test_w1_13_progress_is_there_for_a_screen() -> None:
    """W1.13: each call of a child is told when it starts and when it ends, with the turns it may take."""
    scripts = {"a": [call("read", path="x"), say("found")]}
    async with start(LEAD, "go", model=batch_model(scripts, subagent("a", max_turns=4))) as running:
        steps = [step async for step in running.progress()]
    assert [(s.tool_name, s.completed, s.max_turns) for s in steps] == [("read", False, 4), ("read", True, 4)]


def dangerous() -> tuple[Agent, list[str]]:
    """A lead with a tool that changes things, and the list of what it did."""
    ran: list[str] = []

    @tool
    async def terminal(command: str, confirm: bool = False) -> str:
        """Runs a command."""
        ran.append(command)
        return "ran"

    return Agent("lead", tools=[terminal], adhoc=True), ran


RISKY = {"a": [call("terminal", command="rm -r x", confirm=True), say("found")]}


async def test_w1_14_a_model_cannot_confirm_for_itself() -> None:
    """W1.14: whatever the model writes in the arguments, the command does not run without an approver."""
    agent, ran = dangerous()
    async with start(agent, "go", model=batch_model(RISKY, subagent("a"))) as running:
        outcome = await running.outcome()
        events = [e async for e in running.events()]
    (denied,) = [e for e in events if isinstance(e, CallEnded) and e.tool == "terminal"]
    assert denied.success is False
    assert "Denied" in denied.content
    assert not [e for e in events if isinstance(e, CallStarted) and e.tool == "terminal"]
    assert ran == []
    assert outcome.status is Status.COMPLETED


@pytest.mark.parametrize("yes", [True, False])
async def test_w1_14_a_person_decides_for_a_child(yes: bool) -> None:
    """W1.14: a child's command is put to a person, who sees who asks and for what, and whose word holds."""
    agent, ran = dangerous()
    asked: list[ApprovalRequest] = []

    async def approver(request: ApprovalRequest) -> Any:
        asked.append(request)
        return allow() if yes else deny("not that one")

    model = batch_model(RISKY, subagent("a"))
    async with start(agent, "go", model=model, approver=approver) as running:
        outcome = await running.outcome()
    (request,) = asked
    assert (request.path, request.task, request.tool) == (("lead", "subagent"), "a", "terminal")
    assert request.args["command"] == "rm -r x"
    assert ran == (["rm -r x"] if yes else [])
    (child,) = outcome.children
    assert [c.success for c in child.calls] == [yes]


async def test_w1_15_depth_is_told_the_same_everywhere() -> None:
    """W1.15: events, requests and outcomes have the child's own depth; the metadata has its caller's, one less."""
    story = await batch({"a": [subagent("leaf"), say("found")], "leaf": [say("found")]}, subagent("a"))
    (child,) = story.outcome.children
    (leaf,) = child.children
    for run, depth in ((child, 1), (leaf, 2)):
        assert run.depth == depth
        assert {e.depth for e in story.events if e.run == run.run_id} == {depth}
        assert {r.depth for r in story.model.requests if r.run_id == run.run_id} == {depth}
        (ended,) = [e for e in story.of(CallEnded, depth - 1) if e.tool == "subagent"]
        assert isinstance(ended.details, dict)
        assert ended.details["metadata"]["recursion_depth"] == str(depth - 1)


async def test_w1_15_one_label_twice_is_two_runs() -> None:
    """W1.15: labels need not differ: each result names its run, and each run its call."""
    story = await batch({"a": [say("found")]}, subagent("a"), subagent("a"))
    started = story.of(RunStarted, 1)
    assert [e.label for e in started] == ["do a", "do a"]
    assert len({e.run for e in started}) == len({e.call for e in started}) == 2
    runs = {e.call: e.run for e in started}
    assert all(f"run {runs[m.call_id]} " in m.note for m in story.results())


async def test_w1_15_numbers_are_numbers_in_the_outcome() -> None:
    """W1.15: the string map is the seed's view; the outcome in the child's last event has the same as numbers."""
    story = await batch({"a": [say("found")]}, subagent("a"))
    (ended,) = story.of(RunEnded, 1)
    metadata = story.details()[0]["metadata"]
    assert all(isinstance(v, str) for v in metadata.values())
    told = (int(metadata["turns_used"]), int(metadata["tokens_used"]))
    assert told == (ended.outcome.turns, ended.outcome.usage.tokens) == (2, 30)
