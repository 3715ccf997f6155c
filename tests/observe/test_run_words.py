"""How a run ended, in the words of the tree."""

from __future__ import annotations

import pytest

from remit import Outcome, Status
from remit.observe.run_words import how_it_ended


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("stopped with lead: cancelled by the caller: Ctrl-C", "cancelled with its parent (Ctrl-C)"),
        (
            "stopped with lead: the time limit of 2 s is reached",
            "cancelled with its parent (the time limit of 2 s is reached)",
        ),
        ("cancelled by the caller: not needed", "cancelled by the caller: not needed"),
    ],
)
def test_a_child_that_was_stopped_with_its_parent(reason: str, words: str) -> None:
    """The tree says that the child was cancelled with its parent, and why the parent was."""
    outcome = Outcome(Status.CANCELLED, "scout", "a.1", reason=reason, parent_id="a")
    assert how_it_ended(outcome) == words
