"""A run's clock: a soft end and a hard one, children before their parents, and time that does not count."""

from __future__ import annotations

import asyncio
import gc
import math
from itertools import pairwise

import pytest

from remit.tasks.deadline import Alarm, Deadline


class Bells:
    """When each bell of a deadline rang."""

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
    """The soft end is a tenth before the hard one, and never more than 30 s before it; each rings once."""
    bells = Bells()
    bells.deadline(seconds)
    await asyncio.sleep(seconds * 3)
    assert bells.rang == [("soft", soft), ("hard", seconds)]


async def test_no_limit_never_rings() -> None:
    """None is unlimited: such a clock never ends, for itself or for those below."""
    bells = Bells()
    root = bells.deadline(None)
    child = bells.deadline(None, root)
    await asyncio.sleep(10**7)
    assert (root.left(), root.soft_left(), child.left()) == (math.inf, math.inf, math.inf)
    assert bells.rang == []


async def test_zero_seconds_are_over_at_once() -> None:
    """Zero means zero."""
    bells = Bells()
    deadline = bells.deadline(0)
    assert deadline.left() == 0
    await asyncio.sleep(0.001)
    assert bells.rang == [("soft", 0), ("hard", 0)]


async def test_a_closed_deadline_does_not_ring() -> None:
    """The clock of a run that has ended is still, also when a person's answer comes late."""
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
    """A child's hard end is the smaller of its own and its parent's soft end less a margin, level by level."""
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
    """Past its parent's soft end a child has no time at all, whatever it asks for."""
    bells = Bells()
    parent = bells.deadline(10)
    await asyncio.sleep(9.5)
    assert bells.deadline(1000, parent).left() == 0
    assert bells.deadline(None, parent).left() == 0


async def test_a_child_started_late_gets_what_is_left() -> None:
    """A child's time is within what its parent still has when it starts."""
    bells = Bells()
    parent = bells.deadline(100)
    await asyncio.sleep(80)
    child = bells.deadline(50, parent)
    assert 0 < child.left() < parent.soft_left()


async def test_time_spent_asking_does_not_count() -> None:
    """While a person is asked the clock stands still, and both ends move by as long as it took."""
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


async def test_several_askers_stop_the_clock_once() -> None:
    """The clock stands while any of several askers waits, and overlapping waits count once."""
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


async def test_a_pause_after_the_soft_end_moves_the_hard_one_only() -> None:
    """Who has met its soft end does not meet it again after a pause."""
    bells = Bells()
    deadline = bells.deadline(100)
    await asyncio.sleep(95)
    deadline.pause()
    await asyncio.sleep(50)
    deadline.resume()
    await asyncio.sleep(100)
    assert bells.rang == [("soft", 90), ("hard", 150)]


async def test_a_child_started_while_a_person_is_asked_has_its_share() -> None:
    """A parent's standing clock gives a child what the parent will have, not what the wall clock says."""
    bells = Bells()
    parent = bells.deadline(100)
    parent.pause()
    await asyncio.sleep(1000)
    assert 80 < bells.deadline(None, parent).left() < parent.soft_left()


async def test_asking_for_nothing_costs_nothing() -> None:
    """A pause of no length changes no end."""
    bells = Bells()
    deadline = bells.deadline(100)
    for _ in range(50):
        deadline.pause()
        deadline.resume()
    await asyncio.sleep(200)
    assert bells.rang == [("soft", 90), ("hard", 100)]


async def test_whatever_is_set_rings_at_its_time_in_the_order_of_the_times() -> None:
    """One timer rings for all, to the moment, also for what is set later and due before; what is closed is still."""
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


async def test_what_is_done_with_is_not_kept() -> None:
    """The clocks of a tree's many short runs are not kept until they would have rung."""
    bells = Bells()
    for _ in range(300):
        runs = [bells.deadline(100_000) for _ in range(10)]
        # Something rings, so that all of them are looked at.
        bells.deadline(0.5)
        await asyncio.sleep(1)
        while runs:
            runs.pop().close()
    gc.collect()
    kept = sum(isinstance(one, Deadline) for one in gc.get_objects())
    assert kept < 1000


async def test_a_closed_alarm_is_still() -> None:
    """When a tree has ended nothing of it rings; who sets something all the same does not wait for ever."""
    bells = Bells()
    bells.deadline(10)
    bells.alarm.close()
    await asyncio.sleep(100)
    assert bells.rang == []
    bells.deadline(10)
    await asyncio.sleep(100)
    assert bells.rang == [("soft", 109), ("hard", 110)]


async def test_what_was_set_before_the_alarm_was_started_rings_too() -> None:
    bells = Bells()
    bells.alarm = Alarm(bells.loop)
    bells.deadline(20, name="later ")
    bells.deadline(10, name="first ").close()
    bells.deadline(12, name="")
    bells.alarm.start()
    await asyncio.sleep(30)
    assert bells.rang == [("soft", 10.8), ("hard", 12), ("later soft", 18), ("later hard", 20)]


async def test_an_alarm_that_is_not_started_leaves_the_loop_alone() -> None:
    bells = Bells()
    bells.alarm = alarm = Alarm(bells.loop)
    bells.deadline(10)
    await asyncio.sleep(20)
    assert bells.rang == []
    alarm.close()
    await asyncio.sleep(20)
    assert bells.rang == []
