"""What the spans say, and that every name is one of OpenTelemetry's or ours."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Decision as Sampled
from opentelemetry.sdk.trace.sampling import Sampler, SamplingResult
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes
from stories import a, by_turn, died
from tracebench import traced

import remit.observe.otel.names as names
from remit import (
    Agent,
    ApprovalRequest,
    Limits,
    ToolContext,
    Usage,
    allow,
    deny,
    instrument,
    resume,
    run,
    start,
    tool,
)
from remit.events import RunStarted
from remit.models.names import KNOWN, take_apart
from remit.observe.otel.instrument import uninstrument
from remit.stores.memory import MemoryStore
from remit.testing import ScriptedModel, call, calls, refuse, say, wait
from remit.tools.policy import Decision
from remit.types.events import CallEnded, ReplyReceived

ENDS = {"completed": None, "refused": "refused", "incomplete": "incomplete"}
NOT_OPENTELEMETRYS = {"gen_ai.usage.cost", "operation.cost"}
"""As Langfuse and Logfire read them."""


@tool(tier="observe")
async def look() -> str:
    """Looks."""
    return "saw"


@tool(tier="observe")
async def broken() -> str:
    """Raises."""
    raise ValueError("a secret in an error")


@tool
async def change(what: str) -> str:
    """Changes something."""
    return "changed"


CHILD = Agent("child", description="Looks around.", tools=[look])
LEAD = Agent("lead", subagents=[CHILD], tools=[look, broken, change])


def test_names_are_those_of_the_convention() -> None:
    """Every name of ours is in OpenTelemetry's list, or begins with `remit.`, or is known to be a receiver's own."""
    theirs = {
        value
        for module in (gen_ai_attributes, gen_ai_metrics, error_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {value for value in vars(names).values() if isinstance(value, str) and "." in value}
    ours |= set(names.SETTINGS.values())
    ours = {name for name in ours if name.startswith(("gen_ai.", "error.", "operation."))}
    assert len(ours) > 30
    assert ours - theirs == NOT_OPENTELEMETRYS


@pytest.mark.parametrize("provider", KNOWN)
def test_providers_are_taken_apart_as_models_are(provider: str) -> None:
    """A model's name is read as the registry of models reads it."""
    named = take_apart(f"{provider}:some-model:8b", {})
    assert names.provider_and_model(named.whole)[1] == named.model


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("google:gemini-3", ("gcp.gemini", "gemini-3")),
        ("openai-chat:gpt-5", ("openai", "gpt-5")),
        ("bedrock:claude", ("aws.bedrock", "claude")),
        ("http://localhost:8000/v1#llama", ("openai_compatible", "llama")),
        ("scripted", ("custom", "scripted")),
    ],
)
def test_providers_have_the_conventions_names(name: str, expected: tuple[str, str]) -> None:
    """A provider is called what the conventions call it; an address tells nothing but its model."""
    assert names.provider_and_model(name) == expected


async def test_what_a_run_says() -> None:
    """A run's span has its agent, its mode, its place, how it ended, its turns and the sums of its subtree."""
    model = ScriptedModel(
        {"lead": [call("task", agent="child", prompt="p"), say("done")], "child": [say("ok")]}
    )
    with traced() as made:
        await run(LEAD, "go", model=model)
    child = made.spans.one("invoke_agent child")
    assert child.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "child",
        "gen_ai.agent.id": "lead/child",
        "gen_ai.agent.description": "Looks around.",
        "gen_ai.conversation.id": "r1",
        "gen_ai.provider.name": "custom",
        "gen_ai.request.model": "scripted",
        "remit.run.id": "r1.1",
        "remit.depth": 1,
        "remit.mode": "loop",
        "remit.status": "completed",
        "remit.turns": 1,
        "remit.calls": 0,
        "remit.total.requests": 1,
        "remit.total.input_tokens": 10,
        "remit.total.output_tokens": 5,
        "remit.total.cache_read_tokens": 0,
        "remit.total.cache_write_tokens": 0,
    }


