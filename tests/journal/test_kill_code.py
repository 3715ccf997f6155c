"""Kills a process whose tree delegates from code, at every point between two writes and at random moments."""

from __future__ import annotations

import random
import signal
from collections import Counter
from typing import NamedTuple

import pytest
from checking import check_all, walk
from killing import Say, Stage, Story
from test_kill import luck

from remit import Outcome
from remit.types.events import AnyEvent, CallEnded, ReplyReceived, RunEnded, RunStarted, TurnStarted

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(600)]

STEPS = ("plan", "join")
PACE_S = 0.01


class Whole(NamedTuple):
    """The tree without a kill."""

    outcome: Outcome
    places: list[str]
    seconds: float


@pytest.fixture(scope="module")
def whole(stage: Stage) -> Whole:
    story = stage.story("coder")
    result = story.result(story.run(point="none"))
    assert result.outcome is not None
    paced = stage.story("coder", pace_s=PACE_S)
    seconds = paced.outcome(paced.run()).duration_s
    return Whole(result.outcome, result.places, seconds)


def check(story: Story, outcome: Outcome, whole: Whole) -> None:
    """The same tree, each run ended once, no recorded reply requested again, no recorded step run again."""
    assert (outcome.status, outcome.text) == ("completed", whole.outcome.text)
    assert _runs(outcome) == _runs(whole.outcome)
    events = story.events()
    starts = [e.run for e in events if isinstance(e, RunStarted)]
    ends = [e.run for e in events if isinstance(e, RunEnded)]
    assert len(starts) == len(set(starts)) == len(ends) == len(set(ends)) == len(_runs(outcome))
    for life, kept in enumerate(story.left, 2):
        replied = Counter(e.run for e in kept if isinstance(e, ReplyReceived))
        again = [a for a in story.asked() if a.life == life and a.turn <= replied[a.run]]
        assert not again, "a recorded reply was requested again"
    spent = sum(isinstance(e, TurnStarted) for e in events)
    assert outcome.total_usage.requests == spent

    for step in STEPS:
        ran = [life for what, life in story.outside() if what == f"step {step}"]
        # A step runs at least once: again only if the kill came between its effect and its record.
        known = [n for n, kept in enumerate(story.left, 1) if step in _recorded(kept)]
        assert ran, step
        assert not known or max(ran) <= known[0], (step, ran, known)


def _recorded(events: list[AnyEvent]) -> set[str]:
    return {e.tool for e in events if isinstance(e, CallEnded) and e.success}


def _runs(outcome: Outcome) -> list[tuple[str, str, str]]:
    return sorted((one.agent, one.status, one.text) for one in walk(outcome))


def test_the_tree_has_every_kind_of_delegation_from_code(whole: Whole) -> None:
    """Without a kill, the tree has a program, its steps, its map, and a child whose tool delegates."""
    assert Counter(one.agent for one in walk(whole.outcome)) == {"coder": 1, "leaf": 5, "mapper": 1}
    kinds = {place.split()[0] for place in whole.places}
    assert {"run_started", "reply_received", "call_started", "call_ended", "run_ended"} <= kinds


def test_every_crash_point_of_code(stage: Stage, whole: Whole) -> None:
    """Killed before or after any write, a tree of code ends as if it had not been killed, and pays for nothing twice."""

    def crash(point: str) -> None:
        story = stage.story("coder")
        story.killed(story.run(point=point))
        check(story, story.outcome(story.go_on()), whole)

    points = [f"{side} {place}" for place in whole.places for side in ("before", "after")]
    assert len(points) > 60
    check_all(crash, points)


def test_code_killed_at_random_moments(stage: Stage, whole: Whole, say: Say) -> None:
    """Killed up to twice at random moments, a tree of code ends as if it had not been killed. REMIT_KILLS asks for more."""
    chance, count = luck(say, "trees of code killed at random moments", most=100_000)
    kills: list[int] = []

    def crash(seed: int) -> None:
        moments = random.Random(seed)
        story = stage.story("coder", pace_s=PACE_S)
        child = story.run()
        for _ in range(2):
            if child.ended.wait(moments.uniform(0, whole.seconds)):
                break
            child.signal(signal.SIGKILL)
            if child.wait() == 0:
                # The process ended by itself just before the signal.
                break
            story.killed(child)
            child = story.go_on()
        kills.append(len(story.left))
        check(story, story.outcome(child), whole)

    check_all(crash, [chance.randrange(10**9) for _ in range(count)])
    assert sum(kills) >= count / 2, "too few kills hit the tree at work"
