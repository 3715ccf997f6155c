"""Providers that are wrong, exporters that raise or hang, and a missing package never break or slow a run."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from tracebench import Traced

import remit.observe.otel.background as background_module
from remit import Agent, UsageError, instrument, run, tool
from remit.observe.otel.background import Background, background
from remit.observe.otel.instrument import uninstrument
from remit.testing import ScriptedModel, call, say

SRC = Path(__file__).parents[3] / "src"


@tool(tier="observe")
async def look() -> str:
    """Looks."""
    return "saw"


LEAD = Agent("lead", tools=[look])


def model() -> ScriptedModel:
    return ScriptedModel({"lead": [call("look"), say("done")]})


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing of a test's broken providers is left to the next test."""
    background.clear()
    yield
    uninstrument()
    background.clear()


class _Exporter(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        raise RuntimeError("no route to host")


class _Hangs(SpanExporter):
    def __init__(self) -> None:
        self.free = threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.free.wait(60)
        return SpanExportResult.SUCCESS

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


class _BadProcessor(SpanProcessor):
    def __init__(self, *, at_start: bool) -> None:
        self.at_start = at_start

    def on_start(self, span: object, parent_context: object = None) -> None:
        if self.at_start:
            raise RuntimeError("a bug at the start")

    def on_end(self, span: ReadableSpan) -> None:
        raise SystemExit("a bug at the end")


class _Junk:
    """A provider whose tracers give nothing of use."""

    def get_tracer(self, *args: object, **named: object) -> _Junk:
        return self

    def start_span(self, *args: object, **named: object) -> None:
        return None


def provider(processor: SpanProcessor) -> TracerProvider:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(processor)
    return made


@pytest.mark.parametrize("wrong", [42, "jaeger", object()])
def test_a_wrong_provider_is_the_callers_error(wrong: object) -> None:
    """What is not a provider is refused by `instrument`, which names the argument and the value."""
    with pytest.raises(UsageError, match=r"instrument\(tracer_provider=.*does not work"):
        instrument(tracer_provider=wrong)  # pyright: ignore[reportArgumentType]
    with pytest.raises(UsageError, match=r"instrument\(meter_provider="):
        instrument(meter_provider=wrong)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "broken",
    [
        _Junk(),
        provider(SimpleSpanProcessor(_Exporter())),
        provider(_BadProcessor(at_start=True)),
        provider(_BadProcessor(at_start=False)),
    ],
    ids=["junk", "exporter", "start", "end"],
)
async def test_a_broken_provider_breaks_no_run(broken: TracerProvider) -> None:
    """A tracer, a processor or an exporter that raises changes nothing for the run."""
    instrument(broken, content=True)
    outcome = await run(LEAD, "go", model=model())
    assert (outcome.text, outcome.warnings) == ("done", ())


async def test_a_failure_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A provider that fails for every span is reported once, with its own error."""
    instrument(_Junk())  # pyright: ignore[reportArgumentType]
    await run(LEAD, "go", model=model())
    (said,) = [record for record in caplog.records if record.name == "remit"]
    assert "runs are not affected" in said.getMessage()


@pytest.mark.real_time
@pytest.mark.parametrize("processor", [SimpleSpanProcessor, BatchSpanProcessor])
async def test_an_exporter_that_hangs_slows_no_run(processor: type[SimpleSpanProcessor]) -> None:
    """A run with a hanging exporter ends, the event loop is never blocked, and only the first tree waits, for a second."""
    hangs = _Hangs()
    instrument(provider(processor(hangs)))
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - began)

    ticking = asyncio.create_task(tick())
    began = time.monotonic()
    assert (await run(LEAD, "go", model=model())).ok
    first, began = time.monotonic() - began, time.monotonic()
    for _ in range(20):
        assert (await run(LEAD, "go", model=model())).ok
    rest = time.monotonic() - began
    ticking.cancel()
    hangs.free.set()
    assert first < 3
    assert rest < 2
    assert longest < 0.5


async def test_spans_that_nobody_takes_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind an exporter that hangs, spans do not fill the memory."""
    monkeypatch.setattr(background_module, "MOST_WAITING", 10)
    free, done = threading.Event(), list[int]()
    made = Background()
    made.put(lambda: free.wait(10))
    for number in range(1000):
        made.put(lambda number=number: done.append(number))
    free.set()
    assert made.flush(10)
    assert 5 < len(done) <= 11


async def test_after_shutdown() -> None:
    """A provider that was shut down takes no spans, and runs go on."""
    made = Traced()
    instrument(made.provider)
    made.provider.shutdown()
    assert (await run(LEAD, "go", model=model())).ok


async def test_shutdown_in_the_middle() -> None:
    """The same if it happens during a run."""
    made = Traced()

    @tool(tier="observe")
    async def shut() -> str:
        """Shuts the provider down."""
        made.provider.shutdown()
        return "shut"

    instrument(made.provider)
    outcome = await run(
        Agent("lead", tools=[shut]), "go", model=ScriptedModel({"lead": [call("shut"), say("done")]})
    )
    assert outcome.ok


async def test_without_an_sdk_nothing_is_recorded() -> None:
    """With the API alone, which is what the extra installs, runs are as they were."""
    instrument()
    assert (await run(LEAD, "go", model=model())).ok


async def test_off_again() -> None:
    """After `uninstrument`, no tree is traced; a second `instrument` replaces the first."""
    first, second = Traced(), Traced()
    instrument(first.provider)
    instrument(second.provider)
    await run(LEAD, "go", model=model())
    uninstrument()
    await run(LEAD, "go", model=model())
    assert (len(first.spans), len(second.spans)) == (0, 4)


def test_spans_are_there_when_a_run_has_returned() -> None:
    """Every span of a tree has ended when its outcome is there: what is flushed then is whole."""
    for _ in range(20):
        made = Traced()
        instrument(made.provider)
        asyncio.run(run(LEAD, "go", model=model()))
        assert len(made.spans) == 4


def in_a_process(code: str) -> str:
    """What a program prints."""
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, env={"PYTHONPATH": str(SRC)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_without_the_package() -> None:
    """Without OpenTelemetry, `instrument` names the extra that brings it."""
    code = """
import sys
sys.modules["opentelemetry"] = None
import remit
try:
    remit.instrument()
except remit.UsageError as error:
    print(error)
"""
    assert in_a_process(code) == "instrument() needs OpenTelemetry: pip install 'remit[otel]'"


def test_a_forked_process_traces_too() -> None:
    """A process that was forked has a thread of its own for its spans."""
    code = """
import os
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
import remit
from remit import Agent, run_sync
from remit.testing import ScriptedModel, say
exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(SimpleSpanProcessor(exporter))
remit.instrument(provider)
def go():
    run_sync(Agent("a"), "go", model=ScriptedModel({"a": [say("ok")]}))
    return len(exporter.get_finished_spans())
print(go(), flush=True)
if os.fork() == 0:
    print(go(), flush=True)
    os._exit(0)
os.wait()
"""
    if sys.version_info >= (3, 12):
        code = f"import warnings; warnings.simplefilter('ignore')\n{code}"
    assert in_a_process(code).split() == ["2", "4"]
