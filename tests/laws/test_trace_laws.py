"""The laws of traces over random trees, in virtual time."""

from __future__ import annotations

from collections import Counter

import pytest
from random_trees import Node, Told, every, over_random_trees, play
from tracebench import Spans, traced

from remit import Limits
from remit.events import CallEnded, RunStarted, TurnStarted
from remit.testing import run_virtual


@pytest.mark.timeout(240)
@over_random_trees(100)
def test_traces_hold_on_random_trees(node: Node, asked: Limits, cancel_at: float | None, victim: int) -> None:
    """A tree is one trace with one span per run, model call and tool call, in the right places; sums are the outcome's."""
    with traced() as made:
        told = run_virtual(play, node, asked, cancel_at, victim, timeout_s=20.0, stuck_s=0.1)
    spans = made.spans
    spans.check()
    check_counts(spans, told)
    check_places(spans, told)
    for run in every(told.outcome):
        span = spans.one("invoke_agent", remit__run__id=run.run_id)
        assert span["remit.status"] == run.status
        assert span.attributes.get("error.type") == (None if run.ok else run.status)
        sums = spans.sums(span)
        assert sums == {name: span[name] for name in sums}
        assert tuple(sums.values()) == (run.total_usage.input_tokens, run.total_usage.output_tokens)


def check_counts(spans: Spans, told: Told) -> None:
    """One span for each thing that happened."""
    for operation, kind in (("invoke_agent", RunStarted), ("chat", TurnStarted), ("execute_tool", CallEnded)):
        happened = Counter(event.run for event in told.events if isinstance(event, kind))
        assert Counter(span["remit.run.id"] for span in spans.all(operation)) == happened


def check_places(spans: Spans, told: Told) -> None:
    """A child is below the call that asked for it; everything else is below its run."""
    asked = {event.run: event for event in told.events if isinstance(event, RunStarted)}
    for span in spans:
        start = asked[str(span["remit.run.id"])]
        above = spans.by_id.get(span.parent)
        if not span.name.startswith("invoke_agent"):
            assert above is not None
            assert (above["gen_ai.operation.name"], above["remit.run.id"]) == ("invoke_agent", start.run)
        elif start.parent is None:
            assert above is None
        else:
            assert above is not None
            assert (above["remit.run.id"], above["gen_ai.tool.call.id"]) == (start.parent, start.call)
