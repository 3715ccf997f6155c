"""The laws over random trees, in virtual time."""

from __future__ import annotations

import pytest
from grazing import grazing
from random_trees import Node, check_laws, over_random_trees, play

from remit import Limits
from remit.testing import run_virtual


@pytest.mark.timeout(240)
@over_random_trees(250)
def test_laws_hold_on_random_trees(node: Node, asked: Limits, cancel_at: float | None, victim: int) -> None:
    """No cap is exceeded, each call has one result in order, nothing lives on, every run has one outcome, totals add up."""
    # No tool here blocks a thread, so a tree that is stuck is seen to be at once, and can be shrunk in time.
    check_laws(run_virtual(play, node, asked, cancel_at, victim, timeout_s=20.0, stuck_s=0.1))


@pytest.mark.timeout(240)
@over_random_trees(100)
def test_laws_hold_when_a_time_comes_between_two_reads_of_the_clock(
    node: Node, asked: Limits, cancel_at: float | None, victim: int
) -> None:
    """Whatever is decided by the clock is decided by one read of it: no tree is stuck because a time came between two."""
    with grazing():
        check_laws(run_virtual(play, node, asked, cancel_at, victim, timeout_s=20.0, stuck_s=0.1))
