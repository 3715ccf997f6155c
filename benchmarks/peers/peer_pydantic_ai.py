"""pydantic-ai: a tool that runs a child Agent, sharing usage with the parent."""

from common import DELEGATE_DOC, ECHO_DOC, SYSTEM_CHILD, SYSTEM_PARENT

DIST = "pydantic-ai-slim"
IMPORT = "from pydantic_ai import Agent, RunContext; from pydantic_ai.models import Model"

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

NO_LIMIT = UsageLimits(request_limit=None)


def results(messages):
    return [p.content for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]


def model(brain):
    async def call(messages, info):
        out = await brain.step(messages, results)
        if isinstance(out, str):
            parts = [TextPart(out)]
        else:
            parts = [ToolCallPart(t, {"text": v}, c) for c, t, v in out]
        # usage is given so that FunctionModel does not walk the history to guess it
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=1, output_tokens=1))

    return FunctionModel(call)


def echo(brain):
    agent = Agent(model(brain), instructions=SYSTEM_PARENT)

    @agent.tool_plain(description=ECHO_DOC)
    async def echo(text: str) -> str:
        return text

    async def run():
        return (await agent.run("go", usage_limits=NO_LIMIT)).output

    return run


def _agents(brains):
    agents = [
        Agent(model(b), instructions=SYSTEM_PARENT if k == 0 else SYSTEM_CHILD) for k, b in enumerate(brains)
    ]
    for parent, child in zip(agents, agents[1:]):

        def add(parent=parent, child=child):
            @parent.tool(description=DELEGATE_DOC)
            async def delegate(ctx: RunContext[None], text: str) -> str:
                return (await child.run(text, usage=ctx.usage, usage_limits=NO_LIMIT)).output

        add()
    return agents


def chain(brains):
    top = _agents(brains)[0]

    async def run():
        return (await top.run("go", usage_limits=NO_LIMIT)).output

    return run


def fanout(parent, child):
    return chain([parent, child])
