"""deepagents: create_deep_agent(subagents=[...]) and its built-in task tool."""

import peer_langchain as lc
from common import DELEGATE_DOC, SYSTEM_CHILD, SYSTEM_PARENT

DIST = "deepagents"
IMPORT = "from deepagents import create_deep_agent; from langchain_core.language_models import BaseChatModel"

from deepagents import create_deep_agent
from langchain_core.tools import tool


def args(name, value):
    if name == "delegate":
        return {"description": value, "subagent_type": "worker"}
    return {"text": value}


def fake(brain):
    # Without a known context size deepagents summarises at 170 k tokens, which
    # 1000 tasks of 2 KB exceed; the scripted model cannot write a summary.
    return lc.Fake(
        brain=brain, args=args, tool_names={"delegate": "task"}, profile={"max_input_tokens": 10**9}
    )


def echo(brain):
    @tool
    async def echo(text: str) -> str:
        """Echo the text."""
        return text

    return lc.starter(create_deep_agent(fake(brain), tools=[echo], system_prompt=SYSTEM_PARENT))


def fanout(parent, child):
    worker = {
        "name": "worker",
        "description": DELEGATE_DOC,
        "system_prompt": SYSTEM_CHILD,
        "model": fake(child),
        "tools": [],
    }
    return lc.starter(create_deep_agent(fake(parent), system_prompt=SYSTEM_PARENT, subagents=[worker]))


def chain(brains):
    # A declared subagent has no task tool of its own, so a deeper level is a
    # compiled deep agent given as a CompiledSubAgent.
    below = create_deep_agent(fake(brains[-1]), system_prompt=SYSTEM_CHILD)
    for brain in reversed(brains[:-1]):
        worker = {"name": "worker", "description": DELEGATE_DOC, "runnable": below}
        below = create_deep_agent(fake(brain), system_prompt=SYSTEM_PARENT, subagents=[worker])
    return lc.starter(below)
