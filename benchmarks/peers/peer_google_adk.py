"""google-adk: AgentTool on an LlmAgent, in-memory sessions."""

from common import DELEGATE_DOC, SYSTEM_CHILD, SYSTEM_PARENT

DIST = "google-adk"
IMPORT = (
    "from google.adk.agents import LlmAgent; from google.adk.runners import InMemoryRunner; "
    "from google.adk.tools.agent_tool import AgentTool; from google.adk.models.base_llm import BaseLlm"
)

import logging
import warnings
from typing import Any

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

CONFIG = RunConfig(max_llm_calls=1000000)


def results(contents):
    return [
        str(p.function_response.response)
        for c in contents
        for p in c.parts or []
        if p.function_response is not None
    ]


class Fake(BaseLlm):
    model: str = "fake"
    brain: Any = None

    async def generate_content_async(self, llm_request, stream=False):
        out = await self.brain.step(llm_request.contents, results)
        if isinstance(out, str):
            parts = [types.Part(text=out)]
        else:
            parts = [
                types.Part(
                    function_call=types.FunctionCall(
                        id=c, name=t, args={"text" if t == "echo" else "request": v}
                    )
                )
                for c, t, v in out
            ]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def starter(agent):
    runner = InMemoryRunner(agent=agent, app_name="bench")
    runner.auto_create_session = False

    async def run():
        session = await runner.session_service.create_session(app_name="bench", user_id="u")
        text = ""
        message = types.Content(role="user", parts=[types.Part(text="go")])
        async for event in runner.run_async(
            user_id="u", session_id=session.id, new_message=message, run_config=CONFIG
        ):
            if event.content and event.content.parts and event.content.parts[0].text:
                text = event.content.parts[0].text
        await runner.session_service.delete_session(app_name="bench", user_id="u", session_id=session.id)
        return text

    return run


def echo(brain):
    async def echo(text: str) -> str:
        """Echo the text."""
        return text

    return starter(LlmAgent(name="parent", model=Fake(brain=brain), instruction=SYSTEM_PARENT, tools=[echo]))


def chain(brains):
    below = None
    for k in reversed(range(len(brains))):
        tools = [] if below is None else [AgentTool(below)]
        # AgentTool takes its tool name from the agent
        below = LlmAgent(
            name="parent" if k == 0 else "delegate",
            description=DELEGATE_DOC,
            model=Fake(brain=brains[k]),
            instruction=SYSTEM_PARENT if k == 0 else SYSTEM_CHILD,
            tools=tools,
        )
    return starter(below)


def fanout(parent, child):
    return chain([parent, child])
