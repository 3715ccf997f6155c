"""Deadlines: soft and hard end, children before their parents, and pauses that do not count."""

from __future__ import annotations

import asyncio
import gc
import math
from itertools import pairwise

import pytest

from remit.tasks.deadline import Alarm, Deadline


class Bells:
    """Records when each end of a deadline was called."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.alarm = Alarm(self.loop)
        self.alarm.start()
        self.rang: list[tuple[str, float]] = []

    def deadline(self, seconds: float | None, parent: Deadline | None = None, name: str = "") -> Deadline:
        return Deadline(self.alarm, seconds, parent, Bell(self, name))

    def now(self) -> float:
        return round(self.loop.time(), 6)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.rang]


class Bell:
    """The two ends of one run."""

    def __init__(self, bells: Bells, name: str) -> None:
        self.bells = bells
        self.name = name

    def soft_end(self) -> None:
        self.bells.rang.append((f"{self.name}soft", self.bells.now()))

    def hard_end(self) -> None:
        self.bells.rang.append((f"{self.name}hard", self.bells.now()))


@pytest.mark.parametrize(("seconds", "soft"), [(10, 9), (100, 90), (300, 270), (3600, 3570), (0.5, 0.45)])
async def test_the_last_tenth_is_kept_for_wrapping_up(seconds: float, soft: float) -> None:
    """The soft end is a tenth of the time before the hard end, at most 30 s; each is called once."""
    bells = Bells()
    bells.deadline(seconds)
    await asyncio.sleep(seconds * 3)
    assert bells.rang == [("soft", soft), ("hard", seconds)]


async def test_no_limit_never_rings() -> None:
    """None is unlimited: such a deadline never ends, nor do the deadlines below it."""
    bells = Bells()
    root = bells.deadline(None)
    child = bells.deadline(None, root)
    await asyncio.sleep(10**7)
    assert (root.left(), root.soft_left(), child.left()) == (math.inf, math.inf, math.inf)
    assert bells.rang == []


async def test_zero_seconds_are_over_at_once() -> None:
    """With zero seconds, both ends come at once."""
    bells = Bells()
    deadline = bells.deadline(0)
    assert deadline.left() == 0
    await asyncio.sleep(0.001)
    assert bells.rang == [("soft", 0), ("hard", 0)]


async def test_a_closed_deadline_does_not_ring() -> None:
    """The deadline of a run that has ended does not ring, even if a person's answer comes late."""
    bells = Bells()
    ended, asking = bells.deadline(10), bells.deadline(10)
    ended.close()
    asking.pause()
    asking.close()
    asking.resume()
    await asyncio.sleep(100)
    assert bells.rang == []


@pytest.mark.parametrize("own", [None, 1000.0, 100.0, 5.0])
async def test_children_end_before_their_parents_soft_end_at_every_level(own: float | None) -> None:
    """At every level, a child's hard end is the earlier of its own and its parent's soft end minus a margin."""
    bells = Bells()
    line = [bells.deadline(100, name="0 ")]
    for level in range(1, 5):
        line.append(bells.deadline(own, line[-1], f"{level} "))
    for parent, child in pairwise(line):
        assert child.left() < parent.soft_left() or child.left() == own
        assert child.left() <= (own or math.inf)
        assert child.left() > 0
    await asyncio.sleep(200)
    hard = [name for name in bells.names if name.endswith("hard")]
    if own is None or own >= 100:
        assert hard == [f"{level} hard" for level in (4, 3, 2, 1, 0)]
        assert bells.names.index("1 hard") < bells.names.index("0 soft")


async def test_a_child_of_a_parent_out_of_time_has_none() -> None:
    """After its parent's soft end, a child has no time at all, whatever its own limit."""
    bells = Bells()
    parent = bells.deadline(10)
    await asyncio.sleep(9.5)
    assert bells.deadline(1000, parent).left() == 0
    assert bells.deadline(None, parent).left() == 0


async def test_a_child_started_late_gets_the_remaining_time() -> None:
    """A child's time is within its parent's remaining time when the child starts."""
    bells = Bells()
    parent = bells.deadline(100)
    await asyncio.sleep(80)
    child = bells.deadline(50, parent)
    assert 0 < child.left() < parent.soft_left()


async def test_time_spent_waiting_for_a_person_does_not_count() -> None:
    """While a person is asked the deadline pauses, and both ends move by the length of the pause."""
    bells = Bells()
    deadline = bells.deadline(100)
    await asyncio.sleep(40)
    deadline.pause()
    before = deadline.left()
    await asyncio.sleep(1000)
    assert deadline.left() == before == 60
    deadline.resume()
    await asyncio.sleep(1000)
    assert bells.rang == [("soft", 1090), ("hard", 1100)]


