"""Measure the cost of traces: a tree with and without them, compared with the same spans created by hand.

    .venv/bin/python benchmarks/traces.py [--rounds 15] [--turns 200]

The model and the tool answer at once. Spans go to a batch processor whose exporter drops them. "By hand" means that the
same tree runs without traces, and that the model, the tool and the caller create their spans with
`start_as_current_span`, with the same attributes at the same moments. CPU time of the whole process is compared,
including threads; rounds alternate, and medians are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import SpanKind, Tracer

from remit import Agent, Call, Limits, Reply, Request, Tool, Usage, instrument, run, tool
from remit.observe.otel.background import background
from remit.observe.otel.instrument import uninstrument
from remit.types.ports import Emit

USED = Usage(requests=1, input_tokens=100, output_tokens=20, usd=0.001)


class Nowhere(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        del spans
        return SpanExportResult.SUCCESS


SHARED = {"gen_ai.agent.name": "lead", "gen_ai.conversation.id": "abcdefghij", "remit.run.id": "abcdefghij"}
ASKED = {"gen_ai.provider.name": "anthropic", "gen_ai.request.model": "claude-haiku-4-5"}


class Model:
    """Calls a tool `turns` times, and answers."""

    name = "anthropic:claude-haiku-4-5"

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.turn = 0

    async def reply(self, request: Request, emit: Emit) -> Reply:
        del request, emit
        turn, self.turn = self.turn, self.turn + 1
        if turn == self.turns:
            return Reply("done", usage=USED)
        return Reply("", (Call(str(turn), "look", {"what": str(turn)}),), stop="calls", usage=USED)


class ByHand(Model):
    """The same, with a span for each request."""

    def __init__(self, turns: int, tracer: Tracer) -> None:
        super().__init__(turns)
        self.tracer = tracer

    async def reply(self, request: Request, emit: Emit) -> Reply:
        attributes = {
            "gen_ai.operation.name": "chat",
            **SHARED,
            "remit.turn": self.turn,
            "remit.attempt": 1,
            "remit.purpose": "turn",
            "gen_ai.request.max_tokens": request.max_output_tokens,
            **ASKED,
        }
        with self.tracer.start_as_current_span(
            "chat claude-haiku-4-5", kind=SpanKind.CLIENT, attributes=attributes
        ) as span:
            reply = await super().reply(request, emit)
            span.set_attributes(
                {
                    "gen_ai.usage.input_tokens": USED.input_tokens,
                    "gen_ai.usage.output_tokens": USED.output_tokens,
                    "gen_ai.usage.cost": 0.001,
                    "operation.cost": 0.001,
                    "gen_ai.response.finish_reasons": (reply.stop,),
                }
            )
            return reply


@tool(tier="observe")
async def look(what: str) -> str:
    """Looks."""
    return what


def look_by_hand(tracer: Tracer) -> Tool:
    """The same, with a span for each call."""

    @tool(name="look", tier="observe")
    async def traced_look(what: str) -> str:
        """Looks."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            **SHARED,
            "gen_ai.tool.name": "look",
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": what,
            "gen_ai.tool.description": "Looks.",
        }
        with tracer.start_as_current_span("execute_tool look", attributes=attributes) as span:
            span.set_attributes({"remit.tier": "observe"})
            return what

    return traced_look


def tree(model: Model, tool: Tool) -> None:
    lead = Agent("lead", description="Leads.", tools=[tool])
    outcome = asyncio.run(run(lead, "go", model=model, limits=Limits(turns=None, seconds=None)))
    assert outcome.ok, outcome


def tree_by_hand(tracer: Tracer, turns: int, tool: Tool) -> None:
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.id": "lead",
        "gen_ai.agent.description": "Leads.",
        "remit.depth": 0,
        "remit.mode": "loop",
        **SHARED,
        **ASKED,
    }
    with tracer.start_as_current_span("invoke_agent lead", attributes=attributes):
        tree(ByHand(turns, tracer), tool)


def spent(work: Callable[[], None]) -> float:
    gc.collect()
    began = time.process_time()
    work()
    background.flush(10.0)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turns", type=int, default=200)
    asked = parser.parse_args()
    turns, spans = asked.turns, 2 * asked.turns + 2
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Nowhere(), max_queue_size=65_536))
    tracer = provider.get_tracer("by hand")
    by_hand = look_by_hand(tracer)
    times: dict[str, list[float]] = {"off": [], "on": [], "by hand": []}
    for _ in range(asked.rounds + 1):
        times["off"].append(spent(lambda: tree(Model(turns), look)))
        times["by hand"].append(spent(lambda: tree_by_hand(tracer, turns, by_hand)))
        provider.force_flush()
        instrument(provider)
        times["on"].append(spent(lambda: tree(Model(turns), look)))
        uninstrument()
        provider.force_flush()
    # The first round warms up.
    off, on, hand = (statistics.median(each[1:]) / spans * 1e6 for each in times.values())
    print(f"{spans} spans a tree, {asked.rounds} rounds; microseconds of CPU per span")
    print(f"without traces {off:6.1f}\nby hand        {hand:6.1f}\nwith traces    {on:6.1f}")
    print(f"traces cost {on - off:.1f}, {(on - off) / (hand - off):.2f} times the same spans made by hand")
    provider.shutdown()


if __name__ == "__main__":
    main()
