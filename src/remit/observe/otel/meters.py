"""The metrics: duration and tokens of model calls, ended runs, queue times, live runs."""

from __future__ import annotations

from opentelemetry.metrics import Counter, Histogram, MeterProvider, UpDownCounter

import remit.observe.otel.names as names
from remit.types.limits import Usage

Labels = dict[str, str]


class Meters:
    """The instruments of one meter provider. Raises what the provider raises."""

    def __init__(self, provider: MeterProvider, version: str) -> None:
        meter = provider.get_meter(names.SCOPE, version, schema_url=names.SCHEMA_URL)
        self._duration: Histogram = meter.create_histogram(
            names.OPERATION_DURATION,
            unit="s",
            description="How long a model call took.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self._tokens: Histogram = meter.create_histogram(
            names.TOKENS_USED,
            unit="{token}",
            description="Tokens of a model call, by type.",
            explicit_bucket_boundaries_advisory=names.TOKENS_BUCKETS,
        )
        self._queue: Histogram = meter.create_histogram(
            names.QUEUE_DURATION,
            unit="s",
            description="How long a run waited for a slot before it started.",
            explicit_bucket_boundaries_advisory=names.DURATION_BUCKETS,
        )
        self._ended: Counter = meter.create_counter(
            names.INVOCATIONS, unit="{run}", description="Runs that ended, by agent and status."
        )
        self._live: UpDownCounter = meter.create_up_down_counter(
            names.LIVE_RUNS, unit="{run}", description="Runs that have started and not ended."
        )

    def model_call(self, seconds: float, usage: Usage, labels: Labels) -> None:
        self._duration.record(max(0.0, seconds), labels)
        for kind, tokens in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            if tokens:
                self._tokens.record(tokens, labels | {names.TOKENS_TYPE: kind})

    def started(self, agent: str, queue_s: float | None) -> None:
        self._live.add(1, {names.AGENT_NAME: agent})
        if queue_s is not None:
            self._queue.record(max(0.0, queue_s), {names.AGENT_NAME: agent})

    def ended(self, agent: str, status: str) -> None:
        """`status` is empty for a run without an outcome."""
        self._live.add(-1, {names.AGENT_NAME: agent})
        if status:
            self._ended.add(1, {names.AGENT_NAME: agent, names.STATUS: status})