async def test_what_a_model_call_says() -> None:
    """A model call's span has its request, its answer and its cost."""
    used = Usage(1, 100, 20, 60, 30, usd=0.5)
    lead = Agent("lead", settings={"temperature": 0.5, "top_p": 1}, output=int)
    with traced() as made:
        await run(lead, "go", model=ScriptedModel({"lead": [say("3", usage=used)]}))
    (chat,) = made.spans.all("chat")
    assert chat.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "custom",
        "gen_ai.request.model": "scripted",
        "gen_ai.agent.name": "lead",
        "gen_ai.conversation.id": "r1",
        "gen_ai.request.max_tokens": 4096,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 1,
        "gen_ai.output.type": "json",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.cache_creation.input_tokens": 30,
        "gen_ai.usage.cost": 0.5,
        "operation.cost": 0.5,
        "remit.run.id": "r1",
        "remit.turn": 1,
        "remit.attempt": 1,
        "remit.purpose": "turn",
    }


@pytest.mark.parametrize("status", ENDS)
async def test_an_end_is_an_error_unless_it_completed(status: str) -> None:
    """`error.type` is the status of a run that did not complete."""
    step = {"completed": say("ok"), "refused": refuse("no"), "incomplete": say("cut", stop="length")}[status]
    with traced() as made:
        await run(CHILD, "go", model=ScriptedModel({"child": [step]}))
    span = made.spans.one("invoke_agent")
    assert (span["remit.status"], span.attributes.get("error.type")) == (status, ENDS[status])
    assert span.failed == (ENDS[status] is not None)


async def test_ways_in_which_a_call_fails() -> None:
    """A call says in a word why it failed. The name of a tool that a model made up is not repeated."""
    invented = "my password is hunter2"
    wanted = {
        "ok": call("look"),
        "tool_error": call("broken"),
        "not_run": call("change", "no json"),
        "denied": call("change", what="x"),
        "depth": call("task", agent="child", prompt="p"),
    }
    model = ScriptedModel({"lead": [calls(*wanted.values(), call(invented)), say("done")]})
    with traced() as made:
        await run(LEAD, "go", model=model, limits=Limits(depth=0), policy=["ask change"])
    found = [span.attributes.get("error.type", "ok") for span in made.spans.all("execute_tool")]
    assert sorted(map(str, found)) == sorted([*wanted, "not_run"])
    assert made.spans.one("execute_tool unknown")["error.type"] == "not_run"
    assert not [span for span in made.spans if invented in f"{span.name} {span.attributes}"]


async def test_waiting_for_a_person_is_measured() -> None:
    """`remit.approval_s` is how long the person took, whatever the answer."""

    async def approver(request: ApprovalRequest) -> Decision:
        await asyncio.sleep(30 if request.args["what"] == "slow" else 5)
        return deny("no") if request.args["what"] == "slow" else allow()

    steps = [call("change", what="slow"), call("change", what="quick"), say("done")]
    with traced() as made:
        await run(LEAD, "go", model=ScriptedModel({"lead": steps}), approver=approver)
    waited = [(span["remit.approval_s"], span.failed) for span in made.spans.all("execute_tool")]
    assert waited == [(30.0, True), (5.0, False)]


async def test_waiting_for_a_place_is_measured() -> None:
    """`remit.queue_s` is how long a child waited for a place, whether a model or code asked for it."""

    @tool(tier="observe")
    async def ask(ctx: ToolContext) -> str:
        """Asks for two."""
        await ctx.map(CHILD, ["one", "two"], concurrency=2)
        return "done"

    lead = Agent("lead", subagents=[CHILD], tools=[ask])
    two = [call("task", agent="child", prompt=prompt) for prompt in "ab"]
    model = ScriptedModel(
        {"lead": [calls(*two), call("ask"), say("done")], "child": by_turn(say("ok", delay=10.0))}
    )
    with traced() as made:
        await run(lead, "go", model=model, limits=Limits(concurrency=1))
    waited = [span.attributes.get("remit.queue_s") for span in made.spans.all("invoke_agent child")]
    assert waited == [None, 10.0, None, 10.0]


async def test_a_call_that_waits_for_its_run_to_be_stopped() -> None:
    """A run that times out: the call it was in is stopped, and the wrap-up is a model call of its own."""

    @tool(tier="observe")
    async def sleep() -> str:
        """Sleeps."""
        await asyncio.sleep(1000)
        return ""

    lead = Agent("lead", tools=[sleep])
    with traced() as made:
        model = ScriptedModel({"lead": by_turn(call("sleep"))})
        outcome = await run(lead, "go", model=model, limits=Limits(seconds=60))
    assert made.spans.one("invoke_agent")["error.type"] == outcome.status == "timed_out"
    assert made.spans.one("execute_tool")["error.type"] == "stopped"
    assert [chat["remit.purpose"] for chat in made.spans.all("chat")] == ["turn", "wrap_up"]


