"""`fold`: single events, time, open intents, and missing events."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from remit import Agent, Limits, Usage, allow, resume, run, start, tool
from remit.history.fold import fold, going_on
from remit.history.records import Grant, Intent, Spending, elapsed
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, say
from remit.tools.policy import ApprovalRequest, Decision
from remit.types.events import (
    VERSION,
    ApprovalAnswered,
    ApprovalRequested,
    ArtifactSaved,
    CallEnded,
    CallStarted,
    CancelRequested,
    DeltaReceived,
    Event,
    EventsMissed,
    MessageJoined,
    ModelCallFailed,
    Overran,
    ReplyReceived,
    ResultCut,
    RunEnded,
    RunResumed,
    RunStarted,
    TurnStarted,
    Warned,
    Where,
)
from remit.types.messages import Call, Reply, ToolMessage, user
from remit.types.outcome import Artifact, Outcome, Status


class Book:
    """Writes a journal by hand: one second between events, unless `at` is given."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now = 0.0

    def __call__(self, kind: type[Event], run: str = "r1", **fields: Any) -> Book:
        self.now = fields.pop("at", self.now + 1)
        names = ["lead", "mid", "leaf"][: run.count(".") + 1]
        parent = run.rpartition(".")[0] or None
        where = Where(run, parent, "r1", run.count("."), tuple(names), names[-1])
        self.events.append(kind(len(self.events) + 1, self.now, where, VERSION, **fields))
        return self


def begun() -> Book:
    return Book()(RunStarted, task=user("go"), model="m", limits=Limits(seconds=100))


def asked(*calls: Call) -> Book:
    """A run whose model requested these calls in its first turn."""
    reply = Reply("so", calls, stop="calls")
    return begun()(TurnStarted, turn=1)(ReplyReceived, turn=1, reply=reply, usage=Usage(1, 10, 5))


def ended(status: Status = Status.COMPLETED, run: str = "r1") -> dict[str, Any]:
    return {"run": run, "outcome": Outcome(status=status, agent="lead", run_id=run)}


def test_no_events_fold_to_an_empty_tree() -> None:
    """Without events, a tree has no root and no status, and its methods raise nothing."""
    tree = fold([])
    assert (tree.root, tree.runs, tree.status, list(tree.intents())) == ("", {}, None, [])
    assert (tree.spending(), tree.outcomes(), tree.usage()) == ({}, {}, Usage())


def test_a_run_without_an_end_is_interrupted() -> None:
    """Without an end, the outcome is `interrupted`, with the partial answer."""
    book = begun()(TurnStarted, turn=1)(
        ReplyReceived, turn=1, reply=Reply("half an answer"), usage=Usage(1, 10, 5)
    )
    outcome = fold(book.events).outcome()
    assert (outcome.status, outcome.partial, outcome.turns) == ("interrupted", "half an answer", 1)
    assert outcome.usage == Usage(1, 10, 5)
    assert [m.text for m in outcome.messages] == ["go", "half an answer"]


def test_open_intents_have_no_recorded_end() -> None:
    """A run without an end, a model call without a reply and a started call without a result are open intents, nothing else."""
    book = begun()
    assert list(fold(book.events).intents()) == [Intent("run", "r1", "lead")]
    book(TurnStarted, turn=1)
    assert list(fold(book.events).intents()) == [Intent("run", "r1", "lead"), Intent("model", "r1", "m")]
    two = (Call("c1", "look", {}), Call("c2", "look", {}))
    book(ReplyReceived, turn=1, reply=Reply("", two, stop="calls"), usage=Usage(1, 1, 1))
    assert list(fold(book.events).intents()) == [Intent("run", "r1", "lead")]
    book(CallStarted, call="c2", tool="look")
    assert list(fold(book.events).intents())[1:] == [Intent("call", "r1", "look", "c2")]
    book(CallEnded, call="c2", tool="look", success=True, content="x")
    assert list(fold(book.events).intents()) == [Intent("run", "r1", "lead")]
    book(RunEnded, **ended())
    assert list(fold(book.events).intents()) == []


