"""openai-agents: child.as_tool() on the parent; tracing off."""

import json
import os

os.environ.setdefault("OPENAI_API_KEY", "unused")

from common import DELEGATE_DOC, SYSTEM_CHILD, SYSTEM_PARENT

DIST = "openai-agents"
IMPORT = "from agents import Agent, Runner, function_tool"

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

set_tracing_disabled(True)


def results(items):
    if isinstance(items, str):
        return []
    return [i["output"] for i in items if isinstance(i, dict) and i.get("type") == "function_call_output"]


class Fake(Model):
    def __init__(self, brain):
        self.brain = brain

    async def get_response(self, system_instructions, input, *args, **kwargs):
        out = await self.brain.step(input, results)
        if isinstance(out, str):
            text = ResponseOutputText(text=out, type="output_text", annotations=[])
            items = [
                ResponseOutputMessage(
                    id="m", type="message", role="assistant", status="completed", content=[text]
                )
            ]
        else:
            items = [
                ResponseFunctionToolCall(
                    id=c,
                    call_id=c,
                    type="function_call",
                    name=t,
                    arguments=json.dumps({"text" if t == "echo" else "input": v}),
                )
                for c, t, v in out
            ]
        return ModelResponse(output=items, usage=Usage(requests=1), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


def echo(brain):
    @function_tool
    async def echo(text: str) -> str:
        """Echo the text."""
        return text

    agent = Agent("parent", instructions=SYSTEM_PARENT, model=Fake(brain), tools=[echo])

    async def run():
        return (await Runner.run(agent, "go", max_turns=100000)).final_output

    return run


def chain(brains):
    below = None
    for k in reversed(range(len(brains))):
        tools = [] if below is None else [below.as_tool("delegate", DELEGATE_DOC)]
        below = Agent(
            f"a{k}",
            instructions=SYSTEM_PARENT if k == 0 else SYSTEM_CHILD,
            model=Fake(brains[k]),
            tools=tools,
        )
    top = below

    async def run():
        return (await Runner.run(top, "go")).final_output

    return run


def fanout(parent, child):
    return chain([parent, child])
