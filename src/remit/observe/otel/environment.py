"""Traces and metrics configured by `OTEL_...` variables, for remit's own programs.

Only OTLP is supported: console output would mix with the answer of a run.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

import remit.tasks.threads as threads
from remit.errors import UsageError
from remit.observe.otel.instrument import instrument, uninstrument
from remit.types.text import FOREIGN, describe_error, one_line, shorten

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    from remit.history.secret_patterns import SecretPattern

CLOSE_S = 5.0
"""How long to wait for the receiver at the end."""

CONTENT = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
PACKAGES = "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http"
PROTOCOLS = {"http/protobuf": "http", "grpc": "grpc"}


class _Closes(Protocol):
    def shutdown(self) -> object: ...


def wanted(environment: Mapping[str, str], signal: str) -> bool:
    """Whether the variables enable a signal: `TRACES` or `METRICS`."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get(f"OTEL_{signal}_EXPORTER", "").strip().lower()
    if exporter:
        return exporter != "none"
    ends = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT")
    return any(environment.get(name) for name in ends)


@asynccontextmanager
async def exporting(
    tell: Callable[[str], None], *, secrets: Sequence[str | SecretPattern] = ()
) -> AsyncGenerator[None]:
    """Trace trees inside the block, if variables enable that. `tell` gets a message if export fails.

    At the end, waits up to `CLOSE_S` for the receiver.
    """
    if not (wanted(os.environ, "TRACES") or wanted(os.environ, "METRICS")):
        yield
        return
    heard = _Heard()
    logging.getLogger("opentelemetry").addHandler(heard)
    opened: list[_Closes] = []
    try:
        opened += _open(os.environ, secrets)
    except UsageError as error:
        tell(f"Traces are off: {error}")
    except FOREIGN as error:
        tell(f"Traces are off: {describe_error(error)}")
    try:
        yield
    finally:
        uninstrument()
        await _close(opened, heard, tell)
        logging.getLogger("opentelemetry").removeHandler(heard)


async def _close(opened: list[_Closes], heard: _Heard, tell: Callable[[str], None]) -> None:
    if not opened:
        return
    job = threads.start(
        lambda: [one.shutdown() for one in opened],
        asyncio.get_running_loop(),
        name="the end of traces",
        urgent=True,
    )
    try:
        await asyncio.wait_for(job.wait(), CLOSE_S)
    except TimeoutError:
        job.abandon()
        tell(f"Some traces were not exported: the receiver did not respond within {CLOSE_S:g} s.")
        return
    if heard.first:
        tell(f"Some traces or metrics were not exported: {shorten(one_line(heard.first), 300, 297)}")


class _Heard(logging.Handler):
    """Keeps OpenTelemetry's first warning: a log line would break the display of the live tree."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.first = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.first = self.first or record.getMessage()


def _open(environment: Mapping[str, str], secrets: Sequence[str | SecretPattern]) -> list[_Closes]:
    """Set up the providers that variables ask for, and instrument with them. Raises UsageError."""
    content = environment.get(CONTENT, "").strip().lower() not in ("", "false", "no_content", "event_only")
    if _is_set_up():
        # Set up by `opentelemetry-instrument` or by the calling program, which also closes them.
        instrument(content=content, secrets=secrets)
        return []
    try:
        resource = _resource(environment)
        tracers = _tracers(environment, resource) if wanted(environment, "TRACES") else None
        meters = _meters(environment, resource) if wanted(environment, "METRICS") else None
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise UsageError(
            f"{error.name} is not installed. Run: pip install 'remit[otel]' {PACKAGES}"
        ) from None
    instrument(tracers, meters, content, secrets=secrets)
    return [one for one in (tracers, meters) if one is not None]


def _is_set_up() -> bool:
    try:
        from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        return False
    return not isinstance(get_tracer_provider(), ProxyTracerProvider)


def _resource(environment: Mapping[str, str]) -> Resource:
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra

    named = "OTEL_SERVICE_NAME" in environment or "service.name=" in environment.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return Resource.create({} if named else {"service.name": "remit"})


def _tracers(environment: Mapping[str, str], resource: Resource) -> TracerProvider:
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter  # noqa: PLC0415
    from opentelemetry.trace import set_tracer_provider  # noqa: PLC0415

    make = cast("Callable[[], SpanExporter]", _exporter(environment, "TRACES", "OTLPSpanExporter"))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(make()))
    # For the spans of tools and of provider SDKs.
    set_tracer_provider(provider)
    return provider


def _meters(environment: Mapping[str, str], resource: Resource) -> MeterProvider:
    from opentelemetry.metrics import set_meter_provider  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.metrics import MeterProvider  # noqa: PLC0415
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415
        MetricExporter,
        PeriodicExportingMetricReader,
    )

    make = cast("Callable[[], MetricExporter]", _exporter(environment, "METRICS", "OTLPMetricExporter"))
    readers = [PeriodicExportingMetricReader(make())]
    provider = MeterProvider(readers, resource=resource, shutdown_on_exit=False)
    set_meter_provider(provider)
    return provider


def _exporter(environment: Mapping[str, str], signal: str, name: str) -> object:
    """The class of an exporter. Raises UsageError and ModuleNotFoundError."""
    variable = f"OTEL_{signal}_EXPORTER"
    exporter = environment.get(variable, "").strip().lower() or "otlp"
    if exporter != "otlp":
        raise UsageError(f"{variable}={exporter!r} is unsupported here. Set it to otlp or none.")
    protocol = (
        environment.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL")
        or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    if protocol not in PROTOCOLS:
        raise UsageError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r} is unsupported. Use http/protobuf or grpc."
        )
    module = "trace_exporter" if signal == "TRACES" else "metric_exporter"
    return getattr(import_module(f"opentelemetry.exporter.otlp.proto.{PROTOCOLS[protocol]}.{module}"), name)
