"""Seed 3, S3.22 and S3.23: the fields of its spans and metrics."""

from __future__ import annotations

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from remit import Agent, Reply, Request, Usage, instrument, run
from remit.observe.otel.background import background
from remit.observe.otel.instrument import uninstrument
from remit.testing import ScriptedModel, fail, say
from remit.types.ports import Emit

USED = Usage(1, 100, 7)


class Named:
    """A scripted model with the name of a real one."""

    name = "anthropic:claude-haiku-4-5"

    def __init__(self, script: ScriptedModel) -> None:
        self._script = script

    async def reply(self, request: Request, emit: Emit) -> Reply:
        return await self._script.reply(request, emit)


async def test_a_span_has_the_fields_of_the_seed() -> None:
    """S3.22: operation, agent, provider, model, mode, the caller's span, outcome, turns, tokens, and the kind of error."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    instrument(provider)
    try:
        with provider.get_tracer("test").start_as_current_span("caller") as caller:
            good = Named(ScriptedModel({"worker": [say("ok", usage=USED)]}))
            await run(Agent("worker"), "go", model=good)
            await run(Agent("worker"), "go", model=Named(ScriptedModel({"worker": [fail("no key", "auth")]})))
        background.flush(5.0)
    finally:
        uninstrument()
    done, failed = (one for one in spans.get_finished_spans() if one.name == "invoke_agent worker")
    expected = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "worker",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-haiku-4-5",
        "remit.mode": "loop",
        "remit.status": "completed",
        "remit.turns": 1,
        "remit.total.input_tokens": 100,
        "remit.total.output_tokens": 7,
    }
    assert expected.items() <= dict(done.attributes or {}).items()
    assert done.parent is not None
    assert done.parent.span_id == caller.get_span_context().span_id
    assert done.parent.trace_id == caller.get_span_context().trace_id
    assert (failed.attributes or {})["error.type"] == "failed"


async def test_the_metrics_of_the_seed() -> None:
    """S3.23: runs by agent and outcome; tokens by type, operation, provider and model, without zeros."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    instrument(meter_provider=provider)
    try:
        await run(
            Agent("worker"), "go", model=Named(ScriptedModel({"worker": [say("ok", usage=Usage(1, 100))]}))
        )
        background.flush(5.0)
        data = reader.get_metrics_data()
    finally:
        uninstrument()
        provider.shutdown()
    assert data is not None
    found = {
        metric.name: [(dict(point.attributes or {}), point) for point in metric.data.data_points]
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
    }
    ((runs, count),) = found["remit.invocations"]
    assert isinstance(count, NumberDataPoint)
    assert (runs, count.value) == ({"gen_ai.agent.name": "worker", "remit.status": "completed"}, 1)
    ((used, tokens),) = found["gen_ai.client.token.usage"]
    assert isinstance(tokens, HistogramDataPoint)
    named = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.token.type")
    assert [used[name] for name in named] == ["chat", "anthropic", "claude-haiku-4-5", "input"]
    assert tokens.sum == 100