@pytest.mark.parametrize("retry", [None, 3.0])
def test_a_failed_model_call_has_ended_and_is_paid_for(retry: float | None) -> None:
    """A failed attempt leaves no open intent, and its usage counts."""
    failed = {"error": "no", "error_kind": "server", "usage": Usage(1, 7, 0), "retry_in_s": retry}
    tree = fold(begun()(TurnStarted, turn=1)(ModelCallFailed, turn=1, attempt=1, **failed).events)
    assert [i.kind for i in tree.intents()] == ["run"]
    assert tree.spending()["r1"] == Spending(requests=1, tokens=7)


def test_the_results_of_a_turn_join_together_in_call_order() -> None:
    """The conversation gets the results of a turn when all have arrived, in the order of the calls."""
    book = asked(Call("c1", "a", {}), Call("c2", "b", {}))
    book(CallEnded, call="c2", tool="b", success=True, content="two")
    assert len(fold(book.events).runs["r1"].talk.messages) == 2
    book(CallEnded, call="c1", tool="a", success=False, content="one")
    messages = fold(book.events).runs["r1"].talk.messages
    assert [(m.call_id, m.content, m.ok) for m in messages if isinstance(m, ToolMessage)] == [
        ("c1", "one", False),
        ("c2", "two", True),
    ]


def test_a_second_result_for_one_call_changes_nothing() -> None:
    """The first result counts."""
    book = asked(Call("c1", "a", {}))
    book(CallEnded, call="c1", tool="a", success=True, content="one")
    book(CallEnded, call="c1", tool="a", success=True, content="two")
    assert [m.text for m in fold(book.events).outcome().messages] == ["go", "so", "one"]


def test_the_same_call_id_in_a_later_turn_is_another_call() -> None:
    """Ids must be unique only within a turn: models may reuse them in later turns."""
    book = asked(Call("c1", "a", {}))(CallEnded, call="c1", tool="a", success=True, content="one")
    reply = Reply("more", (Call("c1", "a", {}),), stop="calls")
    book(TurnStarted, turn=2)(ReplyReceived, turn=2, reply=reply, usage=Usage(1, 1, 1))
    book(CallStarted, call="c1", tool="a")
    tree = fold(book.events)
    assert [i.call for i in tree.intents() if i.kind == "call"] == ["c1"]
    assert [c.ended is not None for c in tree.runs["r1"].calls] == [True, False]


def test_a_cut_result_is_shorter_in_the_conversation() -> None:
    """`result_cut` replaces the text that the model reads; the call keeps its whole result."""
    book = asked(Call("c1", "a", {}))(CallEnded, call="c1", tool="a", success=True, content="all", note="n")
    book(ResultCut, call="c1", content="a[cut]")
    record = fold(book.events).runs["r1"]
    assert record.talk.messages[-1] == ToolMessage("c1", "a", "a[cut]", ok=True)
    assert record.calls[0].message == ToolMessage("c1", "a", "all", ok=True, note="n")


def test_live_only_events_and_events_of_unknown_runs_are_ignored() -> None:
    """Deltas are not history, and events of a run without a start event are ignored."""
    book = begun()
    before = fold(book.events)
    book(DeltaReceived, turn=1, text="x")(EventsMissed, missed=3)
    assert fold(book.events) == before
    book(Warned, run="r1.7", text="who")(RunEnded, **ended(run="r1.7"))
    tree = fold(book.events)
    assert (list(tree.runs), tree.runs["r1"].warnings, tree.seq) == (["r1"], [], 5)


