"""In which span code that is not ours runs, and where the spans of runs stand."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
from opentelemetry import baggage, context, trace
from tracebench import Traced, traced

from remit import (
    Agent,
    ApprovalRequest,
    Limits,
    ProgramContext,
    Reply,
    Request,
    ToolContext,
    allow,
    run,
    run_sync,
    tool,
)
from remit.testing import ScriptedModel, call, calls, fail, say
from remit.tools.policy import Decision
from remit.types.ports import Emit

CHILD = Agent("child")


def one_call(tool_name: str, **args: object) -> ScriptedModel:
    return ScriptedModel({"lead": [call(tool_name, args), say("done")], "child": [say("ok")]})


def mark(made: Traced, name: str = "mark") -> None:
    made.tracer.start_span(name).end()


async def test_a_tree_is_below_its_callers_span() -> None:
    """A caller's span is the parent of the root's; without one, each tree is a trace of its own."""
    with traced() as made:
        with made.tracer.start_as_current_span("request"):
            await run(CHILD, "go", model=ScriptedModel({"child": [say("ok")]}))
        await run(CHILD, "go", model=ScriptedModel({"child": [say("ok")]}))
    first, second = made.spans.all("invoke_agent")
    assert made.spans.above(first) == ["request"]
    assert second.parent == ""
    assert first.trace != second.trace


def test_run_sync_is_below_its_callers_span_too() -> None:
    """The same without an event loop."""
    with traced() as made, made.tracer.start_as_current_span("request"):
        run_sync(CHILD, "go", model=ScriptedModel({"child": [say("ok")]}))
    assert made.spans.above(made.spans.one("invoke_agent")) == ["request"]


async def test_a_tree_inside_a_tool_is_below_the_call() -> None:
    """`run()` in a tool starts another tree: it belongs to the trace of the call."""

    @tool(tier="observe")
    async def inner() -> str:
        """Runs another tree."""
        return (await run(CHILD, "go", model=ScriptedModel({"child": [say("ok")]}))).text

    with traced() as made:
        await run(Agent("lead", tools=[inner]), "go", model=one_call("inner"))
    made.spans.check()
    assert made.spans.above(made.spans.one("invoke_agent child")) == [
        "execute_tool inner",
        "invoke_agent lead",
    ]


async def test_the_callers_context_is_back_after_a_run() -> None:
    """A run leaves no span behind as the current one, and its caller's baggage reaches the tools."""
    heard: list[object] = []

    @tool(tier="observe")
    async def hear() -> str:
        """Hears."""
        heard.append(baggage.get_baggage("user"))
        return ""

    with traced() as made:
        token = context.attach(baggage.set_baggage("user", "u1"))
        with made.tracer.start_as_current_span("request") as span:
            await run(Agent("lead", tools=[hear]), "go", model=one_call("hear"))
            assert trace.get_current_span() is span
        context.detach(token)
    assert heard == ["u1"]


async def test_a_function_that_returns_an_awaitable() -> None:
    """A sync tool that returns a coroutine: both parts run inside the call's span."""
    with traced() as made:

        @tool(tier="observe")
        def late():
            """Gives a coroutine."""
            mark(made, "in thread")

            async def rest() -> str:
                await asyncio.sleep(1)
                mark(made, "in task")
                return "done"

            return rest()

        await run(Agent("lead", tools=[late]), "go", model=one_call("late"))
    for name in ("in thread", "in task"):
        assert made.spans.above(made.spans.one(name)) == ["execute_tool late", "invoke_agent lead"]


async def test_parallel_calls_do_not_mix() -> None:
    """Spans of calls that run at once are each in their own call, in tasks and in threads."""
    with traced() as made:

        @tool(tier="observe")
        async def task_tool(name: str) -> str:
            """In a task."""
            await asyncio.sleep(1)
            mark(made, name)
            return name

        @tool(tier="observe")
        def thread_tool(name: str) -> str:
            """In a thread."""
            mark(made, name)
            return name

        ids = [f"{kind} {n:02}" for kind in ("task_tool", "thread_tool") for n in range(20)]
        wanted = [call(one.partition(" ")[0], name=one, id=one) for one in ids]
        model = ScriptedModel({"lead": [calls(*wanted), say("done")]})
        await run(Agent("lead", tools=[task_tool, thread_tool]), "go", model=model)
    for one in ids:
        assert made.spans.by_id[made.spans.one(one).parent]["gen_ai.tool.call.id"] == one


