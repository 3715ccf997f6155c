"""Kills a process that runs a tree, at every point between two writes and at random moments, and resumes the tree."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import time
from collections import Counter
from pathlib import Path

import pytest
from checking import Plain, changing_and_open, check_all, check_story, walk
from killing import Say, Stage, Story

from remit import Outcome, Status
from remit.types.events import AnyEvent, TurnStarted

pytestmark = [pytest.mark.real_time, pytest.mark.timeout(600)]

FIRST_POINTS = (
    "after reply_received of lead #1",
    "before call_ended write of lead/middle #1",
    "after message_joined of lead/middle/writer #1",
)

MOST = 100_000

PACE_S = 0.01
"""How long each reply takes if a tree is killed from outside, so that most kills hit it at work."""

KINDS = (
    "claim",
    "run_started",
    "turn_started",
    "model_call_failed",
    "reply_received",
    "call_started",
    "approval_requested",
    "approval_answered",
    "call_ended",
    "limit_met",
    "message_joined",
    "save",
    "artifact_saved",
    "run_ended",
    "release",
)


def test_unkilled(plain: Plain) -> None:
    """Without a kill, the tree has three levels, parallel children, every kind of write, and completes in one life."""
    ends = {one.agent: one.status for one in walk(plain.outcome)}
    assert ends == {
        "lead": Status.COMPLETED,
        "middle": Status.COMPLETED,
        "leaf": Status.COMPLETED,
        "writer": Status.COMPLETED,
        "scout": Status.INCOMPLETE,
    }
    assert {place.split()[0] for place in plain.places} == set(KINDS)
    assert len(set(plain.places)) == len(plain.places) > 60
    check_story(plain.story, plain.outcome, plain, flushed=True)


@pytest.mark.parametrize("kind", KINDS)
def test_every_crash_point(stage: Stage, plain: Plain, kind: str) -> None:
    """Killed before or after any write, with all earlier writes on disk, a tree ends as if it had not been killed."""
    places = [place for place in plain.places if place.split()[0] == kind]
    points = [f"{side} {place}" for place in places for side in ("before", "after")]

    def crash(point: str) -> None:
        story = stage.story()
        story.killed(story.run(point=point))
        check_story(story, story.outcome(story.go_on()), plain, flushed=True)

    check_all(crash, points)


def test_killed_again(stage: Stage, plain: Plain, say: Say) -> None:
    """A resumed tree that is killed again, before or after any write, ends as if it had not been killed.

    There are about 250 such pairs of points; the test tries a few, or as many as REMIT_KILLS says.
    """
    pairs = [(first, second) for first in FIRST_POINTS for second in points_after(stage, first)]
    chance, count = luck(say, "trees killed twice, at named points", most=len(pairs))
    spared: list[tuple[str, str]] = []

    def crash(pair: tuple[str, str]) -> None:
        story = stage.story()
        story.killed(story.run(point=pair[0]))
        child = story.go_on(point=pair[1])
        if child.wait() == 0:
            # A branch that was faster this time had passed the second point before the first kill.
            spared.append(pair)
        else:
            story.killed(child)
            child = story.go_on()
        check_story(story, story.outcome(child), plain, flushed=True)

    check_all(crash, chance.sample(pairs, count))
    assert len(spared) <= count // 3, spared


def points_after(stage: Stage, first: str) -> list[str]:
    """The crash points of a tree that is resumed after a kill at the first point."""
    story = stage.story()
    story.killed(story.run(point=first))
    places = story.result(story.resume(point="none")).places
    return [f"{side} {place}" for place in places for side in ("before", "after")]


def luck(say: Say, what: str, *, most: int) -> tuple[random.Random, int]:
    """A seeded random generator, and the number of cases to try."""
    seed = int(os.environ.get("REMIT_SEED") or random.SystemRandom().randrange(1_000_000))
    count = min(most, int(os.environ.get("REMIT_KILLS") or 10))
    say(f"{count} {what}, REMIT_SEED={seed}")
    return random.Random(seed), count


def ordeal(story: Story, delays: list[float]) -> Outcome:
    """Kill each life after a delay, unless it ends sooner, and let the last one end."""
    child = story.run()
    for delay in delays:
        if child.ended.wait(delay):
            break
        child.signal(signal.SIGKILL)
        if child.wait() == 0:
            break
        story.killed(child)
        child = story.go_on()
    return story.outcome(child)


def test_random_moments(stage: Stage, plain: Plain, say: Say) -> None:
    """Killed from outside at any moment, up to three times in a row, a tree ends as if it had not been killed.

    Events that were not flushed are lost, so the server may have seen calls whose intent is not in the journal.
    """
    chance, count = luck(say, "trees killed at random moments", most=MOST)
    whole = min(timed(stage) for _ in range(3))
    plans = [[chance.uniform(0.0, whole) for _ in range(chance.randint(1, 3))] for _ in range(count)]
    kills: list[list[AnyEvent]] = []
    lost: list[int] = []

    def suffer(delays: list[float]) -> None:
        story = stage.story(pace_s=PACE_S)
        check_story(story, ordeal(story, delays), plain, flushed=False)
        if not story.left:
            # The tree ended before its first kill.
            suffer([delay / 2 for delay in delays])
            return
        kills.extend(story.left)
        lost.append(count_lost(story))

    check_all(suffer, plans)
    assert len(kills) >= count
    early = sum(not left for left in kills)
    changing = sum(bool(changing_and_open(left)) for left in kills)
    say(
        f"{len(kills)} kills: {early} before the first event was on disk, {changing} in a changing call, the latest after"
        f" {max(map(len, kills))} events; {sum(lost)} requests whose intent was lost; unkilled it takes {whole:.2f} s"
    )


def test_a_kill_during_the_creation_of_the_store(stage: Stage, plain: Plain, tmp_path: Path) -> None:
    """A store whose creation was interrupted by a kill is created by the next process."""
    story = stage.story()
    made = tmp_path / "made.db"
    connection = sqlite3.connect(made, isolation_level=None)
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA user_version = 0")
    connection.execute("PRAGMA cache_size = 1")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("CREATE TABLE half (done TEXT)")
    connection.executemany("INSERT INTO half VALUES (?)", [("x" * 5000,)] * 20)
    # Copies have no locks, like the files of a killed process.
    shutil.copy(made, story.path)
    shutil.copy(f"{made}-journal", f"{story.path}-journal")
    connection.execute("ROLLBACK")
    connection.close()
    assert story.events() == []
    outcome = story.outcome(story.run())
    check_story(story, outcome, plain, flushed=True)


def timed(stage: Stage) -> float:
    story = stage.story(pace_s=PACE_S)
    began = time.monotonic()
    story.outcome(story.run())
    return time.monotonic() - began


def count_lost(story: Story) -> int:
    """Requests that the server received and the journal does not have."""
    meant = Counter((e.run, e.turn) for e in story.events() if isinstance(e, TurnStarted))
    return (Counter(one.key for one in story.asked()) - meant).total()