def test_children_are_found_by_their_parents_call() -> None:
    """A child is listed under its parent and in the call that started it; totals include it."""
    book = asked(Call("c1", "task", {}))(CallStarted, call="c1", tool="task", delegates=True)
    book(RunStarted, run="r1.1", task=user("part"), call="c1")
    book(TurnStarted, run="r1.1", turn=1)
    book(ReplyReceived, run="r1.1", turn=1, reply=Reply("ok"), usage=Usage(1, 3, 4))
    tree = fold(book.events)
    assert (tree.runs["r1"].children, tree.runs["r1"].calls[0].child) == (["r1.1"], "r1.1")
    assert tree.spending() == {
        "r1": Spending(2, 22, 0, calls=1, delegations=1),
        "r1.1": Spending(1, 7),
    }
    assert (tree.usage("r1.1"), tree.usage()) == (Usage(1, 3, 4), Usage(2, 13, 9))
    assert [i.run for i in tree.intents()] == ["r1", "r1", "r1.1"]


def test_time_does_not_count_while_a_person_is_asked() -> None:
    """Waiting for a person pauses the clocks of the asking run and its ancestors, not of its siblings; overlapping waits count once."""
    book = asked(Call("c1", "task", {}), Call("c2", "task", {}))
    book(RunStarted, run="r1.1", task=user("a"), call="c1", at=10.0)
    book(RunStarted, run="r1.2", task=user("b"), call="c2", at=10.0)
    for n, at in (("1", 20.0), ("2", 30.0)):
        book(ApprovalRequested, run="r1.1", request=f"r1/approval{n}", call=f"x{n}", tool="t", at=at)
    book(ApprovalAnswered, run="r1.1", request="r1/approval1", call="x1", allowed=True, at=50.0)
    tree = fold(book.events)
    assert [elapsed(r, 50.0) for r in tree.runs.values()] == [19.0, 10.0, 40.0]
    book(ApprovalAnswered, run="r1.1", request="r1/approval2", call="x2", allowed=True, at=60.0)
    book(RunEnded, **ended(run="r1.1"), at=65.0)(RunEnded, **ended(), at=70.0)
    tree = fold(book.events)
    assert [r.clock.worked_s for r in tree.runs.values()] == [29.0, 15.0, 0.0]
    assert elapsed(tree.runs["r1.2"], 70.0) == 60.0


def test_time_without_a_process_does_not_count() -> None:
    """No clock runs between a process's last event and the resume, even if the process died while it asked a person."""
    book = begun()(Warned, text="x", at=11.0)
    book(RunResumed, limits=Limits(seconds=100), at=1000.0)(Warned, text="y", at=1010.0)
    assert elapsed(fold(book.events).runs["r1"], 1010.0) == 20.0
    book(ApprovalRequested, request="r1/approval1", call="c", tool="t", at=1015.0)
    book(RunResumed, limits=Limits(seconds=100), at=5000.0)(Warned, text="z", at=5005.0)
    record = fold(book.events).runs["r1"]
    assert (elapsed(record, 5005.0), record.clock.waits) == (30.0, 0)


def test_waiting_approvals_and_grants() -> None:
    """A request waits until it is answered; `stopped` is no answer; grants are kept with their tool."""
    book = asked(Call("c1", "change", {}))
    book(ApprovalRequested, request="r1/approval1", call="c1", tool="change")
    tree = fold(book.events)
    assert (list(tree.requests), tree.asked) == (["r1/approval1"], 1)
    book(ApprovalAnswered, request="r1/approval1", call="c1", allowed=False, stopped=True)
    tree = fold(book.events)
    assert (tree.requests, tree.runs["r1"].calls[0].answer) == ({}, None)
    book(ApprovalRequested, request="r1/approval1", call="c1", tool="change")
    book(ApprovalAnswered, request="r1/approval1", call="c1", allowed=True, scope="tree", command="k1")
    tree = fold(book.events)
    assert tree.grants == [Grant("r1", ("lead",), "change", "tree")]
    answer = tree.runs["r1"].calls[0].answer
    assert answer is not None
    assert (answer.allowed, tree.asked, tree.commands) == (True, 1, {"k1"})