async def test_a_resumed_tree_links_to_its_first_trace() -> None:
    """A resumed tree is a trace of its own, which links to the first; only what is done again has spans."""
    script = {
        "lead": by_turn(call("task", agent="child", prompt="p"), say("done")),
        "child": by_turn(call("look"), say("ok")),
    }
    store = MemoryStore()
    with traced() as first:
        await run(LEAD, "go", model=ScriptedModel(script), store=store)
    dead = await died(store, a(CallEnded, tool="look"))
    with traced() as second:
        outcome = await resume(dead, "r1", agent=LEAD, model=ScriptedModel(script))
    before, after = first.spans, second.spans
    after.check()
    root = after.one("invoke_agent lead")
    assert root.links == (before[0].trace,)
    assert root.trace != before[0].trace
    assert root["remit.resumed"] is True
    assert after.above(after.one("invoke_agent child")) == ["execute_tool task", "invoke_agent lead"]
    assert [span.name for span in after] == [
        "invoke_agent lead",
        "execute_tool task",
        "invoke_agent child",
        "chat scripted",
        "chat scripted",
    ]
    assert root["remit.total.requests"] == outcome.total_usage.requests == 4
    started = [event async for event in dead.read("r1") if isinstance(event, RunStarted)]
    assert started[0].trace == f"00-{before[0].trace}-{before.one('invoke_agent lead').id}-03"


async def test_a_tree_that_dies_twice_still_links_to_its_first_trace() -> None:
    """Also the third execution links to the first."""
    script = {"lead": by_turn(call("look"), call("look"), say("done"))}
    store, traces = MemoryStore(), []
    with traced() as made:
        await run(LEAD, "go", model=ScriptedModel(script), store=store)
        traces.append(made.spans[0].trace)
    for turn in (1, 2):
        store = await died(store, a(ReplyReceived), turn)
        with traced() as made:
            await resume(store, "r1", agent=LEAD, model=ScriptedModel(script))
        assert made.spans.one("invoke_agent lead").links == (traces[0],)


async def test_a_broken_trace_in_a_journal_is_ignored() -> None:
    """What a journal has instead of a trace links to nothing, and nothing fails."""
    script = {"lead": by_turn(call("look"), say("done"))}
    store = MemoryStore()
    await run(LEAD, "go", model=ScriptedModel(script), store=store)
    dead = await died(store, a(CallEnded))
    with traced() as made:
        outcome = await resume(dead, "r1", agent=LEAD, model=ScriptedModel(script))
    assert outcome.ok
    assert made.spans.one("invoke_agent lead").links == ()


class _Choosy(Sampler):
    """Keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[dict[str, object]] = []

    def should_sample(  # noqa: PLR0917 - as its base has it
        self, parent_context, trace_id, name, kind=None, attributes=None, links=None, trace_state=None
    ):
        self.shown.append(dict(attributes or {}))
        return SamplingResult(Sampled.DROP)

    def get_description(self) -> str:
        return "choosy"


async def test_a_sampler_can_decide() -> None:
    """A sampler sees operation, agent, provider and model when a span starts; what it drops costs no answer."""
    sampler, exporter = _Choosy(), InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    instrument(provider, content=True)
    try:
        outcome = await run(CHILD, "go", model=ScriptedModel({"child": [call("look"), say("ok")]}))
    finally:
        uninstrument()
    assert outcome.ok
    assert not exporter.get_finished_spans()
    operations = [one["gen_ai.operation.name"] for one in sampler.shown]
    assert operations == ["invoke_agent", "chat", "execute_tool", "chat"]
    wanted = {"gen_ai.agent.name", "gen_ai.provider.name", "gen_ai.request.model"}
    assert all(wanted <= set(one) for one in sampler.shown if one["gen_ai.operation.name"] != "execute_tool")


async def test_cancelled_before_it_answers() -> None:
    """A run that is cancelled while its model thinks says so, and so does the model call."""

    with traced() as made:
        async with start(CHILD, "go", model=ScriptedModel({"child": [wait(100.0)]})) as running:
            await asyncio.sleep(1)
            await running.cancel("enough")
    assert made.spans.one("invoke_agent")["error.type"] == "cancelled"
    assert made.spans.one("chat")["error.type"] == "stopped"
    assert made.spans.one("chat")["remit.usage.estimated"] is True
