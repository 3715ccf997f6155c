"""Several processes and one tree: which one runs it, which are refused, and which commands reach the owner."""

from __future__ import annotations

import signal
import time
from collections import defaultdict

import pytest
from checking import Plain, changing_and_open, check_all, check_story, started
from killing import Say, Stage, Story, until
from worker import ROOT

from remit import Status
from remit.engine.run.tool_calls import UNKNOWN
from remit.history.fold import fold
from remit.types.commands import Answer, Cancel, Send
from remit.types.events import (
    ApprovalAnswered,
    ApprovalRequested,
    CallEnded,
    CancelRequested,
    MessageJoined,
    ReplyReceived,
    RunResumed,
)
from remit.types.messages import ToolMessage, UserMessage
from remit.types.ports import new_command_id

pytestmark = pytest.mark.real_time


SOON_S = 5.0
"""Far above the documented delay: a test does not measure speed."""


def send(text: str = "enough") -> Send:
    return Send(id=new_command_id(), at=time.time(), run=ROOT, text=text)


def answer(request: str, *, allowed: bool = True, reason: str = "") -> Answer:
    return Answer(id=new_command_id(), at=time.time(), request=request, allowed=allowed, reason=reason)


def cancel() -> Cancel:
    return Cancel(id=new_command_id(), at=time.time(), by="a test", run=ROOT, reason="that will do")


def waiting(stage: Stage) -> Story:
    """A story whose first life was killed while it waited for an approval."""
    story = stage.story("asker")
    child = story.run(approver="never answers")
    story.wait_for(ApprovalRequested)
    story.kill(child)
    return story


@pytest.mark.parametrize(
    "point", ["after reply_received of lead #1", "before call_ended write of lead/middle #1"]
)
@pytest.mark.parametrize("turn", [1, 2, 3])
def test_two_resume_at_once(stage: Stage, plain: Plain, point: str, turn: int) -> None:
    """If two processes resume a tree at once, one does; the other is refused with the owner's name, or gets the outcome."""
    story = stage.story(pace_s=0.01)
    story.killed(story.run(point=point))
    results = [story.result(child) for child in [story.resume(), story.resume()]]
    outcomes = [result.outcome for result in results if result.outcome is not None]
    refused = [result for result in results if result.outcome is None]
    assert outcomes
    assert all(result.error == "TreeOwned" and "pid" in result.message for result in refused)
    asking: dict[tuple[str, int], set[int]] = defaultdict(set)
    for one in story.asked():
        if one.life > 1:
            asking[one.key].add(one.life)
    assert all(len(lives) == 1 for lives in asking.values())
    assert len(set().union(*asking.values())) == 1
    for outcome in outcomes:
        check_story(story, outcome, plain, flushed=True)


def test_live_tree_is_not_resumed(stage: Stage) -> None:
    """Resuming a tree whose process is alive is refused with the owner's pid; the tree continues undisturbed."""
    story = stage.story("walker")
    child = story.run()
    story.wait_for(ReplyReceived)
    refused = story.result(story.resume())
    assert refused.error == "TreeOwned"
    assert f"pid {child.pid} " in refused.message
    story.post(send())
    outcome = story.outcome(child)
    assert outcome.status is Status.COMPLETED
    assert fold(story.events()).outcome() == outcome


def test_stopped_process_is_taken_over(stage: Stage) -> None:
    """A process that was suspended beyond its lease finds its tree taken over: it writes nothing more, and ends."""
    story = stage.story("walker")
    first = story.run(lease_s=0.5)
    story.wait_for(CallEnded, 3)
    first.signal(signal.SIGSTOP)
    until(lambda: not story.info().live, "the end of the lease")
    second = story.resume()
    story.wait_for(RunResumed)
    there = len(story.events())
    story.wait_for_more(there)
    first.signal(signal.SIGCONT)
    ended = story.outcome(first)
    assert ended.status is Status.CANCELLED
    assert f"pid {second.pid} " in ended.reason
    assert any("not stored" in warning for warning in ended.warnings)
    story.post(send())
    outcome = story.outcome(second)
    assert outcome.status is Status.COMPLETED
    events = story.events()
    assert len(events) > there
    assert sum(isinstance(event, RunResumed) for event in events) == 1
    assert not any(isinstance(event, CancelRequested) for event in events)
    assert fold(events).outcome() == outcome
    done = [what for what, _ in story.outside()]
    assert len(done) == len(set(done)), "both processes made the same change"


def test_send_reaches_the_running_process(stage: Stage, say: Say) -> None:
    """A message from another process joins the next turn of the run, once."""
    story = stage.story("walker")
    child = story.run()
    story.wait_for(ReplyReceived)
    story.post(send("enough of it"))
    posted = time.time()
    outcome = story.outcome(child)
    joined = story.wait_for(MessageJoined)
    assert outcome.text == "I heard: Begin. | enough of it"
    say(f"send heard after {joined.at - posted:.3f} s")
    assert joined.at - posted < SOON_S


def test_cancel_reaches_the_running_process(stage: Stage, say: Say) -> None:
    """A cancel from another process stops the tree, and the outcome says who cancelled it and why."""
    story = stage.story("walker")
    child = story.run()
    story.wait_for(ReplyReceived)
    story.post(cancel())
    posted = time.time()
    outcome = story.outcome(child)
    asked = story.wait_for(CancelRequested)
    assert outcome.status is Status.CANCELLED
    assert "a test" in outcome.reason
    assert "that will do" in outcome.reason
    say(f"cancel heard after {asked.at - posted:.3f} s")
    assert asked.at - posted < SOON_S