def test_obeyed_commands_are_known() -> None:
    """Every event caused by a command carries the command's id."""
    book = begun()(MessageJoined, message=user("mind"), command="k1")
    book(CancelRequested, by="anna", command="k2")(CancelRequested, by="bob")
    assert fold(book.events).commands == {"k1", "k2"}


def test_an_artifact_of_the_same_id_replaces_the_first() -> None:
    """Saving an artifact again replaces it."""
    book = begun()(ArtifactSaved, artifact=Artifact("r1/text", "text", 3, 3))
    book(ArtifactSaved, artifact=Artifact("r1/text", "text", 9, 9))
    assert fold(book.events).artifacts == [Artifact("r1/text", "text", 9, 9)]


def test_an_overrun_closes_the_accounts_above_too() -> None:
    """Every ancestor is marked, with its limits at that time."""
    book = asked(Call("c1", "task", {}))(RunStarted, run="r1.1", task=user("part"), call="c1")
    book(Overran, run="r1.1", reserved=5, used=9, resource="tokens")
    tree = fold(book.events)
    assert [list(r.overran) for r in tree.runs.values()] == [["tokens"], ["tokens"]]


def test_which_runs_resume() -> None:
    """The root and the runs stopped with it resume; a child that ended by itself or was itself cancelled does not."""
    book = asked(*(Call(f"c{n}", "task", {}) for n in range(1, 5)))
    for n, status in enumerate([Status.CANCELLED, Status.COMPLETED, Status.CANCELLED, Status.TIMED_OUT], 1):
        book(RunStarted, run=f"r1.{n}", task=user("part"), call=f"c{n}")
        if n == 3:
            book(CancelRequested, run="r1.3", by="anna")
        book(RunEnded, **ended(status, run=f"r1.{n}"))
    assert sorted(r.id for r in going_on(fold(book.events))) == ["r1", "r1.1"]
    for n in range(1, 5):
        book(CallEnded, call=f"c{n}", tool="task", success=False, content="x", unfinished=True)
    book(RunEnded, **ended(Status.CANCELLED))
    assert sorted(r.id for r in going_on(fold(book.events))) == ["r1", "r1.1", "r1.4"]


@tool(tier="observe")
async def stare(seconds: float) -> str:
    """Looks for long."""
    await asyncio.sleep(seconds)
    return "saw it"


@tool
async def change() -> str:
    """Changes something."""
    return "changed"


AGENT = Agent("lead", tools=[stare, change])


async def test_folding_step_by_step_equals_folding_at_once() -> None:
    """`fold` depends only on its events, so a reader can also follow: each prefix gives the state at that time."""
    store, seen = MemoryStore(), list[float]()
    model = ScriptedModel([calls(call("stare", seconds=20), call("change")), say("done")])

    async def person(request: ApprovalRequest) -> Decision:
        await asyncio.sleep(300)
        return allow()

    await run(AGENT, "go", model=model, store=store, approver=person)
    events = [e async for e in store.read("r1")]
    for cut in range(1, len(events) + 1):
        tree = fold(events[:cut])
        seen.append(elapsed(tree.runs["r1"], tree.at))
        assert fold(events[:cut]) == tree
    assert seen == sorted(seen)
    assert seen[-1] < 300


async def test_the_time_of_all_processes_is_added() -> None:
    """`worked_s` of a tree that was resumed twice is the sum of the times that its processes worked."""
    store = MemoryStore()
    async with start(AGENT, "go", model=ScriptedModel([call("stare", seconds=100)]), store=store) as running:
        await asyncio.sleep(30)
        await running.cancel()
    await asyncio.sleep(10_000)
    outcome = await resume(store, "r1", agent=AGENT, model=ScriptedModel([say("done", delay=7)]))
    tree = fold([e async for e in store.read("r1")])
    assert tree.runs["r1"].clock.worked_s == outcome.duration_s == pytest.approx(137.0)
