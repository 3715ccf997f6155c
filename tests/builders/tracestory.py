"""A tree with everything that a trace shows: parallel and nested children, retries, a cancellation, a failure,
approvals, children started from code, a program, and spans of tools and of a provider's SDK.
"""

from __future__ import annotations

import asyncio

from opentelemetry.trace import Tracer

from remit import (
    Agent,
    ApprovalRequest,
    Limits,
    Outcome,
    Price,
    ProgramContext,
    Reply,
    Request,
    ToolContext,
    Usage,
    allow,
    deny,
    start,
    tool,
)
from remit.events import RunStarted
from remit.testing import ScriptedModel, call, calls, fail, say, wait
from remit.tools.policy import Decision
from remit.types.ports import Emit

WAIT_S = 0.05
USED = Usage(requests=1, input_tokens=100, output_tokens=7, cache_read_tokens=40, usd=0.000_123)


class Sdk:
    """A scripted model whose provider's SDK creates a span for each request."""

    name = "anthropic:claude-haiku-4-5"
    price = Price(input=1.0, output=5.0)

    def __init__(self, scripts: ScriptedModel, tracer: Tracer) -> None:
        self._scripts = scripts
        self._tracer = tracer

    async def reply(self, request: Request, emit: Emit) -> Reply:
        with self._tracer.start_as_current_span("sdk POST"):
            return await self._scripts.reply(request, emit)


def story(tracer: Tracer) -> tuple[Agent, Sdk]:
    """The lead of the tree, and its model."""

    @tool(tier="observe")
    async def fetch_page(address: str) -> str:
        """Fetches a page."""
        with tracer.start_as_current_span("GET page"):
            await asyncio.sleep(0.01)
        return f"page {address}"

    @tool(tier="observe")
    def count_words(text: str) -> int:
        """Counts words, in a thread."""
        with tracer.start_as_current_span("count in thread"):
            return len(text.split())

    @tool
    async def publish(name: str) -> str:
        """Publishes something."""
        return f"published {name}"

    @tool(tier="observe")
    async def survey(parts: list[str], ctx: ToolContext) -> str:
        """Starts readers for all parts."""
        with tracer.start_as_current_span("survey phase"):
            outcomes = await ctx.map(reader, [f"read {part}" for part in parts])
        return " ".join(outcome.text for outcome in outcomes)

    async def pipeline(ctx: ProgramContext) -> str:
        size = await ctx.step("measure", measure)
        outcome = await ctx.delegate(reader, f"read {size}")
        return f"piped {outcome.text}"

    async def measure() -> int:
        with tracer.start_as_current_span("measuring"):
            return 3

    reader = Agent("reader", description="Reads one thing.", instructions="Read.", tools=[count_words])
    explorer = Agent("explorer", description="Explores.", tools=[fetch_page, survey], subagents=[reader])
    flaky = Agent("flaky", description="Its provider is busy.")
    broken = Agent("broken", description="Its key is wrong.")
    sleeper = Agent("sleeper", description="Is cancelled.")
    scribe = Agent("scribe", description="Asks before it publishes.", tools=[publish])
    pipe = Agent("pipe", description="A program.", program=pipeline, subagents=[reader])
    workers = [explorer, flaky, broken, sleeper, scribe, pipe]
    lead = Agent("lead", description="Leads.", instructions="Lead.", subagents=workers)
    model = ScriptedModel(
        {
            "lead": [
                calls(
                    *(call("task", agent=one.name, prompt=f"do {one.name}") for one in workers), usage=USED
                ),
                say("all done", usage=USED),
            ],
            "explorer": [
                calls(call("fetch_page", address="a"), call("survey", parts=["x", "y"]), usage=USED),
                call("task", agent="reader", prompt="read nested", usage=USED),
                say("explored", usage=USED),
            ],
            "reader": [call("count_words", text="a b c", usage=USED), say("read", usage=USED, delay=0.01)],
            "flaky": [fail("busy", "overloaded", retry_after=WAIT_S, usage=USED), say("at last", usage=USED)],
            "broken": [fail("wrong key", "auth", usage=USED)],
            "sleeper": [wait(30.0)],
            "scribe": [
                calls(call("publish", name="draft"), call("publish", name="private"), usage=USED),
                say("one of two", usage=USED),
            ],
        }
    )
    return lead, Sdk(model, tracer)


async def answer(request: ApprovalRequest) -> Decision:
    await asyncio.sleep(WAIT_S)
    return deny("private") if request.args["name"] == "private" else allow()


async def play(tracer: Tracer) -> Outcome:
    """Run the tree, and cancel its sleeper."""
    lead, model = story(tracer)
    limits = Limits(concurrency=8, usd=1.0)
    async with start(lead, "the task of the lead", model=model, approver=answer, limits=limits) as running:
        events = running.events()
        sleeping = await anext(events)
        while not (isinstance(sleeping, RunStarted) and sleeping.agent == "sleeper"):
            sleeping = await anext(events)
        await asyncio.sleep(WAIT_S)
        await running.cancel("no longer needed", run=sleeping.run)
        return await running.outcome()