@pytest.mark.parametrize("allowed", [True, False])
def test_answer_reaches_the_running_process(stage: Stage, say: Say, allowed: bool) -> None:
    """Another process can approve or deny while the run's own approver does not answer."""
    story = stage.story("asker")
    child = story.run(approver="never answers")
    asked = story.wait_for(ApprovalRequested)
    story.post(answer(asked.request, allowed=allowed, reason="as a test says"))
    posted = time.time()
    outcome = story.outcome(child)
    answered = story.wait_for(ApprovalAnswered)
    assert outcome.status is Status.COMPLETED
    assert (answered.request, answered.allowed) == (asked.request, allowed)
    results = [message.content for message in outcome.messages if isinstance(message, ToolMessage)]
    assert results[0] == ("asker is published" if allowed else "Denied: as a test says.")
    assert [what for what, _ in story.outside()].count("publish asker") == int(allowed)
    say(f"answer heard after {answered.at - posted:.3f} s")
    assert answered.at - posted < SOON_S


@pytest.mark.parametrize("allowed", [True, False])
def test_an_answer_waits_for_the_resume(stage: Stage, allowed: bool) -> None:
    """A pending approval outlives its process: if it is answered meanwhile, the resumed run uses the answer."""
    story = waiting(stage)
    asked = story.wait_for(ApprovalRequested)
    story.post(answer(asked.request, allowed=allowed))
    outcome = story.outcome(story.resume(approver="never answers"))
    assert outcome.status is Status.COMPLETED
    assert [what for what, _ in story.outside()].count("publish asker") == int(allowed)
    assert started(story.events(), "publish") == int(allowed)
    assert fold(story.events()).outcome() == outcome


def test_asked_again_after_resume(stage: Stage) -> None:
    """Without an answer, a resumed run asks again with the same id; another process can then answer."""
    story = waiting(stage)
    first = story.wait_for(ApprovalRequested)
    child = story.resume(approver="never answers")
    second = story.wait_for(ApprovalRequested, 2)
    assert second.request == first.request
    story.post(answer(second.request))
    outcome = story.outcome(child)
    assert outcome.status is Status.COMPLETED
    assert [what for what, _ in story.outside()].count("publish asker") == 1
    tree = fold(story.events())
    assert tree.asked == 1
    assert not tree.requests
    assert tree.outcome() == outcome


def test_a_message_waits_for_the_resume(stage: Stage) -> None:
    """A message to a dead tree joins once when it is resumed, even if the resumed process is killed too."""
    story = waiting(stage)
    asked = story.wait_for(ApprovalRequested)
    story.post(send("do not forget"))
    child = story.resume(approver="never answers")
    story.wait_for(ApprovalRequested, 2)
    story.kill(child)
    story.post(answer(asked.request))
    story.killed(story.resume(approver="never answers", point="after message_joined of asker #1"))
    outcome = story.outcome(story.resume(approver="never answers"))
    assert outcome.text == "I heard: Begin. | do not forget"
    heard = [message.text for message in outcome.messages if isinstance(message, UserMessage)]
    assert heard == ["Begin.", "do not forget"]
    assert sum(isinstance(event, MessageJoined) for event in story.events()) == 1
    assert [what for what, _ in story.outside()].count("publish asker") == 1


def test_commands_at_every_crash_point(stage: Stage) -> None:
    """An answer and a message for a dead tree are obeyed once, wherever the resumed process is killed."""

    def asked_of() -> Story:
        story = stage.story("asker")
        story.killed(story.run(approver="never answers", point="after approval_requested of asker #1"))
        story.post(answer(story.wait_for(ApprovalRequested).request))
        story.post(send("do not forget"))
        return story

    def crash(point: str) -> None:
        story = asked_of()
        story.killed(story.resume(approver="never answers", point=point))
        outcome = story.outcome(story.resume(approver="never answers"))
        events = story.events()
        assert outcome.text == "I heard: Begin. | do not forget"
        assert sum(isinstance(event, MessageJoined) for event in events) == 1
        assert started(events, "publish") == 1
        result = next(m.content for m in outcome.messages if isinstance(m, ToolMessage))
        unknown = bool(changing_and_open(story.left[-1]))
        assert result == (UNKNOWN if unknown else "asker is published")
        done = [what for what, _ in story.outside()].count("publish asker")
        assert done == 1 or (done == 0 and unknown)
        assert fold(events).outcome() == outcome

    story = asked_of()
    places = story.result(story.resume(approver="never answers", point="none")).places
    # A single run: "after a write" equals "before the next", except for a tool's action in between.
    check_all(crash, ["before call_ended publish of asker #1", *(f"after {place}" for place in places)])


def test_a_cancel_of_a_dead_tree_applies_when_it_is_claimed(stage: Stage) -> None:
    """A cancel posted to a dead tree stops it as soon as a process claims it, once: the next resume runs the tree."""
    story = waiting(stage)
    story.post(cancel())
    assert story.outcome(story.resume(approver="allows")).status is Status.CANCELLED
    assert sum(isinstance(event, CancelRequested) for event in story.events()) == 1
    assert story.outcome(story.resume(approver="allows")).status is Status.COMPLETED


def test_separate_interpreters(stage: Stage, plain: Plain) -> None:
    """The same with processes that share nothing: each is a new interpreter that imports remit itself."""
    story = stage.story()
    assert (
        story.run_alone(resumes=False, point="before call_ended write of lead/middle #1") == -signal.SIGKILL
    )
    story.left.append(story.events())
    assert story.run_alone(resumes=True) == 0
    outcome = story.read_result(story.lives).outcome
    assert outcome is not None
    check_story(story, outcome, plain, flushed=True)