async def test_children_that_a_thread_asks_for() -> None:
    """A sync tool's children are below its call, also if it asks for them from a thread of its own without a context."""

    @tool(tier="observe")
    def ask(ctx: ToolContext) -> str:
        """Asks for two."""
        ctx.delegate_sync(CHILD, "one")
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(ctx.delegate_sync, CHILD, "two").result().text

    with traced() as made:
        await run(Agent("lead", tools=[ask], subagents=[CHILD]), "go", model=one_call("ask"))
    made.spans.check()
    children = made.spans.all("invoke_agent child")
    assert [made.spans.above(child) for child in children] == [["execute_tool ask", "invoke_agent lead"]] * 2


async def test_children_of_a_program() -> None:
    """A program's spans, steps and children are inside its run's span, or inside a span that its code made."""

    with traced() as made:

        def in_thread() -> int:
            mark(made, "in thread")
            return 1

        async def program(ctx: ProgramContext) -> str:
            mark(made, "in program")
            await ctx.step("count", in_thread)
            mark(made, "after step")
            await ctx.delegate(CHILD, "one")
            with made.tracer.start_as_current_span("phase"):
                await ctx.map(CHILD, ["two", "three"])
            return "done"

        lead = Agent("lead", program=program, subagents=[CHILD])
        await run(lead, "go", model=ScriptedModel({"child": [say("ok")]}))
    made.spans.check()
    above = {span.name: made.spans.above(span) for span in made.spans}
    assert above["in program"] == above["after step"] == ["invoke_agent lead"]
    assert above["in thread"] == ["execute_tool count", "invoke_agent lead"]
    children = [made.spans.above(span) for span in made.spans.all("invoke_agent child")]
    assert children == [["invoke_agent lead"], *[["phase", "invoke_agent lead"]] * 2]
    assert made.spans.one("execute_tool count")["remit.tier"] == "step"
    assert made.spans.one("invoke_agent lead")["remit.mode"] == "program"


async def test_everything_else_of_a_run_is_in_its_span() -> None:
    """An approver's own spans are below the run that asks."""

    @tool
    async def change() -> str:
        """Changes something."""
        return "changed"

    with traced() as made:

        async def approver(request: ApprovalRequest) -> Decision:
            mark(made, "asked")
            return allow()

        await run(Agent("lead", tools=[change]), "go", model=one_call("change"), approver=approver)
    assert made.spans.above(made.spans.one("asked")) == ["invoke_agent lead"]


async def test_code_that_is_abandoned(caplog: pytest.LogCaptureFixture) -> None:
    """A tool that swallows every cancel is left behind: its span ends, and OpenTelemetry has nothing to complain about."""
    caplog.set_level(logging.DEBUG, logger="opentelemetry")

    @tool(tier="observe", timeout_s=1)
    async def stubborn() -> str:
        """Does not end."""
        while True:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                continue

    with traced() as made:
        outcome = await run(Agent("lead", tools=[stubborn]), "go", model=one_call("stubborn"))
    assert outcome.warnings
    made.spans.check()
    span = made.spans.one("execute_tool")
    assert (span["error.type"], span.failed) == ("tool_error", True)
    assert not [record for record in caplog.records if record.name.startswith("opentelemetry")]


async def test_deep_trees_in_one_task() -> None:
    """Runs that share a task with their parents each have their own place."""
    below: list[Agent] = []
    for level in range(10, 0, -1):
        below = [Agent(f"level{level}", subagents=below)]
    scripts = {
        f"level{n}": [call("task", agent=f"level{n + 1}", prompt="down"), say("up")] for n in range(1, 10)
    }
    with traced() as made:
        model = ScriptedModel({**scripts, "level10": [say("bottom")]})
        outcome = await run(below[0], "go", model=model, limits=Limits(depth=20))
    assert outcome.ok
    made.spans.check()
    assert len(made.spans.above(made.spans.one("invoke_agent level10"))) == 18


async def test_one_name_for_each_model_call() -> None:
    """When a model fails for good, the next one's calls have its name."""

    class Named:
        def __init__(self, name: str, model: ScriptedModel) -> None:
            self.name = name
            self._model = model

        async def reply(self, request: Request, emit: Emit) -> Reply:
            return await self._model.reply(request, emit)

    first = Named("openai-chat:gpt-5", ScriptedModel({"child": [fail("no", "auth")]}))
    second = Named("google:gemini-3", ScriptedModel({"child": [say("ok")]}))
    with traced() as made:
        await run(CHILD, "go", model=[first, second])
    chats = [(one.name, one["gen_ai.provider.name"]) for one in made.spans.all("chat")]
    assert chats == [("chat gpt-5", "openai"), ("chat gemini-3", "gcp.gemini")]
