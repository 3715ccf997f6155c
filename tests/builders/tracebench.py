"""Traces in tests: a provider that keeps its spans, and an OTLP receiver on this machine."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from remit import instrument
from remit.observe.otel.instrument import uninstrument


@dataclass(frozen=True)
class Seen:
    """A span as a receiver sees it, from either source."""

    name: str
    trace: str
    id: str
    parent: str
    start: int
    end: int
    attributes: dict[str, object]
    failed: bool
    links: tuple[str, ...] = ()
    """Traces."""
    why: str = ""

    def __getitem__(self, name: str) -> object:
        return self.attributes[name]

    def __contains__(self, name: str) -> bool:
        return name in self.attributes


class Spans(list[Seen]):
    """All spans of a trace, in the order in which they started."""

    def __init__(self, spans: Iterable[Seen]) -> None:
        super().__init__(sorted(spans, key=lambda span: span.start))
        self.by_id = {span.id: span for span in self}

    def one(self, name: str, **attributes: object) -> Seen:
        (found,) = self.all(name, **attributes)
        return found

    def all(self, name: str, **attributes: object) -> list[Seen]:
        """By the beginning of the name, and by attributes (`remit__run__id` for `remit.run.id`)."""
        wanted = {key.replace("__", "."): value for key, value in attributes.items()}
        return [
            span
            for span in self
            if span.name.startswith(name) and all(span.attributes.get(key) == v for key, v in wanted.items())
        ]

    def above(self, span: Seen) -> list[str]:
        """The names of the parents of a span, nearest first."""
        found: list[str] = []
        while span.parent in self.by_id:
            span = self.by_id[span.parent]
            found.append(span.name)
        return found

    def below(self, span: Seen) -> list[Seen]:
        return [one for one in self if one.parent == span.id]

    def subtree(self, span: Seen) -> list[Seen]:
        return [span, *(one for child in self.below(span) for one in self.subtree(child))]

    def check(self) -> None:
        """Check that there is one trace with one root, that every parent exists, and that parents enclose their
        children.
        """
        assert len({span.trace for span in self}) == 1
        assert len([span for span in self if span.parent not in self.by_id]) == 1
        for span in self:
            parent = self.by_id.get(span.parent)
            assert span.start <= span.end
            assert parent is None or parent.start <= span.start <= span.end <= parent.end, (span, parent)

    def sums(self, run: Seen) -> dict[str, int]:
        """The usage of the model calls of a run and its descendants, as the run's span should report it."""
        chats = [span for span in self.subtree(run) if span.name.startswith("chat")]
        usages = {"input": "input_tokens", "output": "output_tokens"}
        return {
            f"remit.total.{usages[kind]}": sum(_int(chat[f"gen_ai.usage.{usages[kind]}"]) for chat in chats)
            for kind in usages
        }


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value


def read(spans: Sequence[ReadableSpan]) -> Spans:
    return Spans(_of_sdk(span) for span in spans)


def _of_sdk(span: ReadableSpan) -> Seen:
    assert span.context is not None
    return Seen(
        name=span.name,
        trace=f"{span.context.trace_id:032x}",
        id=f"{span.context.span_id:016x}",
        parent="" if span.parent is None else f"{span.parent.span_id:016x}",
        start=span.start_time or 0,
        end=span.end_time or 0,
        attributes=dict(span.attributes or {}),
        failed=span.status.status_code.name == "ERROR",
        links=tuple(f"{link.context.trace_id:032x}" for link in span.links),
        why=span.status.description or "",
    )


class Traced:
    """A provider that keeps its spans."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer = self.provider.get_tracer("somebody else")

    @property
    def spans(self) -> Spans:
        return read(self.exporter.get_finished_spans())


@contextmanager
def traced(*, content: bool = False, secrets: Sequence[str] = ()) -> Generator[Traced]:
    """Trace the trees that start inside."""
    made = Traced()
    instrument(made.provider, content=content, secrets=secrets)
    try:
        yield made
    finally:
        uninstrument()


# --- A receiver ----------------------------------------------------------------------------------


@dataclass
class Receiver:
    """The data received by OTLP (http/protobuf)."""

    address: str
    got: list[Seen] = field(default_factory=list[Seen])
    services: set[str] = field(default_factory=set[str])
    metrics: set[str] = field(default_factory=set[str])

    @property
    def spans(self) -> Spans:
        return Spans(self.got)

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics |= {metric.name for scope in resource.scope_metrics for metric in scope.metrics}
            return
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            self.services |= {
                attribute.value.string_value
                for attribute in resource.resource.attributes
                if attribute.key == "service.name"
            }
            self.got += [
                Seen(
                    name=span.name,
                    trace=span.trace_id.hex(),
                    id=span.span_id.hex(),
                    parent=span.parent_span_id.hex(),
                    start=span.start_time_unix_nano,
                    end=span.end_time_unix_nano,
                    attributes={one.key: _value(one.value) for one in span.attributes},
                    failed=span.status.code == span.status.STATUS_CODE_ERROR,
                    links=tuple(link.trace_id.hex() for link in span.links),
                    why=span.status.message,
                )
                for scope in resource.scope_spans
                for span in scope.spans
            ]


def _value(value: AnyValue) -> object:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return tuple(map(_value, value.array_value.values))
    return getattr(value, str(kind))


@contextmanager
def receiver() -> Generator[Receiver]:
    """An OTLP receiver on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            made.take(self.path, body)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as its base has it
            """Ignores the request log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made = Receiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
