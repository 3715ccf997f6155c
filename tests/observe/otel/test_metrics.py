"""The metrics: model calls, tokens, runs by agent and status, queues, live runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import DataPointT, InMemoryMetricReader, NumberDataPoint
from stories import by_turn

from remit import Agent, Limits, Usage, instrument, run, start
from remit.observe.otel.background import background
from remit.observe.otel.instrument import uninstrument
from remit.testing import ScriptedModel, call, calls, fail, say

CHILD = Agent("child")
LEAD = Agent("lead", subagents=[CHILD])


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    made = InMemoryMetricReader()
    provider = MeterProvider([made], shutdown_on_exit=False)
    instrument(meter_provider=provider)
    yield made
    uninstrument()
    provider.shutdown()


def points(reader: InMemoryMetricReader, name: str) -> list[DataPointT]:
    background.flush(5.0)
    data = reader.get_metrics_data()
    return [
        point
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


def sums(reader: InMemoryMetricReader, name: str, *by: str) -> dict[tuple[object, ...], float]:
    found: dict[tuple[object, ...], float] = {}
    for point in points(reader, name):
        key = tuple((point.attributes or {}).get(one) for one in by)
        found[key] = found.get(key, 0) + (point.value if isinstance(point, NumberDataPoint) else point.sum)
    return found


async def test_model_calls_are_timed_and_counted(reader: InMemoryMetricReader) -> None:
    """Every attempt has its duration, with what went wrong; tokens are counted by type, and none are not."""
    script = [
        fail("busy", "overloaded", delay=2, retry_after=1, usage=Usage(1, 7)),
        say("ok", delay=3, usage=Usage(1, 100, 20)),
    ]
    await run(CHILD, "go", model=ScriptedModel({"child": script}))
    name = "gen_ai.client.operation.duration"
    by = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "error.type")
    assert sums(reader, name, *by) == {
        ("chat", "custom", "scripted", "overloaded"): pytest.approx(2.0),
        ("chat", "custom", "scripted", None): pytest.approx(3.0),
    }
    tokens = sums(reader, "gen_ai.client.token.usage", "gen_ai.token.type", "error.type")
    assert tokens == {("input", "overloaded"): 7, ("input", None): 100, ("output", None): 20}


async def test_runs_are_counted_by_agent_and_status(reader: InMemoryMetricReader) -> None:
    """Runs that ended are counted by agent and status; those that live are counted while they do."""
    tasks = [call("task", agent="child", prompt=one) for one in "ab"]
    scripts = {"lead": [calls(*tasks), say("done")], "child": [fail("no", "auth")]}
    async with start(LEAD, "go", model=ScriptedModel(scripts)) as running:
        async for event in running.events():
            if event.kind == "turn_started" and event.agent == "child":
                assert sums(reader, "remit.runs.live", "gen_ai.agent.name")["lead",] == 1
        await running.outcome()
    by = ("gen_ai.agent.name", "remit.status")
    ended = sums(reader, "remit.invocations", *by)
    assert ended == {("lead", "completed"): 1, ("child", "failed"): 2}
    assert set(sums(reader, "remit.runs.live", "gen_ai.agent.name").values()) == {0}


async def test_waiting_for_a_place_is_counted(reader: InMemoryMetricReader) -> None:
    """How long children waited for a place."""
    tasks = [call("task", agent="child", prompt=one) for one in "ab"]
    scripts = {"lead": [calls(*tasks), say("done")], "child": by_turn(say("ok", delay=10))}
    await run(LEAD, "go", model=ScriptedModel(scripts), limits=Limits(concurrency=1))
    assert sums(reader, "remit.queue.duration", "gen_ai.agent.name") == {("child",): pytest.approx(10.0)}
