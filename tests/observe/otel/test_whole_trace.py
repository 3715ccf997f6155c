"""One tree with everything in it, as its trace shows it: in memory, and by OTLP to a receiver on this machine."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from tracebench import Spans, receiver, traced
from tracestory import WAIT_S, play

from remit import Outcome, instrument
from remit.observe.otel.instrument import uninstrument


def everyone(outcome: Outcome) -> list[Outcome]:
    return [outcome, *(one for child in outcome.children for one in everyone(child))]


def check(spans: Spans, outcome: Outcome) -> None:
    """One trace, right parents, times that cover the work, sums equal to the outcome's."""
    spans.check()
    check_parents(spans)
    check_ends(spans)
    for run in everyone(outcome):
        span = spans.one("invoke_agent", remit__run__id=run.run_id)
        assert span["remit.status"] == run.status
        assert (span["remit.turns"], span["remit.calls"]) == (run.turns, len(run.calls))
        sums = spans.sums(span)
        assert sums == {name: span[name] for name in sums}
        assert sums["remit.total.input_tokens"] == run.total_usage.input_tokens
        assert sums["remit.total.output_tokens"] == run.total_usage.output_tokens
        assert span["remit.total.requests"] == run.total_usage.requests
        assert span.attributes.get("remit.total.usd") == run.total_usage.usd
        assert not [name for name in span.attributes if name.startswith("gen_ai.usage")]
    costs = [span["gen_ai.usage.cost"] for span in spans.all("chat")]
    assert outcome.total_usage.usd is not None
    assert sum(cost for cost in costs if isinstance(cost, float)) == pytest.approx(outcome.total_usage.usd)


def check_parents(spans: Spans) -> None:
    lead = spans.one("invoke_agent lead")
    for name in ("explorer", "flaky", "broken", "sleeper", "scribe", "pipe"):
        assert spans.above(spans.one(f"invoke_agent {name}")) == ["execute_tool task", lead.name]
    above = [tuple(spans.above(span)[:3]) for span in spans.all("invoke_agent reader")]
    assert sorted(above) == [
        ("execute_tool task", "invoke_agent explorer", "execute_tool task"),
        ("invoke_agent pipe", "execute_tool task", lead.name),
        ("survey phase", "execute_tool survey", "invoke_agent explorer"),
        ("survey phase", "execute_tool survey", "invoke_agent explorer"),
    ]
    assert spans.above(spans.one("GET page"))[:2] == ["execute_tool fetch_page", "invoke_agent explorer"]
    assert spans.above(spans.one("measuring"))[:2] == ["execute_tool measure", "invoke_agent pipe"]
    for span in spans.all("count in thread"):
        assert spans.above(span)[:2] == ["execute_tool count_words", "invoke_agent reader"]
    sdk = spans.all("sdk POST")
    assert {spans.above(span)[0] for span in sdk} == {"chat claude-haiku-4-5"}
    assert len(sdk) == len(spans.all("chat"))


def check_ends(spans: Spans) -> None:
    lead, scribe = spans.one("invoke_agent lead"), spans.one("invoke_agent scribe")
    assert not lead.failed
    first, second = spans.below(spans.one("invoke_agent flaky"))
    assert (first["error.type"], first["remit.retry_s"], first.failed) == ("overloaded", WAIT_S, True)
    assert (second["remit.attempt"], second.failed) == (2, False)
    assert spans.one("invoke_agent broken")["error.type"] == "failed"
    (sleeping,) = spans.below(sleeper := spans.one("invoke_agent sleeper"))
    assert (sleeper["error.type"], sleeping["error.type"]) == ("cancelled", "stopped")
    assert sleeper.end - sleeper.start >= WAIT_S * 1e9 * 0.9
    errors = {span.attributes.get("error.type") for span in spans.all("execute_tool task")}
    assert errors == {None, "failed", "cancelled"}
    asked = {
        span.attributes.get("error.type"): span for span in spans.below(scribe) if "publish" in span.name
    }
    assert set(asked) == {None, "denied"}
    for span in asked.values():
        waited = span["remit.approval_s"]
        assert isinstance(waited, float)
        assert WAIT_S * 0.9 <= waited <= (span.end - span.start) / 1e9 + 0.001


@pytest.mark.real_time
async def test_a_whole_tree_is_one_trace() -> None:
    """A tree is one trace: every span has its place, covers its work, and says how it ended; sums equal the outcome's."""
    with traced() as made:
        outcome = await play(made.tracer)
    check(made.spans, outcome)


@pytest.mark.real_time
async def test_a_whole_tree_reaches_a_receiver_by_otlp() -> None:
    """Exported by OTLP over HTTP, the trace that arrives is the same."""
    with receiver() as made:
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{made.address}/v1/traces")))
        instrument(provider)
        try:
            outcome = await play(provider.get_tracer("somebody else"))
        finally:
            uninstrument()
            provider.shutdown()
    check(made.spans, outcome)