async def test_overlapping_pauses_count_once() -> None:
    """The deadline pauses while any request waits; overlapping waits count once."""
    bells = Bells()
    deadline = bells.deadline(100)
    deadline.pause()
    await asyncio.sleep(10)
    deadline.pause()
    await asyncio.sleep(10)
    deadline.resume()
    await asyncio.sleep(500)
    assert bells.rang == []
    deadline.resume()
    assert deadline.left() == 100
    await asyncio.sleep(1000)
    assert bells.rang == [("soft", 610), ("hard", 620)]


async def test_a_pause_after_the_soft_end_moves_only_the_hard_end() -> None:
    """After a pause, the soft end is not called a second time."""
    bells = Bells()
    deadline = bells.deadline(100)
    await asyncio.sleep(95)
    deadline.pause()
    await asyncio.sleep(50)
    deadline.resume()
    await asyncio.sleep(100)
    assert bells.rang == [("soft", 90), ("hard", 150)]


async def test_a_child_started_during_a_pause_gets_its_share() -> None:
    """During a pause, a child gets its share of the parent's paused time, not of the wall clock."""
    bells = Bells()
    parent = bells.deadline(100)
    parent.pause()
    await asyncio.sleep(1000)
    assert 80 < bells.deadline(None, parent).left() < parent.soft_left()


async def test_an_empty_pause_changes_nothing() -> None:
    """A pause of zero length moves no end."""
    bells = Bells()
    deadline = bells.deadline(100)
    for _ in range(50):
        deadline.pause()
        deadline.resume()
    await asyncio.sleep(200)
    assert bells.rang == [("soft", 90), ("hard", 100)]


async def test_an_alarm_rings_everything_in_order_of_time() -> None:
    """One timer rings all objects at their exact times, also those set later and due earlier, but not closed ones."""
    bells = Bells()
    order = [37, 5, 1000, 12, 5, 3000, 0.5, 64, 12]
    deadlines = [bells.deadline(seconds, name=f"{n} ") for n, seconds in enumerate(order)]
    deadlines[3].close()
    await asyncio.sleep(10)
    late = bells.deadline(20, name="late ")
    late_closed = bells.deadline(1, name="closed ")
    late_closed.close()
    await asyncio.sleep(5000)
    ends = [(seconds, f"{n} ") for n, seconds in enumerate(order) if n != 3]
    ends.append((30, "late "))
    assert [(round(at, 6), name) for name, at in bells.rang if name.endswith("hard")] == sorted(
        ((at, f"{name}hard") for at, name in ends), key=lambda end: end[0]
    )
    assert len(bells.rang) == 2 * len(ends)
    assert late.soft_met


async def test_an_alarm_does_not_keep_closed_deadlines() -> None:
    """The deadlines of a tree's many short runs are freed before their time."""
    bells = Bells()
    for _ in range(300):
        runs = [bells.deadline(100_000) for _ in range(10)]
        # One object rings, so that the alarm cleans up the others.
        bells.deadline(0.5)
        await asyncio.sleep(1)
        while runs:
            runs.pop().close()
    gc.collect()
    kept = sum(isinstance(one, Deadline) for one in gc.get_objects())
    assert kept < 1000


async def test_a_closed_alarm_rings_nothing() -> None:
    """After a tree has ended nothing of it rings; a deadline set later still rings."""
    bells = Bells()
    bells.deadline(10)
    bells.alarm.close()
    await asyncio.sleep(100)
    assert bells.rang == []
    bells.deadline(10)
    await asyncio.sleep(100)
    assert bells.rang == [("soft", 109), ("hard", 110)]


async def test_an_alarm_rings_objects_set_before_its_start() -> None:
    bells = Bells()
    bells.alarm = Alarm(bells.loop)
    bells.deadline(20, name="later ")
    bells.deadline(10, name="first ").close()
    bells.deadline(12, name="")
    bells.alarm.start()
    await asyncio.sleep(30)
    assert bells.rang == [("soft", 10.8), ("hard", 12), ("later soft", 18), ("later hard", 20)]


async def test_an_alarm_sets_no_timer_before_its_start() -> None:
    bells = Bells()
    bells.alarm = alarm = Alarm(bells.loop)
    bells.deadline(10)
    await asyncio.sleep(20)
    assert bells.rang == []
    alarm.close()
    await asyncio.sleep(20)
    assert bells.rang == []
